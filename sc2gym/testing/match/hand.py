"""A user's mouse and keyboard: game events, and the time they take."""

from __future__ import annotations

import random
from collections.abc import Sequence

from sc2gym.testing import events
from sc2gym.testing.match import battlefield
from sc2gym.testing.match.battlefield import Point, distance
from sc2gym.testing.match.world import Unit

__all__ = ["ORDINARY", "QUEUED", "RIGHT_CLICK", "Hand"]

ORDINARY, QUEUED, RIGHT_CLICK = 0x100, 0x102, 0x108  # flags of a command


class Hand:
    """A user's mouse and keyboard: the game events, and how long things take."""

    def __init__(self, user: int, rng: random.Random, pace: float):
        self.user = user
        self.rng = rng
        self.pace = pace
        self.clock = 1
        self.sequence = 0
        self.actions = 0
        self.looking: Point = (0.0, 0.0)
        self.selected: list[int] = []
        self.last: tuple[object, ...] = ()
        self.events: list[events.Event] = []

    def wait(self, least: int, most: int) -> int:
        """Let some time pass; a slower hand needs more."""
        self.clock += max(1, round(self.rng.randint(least, most) * self.pace))
        return self.clock

    def look(self, where: Point) -> None:
        """Move the camera there: scroll if it is near, jump over the minimap if it is far."""
        gap = distance(self.looking, where)
        if gap < 9:
            return
        steps = 1 if gap > 40 else 4
        x, y = self.looking
        for step in range(1, steps + 1):
            at = x + (where[0] - x) * step / steps, y + (where[1] - y) * step / steps
            at = (
                min(max(at[0], 6), battlefield.SIZE[0] - 6),
                min(max(at[1], 6), battlefield.SIZE[1] - 6),
            )
            self.events.append(events.camera(self.wait(1, 3), self.user, *at))
        self.looking = where

    def select(self, units: Sequence[Unit], group: int | None = None) -> None:
        """Select units: over a control group that was set, or one by one."""
        tags = sorted(unit.tag for unit in units)
        if tags == self.selected:
            return
        self.actions += 1
        if group is not None:
            self.events.append(events.control_group(self.wait(1, 3), self.user, group, 2))
        else:
            by_link: dict[int, list[int]] = {}
            for unit in sorted(units, key=lambda unit: unit.tag):
                by_link.setdefault(unit.kind.link, []).append(unit.tag)
            groups = [(link, part) for link, part in by_link.items() if link]
            self.events.append(events.selection(self.wait(1, 4), self.user, groups))
        self.selected = tags

    def keep(self, group: int, add: bool) -> None:
        """Put the selection into a control group, or add it."""
        self.actions += 1
        self.events.append(events.control_group(self.wait(1, 3), self.user, group, int(add)))

    def command(
        self,
        ability: tuple[int, int] | None,
        *,
        point: Point | None = None,
        unit: Unit | None = None,
        flags: int = ORDINARY,
    ) -> int:
        """Issue a command; returns its game loop.

        The same once more is no command of its own: the game only counts it, with the new target
        told before where there is one.
        """
        self.sequence += 1
        self.actions += 1
        loop = self.wait(1, 4)
        kind = (ability, flags, tuple(self.selected), unit, point is None)
        if kind == self.last and unit is None:
            if point is not None:
                self.events.append(events.update_target(loop, self.user, point))
            self.events.append(events.repeat(loop, self.user, self.sequence))
        else:
            self.events.append(
                events.command(
                    loop, self.user, ability, sequence=self.sequence, flags=flags,
                    point=unit.at if unit else point, unit=unit.tag if unit else None,
                    unit_link=unit.kind.link if unit else 0,
                    unit_player=unit.player if unit else 0,
                )
            )  # fmt: skip
        self.last = kind
        return loop
