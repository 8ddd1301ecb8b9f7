"""Observations, game infos and game data: names, shapes and values beside the protobuf library."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("s2clientprotocol", reason="needs the game extra")

from wire_oracle import parse

from sc2gym.errors import CorruptMessageError
from sc2gym.observation import (
    PLAYER,
    SCORE_BY_CATEGORY,
    SCORE_BY_VITAL,
    SCORE_CATEGORIES,
    SCORE_CUMULATIVE,
    SCORE_VITALS,
    Observation,
    Planes,
    decode,
    decode_game_data,
    decode_game_info,
    has,
)


@pytest.fixture(scope="module")
def layered(data_dir: Path) -> bytes:
    return (data_dir / "observations/feature_layers_128.ResponseObservation.pb").read_bytes()


def observations(data_dir: Path) -> list[bytes]:
    paths = sorted((data_dir / "observations").rglob("*.ResponseObservation.pb"))
    assert len(paths) == 9
    return [path.read_bytes() for path in paths]


def pixels(image: Any) -> np.ndarray:
    """An image as protobuf gives it, unpacked a pixel at a time."""
    bits, width, height = image.bits_per_pixel, image.size.x, image.size.y
    if bits == 1:
        flat = [image.data[i >> 3] >> (7 - (i & 7)) & 1 for i in range(width * height)]
        return np.array(flat, np.uint8).reshape(height, width)
    return np.frombuffer(image.data, {8: "u1", 32: "<i4"}[bits]).reshape(height, width)


def assert_planes(mine: Planes, theirs: Any) -> None:
    present = {f.name: image for f, image in theirs.ListFields() if image.size.x}
    assert set(mine) == set(present) and len(mine) == len(present)
    for name, image in present.items():
        want = pixels(image)
        assert mine[name].dtype == want.dtype
        assert np.array_equal(mine[name], want), name
        assert not mine[name].flags.writeable or image.bits_per_pixel == 1


def test_values_are_the_protobuf_librarys(data_dir: Path) -> None:
    for data in observations(data_dir):
        mine, theirs = decode(data), parse("ResponseObservation", data)
        o = theirs.observation
        score = o.score.score_details
        assert mine.game_loop == o.game_loop
        assert mine.player.tolist() == [getattr(o.player_common, name) for name in PLAYER]
        assert mine.score_cumulative.tolist() == [
            o.score.score,
            *(getattr(score, name) for name in SCORE_CUMULATIVE[1:]),
        ]
        assert mine.score_by_category.tolist() == [
            [getattr(getattr(score, row), name) for name in SCORE_CATEGORIES]
            for row in SCORE_BY_CATEGORY
        ]
        assert mine.score_by_vital.tolist() == [
            [getattr(getattr(score, row), name) for name in SCORE_VITALS] for row in SCORE_BY_VITAL
        ]
        camera = o.raw_data.player.camera
        assert mine.camera.tolist() == [camera.x, camera.y, camera.z]
        assert mine.upgrades.tolist() == list(o.raw_data.player.upgrade_ids)
        assert mine.units["tag"].tolist() == [unit.tag for unit in o.raw_data.units]
        assert mine.units["health"].tolist() == [unit.health for unit in o.raw_data.units]
        for unit, want in zip(mine.units, o.raw_data.units, strict=True):
            start, count = unit["orders"]
            ids = mine.unit_orders["ability_id"][start : start + count].tolist()
            assert ids == [order.ability_id for order in want.orders]
            assert has(unit, "Unit", "is_powered") == want.HasField("is_powered")
        assert len(mine.actions) == len(theirs.actions)
        assert_planes(mine.feature_screen, o.feature_layer_data.renders)
        assert_planes(mine.feature_minimap, o.feature_layer_data.minimap_renders)
        assert_planes(mine.map_state, o.raw_data.map_state)
        assert len(mine.render) == 0


def test_everything_else_by_its_name() -> None:
    message = parse("ResponseObservation", b"")
    message.chat.add(player_id=2, message="glhf \N{SNOWMAN}")
    message.player_result.add(player_id=1, result=2)
    message.action_errors.add(unit_tag=2**40, ability_id=23, result=5)
    action = message.actions.add(game_loop=7)
    action.action_raw.unit_command.unit_tags.extend([2**33, 3])
    raw = message.observation.raw_data
    raw.event.dead_units.append(2**50)
    raw.radar.add(radius=30).pos.x = 4
    raw.effects.add(effect_id=3).pos.add(x=1, y=2)
    raw.player.power_sources.add(tag=2**34, radius=6.5)
    raw.units.add().passengers.add(tag=4, unit_type=48)
    raw.units[0].rally_targets.add(tag=9)
    raw.units[0].buff_ids.append(11)
    message.observation.abilities.add(ability_id=1, requires_point=True)
    message.observation.ui_data.production.production_queue.add(ability_id=8)
    picture = message.observation.render_data.map
    picture.bits_per_pixel, picture.size.x, picture.size.y = 24, 2, 1
    picture.data = b"rgbRGB"
    mine = decode(message.SerializeToString())
    assert mine.chat == ((2, "glhf \N{SNOWMAN}"),)
    assert mine.player_results[["player_id", "result"]].tolist() == [(1, 2)]
    assert mine.action_errors["unit_tag"].tolist() == [2**40]
    assert mine.actions["game_loop"].tolist() == [7]
    assert mine.action_tables["action_raw.unit_command.unit_tags"].tolist() == [2**33, 3]
    assert mine.dead_units.tolist() == [2**50]
    assert mine.radar["pos"]["x"].tolist() == [4]
    assert mine.effects["pos"].tolist() == [(0, 1)]
    assert mine.effect_positions[["x", "y"]].tolist() == [(1, 2)]
    assert mine.power_sources["tag"].tolist() == [2**34]
    assert mine.unit_passengers["unit_type"].tolist() == [48]
    assert mine.unit_rally_targets["tag"].tolist() == [9]
    assert mine.unit_buffs.tolist() == [11]
    assert mine.abilities["requires_point"].tolist() == [True]
    assert mine.ui_tables["production.production_queue"]["ability_id"].tolist() == [8]
    assert has(mine.ui, "ObservationUI", "production")
    assert not has(mine.ui, "ObservationUI", "single")
    assert mine.render["map"].tolist() == [[list(b"rgb"), list(b"RGB")]]


def test_images_are_views_of_the_message(layered: bytes) -> None:
    memory = bytearray(layered)
    plane = decode(memory).feature_screen["unit_type"]
    assert plane.dtype == np.int32 and plane.shape == (128, 128)
    assert np.shares_memory(plane, np.frombuffer(memory, np.uint8))
    assert not plane.flags.writeable
    with pytest.raises(KeyError):
        decode(memory).feature_screen["pathable"]


def test_an_observation_is_frozen_prints_its_shapes_and_pickles(layered: bytes) -> None:
    mine = decode(memoryview(layered))
    shown = repr(mine)
    assert "units: record[166]" in shown and "score_by_category: float32[11, 5]" in shown
    assert len(shown) < 4000
    with pytest.raises(AttributeError):
        mine.game_loop = 0  # type: ignore[misc]
    for array in (mine.units, mine.player, mine.score_cumulative, mine.unit_orders):
        with pytest.raises(ValueError):
            array[:] = 0
    again = pickle.loads(pickle.dumps(mine))
    assert isinstance(again, Observation)
    assert again.units.tobytes() == mine.units.tobytes()


def test_game_infos(data_dir: Path) -> None:
    paths = sorted((data_dir / "observations" / "maps").glob("*.ResponseGameInfo.pb"))
    assert len(paths) == 8
    for path in paths:
        data = path.read_bytes()
        mine, theirs = decode_game_info(data), parse("ResponseGameInfo", data)
        start = theirs.start_raw
        assert mine.map_name == theirs.map_name and mine.local_map_path == theirs.local_map_path
        assert mine.map_size == (start.map_size.x, start.map_size.y)
        area = start.playable_area
        assert mine.playable_area.tolist() == [area.p0.x, area.p0.y, area.p1.x, area.p1.y]
        assert mine.start_locations.tolist() == [[p.x, p.y] for p in start.start_locations]
        for name in ("pathing_grid", "placement_grid", "terrain_height"):
            assert np.array_equal(getattr(mine, name), pixels(getattr(start, name)))
        assert len(mine.players) == len(theirs.player_info) == 2
        for player, want in zip(mine.players, theirs.player_info, strict=True):
            assert player.player_id == want.player_id and player.type == want.type
            assert player.race_requested == want.race_requested
            assert player.race_actual == want.race_actual
            assert player.difficulty == want.difficulty and player.name == want.player_name
        assert pickle.loads(pickle.dumps(mine)).map_size == mine.map_size


def test_a_grid_that_is_cut(data_dir: Path) -> None:
    path = next((data_dir / "observations" / "maps").glob("*.ResponseGameInfo.pb"))
    message = parse("ResponseGameInfo", path.read_bytes())
    message.start_raw.pathing_grid.data = message.start_raw.pathing_grid.data[:-1]
    with pytest.raises(CorruptMessageError, match="an image of"):
        decode_game_info(message.SerializeToString())
    assert decode_game_info(b"").pathing_grid.shape == (0, 0)
    with pytest.raises(CorruptMessageError):
        decode_game_info(path.read_bytes()[:-1])


def test_game_data(data_dir: Path) -> None:
    data = (data_dir / "observations" / "ResponseData.pb").read_bytes()
    mine, theirs = decode_game_data(data), parse("ResponseData", data)
    assert mine.units["unit_id"].tolist() == [unit.unit_id for unit in theirs.units]
    assert mine.names("units") == [unit.name for unit in theirs.units]
    assert mine.names("abilities", "link_name") == [a.link_name for a in theirs.abilities]
    assert mine.abilities["remaps_to_ability_id"].tolist() == [
        a.remaps_to_ability_id for a in theirs.abilities
    ]
    assert mine.names("upgrades") == [upgrade.name for upgrade in theirs.upgrades]
    weapons = [weapon.range for unit in theirs.units for weapon in unit.weapons]
    assert mine.tables["units.weapons"]["range"].tolist() == weapons
    assert "weapons" in repr(mine)
