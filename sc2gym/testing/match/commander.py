"""Plays one side of a scripted match: decides one thing at a time, whatever is needed most.

Each takes some game loops, so a commander issues about as many commands as a person would.
"""

from __future__ import annotations

import math

from sc2gym.testing.match import battlefield
from sc2gym.testing.match.battlefield import distance
from sc2gym.testing.match.general import MOVE, General
from sc2gym.testing.match.hand import QUEUED, RIGHT_CLICK
from sc2gym.testing.match.plans import GAS, HALL, SUPPLY, WORKER
from sc2gym.testing.match.rules import KINDS, UPGRADES
from sc2gym.testing.match.world import TICK, Unit

__all__ = ["Commander"]

STOP, LOWER, MULE, LIFT, LAND = (41, 0), (159, 0), (92, 0), (150, 0), (158, 0)
GATHER = {"Terran": (121, 0), "Protoss": (122, 0), "Zerg": (186, 0)}
WARP_GATE, ARCHON, INJECT, TUMOR, SPY = (230, 0), (269, 0), (113, 0), (262, 0), (97, 0)
DISGUISES = {"Terran": "MarineShield", "Protoss": "Zealot", "Zerg": "ZerglingWings"}


class Commander(General):
    """One side's decisions."""

    # One decision

    def think(self) -> None:
        """Do what is most needed, as often as the hand is free in this tick."""
        self.hand.clock = max(self.hand.clock, self.world.loop - self.rng.randint(0, TICK - 1))
        while self.hand.clock <= self.world.loop:
            self.hand.wait(*((3, 9) if self._decide() else (10, 24)))

    def _decide(self) -> bool:
        return (
            self._fight()
            or self._supply()
            or (self.rng.random() < 0.6 and self._workers())
            or self._build_order()
            or self._workers()
            or self._special()
            or self._army()
            or self._research()
            or self._expand()
            or self._attack()
            or self._idle()
        )

    # What is most needed

    def _supply(self) -> bool:
        used, made = self.world.food(self.side)
        name = SUPPLY[self.side.race]
        coming = sum(
            kind.provides * max(0, self.side.making[kind.name])
            for kind in KINDS.values()
            if kind.role == "supply"
        )
        margin = 2 + used / 9
        if used < 16 or made + coming >= min(200, used + margin):
            return False
        return self._make(name)

    def _build_order(self) -> bool:
        """The next step of the build order, or one of the two after it if that must wait."""
        used, _ = self.world.food(self.side)
        for place, (supply, name) in enumerate(self.order[:3]):
            if used < supply and self.world.loop < 150 * (supply - 10):
                return False
            if self._make(name):
                self.order.pop(place)
                return True
            kind = UPGRADES.get(name) or KINDS[name]
            if self._has(kind.needs) and not self._can(kind.minerals, kind.vespene):
                return False  # save for it
        return False

    def _saving(self) -> bool:
        """Whether the next step of the build order is due and only money is missing."""
        if not self.order:
            return False
        supply, name = self.order[0]
        kind = UPGRADES.get(name) or KINDS[name]
        return self.world.food(self.side)[0] >= supply and self._has(kind.needs)

    def _workers(self) -> bool:
        name = WORKER[self.side.race]
        halls = len(self.world.in_role(self.side, "hall"))
        workers = self._count(name)
        if workers >= min(self.plan.workers, 22 * halls):
            return False
        if self.side.race == "Zerg" and workers > 20 and self.rng.random() < 0.35:
            return False
        return self._make(name)

    def _special(self) -> bool:
        """What each race does beside building."""
        return {"Terran": self._terran, "Protoss": self._protoss, "Zerg": self._zerg}[
            self.side.race
        ]() or self._scout()

    def _scout(self) -> bool:
        """A worker looks at the other main, early."""
        if self.scouted or self.world.loop < 900:
            return False
        self.scouted = 1
        worker = self.world.in_role(self.side, "worker")[-1]
        other = self.world.sides[1 - self.side.number].bases[0]
        self.hand.look(worker.at)
        self.hand.select([worker])
        self.hand.command(MOVE, point=(other.x, other.y))
        for point in other.minerals[::4]:
            self.hand.command(None, point=point, flags=RIGHT_CLICK | QUEUED)
        home = self.side.bases[0]
        worker.path = [
            *battlefield.route(worker.at, (other.x, other.y)),
            *other.minerals[::4],
            *battlefield.route((other.x, other.y), (home.x, home.y)),
        ]
        self.hand.command(GATHER[self.side.race], unit=self._field(0), flags=QUEUED)
        return True

    def _terran(self) -> bool:
        world = self.world
        for depot in world.of(self.side, "SupplyDepot"):
            if depot.busy:
                continue
            self.hand.select([depot])
            loop = self.hand.command(LOWER)
            depot.busy.append(loop)  # for good: it stays lowered
            self._at(
                loop + 3, world.unless_dead(depot, lambda d: world.morph(d, "SupplyDepotLowered"))
            )
            return True
        for hall in world.of(self.side, "OrbitalCommand"):
            if world.loop < self.mules.get(hall.tag, 0):
                continue
            self.mules[hall.tag] = world.loop + 1430
            field_unit = self._field(hall.base)
            self.hand.look(field_unit.at)
            self.hand.select([hall])
            loop = self.hand.command(MULE, unit=field_unit)

            def drop(hall: Unit = hall, field_unit: Unit = field_unit) -> None:
                mule = world.enter(
                    "MULE", self.side.player, *field_unit.at, creator=hall, ability="CalldownMULE"
                )
                mule.base = hall.base
                world.after(1430, world.unless_dead(mule, world.leave))

            self._at(loop + 30, drop)
            return True
        return self._relocate()

    def _relocate(self) -> bool:
        """Once in a game a barracks flies a bit and lands."""
        world = self.world
        idle = [b for b in world.of(self.side, "Barracks") if not b.busy and not b.addon]
        if world.loop < 6000 or self.tumors or not idle:
            return False
        self.tumors = 1
        building = idle[0]
        spot = self.spots[self.used_spots % len(self.spots)]
        self.used_spots += 1
        self.hand.look(building.at)
        self.hand.select([building])
        up = self.hand.command(LIFT)
        down = self.hand.command(LAND, point=spot)
        building.busy.append(down)

        def land() -> None:
            if world.alive(building):
                building.x, building.y = spot
                building.busy.clear()
                world.morph(building, "Barracks")

        fly = world.unless_dead(building, lambda b: world.morph(b, "BarracksFlying"))
        self._at(up + 40, fly)
        self._at(down + 240, land)
        return True

    def _protoss(self) -> bool:
        world = self.world
        if "WarpGateResearch" in self.side.upgrades:
            for gate in world.of(self.side, "Gateway"):
                if gate.busy:
                    continue
                self.hand.look(gate.at)
                self.hand.select([gate])
                loop = self.hand.command(WARP_GATE)
                gate.busy.append(loop)
                self._turn(gate, "WarpGate", loop + KINDS["WarpGate"].loops)
                return True
        templar = [t for t in world.of(self.side, "HighTemplar") if not t.busy]
        if len(templar) >= 2 and self.mode == "gather":
            pair = templar[:2]
            self.hand.look(pair[0].at)
            self.hand.select(pair)
            loop = self.hand.command(ARCHON)
            for unit in pair:
                unit.busy.append(loop)
                unit.path = []

            def merge() -> None:
                if not all(map(world.alive, pair)):
                    return
                new = world.enter("Archon", self.side.player, *pair[0].at, unfinished=True)
                for unit in pair:
                    world.leave(unit)
                world.after(KINDS["Archon"].loops, world.unless_dead(new, world.finish))

            self._at(loop + 20, merge)
            return True
        return False

    def _zerg(self) -> bool:
        world = self.world
        queens = [q for q in world.of(self.side, "Queen") if not q.busy]
        halls = world.in_role(self.side, "hall")
        for hall in halls:
            if not queens or world.loop < self.injected.get(hall.tag, 0):
                continue
            queen = queens[0]
            self.injected[hall.tag] = world.loop + 750
            self.hand.look(hall.at)
            self.hand.select([queen])
            loop = self.hand.command(INJECT, unit=hall)
            if distance(queen.at, hall.at) > 8:
                queen.path = battlefield.route(queen.at, (hall.x + 3, hall.y + 3))

            def pop(hall: Unit = hall) -> None:
                for _ in range(3):
                    if world.alive(hall):
                        world.larva(hall)

            self._at(loop + 650, pop)
            return True
        if self._changeling():
            return True
        if queens and self.tumors < 8 and world.loop > 3000 + 900 * self.tumors:
            queen = queens[-1]
            self.tumors += 1
            spot = (queen.x + self.rng.uniform(-6, 6), queen.y + self.rng.uniform(-6, 6))
            self.hand.look(queen.at)
            self.hand.select([queen])
            loop = self.hand.command(TUMOR, point=spot)

            def grow() -> None:
                tumor = world.enter("CreepTumorQueen", self.side.player, *spot, unfinished=True)

                def done() -> None:
                    if world.alive(tumor):
                        world.finish(tumor)
                        world.morph(tumor, "CreepTumorBurrowed")

                world.after(240, done)

            self._at(loop + 40, grow)
            return True
        return False

    # The army

    def _army(self) -> bool:
        if self._saving() and self.side.minerals < 500:
            return False
        best, least = "", math.inf
        for name, weight in self.plan.army.items():
            kind = KINDS[name]
            if not self._has(kind.needs):
                continue
            if kind.maker not in ("Larva", "Zergling") and not self._has(kind.maker):
                continue
            if not self._can(kind.minerals, kind.vespene):
                continue
            share = self._count(name) / weight
            if share < least:
                best, least = name, share
        if best and self._make(best):
            return True
        # The favourite has no room to be made in: anything else, so that nothing stands idle.
        others = [name for name in self.plan.army if name != best]
        self.rng.shuffle(others)
        return any(self._can(300, 0) and self._make(name) for name in others)

    def _research(self) -> bool:
        if not self.wanted_upgrades or self.order:
            return False
        if self._make(self.wanted_upgrades[0]):
            self.wanted_upgrades.pop(0)
            return True
        return False

    def _expand(self) -> bool:
        if self.order:
            return False
        halls = self._count(HALL[self.side.race])
        gas = self._count(GAS[self.side.race])
        if gas < 2 * halls - 1 and self.side.minerals > 200 and self.side.vespene < 300:
            return self._make(GAS[self.side.race])
        if halls < self.plan.halls and self.side.minerals > 500:
            return self._make(HALL[self.side.race])
        name = self.rng.choice(self.plan.more)
        limit = 4 if name == "Hatchery" else 8
        if self.side.minerals > 450 and self._count(name) < limit:
            return self._make(name)
        return False

    def _changeling(self) -> bool:
        """An overseer sends a spy, who looks like the other's and for a moment is."""
        world = self.world
        overseers = world.of(self.side, "Overseer")
        if not overseers or world.loop < self.next_spy:
            return False
        self.next_spy = world.loop + 2200
        overseer = overseers[0]
        other = world.sides[1 - self.side.number]
        guise = f"Changeling{DISGUISES[other.race]}"
        self.hand.look(overseer.at)
        self.hand.select([overseer])
        loop = self.hand.command(SPY)

        def hatch(overseer: Unit) -> None:
            larval = world.enter(
                "Changeling", self.side.player, *overseer.at,
                creator=overseer, ability="SpawnChangeling",
            )  # fmt: skip

            def disguise(larval: Unit) -> None:
                spy = world.enter(guise, other.player, *larval.at, creator=larval, ability="")
                world.give(spy, self.side.player)
                world.leave(larval, larval)
                home = other.bases[0]
                spy.path = battlefield.route(spy.at, (home.x, home.y))
                world.after(3360, world.unless_dead(spy, lambda spy: world.leave(spy, spy)))

            world.after(8, world.unless_dead(larval, disguise))

        self._at(loop + 1, world.unless_dead(overseer, hatch))
        return True

    def _idle(self) -> bool:
        """Nothing to do: look round, as people do."""
        if self.rng.random() < 0.4:
            return False
        army = self.army()
        halls = self.world.in_role(self.side, "hall")
        spots = [hall.at for hall in halls] + ([army[0].at] if army else [])
        if spots:
            self.hand.look(self.rng.choice(spots))
        whim = self.rng.random()
        if halls and whim < 0.3:
            self.hand.select([self.rng.choice(halls)])
        elif halls and whim < 0.4:
            hall = self.rng.choice(halls)
            self.hand.select([hall])
            self.hand.command(None, unit=self._field(hall.base), flags=RIGHT_CLICK)  # rally
        elif len(army) > 2 and whim < 0.8 and self.mode == "gather":
            # Shift the guard a little, the same way some times over.
            for _ in range(self.rng.randint(1, 3)):
                self.hand.select(army[:1])
                near = (self.rally[0] + self.rng.uniform(-6, 6), self.rally[1] - 2)
                self.hand.command(None, point=near, flags=RIGHT_CLICK)
                self._send(army[0], near)
        return True
