"""From the columns of a replay to the tracks of its units and the course of its economy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sc2gym import vocabulary
from sc2gym._fast import tracks as kernel
from sc2gym._fast.tracks import COMMAND_OP, OP, Tracks
from sc2gym.columns import NULL
from sc2gym.errors import ReplayError, UnsupportedReplayError
from sc2gym.protocol import Stream
from sc2gym.replay import Replay

MAX_GAME_LOOPS = 1 << 20
"""The longest game taken, 13 hours at Faster; a longer one is a lie or an accident."""

# Before 2.1 positions count cells of four by four (as sc2reader found, too).
_FIRST_FINE_BUILD = 27950
# The tracker stream rounds positions down to whole cells; half a cell is the best guess.
_HALF = 0.5

_BORN, _INIT, _DONE, _DIED, _OWNER, _TYPE, _POSITION = range(7)
_SELECT, _GROUP, _COMMAND = range(3)
_NONE, _POINT, _UNIT = range(3)

_TAG = ["m_unitTagIndex", "m_unitTagRecycle"]
_PLACE = ["m_x", "m_y"]
_TRACKER_FIELDS: dict[str, list[str]] = {
    "UnitBorn": [*_TAG, "m_unitTypeName", "m_controlPlayerId", *_PLACE, "m_creatorUnitTagIndex"],
    "UnitInit": [*_TAG, "m_unitTypeName", "m_controlPlayerId", *_PLACE],
    "UnitDone": [*_TAG],
    "UnitDied": [*_TAG, *_PLACE],
    "UnitOwnerChange": [*_TAG, "m_controlPlayerId"],
    "UnitTypeChange": [*_TAG, "m_unitTypeName"],
    "UnitPositions": ["m_firstUnitIndex", "m_items", "m_items.value"],
    "Upgrade": ["m_playerId", "m_upgradeTypeName", "m_count"],
    "PlayerStats": ["m_playerId"],
}
_GAME_FIELDS: dict[str, list[str]] = {
    "Cmd": [
        "m_cmdFlags", "m_abil.m_abilLink", "m_abil.m_abilCmdIndex", "m_data?",
        "m_data.TargetPoint.x", "m_data.TargetPoint.y", "m_data.TargetUnit.m_tag",
        "m_data.TargetUnit.m_snapshotPoint.x", "m_data.TargetUnit.m_snapshotPoint.y",
    ],
    "CmdUpdateTargetPoint": ["m_target.x", "m_target.y"],
    "CmdUpdateTargetUnit": [
        "m_target.m_tag", "m_target.m_snapshotPoint.x", "m_target.m_snapshotPoint.y",
    ],
    "CommandManagerState": [],
    "SelectionDelta": [
        "m_controlGroupId", "m_delta.m_removeMask?", "m_delta.m_removeMask.Mask",
        "m_delta.m_removeMask.OneIndices", "m_delta.m_removeMask.OneIndices.value",
        "m_delta.m_removeMask.ZeroIndices", "m_delta.m_removeMask.ZeroIndices.value",
        "m_delta.m_addUnitTags", "m_delta.m_addUnitTags.value",
    ],
    "ControlGroupUpdate": [
        "m_controlGroupIndex", "m_controlGroupUpdate", "m_mask?", "m_mask.Mask",
        "m_mask.OneIndices", "m_mask.OneIndices.value",
        "m_mask.ZeroIndices", "m_mask.ZeroIndices.value",
    ],
    "CameraUpdate": ["m_target?", "m_target.x", "m_target.y"],
    "GameUserLeave": [],
}  # fmt: skip

# What a player has gathered is what he has, has in use or in the making, and has lost.
_SCORE_FIELD = re.compile(
    r"m_stats\.m_scoreValue(Minerals|Vespene)(Current|UsedInProgress|UsedCurrent|Lost|Killed)\w*"
)
_STATS = "m_stats.m_scoreValue"
_ECONOMY = ("MineralsCurrent", "VespeneCurrent", "FoodUsed", "FoodMade", "WorkersActiveCount")
# Supply is in fixed point with 12 bits of fraction, points of the map likewise.
_FIXED = 4096
# The camera's in 8 bits.
_CAMERA_FIXED = 256
_MAX_SUPPLY = 200

Events = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Commands:
    """Every command of the game, repeats included, in order.

    Attributes:
        game_loop: int32 (n,).
        user: int16 (n,).
        function: int32 (n,), raw function ids.
        ability_link, ability_index: int64 (n,), as the game stream has them; NULL for none.
        target: int8 (n,), 0 none, 1 point, 2 unit, 3 other data.
        x, y: float32 (n,), where the target is, in cells from the bottom left; NaN for none.
        target_tag: int64 (n,), the target's tag, -1 for none.
        flags: int64 (n,), the command's flags; bit 1 is queued.
        index: int64 (n,), place in the game stream.
    """

    game_loop: npt.NDArray[np.int32]
    user: npt.NDArray[np.int16]
    function: npt.NDArray[np.int32]
    ability_link: npt.NDArray[np.int64]
    ability_index: npt.NDArray[np.int64]
    target: npt.NDArray[np.int8]
    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    target_tag: npt.NDArray[np.int64]
    flags: npt.NDArray[np.int64]
    index: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Game:
    """All that episodes of one replay share.

    Attributes:
        tracks: The units.
        commands: Who ordered what.
        tracker, game: The events that the sides' step functions come from.
        map_size: (width, height) in cells.
        end: The game's last loop.
        unknown_types: How many births and morphs were of a type the vocabulary lacks.
    """

    tracks: Tracks
    commands: Commands
    tracker: Events
    game: Events
    map_size: tuple[int, int]
    end: int
    unknown_types: int


def follow(
    replay: Replay, *, movement: bool = True, on_bad_ids: Literal["skip", "raise"] = "skip"
) -> Game:
    """Follows a game through its events.

    Args:
        replay: With tracker events, so of version 2.0.8 or later.
        movement: False leaves units standing between the positions that the file gives.
        on_bad_ids: What to do about events of units that were never born or are dead: "skip"
            them (`Game.tracks.bad_references` counts them), or "raise".

    Raises:
        UnsupportedReplayError: No tracker events, or an absurd length.
        CorruptReplayError: A damaged stream.
        ReplayError: Bad unit ids, if so chosen.
    """
    if not replay.has_stream("tracker"):
        raise UnsupportedReplayError(
            "no tracker events (they came with version 2.0.8, and some tools strip them), "
            "so units cannot be followed",
            name=replay.name,
        )
    tracker = _events(replay, "tracker", _TRACKER_FIELDS)
    game = _events(replay, "game", _GAME_FIELDS)
    end = max(1, replay.game_loops)
    if end > MAX_GAME_LOOPS:
        raise UnsupportedReplayError(f"a game of {end} loops", name=replay.name)
    commands = _commands(replay, game)
    ops, unknown_types = _operations(replay, tracker, end)
    users = np.zeros(16, np.int8)
    for player in replay.players:
        if player.user_id is not None and 0 <= player.user_id < 16:
            users[player.user_id] = min(player.player_id, 16)
    types = vocabulary.unit_types()
    speed = types.speed if movement else np.zeros_like(types.speed)
    try:
        tracks = kernel.build(ops, *_orders(replay, game, commands, end), users, speed, end)
    except ValueError as error:
        raise UnsupportedReplayError(str(error), name=replay.name) from error
    if on_bad_ids == "raise" and tracks.bad_references:
        raise ReplayError(
            f"{tracks.bad_references} tracker events of units that do not live then",
            name=replay.name,
        )
    return Game(tracks, commands, tracker, game, _map_size(replay, ops), end, unknown_types)


def _events(replay: Replay, stream: Stream, wanted: dict[str, list[str]]) -> Events:
    # Older builds lack some events; there they are empty.
    known = set(replay.event_types(stream))
    fields: dict[str, list[str]] = {event: f for event, f in wanted.items() if event in known}
    if "PlayerStats" in fields:
        present = replay.event_fields("tracker", "PlayerStats")
        economy = {f"{_STATS}{name}" for name in _ECONOMY}
        fields["PlayerStats"] = ["m_playerId"] + [
            field for field in present if field in economy or _SCORE_FIELD.fullmatch(field)
        ]
    if "UnitBorn" in fields:
        present = replay.event_fields("tracker", "UnitBorn")
        fields["UnitBorn"] = [field for field in fields["UnitBorn"] if field in present]
    return replay.events(stream, fields)


def _loops(rows: npt.NDArray[Any], end: int) -> npt.NDArray[np.int32]:
    loops: npt.NDArray[np.int32] = np.minimum(rows["_gameloop"], end).astype(np.int32)
    return loops


# -- tracker operations -------------------------------------------------------------------


def _operations(replay: Replay, events: Events, end: int) -> tuple[npt.NDArray[np.void], int]:
    parts: list[npt.NDArray[np.void]] = []
    places: list[npt.NDArray[np.int64]] = []
    scale, offset = (1, _HALF) if replay.base_build >= _FIRST_FINE_BUILD else (4, 2.0)
    unknown = 0
    kinds = (
        ("UnitBorn", _BORN), ("UnitInit", _INIT), ("UnitDone", _DONE), ("UnitDied", _DIED),
        ("UnitOwnerChange", _OWNER), ("UnitTypeChange", _TYPE),
    )  # fmt: skip
    for event, kind in kinds:
        rows = events.get(event)
        if rows is None or not len(rows):
            continue
        names = rows.dtype.names or ()
        ops = np.zeros(len(rows), OP)
        ops["loop"], ops["kind"] = _loops(rows, end), kind
        ops["index"] = _bounded(rows["m_unitTagIndex"], -1)
        ops["recycle"] = _bounded(rows["m_unitTagRecycle"], 0)
        ops["creator"] = -1
        if "m_controlPlayerId" in names:
            owner = rows["m_controlPlayerId"]
            ops["owner"] = np.where((owner >= 0) & (owner < 16), owner, 16)
        if "m_unitTypeName" in names:
            ops["type"] = _type_indices(replay, rows["m_unitTypeName"])
            unknown += int(np.count_nonzero(ops["type"] == 0))
        if "m_x" in names:
            ops["x"] = _bounded(rows["m_x"], 0) * scale + offset
            ops["y"] = _bounded(rows["m_y"], 0) * scale + offset
        if "m_creatorUnitTagIndex" in names:
            ops["creator"] = _bounded(rows["m_creatorUnitTagIndex"], -1)
        parts.append(ops)
        places.append(rows["_index"])
    if "UnitPositions" in events and len(events["UnitPositions"]):
        ops, place = _positions(events, end, scale, offset)
        parts.append(ops)
        places.append(place)
    if not parts:
        return np.zeros(0, OP), 0
    order = np.argsort(np.concatenate(places), kind="stable")
    merged = np.concatenate(parts)[order]
    # The counter may step back (a resumed game); what comes later in the stream is later.
    merged["loop"] = np.maximum.accumulate(merged["loop"])
    return merged, unknown


def _bounded(values: npt.NDArray[np.int64], null: int) -> npt.NDArray[np.int32]:
    return np.where((values >= 0) & (values < 1 << 30), values, null).astype(np.int32)


def _positions(
    events: Events, end: int, scale: int, offset: float
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int64]]:
    # Items are triples: how much further the next unit's index is, then x and y.
    rows, items = events["UnitPositions"], events["UnitPositions.m_items"]["value"]
    start, count = rows["m_items"][:, 0], rows["m_items"][:, 1] // 3
    owner = np.repeat(np.arange(len(rows)), count)
    first = np.repeat(np.cumsum(count) - count, count)
    item = np.repeat(start, count) + 3 * (np.arange(len(owner)) - first)
    step = _bounded(items[item], 0).astype(np.int64)
    total = np.cumsum(step)
    before = np.concatenate(([0], total))[first]
    index = _bounded(rows["m_firstUnitIndex"], 0)[owner] + total - before
    ops = np.zeros(len(owner), OP)
    ops["loop"], ops["kind"] = _loops(rows, end)[owner], _POSITION
    ops["index"], ops["recycle"], ops["creator"] = np.minimum(index, 1 << 30), -1, -1
    ops["x"] = _bounded(items[item + 1], 0) * scale + offset
    ops["y"] = _bounded(items[item + 2], 0) * scale + offset
    return ops, rows["_index"][owner]


def _type_indices(replay: Replay, pairs: npt.NDArray[np.int64]) -> list[int]:
    data = replay.member("replay.tracker.events") or b""
    index = vocabulary.unit_types().index
    return [index.get(data[start : start + size], 0) for start, size in pairs.tolist()]


def _map_size(replay: Replay, ops: npt.NDArray[np.void]) -> tuple[int, int]:
    width, height = replay.map_size
    if 0 < width <= 1024 and 0 < height <= 1024:
        return width, height
    # No table reads this build's lobby: what stands at loop 0 shows how far the map reaches.
    first = ops[ops["loop"] == 0]
    if not len(first):
        return 256, 256
    reach = [max(8, min(1024, int(first[axis].max()) + 8)) for axis in ("x", "y")]
    return reach[0], reach[1]


# -- commands and selections ----------------------------------------------------------------


def _commands(replay: Replay, events: Events) -> Commands:
    # A command that is given again shows as a CommandManagerState, after an update of its
    # target if that is another. So a command is what the user's last Cmd was, at the target
    # that the user named last.
    cmd = events["Cmd"]
    point = events.get("CmdUpdateTargetPoint", cmd[:0])
    unit = events.get("CmdUpdateTargetUnit", cmd[:0])
    again = events.get("CommandManagerState", cmd[:0])
    sizes = [len(rows) for rows in (cmd, point, unit, again)]
    index = np.concatenate([rows["_index"] for rows in (cmd, point, unit, again)])
    user = np.concatenate([rows["_userid"] for rows in (cmd, point, unit, again)])
    loop = np.concatenate([rows["_gameloop"] for rows in (cmd, point, unit, again)])
    kind = np.repeat(np.arange(4), sizes)
    target = np.zeros((len(index), 4), np.int64)  # kind, x, y, tag
    target[:, 3] = -1
    _targets(target[: sizes[0]], cmd)
    if sizes[1]:
        target[sizes[0] : sizes[0] + sizes[1], :3] = np.column_stack(
            [np.full(sizes[1], _POINT), point["m_target.x"], point["m_target.y"]]
        )
    if sizes[2]:
        target[sizes[0] + sizes[1] : sizes[0] + sizes[1] + sizes[2]] = np.column_stack(
            [
                np.full(sizes[2], _UNIT),
                unit["m_target.m_snapshotPoint.x"],
                unit["m_target.m_snapshotPoint.y"],
                unit["m_target.m_tag"],
            ]
        )
    order = np.lexsort((index, user))
    of_cmd = _last_where(kind[order] == 0, user[order])
    of_target = _last_where(kind[order] < 3, user[order])
    ordered = np.isin(kind[order], (0, 3)) & (of_cmd >= 0)
    rows = order[ordered]
    source = order[of_cmd[ordered]]
    aim = target[order[of_target[ordered]]]
    by_time = np.argsort(index[rows], kind="stable")
    rows, source, aim = rows[by_time], source[by_time], aim[by_time]
    has_place = (aim[:, 0] == _POINT) | (aim[:, 0] == _UNIT)
    place = np.where(has_place[:, None], aim[:, 1:3] / _FIXED, np.nan).astype(np.float32)
    link = cmd["m_abil.m_abilLink"][source]
    ability_index = cmd["m_abil.m_abilCmdIndex"][source]
    flags = cmd["m_cmdFlags"][source]
    functions = vocabulary.abilities(replay.base_build).raw_function(
        link, ability_index, aim[:, 0], flags
    )
    return Commands(
        game_loop=np.minimum(loop[rows], MAX_GAME_LOOPS).astype(np.int32),
        user=user[rows].astype(np.int16),
        function=functions,
        ability_link=link,
        ability_index=ability_index,
        target=aim[:, 0].astype(np.int8),
        x=place[:, 0],
        y=place[:, 1],
        target_tag=aim[:, 3],
        flags=flags,
        index=index[rows],
    )


def _targets(into: npt.NDArray[np.int64], cmd: npt.NDArray[Any]) -> None:
    kind = cmd["m_data?"]
    into[:, 0] = np.where(kind == NULL, _NONE, kind)
    at_point, at_unit = kind == _POINT, kind == _UNIT
    for axis, column in (("x", 1), ("y", 2)):
        into[at_point, column] = cmd[f"m_data.TargetPoint.{axis}"][at_point]
        into[at_unit, column] = cmd[f"m_data.TargetUnit.m_snapshotPoint.{axis}"][at_unit]
    into[at_unit, 3] = cmd["m_data.TargetUnit.m_tag"][at_unit]


def _last_where(flag: npt.NDArray[np.bool_], user: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    # For rows grouped by user: the last flagged row of the same user up to each, or -1.
    last = np.maximum.accumulate(np.where(flag, np.arange(len(flag)), -1))
    found = (last >= 0) & (user[last] == user)
    return np.where(found, last, -1)


def _orders(
    replay: Replay, events: Events, commands: Commands, end: int
) -> tuple[
    npt.NDArray[np.void],
    npt.NDArray[np.uint8],
    npt.NDArray[np.int32],
    npt.NDArray[np.uint32],
]:
    """The kernel's view of selections, control groups and commands."""
    delta, group = events["SelectionDelta"], events["ControlGroupUpdate"]
    masks = "m_delta.m_removeMask"
    indices = [
        events[f"SelectionDelta.{masks}.OneIndices"]["value"],
        events[f"SelectionDelta.{masks}.ZeroIndices"]["value"],
        events["ControlGroupUpdate.m_mask.OneIndices"]["value"],
        events["ControlGroupUpdate.m_mask.ZeroIndices"]["value"],
    ]
    begins = np.cumsum([0, *map(len, indices)])
    selects = _ops(delta, _SELECT, end)
    selects["group"] = _place(delta["m_controlGroupId"], 11, 10)
    _mask(selects, delta, masks, begins[0], begins[1])
    selects["add_start"], selects["add_count"] = delta["m_delta.m_addUnitTags"].T
    groups = _ops(group, _GROUP, end)
    groups["group"] = _place(group["m_controlGroupIndex"], 11, 10)
    groups["action"] = _place(group["m_controlGroupUpdate"], 8, 7)
    _mask(groups, group, "m_mask", begins[2], begins[3])
    given = np.zeros(len(commands.game_loop), COMMAND_OP)
    given["loop"] = np.minimum(commands.game_loop, end)
    given["kind"], given["user"] = _COMMAND, commands.user
    given["motion"] = np.where(
        np.isnan(commands.x) & (vocabulary.motion()[commands.function] != 2),
        0,
        vocabulary.motion()[commands.function],
    )
    given["queued"] = (commands.flags & 2) != 0
    given["x"], given["y"] = np.nan_to_num(commands.x), np.nan_to_num(commands.y)
    given["target"] = commands.target_tag
    merged = np.concatenate([selects, groups, given])
    order = np.argsort(
        np.concatenate([delta["_index"], group["_index"], commands.index]), kind="stable"
    )
    merged = merged[order]
    merged = merged[(merged["user"] >= 0) & (merged["user"] < 16)]
    merged["loop"] = np.maximum.accumulate(merged["loop"])
    data = np.frombuffer(replay.member("replay.game.events") or b"", np.uint8)
    added = events["SelectionDelta.m_delta.m_addUnitTags"]["value"]
    tags = np.concatenate([added, [0]]).astype(np.uint32)
    every = np.concatenate([*indices, [0]])
    return (
        merged,
        np.append(np.unpackbits(data, bitorder="little"), np.uint8(0)),
        np.clip(every, -1, 1 << 20).astype(np.int32),
        tags,
    )


