"""Leading an army: gather, attack, defend, turn back, and what soldiers do in a fight."""

from __future__ import annotations

import math

from sc2gym.testing.match.battlefield import Point, distance
from sc2gym.testing.match.builder import Builder
from sc2gym.testing.match.world import Unit

__all__ = ["General"]

MOVE, ATTACK, STIM = (43, 0), (46, 0), (133, 0)
SIEGE, UNSIEGE, BURROW, UNBURROW = (137, 0), (138, 0), (203, 0), (204, 0)


class General(Builder):
    """One side's army."""

    def army(self) -> list[Unit]:
        """Whatever fights and walks."""
        soldiers = [u for u in self.world.in_role(self.side, "army") if u.kind.name != "Queen"]
        return soldiers + self.world.of(self.side, "SiegeTankSieged", "RoachBurrowed")

    def army_food(self) -> float:
        """The supply of the army."""
        return sum(unit.kind.food for unit in self.army())

    def _fight(self) -> bool:
        """Defend what is attacked, follow an attack up, turn back when it is lost."""
        world = self.world
        foes = [u for u in world.in_role(world.sides[1 - self.side.number], "army") if u.kind.dps]
        army = self.army()
        if not army:
            self.mode = "gather"
            return False
        special = self._in_the_fight(army, foes)
        if special or world.loop < self.next_order:
            return special
        halls = world.in_role(self.side, "hall", done=False)
        near = [f for f in foes if any(distance(f.at, hall.at) < 24 for hall in halls)]
        if self.mode == "gather" and len(near) > 1:
            foe = min(near, key=lambda unit: (distance(unit.at, self.rally), unit.tag))
            self._order_army(army, foe.at)
            return True
        if self.mode == "gather":
            return False
        mine = [u for u in army if u.fought > world.loop - 200]
        theirs = sum(f.kind.food for f in foes if any(distance(f.at, u.at) < 20 for u in mine[:8]))
        if len(mine) > 3 and sum(u.kind.food for u in mine) < 0.45 * theirs:
            self.mode = "gather"
            self.next_order = world.loop + 60
            self.hand.select(army, 1)
            self.hand.command(MOVE, point=self.rally)
            for unit in army:
                self._send(unit, self.rally)
            return True
        goal = self._goal(army)
        self._order_army(army, goal)
        return True

    def _in_the_fight(self, army: list[Unit], foes: list[Unit]) -> bool:
        """Stimulants, tanks that dig in, roaches that hide."""
        world = self.world
        fighting = [u for u in army if u.fought > world.loop - 40]
        if not fighting:
            return self._calm(army, foes)
        self.hand.looking = fighting[0].at if self.rng.random() < 0.5 else self.hand.looking
        tanks = [u for u in army if u.kind.name == "SiegeTank" and not u.busy]
        tanks = [t for t in tanks if any(distance(t.at, f.at) < 14 for f in foes)]
        if tanks:
            self.hand.select(tanks)
            loop = self.hand.command(SIEGE)
            for tank in tanks:
                tank.busy.append(loop)
                tank.path = []
                self._turn(tank, "SiegeTankSieged", loop + 60)
            return True
        bio = [u for u in fighting if u.kind.name in ("Marine", "Marauder") and not u.busy]
        if len(bio) > 4 and "Stimpack" in self.side.upgrades:
            self.hand.select(bio)
            loop = self.hand.command(STIM)
            for unit in bio:
                unit.busy.append(loop)
                unit.hp = max(1, unit.hp - 10)
                self._at(loop + 246, self.world.unless_dead(unit, lambda u: u.busy.clear()))
            return True
        hurt = [
            u for u in fighting
            if u.kind.name == "Roach" and u.hp < 50 and not u.busy
        ]  # fmt: skip
        if hurt and "Burrow" in self.side.upgrades:
            self.hand.select(hurt)
            loop = self.hand.command(BURROW)
            for roach in hurt:
                roach.busy.append(loop)
                roach.path = []
                self._turn(roach, "RoachBurrowed", loop + 24)
            return True
        return False

    def _calm(self, army: list[Unit], foes: list[Unit]) -> bool:
        tanks = [u for u in army if u.kind.name == "SiegeTankSieged" and not u.busy]
        tanks = [t for t in tanks if not any(distance(t.at, f.at) < 16 for f in foes)]
        roaches = [u for u in army if u.kind.name == "RoachBurrowed" and not u.busy]
        for units, ability, name, loops in (
            (tanks, UNSIEGE, "SiegeTank", 60),
            (roaches, UNBURROW, "Roach", 10),
        ):
            if units:
                self.hand.select(units)
                loop = self.hand.command(ability)
                for unit in units:
                    unit.busy.append(loop)
                    self._turn(unit, name, loop + loops)
                    unit.hp = min(unit.kind.hp, unit.hp + 60)
                return True
        return False

    def _order_army(self, army: list[Unit], goal: Point) -> None:
        """Attack over the ground to a point, the newcomers too."""
        new = [u for u in army if u.tag not in self.grouped]
        if new:
            self.hand.select(new)
            self.hand.keep(1, add=bool(self.grouped))
            self.grouped.update(u.tag for u in new)
        self.hand.select(army, 1)
        self.hand.look(army[0].at)
        self.hand.command(ATTACK, point=goal)
        for unit in army:
            if unit.kind.speed and not unit.busy:
                self._send(unit, goal)
        self.next_order = self.world.loop + self.rng.randint(40, 90)

    def _goal(self, army: list[Unit]) -> Point:
        """The other's structure nearest to the army."""
        other = self.world.sides[1 - self.side.number]
        x = math.fsum(u.x for u in army) / len(army)
        y = math.fsum(u.y for u in army) / len(army)
        there = [u for u in self.world.units.values() if u.player == other.player
                 and u.kind.structure]  # fmt: skip
        if not there:
            return other.bases[0].x, other.bases[0].y
        return min(there, key=lambda u: (distance(u.at, (x, y)), u.tag)).at

    def _attack(self) -> bool:
        """Set out, when it is time and the army is large enough."""
        first, food = self.plan.attacks
        if self.mode != "gather" or self.world.loop < first + 1600 * self.wave:
            return False
        if self.army_food() < min(self.threshold, 90):
            return False
        self.mode = "attack"
        self.wave += 1
        self.threshold += food // 2
        self._order_army(self.army(), self._goal(self.army()))
        return True
