"""A stand-in for StarCraft II that pysc2 finds, starts and talks to as if it were the game.

Only the engine is replaced. `installation` lays out a folder as StarCraft does, so that pysc2's
own run configs find the versions in it; the executables there run `standin.server`, which speaks
the game's websocket protocol and answers with real messages in which the units move about.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]


def installation(
    root: Path,
    observations: Path,
    builds: Iterable[int] = (75689,),
    maps: Iterable[str] = (),
    plan: Mapping[str, Any] | None = None,
) -> Path:
    """Lays out a StarCraft II folder under `root`, for the environment variable SC2PATH.

    Args:
        root: An empty folder.
        observations: The folder of real messages to answer with.
        builds: Base builds to install.
        maps: Map files to put under Maps, by their path there.
        plan: How games go. Keys are prefixes of a replay's content hash, or "" for all; values
            are settings of `server.Game`, e.g. {"": {"loops": 200}, "3f2a": {"die_at": 40}}.
    """
    script = (
        f"#!{sys.executable}\n"
        "import sys\n"
        f"sys.path[:0] = [{str(TESTS)!r}, {str(TESTS.parent)!r}]\n"
        "from standin.server import main\n"
        "main()\n"
    )
    for build in builds:
        executable = root / "Versions" / f"Base{build}" / "SC2_x64"
        executable.parent.mkdir(parents=True)
        executable.write_text(script)
        executable.chmod(executable.stat().st_mode | stat.S_IXUSR)
    for name in maps:
        path = root / "Maps" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"map")
    (root / "plan.json").write_text(
        json.dumps({"observations": os.fspath(observations), "plan": dict(plan or {})})
    )
    return root
