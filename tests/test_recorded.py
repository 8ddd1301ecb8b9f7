"""Frames from recorded observations: rows of a batch beside what the observation says."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

pytest.importorskip("pysc2", reason="needs the game extra")

from wire_oracle import messages, parse

from sc2gym._fast.frame import Frames
from sc2gym._fast.raster import fill_frame
from sc2gym.errors import CorruptMessageError
from sc2gym.features import UNIT_FEATURES, as_named_arrays, raw_functions, wire_source
from sc2gym.game import load_pysc2
from sc2gym.observation import GameInfo, decode, decode_game_info
from sc2gym.spaces import COLUMNS, LAYERS

load_pysc2()

UPGRADES = np.full(400, -1, np.int32)
UPGRADES[[7, 22, 399]] = 0, 3, 4
TYPES = (np.arange(2000) % 10 + 1).astype(np.uint8)


def source_of(
    frames: list[bytes],
    map_size: tuple[int, int] = (184, 184),
    game_info: GameInfo | None = None,
) -> Any:
    return wire_source(
        frames.__getitem__,
        np.arange(len(frames), dtype=np.int32) * 8 + 8,
        map_size=map_size,
        functions=raw_functions(),
        types=TYPES,
        upgrades=UPGRADES,
        game_info=game_info,
    )


def frame(
    source: Any, game_loop: int = 8, *, size: tuple[int, int] = (64, 64), max_units: int = 300
) -> dict[str, Any]:
    """Everything of a frame, in memory that was full of something else."""
    arrays = {
        "minimap": np.full((len(LAYERS), *size), 99, np.uint8),
        "units": np.full((max_units, len(COLUMNS)), 99, np.float32),
        "unit_tags": np.full(max_units, 99, np.int64),
        "unit_count": np.full((), 99, np.int32),
        "player": np.full(11, 99, np.int32),
        "upgrades": np.full(5, 99, np.int8),
        "game_loop": np.full(1, 99, np.int32),
    }
    layout = Frames(
        [layer.id for layer in LAYERS.values()],
        size,
        [column.id for column in COLUMNS.values()],
        max_units,
        5,
    )
    code = fill_frame(source, game_loop, layout, arrays)
    if code:
        raise source.failure
    planes = dict(zip(LAYERS, arrays.pop("minimap"), strict=True))
    return {**arrays, "planes": planes}


# pysc2 keeps these whole only because its table has nothing else.
FRACTIONS = ("health", "shield", "energy", "facing", "radius", "weapon_cooldown")


def check_units(got: dict[str, Any], wire: bytes, map_size: tuple[int, int]) -> None:
    observation = decode(wire)
    named = as_named_arrays(observation, map_size=map_size, add_cargo_to_units=True)
    want = np.asarray(named.raw_units).reshape(-1, len(UNIT_FEATURES))
    count = len(want)
    assert got["unit_count"] == count
    assert got["unit_tags"][:count].tolist() == want[:, UNIT_FEATURES.index("tag")].tolist()
    assert not got["unit_tags"][count:].any() and not got["units"][count:].any()
    units = observation.units
    for c, name in enumerate(COLUMNS):
        column = want[:, UNIT_FEATURES.index(name)].astype(np.float32)
        if name in FRACTIONS:
            column[: len(units)] = units[name]
        elif name == "x":
            column[: len(units)] = units["pos"]["x"]
        elif name == "y":
            column[: len(units)] = map_size[1] - units["pos"]["y"].astype(np.float64)
        assert np.array_equal(got["units"][:count, c], column), name


def test_columns_are_pysc2s() -> None:
    assert {name: UNIT_FEATURES.index(name) for name in COLUMNS} == {
        name: column.id for name, column in COLUMNS.items()
    }


def test_units_player_and_layers_of_a_real_observation(data_dir: Path) -> None:
    wire = (data_dir / "observations/feature_layers_128.ResponseObservation.pb").read_bytes()
    observation = decode(wire)
    got = frame(source_of([wire]), size=(128, 128))
    check_units(got, wire, (184, 184))
    assert got["player"].tolist() == observation.player.tolist()
    assert got["game_loop"].tolist() == [8]
    recorded = [name for name in LAYERS if name in observation.feature_minimap]
    assert len(recorded) == 8
    for name in recorded:
        assert np.array_equal(got["planes"][name], observation.feature_minimap[name]), name
    half = frame(source_of([wire]), size=(64, 32))
    for name in recorded:
        want = observation.feature_minimap[name][::2, ::4]
        assert np.array_equal(half["planes"][name], want), name


def test_layers_are_drawn_where_the_game_recorded_none(data_dir: Path) -> None:
    for path in sorted((data_dir / "observations" / "maps").glob("*.ResponseGameInfo.pb")):
        info = decode_game_info(path.read_bytes())
        wire = Path(str(path).replace("GameInfo", "Observation")).read_bytes()
        observation = decode(wire)
        side = max(info.map_size)
        got = frame(source_of([wire], info.map_size, info), size=(side, side))
        check_units(got, wire, info.map_size)
        width, height = info.map_size
        for name, cells in (
            ("pathable", info.pathing_grid),
            ("buildable", info.placement_grid),
            ("height_map", info.terrain_height),
            ("visibility_map", observation.map_state["visibility"]),
            ("creep", observation.map_state["creep"]),
        ):
            assert np.array_equal(got["planes"][name][:height, :width], cells[::-1]), name
            assert not got["planes"][name][height:].any()
        planes, units = got["planes"], observation.units
        assert planes["unit_density"].sum() == len(units)
        for unit in units[-5:]:
            x, y = int(unit["pos"]["x"]), int(height - unit["pos"]["y"])
            assert planes["player_relative"][y, x]
        last = units[-1]
        x, y = int(last["pos"]["x"]), int(height - last["pos"]["y"])
        assert planes["player_relative"][y, x] == last["alliance"]
        assert planes["player_id"][y, x] == last["owner"]
        assert planes["unit_class"][y, x] == TYPES[last["unit_type"]]
        x, y = int(observation.camera[0]), int(height - observation.camera[1])
        assert planes["camera"][y, x] == 1 and 300 < planes["camera"].sum() < 800


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(raw=messages("ObservationRaw", 4), layers=messages("FeatureLayersMinimap", 3))
def test_whatever_the_message_says(raw: Any, layers: Any) -> None:
    """Any positions, any images: no crash, and the unit table is pysc2's."""
    whole = parse("ResponseObservation", b"")
    whole.observation.raw_data.CopyFrom(raw)
    whole.observation.feature_layer_data.minimap_renders.CopyFrom(layers)
    wire = whole.SerializeToString()
    got = frame(source_of([wire]), size=(13, 7), max_units=20)
    assert 0 <= got["unit_count"] <= 20
    count = got["unit_count"]
    tags = [unit.tag for unit in raw.units] + [p.tag for u in raw.units for p in u.passengers]
    assert got["unit_tags"][:count].view(np.uint64).tolist() == tags[:20]


