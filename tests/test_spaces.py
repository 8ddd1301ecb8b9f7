"""Spaces against what is observed in them, and what the options say when they are wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium.vector.utils import batch_space

from sc2gym import library, spaces, vocabulary
from sc2gym._fast.raster import fill_frame
from sc2gym.episode import episodes
from sc2gym.replay import Replay
from sc2gym.spaces import COLUMNS, LAYERS, OBSERVATIONS, PLAYER, availability, observation_space

EVERYTHING = {
    "observe": tuple(OBSERVATIONS), "minimap_layers": tuple(LAYERS),
    "unit_columns": tuple(COLUMNS),
}  # fmt: skip


def parts(space: gymnasium.Space[Any]) -> Mapping[str, Any]:
    assert isinstance(space, gymnasium.spaces.Dict)
    return space.spaces


@pytest.mark.parametrize(
    "options",
    [
        EVERYTHING,
        EVERYTHING | {"minimap_size": (31, 97), "max_units": 1},
        {"observe": ["units", "game_loop"], "unit_columns": ["y"]},
        {"observe": "units"},
    ],
)
def test_observations_are_in_their_space(options: dict[str, Any]) -> None:
    space, frames = observation_space(**options)
    boxes = parts(space)
    for path in library.find():
        for episode in episodes(Replay.open(path), "both", 997):
            arrays = {key: np.empty(box.shape, box.dtype) for key, box in boxes.items()}
            for step in range(len(episode) + 1):
                episode.fill(step, frames, arrays)
                for key, array in arrays.items():
                    assert array.dtype == boxes[key].dtype
                    assert boxes[key].contains(array), (key, step)
                assert space.contains(arrays)


@pytest.mark.parametrize(
    ("key", "shape", "dtype"),
    [
        ("minimap", (len(spaces.DEFAULT_LAYERS), 64, 64), np.uint8),
        ("player", (11,), np.int32),
        ("game_loop", (1,), np.int32),
    ],
)
def test_one_key_is_a_bare_box(key: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
    space, _ = observation_space(key)
    assert isinstance(space, gymnasium.spaces.Box)
    assert space.shape == shape and space.dtype == dtype
    inside = observation_space([key])[0]
    assert parts(inside) == {key: space}


def test_units_bring_their_tags_and_count() -> None:
    space, _ = observation_space("units", max_units=7, unit_columns=["x", "y", "owner"])
    assert {key: (box.shape, box.dtype) for key, box in parts(space).items()} == {
        "units": ((7, 3), np.float32), "unit_tags": ((7,), np.int64), "unit_count": ((), np.int32),
    }  # fmt: skip


def test_upgrades_are_a_place_each() -> None:
    space, _ = observation_space("upgrades")
    assert isinstance(space, gymnasium.spaces.MultiBinary)
    assert space.n == len(vocabulary.upgrades().names) > 100


def test_spaces_can_be_sampled_batched_and_flattened() -> None:
    space, _ = observation_space(**EVERYTHING, minimap_size=8, max_units=3)
    space.seed(0)
    # Gymnasium draws a bare number, not an array, from a box without dimensions.
    sample = {key: np.asarray(value) for key, value in space.sample().items()}
    assert space.contains(sample)
    batched = batch_space(space, 4)
    assert batched.contains(batched.sample())
    flat = gymnasium.spaces.flatten_space(space)
    assert flat.shape == gymnasium.spaces.flatten(space, sample).shape


def test_layers_and_columns_come_as_asked_for() -> None:
    (episode, _) = episodes(Replay.open(library.find()[0]))

    def seen(**options: Any) -> dict[str, npt.NDArray[Any]]:
        space, frames = observation_space(("minimap", "units"), **options)
        arrays = {key: np.empty(box.shape, box.dtype) for key, box in parts(space).items()}
        fill_frame(episode.source, 4000, frames, arrays)
        return arrays

    every = seen(minimap_layers=tuple(LAYERS), unit_columns=tuple(COLUMNS))
    layers, columns = ["unit_class", "height_map", "camera"], ["y", "health", "unit_type", "x"]
    some = seen(minimap_layers=layers, unit_columns=columns)
    for place, layer in enumerate(layers):
        np.testing.assert_array_equal(
            some["minimap"][place], every["minimap"][list(LAYERS).index(layer)]
        )
    for place, column in enumerate(columns):
        np.testing.assert_array_equal(
            some["units"][:, place], every["units"][:, list(COLUMNS).index(column)]
        )
    assert some["minimap"][0].any() and some["units"][:, 0].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observe": "minimpa"}, r"no observation 'minimpa'; did you mean 'minimap'\?"),
        ({"observe": ["minimap", "qqq"]}, r"no observation 'qqq'. There are: minimap, units"),
        ({"observe": []}, "at least one observation is needed"),
        ({"observe": ["units", "units"]}, "one observation is named twice: units, units"),
        ({"minimap_layers": ["player_relativ"]},
         r"no minimap layer 'player_relativ'; did you mean 'player_relative'\?"),
        ({"minimap_layers": []}, "at least one minimap layer"),
        ({"minimap_layers": ["camera", "camera"]}, "one minimap layer is named twice"),
        ({"unit_columns": ["tag"]}, "no unit column 'tag'"),
        ({"unit_columns": [3]}, "no unit column 3"),
        ({"unit_columns": []}, "at least one unit column"),
        ({"minimap_size": 0}, "minimap_size must be 1 to 1024 pixels a side, not 0"),
        ({"minimap_size": 1025}, "not 1025"),
        ({"minimap_size": (64, 64, 5)}, "minimap_size"),
        ({"minimap_size": (64, -1)}, "minimap_size"),
        ({"minimap_size": 6.5}, "minimap_size"),
        ({"minimap_size": (64, 6.5)}, "minimap_size"),
        ({"minimap_size": "big"}, "minimap_size"),
        ({"minimap_size": None}, "minimap_size"),
        ({"minimap_layers": "camera"}, "minimap layers are given as a list"),
        ({"unit_columns": "x"}, "unit columns are given as a list"),
        ({"max_units": 0}, "max_units must be 1 to 4096, not 0"),
        ({"max_units": 4097}, "not 4097"),
        ({"max_units": 2.5}, "max_units must be 1 to 4096"),
    ],
)  # fmt: skip
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        observation_space(**options)


def test_numpy_numbers_are_numbers() -> None:
    space, _ = observation_space(
        ["minimap", "units"],
        minimap_size=np.int64(32),  # type: ignore[arg-type]
        max_units=np.int32(5),  # type: ignore[arg-type]
    )
    assert parts(space)["minimap"].shape[1:] == (32, 32)
    assert parts(space)["units"].shape[0] == 5


def test_what_events_do_not_know_is_zero_and_the_rest_is_seen() -> None:
    known = availability("events")
    shown = {"minimap": dict.fromkeys(LAYERS, False), "units": dict.fromkeys(COLUMNS, False),
             "player": dict.fromkeys(PLAYER, False)}  # fmt: skip
    space, frames = observation_space(**EVERYTHING)
    arrays = {key: np.empty(box.shape, box.dtype) for key, box in parts(space).items()}
    for path in library.find():
        for episode in episodes(Replay.open(path), "both", 500):
            assert episode.availability() == known
            for step in range(len(episode) + 1):
                episode.fill(step, frames, arrays)
                for place, name in enumerate(LAYERS):
                    shown["minimap"][name] |= bool(arrays["minimap"][place].any())
                for place, name in enumerate(COLUMNS):
                    shown["units"][name] |= bool(arrays["units"][:, place].any())
                for place, name in enumerate(PLAYER):
                    shown["player"][name] |= bool(arrays["player"][place])
    for key, features in shown.items():
        for name, seen in features.items():
            assert seen == (known[key][name] != ""), (key, name)


def test_availability_is_of_both_sources_and_everything_observed() -> None:
    for source in ("events", "recording"):
        known = availability(source)  # type: ignore[arg-type]
        assert set(known) == set(OBSERVATIONS)
        words = {word for features in known.values() for word in features.values()}
        assert words <= {"exact", "estimated", ""}
    # Of positions, and all that shows where, a replay file is never sure.
    events = availability("events")
    assert {events["minimap"][name] for name in LAYERS} == {"estimated", ""}
    assert events["units"]["x"] == events["units"]["is_selected"] == "estimated"
    assert events["units"]["owner"] == events["upgrades"]["upgrades"] == "exact"


def test_the_core_knows_every_feature_by_one_id() -> None:
    for table, most in ((LAYERS, 32), (COLUMNS, 64), (PLAYER, 11)):
        ids = [feature.id for feature in table.values()]
        assert len(set(ids)) == len(ids) <= most and min(ids) == 0
        assert all(feature.meaning.endswith(".") for feature in table.values())
    assert set(spaces.DEFAULT_LAYERS) <= set(LAYERS)
    assert set(spaces.DEFAULT_COLUMNS) <= set(COLUMNS)


def test_actions_are_raw_functions_and_one_for_the_unknown() -> None:
    space = spaces.action_space()
    assert isinstance(space, gymnasium.spaces.Discrete)
    assert space.n == len(vocabulary.raw_functions()) == vocabulary.UNKNOWN + 1
