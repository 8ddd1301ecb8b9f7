"""The smallest replay that is a whole game, for tests that care about one thing in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sc2gym.testing import events
from sc2gym.testing.lobby import PlayerSetup, describe
from sc2gym.testing.writer import write_replay

__all__ = ["FIRST_FREE_INDEX", "small_game", "small_replay"]

HALLS = {
    "Terran": ("CommandCenter", "SCV"),
    "Protoss": ("Nexus", "Probe"),
    "Zerg": ("Hatchery", "Drone"),
}
WORKERS = 2
FIRST_FREE_INDEX = 64  # the game's own units lie below: use this one and up for yours
_1V1 = (PlayerSetup("One", "Terran", "win"), PlayerSetup("Two", "Zerg", "loss"))


def small_game(
    players: Sequence[PlayerSetup] = _1V1,
    *,
    loops: int = 800,
    tracker: Sequence[events.Event] = (),
    game: Sequence[events.Event] = (),
    message: Sequence[events.Event] = (),
    leave: bool = True,
    **described: Any,
) -> dict[str, Any]:
    """The parts of a small game, as `write_replay` takes them, to be changed at will.

    Each player has a hall, two workers and statistics every 160 loops, and every human user a
    camera; a mineral field lies between. Humans without a win leave at the end.

    Args:
        players: Who takes part; as for `describe`.
        loops: Its length.
        tracker: More tracker events, put in their place after those of the same loop.
        game: More game events, likewise.
        message: All message events.
        leave: False lets the streams stop without anybody leaving.
        **described: More for `describe`: build, version, map_name, map_size, game_speed, seed.
    """
    parts = describe(players, loops=loops, **described)
    playing = [player for player in players if not player.observer]
    humans = [player for player in players if not player.computer]
    own = [events.unit_born(0, events.tag(0), "MineralField", 0, 64, 64)]
    for player, setup in enumerate(playing, 1):
        x, y = 20 + 30 * (player - 1) % 90, 20 + 80 * (player % 2)
        hall, worker = HALLS[setup.race]
        own.append(events.unit_born(0, events.tag(4 * player), hall, player, x, y))
        own += [
            events.unit_born(0, events.tag(4 * player + n), worker, player, x + 3, y + n)
            for n in range(1, WORKERS + 1)
        ]
    own += [
        events.player_stats(
            loop, player, MineralsCurrent=50 + loop // 8, WorkersActiveCount=WORKERS,
            MineralsUsedCurrentEconomy=400 + 50 * WORKERS, FoodUsed=WORKERS * 4096,
            FoodMade=15 * 4096,
        )
        for loop in (1, *range(160, loops + 1, 160))
        for player in range(1, len(playing) + 1)
    ]  # fmt: skip
    hands = [
        events.camera(2 + user, user, 20 + 30 * user % 90, 20 + 80 * ((user + 1) % 2))
        for user in range(len(humans))
    ]
    if leave:
        hands += [
            events.leave(loops, user)
            for user, setup in enumerate(humans)
            if setup.result != "win" and not setup.observer
        ]
    if "tracker_events" in parts:
        parts["tracker_events"] = _merged([*parts["tracker_events"], *own], tracker)
    parts["game_events"] = _merged(hands, game)
    parts["message_events"] = list(message)
    return parts


def small_replay(
    players: Sequence[PlayerSetup] = _1V1, *, loops: int = 800, **options: Any
) -> bytes:
    """The file of a `small_game`; takes the same arguments.

    Builds since 24944 (2.0.8) have the events that a small game is made of; earlier ones raise
    `EncodeError`.
    """
    return write_replay(**small_game(players, loops=loops, **options))


def _merged(own: list[events.Event], more: Sequence[events.Event]) -> list[events.Event]:
    """By loop, where all of them rise; in the order given, where they do not."""
    loops = [event["_gameloop"] for event in more]
    if loops != sorted(loops):
        return [*own, *more]
    return sorted([*own, *more], key=lambda event: event["_gameloop"])
