"""Replays made to order: for the project's own tests, and for yours.

Everything here writes real `.SC2Replay` files, which s2protocol, mpyq and sc2reader read as well.
"""

from __future__ import annotations

from sc2gym.testing import events
from sc2gym.testing.encoders import BitPackedEncoder, EncodeError, TypeTable, VersionedEncoder
from sc2gym.testing.lobby import PlayerSetup, blank, describe
from sc2gym.testing.mpq import Member, write_archive
from sc2gym.testing.writer import ReplayWriter, write_replay

__all__ = [
    "BitPackedEncoder",
    "EncodeError",
    "Member",
    "PlayerSetup",
    "ReplayWriter",
    "TypeTable",
    "VersionedEncoder",
    "blank",
    "describe",
    "events",
    "write_archive",
    "write_replay",
]
