"""The game's messages as the wire decoder reads them: every field of the three responses.

The names, numbers and types are those of Blizzard's s2clientprotocol 5.0.17, which the tests hold
this table against; the package itself is not needed to read messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sc2gym._fast.wire import FIELD, KINDS, MAX_FIELDS

# One message a paragraph, `number name type` for each field. A type is a scalar or a message;
# `*` repeated; `?` a message that contains itself and so has a table of its own; `enum=1` an
# enum whose absent value is 1 (its first); `|target` a member of the oneof `target`.
MESSAGES = """
ResponseObservation: 1 actions Action*, 2 action_errors ActionError*, 3 observation Observation,
    4 player_result PlayerResult*, 5 chat ChatReceived*
Action: 1 action_raw ActionRaw, 2 action_feature_layer ActionSpatial,
    3 action_render ActionSpatial, 4 action_ui ActionUI, 6 action_chat ActionChat,
    7 game_loop uint32
ActionRaw: 1 unit_command ActionRawUnitCommand|action, 2 camera_move ActionRawCameraMove|action,
    3 toggle_autocast ActionRawToggleAutocast|action
ActionRawUnitCommand: 1 ability_id int32, 2 target_world_space_pos Point2D|target,
    3 target_unit_tag uint64|target, 4 unit_tags uint64*, 5 queue_command bool
Point2D: 1 x float, 2 y float
ActionRawCameraMove: 1 center_world_space Point
Point: 1 x float, 2 y float, 3 z float
ActionRawToggleAutocast: 1 ability_id int32, 2 unit_tags uint64*
ActionSpatial: 1 unit_command ActionSpatialUnitCommand|action,
    2 camera_move ActionSpatialCameraMove|action,
    3 unit_selection_point ActionSpatialUnitSelectionPoint|action,
    4 unit_selection_rect ActionSpatialUnitSelectionRect|action
ActionSpatialUnitCommand: 1 ability_id int32, 2 target_screen_coord PointI|target,
    3 target_minimap_coord PointI|target, 4 queue_command bool
PointI: 1 x int32, 2 y int32
ActionSpatialCameraMove: 1 center_minimap PointI
ActionSpatialUnitSelectionPoint: 1 selection_screen_coord PointI, 2 type enum=1
ActionSpatialUnitSelectionRect: 1 selection_screen_coord RectangleI*, 2 selection_add bool
RectangleI: 1 p0 PointI, 2 p1 PointI
ActionUI: 1 control_group ActionControlGroup|action, 2 select_army ActionSelectArmy|action,
    3 select_warp_gates ActionSelectWarpGates|action, 4 select_larva ActionSelectLarva|action,
    5 select_idle_worker ActionSelectIdleWorker|action, 6 multi_panel ActionMultiPanel|action,
    7 cargo_panel ActionCargoPanelUnload|action,
    8 production_panel ActionProductionPanelRemoveFromQueue|action,
    9 toggle_autocast ActionToggleAutocast|action
ActionControlGroup: 1 action enum=1, 2 control_group_index uint32
ActionSelectArmy: 1 selection_add bool
ActionSelectWarpGates: 1 selection_add bool
ActionSelectLarva:
ActionSelectIdleWorker: 1 type enum=1
ActionMultiPanel: 1 type enum=1, 2 unit_index int32
ActionCargoPanelUnload: 1 unit_index int32
ActionProductionPanelRemoveFromQueue: 1 unit_index int32
ActionToggleAutocast: 1 ability_id int32
ActionChat: 1 channel enum=1, 2 message string
ActionError: 1 unit_tag uint64, 2 ability_id uint64, 3 result enum=1
Observation: 1 player_common PlayerCommon, 3 abilities AvailableAbility*, 4 score Score,
    5 raw_data ObservationRaw, 6 feature_layer_data ObservationFeatureLayer,
    7 render_data ObservationRender, 8 ui_data ObservationUI, 9 game_loop uint32,
    10 alerts enum*
PlayerCommon: 1 player_id uint32, 2 minerals uint32, 3 vespene uint32, 4 food_cap uint32,
    5 food_used uint32, 6 food_army uint32, 7 food_workers uint32, 8 idle_worker_count uint32,
    9 army_count uint32, 10 warp_gate_count uint32, 11 larva_count uint32
