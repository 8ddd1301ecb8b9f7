"""From the columns of a replay to the tracks of its units and the course of its economy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sc2gym import vocabulary
from sc2gym._fast import merge
from sc2gym._fast import tracks as kernel
from sc2gym._fast.tracks import Tracks
from sc2gym.columns import NULL, column_paths
from sc2gym.errors import ReplayError, UnsupportedReplayError
from sc2gym.protocol import known_builds, protocol
from sc2gym.replay import Replay

MAX_GAME_LOOPS = 1 << 20
"""The longest game taken, 13 hours at Faster; a longer one is a lie or an accident."""

# Before 2.1 positions count cells of four by four (as sc2reader found, too).
_FIRST_FINE_BUILD = 27950
# The tracker stream rounds positions down to whole cells; half a cell is the best guess.
_HALF = 0.5

# In the order of the kernel's kinds of operations.
_UNIT_EVENTS = (
    "UnitBorn", "UnitInit", "UnitDone", "UnitDied", "UnitOwnerChange", "UnitTypeChange",
)  # fmt: skip

_TAG = ["m_unitTagIndex", "m_unitTagRecycle"]
_PLACE = ["m_x", "m_y"]
_TRACKER_FIELDS: dict[str, Sequence[str]] = {
    "UnitBorn": [*_TAG, "m_unitTypeName", "m_controlPlayerId", *_PLACE, "m_creatorUnitTagIndex"],
    "UnitInit": [*_TAG, "m_unitTypeName", "m_controlPlayerId", *_PLACE],
    "UnitDone": [*_TAG],
    "UnitDied": [*_TAG, *_PLACE],
    "UnitOwnerChange": [*_TAG, "m_controlPlayerId"],
    "UnitTypeChange": [*_TAG, "m_unitTypeName"],
    "UnitPositions": ["m_firstUnitIndex", "m_items", "m_items.value"],
    "Upgrade": ["m_playerId", "m_upgradeTypeName", "m_count"],
}
_GAME_FIELDS: dict[str, Sequence[str]] = {
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
        given: All but the functions as one structured array, of which the rest are columns.
        function: int32 (n,), raw function ids.
        game_loop: int32 (n,).
        user: int16 (n,).
        ability_link, ability_index: int64 (n,), as the game stream has them; NULL for none.
        target: int8 (n,), 0 none, 1 point, 2 unit, 3 other data.
        x, y: float32 (n,), where the target is, in cells from the bottom left; NaN for none.
        target_tag: int64 (n,), the target's tag, -1 for none.
        flags: int64 (n,), the command's flags; bit 1 is queued.
        index: int64 (n,), place in the game stream.
    """

    given: npt.NDArray[np.void]
    function: npt.NDArray[np.int32]
    game_loop: npt.NDArray[np.int32]
    user: npt.NDArray[np.int16]
    ability_link: npt.NDArray[np.int64]
    ability_index: npt.NDArray[np.int64]
    target: npt.NDArray[np.int8]
    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    target_tag: npt.NDArray[np.int64]
    flags: npt.NDArray[np.int64]
    index: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Statistics:
    """What the file tells of every player each 160 loops, in order.

    Attributes:
        player_id: int64 (n,).
        game_loop: int32 (n,), ascending.
        vector: int32 (n, 11), pysc2's player vector.
        score: float64 (n,): minerals and vespene gathered, plus the value of what was killed.
    """

    player_id: npt.NDArray[np.int64]
    game_loop: npt.NDArray[np.int32]
    vector: npt.NDArray[np.int32]
    score: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Game:
    """All that episodes of one replay share.

    Attributes:
        tracks: The units.
        commands: Who ordered what.
        statistics: How every player did.
        tracker, game: The events that the sides' other step functions come from.
        losses: int32 (n, 4) of (loop, x, y, owner): the units that died; owner -1 where the file
            does not say which unit it was.
        map_size: (width, height) in cells.
        end: The game's last loop.
        unknown_types: How many births and morphs were of a type the vocabulary lacks.
    """

    tracks: Tracks
    commands: Commands
    statistics: Statistics
    tracker: Events
    game: Events
    losses: npt.NDArray[np.int32]
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
    # Older builds lack some events, and some of their fields.
    statistics: dict[str, Sequence[str]] = {"PlayerStats": _statistics_fields()}
    tracker = replay.events("tracker", _TRACKER_FIELDS | statistics, missing="skip")
    game = replay.events("game", _GAME_FIELDS, missing="skip")
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
    losses = _deaths(tracker["UnitDied"], tracks, end)
    size = _map_size(replay, ops)
    every = _statistics(tracker["PlayerStats"], end)
    return Game(tracks, commands, every, tracker, game, losses, size, end, unknown_types)


@cache
def _statistics_fields() -> tuple[str, ...]:
    newest = protocol(known_builds()[-1])
    types = newest.streams["tracker"]
    paths = column_paths(newest.build, types.types[types.ids["PlayerStats"]])
    economy = {f"{_STATS}{name}" for name in _ECONOMY}
    return ("m_playerId", *(path for path in paths if path in economy or _is_score(path)))


@cache
def _is_score(field: str) -> bool:
    return _SCORE_FIELD.fullmatch(field) is not None


def _loops(rows: npt.NDArray[Any], end: int) -> npt.NDArray[np.int32]:
    loops: npt.NDArray[np.int32] = np.minimum(rows["_gameloop"], end).astype(np.int32)
    return loops


# -- tracker operations -------------------------------------------------------------------


