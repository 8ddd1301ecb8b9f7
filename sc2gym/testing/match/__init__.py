"""Scripted matches: two commanders play each other on a made-up map, and a replay comes out.

The same arguments give the same bytes, on every machine and Python version.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from sc2gym.testing import events
from sc2gym.testing.lobby import PlayerSetup, describe
from sc2gym.testing.match import battlefield
from sc2gym.testing.match.commander import Commander
from sc2gym.testing.match.plans import PLANS
from sc2gym.testing.match.rules import BUILD
from sc2gym.testing.match.world import World
from sc2gym.testing.writer import write_replay

__all__ = ["PLANS", "Match", "play", "replay"]

GRACE = 40  # game loops between the loser's leaving and the end


@dataclass(frozen=True)
class Match:
    """What is played.

    Attributes:
        plans: One of `PLANS` for each side.
        names: The players' names.
        mmr: Their ratings.
        paces: How slow their hands are; 1 is quick.
        least: Game loops before which nobody gives up.
        most: Game loops after which the weaker side does.
        seed: Everything random comes from it.
    """

    plans: tuple[str, str]
    names: tuple[str, str] = ("Ash", "Birch")
    mmr: tuple[int, int] = (4000, 4000)
    paces: tuple[float, float] = (1.0, 1.0)
    least: int = 6700
    most: int = 18000
    seed: int = 1


def play(match: Match) -> dict[str, Any]:
    """Play a match; returns what `write_replay` takes."""
    rng = random.Random(match.seed)
    races = tuple(plan.split()[0] for plan in match.plans)
    world = World((races[0], races[1]), rng)
    commanders = [
        Commander(world, side, PLANS[match.plans[n]], match.paces[n], match.seed * 2 + n)
        for n, side in enumerate(world.sides)
    ]
    loser = None
    while loser is None:
        world.advance()
        for commander in commanders:
            commander.think()
        loser = _beaten(match, world, commanders)
    left = world.loop + 24
    end = left + GRACE
    while world.loop + 16 <= end:
        world.advance()
    minutes = end / 22.4 / 60
    setups = [
        PlayerSetup(
            match.names[n], race, "loss" if n == loser else "win",  # type: ignore[arg-type]
            mmr=match.mmr[n], apm=round(commanders[n].hand.actions / minutes),
        )
        for n, race in enumerate(races)
    ]  # fmt: skip
    game = describe(
        setups, loops=end, build=BUILD, map_name=battlefield.NAME, map_size=battlefield.SIZE,
        seed=match.seed,
    )  # fmt: skip
    game["tracker_events"] += [event for event in world.tracker if event["_gameloop"] <= end]
    hands = [
        event
        for commander in commanders
        for event in commander.hand.events
        if event["_gameloop"] < (left if commander.side.number == loser else end)
    ]
    hands += [events.leave(left, loser), events.leave(end, 1 - loser)]
    game["game_events"] = sorted(hands, key=lambda event: event["_gameloop"])
    game["message_events"] = [
        events.chat(rng.randint(60, 120), 0, "glhf"),
        events.chat(rng.randint(121, 200), 1, "gl hf"),
        events.chat(left - 12, loser, "gg"),
        *([events.chat(left - 5, 1 - loser, "gg wp")] if rng.random() < 0.5 else []),
    ]
    return game


def replay(match: Match) -> bytes:
    """Play a match and write its replay."""
    return write_replay(**play(match))


def _beaten(match: Match, world: World, commanders: list[Commander]) -> int | None:
    """The side that gives up now, if one does."""
    strength = [commander.army_food() for commander in commanders]
    workers = [len(world.in_role(side, "worker")) for side in world.sides]
    for n in (0, 1):
        if not world.in_role(world.sides[n], "hall"):
            return n
        if world.loop < match.least:
            continue
        attacked = commanders[1 - n].mode == "attack"
        if attacked and strength[n] < 0.3 * strength[1 - n] and strength[1 - n] > 15:
            return n
        if workers[n] < 0.25 * workers[1 - n] and strength[n] < strength[1 - n]:
            return n
    if world.loop < match.most:
        return None
    worth = [strength[n] + 0.5 * workers[n] for n in (0, 1)]
    return 0 if worth[0] < worth[1] else 1
