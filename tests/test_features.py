"""What pysc2's `Features.transform_obs` gives, run for real, against what is decoded here."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pysc2", reason="needs the game extra")

from wire_oracle import messages, parse

from sc2gym.errors import CorruptMessageError
from sc2gym.features import (
    MINIMAP_LAYERS,
    SCREEN_LAYERS,
    UNIT_FEATURES,
    FeatureReader,
    View,
    as_named_arrays,
    raw_functions,
)
from sc2gym.game import load_pysc2
from sc2gym.observation import decode, decode_game_info

load_pysc2()
from pysc2.lib import features, point  # noqa: E402


def transformer(
    map_size: tuple[int, int],
    *,
    layers: tuple[int, int] | None = None,
    resolution: tuple[int, int] | None = None,
    **options: Any,
) -> Any:
    """pysc2's `Features` with everything on that both have."""
    dimensions = features.Dimensions(screen=layers, minimap=layers) if layers else None
    return features.Features(
        features.AgentInterfaceFormat(
            feature_dimensions=dimensions,
            raw_resolution=resolution and point.Point(*resolution),
            camera_width_world_units=24,
            use_raw_units=True,
            use_raw_actions=True,
            use_feature_units=layers is not None,
            use_unit_counts=True,
            use_camera_position=True,
            **options,
        ),
        map_size=point.Point(*map_size),
    )


ALL = {"use_unit_counts": True, "use_camera_position": True}


def assert_same(mine: Any, theirs: Any) -> None:
    assert list(mine) and set(mine) == set(theirs)
    for key, want in theirs.items():
        got = mine[key]
        if isinstance(want, str):
            assert got == want
            continue
        assert got.dtype == want.dtype, key
        assert got.shape == want.shape, key
        assert np.array_equal(got, want), key
        assert getattr(got, "_index_names", None) == getattr(want, "_index_names", None), key
        assert type(got) is type(want), key


def test_names_are_pysc2s() -> None:
    assert features.ScreenFeatures._fields == SCREEN_LAYERS
    assert features.MinimapFeatures._fields == MINIMAP_LAYERS
    assert tuple(features.FeatureUnit.__members__) == UNIT_FEATURES


@pytest.mark.parametrize("resolution", [None, (128, 128), (64, 96)])
def test_observation_with_all_layers(data_dir: Path, resolution: tuple[int, int] | None) -> None:
    data = (data_dir / "observations/feature_layers_128.ResponseObservation.pb").read_bytes()
    theirs = transformer((184, 184), layers=(128, 128), resolution=resolution).transform_obs(
        parse("ResponseObservation", data)
    )
    mine = as_named_arrays(
        decode(data),
        map_size=(184, 184),
        raw_resolution=resolution,
        use_feature_units=True,
        **ALL,
    )
    assert_same(mine, theirs)
    assert len(mine.feature_units) and mine.feature_screen.unit_type.max() > 255
    again = pickle.loads(pickle.dumps(mine))
    assert_same(again, theirs)
    assert type(again.raw_units[0]).__name__ == "NamedNumpyArray"
    assert again.raw_units[3].health == theirs.raw_units[3].health


def test_the_eight_maps(data_dir: Path) -> None:
    infos = sorted((data_dir / "observations" / "maps").glob("*.ResponseGameInfo.pb"))
    assert len(infos) == 8
    for path in infos:
        info = parse("ResponseGameInfo", path.read_bytes())
        data = Path(str(path).replace("GameInfo", "Observation")).read_bytes()
        size = info.start_raw.map_size
        theirs = transformer((size.x, size.y))
        theirs._map_name = info.map_name
        theirs._requested_races = {p.player_id: p.race_requested for p in info.player_info}
        mine = as_named_arrays(data, decode_game_info(path.read_bytes()), **ALL)
        assert_same(mine, theirs.transform_obs(parse("ResponseObservation", data)))


