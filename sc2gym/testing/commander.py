"""Plays one side of a scripted match: what to build, when to fight, and the events of the hand.

A `Commander` has a build order and then a taste for certain units. It decides one thing at a time
and needs some game loops for each, so it issues as many commands as a person would.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from sc2gym.testing import battlefield, events
from sc2gym.testing.rules import KINDS, UPGRADES, Kind, Share
from sc2gym.testing.world import TICK, Side, Unit, World

__all__ = ["PLANS", "Commander", "Plan"]

Point = tuple[float, float]

WORKER = {"Terran": "SCV", "Protoss": "Probe", "Zerg": "Drone"}
SUPPLY = {"Terran": "SupplyDepot", "Protoss": "Pylon", "Zerg": "Overlord"}
GAS = {"Terran": "Refinery", "Protoss": "Assimilator", "Zerg": "Extractor"}
HALL = {"Terran": "CommandCenter", "Protoss": "Nexus", "Zerg": "Hatchery"}
# What can stand in for a producer, and what a structure counts as.
SAME = {
    "CommandCenter": ("CommandCenter", "OrbitalCommand"),
    "SupplyDepot": ("SupplyDepot", "SupplyDepotLowered"),
    "Hatchery": ("Hatchery", "Lair"),
    "Gateway": ("Gateway", "WarpGate"),
}
STOP, MOVE, ATTACK = (41, 0), (43, 0), (46, 0)
GATHER = {"Terran": (121, 0), "Protoss": (122, 0), "Zerg": (186, 0)}
RALLY, LOWER, SIEGE, UNSIEGE, STIM, MULE = (104, 0), (159, 0), (137, 0), (138, 0), (133, 0), (92, 0)
CHRONO, WARP_GATE, WARP_IN, ARCHON = (722, 0), (230, 0), 216, (269, 0)
INJECT, TUMOR, BURROW, UNBURROW = (113, 0), (262, 0), (203, 0), (204, 0)
LIFT, LAND = (150, 0), (158, 0)
QUEUED, RIGHT_CLICK, ORDINARY = 0x102, 0x108, 0x100


@dataclass(frozen=True)
class Plan:
    """A build order and what follows it.

    Attributes:
        order: (supply used, what): a structure, unit or upgrade, begun once that supply is reached.
        army: Units and how many of each for one of the others.
        more: Production structures to add while there is money.
        workers: How many at most.
        halls: How many at most.
        attacks: (game loop, food of army): the first attack, and how much more for each next one.
    """

    order: tuple[tuple[int, str], ...]
    army: dict[str, float]
    more: tuple[str, ...]
    upgrades: tuple[str, ...]
    workers: int = 48
    halls: int = 3
    attacks: tuple[int, int] = (5600, 24)
    group: dict[str, int] = field(default_factory=dict)


def _order(text: str) -> tuple[tuple[int, str], ...]:
    steps = (step.split() for step in text.split(","))
    return tuple((int(supply), name) for supply, name in steps)


PLANS = {
    "Terran": Plan(
        _order(
            "14 SupplyDepot, 16 Barracks, 16 Refinery, 19 OrbitalCommand, 20 CommandCenter, "
            "20 SupplyDepot, 21 BarracksReactor, 22 Factory, 23 Refinery, 27 FactoryTechLab, "
            "28 Starport, 30 Barracks, 31 OrbitalCommand, 34 BarracksTechLab, 36 Stimpack, "
            "38 StarportReactor, 42 EngineeringBay, 44 Barracks, 46 TerranInfantryWeaponsLevel1, "
            "50 ShieldWall, 60 CommandCenter, 62 Refinery, 64 Armory"
        ),
        {"Marine": 6, "Marauder": 2, "SiegeTank": 1, "Medivac": 1, "VikingFighter": 0.2},
        ("Barracks", "Barracks", "Factory"),
        ("TerranInfantryArmorsLevel1", "TerranInfantryWeaponsLevel2"),
    ),
    "Terran hellions": Plan(
        _order(
            "14 SupplyDepot, 15 Refinery, 16 Barracks, 19 Reaper, 19 OrbitalCommand, "
            "20 CommandCenter, 20 SupplyDepot, 20 Factory, 22 Refinery, 26 FactoryTechLab, "
            "28 Starport, 32 Factory, 34 Barracks, 35 BarracksTechLab, 36 EngineeringBay, "
            "40 Armory, 44 Stimpack, 50 TerranInfantryWeaponsLevel1, 60 CommandCenter"
        ),
        {"Hellion": 2, "SiegeTank": 2, "Marine": 3, "VikingFighter": 1},
        ("Factory", "Barracks"),
        ("TerranInfantryArmorsLevel1",),
        attacks=(6200, 28),
    ),
    "Protoss": Plan(
        _order(
            "14 Pylon, 16 Gateway, 17 Assimilator, 20 Nexus, 20 CyberneticsCore, 21 Assimilator, "
            "22 Pylon, 23 WarpGateResearch, 23 Adept, 26 RoboticsFacility, 28 Gateway, 30 Gateway, "
            "32 Observer, 38 Forge, 40 TwilightCouncil, 42 ProtossGroundWeaponsLevel1, 46 Charge, "
            "50 RoboticsBay, 56 Nexus, 60 Gateway, 64 TemplarArchive"
        ),
        {"Zealot": 4, "Stalker": 3, "Sentry": 0.4, "Immortal": 1.2, "Colossus": 0.6,
         "HighTemplar": 0.7},
        ("Gateway", "Gateway", "RoboticsFacility"),
        ("BlinkTech", "ProtossGroundArmorsLevel1", "ProtossGroundWeaponsLevel2"),
    ),
    "Protoss stalkers": Plan(
        _order(
            "14 Pylon, 15 Gateway, 16 Assimilator, 19 Nexus, 19 CyberneticsCore, 20 Assimilator, "
            "22 Pylon, 22 Stalker, 23 WarpGateResearch, 25 TwilightCouncil, 27 Gateway, "
            "28 BlinkTech, 29 Gateway, 36 RoboticsFacility, 40 Forge, 44 Observer, "
            "48 ProtossGroundWeaponsLevel1, 56 Nexus"
        ),
        {"Stalker": 5, "Zealot": 1, "Immortal": 1, "Sentry": 0.5},
        ("Gateway", "Gateway"),
        ("Charge", "ProtossGroundArmorsLevel1"),
        attacks=(5200, 22),
    ),
    "Zerg": Plan(
        _order(
            "13 Overlord, 16 Hatchery, 18 Extractor, 17 SpawningPool, 19 Overlord, 20 Queen, "
            "22 Queen, 22 zerglingmovementspeed, 23 Zergling, 30 Hatchery, 32 RoachWarren, 33 Queen, "
            "36 Extractor, 38 Lair, 42 EvolutionChamber, 44 ZergMissileWeaponsLevel1, 50 Extractor, "
            "56 HydraliskDen, 58 GlialReconstitution, 60 Overseer, 62 Burrow"
        ),
        {"Roach": 4, "Hydralisk": 2, "Zergling": 3},
        ("Hatchery",),
        ("ZergGroundArmorsLevel1",),
        workers=56,
        attacks=(6000, 30),
    ),
    "Zerg mutalisks": Plan(
        _order(
            "13 Overlord, 16 Hatchery, 17 SpawningPool, 18 Extractor, 19 Overlord, 20 Queen, "
            "21 Zergling, 22 Queen, 23 zerglingmovementspeed, 28 BanelingNest, 30 Hatchery, "
            "32 Zergling, 34 Extractor, 36 Lair, 40 EvolutionChamber, 42 ZergMeleeWeaponsLevel1, "
            "46 Spire, 48 Extractor, 60 Overseer"
        ),
        {"Zergling": 6, "Baneling": 2, "Mutalisk": 1.5},
        ("Hatchery",),
        ("ZergGroundArmorsLevel1",),
        workers=52,
        attacks=(5200, 20),
    ),
}  # fmt: skip


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
        """Move the camera there, in steps if it is near, at once over the minimap if it is far."""
        gap = math.dist(self.looking, where)
        if gap < 9:
            return
        steps = 1 if gap > 30 else 2
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
        kind = (ability, flags, tuple(self.selected), unit and unit.tag, point is None)
        if kind == self.last and unit is None:
            if point is not None:
                self.events.append(events.update_target(loop, self.user, point))
            self.events.append(events.repeat(loop, self.user, self.sequence))
        else:
            self.events.append(
                events.command(
                    loop, self.user, ability, sequence=self.sequence, flags=flags,
                    point=unit.at if unit else point, unit=unit and unit.tag,
                    unit_link=unit.kind.link if unit else 0,
                    unit_player=unit.player if unit else 0,
                )
            )  # fmt: skip
        self.last = kind
        return loop


class Commander:
    """One side's decisions.

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
        self.injected: dict[int, int] = {}
        self.mules: dict[int, int] = {}
        self.tumors = 0
        self.scouted = 0
        self.target: Point = side.bases[0].minerals[0]
        home, away = side.bases[1], world.sides[1 - side.number].bases
        self.rally: Point = battlefield.route((home.x, home.y), (away[0].x, away[0].y))[0]
        self.hand.looking = (side.bases[0].x, side.bases[0].y)
        self.hand.events.append(events.camera(3, side.number, *self.hand.looking))
        self.hand.clock = self.rng.randint(6, 20)

    # One decision

    def think(self) -> None:
        """Do what is most needed, if the hand is free."""
        if self.hand.clock > self.world.loop:
            return
        self.hand.clock = max(self.hand.clock, self.world.loop - TICK + self.rng.randint(1, TICK))
        done = (
            self._fight()
            or self._supply()
            or self._build_order()
            or self._workers()
            or self._special()
            or self._army()
            or self._research()
            or self._expand()
            or self._attack()
            or self._idle()
        )
        self.hand.wait(*((9, 20) if done else (10, 30)))

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
        pylon = min(pylons, key=lambda unit: (math.dist(unit.at, self.rally), unit.tag))
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
        site = self._site(kind)
        workers = [w for w in world.in_role(self.side, "worker") if not w.path and not w.busy]
        if site is None or not workers:
            return False
        number, spot, geyser = site
        worker = min(workers, key=lambda unit: (math.dist(unit.at, spot), unit.tag))
        self.hand.look(spot)
        self.hand.select([worker])
        if geyser is not None:
            loop = self.hand.command(kind.ability, unit=geyser)
        else:
            loop = self.hand.command(kind.ability, point=spot)
        self._begin(kind)
        way = battlefield.route(worker.at, spot) if math.dist(worker.at, spot) > 20 else [spot]
        walk = _length([worker.at, *way]) / worker.kind.speed
        worker.path = way
        worker.busy.append(loop)
        if kind.maker != "Drone":  # back to work, told at once
            self.hand.command(None, unit=self._field(worker.base), flags=RIGHT_CLICK | QUEUED)

        def start() -> None:
            if not world.alive(worker):
                self._over(kind)
                if kind.role == "tech":
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

    def _at(self, loop: int, action: object) -> None:
        self.world.after(loop - self.world.loop, action)  # type: ignore[arg-type]

    # Places

    def _site(self, kind: Kind) -> tuple[int, Point, Unit | None] | None:
        """Where a structure goes: the number of its base, the place, the geyser if it needs one."""
        halls = sorted({hall.base for hall in self.world.in_role(self.side, "hall")})
        if kind.role == "gas":
            taken = {unit.at for unit in self.world.in_role(self.side, "gas", done=False)}
            for number in halls:
                for geyser in self.side.geyser_units[number]:
                    if geyser.at not in taken and self._free_geyser(geyser):
                        return number, geyser.at, geyser
            return None
        if kind.role == "hall":
            taken_bases = {h.base for h in self.world.in_role(self.side, "hall", done=False)}
            for number, base in enumerate(self.side.bases):
                if number not in taken_bases and self.side.making[f"base {number}"] == 0:
                    self.side.making[f"base {number}"] += 1
                    return number, (base.x, base.y), None
            return None
        if self.used_spots >= len(self.spots):
            self.used_spots = 0
        spot = self.spots[self.used_spots]
        self.used_spots += 1
        return 0, spot, None

    def _free_geyser(self, geyser: Unit) -> bool:
        ordered = f"geyser {geyser.tag}"
        if self.side.making[ordered]:
            return False
        self.side.making[ordered] += 1
        return True

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

    # What is most needed

    def _supply(self) -> bool:
        used, made = self.world.food(self.side)
        name = SUPPLY[self.side.race]
        coming = sum(
            kind.provides * max(0, self.side.making[kind.name])
            for kind in KINDS.values()
            if kind.role in ("supply", "hall")
        )
        margin = 2 + used / 9
        if used < 16 or made + coming >= min(200, used + margin):
            return False
        return self._make(name)

    def _build_order(self) -> bool:
        if not self.order:
            return False
        used, _ = self.world.food(self.side)
        supply, name = self.order[0]
        if used < supply and self.world.loop < 400 * (supply - 10):
            return False
        if self._make(name):
            self.order.pop(0)
            return True
        kind = UPGRADES.get(name) or KINDS[name]
        if not self._has(kind.needs) and self.rng.random() < 0.02:
            self.order.append(self.order.pop(0))
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
            depot.busy.append(loop)
            self._at(
                loop + 3, lambda: world.alive(depot) and world.morph(depot, "SupplyDepotLowered")
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
                world.after(1430, lambda: world.alive(mule) and world.leave(mule))

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

        self._at(up + 40, lambda: world.alive(building) and world.morph(building, "BarracksFlying"))
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

                def turned(gate: Unit = gate) -> None:
                    if world.alive(gate):
                        gate.busy.clear()
                        world.morph(gate, "WarpGate")

                self._at(loop + KINDS["WarpGate"].loops, turned)
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
                world.after(
                    KINDS["Archon"].loops, lambda: world.alive(new) and world.finish(new)
                )

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
            if math.dist(queen.at, hall.at) > 8:
                queen.path = battlefield.route(queen.at, (hall.x + 3, hall.y + 3))

            def pop(hall: Unit = hall) -> None:
                for _ in range(3):
                    if world.alive(hall):
                        world.larva(hall)

            self._at(loop + 650, pop)
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

    def army(self) -> list[Unit]:
        """Whatever fights and walks."""
        return [u for u in self.world.in_role(self.side, "army") if u.kind.name != "Queen"] + [
            u for u in self.world.of(self.side, "SiegeTankSieged", "RoachBurrowed")
        ]

    def army_food(self) -> float:
        """The supply of the army."""
        return sum(unit.kind.food for unit in self.army())

    def _fight(self) -> bool:
        """Defend what is attacked, follow an attack up, turn back when it is lost."""
        world = self.world
        foes = [
            u for u in world.in_role(world.sides[1 - self.side.number], "army") if u.kind.dps
        ]
        army = self.army()
        if not army:
            self.mode = "gather"
            return False
        special = self._in_the_fight(army, foes)
        if special or world.loop < self.next_order:
            return special
        halls = world.in_role(self.side, "hall", done=False)
        near = [f for f in foes if any(math.dist(f.at, hall.at) < 24 for hall in halls)]
        if self.mode == "gather" and len(near) > 1:
            foe = min(near, key=lambda unit: (math.dist(unit.at, self.rally), unit.tag))
            self._order_army(army, foe.at)
            return True
        if self.mode == "gather":
            return False
        mine = [u for u in army if u.fought > world.loop - 200]
        theirs = sum(f.kind.food for f in foes if any(math.dist(f.at, u.at) < 20 for u in mine[:8]))
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
        tanks = [t for t in tanks if any(math.dist(t.at, f.at) < 14 for f in foes)]
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
                self._at(loop + 246, lambda unit=unit: unit.busy.clear())
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
        tanks = [t for t in tanks if not any(math.dist(t.at, f.at) < 16 for f in foes)]
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

    def _turn(self, unit: Unit, name: str, loop: int) -> None:
        def turned() -> None:
            if self.world.alive(unit):
                unit.busy.clear()
                self.world.morph(unit, name)

        self._at(loop, turned)

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
        self.next_order = self.world.loop + self.rng.randint(70, 130)

    def _goal(self, army: list[Unit]) -> Point:
        """The other's structure nearest to the army."""
        other = self.world.sides[1 - self.side.number]
        x = sum(u.x for u in army) / len(army)
        y = sum(u.y for u in army) / len(army)
        there = [u for u in self.world.units.values() if u.player == other.player
                 and u.kind.structure]  # fmt: skip
        if not there:
            return other.bases[0].x, other.bases[0].y
        return min(there, key=lambda u: (math.dist(u.at, (x, y)), u.tag)).at

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

    def _idle(self) -> bool:
        """Nothing to do: look round, as people do."""
        if self.rng.random() < 0.75:
            return False
        army = self.army()
        halls = self.world.in_role(self.side, "hall")
        spots = [hall.at for hall in halls] + ([army[0].at] if army else [])
        if spots:
            self.hand.look(self.rng.choice(spots))
        if halls and self.rng.random() < 0.3:
            self.hand.select([self.rng.choice(halls)])
        elif len(army) > 2 and self.rng.random() < 0.4 and self.mode == "gather":
            self.hand.select([army[0]])
            self.hand.command(STOP)
        return True


_INSIDE = Kind("Drone", 127, "none", 50, 0, 0, 0, "", (0, 0), "", 1_000_000, 0, 0, 0)


def _length(points: Sequence[Point]) -> float:
    return sum(math.dist(a, b) for a, b in zip(points, points[1:], strict=False))


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
