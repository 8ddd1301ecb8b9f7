"""Everything of a replay that is known before the first game loop, for any game version.

`describe` turns a few `PlayerSetup`s into header, details, initData, attributes and metadata that
agree with each other. What the version's table has and the setups do not say is blank.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sc2gym.testing.encoders import TypeTable
from sc2gym.testing.writer import ReplayWriter

__all__ = ["PlayerSetup", "blank", "describe"]

Result = Literal["win", "loss", "tie", "undecided"]

_RESULTS = {
    "undecided": (0, "Undecided"),
    "win": (1, "Win"),
    "loss": (2, "Loss"),
    "tie": (3, "Tie"),
}
_RACES = {"Terran": (0, "Terr"), "Zerg": (1, "Zerg"), "Protoss": (2, "Prot")}
_COLORS = (  # the game's own, in the order it hands them out
    (180, 20, 30), (0, 66, 255), (28, 167, 234), (235, 225, 41), (84, 0, 129), (254, 138, 14),
    (22, 128, 0), (204, 166, 252), (31, 1, 201), (82, 84, 148), (16, 98, 70), (78, 42, 4),
    (150, 255, 145), (35, 35, 35), (229, 91, 176), (255, 255, 255),
)  # fmt: skip
HUMAN, COMPUTER, CLOSED = 2, 3, 1
SLOTS = 16


@dataclass(frozen=True)
class PlayerSetup:
    """One who takes part in a game.

    Attributes:
        name: As shown in the game.
        race: The race played.
        result: How the game ended for this player.
        team: By default every player has one of their own.
        clan: Clan tag, without brackets.
        mmr: Ladder rating; None where the file has none.
        apm: Actions per minute; None where the file has none.
        computer: Played by the built-in AI; such a player has no user.
        observer: Watches; such a user is no player.
        linked: Whether details give the lobby slot; files of games against the AI that a program
            started do not.
    """

    name: str = "Player"
    race: Literal["Terran", "Protoss", "Zerg"] = "Terran"
    result: Result = "undecided"
    team: int | None = None
    clan: str = ""
    mmr: int | None = None
    apm: int | None = 100
    computer: bool = False
    observer: bool = False
    linked: bool = True


def describe(
    players: Sequence[PlayerSetup],
    *,
    loops: int,
    build: int = 80949,
    version: tuple[int, int, int] = (5, 0, 0),
    map_name: str = "Testbed",
    map_size: tuple[int, int] = (128, 128),
    game_speed: int = 4,
    seed: int = 1,
) -> dict[str, Any]:
    """The parts of a replay that describe its game, as `write_replay` takes them.

    Args:
        players: In lobby order, observers among them. Players (not observers) get the tracker's
            player ids 1, 2, ... and humans the user ids 0, 1, ... in this order.
        loops: Length of the game in game loops.
        build: Base build, and build.
        version: The numbers before it.
        map_name: The map's title.
        map_size: In cells.
        game_speed: 0 slower, 1 slow, 2 normal, 3 fast, 4 faster.
        seed: The game's random seed.

    Returns:
        Keys `header`, `details`, `init_data`, `attributes`, `metadata` and, where the build has
        tracker events, `tracker_events`: the stream's first events, to append to.
    """
    writer = ReplayWriter(build)
    users = {place: user for user, place in enumerate(
        place for place, player in enumerate(players) if not player.computer
    )}  # fmt: skip
    playing = [(place, player) for place, player in enumerate(players) if not player.observer]
    teams = {place: _team(player, order) for order, (place, player) in enumerate(playing)}
    handles = [_handle(f"Standard Data: {mod}.SC2Mod") for mod in ("Liberty", "Swarm", "Void")]
    handles.append(_handle(map_name))
    number = {"m_major": version[0], "m_minor": version[1], "m_revision": version[2]}
    return {
        "header": _filled(writer.types, writer.root("header"), {
            "m_signature": b"StarCraft II replay\x1b11",
            "m_version": {"m_flags": 1, **number, "m_build": build, "m_baseBuild": build},
            "m_type": 2, "m_elapsedGameLoops": loops, "m_useScaledTime": True,
            "m_dataBuildNum": build,
        }),
        "details": _filled(writer.types, writer.root("details"), {
            "m_playerList": [{
                "m_name": _shown(player), "m_race": player.race.encode(),
                "m_toon": {"m_region": 0 if player.computer else 1, "m_programId": b"\0\0S2",
                           "m_realm": 0 if player.computer else 1,
                           "m_id": 0 if player.computer else 1000 + place},
                "m_color": dict(zip(("m_a", "m_r", "m_g", "m_b"), (255, *_COLORS[order % 16]),
                                    strict=True)),
                "m_control": COMPUTER if player.computer else HUMAN, "m_teamId": teams[place],
                "m_handicap": 100, "m_result": _RESULTS[player.result][0],
                "m_workingSetSlotId": place if player.linked else None,
            } for order, (place, player) in enumerate(playing)],
            "m_title": map_name.encode(), "m_thumbnail": {"m_file": b"Minimap.tga"},
            # Noon of 2020-07-28 as the game counts, in 100 ns since 1601; and a second a seed on.
            "m_timeUTC": 132_404_112_000_000_000 + seed * 10_000_000,
            "m_cacheHandles": handles, "m_gameSpeed": game_speed, "m_defaultDifficulty": 3,
            "m_modPaths": None,
        }),
        "init_data": _filled(writer.types, writer.root("init_data"), {"m_syncLobbyState": {
            "m_userInitialData": [{
                "m_name": players[place].name.encode(), "m_clanTag": players[place].clan.encode(),
                "m_observe": int(players[place].observer), "m_highestLeague": 0,
                "m_combinedRaceLevels": 0, "m_scaledRating": players[place].mmr,
            } for place in users],
            "m_gameDescription": {
                "m_randomValue": seed, "m_gameCacheName": b"Dflt", "m_gameSpeed": game_speed,
                "m_gameOptions": {
                    "m_lockTeams": True, "m_battleNet": True, "m_amm": True, "m_competitive": True,
                    "m_heroDuplicatesAllowed": True,
                },
                "m_maxUsers": len(users), "m_maxObservers": SLOTS - len(playing),
                "m_maxPlayers": len(playing), "m_maxTeams": max(1, len(set(teams.values()))),
                "m_maxColors": SLOTS, "m_maxRaces": 3, "m_maxControls": 1,
                "m_mapSizeX": map_size[0], "m_mapSizeY": map_size[1], "m_cacheHandles": handles,
                "m_defaultDifficulty": 3,
            },
            "m_lobbyState": {
                "m_maxUsers": len(users), "m_maxObservers": SLOTS - len(playing),
                "m_slots": [
                    _slot(place, players, users, teams) for place in range(SLOTS)
                ],
                "m_randomSeed": seed, "m_defaultDifficulty": 3,
            },
        }}),
        "attributes": {"source": 0, "mapNamespace": 0, "scopes": {
            **{order: _attributes(_player_attributes(player, teams[place]))
               for order, (place, player) in enumerate(playing, 1)},
            16: _attributes({
                2000: f"t{len(playing)}",
                2001: "1v1" if len(playing) == 2 else "FFA",
                3000: ("Slor", "Slow", "Norm", "Fast", "Fasr")[game_speed],
                3009: "Amm",
            }),
        }},
        "metadata": {
            "Title": map_name,
            "GameVersion": ".".join(map(str, (*version, build))),
            "DataBuild": str(build),
            "DataVersion": "0" * 32,
            "BaseBuild": f"Base{build}",
            "Duration": round(loops / 16),
            "Players": [
                {
                    "PlayerID": order,
                    **({} if player.mmr is None else {"MMR": player.mmr}),
                    **({} if player.apm is None else {"APM": float(player.apm)}),
                    "Result": _RESULTS[player.result][1],
                    "SelectedRace": _RACES[player.race][1],
                    "AssignedRace": _RACES[player.race][1],
                }
                for order, (_, player) in enumerate(playing, 1)
            ],
        },
        **_first_events(writer, playing, users),
    }  # fmt: skip


def _first_events(
    writer: ReplayWriter, playing: Sequence[tuple[int, PlayerSetup]], users: Mapping[int, int]
) -> dict[str, list[dict[str, Any]]]:
    """Who the tracker's player ids are, which the stream itself tells since build 27950."""
    if "tracker" not in writer.streams:
        return {}
    setups = [
        {
            "_event": "NNet.Replay.Tracker.SPlayerSetupEvent",
            "_gameloop": 0,
            "m_playerId": order,
            "m_type": 2 if player.computer else 1,
            "m_userId": users.get(place),
            "m_slotId": place if player.linked else None,
        }
        for order, (place, player) in enumerate(playing, 1)
    ]
    return {"tracker_events": setups if writer.knows("tracker", "PlayerSetup") else []}