def _ops(rows: npt.NDArray[Any], kind: int, end: int) -> npt.NDArray[np.void]:
    ops = np.zeros(len(rows), COMMAND_OP)
    ops["loop"], ops["kind"], ops["user"] = _loops(rows, end), kind, rows["_userid"]
    ops["target"] = -1
    return ops


def _place(values: npt.NDArray[np.int64], size: int, other: int) -> npt.NDArray[np.int64]:
    return np.where((values >= 0) & (values < size), values, other)


def _mask(
    ops: npt.NDArray[np.void], rows: npt.NDArray[Any], path: str, ones: int, zeros: int
) -> None:
    # By a bit each, by the indices of what goes, or by the indices of what stays.
    kind = _place(rows[f"{path}?"], 4, 0)
    ops["mask_kind"] = kind
    for tag, name, begin in ((1, "Mask", 0), (2, "OneIndices", ones), (3, "ZeroIndices", zeros)):
        of_kind = kind == tag
        ops["mask_start"][of_kind] = rows[f"{path}.{name}"][of_kind, 0] + begin
        ops["mask_count"][of_kind] = rows[f"{path}.{name}"][of_kind, 1]


# -- one side ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Side:
    """The step functions of one player: int32 loops from which a row holds, and the rows.

    Attributes:
        stats: Rows of pysc2's player vector, int32 (n, 11).
        score: float64 (n,): minerals and vespene gathered, plus the value of what was killed.
        upgrades: Places in the vocabulary's upgrade vector, int32 (n,).
        cameras: Centres in cells from the bottom left, float32 (n, 2); each holds from the loop
            after the player moved there.
        selections: int32 (n, 3) of (loop, first, count) in the tracks' list of ordinals.
        losses: int32 (n, 3) of (loop, x, y): the player's units that died.
    """

    stats: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
    score: npt.NDArray[np.float64]
    upgrades: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
    cameras: tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]
    selections: npt.NDArray[np.int32]
    losses: npt.NDArray[np.int32]


