"""sc2gym: a Gymnasium environment over recorded StarCraft II games."""

from sc2gym.errors import (
    CheckpointError,
    CorruptReplayError,
    RecordingError,
    ReplayError,
    SC2GymError,
    UnsupportedReplayError,
)
from sc2gym.replay import Player, Replay

__all__ = [
    "CheckpointError",
    "CorruptReplayError",
    "Player",
    "RecordingError",
    "Replay",
    "ReplayError",
    "SC2GymError",
    "UnsupportedReplayError",
]
