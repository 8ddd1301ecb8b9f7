"""Events as s2protocol decodes them, each made by one short call.

Tracker events take unit tags as the game stream writes them: (index << 18) + recycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = [
    "camera",
    "chat",
    "command",
    "control_group",
    "leave",
    "player_stats",
    "repeat",
    "selection",
    "tag",
    "unit_born",
    "unit_died",
    "unit_done",
    "unit_init",
    "unit_owner_change",
    "unit_positions",
    "unit_type_change",
    "update_target",
    "upgrade",
]

Event = dict[str, Any]

# Every field of the score without its "m_scoreValue".
_RESOURCES = ("Minerals", "Vespene")
_SHARES = ("Army", "Economy", "Technology")
STATS = frozenset(
    {"WorkersActiveCount", "FoodUsed", "FoodMade"}
    | {f"{r}{what}" for r in _RESOURCES for what in ("Current", "CollectionRate")}
    | {f"{r}UsedActiveForces" for r in _RESOURCES}
    | {
        f"{r}{what}{share}"
        for r in _RESOURCES
        for what in ("UsedInProgress", "UsedCurrent", "Lost", "Killed", "FriendlyFire")
        for share in _SHARES
    }
)
SELECTION = 10  # the control group that stands for the selection


def tag(index: int, recycle: int = 1) -> int:
    """A unit's tag; `recycle` counts the units that have used the index."""
    return (index << 18) + recycle


def _tagged(unit: int) -> Event:
    return {"m_unitTagIndex": unit >> 18, "m_unitTagRecycle": unit & 0x3FFFF}


def _tracker(name: str, loop: int, **fields: Any) -> Event:
    return {"_event": f"NNet.Replay.Tracker.S{name}Event", "_gameloop": loop, **fields}


def _game(name: str, loop: int, user: int, **fields: Any) -> Event:
    return {
        "_event": f"NNet.Game.S{name}Event",
        "_gameloop": loop,
        "_userid": {"m_userId": user},
        **fields,
    }


def unit_born(
    loop: int,
    unit: int,
    name: str,
    player: int,
    x: int,
    y: int,
    *,
    creator: int | None = None,
    ability: str | None = None,
) -> Event:
    """A unit enters the game finished. Cells; player 0 is neutral."""
    return _tracker(
        "UnitBorn",
        loop,
        **_tagged(unit),
        m_unitTypeName=name.encode(),
        m_controlPlayerId=player,
        m_upkeepPlayerId=player,
        m_x=x,
        m_y=y,
        m_creatorUnitTagIndex=None if creator is None else creator >> 18,
        m_creatorUnitTagRecycle=None if creator is None else creator & 0x3FFFF,
        m_creatorAbilityName=None if ability is None else ability.encode(),
    )


def unit_init(loop: int, unit: int, name: str, player: int, x: int, y: int) -> Event:
    """A unit enters the game unfinished: a building, or a unit warped in."""
    return _tracker(
        "UnitInit",
        loop,
        **_tagged(unit),
        m_unitTypeName=name.encode(),
        m_controlPlayerId=player,
        m_upkeepPlayerId=player,
        m_x=x,
        m_y=y,
    )


def unit_done(loop: int, unit: int) -> Event:
    """An unfinished unit is finished."""
    return _tracker("UnitDone", loop, **_tagged(unit))


def unit_died(
    loop: int,
    unit: int,
    x: int,
    y: int,
    *,
    killer: int | None = None,
    killer_player: int | None = None,
) -> Event:
    """A unit leaves the game: killed, or used up (a larva, a drone that became a building)."""
    return _tracker(
        "UnitDied",
        loop,
        **_tagged(unit),
        m_killerPlayerId=killer_player,
        m_x=x,
        m_y=y,
        m_killerUnitTagIndex=None if killer is None else killer >> 18,
        m_killerUnitTagRecycle=None if killer is None else killer & 0x3FFFF,
    )


def unit_type_change(loop: int, unit: int, name: str) -> Event:
    """A unit becomes another type and keeps its tag."""
    return _tracker("UnitTypeChange", loop, **_tagged(unit), m_unitTypeName=name.encode())


def unit_owner_change(loop: int, unit: int, player: int) -> Event:
    """A unit changes hands."""
    return _tracker(
        "UnitOwnerChange", loop, **_tagged(unit), m_controlPlayerId=player, m_upkeepPlayerId=player
    )


def unit_positions(loop: int, positions: Iterable[tuple[int, int, int]]) -> list[Event]:
    """Where units are: (tag index, x, y), in cells.

    One event holds up to 255 units, each index relative to the one before; more make more events.
    """
    rows = sorted(positions)
    events = []
    for start in range(0, len(rows), 255):
        part = rows[start : start + 255]
        items: list[int] = []
        before = part[0][0]
        for index, x, y in part:
            items += (index - before, x, y)
            before = index
        events.append(_tracker("UnitPositions", loop, m_firstUnitIndex=part[0][0], m_items=items))
    return events


