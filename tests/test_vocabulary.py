import sys
from pathlib import Path

import numpy as np
import pytest

from sc2gym import vocabulary
from sc2gym.replay import Replay

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
import report_vocabulary as report

# Files of 4.0 and later. The co-op game is left out: its three commands are commanders' own.
_MODERN = ("4.0.0.59587-a", "4.3.0.64469-a", "4.7.0.70154-a", "5.0.0.80949-a")


@pytest.fixture(scope="module")
def modern(data_dir):
    folder = data_dir / "replays"
    paths = sorted((folder / "pysc2").glob("*.SC2Replay"))
    paths += [folder / "versions" / f"{name}.SC2Replay" for name in _MODERN]
    return {path.name: report.measure(Replay.open(path)) for path in paths}


def test_99_percent_of_commands_map(modern):
    shares = {name: fit.share for name, fit in modern.items()}
    print(shares)
    assert len(shares) == 13 and min(shares.values()) >= 0.99, shares


@pytest.mark.parametrize(
    ("build", "link", "index", "target", "name"),
    [
        (75689, -1, 0, 2, "Smart_unit"),
        (75689, 716, 0, 2, "Effect_ChronoBoostEnergyCost_unit"),
        (64469, 708, 0, 2, "Effect_ChronoBoostEnergyCost_unit"),
        (75689, 281, 0, 1, "Effect_CorrosiveBile_pt"),
        (75689, 309, 0, 0, "Morph_Ravager_quick"),
        (75689, 155, 0, 0, "Train_SCV_quick"),
        (75689, 243, 0, 0, "Train_Queen_quick"),
        (75689, 1 << 40, 0, 0, "unknown"),
        (75689, 155, 99, 0, "unknown"),
    ],
)
def test_raw_function(build, link, index, target, name):
    table = vocabulary.abilities(build)
    (function,) = table.raw_function([link], [index], [target])
    assert vocabulary.RAW_FUNCTIONS[function].name == name


def test_any_numbers_are_taken():
    numbers = np.array([np.iinfo(np.int64).min, -1, 0, 31, 32, np.iinfo(np.int64).max])
    grid = [axis.ravel() for axis in np.meshgrid(numbers, numbers, numbers)]
    for build in (-5, 0, 24944, 75689, 1 << 40):
        functions = vocabulary.abilities(build).raw_function(*grid)
        assert functions.min() >= 0 and functions.max() <= vocabulary.UNKNOWN


def test_tables_agree():
    functions, types = vocabulary.raw_functions(), vocabulary.unit_types()
    assert [f.id for f in functions] == list(range(vocabulary.NUM_FUNCTIONS))
    assert len(vocabulary.motion()) == vocabulary.NUM_FUNCTIONS
    marine = types.index[b"Marine"]
    assert types.ids[marine] == 48 and types.is_army[marine] and not types.is_flying[marine]
    assert types.speed[marine] == np.float32(2.25 / 16)
    assert vocabulary.upgrades().ids[vocabulary.upgrades().index[b"Stimpack"]] == 15
    assert b"SprayTerran" not in vocabulary.upgrades().index


def test_arrays_are_contiguous_and_read_only():
    # Compiled code takes them as they are.
    for table in (vocabulary.unit_types(), vocabulary.upgrades()):
        arrays = [value for value in vars(table).values() if isinstance(value, np.ndarray)]
        assert arrays and all(len(array) == len(table) for array in arrays)
        assert all(a.flags.c_contiguous and not a.flags.writeable for a in arrays)
