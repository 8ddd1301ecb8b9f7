"""sc2gym: a Gymnasium environment over recorded StarCraft II games."""

import gymnasium

from sc2gym.env import SC2ReplayEnv
from sc2gym.episode import Episode, episodes
from sc2gym.errors import (
    CheckpointError,
    CorruptReplayError,
    RecordingError,
    ReplayError,
    SC2GymError,
    UnsupportedReplayError,
)
from sc2gym.library import Library, Order
from sc2gym.relocation import relocate
from sc2gym.replay import Player, Replay
from sc2gym.vector import SC2ReplayVectorEnv

__all__ = [
    "CheckpointError",
    "CorruptReplayError",
    "Episode",
    "Library",
    "Order",
    "Player",
    "RecordingError",
    "Replay",
    "ReplayError",
    "SC2GymError",
    "SC2ReplayEnv",
    "SC2ReplayVectorEnv",
    "UnsupportedReplayError",
    "episodes",
    "relocate",
]

gymnasium.register(
    id="SC2Replay-v0",
    entry_point="sc2gym.env:SC2ReplayEnv",
    vector_entry_point="sc2gym.vector:SC2ReplayVectorEnv",
)
