"""Replays made to order: for the project's own tests, and for yours.

Everything here writes real `.SC2Replay` files; s2protocol, mpyq and sc2reader read them as well.

A small game with one thing in it that a test is about:

    from sc2gym.testing import PlayerSetup, events, small_replay

    tag = events.tag(64, recycle=3)
    data = small_replay(
        [PlayerSetup("A", "Terran", "win"), PlayerSetup("B", "Zerg", "win")],      # two winners
        tracker=[
            events.unit_born(100, tag, "Marine", 1, 30, 30),
            events.unit_died(200, tag, 31, 30),                                    # no killer
        ],
    )

A whole game that looks like one, economy and fights and all, the same for the same arguments:

    from sc2gym.testing import Match, replay

    data = replay(Match(("Terran", "Zerg"), least=7000, seed=3))

Anything else: `small_game` and `describe` give the parts of a game in the shape in which s2protocol
decodes them (`header`, `details`, `init_data`, `tracker_events`, ...), to be changed at will before
`write_replay` writes them, under any base build that s2protocol has a table for. `Member` and
`write_archive` decide how members lie in the archive, `ReplayWriter` encodes single parts, and the
encoders any value of any type table. What does not fit raises `EncodeError`, which says where.
"""

from __future__ import annotations

from sc2gym.testing import events
from sc2gym.testing.encoders import BitPackedEncoder, EncodeError, TypeTable, VersionedEncoder
from sc2gym.testing.lobby import PlayerSetup, blank, describe
from sc2gym.testing.match import Match, play, replay
from sc2gym.testing.mpq import Member, write_archive
from sc2gym.testing.small import FIRST_FREE_INDEX, small_game, small_replay
from sc2gym.testing.writer import ReplayWriter, write_replay

__all__ = [
    "FIRST_FREE_INDEX",
    "BitPackedEncoder",
    "EncodeError",
    "Match",
    "Member",
    "PlayerSetup",
    "ReplayWriter",
    "TypeTable",
    "VersionedEncoder",
    "blank",
    "describe",
    "events",
    "play",
    "replay",
    "small_game",
    "small_replay",
    "write_archive",
    "write_replay",
]
