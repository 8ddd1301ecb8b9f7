"""The side with StarCraft: recording games, writing replays, and pysc2 under today's Python.

Everything here needs `pip install 'sc2gym[game]'`; nothing heavy is imported before it is used.
"""

from sc2gym.game.pysc2_loader import GameNotInstalledError, load_pysc2, load_schemas
from sc2gym.game.recorder import RecorderError, Report, find_replays, record, reencode
from sc2gym.game.saving import save_replay
from sc2gym.game.worker import Settings

__all__ = [
    "GameNotInstalledError",
    "RecorderError",
    "Report",
    "Settings",
    "find_replays",
    "load_pysc2",
    "load_schemas",
    "record",
    "reencode",
    "save_replay",
]