def blank(types: TypeTable, type_id: int) -> Any:
    """The least value of a type: zeros, nothing, empty, the first of the choices."""
    kind, arguments = types[type_id]
    if kind == "_struct":
        value: dict[str, Any] = {}
        for name, of, _ in arguments[0]:
            inner = blank(types, of)
            if name != "__parent":
                value[name] = inner
            elif isinstance(inner, dict):
                value |= inner
            else:
                return inner
        return value
    if kind == "_choice":
        _, fields = arguments
        name, of = fields[min(fields)]
        return {name: blank(types, of)}
    if kind == "_array":
        return [blank(types, arguments[1])] * arguments[0][0]
    if kind == "_blob":
        return bytes(arguments[0][0])
    if kind == "_bitarray":
        return arguments[0][0], 0
    if kind == "_int":
        return max(0, arguments[0][0])
    return {"_bool": False, "_fourcc": b"\0\0\0\0", "_real32": 0.0, "_real64": 0.0}.get(kind)


def _filled(types: TypeTable, type_id: int, wanted: Any) -> Any:
    """A blank value with the wanted parts put in; parts that this version lacks are dropped."""
    kind, arguments = types[type_id]
    if kind == "_optional":
        return None if wanted is None else _filled(types, arguments[0], wanted)
    if kind == "_array":
        return [_filled(types, arguments[1], value) for value in wanted]
    if kind != "_struct":
        if kind == "_int" and wanted is not None:
            low, bits = arguments[0]
            return min(max(wanted, low), low + (1 << bits) - 1)
        return blank(types, type_id) if wanted is None else wanted
    value = blank(types, type_id)
    if not isinstance(wanted, Mapping):
        return wanted if not isinstance(value, dict) else value
    for name, of, _ in arguments[0]:
        if name == "__parent":
            inner = _filled(types, of, wanted)
            if not isinstance(inner, dict):
                return inner
            value |= inner
        elif name in wanted:
            value[name] = _filled(types, of, wanted[name])
    return value