AvailableAbility: 1 ability_id int32, 2 requires_point bool
Score: 6 score_type enum=1, 7 score int32, 8 score_details ScoreDetails
ScoreDetails: 1 idle_production_time float, 2 idle_worker_time float, 3 total_value_units float,
    4 total_value_structures float, 5 killed_value_units float, 6 killed_value_structures float,
    7 collected_minerals float, 8 collected_vespene float, 9 collection_rate_minerals float,
    10 collection_rate_vespene float, 11 spent_minerals float, 12 spent_vespene float,
    13 food_used CategoryScoreDetails, 14 killed_minerals CategoryScoreDetails,
    15 killed_vespene CategoryScoreDetails, 16 lost_minerals CategoryScoreDetails,
    17 lost_vespene CategoryScoreDetails, 18 friendly_fire_minerals CategoryScoreDetails,
    19 friendly_fire_vespene CategoryScoreDetails, 20 used_minerals CategoryScoreDetails,
    21 used_vespene CategoryScoreDetails, 22 total_used_minerals CategoryScoreDetails,
    23 total_used_vespene CategoryScoreDetails, 24 total_damage_dealt VitalScoreDetails,
    25 total_damage_taken VitalScoreDetails, 26 total_healed VitalScoreDetails,
    27 current_apm float, 28 current_effective_apm float
CategoryScoreDetails: 1 none float, 2 army float, 3 economy float, 4 technology float,
    5 upgrade float
VitalScoreDetails: 1 life float, 2 shields float, 3 energy float
ObservationRaw: 1 player PlayerRaw, 2 units Unit*, 3 map_state MapState, 4 event Event,
    5 effects Effect*, 6 radar RadarRing*
PlayerRaw: 1 power_sources PowerSource*, 2 camera Point, 3 upgrade_ids uint32*
PowerSource: 1 pos Point, 2 radius float, 3 tag uint64
Unit: 1 display_type enum=1, 2 alliance enum=1, 3 tag uint64, 4 unit_type uint32, 5 owner int32,
    6 pos Point, 7 facing float, 8 radius float, 9 build_progress float, 10 cloak enum=0,
    11 is_selected bool, 12 is_on_screen bool, 13 is_blip bool, 14 health float,
    15 health_max float, 16 shield float, 17 energy float, 18 mineral_contents int32,
    19 vespene_contents int32, 20 is_flying bool, 21 is_burrowed bool, 22 orders UnitOrder*,
    23 add_on_tag uint64, 24 passengers PassengerUnit*, 25 cargo_space_taken int32,
    26 cargo_space_max int32, 27 buff_ids uint32*, 28 assigned_harvesters int32,
    29 ideal_harvesters int32, 30 weapon_cooldown float, 31 detect_range float,
    32 radar_range float, 34 engaged_target_tag uint64, 35 is_powered bool, 36 shield_max float,
    37 energy_max float, 38 is_hallucination bool, 39 is_active bool,
    40 attack_upgrade_level int32, 41 armor_upgrade_level int32, 42 shield_upgrade_level int32,
    43 buff_duration_remain int32, 44 buff_duration_max int32, 45 rally_targets RallyTarget*
UnitOrder: 1 ability_id uint32, 2 target_world_space_pos Point|target,
    3 target_unit_tag uint64|target, 4 progress float
PassengerUnit: 1 tag uint64, 2 health float, 3 health_max float, 4 shield float, 5 energy float,
    6 unit_type uint32, 7 shield_max float, 8 energy_max float
