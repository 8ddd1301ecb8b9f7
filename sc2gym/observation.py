"""What the game says, read from its wire bytes: observations, game infos, game data.

    observation = decode(wire)                      # a serialized ResponseObservation
    observation.units["health"]                     # a record per unit, as the game wrote it
    observation.feature_minimap["player_relative"]  # (height, width), a view of the bytes

Names are the game's own (`s2clientprotocol`), which `sc2gym.schema` lists; what pysc2 makes of
them is in `sc2gym.features`. Everything is exact: a value is what the protobuf library gives.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sc2gym._fast.wire import Decoder
from sc2gym.errors import CorruptMessageError
from sc2gym.schema import Schema, fields_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

Array = npt.NDArray[Any]

# The order of pysc2's `Player`, `ScoreCumulative`, `ScoreByCategory` and so on (4.0.0).
PLAYER = (
    *("player_id", "minerals", "vespene", "food_used", "food_cap", "food_army", "food_workers"),
    *("idle_worker_count", "army_count", "warp_gate_count", "larva_count"),
)
SCORE_CUMULATIVE = (
    *("score", "idle_production_time", "idle_worker_time", "total_value_units"),
    *("total_value_structures", "killed_value_units", "killed_value_structures"),
    *("collected_minerals", "collected_vespene", "collection_rate_minerals"),
    *("collection_rate_vespene", "spent_minerals", "spent_vespene"),
)
SCORE_BY_CATEGORY = (
    *("food_used", "killed_minerals", "killed_vespene", "lost_minerals", "lost_vespene"),
    *("friendly_fire_minerals", "friendly_fire_vespene", "used_minerals", "used_vespene"),
    *("total_used_minerals", "total_used_vespene"),
)
SCORE_CATEGORIES = ("none", "army", "economy", "technology", "upgrade")
SCORE_BY_VITAL = ("total_damage_dealt", "total_damage_taken", "total_healed")
SCORE_VITALS = ("life", "shields", "energy")

_RAW = "observation.raw_data."
_UI = "observation.ui_data."
_PIXELS = {8: np.uint8, 16: np.uint16, 32: np.int32}


@functools.cache
def schema(message: str) -> Schema:
    """The compiled schema of a message, made once."""
    return Schema(message)


class Planes(Mapping[str, Array]):
    """Images of one message by name, those that it has.

    An image is read when asked for: of 8, 16 or 32 bits a pixel a read-only view of the
    message's bytes, without a copy, (height, width) of uint8, uint16 or int32 (not aligned, as
    they lie); of 1 bit unpacked, uint8; of 24 bits (height, width, 3), uint8.
    """

    def __init__(self, data: Buffer, record: Array):
        self._data = data
        self._record = record
        assert record.dtype.names is not None
        self._names = tuple(
            name
            for name in record.dtype.names[1:]
            if record[name]["size"]["x"] or record[name]["size"]["y"]
        )

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        return plane(self._data, self._record[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._names)})"


def plane(data: Buffer, image: Array) -> Array:
    """One `ImageData` record of a message as an array; see `Planes` for its type.

    Raises:
        CorruptMessageError: It has not as many bytes as its size and depth say.
    """
    bits = int(image["bits_per_pixel"])
    width, height = int(image["size"]["x"]), int(image["size"]["y"])
    start, length = int(image["data"]["offset"]), int(image["data"]["length"])
    pixels = width * height
    if (
        width < 0
        or height < 0
        or bits not in (1, 8, 16, 24, 32)
        or length != -(-pixels * bits // 8)
    ):
        raise CorruptMessageError(
            start, f"an image of {width} by {height} pixels of {bits} bits has {length} bytes"
        )
    octets = (
        np.frombuffer(memoryview(data), np.uint8, length, start)
        if length
        else np.zeros(0, np.uint8)
    )
    octets.flags.writeable = False
    if bits == 1:
        return np.unpackbits(octets, count=pixels).reshape(height, width)
    if bits == 24:
        return octets.reshape(height, width, 3)
    return octets.view(_PIXELS[bits]).reshape(height, width)


def _shape_and_dtype(value: object) -> str:
    if isinstance(value, np.ndarray):
        kind = "record" if value.dtype.names else value.dtype.name
        return f"{kind}{list(value.shape)}"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_shape_and_dtype(v)}" for k, v in value.items()) + "}"
    return repr(value)


class _Described:
    """A frozen dataclass of arrays that prints their shapes and dtypes, not what is in them."""

    def __repr__(self) -> str:
        lines = (
            f"    {f.name}: {_shape_and_dtype(getattr(self, f.name))}"
            for f in dataclasses.fields(self)  # type: ignore[arg-type]
        )
        return "\n".join((f"{type(self).__name__}(", *lines, ")"))


@dataclass(frozen=True, eq=False, repr=False)
class Observation(_Described):
    """One `ResponseObservation`. All arrays are read-only.

    A record has a column for each field of the game's message and, first, `has`: which of them
    the message had (`sc2gym.schema.record_dtype`); a field it had not is zero, an enum its
    first value. A repeated field of a record is a range (`start`, `count`) of the table named
    beside it.

    Attributes:
        data: The message itself. Images and texts are read from it when asked for.
        game_loop: The loop at which the game was observed.
        player: (11,) uint32, in the order of `PLAYER`.
        score_cumulative: (13,) float64, in the order of `SCORE_CUMULATIVE`; times in seconds.
        score_by_category: (11, 5) float32, `SCORE_BY_CATEGORY` by `SCORE_CATEGORIES`.
        score_by_vital: (3, 3) float32, `SCORE_BY_VITAL` by `SCORE_VITALS`.
        camera: (3,) float32, the camera's centre in world units.
        upgrades: (upgrades,) uint32 ids.
        alerts: (alerts,) int32, the game's `Alert`.
        abilities: Records of abilities that can be used now.
        units: Records of all units seen; `orders`, `passengers`, `buff_ids` and
            `rally_targets` are ranges of the tables named `unit_...`.
        unit_orders: Records of the units' orders.
        unit_passengers: Records of units within units.
        unit_buffs: (buffs,) uint32 ids.
        unit_rally_targets: Records of where units rally to.
        dead_units: (units,) uint64 tags of units that died since the last observation.
        effects: Records of effects; `pos` is a range of `effect_positions`.
        effect_positions: Records of points.
        radar: Records of sensor towers' rings.
        power_sources: Records of pylons' and prisms' fields.
        ui: The record of the panels; `has` says which is shown.
        ui_tables: Its tables by path within it, such as "multi.units".
        actions: Records of the player's actions since the last observation.
        action_tables: Their tables by path, such as "action_raw.unit_command.unit_tags".
        action_errors: Records of what could not be done.
        player_results: Records of who won and lost, once the game is over.
        chat: (player id, text) of each message.
        feature_screen: The camera's layers, by pysc2's (and the game's) names.
        feature_minimap: The minimap's layers.
        map_state: Visibility and creep of the whole map, a pixel a cell.
        render: The rendered pictures "map" and "minimap".
    """

    data: Buffer
    game_loop: int
    player: Array
    score_cumulative: Array
    score_by_category: Array
    score_by_vital: Array
    camera: Array
    upgrades: Array
    alerts: Array
    abilities: Array
    units: Array
    unit_orders: Array
    unit_passengers: Array
    unit_buffs: Array
    unit_rally_targets: Array
    dead_units: Array
    effects: Array
    effect_positions: Array
    radar: Array
    power_sources: Array
    ui: Array
    ui_tables: Mapping[str, Array]
    actions: Array
    action_tables: Mapping[str, Array]
    action_errors: Array
    player_results: Array
    chat: tuple[tuple[int, str], ...]
    feature_screen: Planes
    feature_minimap: Planes
    map_state: Planes
    render: Planes

    def __reduce__(self) -> tuple[Any, ...]:
        return decode, (bytes(self.data),)


def decode(data: Buffer) -> Observation:
    """Reads a serialized `ResponseObservation`.

    Args:
        data: Any contiguous buffer; it is kept, and images are views of it, so it should not
            change.

    Raises:
        CorruptMessageError: It is cut off or no such message; says where.
    """
    decoder = Decoder(schema("ResponseObservation"))
    decoder.read(data)
    return observation_of(decoder, data)


def observation_of(decoder: Decoder, data: Buffer) -> Observation:
    """The message that `decoder` has just read from `data`, until it reads the next one."""
    root = decoder[""][0:1].reshape(())
    observation = root["observation"]
    raw, score = observation["raw_data"], observation["score"]
    details, layers = score["score_details"], observation["feature_layer_data"]
    texts = ((m["player_id"], m["message"]) for m in decoder["chat"])
    cumulative = [score["score"], *(details[name] for name in SCORE_CUMULATIVE[1:])]
    return Observation(
        data=data,
        game_loop=int(observation["game_loop"]),
        player=_array([observation["player_common"][name] for name in PLAYER], np.uint32),
        score_cumulative=_array(cumulative, np.float64),
        score_by_category=_array(
            [[details[row][name] for name in SCORE_CATEGORIES] for row in SCORE_BY_CATEGORY],
            np.float32,
        ),
        score_by_vital=_array(
            [[details[row][name] for name in SCORE_VITALS] for row in SCORE_BY_VITAL], np.float32
        ),
        camera=_array([raw["player"]["camera"][axis] for axis in "xyz"], np.float32),
        upgrades=decoder[_RAW + "player.upgrade_ids"],
        alerts=decoder["observation.alerts"],
        abilities=decoder["observation.abilities"],
        units=decoder[_RAW + "units"],
        unit_orders=decoder[_RAW + "units.orders"],
        unit_passengers=decoder[_RAW + "units.passengers"],
        unit_buffs=decoder[_RAW + "units.buff_ids"],
        unit_rally_targets=decoder[_RAW + "units.rally_targets"],
        dead_units=decoder[_RAW + "event.dead_units"],
        effects=decoder[_RAW + "effects"],
        effect_positions=decoder[_RAW + "effects.pos"],
        radar=decoder[_RAW + "radar"],
        power_sources=decoder[_RAW + "player.power_sources"],
        ui=observation["ui_data"],
        ui_tables=_tables(decoder, _UI),
        actions=decoder["actions"],
        action_tables=_tables(decoder, "actions."),
        action_errors=decoder["action_errors"],
        player_results=decoder["player_result"],
        chat=tuple((int(player), text(data, message)) for player, message in texts),
        feature_screen=Planes(data, layers["renders"]),
        feature_minimap=Planes(data, layers["minimap_renders"]),
        map_state=Planes(data, raw["map_state"]),
        render=Planes(data, observation["render_data"]),
    )


def text(data: Buffer, blob: Array) -> str:
    """A string of the message; what is not UTF-8 is replaced, the game does not check it."""
    start, length = int(blob["offset"]), int(blob["length"])
    return bytes(memoryview(data).cast("B")[start : start + length]).decode(errors="replace")


def has(record: Array, message: str, field: str) -> bool:
    """Whether a record of `message` had a field, also one that is zero."""
    return bool(int(record["has"]) >> fields_of(message).index(field) & 1)


def _array(values: list[Any], dtype: npt.DTypeLike) -> Array:
    array = np.array(values, dtype)
    array.flags.writeable = False
    return array


def _tables(decoder: Decoder, prefix: str) -> dict[str, Array]:
    paths = (table.path for table in decoder.schema.tables if table.path.startswith(prefix))
    return {path[len(prefix) :]: decoder[path] for path in paths}


@dataclass(frozen=True)
class PlayerInfo:
    """Who plays, from a `ResponseGameInfo`; the numbers are the game's enums."""

    player_id: int
    type: int
    race_requested: int
    race_actual: int
    difficulty: int
    name: str


@dataclass(frozen=True, eq=False, repr=False)
class GameInfo(_Described):
    """One `ResponseGameInfo`: the map and the players.

    Attributes:
        map_name: As the game shows it.
        local_map_path: The map's file.
        map_size: Width and height in cells.
        playable_area: (4,) int32, left, bottom, right and top in cells.
        start_locations: (locations, 2) float32, x and y in world units, without the player's own.
        pathing_grid: (height, width) uint8, 1 where ground units can walk. Row 0 is y = 0.
        placement_grid: (height, width) uint8, 1 where buildings can be placed.
        terrain_height: (height, width) uint8, see the game's documentation for its scale.
        players: Of the game.
        screen_size: Width and height of feature screen layers, (0, 0) if not asked for.
        minimap_size: Width and height of feature minimap layers.
        camera_width: Width of the feature screen in world units.
    """

    map_name: str
    local_map_path: str
    map_size: tuple[int, int]
    playable_area: Array
    start_locations: Array
    pathing_grid: Array
    placement_grid: Array
    terrain_height: Array
    players: tuple[PlayerInfo, ...]
    screen_size: tuple[int, int]
    minimap_size: tuple[int, int]
    camera_width: float


def decode_game_info(data: Buffer) -> GameInfo:
    """Reads a serialized `ResponseGameInfo`.

    Raises:
        CorruptMessageError: It is cut off or no such message, or a grid has not as many bytes
            as its size says.
    """
    decoder = Decoder(schema("ResponseGameInfo"))
    decoder.read(data)
    root = decoder[""][0:1].reshape(())
    start, layer = root["start_raw"], root["options"]["feature_layer"]
    area = start["playable_area"]
    locations = decoder["start_raw.start_locations"]
    grids = {
        name: plane(data, start[name]) if start[name]["bits_per_pixel"] else np.zeros((0, 0), "u1")
        for name in ("pathing_grid", "placement_grid", "terrain_height")
    }
    return GameInfo(
        map_name=text(data, root["map_name"]),
        local_map_path=text(data, root["local_map_path"]),
        map_size=_size(start["map_size"]),
        playable_area=_array([area[p][axis] for p in ("p0", "p1") for axis in "xy"], np.int32),
        start_locations=_array([[p["x"], p["y"]] for p in locations], np.float32).reshape(-1, 2),
        **grids,
        players=tuple(
            PlayerInfo(
                player_id=int(p["player_id"]),
                type=int(p["type"]),
                race_requested=int(p["race_requested"]),
                race_actual=int(p["race_actual"]),
                difficulty=int(p["difficulty"]),
                name=text(data, p["player_name"]),
            )
            for p in decoder["player_info"]
        ),
        screen_size=_size(layer["resolution"]),
        minimap_size=_size(layer["minimap_resolution"]),
        camera_width=float(layer["width"]),
    )


def _size(record: Array) -> tuple[int, int]:
    return int(record["x"]), int(record["y"])


@dataclass(frozen=True, eq=False, repr=False)
class GameData(_Described):
    """One `ResponseData`: what the game version knows about units, abilities and the rest.

    Attributes:
        data: The message; names are read from it with `text`.
        units: Records of `UnitTypeData`.
        abilities: Records of `AbilityData`.
        upgrades: Records of `UpgradeData`.
        buffs: Records of `BuffData`.
        effects: Records of `EffectData`.
        tables: Tables of the records' repeated fields, such as "units.weapons".
    """

    data: Buffer
    units: Array
    abilities: Array
    upgrades: Array
    buffs: Array
    effects: Array
    tables: Mapping[str, Array]

    def names(self, table: str, column: str = "name") -> list[str]:
        """The texts of one column of a table, for instance ("abilities", "friendly_name")."""
        return [text(self.data, blob) for blob in getattr(self, table)[column]]


def decode_game_data(data: Buffer) -> GameData:
    """Reads a serialized `ResponseData`.

    Raises:
        CorruptMessageError: It is cut off or no such message.
    """
    decoder = Decoder(schema("ResponseData"))
    decoder.read(data)
    return GameData(
        data=data,
        units=decoder["units"],
        abilities=decoder["abilities"],
        upgrades=decoder["upgrades"],
        buffs=decoder["buffs"],
        effects=decoder["effects"],
        tables={path: rows for path, rows in _tables(decoder, "").items() if "." in path},
    )
