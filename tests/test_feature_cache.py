"""Features by (replay, player, step), from memory and from disk: the same, whatever happens."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sc2gym
from sc2gym import feature_cache
from sc2gym.episode import Episode

SAMPLES = sorted((Path(sc2gym.__file__).parent / "samples").glob("*.SC2Replay"))
SAMPLE = next(path for path in SAMPLES if path.stem == "zvz-rush")
ROOT = Path(__file__).parents[1]
ALL = ["minimap", "units", "player", "upgrades", "game_loop"]
STEP_MUL = 160


@pytest.fixture(autouse=True)
def own_caches():
    feature_cache.cache_of.cache_clear()
    yield
    feature_cache.cache_of.cache_clear()


@pytest.fixture
def library() -> sc2gym.Library:
    return sc2gym.Library(SAMPLE, step_mul=STEP_MUL)


@pytest.fixture
def decoded(monkeypatch) -> list[int]:
    """Steps that were filled from a decoded replay, as they happen."""
    steps: list[int] = []
    fill = Episode.fill

    def counted(self: Episode, step: int, *rest: Any) -> None:
        steps.append(step)
        fill(self, step, *rest)

    monkeypatch.setattr(Episode, "fill", counted)
    return steps


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.features"))


def assert_equal(ours: Any, theirs: Any) -> None:
    if not isinstance(theirs, dict):
        ours, theirs = {"": ours}, {"": theirs}
    assert list(ours) == list(theirs)
    for key in theirs:
        assert ours[key].dtype == theirs[key].dtype and ours[key].shape == theirs[key].shape
        np.testing.assert_array_equal(ours[key], theirs[key], key)


@pytest.mark.parametrize(
    "options",
    [
        {"observe": ALL},
        {"observe": "minimap", "minimap_size": (5, 7), "minimap_layers": ["player_relative"]},
        {"observe": "units", "max_units": 5, "unit_columns": ["y", "x", "owner"]},
        {"observe": "player"},
        {"observe": ["game_loop"]},
    ],
)
@pytest.mark.parametrize("disk", [False, True])
def test_it_is_what_an_environment_shows(options, disk, library, tmp_path):
    where = {"cache_dir": tmp_path / "new" / "cache"} if disk else {}
    env = sc2gym.SC2ReplayEnv(SAMPLE, step_mul=STEP_MUL, **options)
    for player in (1, 2):
        seen, _ = env.reset(options={"replay": SAMPLE.stem, "player": player})
        step, over = 0, False
        while not over:
            for replay in (SAMPLE.stem, str(SAMPLE), player - 1):
                got = library.features(replay, player, step, **options, **where)
                assert_equal(got, seen)
            seen, _, terminated, truncated, _ = env.step(0)
            step, over = step + 1, terminated or truncated
        assert_equal(library.features(SAMPLE.stem, player, step, **options, **where), seen)
    if disk:
        assert len(entries(tmp_path / "new" / "cache")) == 2


def test_what_is_on_disk_is_not_decoded_again(library, decoded, tmp_path):
    first = library.features(0, step=3, observe=ALL, cache_dir=tmp_path)
    assert len(decoded) == len(library.episode(0)) + 2
    decoded.clear()
    again = sc2gym.Library(SAMPLE, step_mul=STEP_MUL)
    assert_equal(again.features(0, step=3, observe=ALL, cache_dir=tmp_path), first)
    # Another name and place, the same contents.
    moved = shutil.copy(SAMPLE, tmp_path / "other.SC2Replay")
    other = sc2gym.Library(moved, step_mul=STEP_MUL)
    got = other.features("other", step=3, observe=ALL, cache_dir=tmp_path)
    assert_equal(got, first)
    assert decoded == []
    got["minimap"][:] = 7  # the caller's own
    assert_equal(other.features("other", step=3, observe=ALL, cache_dir=tmp_path), first)


def test_whatever_makes_a_difference_makes_another_entry(library, tmp_path, monkeypatch):
    base = {"observe": ["minimap", "units"], "minimap_size": 8, "max_units": 4}
    several: list[dict[str, Any]] = [
        {},
        {"minimap_size": 9},
        {"max_units": 5},
        {"minimap_layers": ["camera"]},
        {"minimap_layers": ["selected"]},
        {"unit_columns": ["x"]},
        {"unit_columns": ["y"]},
        {"observe": "minimap"},
        {"observe": ["minimap"]},
        {"player": 2},
    ]
    for each in several:
        library.features(0 if "player" not in each else 1, **{**base, **each}, cache_dir=tmp_path)
    # ["minimap"] and "minimap" are the same bytes.
    assert len(entries(tmp_path)) == len(several) - 1
    sc2gym.Library(SAMPLE, step_mul=320).features(0, **base, cache_dir=tmp_path)
    assert len(entries(tmp_path)) == len(several)
    monkeypatch.setattr(feature_cache, "FORMAT", 2)
    library.features(0, **base, cache_dir=tmp_path)
    assert len(entries(tmp_path)) == len(several) + 1


def test_what_is_not_there(library, tmp_path):
    steps = len(library.episode(0))
    for where in ({}, {"cache_dir": tmp_path}, {"cache_dir": tmp_path}):
        for step in (-1, steps + 1, 10**12):
            with pytest.raises(IndexError, match=f"step {step} of an episode of {steps}"):
                library.features(0, step=step, **where)
        library.features(0, **where)
        with pytest.raises(ValueError, match="no episode of replay 'nothing'"):
            library.features("nothing", **where)
        with pytest.raises(ValueError, match="did you mean 'minimap'"):
            library.features(0, observe="minimpa", **where)
    with pytest.raises(ValueError, match="must not be negative"):
        library.features(0, cache_dir=tmp_path, cache_dir_bytes=-1)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        library.features(0, cache_dir=tmp_path / "file")


def test_every_damage_is_found_and_mended(library, tmp_path):
    options: dict[str, Any] = {"observe": "minimap", "minimap_size": 16, "cache_dir": tmp_path}
    steps = range(0, len(library.episode(0)) + 1, 5)
    want = [library.features(0, step=step, observe="minimap", minimap_size=16) for step in steps]
    library.features(0, **options)
    (path,) = entries(tmp_path)
    data = path.read_bytes()
    generator = random.Random(11)
    damaged = [data[: len(data) * part // 20] for part in range(20)]
    damaged += [data[:8] + b"\x02" + data[9:], b"\0" * len(data), data[len(data) // 2 :]]
    # Every byte of the head, some of the rest.
    for at in [*range(60), *(generator.randrange(len(data)) for _ in range(60))]:
        flipped = bytearray(data)
        flipped[at] ^= 1 << generator.randrange(8)
        damaged.append(bytes(flipped))
    for number, each in enumerate(damaged):
        if number % 2:  # as another process finds it, or as one that has it open
            feature_cache.cache_of.cache_clear()
            path.write_bytes(each)
        else:
            library.features(0, **options)
            with open(path, "r+b") as file:
                file.write(each)
                file.truncate()
        for step, expected in zip(steps, want, strict=True):
            np.testing.assert_array_equal(library.features(0, step=step, **options), expected)
    feature_cache.cache_of.cache_clear()
    for step in range(len(library.episode(0)) + 1):
        library.features(0, step=step, **options)
    assert path.read_bytes() == data
    # The entry of something else, under this name.
    library.features(1, **options)
    (other,) = (each for each in entries(tmp_path) if each != path)
    feature_cache.cache_of.cache_clear()
    shutil.copy(other, path)
    np.testing.assert_array_equal(library.features(0, **options), want[0])
    assert path.read_bytes() == data


def test_the_bound_holds_and_the_least_recently_used_goes(tmp_path, decoded, monkeypatch):
    monkeypatch.setattr(feature_cache, "_USED", -1.0)
    library = sc2gym.Library(SAMPLES, step_mul=STEP_MUL)
    options: dict[str, Any] = {"observe": "minimap", "cache_dir": tmp_path}
    sizes = {}
    for number in range(4):
        before = set(entries(tmp_path))
        library.features(number, **options)
        (new,) = set(entries(tmp_path)) - before
        sizes[number] = new, new.stat().st_size
        time.sleep(0.02)
    library.features(0, **options)  # now 1 is the oldest
    bound = sum(size for _, size in sizes.values())
    library.features(4, **options, cache_dir_bytes=bound)
    kept = entries(tmp_path)
    assert sizes[1][0] not in kept and sizes[0][0] in kept
    assert sum(each.stat().st_size for each in kept) <= bound
    # Larger than the bound: handed out, not kept, and not packed again every time.
    library.features(5, **options, cache_dir_bytes=10)
    assert entries(tmp_path) == kept
    decoded.clear()
    library.features(5, **options)
    assert decoded == [0]


CHILD = """
import sys, zlib
import numpy as np
import sc2gym
folder, seed, *replays = sys.argv[1:]
library = sc2gym.Library(replays, step_mul=160)
generator = np.random.default_rng(int(seed))
for _ in range(60):
    number = int(generator.integers(len(library)))
    step = int(generator.integers(len(library.episode(number)) + 1))
    got = library.features(number, step=step, cache_dir=folder, cache_dir_bytes=600_000)
    want = library.features(number, step=step)
    assert np.array_equal(got, want), (number, step)
