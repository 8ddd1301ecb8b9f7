import csv
import sys
from pathlib import Path

import numpy as np
import pytest

from sc2gym import vocabulary
from sc2gym.errors import SC2GymError
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


def test_98_percent_of_older_commands_map(real_replays):
    shares = {}
    for path in real_replays:
        try:
            replay = Replay.open(path)
            if replay.base_build < 59587:
                shares[path.name] = report.measure(replay).share
        except SC2GymError:
            continue
    print(shares)
    assert len(shares) >= 11 and min(shares.values()) >= 0.98, shares


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


def test_before_4_0_doubtful_links_are_unknown():
    lines = (vocabulary._DATA / "link_evidence.csv").read_text("utf-8").splitlines()
    evidence = list(csv.DictReader(lines))
    builds, _ = vocabulary._link_table()
    for table, highest in vocabulary._CONFIRMED.items():
        following = builds[builds.index(table) + 1]
        between = [row for row in evidence if table < int(row["base_build"]) < following]
        last = max(int(row["base_build"]) for row in between)
        followed = [row for row in between if int(row["followed"])]
        assert any(int(row["link"]) == highest for row in followed)
        assert all(int(row["link"]) <= highest for row in followed if row["base_build"] == last)
        exact = vocabulary.abilities(table).links
        links = vocabulary.abilities((table + following) // 2).links
        assert max(exact) > highest and max(links) <= max(exact)
        assert all(links[link] == name for link, name in exact.items() if link <= highest)
        agreed = vocabulary.abilities(following).links
        assert all(agreed[link] == name for link, name in links.items() if link > highest)
    # What the plain table would call the retracting of a bridge.
    functions = vocabulary.abilities(42200).raw_function([389, 412], [0, 0], [0, 2])
    assert functions.tolist() == [vocabulary.UNKNOWN] * 2


@pytest.mark.parametrize(
    ("build", "table"),
    [(0, 16117), (16939, 16117), (42253, 38215), (59586, 54724), (75689, 76114), (1 << 40, 97364)],
)
def test_the_table_of_a_build(build, table):
    assert vocabulary.abilities(build).table_build == table
