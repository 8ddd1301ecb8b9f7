"""The side with StarCraft: recording games, writing replays, and pysc2 under today's Python."""

from sc2gym.game.pysc2_loader import GameNotInstalledError, load_pysc2, load_schemas

__all__ = ["GameNotInstalledError", "load_pysc2", "load_schemas"]