print("equal")
"""


def test_several_processes_and_threads_at_once_and_some_killed(tmp_path):
    cache = tmp_path / "cache"
    command = [sys.executable, "-W", "error", "-c", CHILD, str(cache)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    replays = [str(path) for path in SAMPLES]

    def start(seed: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*command, str(seed), *replays], env=environment, stdout=subprocess.PIPE, text=True
        )

    doomed = start(0)
    others = [start(seed) for seed in (1, 2)]
    until = time.monotonic() + 60
    while not entries(cache) and time.monotonic() < until:
        time.sleep(0.01)
    doomed.kill()
    doomed.communicate()
    assert [each.communicate(timeout=120)[0].strip() for each in others] == ["equal"] * 2
    library = sc2gym.Library(SAMPLES, step_mul=STEP_MUL)

    def get(number: int) -> bool:
        got = library.features(number % 6, step=number, cache_dir=cache, cache_dir_bytes=600_000)
        return np.array_equal(got, library.features(number % 6, step=number))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(get, range(24)))
    assert not list(cache.glob(".*.part"))
    assert sum(each.stat().st_size for each in entries(cache)) <= 600_000


FULL = """
import resource, signal, sys, warnings
import numpy as np
import sc2gym
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
library = sc2gym.Library(sys.argv[1], step_mul=160)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for step in (0, 1, 2):
        got = library.features(0, step=step, cache_dir=sys.argv[2])
        assert np.array_equal(got, library.features(0, step=step))