RallyTarget: 1 point Point, 2 tag uint64
MapState: 1 visibility ImageData, 2 creep ImageData
ImageData: 1 bits_per_pixel int32, 2 size Size2DI, 3 data bytes
Size2DI: 1 x int32, 2 y int32
Event: 1 dead_units uint64*
Effect: 1 effect_id uint32, 2 pos Point2D*, 3 alliance enum=1, 4 owner int32, 5 radius float
RadarRing: 1 pos Point, 2 radius float
ObservationFeatureLayer: 1 renders FeatureLayers, 2 minimap_renders FeatureLayersMinimap
FeatureLayers: 1 height_map ImageData, 2 visibility_map ImageData, 3 creep ImageData,
    4 power ImageData, 5 player_id ImageData, 6 unit_type ImageData, 7 selected ImageData,
    8 unit_hit_points ImageData, 9 unit_energy ImageData, 10 unit_shields ImageData,
    11 player_relative ImageData, 14 unit_density_aa ImageData, 15 unit_density ImageData,
    17 unit_hit_points_ratio ImageData, 18 unit_energy_ratio ImageData,
    19 unit_shields_ratio ImageData, 20 effects ImageData, 21 hallucinations ImageData,
    22 cloaked ImageData, 23 blip ImageData, 24 buffs ImageData, 25 active ImageData,
    26 buff_duration ImageData, 27 build_progress ImageData, 28 buildable ImageData,
    29 pathable ImageData, 30 placeholder ImageData
FeatureLayersMinimap: 1 height_map ImageData, 2 visibility_map ImageData, 3 creep ImageData,
    4 camera ImageData, 5 player_id ImageData, 6 player_relative ImageData,
    7 selected ImageData, 8 unit_type ImageData, 9 alerts ImageData, 10 buildable ImageData,
    11 pathable ImageData
ObservationRender: 1 map ImageData, 2 minimap ImageData
ObservationUI: 1 groups ControlGroup*, 2 single SinglePanel|panel, 3 multi MultiPanel|panel,
    4 cargo CargoPanel|panel, 5 production ProductionPanel|panel
ControlGroup: 1 control_group_index uint32, 2 leader_unit_type uint32, 3 count uint32
SinglePanel: 1 unit UnitInfo, 2 attack_upgrade_level int32, 3 armor_upgrade_level int32,
    4 shield_upgrade_level int32, 5 buffs int32*
UnitInfo: 1 unit_type uint32, 2 player_relative uint32, 3 health int32, 4 shields int32,
    5 energy int32, 6 transport_slots_taken int32, 7 build_progress float, 8 add_on UnitInfo?,
    9 max_health int32, 10 max_shields int32, 11 max_energy int32
MultiPanel: 1 units UnitInfo*
CargoPanel: 1 unit UnitInfo, 2 passengers UnitInfo*, 3 slots_available int32
ProductionPanel: 1 unit UnitInfo, 2 build_queue UnitInfo*, 3 production_queue BuildItem*
BuildItem: 1 ability_id uint32, 2 build_progress float
PlayerResult: 1 player_id uint32, 2 result enum=1
ChatReceived: 1 player_id uint32, 2 message string
ResponseGameInfo: 1 map_name string, 2 local_map_path string, 3 player_info PlayerInfo*,
    4 start_raw StartRaw, 5 options InterfaceOptions, 6 mod_names string*
PlayerInfo: 1 player_id uint32, 2 type enum=1, 3 race_requested enum=0, 4 race_actual enum=0,
    5 difficulty enum=1, 6 player_name string, 7 ai_build enum=1
StartRaw: 1 map_size Size2DI, 2 pathing_grid ImageData, 3 terrain_height ImageData,
    4 placement_grid ImageData, 5 playable_area RectangleI, 6 start_locations Point2D*
InterfaceOptions: 1 raw bool, 2 score bool, 3 feature_layer SpatialCameraSetup,
    4 render SpatialCameraSetup, 5 show_cloaked bool, 6 raw_affects_selection bool,
    7 raw_crop_to_playable_area bool, 8 show_placeholders bool, 9 show_burrowed_shadows bool
SpatialCameraSetup: 1 width float, 2 resolution Size2DI, 3 minimap_resolution Size2DI,
    4 crop_to_playable_area bool, 5 allow_cheating_layers bool
ResponseData: 1 abilities AbilityData*, 2 units UnitTypeData*, 3 upgrades UpgradeData*,
    4 buffs BuffData*, 5 effects EffectData*
AbilityData: 1 ability_id uint32, 2 link_name string, 3 link_index uint32, 4 button_name string,
    5 friendly_name string, 6 hotkey string, 7 remaps_to_ability_id uint32, 8 available bool,
    9 target enum=1, 10 allow_minimap bool, 11 allow_autocast bool, 12 is_building bool,
    13 footprint_radius float, 14 is_instant_placement bool, 15 cast_range float