def upgrade(loop: int, player: int, name: str, count: int = 1) -> Event:
    """A player has an upgrade from here on."""
    return _tracker(
        "Upgrade", loop, m_playerId=player, m_upgradeTypeName=name.encode(), m_count=count
    )


def player_stats(loop: int, player: int, **stats: int) -> Event:
    """A player's score, by names of `STATS`; what is not given is 0. Food is in 1/4096."""
    unknown = set(stats) - set(STATS)
    if unknown:
        raise TypeError(f"no such statistics: {', '.join(sorted(unknown))}")
    values = {f"m_scoreValue{name}": stats.get(name, 0) for name in STATS}
    return _tracker("PlayerStats", loop, m_playerId=player, m_stats=values)


def _point(x: float, y: float) -> Event:
    """A point of the map as commands have it: cells in 1/4096, z as on level ground."""
    return {"x": round(x * 4096), "y": round(y * 4096), "z": 49104}


def command(
    loop: int,
    user: int,
    ability: tuple[int, int] | None,
    *,
    point: tuple[float, float] | None = None,
    unit: int | None = None,
    unit_link: int = 0,
    unit_player: int = 0,
    sequence: int = 1,
    flags: int = 0x100,
) -> Event:
    """A command to the selected units; ability None is the right click.

    Args:
        loop: Game loop.
        user: User id, not player id.
        ability: Ability link and command index.
        point: Where to, in cells; with `unit`, where that unit is.
        unit: Tag of the unit aimed at.
        unit_link: Its type's link.
        unit_player: Its owner.
        sequence: Counts the user's commands from 1.
        flags: 0x100 is set on every command, 0x2 on a queued one, 0x8 on a right click.
    """
    target: Event = {"None": None}
    if unit is not None:
        target = {
            "TargetUnit": {
                "m_targetUnitFlags": 111,
                "m_timer": 0,
                "m_tag": unit,
                "m_snapshotUnitLink": unit_link,
                "m_snapshotControlPlayerId": unit_player,
                "m_snapshotUpkeepPlayerId": unit_player,
                "m_snapshotPoint": _point(*(point or (0, 0))),
            }
        }
    elif point is not None:
        target = {"TargetPoint": _point(*point)}
    return _game(
        "Cmd",
        loop,
        user,
        m_cmdFlags=flags,
        m_abil=None
        if ability is None
        else {"m_abilLink": ability[0], "m_abilCmdIndex": ability[1], "m_abilCmdData": None},
        m_data=target,
        m_sequence=sequence,
        m_otherUnit=None,
        m_unitGroup=None,
    )


def repeat(loop: int, user: int, sequence: int) -> Event:
    """The user's last command once more; `sequence` as of commands."""
    return _game("CommandManagerState", loop, user, m_state=1, m_sequence=sequence)


def update_target(loop: int, user: int, point: tuple[float, float]) -> Event:
    """The user's last command has another point, in cells."""
    return _game("CmdUpdateTargetPoint", loop, user, m_target=_point(*point))


def selection(
    loop: int,
    user: int,
    groups: Sequence[tuple[int, Sequence[int]]],
    *,
    keep: Sequence[int] = (),
    control_group: int = SELECTION,
) -> Event:
    """The selection becomes `groups`: (unit type link, tags) each.

    Args:
        loop: Game loop.
        user: User id.
        groups: What is added.
        keep: Positions in the old selection that stay.
        control_group: The group changed, by default the selection itself.
    """
    return _game(
        "SelectionDelta",
        loop,
        user,
        m_controlGroupId=control_group,
        m_delta={
            "m_subgroupIndex": 0,
            "m_removeMask": {"ZeroIndices": list(keep)},
            "m_addSubgroups": [
                {
                    "m_unitLink": link,
                    "m_subgroupPriority": 32,
                    "m_intraSubgroupPriority": 1,
                    "m_count": len(tags),
                }
                for link, tags in groups
            ],
            "m_addUnitTags": [unit for _, tags in groups for unit in tags],
        },
    )


def control_group(loop: int, user: int, index: int, update: int) -> Event:
    """A control group is set (0), added to (1) or recalled (2)."""
    return _game(
        "ControlGroupUpdate",
        loop,
        user,
        m_controlGroupIndex=index,
        m_controlGroupUpdate=update,
        m_mask={"None": None},
    )


def camera(loop: int, user: int, x: float, y: float) -> Event:
    """The camera looks at a point, in cells; the file counts in 1/256."""
    return _game(
        "CameraUpdate",
        loop,
        user,
        m_target={"x": round(x * 256), "y": round(y * 256)},
        m_distance=None,
        m_pitch=None,
        m_yaw=None,
        m_reason=None,
        m_follow=False,
    )


def leave(loop: int, user: int) -> Event:
    """A user leaves the game."""
    return _game("GameUserLeave", loop, user, m_leaveReason=0)


def chat(loop: int, user: int, text: str) -> Event:
    """A message to all, of the message stream."""
    return {
        "_event": "NNet.Game.SChatMessage",
        "_gameloop": loop,
        "_userid": {"m_userId": user},
        "m_recipient": 0,
        "m_string": text.encode(),
    }