def side_of(replay: Replay, game: Game, player_id: int, user_id: int | None) -> Side:
    """What concerns one player."""
    stats, score = _player_stats(game, player_id)
    return Side(
        stats=stats,
        score=score,
        upgrades=_upgrades(replay, game, player_id),
        cameras=_cameras(game, user_id),
        selections=_selections(game, user_id),
        losses=_losses(game, player_id),
    )


def _player_stats(
    game: Game, player_id: int
) -> tuple[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]], npt.NDArray[np.float64]]:
    rows = game.tracker["PlayerStats"]
    rows = rows[rows["m_playerId"] == player_id]
    names = rows.dtype.names or ()

    def column(name: str) -> npt.NDArray[np.int64]:
        if f"{_STATS}{name}" not in names:
            return np.zeros(len(rows), np.int64)
        values: npt.NDArray[np.int64] = rows[f"{_STATS}{name}"]
        return values.clip(-(1 << 30), 1 << 30)

    minerals, vespene, used, made, workers = map(column, _ECONOMY)
    used, made = used // _FIXED, made // _FIXED
    vector = np.zeros((len(rows), 11), np.int32)
    vector[:, 0] = player_id
    vector[:, 1], vector[:, 2], vector[:, 3] = minerals, vespene, used
    vector[:, 4] = np.minimum(made, _MAX_SUPPLY)
    vector[:, 5], vector[:, 6] = np.maximum(used - workers, 0), workers
    score = np.zeros(len(rows), np.float64)
    for name in names:
        if _SCORE_FIELD.fullmatch(name):
            score += np.where(rows[name] == NULL, 0, rows[name])
    loops = np.maximum.accumulate(_loops(rows, game.end)) if len(rows) else _loops(rows, game.end)
    return (loops, vector), score