UnitTypeData: 1 unit_id uint32, 2 name string, 3 available bool, 4 cargo_size uint32,
    8 attributes enum*, 9 movement_speed float, 10 armor float, 11 weapons Weapon*,
    12 mineral_cost uint32, 13 vespene_cost uint32, 14 food_required float,
    15 ability_id uint32, 16 race enum=0, 17 build_time float, 18 food_provided float,
    19 has_vespene bool, 20 has_minerals bool, 21 tech_alias uint32*, 22 unit_alias uint32,
    23 tech_requirement uint32, 24 require_attached bool, 25 sight_range float
Weapon: 1 type enum=1, 2 damage float, 3 damage_bonus DamageBonus*, 4 attacks uint32,
    5 range float, 6 speed float
DamageBonus: 1 attribute enum=1, 2 bonus float
UpgradeData: 1 upgrade_id uint32, 2 name string, 3 mineral_cost uint32, 4 vespene_cost uint32,
    5 research_time float, 6 ability_id uint32
BuffData: 1 buff_id uint32, 2 name string
EffectData: 1 effect_id uint32, 2 name string, 3 friendly_name string, 4 radius float
"""

SCALARS = {
    "int32": ("int32", np.int32),
    "uint32": ("int32", np.uint32),
    "enum": ("int32", np.int32),
    "int64": ("int64", np.int64),
    "uint64": ("int64", np.uint64),
    "bool": ("bool", np.bool_),
    "float": ("float", np.float32),
    "string": ("blob", np.int64),
    "bytes": ("blob", np.int64),
}
BLOB = np.dtype([("offset", np.int64), ("length", np.int64)], align=True)  # bytes of the message
ROWS = np.dtype([("start", np.int64), ("count", np.int64)], align=True)  # rows of a table
WIRES = {"int32": 0, "int64": 0, "bool": 0, "float": 5, "blob": 2, "message": 2, "optional": 2}
NOT_A_WIRE = 8  # what an unknown field is expected as, so that it is always another


@dataclass(frozen=True)
class _Field:
    """One line of `MESSAGES`."""

    number: int
    name: str
    type: str
    repeated: bool = False
    optional: bool = False  # a message in a table of its own
    default: int = 0
    oneof: str = ""

    @property
    def kind(self) -> str:
        if self.type in SCALARS:
            return SCALARS[self.type][0]
        return "optional" if self.optional else "message"

    def dtype(self) -> np.dtype[Any]:
        """How a record holds it, or, where it is repeated, how a row of its table does."""
        if self.kind == "blob":
            return BLOB
        if self.type in SCALARS:
            return np.dtype(SCALARS[self.type][1])
        return record_dtype(self.type)


def _parse(text: str) -> dict[str, tuple[_Field, ...]]:
    messages = {}
    for line in text.strip().replace("\n    ", " ").splitlines():
        name, _, fields = line.partition(":")
        messages[name] = tuple(_parse_field(f) for f in fields.split(",") if f.strip())
    return messages


def _parse_field(text: str) -> _Field:
    number, name, type_ = text.split()
    type_, _, oneof = type_.partition("|")
    type_, _, default = type_.partition("=")
    return _Field(
        int(number),
        name,
        type_.rstrip("*?"),
        repeated=type_.endswith("*"),
        optional=type_.endswith("?"),
        default=int(default or 0),
        oneof=oneof,
    )


_MESSAGES = _parse(MESSAGES)


@cache
def record_dtype(message: str) -> np.dtype[np.void]:
    """The dtype of a message's record, laid out as C does.

    `has` comes first: bit k is set if the message had its field k (counted from 0, by number).
    A message field is a record within; a string or bytes is where it lies in the message
    (`BLOB`); a repeated or optional field is which rows of its table it has (`ROWS`).
    """
    columns: list[tuple[object, ...]] = [("has", np.uint64)]
    for f in _MESSAGES[message]:
        if f.repeated or f.optional:
            columns.append((f.name, ROWS))
        else:
            columns.append((f.name, f.dtype()))
    return np.dtype(columns, align=True)


@cache
def blank_record(message: str) -> npt.NDArray[np.void]:
    """A record () in which nothing is set: zero, but an enum is its first value."""
    record = np.zeros((), record_dtype(message))
    for f in _MESSAGES[message]:
        if f.repeated or f.optional:
            continue
        if f.kind == "message":
            record[f.name] = blank_record(f.type)
        elif f.default:
            record[f.name] = f.default
    return record


def fields_of(message: str) -> tuple[str, ...]:
    """The names of a message's fields in the order of their bits in `has`."""
    return tuple(f.name for f in _MESSAGES[message])


