"""The shipped tables are what the tool makes of its sources."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
_SHIPPED = _ROOT / "sc2gym" / "data"
_BY_HAND = {"observed_links.csv"}


@pytest.fixture(scope="module")
def rebuilt(data_dir, tmp_path_factory):
    for package in ("pysc2", "s2clientprotocol", "sc2reader"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package} to rebuild the tables (it is in the `test` extra)")
    folder = tmp_path_factory.mktemp("tables")
    subprocess.run(
        [sys.executable, _ROOT / "tools" / "build_vocabulary.py", data_dir, folder],
        check=True,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdout=subprocess.DEVNULL,
        timeout=300,
    )
    return folder


def test_shipped_tables_are_byte_for_byte_those_of_the_tool(rebuilt):
    made = {path.name: path.read_bytes() for path in rebuilt.glob("*.csv")}
    shipped = {path.name: path.read_bytes() for path in _SHIPPED.glob("*.csv")}
    assert made.keys() == shipped.keys() - _BY_HAND
    different = [name for name in sorted(made) if made[name] != shipped[name]]
    assert not different, f"run tools/build_vocabulary.py: {different} differ"


@pytest.mark.parametrize("table", sorted(path.name for path in _SHIPPED.glob("*.csv")))
def test_tables_can_be_split_at_commas(table):
    # As the vocabulary reads them: no quotes, as many cells in every row.
    text = (_SHIPPED / table).read_bytes().decode("utf-8")
    assert '"' not in text and "\r" not in text and text.endswith("\n")
    assert len({line.count(",") for line in text.splitlines()}) == 1
