"""Frames against a slow model: a Python loop over the living units, a pixel and a row at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sc2gym import library, spaces, tracks, vocabulary
from sc2gym._fast.batch import Rules, Slot
from sc2gym._fast.frame import Frames
from sc2gym._fast.raster import TrackSource, fill_frame
from sc2gym._fast.tracks import COMMAND_OP, OP, SEGMENT, Tracks, build
from sc2gym.episode import AIR, GROUND, Episode, episodes, unit_classes
from sc2gym.replay import Replay
from sc2gym.vector import SC2ReplayVectorEnv

SELF, ALLY, NEUTRAL, ENEMY = 1, 2, 3, 4
LAYERS = ("camera", "player_id", "player_relative", "selected", "alerts", "unit_density",
          "build_progress", "unit_class")  # fmt: skip
COLUMNS = tuple(spaces.COLUMNS)
SAMPLES = [Path(str(source)) for source in library.find()[:2]]
ALERT_LOOPS, HALF_VIEW = 160, (14, 10)


@dataclass(frozen=True)
class Sides:
    """A game decoded apart from its episodes: what the model draws from."""

    game: tracks.Game
    episode: Episode
    side: tracks.Side
    teams: dict[int, int]

    def relation(self, owner: int) -> int:
        own = self.episode.player
        if owner == own.player_id:
            return SELF
        if owner not in self.teams:
            return NEUTRAL
        several = len(set(self.teams.values())) > 1
        return ALLY if several and self.teams[owner] == own.team else ENEMY


@cache
def sides_of(path: Path) -> tuple[Sides, ...]:
    replay = Replay.open(path)
    game = tracks.follow(replay)
    teams = {p.player_id: p.team for p in replay.players}
    return tuple(
        Sides(game, e, tracks.side_of(replay, game, e.player.player_id, e.player.user_id), teams)
        for e in episodes(replay)
    )


def row_at(loops: npt.NDArray[np.int32], loop: int) -> int:
    """The last row that holds at a loop, -1 for none."""
    return max((i for i, begin in enumerate(loops.tolist()) if begin <= loop), default=-1)


def living_at(of: Sides, loop: int) -> list[dict[str, Any]]:
    """The units of a loop in order of birth, with whether they move."""
    at = of.game.tracks.at(loop)
    segments = of.game.tracks.segment_table
    segments = segments[(segments["begin"] <= loop) & (loop < segments["end"])]
    moves = dict(zip(segments["unit"].tolist(), (segments["moving"] > 0).tolist(), strict=True))
    units = [
        dict(zip(at.dtype.names or (), row.tolist(), strict=True)) | {"moves": moves[row["unit"]]}
        for row in at
    ]
    assert [u["unit"] for u in units] == sorted(u["unit"] for u in units)
    return units


def selected_at(of: Sides, loop: int) -> set[int]:
    rows = of.side.selections
    row = row_at(rows[:, 0], loop)
    if row < 0:
        return set()
    _, first, count = rows[row].tolist()
    return set(of.game.tracks.selections[1][first : first + count].tolist())


def progress_of(of: Sides, unit: dict[str, Any], loop: int) -> int:
    if not unit["building"]:
        return 100
    whole = float(vocabulary.unit_types().build_loops[unit["type"]])
    age = loop - int(of.game.tracks.unit_births[unit["unit"]])
    # In single precision, as only that tells which percent a border case is.
    return int(min(99, np.float32(100) * np.float32(age) / np.float32(whole))) if whole > 0 else 0


class Canvas:
    """Layers of one frame, drawn unit by unit; `sure` unless rounding decides where one is."""

    def __init__(self, of: Sides, loop: int, size: tuple[int, int]):
        self.of, self.loop, self.size = of, loop, size
        width, height = of.game.map_size
        self.scale = np.float32(min(np.float32(size[1]) / np.float32(width),
                                    np.float32(size[0]) / np.float32(height)))  # fmt: skip
        self.layers = {name: np.zeros(size, np.uint8) for name in LAYERS}
        self.sure = True

    def pixel(self, x: float, y: float, moves: bool = False) -> tuple[int, int]:
        """(row, column) of a place in cells from the bottom left."""
        height = self.of.game.map_size[1]

        def index(value: float, pixels: int) -> int:
            return min(max(math.floor(float(np.float32(value) * self.scale)), 0), pixels - 1)

        at = index(height - y, self.size[0]), index(x, self.size[1])
        if moves:
            for off in (-1e-3, 1e-3):
                near = index(height - y + off, self.size[0]), index(x + off, self.size[1])
                self.sure &= at == near
        return at

    def draw(self) -> dict[str, npt.NDArray[np.uint8]]:
        types, of, loop = vocabulary.unit_types(), self.of, self.loop
        units = living_at(of, loop)
        selected = selected_at(of, loop)
        for unit in units:
            row, column = self.pixel(unit["x"], unit["y"], unit["moves"])
            density = self.layers["unit_density"]
            density[row, column] = min(255, density[row, column] + 1)
            if unit["unit"] in selected:
                self.layers["selected"][row, column] = 1
            values = {
                "player_id": unit["owner"] or 16,
                "player_relative": of.relation(unit["owner"]),
                "unit_class": int(unit_classes()[unit["type"]]),
                "build_progress": progress_of(of, unit, loop) if unit["building"] else 0,
            }
            half = math.floor(np.float32(types.radius[unit["type"]]) * self.scale)
            for name, value in values.items():
                covered = self.layers[name][
                    max(row - half, 0) : row + half + 1, max(column - half, 0) : column + half + 1
                ]
                np.maximum(covered, value, out=covered)
        self._draw_camera()
        for when, x, y in of.side.losses.tolist():
            if loop - ALERT_LOOPS < when <= loop:
                self.layers["alerts"][self.pixel(x + 0.5, y + 0.5)] = 1
        return self.layers

    def _draw_camera(self) -> None:
        loops, centres = self.of.side.cameras
        row = row_at(loops, self.loop)
        if row >= 0:
            x, y = centres[row].tolist()
            bottom, left = self.pixel(x - HALF_VIEW[0], y - HALF_VIEW[1])
            top, right = self.pixel(x + HALF_VIEW[0], y + HALF_VIEW[1])
            self.layers["camera"][top : bottom + 1, left : right + 1] = 1


def table_at(of: Sides, loop: int) -> tuple[npt.NDArray[np.float64], list[int]]:
    """Rows of all columns, and tags."""
    types = vocabulary.unit_types()
    units = living_at(of, loop)
    selected = selected_at(of, loop)
    rows = np.zeros((len(units), len(COLUMNS)))
    for row, unit in zip(rows, units, strict=True):
        known = {
            "unit_type": types.ids[unit["type"]],
            "alliance": of.relation(unit["owner"]),
            "build_progress": progress_of(of, unit, loop),
            "display_type": 1,
            "owner": unit["owner"] or 16,
            "x": unit["x"],
            "y": of.game.map_size[1] - unit["y"],
            "radius": types.radius[unit["type"]],
            "is_selected": unit["unit"] in selected,
        }
        for name, value in known.items():
            row[COLUMNS.index(name)] = value
    return rows, [int(of.game.tracks.unit_tags[unit["unit"]]) for unit in units]


def player_at(of: Sides, loop: int) -> list[int]:
    types = vocabulary.unit_types()
    loops, rows = of.side.stats
    row = row_at(loops, loop)
    vector = rows[row].tolist() if row >= 0 else [0] * 11
    done = [
        unit
        for unit in living_at(of, loop)
        if of.relation(unit["owner"]) == SELF and not unit["building"]
    ]
    names = [types.names[unit["type"]] for unit in done]
    army = sum(GROUND <= unit_classes()[unit["type"]] <= AIR for unit in done)
    return [*vector[:8], army, names.count("WarpGate"), names.count("Larva")]


def layout(
    size: tuple[int, int] = (64, 64), max_units: int = 1024
) -> tuple[Frames, dict[str, npt.NDArray[Any]]]:
    """Everything there is, in arrays full of rubbish."""
    space, frames = spaces.observation_space(
        tuple(spaces.OBSERVATIONS), minimap_size=size, max_units=max_units,
        minimap_layers=tuple(spaces.LAYERS), unit_columns=COLUMNS,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    boxes: dict[str, Any] = space.spaces  # type: ignore[attr-defined]
    return frames, {
        key: rng.integers(0, 200, box.shape).astype(box.dtype) for key, box in boxes.items()
    }


def shown(
    of: Sides, loop: int, size: tuple[int, int] = (64, 64), max_units: int = 1024
) -> dict[str, npt.NDArray[Any]]:
    frames, arrays = layout(size, max_units)
    fill_frame(of.episode.source, loop, frames, arrays)
    return arrays


@pytest.fixture(scope="module")
def games(real_replays: list[Path]) -> list[Path]:
    """Replays of each race, old and new, of two and of more players; and a sample."""
    wanted = ("replay_01", "replay_07", "2.0.8", "3.1.0", "4.11", "5.0.0", "2.0.11")
    return [*(p for p in real_replays if p.name.startswith(wanted)), *SAMPLES]


def loops_of(of: Sides, count: int) -> list[int]:
    """The first, the last, those beside the borders of a part and a block, and some at random."""
    end = of.game.end
    rng = np.random.default_rng(end)
    return sorted({0, 1, 31, 32, 255, 256, end - 1, end, *rng.integers(0, end, count).tolist()} & {
        *range(end + 1)
    })  # fmt: skip


def test_layers_are_those_of_the_slow_model(games: list[Path]) -> None:
    compared = sure = 0
    filled = dict.fromkeys(LAYERS, 0)
    for path in games:
        for of in sides_of(path)[:2]:
            for loop in loops_of(of, 5):
                for size in ((64, 64), (32, 48), (256, 256)):
                    canvas = Canvas(of, loop, size)
                    expected = canvas.draw()
                    seen = dict(zip(spaces.LAYERS, shown(of, loop, size)["minimap"], strict=True))
                    compared += 1
                    if not canvas.sure:
                        continue
                    sure += 1
                    for name, plane in seen.items():
                        if name not in LAYERS:
                            assert not plane.any(), name
                            continue
                        np.testing.assert_array_equal(
                            plane, expected[name], err_msg=f"{path.name} {loop} {size} {name}"
                        )
                        filled[name] += bool(plane.any())
    assert sure > 0.7 * compared > 100
    assert all(filled.values()), filled


def test_units_player_upgrades_and_loop_are_those_of_the_slow_model(games: list[Path]) -> None:
    upgrades = 0
    for path in games:
        for of in sides_of(path)[:2]:
            for loop in loops_of(of, 8):
                rows, tags = table_at(of, loop)
                seen = shown(of, loop)
                count = int(seen["unit_count"])
                assert count == min(len(tags), 1024)
                assert seen["unit_tags"][:count].tolist() == tags[:count]
                np.testing.assert_allclose(seen["units"][:count], rows[:count], atol=1e-3)
                assert not seen["units"][count:].any() and not seen["unit_tags"][count:].any()
                assert seen["player"].tolist() == player_at(of, loop)
                begins, places = of.side.upgrades
                owned = {
                    int(p) for b, p in zip(begins, places, strict=True) if b <= loop
                }  # fmt: skip
                assert np.flatnonzero(seen["upgrades"]).tolist() == sorted(owned)
                assert seen["upgrades"].max() <= 1
                upgrades += len(owned)
                assert seen["game_loop"].tolist() == [loop]
    assert upgrades > 20


def test_of_too_many_units_the_first_born_are_kept() -> None:
    of = sides_of(SAMPLES[0])[0]
    rows, tags = table_at(of, 3000)
    assert len(tags) > 40
    for most in (1, 40, len(tags), len(tags) + 1):
        seen = shown(of, 3000, max_units=most)
        count = min(most, len(tags))
        assert int(seen["unit_count"]) == count
        assert seen["unit_tags"].tolist() == tags[:count] + [0] * (most - count)
        np.testing.assert_allclose(seen["units"][:count], rows[:count], atol=1e-3)


def test_outside_the_game_there_is_nothing() -> None:
    of = sides_of(SAMPLES[0])[0]
    for loop in (-(1 << 31), -1000, -1, of.game.end + 257, 1 << 24, (1 << 31) - 1):
        seen = shown(of, loop)
        assert seen["game_loop"].tolist() == [loop]
        for key in ("minimap", "units", "unit_tags", "unit_count"):
            assert not seen[key].any(), (key, loop)
    assert shown(of, of.game.end)["unit_count"] > 0
    with pytest.raises(OverflowError):
        shown(of, 1 << 31)


def test_a_lanes_scratch_memory_shows_in_no_frame(games: list[Path]) -> None:
    # Lanes of a batch keep what stands still from frame to frame; single frames do not. Short
    # episodes make lanes change source within a block, and steps of 30 stay in one and leave it.
    files = [*SAMPLES, *games[:1]]
    options: dict[str, Any] = {
        "replays": [str(file) for file in files], "step_mul": 30, "max_episode_steps": 40,
        "observe": tuple(spaces.OBSERVATIONS), "minimap_layers": tuple(spaces.LAYERS),
        "max_units": 1024, "unit_columns": COLUMNS,
    }  # fmt: skip
    whole = {
        (e.name, e.player.player_id): e
        for file in files
        for e in episodes(Replay.open(file), "both", 30)
    }
    frames, alone = layout()
    for prefetch in (0, 2):
        envs = SC2ReplayVectorEnv(num_envs=5, prefetch=prefetch, num_threads=2, **options)
        observed, infos = envs.reset(seed=3)
        lanes: list[Any] = [None] * 5
        for _ in range(130):
            for lane in range(5):
                if infos.get("_replay", np.zeros(5, bool))[lane]:
                    lanes[lane] = whole[infos["replay"][lane], infos["player"][lane]]
                fill_frame(lanes[lane].source, int(infos["game_loop"][lane]), frames, alone)
                for key, array in alone.items():
                    np.testing.assert_array_equal(observed[key][lane], array, err_msg=key)
            observed, _, _, _, infos = envs.step(np.zeros(5, np.int64))
        envs.close()


def crowd(count: int, seed: int) -> Tracks:
    """Units that come, go, walk, halt and are built, in a game of 1,500 loops."""
    rng = np.random.default_rng(seed)
    rows = []
    for unit in range(count):
        loop = int(rng.choice([0, 0, 100, rng.integers(1400)]))
        for length in rng.choice([3, 40, 300, 1500], rng.integers(1, 5)):
            row = np.zeros((), SEGMENT)
            row["begin"], row["end"], row["unit"] = loop, min(loop + length, 1500), unit
            row["x"], row["y"] = rng.integers(0, 64 * 12, 2)
            if rng.random() < 0.5:
                row["vx"], row["vy"] = rng.integers(-3000, 3000, 2)
                row["moving"] = rng.integers(1, length + 1)
            row["type"], row["owner"] = rng.integers(0, 3), rng.integers(0, 3)
            row["building"] = rng.random() < 0.1
            rows.append(row)
            loop += int(length)
            if loop >= 1500:
                break
    tags, births = np.arange(count), np.zeros(count, np.int32)
    return Tracks(np.array(rows), tags, births, small_tracks().selections, 0)


@pytest.mark.parametrize("count", [1, 60, 200, 2500])
@pytest.mark.parametrize("size", [(64, 64), (9, 12), (100, 40)])
def test_frames_do_not_depend_on_how_they_are_reached(count: int, size: tuple[int, int]) -> None:
    # A lane's scratch memory serves frames that follow each other, at whatever pace.
    episode = sides_of(SAMPLES[0])[0].episode
    rng = np.random.default_rng(count)
    chosen = np.sort(rng.choice(count, min(count, 20), replace=False)).astype(np.int32)
    rows = np.array([[0, 0, len(chosen)], [700, 0, len(chosen) // 2]], np.int32)
    made = arguments() | {"tracks": crowd(count, count), "selections": (rows, chosen)}
    frames, alone = layout(size, max_units=5)
    rules = Rules(frames, False, 10, "outcome", "Disabled", None)
    slot = Slot(
        {key: np.empty((1, *array.shape), array.dtype) for key, array in alone.items()}, rules
    )
    for pace in (1, 8, 13, 40, 64, 100, 0):
        loops = (
            np.arange(0, 1510, pace)
            if pace
            else np.cumsum(rng.choice([0, 1, 8, 8, 8, 30, 200], 60))
        ).astype(np.int32)
        source = TrackSource(**made)
        zeros = np.zeros(len(loops))
        of = replace(
            episode, source=source, game_loops=loops, expert_actions=zeros.astype(np.int32),
            score=zeros,
        )  # fmt: skip
        for step in (*range(len(loops) - 1), *range(0, len(loops) - 1, 7)):
            slot.begin(0, (of,), step)
            slot.fill()
            fill_frame(source, int(loops[step]), frames, alone)
            for key, array in slot.observations().items():
                np.testing.assert_array_equal(array[0], alone[key], err_msg=f"{pace} {step} {key}")


def test_threads_that_share_a_source_see_what_one_does() -> None:
    sides = sides_of(SAMPLES[0])
    end = sides[0].game.end

    def look(seed: int) -> Iterator[tuple[int, int, bytes]]:
        frames, arrays = layout((48, 32))
        rng = np.random.default_rng(seed)
        for loop in rng.permutation(np.arange(0, end, 37))[:150].tolist():
            for which, of in enumerate(sides):
                fill_frame(of.episode.source, loop, frames, arrays)
                yield which, loop, b"".join(array.tobytes() for array in arrays.values())

    with ThreadPoolExecutor(4) as pool:
        together = [{(w, at): frame for w, at, frame in found}
                    for found in pool.map(lambda seed: list(look(seed)), range(4))]  # fmt: skip
    for seed, found in enumerate(together):
        assert found == {(w, at): frame for w, at, frame in look(seed)}


# -- sources made of anything ----------------------------------------------------------------


def small_tracks() -> Tracks:
    """Three units: one that walks, one under construction, one that dies."""
    ops = np.zeros(4, OP)
    ops["kind"], ops["index"] = [0, 1, 0, 3], [1, 2, 3, 3]
    ops["loop"], ops["type"] = [0, 5, 7, 300], [1, 2, 0, 0]
    ops["x"], ops["y"], ops["creator"], ops["owner"] = [3, 60, 30, 30], 4, -1, [1, 2, 16, 0]
    commands = np.zeros(2, COMMAND_OP)
    commands["loop"], commands["kind"], commands["target"] = [1, 2], [0, 2], -1
    commands["motion"], commands["group"] = [0, 1], 10
    commands["add_count"], commands["x"], commands["y"] = [1, 0], 900, 900
    users = np.zeros(16, np.int8)
    users[0] = 1
    return build(
        ops, commands, np.zeros(1, np.uint8), np.zeros(1, np.int32),
        np.array([1 << 18], np.uint32), users,
        np.array([0, 1, 0], np.float32), 400,
    )  # fmt: skip


def arguments() -> dict[str, Any]:
    """Of a source that is sound."""
    return {
        "tracks": small_tracks(),
        "types": (
            np.arange(3, dtype=np.int32), np.array([6, 5, 8], np.uint8),
            np.array([0.5, 1, 3], np.float32), np.array([0, 100, 50], np.float32),
        ),
        "special": (1, 2, 6, 7),
        "relation": np.full(17, 3, np.uint8),
        "map_size": (64, 64),
        "stats": (np.zeros(1, np.int32), np.zeros((1, 11), np.int32)),
        "upgrades": (np.zeros(1, np.int32), np.zeros(1, np.int32)),
        "cameras": (np.zeros(1, np.int32), np.zeros((1, 2), np.float32)),
        "selections": (np.zeros((1, 3), np.int32), np.zeros(1, np.int32)),
        "losses": np.zeros((1, 3), np.int32),
    }  # fmt: skip


EXTREMES = st.sampled_from([0, 1, -1, 2, 5, 150, (1 << 31) - 1, -(1 << 31)])
REALS = st.sampled_from([0.0, 1.0, -5.0, 70.0, 3e38, -3e38, math.inf, -math.inf, math.nan])


@st.composite
def arrays_like(draw: st.DrawFn, array: npt.NDArray[Any]) -> Any:
    """Another length, another content, now and then another dtype, shape or order."""
    rows = draw(st.integers(0, 4)) if draw(st.booleans()) else len(array)
    shape = (rows, *array.shape[1:])
    values = REALS if array.dtype.kind == "f" else EXTREMES
    size = math.prod(shape)
    flat = np.array(draw(st.lists(values, min_size=size, max_size=size)))
    with np.errstate(all="ignore"):
        made = flat.astype(np.float64 if array.dtype.kind == "f" else np.int64)
        made = made.astype(array.dtype).reshape(shape)
    change = draw(st.sampled_from(["", "", "", "", "dtype", "shape", "order"]))
    if change == "dtype":
        return made.astype(np.float64)
    if change == "shape":
        return made.reshape(*shape, 1) if made.ndim == 1 else made[:, :-1]
    return np.repeat(made, 2, axis=0)[::2] if change == "order" else made


@st.composite
def arguments_like(draw: st.DrawFn) -> dict[str, Any]:
    made = arguments()
    for name in draw(st.lists(st.sampled_from(list(made)[1:]), min_size=1, max_size=3)):
        value = made[name]
        if name == "map_size":
            made[name] = draw(st.tuples(EXTREMES, EXTREMES))
        elif name == "special":
            made[name] = tuple(draw(st.lists(EXTREMES, min_size=4, max_size=4)))
        elif isinstance(value, tuple):
            made[name] = tuple(draw(arrays_like(array)) for array in value)
        else:
            made[name] = draw(arrays_like(value))
    return made


@given(arguments_like(), st.sampled_from([(1, 1), (7, 5), (64, 64), (200, 300)]))
@settings(max_examples=400, deadline=None)
def test_any_arrays_make_frames_or_a_value_error(
    made: dict[str, Any], size: tuple[int, int]
) -> None:
    try:
        source = TrackSource(**made)
    except ValueError:
        return
    frames, arrays = layout(size, max_units=5)
    for loop in (-5, 0, 6, 50, 150, 299, 400, 1 << 30):
        fill_frame(source, loop, frames, arrays)
        assert set(np.unique(arrays["upgrades"])) <= {0, 1}
        assert 0 <= int(arrays["unit_count"]) <= 3
    assert source.nbytes >= 0


def test_a_sound_source_is_taken() -> None:
    source = TrackSource(**arguments())
    frames, arrays = layout()
    fill_frame(source, 100, frames, arrays)
    assert int(arrays["unit_count"]) == 3


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("map_size", (0, 5), "size"),
        ("relation", np.zeros(16, np.uint8), "owner"),
        ("stats", (np.zeros(2, np.int32), np.zeros((1, 11), np.int32)), "a row a loop"),
        ("upgrades", (np.zeros(2, np.int32), np.zeros(1, np.int32)), "a place a loop"),
        ("cameras", (np.zeros(2, np.int32), np.zeros((1, 2), np.float32)), "a centre a loop"),
        ("selections", (np.array([[0, 0, 2]], np.int32), np.zeros(1, np.int32)), "beyond"),
        ("selections", (np.array([[0, 1, 2**31 - 1]], np.int32), np.zeros(1, np.int32)), "beyond"),
        ("losses", np.zeros((2, 2), np.int32), "three"),
    ],
)
def test_what_is_wrong_with_a_source_is_said(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrackSource(**arguments() | {name: value})


def test_arrays_that_do_not_fit_are_refused() -> None:
    of = sides_of(SAMPLES[0])[0]
    frames, arrays = layout()
    wrong: dict[str, npt.NDArray[Any]] = {
        "minimap": np.zeros((1, 64, 64), np.uint8),
        "units": np.zeros(arrays["units"].shape, np.int32),
        "unit_tags": np.zeros(2048, np.int64)[::2],
        "unit_count": np.zeros((), np.float32),
        "player": np.zeros(11, np.int64),
        "upgrades": np.frombuffer(bytes(arrays["upgrades"].size), np.int8),
        "game_loop": np.zeros(2, np.int32),
        "minimpa": arrays["minimap"],
    }
    for key, array in wrong.items():
        with pytest.raises(ValueError, match=r"array|key"):
            fill_frame(of.episode.source, 0, frames, {key: array})
