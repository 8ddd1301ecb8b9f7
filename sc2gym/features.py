"""pysc2's view of an observation: what `Features.transform_obs` gives, under the same names.

`as_named_arrays` gives pysc2's own types and needs pysc2; `FeatureReader` writes the large ones,
unit features and layers, into arrays of the caller's and needs nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sc2gym._fast.features import FeatureUnits, fill_planes
from sc2gym._fast.recorded import WireSource
from sc2gym._fast.wire import Decoder
from sc2gym.observation import (
    PLAYER,
    SCORE_BY_CATEGORY,
    SCORE_BY_VITAL,
    GameInfo,
    Observation,
    decode,
    observation_of,
    schema,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

Array = npt.NDArray[Any]

# The layers and columns of pysc2 4.0.0, in its order.
SCREEN_LAYERS = (
    *("height_map", "visibility_map", "creep", "power", "player_id", "player_relative"),
    *("unit_type", "selected", "unit_hit_points", "unit_hit_points_ratio", "unit_energy"),
    *("unit_energy_ratio", "unit_shields", "unit_shields_ratio", "unit_density"),
    *("unit_density_aa", "effects", "hallucinations", "cloaked", "blip", "buffs"),
    *("buff_duration", "active", "build_progress", "pathable", "buildable", "placeholder"),
)
MINIMAP_LAYERS = (
    *("height_map", "visibility_map", "creep", "camera", "player_id", "player_relative"),
    *("selected", "unit_type", "alerts", "pathable", "buildable"),
)
UNIT_FEATURES = (
    *("unit_type", "alliance", "health", "shield", "energy", "cargo_space_taken"),
    *("build_progress", "health_ratio", "shield_ratio", "energy_ratio", "display_type", "owner"),
    *("x", "y", "facing", "radius", "cloak", "is_selected", "is_blip", "is_powered"),
    *("mineral_contents", "vespene_contents", "cargo_space_max", "assigned_harvesters"),
    *("ideal_harvesters", "weapon_cooldown", "order_length", "order_id_0", "order_id_1", "tag"),
    *("hallucination", "buff_id_0", "buff_id_1", "addon_unit_type", "active", "is_on_screen"),
    *("order_progress_0", "order_progress_1", "order_id_2", "order_id_3", "is_in_cargo"),
    *("buff_duration_remain", "buff_duration_max", "attack_upgrade_level"),
    *("armor_upgrade_level", "shield_upgrade_level"),
)
# Those that are layers of `sc2gym.spaces.LAYERS`, by their ids there.
_MINIMAP_BY_ID = (
    *("height_map", "visibility_map", "creep", "camera", "player_id", "player_relative"),
    *("selected", "alerts", "pathable", "buildable"),
)
_SELECTED = (
    *("unit_type", "player_relative", "health", "shields", "energy", "transport_slots_taken"),
)
_SELF = 1  # Alliance of the player's own


@dataclass(frozen=True)
class View:
    """From world units to pixels, as pysc2's chain of transforms does it.

    Attributes:
        map_size: Width and height of the map in world units.
        resolution: Width and height in pixels of what is looked at; None is the map's size.
    """

    map_size: tuple[int, int]
    resolution: tuple[int, int] | None = None

    @property
    def scale(self) -> tuple[float, float]:
        """Pixels per world unit of a picture of the whole map."""
        width, height = self.resolution or self.map_size
        longest = max(self.map_size)
        return width / longest, height / longest

    def whole_map(self) -> tuple[float, ...]:
        """For `FeatureUnits.fill`: raw units, in pixels of the whole map."""
        return (self.map_size[1], 0.0, 0.0, *self.scale, 0.0, 0.0)

    def around(
        self, camera: Array, screen: tuple[int, int], camera_width: float
    ) -> tuple[float, ...]:
        """For `FeatureUnits.fill`: units in pixels of the feature screen."""
        x, y = float(camera[0]), float(camera[1]) * -1 + self.map_size[1]
        scale = screen[0] / camera_width, screen[1] / camera_width
        return (self.map_size[1], -x, -y, *scale, screen[0] / 2, screen[1] / 2)


class FeatureReader:
    """Reads observations one after another and fills the caller's arrays, allocating nothing.

    Args:
        view: The map and the resolution for positions.
        functions: (abilities,) int32, pysc2's raw function id of each ability id.
    """

    def __init__(self, view: View, functions: npt.NDArray[np.int32]):
        self.decoder = Decoder(schema("ResponseObservation"))
        self._units = FeatureUnits(self.decoder, functions)
        self._whole_map = view.whole_map()
        self._data: Buffer = b""

    def read(self, data: Buffer) -> None:
        """Reads a serialized `ResponseObservation`; it must not change until it is used up.

        Raises:
            CorruptMessageError: It is cut off or no such message.
        """
        self.decoder.read(data)
        self._data = data

    def observation(self) -> Observation:
        """All of what was read, in views that the next `read` overwrites."""
        return observation_of(self.decoder, self._data)

    def raw_units(self, out: npt.NDArray[np.int64]) -> int:
        """Writes pysc2's `raw_units`, (rows, 46) int64; returns the number of units."""
        return self._units.fill(out, self._whole_map)

    def feature_screen(self, out: Array) -> None:
        """Writes the (27, height, width) layers, int32 or uint8 (where over 255 is 255).

        Raises:
            CorruptMessageError: A layer is of another size, or lacks bytes.
        """
        fill_planes(self.decoder, _octets(self._data), _offsets("renders", SCREEN_LAYERS), out)

    def feature_minimap(self, out: Array) -> None:
        """Writes the (11, height, width) layers; see `feature_screen`."""
        fill_planes(
            self.decoder, _octets(self._data), _offsets("minimap_renders", MINIMAP_LAYERS), out
        )