def _upgrades(
    replay: Replay, game: Game, player_id: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    rows = game.tracker["Upgrade"]
    rows = rows[(rows["m_playerId"] == player_id) & (rows["m_count"] > 0)]
    data = replay.member("replay.tracker.events") or b""
    index = vocabulary.upgrades().index
    pairs = rows["m_upgradeTypeName"].tolist()
    places = np.array(
        [index.get(data[start : start + size], -1) for start, size in pairs], np.int32
    )
    loops = _loops(rows, game.end)
    known = places >= 0
    return _ascending(loops[known]), places[known]


def _ascending(loops: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    return np.maximum.accumulate(loops) if len(loops) else loops


def _cameras(
    game: Game, user_id: int | None
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    rows = game.game["CameraUpdate"]
    rows = rows[(rows["_userid"] == (-2 if user_id is None else user_id)) & rows["m_target?"]]
    centres = np.column_stack([rows["m_target.x"], rows["m_target.y"]]) / _CAMERA_FIXED
    return _ascending(_loops(rows, game.end)) + np.int32(1), np.ascontiguousarray(
        centres, np.float32
    )


def _selections(game: Game, user_id: int | None) -> npt.NDArray[np.int32]:
    rows, _ = game.tracks.selections
    rows = rows[rows[:, 1] == (-2 if user_id is None else user_id)]
    return np.ascontiguousarray(rows[:, [0, 2, 3]])


def _losses(game: Game, player_id: int) -> npt.NDArray[np.int32]:
    # Whose a unit was is in its last segment.
    died, tracks = game.tracker["UnitDied"], game.tracks
    segments = tracks.segment_table
    if not len(died) or not len(segments):
        return np.zeros((0, 3), np.int32)
    tags = (_bounded(died["m_unitTagIndex"], 0).astype(np.int64) << 18) + _bounded(
        died["m_unitTagRecycle"], 0
    )
    by_tag = np.argsort(tracks.unit_tags, kind="stable")
    at = np.searchsorted(tracks.unit_tags[by_tag], tags).clip(0, len(by_tag) - 1)
    unit = by_tag[at]
    last = np.searchsorted(segments["unit"], unit, "right") - 1
    own = (
        (tracks.unit_tags[unit] == tags)
        & (last >= 0)
        & (segments["unit"][last] == unit)
        & (segments["owner"][last] == player_id)
    )
    rows = np.column_stack(
        [_loops(died, game.end), _bounded(died["m_x"], 0), _bounded(died["m_y"], 0)]
    )[own].astype(np.int32)
    rows[:, 0] = _ascending(rows[:, 0])
    return np.ascontiguousarray(rows)