def tame(message: Any) -> None:
    """Cuts all numbers of a message to what an int32 array of pysc2's can hold."""
    for f, value in message.ListFields():
        if f.message_type is not None:
            for part in value if f.is_repeated else [value]:
                tame(part)
        elif f.type == f.TYPE_FLOAT and not f.is_repeated:
            setattr(message, f.name, value if abs(value) < 1e6 else 1.25)
        elif f.enum_type is None and f.type in (f.TYPE_UINT32, f.TYPE_UINT64, f.TYPE_INT32):
            if f.is_repeated:
                value[:] = [v % 2**31 for v in value]
            else:
                setattr(message, f.name, value % 2**31)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    message=messages("Observation", 5),
    raw=messages("ObservationRaw", 4),
    ui=messages("ObservationUI", 4),
    errors=st.lists(messages("ActionError", 1), max_size=3),
    cargo=st.booleans(),
)
def test_random_observations(message: Any, raw: Any, ui: Any, errors: Any, cargo: bool) -> None:
    whole = parse("ResponseObservation", b"")
    whole.observation.CopyFrom(message)
    whole.observation.raw_data.CopyFrom(raw)
    whole.observation.ui_data.CopyFrom(ui)
    whole.action_errors.extend(errors)
    whole.observation.ClearField("feature_layer_data")
    whole.observation.ClearField("render_data")
    tame(whole)
    for group in whole.observation.ui_data.groups:
        group.control_group_index %= 10
    for unit in whole.observation.raw_data.units:
        if unit.add_on_tag and unit.tag:  # half of them have add-ons that are there
            whole.observation.raw_data.units.add(tag=unit.add_on_tag, unit_type=5)
    panel = whole.observation.ui_data
    if panel.HasField("multi") and not panel.multi.units:
        panel.multi.units.add()  # none at all is an untyped array in pysc2
    if panel.HasField("cargo") and not panel.cargo.passengers:
        panel.cargo.passengers.add()
    theirs = transformer((160, 184), add_cargo_to_units=cargo).transform_obs(whole)
    mine = as_named_arrays(
        whole.SerializeToString(), map_size=(160, 184), add_cargo_to_units=cargo, **ALL
    )
    assert_same(mine, theirs)