def _octets(data: Buffer) -> npt.NDArray[np.uint8]:
    """A view of any buffer, whatever type it says its items are."""
    view = memoryview(data)
    return np.frombuffer(view, np.uint8) if view.nbytes else np.zeros(0, np.uint8)


def wire_source(
    load: Callable[[int], Buffer],
    game_loops: npt.NDArray[np.int32],
    *,
    map_size: tuple[int, int],
    functions: npt.NDArray[np.int32],
    types: npt.NDArray[np.uint8],
    upgrades: npt.NDArray[np.int32],
    game_info: GameInfo | None = None,
) -> WireSource:
    """Frames of recorded observations, for episodes (`sc2gym._fast.recorded`).

    Args:
        load: Gives the wire bytes of a frame by its ordinal.
        game_loops: (frames,) the loop of each, ascending.
        map_size: Width and height of the map in cells.
        functions: (abilities,) the raw function id of each ability id.
        types: (n,) the class of each unit type, for the layer "unit_class".
        upgrades: (n,) the place of each upgrade id in the upgrade vector, -1 for none.
        game_info: Gives the map's height, pathing and placement, for those layers.
    """
    grids = None
    if game_info is not None and game_info.pathing_grid.size:
        parts = (game_info.terrain_height, game_info.pathing_grid, game_info.placement_grid)
        if len({part.shape for part in parts}) == 1:
            grids = np.ascontiguousarray(np.stack(parts))
    images = (
        *_offsets("minimap_renders", _MINIMAP_BY_ID),
        *(_offset(f"observation.raw_data.map_state.{name}") for name in ("visibility", "creep")),
        _offset("observation.raw_data.player.camera"),
    )
    player = [_offset(f"observation.player_common.{name}") for name in PLAYER]
    return WireSource(
        Decoder(schema("ResponseObservation")),
        functions,
        load,
        game_loops,
        map_size,
        np.array(images, np.int64),
        np.array(player, np.int64),
        types,
        upgrades,
        grids,
    )


def _offset(path: str) -> int:
    """Where a field is in the record of a message."""
    dtype: Any = schema("ResponseObservation").tables[0].dtype
    start = 0
    for name in path.split("."):
        dtype, offset = dtype.fields[name][:2]
        start += offset
    return start


