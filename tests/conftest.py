"""Where the real replays and observations are; tests that need them skip, and say so, without.

They are not part of the project: SC2GYM_TEST_DATA names their folder, by default
`../shared/data` beside the checkout.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

DATA = Path(
    os.environ.get("SC2GYM_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data"
).resolve()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real replays and observation messages."""
    if not DATA.is_dir():
        pytest.skip(f"needs real data: no folder {DATA} (set SC2GYM_TEST_DATA)")
    return DATA


@pytest.fixture(scope="session")
def real_replays(data_dir: Path) -> list[Path]:
    """Every real replay."""
    return sorted((data_dir / "replays").rglob("*.SC2Replay"))


@pytest.fixture(scope="session")
def pysc2_replays(data_dir: Path) -> list[Path]:
    """The nine ladder-style replays, with their step skips beside them."""
    return sorted((data_dir / "replays" / "pysc2").glob("*.SC2Replay"))