def _operations(replay: Replay, events: Events, end: int) -> tuple[npt.NDArray[np.void], int]:
    scale, offset = (1.0, _HALF) if replay.base_build >= _FIRST_FINE_BUILD else (4.0, 2.0)
    return merge.operations(
        [events.get(event) for event in _UNIT_EVENTS],
        events.get("UnitPositions"),
        events.get("UnitPositions.m_items"),
        replay.member("replay.tracker.events") or b"",
        vocabulary.unit_types().index,
        scale,
        offset,
        end,
    )


def _bounded(values: npt.NDArray[np.int64], null: int) -> npt.NDArray[np.int32]:
    return np.where((values >= 0) & (values < 1 << 30), values, null).astype(np.int32)


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
    cmd = events["Cmd"]
    point, unit, again = (
        events.get(name, cmd[:0])
        for name in ("CmdUpdateTargetPoint", "CmdUpdateTargetUnit", "CommandManagerState")
    )
    given = merge.commands(cmd, point, unit, again, MAX_GAME_LOOPS)
    functions = vocabulary.abilities(replay.base_build).raw_function(
        given["ability_link"], given["ability_index"], given["target"], given["flags"]
    )
    return Commands(given, functions, **{name: given[name] for name in given.dtype.names or ()})


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
    masks = [
        events[f"{path}.{name}"]
        for path in ("SelectionDelta.m_delta.m_removeMask", "ControlGroupUpdate.m_mask")
        for name in ("OneIndices", "ZeroIndices")
    ]
    ops, indices = merge.orders(
        delta, group, commands.given, vocabulary.motion(), commands.function, masks, end
    )
    added = events["SelectionDelta.m_delta.m_addUnitTags"]["value"]
    tags = np.zeros(len(added) + 1, np.uint32)
    tags[:-1] = added
    return (
        ops,
        np.frombuffer(replay.member("replay.game.events") or b"\0", np.uint8),
        indices,
        tags,
    )


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
    every = game.statistics
    own = np.flatnonzero(every.player_id == player_id)
    return Side(
        stats=(every.game_loop[own], every.vector[own]),
        score=every.score[own],
        upgrades=_upgrades(replay, game, player_id),
        cameras=_cameras(game, user_id),
        selections=_selections(game, user_id),
        losses=_losses(game, player_id),
    )


def _statistics(rows: npt.NDArray[Any], end: int) -> Statistics:
    # All of its columns are int64, so that it is a table of numbers, too.
    names = rows.dtype.names or ()
    table = rows.view(np.int64).reshape(len(rows), len(names))
    columns = {name: table[:, place] for place, name in enumerate(names)}

    def economy(name: str) -> npt.NDArray[np.int64]:
        values = columns.get(f"{_STATS}{name}")
        if values is None:
            return np.zeros(len(rows), np.int64)
        return np.minimum(np.maximum(values, -(1 << 30)), 1 << 30)

    minerals, vespene, used, made, workers = map(economy, _ECONOMY)
    used, made = used // _FIXED, made // _FIXED
    vector = np.zeros((len(rows), 11), np.int32)
    vector[:, 0] = np.minimum(np.maximum(columns["m_playerId"], 0), 1 << 30)
    vector[:, 1], vector[:, 2], vector[:, 3] = minerals, vespene, used
    vector[:, 4] = np.minimum(made, _MAX_SUPPLY)
    vector[:, 5], vector[:, 6] = np.maximum(used - workers, 0), workers
    scored = table[:, [place for place, name in enumerate(names) if _is_score(name)]]
    score = np.where(scored == NULL, 0, scored).sum(axis=1, dtype=np.float64)
    return Statistics(columns["m_playerId"], _ascending(_loops(rows, end)), vector, score)


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
    users = rows["_userid"] == (-2 if user_id is None else user_id)
    rows = rows[np.flatnonzero(users & rows["m_target?"])]
    centres = np.empty((len(rows), 2), np.float32)
    for axis, name in enumerate(("m_target.x", "m_target.y")):
        centres[:, axis] = rows[name] / _CAMERA_FIXED
    return _ascending(_loops(rows, game.end)) + np.int32(1), centres


def _selections(game: Game, user_id: int | None) -> npt.NDArray[np.int32]:
    rows, _ = game.tracks.selections
    rows = rows[rows[:, 1] == (-2 if user_id is None else user_id)]
    return np.ascontiguousarray(rows[:, [0, 2, 3]])


def _losses(game: Game, player_id: int) -> npt.NDArray[np.int32]:
    return np.ascontiguousarray(game.losses[game.losses[:, 3] == player_id, :3])


def _deaths(died: npt.NDArray[Any], tracks: Tracks, end: int) -> npt.NDArray[np.int32]:
    # Whose a unit was is in its last segment.
    segments = tracks.segment_table
    if not len(died) or not len(segments):
        return np.zeros((0, 4), np.int32)
    tags = (_bounded(died["m_unitTagIndex"], 0).astype(np.int64) << 18) + _bounded(
        died["m_unitTagRecycle"], 0
    )
    by_tag = np.argsort(tracks.unit_tags, kind="stable")
    at = np.searchsorted(tracks.unit_tags[by_tag], tags)
    unit = by_tag[np.minimum(at, len(by_tag) - 1)]
    last = np.searchsorted(segments["unit"], unit, "right") - 1
    known = (tracks.unit_tags[unit] == tags) & (segments["unit"][last] == unit)
    rows = np.empty((len(died), 4), np.int32)
    rows[:, 0] = _ascending(_loops(died, end))
    rows[:, 1], rows[:, 2] = _bounded(died["m_x"], 0), _bounded(died["m_y"], 0)
    rows[:, 3] = np.where(known, segments["owner"][last], -1)
    return rows