@dataclass(frozen=True)
class TableSpec:
    """A table that a decoder fills.

    Attributes:
        path: Where its rows come from: the names of the fields down to it, with dots between;
            empty for the one row of the message itself.
        dtype: What a row is.
        blank: The bytes of a row in which nothing is set.
    """

    path: str
    dtype: np.dtype[Any]
    blank: bytes


@dataclass
class Schema:
    """One message and all below it, flattened for the decoder.

    Attributes:
        root: The message's name.
        tables: The root's table, then one for each repeated field at each place in the tree.
        fields: (messages, 64) of what the decoder knows about each field, by its number.
    """

    root: str
    tables: list[TableSpec] = field(default_factory=list)
    fields: npt.NDArray[np.void] = field(init=False)

    def __post_init__(self) -> None:
        self._rows: list[npt.NDArray[np.void]] = []
        self._names: list[str] = []
        self._shared: dict[str, int] = {}
        self._add_table("", record_dtype(self.root), blank_record(self.root))
        self._message(self.root, "", {})
        self.fields = np.stack(self._rows)
        self._paths = {table.path: i for i, table in enumerate(self.tables)}

    def index(self, path: str) -> int:
        """The place of a table in `tables`."""
        try:
            return self._paths[path]
        except KeyError:
            raise KeyError(f"{self.root} has no table {path!r}, but {list(self._paths)}") from None

    def message(self, name: str) -> int:
        """The place in `fields` of a message that occurs once in the tree, -1 if none does."""
        return self._names.index(name) if self._names.count(name) == 1 else -1

    def describe(self, message: int, number: int) -> str:
        """What the decoder was reading, for an error's text."""
        name = self._names[message]
        for f in _MESSAGES[name]:
            if f.number == number:
                return f"{name}.{f.name}"
        return f"{name}, field {number}" if number else name

    def _add_table(self, path: str, dtype: np.dtype[Any], blank: npt.NDArray[np.void]) -> int:
        self.tables.append(TableSpec(path, dtype, blank.tobytes()))
        return len(self.tables) - 1

    def _message(self, name: str, path: str, above: dict[str, tuple[int, int]]) -> int:
        """Adds a message at a place in the tree; `above` are tables of messages that contain
        themselves, by message. A message without tables below it is shared by all places."""
        if name in self._shared:
            return self._shared[name]
        index, tables = len(self._rows), len(self.tables)
        rows = np.zeros(MAX_FIELDS, FIELD)
        rows["wire"] = NOT_A_WIRE
        self._rows.append(rows)
        self._names.append(name)
        dtype = record_dtype(name)
        members: dict[str, int] = {}
        for bit, f in enumerate(_MESSAGES[name]):
            if f.oneof:
                members[f.oneof] = members.get(f.oneof, 0) | 1 << bit
        for bit, f in enumerate(_MESSAGES[name]):
            row = rows[f.number]
            column, offset = dtype.fields[f.name][:2]  # type: ignore[index]
            row["bit"] = 1 << bit
            row["others"] = members.get(f.oneof, 0) & ~(1 << bit)
            row["kind"] = KINDS[f.kind + "*" * f.repeated]
            row["wire"] = WIRES[f.kind]
            row["offset"], row["size"] = offset, column.itemsize
            below = f"{path}.{f.name}".lstrip(".")
            if f.optional and f.type in above:
                row["table"], row["message"] = above[f.type]
            elif f.repeated or f.optional:
                blank = blank_record(f.type) if f.type not in SCALARS else np.zeros((), f.dtype())
                row["table"] = self._add_table(below, f.dtype(), blank)
                if f.type not in SCALARS:
                    again = {f.type: (int(row["table"]), len(self._rows))} if f.optional else {}
                    row["message"] = self._message(f.type, below, again)
            elif f.type not in SCALARS:
                row["message"] = self._message(f.type, below, above)
        if len(self.tables) == tables and not above:
            self._shared[name] = index
        return index
