"""sc2gym: a Gymnasium environment over recorded StarCraft II games."""

import gymnasium

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

gymnasium.register(
    id="SC2Replay-v0",
    entry_point="sc2gym.env:SC2ReplayEnv",
    vector_entry_point="sc2gym.vector:SC2ReplayVectorEnv",
)