def _shown(player: PlayerSetup) -> bytes:
    """A name as details have it: behind the clan's tag, with the markup of a text field."""
    return (f"&lt;{player.clan}&gt;<sp/>" if player.clan else "").encode() + player.name.encode()


def _team(player: PlayerSetup, order: int) -> int:
    return order if player.team is None else player.team


def _handle(content: str) -> bytes:
    """A file in the game's depot: kind, region, SHA-256."""
    return b"s2ma\0\0US" + hashlib.sha256(content.encode()).digest()


def _slot(
    place: int, players: Sequence[PlayerSetup], users: Mapping[int, int], teams: Mapping[int, int]
) -> dict[str, Any]:
    if place >= len(players):
        return {"m_control": CLOSED, "m_observe": 1, "m_workingSetSlotId": place,
                "m_handicap": 100, "m_userId": None, "m_colorPref": {"m_color": None},
                "m_racePref": {"m_race": None}}  # fmt: skip
    player = players[place]
    return {
        "m_control": COMPUTER if player.computer else HUMAN,
        "m_userId": users.get(place),
        "m_teamId": teams.get(place, 0),
        "m_colorPref": {"m_color": place + 1},
        "m_racePref": {"m_race": _RACES[player.race][0]},
        "m_difficulty": 3,
        "m_handicap": 100,
        "m_observe": int(player.observer),
        "m_workingSetSlotId": place,
        "m_toonHandle": b"" if player.computer else f"1-S2-1-{1000 + place}".encode(),
    }


def _player_attributes(player: PlayerSetup, team: int) -> dict[int, str]:
    return {
        500: "Comp" if player.computer else "Humn",
        2002: f"T{team + 1}",
        3001: _RACES[player.race][1],
        3002: "tc01",
        3003: " 100",
        3004: "Medi",
    }


def _attributes(values: Mapping[int, str]) -> dict[int, list[dict[str, Any]]]:
    return {
        number: [{"namespace": 999, "attrid": number, "value": value.encode()}]
        for number, value in values.items()
    }
