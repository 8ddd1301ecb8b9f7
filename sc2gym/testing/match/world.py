"""The state of a scripted match: units, money, fights, and the tracker events that tell of them.

The world knows the rules and no plan; `Commander` plays it.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from sc2gym.testing import events
from sc2gym.testing.match import battlefield
from sc2gym.testing.match.battlefield import distance
from sc2gym.testing.match.rules import KINDS, Kind, Share

__all__ = ["TICK", "Side", "Unit", "World"]

TICK = 16  # game loops between two looks at movement, income and fights
STATS_EVERY, POSITIONS_EVERY = 160, 240
MINERALS_A_LOOP, VESPENE_A_LOOP = 0.0415, 0.0405  # by one worker
MULE_A_LOOP = 0.157
LARVA_EVERY, LARVA_MOST = 246, 3
SHARES: tuple[Share, ...] = ("Army", "Economy", "Technology")
BEACONS = (
    "Army Defend Attack Harass Idle Auto Detect Scout Claim Expand Rally "
    "Custom1 Custom2 Custom3 Custom4"
)

NO_TARGETS = ("Beacon", "Changeling")  # marks of no substance, and spies in disguise


class Unit:
    """One unit or structure. Positions are cells, times game loops."""

    __slots__ = (
        "addon", "base", "busy", "done", "fought", "hp", "kind", "path", "player", "route_bias",
        "spent", "tag", "x", "y",
    )  # fmt: skip

    def __init__(self, tag: int, kind: Kind, player: int, x: float, y: float, done: bool):
        self.tag = tag
        self.kind = kind
        self.player = player
        self.x = x
        self.y = y
        self.done = done
        self.hp = float(kind.hp)
        self.path: list[tuple[float, float]] = []
        self.busy: list[int] = []  # when each thing being made here is ready
        self.addon = ""
        self.base = 0  # a worker's, hall's or gas structure's place among its side's bases
        self.fought = -1_000_000
        self.route_bias = (0.0, 0.0)
        self.spent = (kind.minerals, kind.vespene)  # what it counts for in the score

    @property
    def cell(self) -> tuple[int, int]:
        """The whole cell it stands in, as the tracker counts."""
        return int(self.x), int(self.y)

    @property
    def at(self) -> tuple[float, float]:
        """Where it stands."""
        return self.x, self.y


class Side:
    """One player's money, score and upgrades."""

    def __init__(self, number: int, race: str):
        self.number = number  # 0 or 1; the player id is one more
        self.race = race
        self.minerals, self.vespene = 50.0, 0.0
        self.rate = [0.0, 0.0]  # collection a minute, smoothed
        self.score: Counter[str] = Counter()
        self.upgrades: set[str] = set()
        self.bases = battlefield.bases(number)
        self.fields = [[1800.0 if n % 2 == 0 else 900.0 for n in range(8)] for _ in self.bases]
        self.field_units: list[list[Unit]] = [[] for _ in self.bases]
        self.geyser_units: list[list[Unit]] = [[] for _ in self.bases]
        self.making: Counter[str] = Counter()  # kinds and upgrades under way

    @property
    def player(self) -> int:
        """The tracker's player id."""
        return self.number + 1