print(*(each.message for each in caught), sep="|")
"""


def test_a_full_disk_only_costs_time(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(SAMPLE), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.stdout == f"features are not kept in {tmp_path}: File too large\n"
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_to_only_costs_time(library, tmp_path, decoded):
    # For root, who may write to any folder: a folder in the way of the file.
    library.features(0, cache_dir=tmp_path)
    (path,) = entries(tmp_path)
    feature_cache.cache_of.cache_clear()
    path.unlink()
    path.mkdir()
    (path / "x").write_bytes(b"")
    with pytest.warns(UserWarning, match="features are not kept in"):
        got = library.features(0, cache_dir=tmp_path)
    np.testing.assert_array_equal(got, library.features(0))
    decoded.clear()
    library.features(0, step=4, cache_dir=tmp_path)  # no second warning, no second try
    assert decoded == [4]
    if os.geteuid() != 0:
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o500)
        with pytest.warns(UserWarning, match="ermission denied"):
            library.features(0, cache_dir=locked)


def test_recordings_have_entries_of_their_own(tmp_path, monkeypatch):
    # Two recordings of one replay differ in what was asked of the game.
    library = sc2gym.Library(SAMPLE, step_mul=STEP_MUL)
    layout = feature_cache.layout_of("player", 64, None, 512, None)
    plain = feature_cache._key(library, 0, layout)
    content = library.side(0)[0].partition(":")[2]
    monkeypatch.setattr(library, "side", lambda index: (f"recording:{content}", 1))
    keys = set()
    for size in (1, 2):
        path = tmp_path / f"{size}.SC2Recording"
        path.write_bytes(bytes(size))
        monkeypatch.setattr(library, "name", lambda index, path=path: str(path))
        keys.add(feature_cache._key(library, 0, layout))
    assert len(keys | {plain}) == 3


# What else holds features


def test_pysc2s_named_arrays_come_back_equal_from_a_pickle_here_and_elsewhere(data_dir, tmp_path):
    pytest.importorskip("pysc2", reason="needs the extra `game`")
    from sc2gym.features import as_named_arrays
    from sc2gym.observation import decode_game_info

    folder = data_dir / "observations" / "maps"
    infos = sorted(folder.glob("*.ResponseGameInfo.pb"))
    assert infos
    for number, path in enumerate(infos):
        data = Path(str(path).replace("GameInfo", "Observation")).read_bytes()
        named = as_named_arrays(
            data,
            decode_game_info(path.read_bytes()),
            use_unit_counts=True,
            use_camera_position=True,
        )
        copies = [pickle.loads(pickle.dumps(named, protocol)) for protocol in range(2, 6)]
        for again in copies:
            assert type(again) is type(named) and list(again) == list(named)
            for key, value in named.items():
                assert type(again[key]) is type(value), key
                if isinstance(value, str):
                    assert again[key] == value
                    continue
                assert again[key].dtype == value.dtype
                np.testing.assert_array_equal(again[key], value, key)
                assert getattr(again[key], "_index_names", None) == getattr(
                    value, "_index_names", None
                )
            assert again.raw_units[0].unit_type == named.raw_units[0].unit_type
            assert again.player.minerals == named.player.minerals
        if number == 0:
            kept = tmp_path / "named.pickle"
            kept.write_bytes(pickle.dumps(named))
            code = (
                "import pickle, sys\n"
                "named = pickle.load(open(sys.argv[1], 'rb'))\n"
                "print(named.player.minerals, named.raw_units[3].x, named['map_name'])"
            )
            done = subprocess.run(
                [sys.executable, "-W", "error::SyntaxWarning", "-c", code, str(kept)],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
            )
            assert done.stderr == ""
            want = f"{named.player.minerals} {named.raw_units[3].x} {named['map_name']}"
            assert done.stdout.strip() == want


def test_dictionaries_of_features_come_back_equal_from_a_pickle(library, tmp_path):
    env = sc2gym.SC2ReplayEnv(SAMPLE, observe=ALL)
    vector = sc2gym.SC2ReplayVectorEnv(SAMPLE, num_envs=2, observe=ALL)
    seen, info = env.reset(seed=0)
    seen_by_all, infos = vector.reset(seed=0)
    vector.close()
    for value in (
        seen,
        info,
        seen_by_all,
        infos,
        library.features(0, observe=ALL),
        library.features(0, observe=ALL, cache_dir=tmp_path),
        library.features(0, observe=ALL, cache_dir=tmp_path),
    ):
        for protocol in range(2, 6):
            again = pickle.loads(pickle.dumps(value, protocol))
            assert list(again) == list(value)
            for key in value:
                np.testing.assert_array_equal(again[key], value[key], key)
                assert getattr(again[key], "dtype", None) == getattr(value[key], "dtype", None)