@settings(max_examples=60, deadline=None)
@given(
    depths=st.lists(st.sampled_from([1, 8, 16, 32, None]), min_size=38, max_size=38),
    width=st.integers(1, 19),
    height=st.integers(1, 9),
    random=st.randoms(use_true_random=False),
)
def test_layers_of_every_depth(
    depths: list[int | None], width: int, height: int, random: random.Random
) -> None:
    """Where bits do not fill the last byte, where a layer is missing, in int32 and in uint8."""
    whole = parse("ResponseObservation", b"")
    layers = whole.observation.feature_layer_data
    for planes, names in (
        (layers.renders, SCREEN_LAYERS),
        (layers.minimap_renders, MINIMAP_LAYERS),
    ):
        for name in names:
            bits = depths.pop()
            if bits or name == "height_map":
                bits = bits or 8
                image = getattr(planes, name)
                image.bits_per_pixel, image.size.x, image.size.y = bits, width, height
                image.data = random.randbytes(-(-width * height * bits // 8))
    wire = whole.SerializeToString()
    theirs = transformer((160, 184), layers=(width, height)).transform_obs(whole)
    mine = as_named_arrays(wire, map_size=(160, 184), use_feature_units=True, **ALL)
    assert_same(mine, theirs)
    reader = FeatureReader(View((160, 184)), np.zeros(1, np.int32))
    reader.read(wire)
    for fill, want in (
        (reader.feature_screen, theirs.feature_screen),
        (reader.feature_minimap, theirs.feature_minimap),
    ):
        small = np.full(want.shape, 7, np.uint8)
        fill(small)
        assert np.array_equal(small, np.clip(np.asarray(want), 0, 255))


def test_reader_fills_the_callers_arrays(data_dir: Path) -> None:
    data = (data_dir / "observations/feature_layers_128.ResponseObservation.pb").read_bytes()
    want = as_named_arrays(data, map_size=(184, 184))
    reader = FeatureReader(View((184, 184)), raw_functions())
    units = np.full((200, len(UNIT_FEATURES)), -1, np.int64)
    screen, minimap = np.empty((27, 128, 128), np.int32), np.empty((11, 128, 128), np.int32)
    for _ in range(2):
        reader.read(data)
        assert reader.raw_units(units) == 166
        reader.feature_screen(screen)
        reader.feature_minimap(minimap)
    assert np.array_equal(units[:166], want.raw_units)
    assert (units[166:] == -1).all()
    assert np.array_equal(screen, want.feature_screen)
    assert np.array_equal(minimap, want.feature_minimap)
    assert reader.observation().game_loop == 849
    with pytest.raises(ValueError, match="unit features are"):
        reader.raw_units(units[:165])
    with pytest.raises(CorruptMessageError, match="wanted is one of 64 by 64"):
        reader.feature_screen(np.empty((27, 64, 64), np.int32))
    with pytest.raises(ValueError, match="27 offsets for 26 planes"):
        reader.feature_screen(screen[:26])
    with pytest.raises(CorruptMessageError):
        reader.read(data[:-1])
    with pytest.raises(ValueError, match="nothing was read"):
        reader.feature_screen(screen)
    assert reader.raw_units(units) == 0


def test_images_whose_size_and_data_disagree() -> None:
    for bits, size, length in (
        *((8, (4, 4), n) for n in (0, 15, 17)),
        *((1, (3, 3), n) for n in (0, 1, 3)),
        *((32, (4, 4), n) for n in (16, 63, 65)),
        *((bits, (4, 4), 16) for bits in (0, -8, 7, 24, 64, 2**31 - 1)),
        *((8, size, 16) for size in ((-4, -4), (2**31 - 1, 2**31 - 1), (0, 4), (4, -4), (16, 0))),
    ):
        whole = parse("ResponseObservation", b"")
        image = whole.observation.feature_layer_data.renders.height_map
        image.bits_per_pixel, image.size.x, image.size.y = bits, *size
        image.data = bytes(length)
        wire = whole.SerializeToString()
        observation = decode(wire)
        with pytest.raises(CorruptMessageError) as caught:
            observation.feature_screen["height_map"]
        assert caught.value.offset == wire.index(bytes(length)) or not length
        reader = FeatureReader(View((160, 184)), np.zeros(1, np.int32))
        reader.read(wire)
        with pytest.raises(CorruptMessageError):
            reader.feature_screen(np.empty((27, 4, 4), np.int32))
        with pytest.raises(CorruptMessageError):
            as_named_arrays(observation, map_size=(160, 184))


def test_numbers_that_pysc2_cannot_hold_are_cut() -> None:
    """No undefined conversion, whatever the floats are."""
    whole = parse("ResponseObservation", b"")
    for value in (float("nan"), float("inf"), float("-inf"), 3e38):
        unit = whole.observation.raw_data.units.add(
            health=value, health_max=1e-30, energy_max=1, energy=value, radius=value, facing=value
        )
        unit.tag = 2**64 - 1
        unit.pos.x = unit.pos.y = unit.build_progress = value
        unit.orders.add(ability_id=2**32 - 1, progress=value)
    reader = FeatureReader(View((160, 184)), np.ones(10, np.int32))
    reader.read(whole.SerializeToString())
    out = np.empty((4, len(UNIT_FEATURES)), np.int64)
    assert reader.raw_units(out) == 4
    assert out[0, UNIT_FEATURES.index("x")] == 0
    assert out[1, UNIT_FEATURES.index("x")] == 2**63 - 1
    assert out[2, UNIT_FEATURES.index("health")] == -(2**63) + 1
    assert (out[:, UNIT_FEATURES.index("order_id_0")] == 0).all()
    assert (out[:, UNIT_FEATURES.index("tag")] == -1).all()


def test_without_pysc2_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['pysc2'] = None\n"
        "from sc2gym.features import as_named_arrays\n"
        "try:\n    as_named_arrays(b'', map_size=(8, 8))\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[1],
    )
    assert "sc2gym[game]" in done.stdout, done.stderr
