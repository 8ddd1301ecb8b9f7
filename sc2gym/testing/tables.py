"""s2protocol's table of one build, as a dict of its assignments."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sc2gym.errors import UnsupportedReplayError


def load_table(build: int) -> dict[str, Any]:
    """Read the table without importing it.

    Raises:
        UnsupportedReplayError: s2protocol has no table for the build.
    """
    spec = find_spec("s2protocol")
    assert spec is not None and spec.submodule_search_locations
    path = Path(spec.submodule_search_locations[0], "versions", f"protocol{build}.py")
    if not path.is_file():
        raise UnsupportedReplayError(f"s2protocol has no type table for build {build}")
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