def test_upgrades_and_their_places() -> None:
    whole = parse("ResponseObservation", b"")
    whole.observation.raw_data.player.upgrade_ids.extend([22, 399, 5, 400, 2**32 - 1])
    got = frame(source_of([whole.SerializeToString()]))
    assert got["upgrades"].tolist() == [0, 0, 0, 1, 1]


def loops(*values: int) -> list[bytes]:
    frames = []
    for value in values:
        whole = parse("ResponseObservation", b"")
        whole.observation.player_common.minerals = value
        frames.append(whole.SerializeToString())
    return frames


def test_a_frame_holds_until_the_next_in_any_order() -> None:
    source = source_of(loops(1, 2, 3))
    want = {0: 1, 8: 1, 15: 1, 16: 2, 23: 2, 24: 3, 1000: 3}
    for game_loop in (1000, 0, 16, 15, 24, 23, 8, 8, 16):
        assert frame(source, game_loop)["player"][1] == want[game_loop]


def test_a_bad_frame_fails_alone_and_says_why() -> None:
    first, bad, last = loops(1, 2, 3)
    source = source_of([first, bad[:-1], last])
    assert frame(source, 8)["player"][1] == 1
    with pytest.raises(CorruptMessageError):
        frame(source, 16)
    assert frame(source, 24)["player"][1] == 3
    with pytest.raises(CorruptMessageError):
        frame(source, 16)

    def load(i: int) -> bytes:
        raise OSError("the disk is gone")

    source = wire_source(
        load,
        np.zeros(1, np.int32),
        map_size=(8, 8),
        functions=raw_functions(),
        types=TYPES,
        upgrades=UPGRADES,
    )
    with pytest.raises(OSError, match="the disk is gone"):
        frame(source)


def test_lanes_can_share_a_source() -> None:
    source = source_of(loops(*range(50)))
    wrong = []

    def work(order: list[int]) -> None:
        for i in order:
            if frame(source, 8 * i + 8, size=(8, 8), max_units=4)["player"][1] != i:
                wrong.append(i)

    orders = (list(range(50)), list(range(49, -1, -1)), [7] * 50)
    threads = [threading.Thread(target=work, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