@functools.cache
def _offsets(layers: str, names: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """(layers,) where each layer's image is in the record of a message."""
    where = f"observation.feature_layer_data.{layers}"
    return np.array([_offset(f"{where}.{name}") for name in names], np.int64)


def as_named_arrays(
    observation: Observation | Buffer,
    game_info: GameInfo | None = None,
    *,
    map_size: tuple[int, int] | None = None,
    raw_resolution: tuple[int, int] | None = None,
    camera_width_world_units: float | None = None,
    use_raw_units: bool = True,
    use_feature_units: bool = False,
    use_unit_counts: bool = False,
    use_camera_position: bool = False,
    add_cargo_to_units: bool = False,
) -> Any:
    """What pysc2's `Features.transform_obs` with raw actions gives, as pysc2's `NamedDict`.

    Arguments have the names and meaning of pysc2's `AgentInterfaceFormat`. Feature layers are
    there if the observation has them. Arrays are the caller's, not views, and can be pickled.

    Args:
        observation: Decoded, or its wire bytes.
        game_info: Gives map size, name, camera width and requested races; instead of it:
        map_size: Width and height of the map in world units. Without one, there are no units.
        raw_resolution: Pixels for the positions of raw units; by default the map's size.
        camera_width_world_units: Width of the feature screen, by default 24.
        use_raw_units: `raw_units` and `raw_effects`.
        use_feature_units: `feature_units` and `feature_effects`.
        use_unit_counts: `unit_counts`.
        use_camera_position: `camera_position` and `camera_size`.
        add_cargo_to_units: Units carried by others follow after all units.

    Raises:
        GameNotInstalledError: pysc2 is missing; says which extra brings it.
        CorruptMessageError: Wire bytes are damaged, or a layer is not of its layers' size.
        ValueError: Units are asked for, and the map's size is not known.
    """
    from sc2gym.game import load_pysc2

    load_pysc2()
    from pysc2.lib import features
    from pysc2.lib.named_array import NamedDict, NamedNumpyArray

    def named(rows: Any, *names: Any, dtype: npt.DTypeLike = np.int32) -> Any:
        return NamedNumpyArray(rows, names if len(names) > 1 else names[0], dtype=dtype)

    def table(rows: Any, names: Any, dtype: npt.DTypeLike = np.int32) -> Any:
        return named(rows, None, names, dtype=dtype)

    if not isinstance(observation, Observation):
        observation = decode(observation)
    o = observation
    decoder = Decoder(schema("ResponseObservation"))
    decoder.read(o.data)
    if game_info is not None:
        map_size = map_size or game_info.map_size
        camera_width_world_units = camera_width_world_units or game_info.camera_width
    width = camera_width_world_units or 24.0
    screen = _size(o.feature_screen)
    minimap = _size(o.feature_minimap)
    player_id = int(o.player[0])

    out = NamedDict(_user_interface(o, features, table))
    out["last_actions"] = np.zeros(0, np.int32)
    out["home_race_requested"] = np.zeros(1, np.int32)
    out["away_race_requested"] = np.zeros(1, np.int32)
    out["map_name"] = game_info.map_name if game_info is not None else "unknown"
    for player in game_info.players if game_info is not None else ():
        side = "home" if player.player_id == player_id else "away"
        if player.type != 3:  # an observer
            out[f"{side}_race_requested"] = np.array([player.race_requested], np.int32)

    for name, size, layers, enum in (
        ("renders", screen, SCREEN_LAYERS, features.ScreenFeatures),
        ("minimap_renders", minimap, MINIMAP_LAYERS, features.MinimapFeatures),
    ):
        if size is not None:
            planes = np.empty((len(layers), size[1], size[0]), np.int32)
            fill_planes(decoder, _octets(o.data), _offsets(name, layers), planes)
            key = "feature_screen" if name == "renders" else "feature_minimap"
            out[key] = named(planes, enum, None, None)

    out["action_result"] = o.action_errors["result"].astype(np.int32)
    out["alerts"] = o.alerts.astype(np.int32)
    out["game_loop"] = np.array([o.game_loop], np.uint32).astype(np.int32)
    out["score_cumulative"] = named(o.score_cumulative.astype(np.int32), features.ScoreCumulative)
    out["score_by_category"] = named(
        o.score_by_category.astype(np.int32), features.ScoreByCategory, features.ScoreCategories
    )
    out["score_by_vital"] = named(
        o.score_by_vital.astype(np.int32), features.ScoreByVital, features.ScoreVitals
    )
    out["player"] = named(o.player.astype(np.int32), features.Player)
    out["upgrades"] = o.upgrades.astype(np.int32)
    assert o.score_by_category.shape == (len(SCORE_BY_CATEGORY), 5)
    assert o.score_by_vital.shape == (len(SCORE_BY_VITAL), 3)

    if use_unit_counts:
        own = o.units["unit_type"][o.units["alliance"] == _SELF]
        types, counts = np.unique(own, return_counts=True)
        out["unit_counts"] = table(
            list(zip(types.tolist(), counts.tolist(), strict=True)), features.UnitCounts
        )
    if not (use_raw_units or use_feature_units or use_camera_position):
        return out
    if map_size is None:
        raise ValueError("units and the camera need game_info or map_size")
    view = View(map_size, raw_resolution)
    units = FeatureUnits(decoder, raw_functions())
    effects = [
        (effect, position)
        for effect in o.effects
        for position in _rows(o.effect_positions, effect["pos"])
    ]
    views = []
    if use_feature_units:
        if screen is None:
            raise ValueError("feature units need an observation with a feature screen")
        views.append(("feature", view.around(o.camera, screen, width), True))
    if use_raw_units:
        views.append(("raw", view.whole_map(), False))
    for name, where, on_screen in views:
        rows = np.empty((units.count(add_cargo_to_units), len(UNIT_FEATURES)), np.int64)
        count = units.fill(
            rows, where, on_screen=on_screen, tags=not on_screen, passengers=add_cargo_to_units
        )
        out[f"{name}_units"] = table(
            rows[:count] if count else [], features.FeatureUnit, dtype=np.int64
        )
        out[f"{name}_effects"] = table(
            [
                [*(effect[f] for f in ("effect_id", "alliance", "owner", "radius")), x, y]
                for effect, position in effects
                for x, y in [_place(where, position)]
                if not on_screen or (0 <= x < screen[0] and 0 <= y < screen[1])  # type: ignore[index]
            ],
            features.EffectPos,
        )
    if views:
        out["radar"] = table(
            [[*_place(view.whole_map(), r["pos"]), r["radius"]] for r in o.radar], features.Radar
        )
    if use_camera_position:
        camera = {"x": o.camera[0], "y": o.camera[1]}
        out["camera_position"] = np.array(_place(view.whole_map(), camera), np.int32)
        out["camera_size"] = np.array([s * width for s in view.scale]).astype(np.int32)
    return out


def _user_interface(o: Observation, features: Any, table: Any) -> dict[str, Any]:
    """The panels; where one is not shown, its arrays have no rows."""
    none = np.zeros((0, len(features.UnitLayer)), np.int32)
    out: dict[str, Any] = {
        **dict.fromkeys(("single_select", "multi_select", "build_queue", "cargo"), none),
        "production_queue": np.zeros((0, len(features.ProductionQueue)), np.int32),
        "cargo_slots_available": np.zeros(1, np.int32),
        "control_groups": np.zeros((10, 2), np.int32),
    }
    for group in _rows(o.ui_tables["groups"], o.ui["groups"]):
        if group["control_group_index"] < 10:
            row = group["leader_unit_type"], group["count"]
            out["control_groups"][group["control_group_index"]] = row

    def select(name: str, units: Any) -> None:
        if len(units):
            out[name] = table(
                [
                    [*(unit[f] for f in _SELECTED), int(float(unit["build_progress"]) * 100)]
                    for unit in units
                ],
                features.UnitLayer,
            )

    panel = _panel(o.ui)
    if panel in ("single", "cargo", "production"):
        select("single_select", [o.ui[panel]["unit"]])
    if panel == "multi":
        select("multi_select", _rows(o.ui_tables["multi.units"], o.ui["multi"]["units"]))
    elif panel == "cargo":
        select("cargo", _rows(o.ui_tables["cargo.passengers"], o.ui["cargo"]["passengers"]))
        out["cargo_slots_available"][0] = o.ui["cargo"]["slots_available"]
    elif panel == "production":
        shown = o.ui["production"]
        select("build_queue", _rows(o.ui_tables["production.build_queue"], shown["build_queue"]))
        queue = _rows(o.ui_tables["production.production_queue"], shown["production_queue"])
        if len(queue):
            out["production_queue"] = table(
                [[item["ability_id"], float(item["build_progress"]) * 100] for item in queue],
                features.ProductionQueue,
            )
    return out


def _panel(ui: Array) -> str | None:
    """Which panel is shown: the member of the oneof that the message had."""
    names = ("single", "multi", "cargo", "production")
    return next((name for bit, name in enumerate(names, 1) if int(ui["has"]) >> bit & 1), None)


def _rows(table: Array, rows: Array) -> Array:
    start = int(rows["start"])
    return table[start : start + int(rows["count"])]


def _place(view: tuple[float, ...], position: Any) -> tuple[int, int]:
    """`FeatureUnits`' position of one point."""
    map_height, before_x, before_y, scale_x, scale_y, after_x, after_y = view
    x = (float(position["x"]) * 1 + before_x) * scale_x + after_x
    y = (float(position["y"]) * -1 + map_height + before_y) * scale_y + after_y
    return int(np.floor(x)), int(np.floor(y))


def _size(planes: Any) -> tuple[int, int] | None:
    """Width and height of the first layer, None if there is none."""
    for name in planes:
        height, width = planes[name].shape[:2]
        return width, height
    return None


@functools.cache
def raw_functions() -> npt.NDArray[np.int32]:
    """(abilities,) pysc2's raw function id for each ability id."""
    from pysc2.lib import actions

    ids = actions.RAW_ABILITY_ID_TO_FUNC_ID
    functions = np.zeros(max(ids) + 1, np.int32)
    for ability, function in ids.items():
        functions[ability] = function
    return functions