class World:
    """Everything on the map, and the tracker stream so far."""

    def __init__(self, races: tuple[str, str], rng: random.Random):
        self.rng = rng
        self.loop = 0
        self.sides = (Side(0, races[0]), Side(1, races[1]))
        self.units: dict[int, Unit] = {}
        self.tracker: list[events.Event] = []
        self._later: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._free: list[int] = []
        self._recycled: Counter[int] = Counter()
        self._next_index = 0
        self._set_up()

    # Time

    def after(self, loops: int, action: Callable[[], None]) -> None:
        """Do something some game loops (at least one) from now."""
        self._order += 1
        heapq.heappush(self._later, (self.loop + max(1, loops), self._order, action))

    def advance(self) -> None:
        """Go on by one tick."""
        end = self.loop + TICK
        while self._later and self._later[0][0] <= end:
            self.loop, _, action = heapq.heappop(self._later)
            action()
        self.loop = end
        self._move()
        self._collect()
        self._fight()
        if end % STATS_EVERY == 0:
            self.report()
        if end % POSITIONS_EVERY == 0:
            self.tracker += events.unit_positions(
                end,
                (
                    (unit.tag >> 18, *unit.cell)
                    for unit in self.units.values()
                    if unit.fought > end - POSITIONS_EVERY and not unit.kind.structure
                ),
            )

    # Units coming and going

    def enter(
        self,
        name: str,
        player: int,
        x: float,
        y: float,
        *,
        creator: Unit | None = None,
        ability: str | None = None,
        unfinished: bool = False,
    ) -> Unit:
        """A unit appears, finished or not. Its tag's index may have been another's before."""
        index = self._free.pop() if self._free else self._next_index
        if index == self._next_index:
            self._next_index += 1
        self._recycled[index] += 1
        kind = KINDS.get(name) or Kind(
            name, 0, "none", 0, 0, 0, 0, "", (0, 0), "", 1_000_000, 0, 0, 0
        )
        tag = events.tag(index, self._recycled[index])
        unit = Unit(tag, kind, player, x, y, not unfinished)
        self.units[tag] = unit
        if unfinished:
            self.tracker.append(events.unit_init(self.loop, tag, name, player, *unit.cell))
        else:
            self.tracker.append(
                events.unit_born(
                    self.loop, tag, name, player, *unit.cell,
                    creator=creator.tag if creator else None, ability=ability,
                )
            )  # fmt: skip
        return unit

    def finish(self, unit: Unit) -> None:
        """An unfinished unit is done."""
        unit.done = True
        self.tracker.append(events.unit_done(self.loop, unit.tag))

    def give(self, unit: Unit, player: int) -> None:
        """A unit changes hands."""
        unit.player = player
        self.tracker.append(events.unit_owner_change(self.loop, unit.tag, player))

    def morph(self, unit: Unit, name: str) -> None:
        """A unit becomes another kind, hurt as it was."""
        hurt = unit.kind.hp - unit.hp
        unit.kind = KINDS[name]
        unit.hp = max(1.0, unit.kind.hp - hurt)
        self.tracker.append(events.unit_type_change(self.loop, unit.tag, name))

    def leave(self, unit: Unit, killer: Unit | None = None) -> None:
        """A unit is gone: killed, or used up for something else."""
        del self.units[unit.tag]
        self._free.append(unit.tag >> 18)
        # A baneling is gone before its victims are: they have a killing player and no killer.
        told = killer is not None and killer.kind.name != "Baneling"
        self.tracker.append(
            events.unit_died(
                self.loop, unit.tag, *unit.cell,
                killer=killer.tag if killer and told else None,
                killer_player=killer.player if killer else None,
            )
        )  # fmt: skip
        if killer is None or unit.player == 0:
            return
        share = unit.kind.share
        for resource, amount in zip(("Minerals", "Vespene"), unit.spent, strict=True):
            self.sides[unit.player - 1].score[f"{resource}Lost{share}"] += amount
            if killer.player:
                self.sides[killer.player - 1].score[f"{resource}Killed{share}"] += amount

    def unless_dead(self, unit: Unit, action: Callable[[Unit], None]) -> Callable[[], None]:
        """Something to do with a unit later, if it is still there then."""

        def run() -> None:
            if self.alive(unit):
                action(unit)

        return run

    def alive(self, unit: Unit) -> bool:
        """Whether this very unit is still there."""
        return self.units.get(unit.tag) is unit

    def of(self, side: Side, *names: str, done: bool = True) -> list[Unit]:
        """A side's units of some kinds."""
        return [
            unit
            for unit in self.units.values()
            if unit.player == side.player and unit.kind.name in names and (unit.done or not done)
        ]

    def in_role(self, side: Side, role: str, done: bool = True) -> list[Unit]:
        """A side's units that do one job."""
        return [
            unit
            for unit in self.units.values()
            if unit.player == side.player and unit.kind.role == role and (unit.done or not done)
        ]

    # Money and food

    def pay(self, side: Side, name: str, minerals: int, vespene: int, share: Share) -> None:
        """Take the price of something that is begun now."""
        side.minerals -= minerals
        side.vespene -= vespene
        side.making[name] += 1
        side.score[f"MineralsUsedInProgress{share}"] += minerals
        side.score[f"VespeneUsedInProgress{share}"] += vespene

    def settle(self, side: Side, name: str, minerals: int, vespene: int, share: Share) -> None:
        """What was begun is there, or will never be."""
        side.making[name] -= 1
        side.score[f"MineralsUsedInProgress{share}"] -= minerals
        side.score[f"VespeneUsedInProgress{share}"] -= vespene

    def food(self, side: Side) -> tuple[float, int]:
        """Supply used, with what is being made, and supply made."""
        used = sum(u.kind.food for u in self.units.values() if u.player == side.player)
        for name, count in side.making.items():
            if count > 0 and name in KINDS and not KINDS[name].structure:
                used += KINDS[name].food * count * (2 if name == "Zergling" else 1)
        made = sum(
            u.kind.provides for u in self.units.values() if u.player == side.player and u.done
        )
        return used, min(200, made)

    def report(self) -> None:
        """Both players' statistics."""
        for side in self.sides:
            used, made = self.food(side)
            score = Counter(side.score)
            for unit in self.units.values():
                if unit.player == side.player and unit.done:
                    score[f"MineralsUsedCurrent{unit.kind.share}"] += unit.spent[0]
                    score[f"VespeneUsedCurrent{unit.kind.share}"] += unit.spent[1]
            for resource in ("Minerals", "Vespene"):
                score[f"{resource}UsedActiveForces"] = score[f"{resource}UsedCurrentArmy"]
            score["MineralsCurrent"] = int(side.minerals)
            score["VespeneCurrent"] = int(side.vespene)
            score["MineralsCollectionRate"] = int(side.rate[0])
            score["VespeneCollectionRate"] = int(side.rate[1])
            score["WorkersActiveCount"] = len(self.in_role(side, "worker"))
            score["FoodUsed"] = int(used * 4096)
            score["FoodMade"] = made * 4096
            self.tracker.append(
                events.player_stats(self.loop, side.player, **{k: v for k, v in score.items() if v})
            )

    # What happens by itself

    def _set_up(self) -> None:
        """Loop 0: the map's own units in no order, then each player's."""
        neutral: list[tuple[str, float, float, Side | None, int, bool]] = []
        for side in self.sides:
            for number, base in enumerate(side.bases):
                for n, (x, y) in enumerate(base.minerals):
                    name = "MineralField" if n % 2 == 0 else "MineralField750"
                    neutral.append((name, x, y, side, number, True))
                for x, y in base.geysers:
                    neutral.append(("VespeneGeyser", x, y, side, number, False))
        neutral += [(name, x, y, None, 0, False) for name, (x, y) in battlefield.obstacles()]
        self.rng.shuffle(neutral)
        for name, x, y, owner, number, mineral in neutral:
            unit = self.enter(name, 0, x, y)
            if owner is not None:
                rows = owner.field_units if mineral else owner.geyser_units
                rows[number].append(unit)
        for side in self.sides:
            for number, base in enumerate(side.bases):
                # As a base lists them, so that amounts and units go together.
                fields = {unit.at: unit for unit in side.field_units[number]}
                side.field_units[number] = [fields[place] for place in base.minerals]
        for side in self.sides:
            x, y = side.bases[0].x, side.bases[0].y
            for name in BEACONS.split():
                self.enter(f"Beacon{name}", side.player, x, y)
            hall, worker = {
                "Terran": ("CommandCenter", "SCV"),
                "Protoss": ("Nexus", "Probe"),
                "Zerg": ("Hatchery", "Drone"),
            }[side.race]
            home = self.enter(hall, side.player, x, y)
            away = 1 if side.number == 0 else -1
            if side.race == "Zerg":
                self.hatch_larvae(home)
                for _ in range(2):
                    self.larva(home)
                self.enter("Overlord", side.player, x + 4 * away, y + 4 * away)
            for n in range(12):
                angle = math.radians((225 if side.number == 0 else 45) - 60 + n * 11)
                dx, dy = round(4 * math.cos(angle)), round(4 * math.sin(angle))
                self.enter(worker, side.player, x + dx, y + dy)
        self.loop = 1
        self.report()
        self.loop = 0

    def larva(self, hall: Unit) -> None:
        """A larva comes out of a hall."""
        away = 3 if hall.player == 1 else -3
        spread = self.rng.choice((-1, 0, 1))
        self.enter("Larva", hall.player, hall.x + spread, hall.y - away, creator=hall, ability="")

    def hatch_larvae(self, hall: Unit) -> None:
        """Larvae come out of a hall for as long as it stands, while few are there."""
        if not self.alive(hall):
            return
        side = self.sides[hall.player - 1]
        near = sum(distance(unit.at, hall.at) < 6 for unit in self.of(side, "Larva"))
        if near < LARVA_MOST:
            self.larva(hall)
        self.after(LARVA_EVERY, lambda: self.hatch_larvae(hall))

    def _move(self) -> None:
        for unit in self.units.values():
            if unit.path:
                self._walk(unit, unit.kind.speed * TICK)
            elif unit.kind.role == "worker" and not unit.busy:
                self._mine(unit)

    def _walk(self, unit: Unit, reach: float) -> None:
        while unit.path and reach > 0:
            x, y = unit.path[0]
            gap = distance(unit.at, (x, y))
            if gap <= reach:
                unit.x, unit.y = x, y
                unit.path.pop(0)
                reach -= gap
            else:
                unit.x += (x - unit.x) * reach / gap
                unit.y += (y - unit.y) * reach / gap
                return

    def _mine(self, worker: Unit) -> None:
        """A worker is somewhere between its mineral field and the hall."""
        side = self.sides[worker.player - 1]
        base = side.bases[worker.base]
        index = worker.tag >> 18
        x, y = base.minerals[index % 8]
        part = abs((self.loop + index * 37) % 120 / 60 - 1)  # 0 at the field, 1 at the hall
        near = 0.15 + 0.5 * part
        worker.x, worker.y = x + (base.x - x) * near, y + (base.y - y) * near

    def _collect(self) -> None:
        for side in self.sides:
            workers = Counter(worker.base for worker in self.in_role(side, "worker"))
            gas = Counter(unit.base for unit in self.in_role(side, "gas"))
            mules = Counter(unit.base for unit in self.of(side, "MULE"))
            halls = {hall.base for hall in self.in_role(side, "hall")}
            minerals = vespene = 0.0
            for number in sorted(halls):
                on_gas = min(3 * gas[number], workers[number])
                vespene += on_gas * VESPENE_A_LOOP * TICK
                left = [n for n, amount in enumerate(side.fields[number]) if amount > 0]
                mining = workers[number] - on_gas
                # Two on each field do their full work, a third hardly half.
                full = min(mining, 2 * len(left))
                half = min(mining - full, len(left))
                mined = ((full + 0.4 * half) * MINERALS_A_LOOP) * TICK if left else 0.0
                mined += mules[number] * MULE_A_LOOP * TICK if left else 0.0
                for n in left:
                    side.fields[number][n] -= mined / len(left)
                    if side.fields[number][n] <= 0:
                        self.leave(side.field_units[number][n])
                minerals += mined
            side.minerals += minerals
            side.vespene += vespene
            for n, amount in enumerate((minerals, vespene)):
                side.rate[n] += (amount / TICK * 60 * 16 - side.rate[n]) * 0.12

    # Fights

    def _fight(self) -> None:
        """Everything that can shoot does: at soldiers first, then workers, then structures."""
        armed = [
            [u for u in self.units.values() if u.player == player and u.done and u.kind.dps]
            for player in (1, 2)
        ]
        hit: list[tuple[Unit, Unit, float]] = []
        for side, attackers in zip(self.sides, armed, strict=True):
            targets = [
                u for u in self.units.values()
                if u.player == 2 - side.number and not u.kind.name.startswith(NO_TARGETS)
            ]  # fmt: skip
            if attackers and targets:
                hit += self._shots(side, attackers, targets)
        for attacker, target, damage in hit:
            if not self.alive(target):
                continue
            attacker.fought = target.fought = self.loop
            target.hp -= damage
            if attacker.kind.name == "Baneling" and self.alive(attacker):
                self.leave(attacker)
            if target.hp <= 0:
                self.leave(target, attacker)

    def _shots(
        self, side: Side, attackers: list[Unit], targets: list[Unit]
    ) -> Iterator[tuple[Unit, Unit, float]]:
        where = np.array([u.at for u in attackers])
        goal = np.array([u.at for u in targets])
        x = where[:, None, 0] - goal[None, :, 0]
        y = where[:, None, 1] - goal[None, :, 1]
        gaps: npt.NDArray[np.float64] = np.sqrt(x * x + y * y)
        less = {"army": 0.0, "worker": 1.5}
        wanted = gaps + np.array([less.get(u.kind.role, 4.0) for u in targets])
        choice = wanted.argmin(axis=1)
        better = 1 + 0.08 * len([name for name in side.upgrades if "Level" in name])
        better += 0.15 * ("Stimpack" in side.upgrades)
        for n, attacker in enumerate(attackers):
            target = targets[int(choice[n])]
            gap = float(gaps[n, choice[n]])
            if attacker.kind.role == "worker" and gap > 2:
                continue
            if gap <= attacker.kind.reach + 1:
                damage = attacker.kind.dps * TICK / 22.4 * better * self.rng.uniform(0.7, 1.3)
                if attacker.kind.name == "Baneling":
                    damage *= 3
                yield attacker, target, damage
            elif gap < 9 and attacker.kind.speed and attacker.kind.role == "army":
                # Close in; the way it was on goes on once nothing is near.
                step = min(attacker.kind.speed * TICK, gap - attacker.kind.reach)
                attacker.x += (target.x - attacker.x) * step / gap
                attacker.y += (target.y - attacker.y) * step / gap
