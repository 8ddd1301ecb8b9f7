"""Making things: units, structures, add-ons, morphs and upgrades, from the command to the birth."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

from sc2gym.testing import events
from sc2gym.testing.match import battlefield
from sc2gym.testing.match.battlefield import Point, distance
from sc2gym.testing.match.hand import QUEUED, RIGHT_CLICK, Hand
from sc2gym.testing.match.plans import WORKER, Plan
from sc2gym.testing.match.rules import KINDS, UPGRADES, Kind, Share
from sc2gym.testing.match.world import Side, Unit, World

__all__ = ["Builder"]

# What can stand in for a producer, and what a structure counts as.
SAME = {
    "CommandCenter": ("CommandCenter", "OrbitalCommand"),
    "SupplyDepot": ("SupplyDepot", "SupplyDepotLowered"),
    "Hatchery": ("Hatchery", "Lair"),
    "Gateway": ("Gateway", "WarpGate"),
}
RALLY, CHRONO, WARP_IN = (104, 0), (722, 0), 216


class Builder:
    """One side's means to make things.

    Args:
        world: What is played in.
        side: Which side.
        plan: What is aimed at.
        pace: 1 for a quick hand; larger is slower, in everything.
        seed: Of the side's own randomness.
    """

    def __init__(self, world: World, side: Side, plan: Plan, pace: float, seed: int):
        self.world = world
        self.side = side
        self.plan = plan
        self.rng = random.Random(seed)
        self.hand = Hand(side.number, self.rng, pace)
        self.order = list(plan.order)
        self.wanted_upgrades = list(plan.upgrades)
        self.mode = "gather"
        self.wave = 0
        self.next_order = 0
        self.threshold = plan.attacks[1]
        self.grouped: set[int] = set()
        self.spots = _spots(side)
        self.used_spots = 0
        self.sites: set[Point] = set()  # where workers are on their way to build
        self.injected: dict[int, int] = {}
        self.mules: dict[int, int] = {}
        self.tumors = 0
        self.scouted = 0
        self.next_spy = 0
        self.target: Point = side.bases[0].minerals[0]
        home, away = side.bases[1], world.sides[1 - side.number].bases
        self.rally: Point = battlefield.route((home.x, home.y), (away[0].x, away[0].y))[0]
        self.hand.looking = (side.bases[0].x, side.bases[0].y)
        self.hand.events.append(events.camera(3, side.number, *self.hand.looking))
        self.hand.clock = self.rng.randint(6, 20)

    # Money

    def _can(self, minerals: float, vespene: float) -> bool:
        return self.side.minerals >= minerals and self.side.vespene >= vespene

    def _has(self, name: str) -> bool:
        return not name or bool(self.world.of(self.side, *SAME.get(name, (name,))))

    def _count(self, name: str) -> int:
        """How many there are, unfinished and ordered ones too."""
        there = len(self.world.of(self.side, *SAME.get(name, (name,)), done=False))
        return there + max(0, self.side.making[name])

    def _room(self, food: float) -> bool:
        used, made = self.world.food(self.side)
        return used + food <= made

    # Making things

    def _make(self, name: str) -> bool:
        """Begin whatever this names, if it can be begun now."""
        if name in UPGRADES:
            return self._upgrade(name)
        kind = KINDS[name]
        if not self._has(kind.needs) or not self._can(kind.minerals, kind.vespene):
            return False
        if name in ("OrbitalCommand", "Lair"):
            return self._morph_hall(kind)
        if name in ("Overseer", "Baneling"):
            return self._morph_unit(kind)
        if kind.role == "addon":
            return self._add_on(kind)
        if kind.maker in WORKER.values():
            return self._structure(kind)
        if not self._room(kind.food * (2 if name == "Zergling" else 1)):
            return False
        return self._from_larva(kind) if kind.maker == "Larva" else self._train(kind)

    def _begin(self, kind: Kind) -> None:
        self.world.pay(self.side, kind.name, kind.minerals, kind.vespene, kind.share)

    def _over(self, kind: Kind) -> None:
        self.world.settle(self.side, kind.name, kind.minerals, kind.vespene, kind.share)

    def _train(self, kind: Kind) -> bool:
        world = self.world
        gates = world.of(self.side, "WarpGate") if kind.maker == "Gateway" else []
        for gate in gates:
            if not gate.busy:
                return self._warp_in(kind, gate)
        free = [
            unit
            for unit in world.of(self.side, *SAME.get(kind.maker, (kind.maker,)))
            if unit.kind.name != "WarpGate"
            and len(unit.busy) < (2 if unit.addon.endswith("Reactor") else 1)
            and (not kind.needs.endswith("TechLab") or unit.addon == kind.needs)
        ]
        if not free:
            return False
        maker = free[0]
        self.hand.look(maker.at)
        self.hand.select([maker])
        if kind.role == "worker" and maker.kind.name == "Nexus" and self.rng.random() < 0.1:
            self.hand.command(CHRONO, unit=maker)
        loop = self.hand.command(kind.ability)
        self._begin(kind)
        maker.busy.append(loop + kind.loops)

        def ready() -> None:
            self._over(kind)
            if not world.alive(maker):
                return
            maker.busy.pop(0)
            ability = {"Hatchery": "TrainQueen"}.get(kind.maker, f"{kind.maker}Train")
            x, y = maker.x + self.rng.choice((-3, 3)), maker.y - 3
            self._welcome(
                world.enter(kind.name, self.side.player, x, y, creator=maker, ability=ability)
            )

        self._at(loop + kind.loops, ready)
        return True

    def _warp_in(self, kind: Kind, gate: Unit) -> bool:
        world = self.world
        pylons = world.of(self.side, "Pylon")
        if not pylons:
            return False
        pylon = min(pylons, key=lambda unit: (distance(unit.at, self.rally), unit.tag))
        spot = (pylon.x + self.rng.uniform(-5, 5), pylon.y + self.rng.uniform(-5, 5))
        gates = world.of(self.side, "WarpGate")
        self.hand.look(pylon.at)
        self.hand.select(gates)
        loop = self.hand.command((WARP_IN, kind.ability[1]), point=spot)
        self._begin(kind)
        gate.busy.append(loop)
        self._at(loop + round(kind.loops * 0.8), lambda: gate.busy.clear())

        def appear() -> None:
            unit = world.enter(kind.name, self.side.player, *spot, unfinished=True)

            def ready() -> None:
                self._over(kind)
                if world.alive(unit):
                    world.finish(unit)
                    self._welcome(unit)

            world.after(112, ready)

        self._at(loop + 1, appear)
        return True

    def _from_larva(self, kind: Kind) -> bool:
        world = self.world
        larvae = world.of(self.side, "Larva")
        if not larvae:
            return False
        larva = larvae[0]
        self.hand.look(larva.at)
        self.hand.select([larva])
        loop = self.hand.command(kind.ability)
        self._begin(kind)
        # Taken at once, so that no second command goes to it.
        larva.kind = KINDS["Egg"]

        def shell() -> None:
            if world.alive(larva):
                world.morph(larva, "Egg")

        def ready() -> None:
            self._over(kind)
            if not world.alive(larva):
                return
            for n in range(2 if kind.name == "Zergling" else 1):
                unit = world.enter(
                    kind.name, self.side.player, larva.x + n, larva.y,
                    creator=larva, ability="LarvaTrain",
                )  # fmt: skip
                if kind.name == "Zergling":
                    unit.spent = (25, 0)
                self._welcome(unit)
            world.morph(larva, "Larva")
            world.leave(larva)

        self._at(loop + 1, shell)
        self._at(loop + 1 + kind.loops, ready)
        return True

    def _morph_hall(self, kind: Kind) -> bool:
        world = self.world
        halls = [hall for hall in world.of(self.side, kind.maker) if not hall.busy]
        if not halls or (kind.name == "Lair" and self._count("Lair")):
            return False
        hall = halls[0]
        self.hand.look(hall.at)
        self.hand.select([hall])
        loop = self.hand.command(kind.ability)
        self._begin(kind)
        hall.busy.append(loop + kind.loops)

        def ready() -> None:
            self._over(kind)
            if world.alive(hall):
                hall.busy.pop(0)
                hall.spent = (hall.spent[0] + kind.minerals, hall.spent[1] + kind.vespene)
                world.morph(hall, kind.name)

        self._at(loop + kind.loops, ready)
        return True

    def _morph_unit(self, kind: Kind) -> bool:
        """An overlord becomes an overseer and stays itself; a baneling is another unit."""
        world = self.world
        old = [unit for unit in world.of(self.side, kind.maker) if not unit.busy]
        if not old:
            return False
        unit = old[0]
        self.hand.look(unit.at)
        self.hand.select([unit])
        loop = self.hand.command(kind.ability)
        self._begin(kind)
        unit.busy.append(loop + kind.loops)
        unit.path = []
        cocoon = "OverlordCocoon" if kind.name == "Overseer" else "BanelingCocoon"

        def shell() -> None:
            if world.alive(unit):
                world.morph(unit, cocoon)

        def ready() -> None:
            self._over(kind)
            if not world.alive(unit):
                return
            unit.busy.clear()
            if kind.name == "Overseer":
                unit.spent = (150, 50)
                world.morph(unit, "Overseer")
                unit.path = battlefield.route(unit.at, self.rally)
                return
            new = world.enter(
                "Baneling", self.side.player, unit.x, unit.y,
                creator=unit, ability="MorphZerglingToBaneling",
            )  # fmt: skip
            new.spent = (50, 25)
            world.morph(unit, "Zergling")
            world.leave(unit)
            self._welcome(new)

        self._at(loop + 1, shell)
        self._at(loop + 1 + kind.loops, ready)
        return True

    def _add_on(self, kind: Kind) -> bool:
        world = self.world
        bare = [
            u for u in world.of(self.side, kind.maker)
            if not u.addon and not u.busy
        ]  # fmt: skip
        if not bare:
            return False
        owner = bare[0]
        spot = (owner.x + 2.5, owner.y - 0.5)
        self.hand.look(owner.at)
        self.hand.select([owner])
        loop = self.hand.command(kind.ability, point=owner.at)
        self._begin(kind)
        owner.addon = "unfinished"
        owner.busy.append(loop + kind.loops)

        def start() -> None:
            addon = world.enter(kind.name, self.side.player, *spot, unfinished=True)

            def ready() -> None:
                self._over(kind)
                if world.alive(addon):
                    world.finish(addon)
                if world.alive(owner):
                    owner.busy.pop(0)
                    owner.addon = kind.name if world.alive(addon) else ""

            world.after(kind.loops, ready)

        self._at(loop + 1, start)
        return True

    def _structure(self, kind: Kind) -> bool:
        world = self.world
        workers = [w for w in world.in_role(self.side, "worker") if not w.path and not w.busy]
        site = self._site(kind) if workers else None
        if site is None:
            return False
        number, spot, geyser = site
        self.sites.add(spot)
        worker = min(workers, key=lambda unit: (distance(unit.at, spot), unit.tag))
        self.hand.look(spot)
        self.hand.select([worker])
        if geyser is not None:
            loop = self.hand.command(kind.ability, unit=geyser)
        else:
            loop = self.hand.command(kind.ability, point=spot)
        self._begin(kind)
        way = battlefield.route(worker.at, spot) if distance(worker.at, spot) > 20 else [spot]
        walk = _length([worker.at, *way]) / worker.kind.speed
        worker.path = way
        worker.busy.append(loop)
        if kind.maker != "Drone":  # back to work, told at once
            self.hand.command(None, unit=self._field(worker.base), flags=RIGHT_CLICK | QUEUED)

        def start() -> None:
            self.sites.discard(spot)
            if not world.alive(worker):
                self._over(kind)
                if kind.role in ("tech", "hall"):
                    self.order.insert(0, (0, kind.name))
                return
            building = world.enter(kind.name, self.side.player, *spot, unfinished=True)
            building.base = number
            if kind.maker == "Drone":
                # The drone is in there, and is reported gone once the structure is done.
                building.spent = (kind.minerals + 50, kind.vespene)
                worker.kind = _INSIDE
                worker.x, worker.y = spot
                worker.path = []
            elif kind.maker == "Probe":
                worker.busy.clear()

            def ready() -> None:
                self._over(kind)
                if world.alive(worker):
                    worker.busy.clear()
                    if kind.maker == "Drone":
                        world.leave(worker)
                if world.alive(building):
                    world.finish(building)
                    self._settled(building)

            world.after(kind.loops, ready)

        self._at(loop + round(walk), start)
        return True

    def _upgrade(self, name: str) -> bool:
        world = self.world
        kind = UPGRADES[name]
        if name in self.side.upgrades or self.side.making[name] > 0:
            return True
        if not self._has(kind.needs) or not self._can(kind.minerals, kind.vespene):
            return False
        makers = [u for u in world.of(self.side, *SAME.get(kind.maker, (kind.maker,)))
                  if not u.busy]  # fmt: skip
        if not makers:
            return False
        maker = makers[0]
        self.hand.look(maker.at)
        self.hand.select([maker])
        loop = self.hand.command(kind.ability)
        share: Share = "Technology"
        world.pay(self.side, name, kind.minerals, kind.vespene, share)
        maker.busy.append(loop + kind.loops)

        def ready() -> None:
            world.settle(self.side, name, kind.minerals, kind.vespene, share)
            if not world.alive(maker):
                return
            maker.busy.pop(0)
            self.side.upgrades.add(name)
            world.tracker.append(events.upgrade(world.loop, self.side.player, name))
            maker.spent = (maker.spent[0] + kind.minerals, maker.spent[1] + kind.vespene)

        self._at(loop + kind.loops, ready)
        return True

    def _at(self, loop: int, action: Callable[[], None]) -> None:
        self.world.after(loop - self.world.loop, action)

    def _turn(self, unit: Unit, name: str, loop: int) -> None:
        """A unit becomes another kind at a loop, and is free again."""

        def turned(unit: Unit) -> None:
            unit.busy.clear()
            self.world.morph(unit, name)

        self._at(loop, self.world.unless_dead(unit, turned))

    # Places

    def _site(self, kind: Kind) -> tuple[int, Point, Unit | None] | None:
        """Where a structure goes: the number of its base, the place, the geyser if it needs one."""
        halls = sorted({hall.base for hall in self.world.in_role(self.side, "hall")})
        if kind.role == "gas":
            taken = {unit.at for unit in self.world.in_role(self.side, "gas", done=False)}
            for number in halls:
                for geyser in self.side.geyser_units[number]:
                    if geyser.at not in taken | self.sites:
                        return number, geyser.at, geyser
            return None
        if kind.role == "hall":
            taken_bases = {h.base for h in self.world.in_role(self.side, "hall", done=False)}
            for number, base in enumerate(self.side.bases):
                if number not in taken_bases and (base.x, base.y) not in self.sites:
                    return number, (base.x, base.y), None
            return None
        if self.used_spots >= len(self.spots):
            self.used_spots = 0
        spot = self.spots[self.used_spots]
        self.used_spots += 1
        return 0, spot, None

    def _field(self, number: int) -> Unit:
        fields = [f for f in self.side.field_units[number] if self.world.alive(f)]
        return self.rng.choice(fields or self.side.field_units[0])

    def _settled(self, building: Unit) -> None:
        """A structure is done: workers move to a hall, a depot goes down, production rallies."""
        if building.kind.role == "hall":
            workers = [w for w in self.world.in_role(self.side, "worker") if not w.busy]
            moved = workers[:: 3 if len(workers) > 30 else 2]
            for worker in moved:
                worker.base = building.base
                worker.path = battlefield.route(worker.at, building.at)
            if self.side.race == "Zerg":
                self.world.hatch_larvae(building)
        elif building.kind.name in ("Barracks", "Factory", "Starport", "RoboticsFacility"):
            self.hand.look(building.at)
            self.hand.select([building])
            self.hand.command(RALLY, point=self.rally)

    def _welcome(self, unit: Unit) -> None:
        """A new unit goes where it belongs."""
        if unit.kind.role == "worker":
            load = {
                hall.base: sum(w.base == hall.base for w in self.world.in_role(self.side, "worker"))
                for hall in self.world.in_role(self.side, "hall")
            }
            if load:
                unit.base = min(sorted(load), key=lambda number: load[number])
                unit.path = battlefield.route(unit.at, self.side.bases[unit.base].minerals[0])
        elif unit.kind.name == "Overlord":
            side = self.side
            corner = side.bases[self.rng.randrange(4)]
            unit.path = [(corner.x + self.rng.uniform(-9, 9), corner.y + self.rng.uniform(-9, 9))]
        elif unit.kind.name == "Queen":
            unit.path = battlefield.route(unit.at, self._near(self.side.bases[1]))
        elif unit.kind.role == "army":
            unit.route_bias = (self.rng.uniform(-4, 4), self.rng.uniform(-4, 4))
            self._send(unit, self.rally)

    def _near(self, base: battlefield.Base) -> Point:
        return base.x + self.rng.uniform(-5, 5), base.y + self.rng.uniform(-5, 5)

    def _send(self, unit: Unit, where: Point) -> None:
        x, y = unit.route_bias
        end = (
            min(max(where[0] + x, 1), battlefield.SIZE[0] - 1),
            min(max(where[1] + y, 1), battlefield.SIZE[1] - 1),
        )
        if unit.kind.name in ("Mutalisk", "Medivac", "VikingFighter", "Observer"):
            unit.path = [end]
            return
        way = battlefield.route(unit.at, end)
        unit.path = [(px + x / 2, py + y / 2) for px, py in way[:-1]] + [end]


_INSIDE = Kind("Drone", 127, "none", 50, 0, 0, 0, "", (0, 0), "", 1_000_000, 0, 0, 0)


def _length(points: Sequence[Point]) -> float:
    return math.fsum(distance(a, b) for a, b in pairwise(points))


def _spots(side: Side) -> list[Point]:
    """Where structures go, from the main outwards; turned for the other side."""
    main = [(37.5 + 7 * i, 15.5 + 4 * j) for i in range(2) for j in range(5)]
    main += [(14.5 + 7 * i, 38.5 + 4 * j) for i in range(3) for j in range(2)]
    main += [(20.5 + 6 * i, 50.5 + 0 * i) for i in range(2)]
    natural = [(42.5, 50.5 + 4 * j) for j in range(4)] + [(38.5, 66.5), (32.5, 68.5), (26.5, 68.5)]
    spots = main + natural
    if side.number:
        spots = [(battlefield.SIZE[0] - x, battlefield.SIZE[1] - y) for x, y in spots]
    return spots
