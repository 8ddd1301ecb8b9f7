"""What units, structures and upgrades of a scripted match cost, take and can do.

Costs, food and build times are those of Legacy of the Void 5.0; times are in game loops. Unit and
ability links are those of base build 80949: unit links as in sc2reader's table of that build,
ability links as its table names them and a ladder replay of the build uses them. Hit points, damage
a second, range (cells) and speed (cells a game loop) are rounded; they only shape the fights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["BUILD", "KINDS", "UPGRADES", "Kind", "UpgradeKind"]

BUILD = 80949

Share = Literal["Army", "Economy", "Technology"]


@dataclass(frozen=True)
class Kind:
    """A type of unit or structure.

    Attributes:
        name: As the tracker stream has it.
        link: As selections have it.
        role: worker, army, hall, gas, supply, tech, addon, or none of these.
        minerals: Cost; of a pair of zerglings.
        vespene: Cost.
        food: Supply used; of one zergling.
        loops: Build time.
        maker: What makes it: a producer's name, a worker's, or what morphs into it.
        ability: Link and index of the command.
        needs: A structure that must be there.
        hp: Hit points and shields.
        dps: Damage a second.
        reach: Weapon range.
        speed: Movement; 0 for structures.
        provides: Supply.
    """

    name: str
    link: int
    role: str
    minerals: int
    vespene: int
    food: float
    loops: int
    maker: str
    ability: tuple[int, int]
    needs: str
    hp: int
    dps: float
    reach: float
    speed: float
    provides: int = 0

    @property
    def share(self) -> Share:
        """The part of the score it counts in."""
        if self.role == "army":
            return "Army"
        return "Economy" if self.role in ("worker", "hall", "gas", "supply") else "Technology"

    @property
    def structure(self) -> bool:
        """Whether it stands still."""
        return self.role in ("hall", "gas", "tech", "addon") or (
            self.role == "supply" and self.name != "Overlord"
        )


@dataclass(frozen=True)
class UpgradeKind:
    """An upgrade: its name in the tracker stream, where it is researched, and its cost."""

    name: str
    maker: str
    ability: tuple[int, int]
    minerals: int
    vespene: int
    loops: int
    needs: str


_UNITS = """
SCV                68 worker 50   0 1   272 CommandCenter     157.0 -                45  5 1 .17
MULE              408 none    0   0 0     0 OrbitalCommand     92.0 -                60  0 0 .17
Marine             71 army   50   0 1   400 Barracks          161.0 -                45 10 5 .14
Marauder           74 army  100  25 2   480 Barracks          161.3 BarracksTechLab 125  9 6 .14
Reaper             72 army   50  50 1   720 Barracks          161.1 -                60 10 5 .23
Hellion            76 army  100   0 2   480 Factory           162.5 -                90  6 5 .26
SiegeTank          56 army  150 125 3   720 Factory           162.1 FactoryTechLab  175 20 7 .14
SiegeTankSieged    55 none  150 125 3     0 SiegeTank         137.0 -               175 24 13 0
Medivac            77 army  100 100 2   672 Starport          163.0 -               150  0 4 .15
VikingFighter      58 army  150  75 2   672 Starport          163.4 -               135 10 6 .17
CommandCenter      39 hall  400   0 0  1600 SCV               131.0 -              1500  0 0 0 15
OrbitalCommand    155 hall  150   0 0   560 CommandCenter     229.0 Barracks       1500  0 0 0 15
SupplyDepot        40 supply 100  0 0   480 SCV               131.1 -               400  0 0 0 8
SupplyDepotLowered 70 supply 100  0 0     0 SupplyDepot       159.0 -               400  0 0 0 8
Refinery           41 gas    75   0 0   480 SCV               131.2 -               500  0 0 0
Barracks           42 tech  150   0 0  1040 SCV               131.3 SupplyDepot    1000  0 0 0
EngineeringBay     43 tech  125   0 0   560 SCV               131.4 CommandCenter   850  0 0 0
BarracksFlying     45 none 150   0 0     0 Barracks          150.0 -              1000  0 0 0
Factory            49 tech  150 100 0   960 SCV              131.10 Barracks       1250  0 0 0
Starport           50 tech  150 100 0   800 SCV              131.11 Factory        1300  0 0 0
Armory             52 tech  150 100 0  1040 SCV              131.13 Factory         750  0 0 0
BarracksTechLab    60 addon  50  25 0   400 Barracks          149.0 -               400  0 0 0
BarracksReactor    61 addon  50  50 0   800 Barracks          149.1 -               400  0 0 0
FactoryTechLab     62 addon  50  25 0   400 Factory           151.0 -               400  0 0 0
StarportReactor    65 addon  50  50 0   800 Starport          153.1 -               400  0 0 0
Probe             107 worker 50   0 1   272 Nexus             177.0 -                40  5 1 .17
Zealot             96 army  100   0 2   608 Gateway           174.0 -               150 18 1 .14
Stalker            97 army  125  50 2   608 Gateway           174.1 CyberneticsCore 160 10 6 .18
Sentry            100 army   50 100 2   512 Gateway           174.5 CyberneticsCore  80  8 5 .14
Adept             478 army  100  25 2   608 Gateway           174.6 CyberneticsCore 140  9 4 .15
HighTemplar        98 army   50 150 2   880 Gateway           174.3 TemplarArchive   80  3 6 .12
Archon            164 army  100 300 4   192 HighTemplar       269.0 -               360 20 3 .17
Immortal          106 army  275 100 4   880 RoboticsFacility  176.3 -               300 20 6 .14
Observer          105 army   25  75 1   480 RoboticsFacility  176.1 -                60  0 0 .16
Colossus           23 army  300 200 6  1200 RoboticsFacility  176.2 RoboticsBay     250 20 8 .14
Nexus              82 hall  400   0 0  1600 Probe             172.0 -              2000  0 0 0 15
Pylon              83 supply 100  0 0   400 Probe             172.1 -               400  0 0 0 8
Assimilator        84 gas    75   0 0   480 Probe             172.2 -               600  0 0 0
Gateway            85 tech  150   0 0  1040 Probe             172.3 Pylon          1000  0 0 0
WarpGate          156 tech  150   0 0   112 Gateway           230.0 -              1000  0 0 0
Forge              86 tech  150   0 0   720 Probe             172.4 Pylon           800  0 0 0
TwilightCouncil    88 tech  150 100 0   800 Probe             172.6 CyberneticsCore 1000 0 0 0
TemplarArchive     91 tech  150 200 0   800 Probe            172.10 TwilightCouncil 1000 0 0 0
RoboticsBay        93 tech  150 150 0  1040 Probe            172.12 RoboticsFacility 1000 0 0 0
RoboticsFacility   94 tech  150 100 0  1040 Probe            172.13 CyberneticsCore 900  0 0 0
CyberneticsCore    95 tech  150   0 0   800 Probe            172.14 Gateway        1100  0 0 0
Drone             127 worker 50   0 1   272 Larva             195.0 -                40  5 1 .17
Overlord          129 supply 100  0 0   400 Larva             195.2 -               200  0 0 .04 8
OverlordCocoon    150 none    0   0 0     0 Overlord          223.0 -               200  0 0 0 8
Overseer          152 supply 50  50 0   272 Overlord          223.0 Lair            200  0 0 .16 8
Larva             189 none    0   0 0     0 Hatchery          195.0 -                25  0 0 0
Egg               126 none    0   0 0     0 Larva             195.0 -               200  0 0 0
Zergling          128 army   50   0 .5  384 Larva             195.1 SpawningPool     35 10 1 .2
BanelingCocoon     28 none   25  25 0     0 Zergling           75.0 -                50  0 0 0
Baneling           29 army   25  25 .5  320 Zergling           75.0 BanelingNest     30 16 1 .17
Roach             133 army   75  25 2   432 Larva             195.9 RoachWarren     145 11 4 .15
RoachBurrowed     141 none   75  25 2     0 Roach             203.0 -               145  0 0 0
Hydralisk         130 army  100  50 2   528 Larva             195.3 HydraliskDen     90 20 5 .15
Mutalisk          131 army  100 100 2   528 Larva             195.4 Spire           120  9 3 .25
Queen             149 army  150   0 2   800 Hatchery          245.0 SpawningPool    175 11 5 .06
Hatchery          109 hall  300   0 0  1600 Drone             185.0 -              1500  0 0 0 6
Lair              123 hall  150 100 0  1280 Hatchery          188.0 SpawningPool   2000  0 0 0 6
Extractor         111 gas    25   0 0   480 Drone             185.2 -               500  0 0 0
SpawningPool      112 tech  200   0 0  1040 Drone             185.3 Hatchery       1000  0 0 0
EvolutionChamber  113 tech   75   0 0   560 Drone             185.4 SpawningPool    750  0 0 0
HydraliskDen      114 tech  100 100 0   640 Drone             185.5 Lair            850  0 0 0
Spire             115 tech  200 200 0  1600 Drone             185.6 Lair            850  0 0 0
BanelingNest      119 tech  100  50 0   960 Drone            185.10 SpawningPool    850  0 0 0
RoachWarren       120 tech  150   0 0   880 Drone            185.13 SpawningPool    850  0 0 0
Changeling         32 none    0   0 0     0 Overseer           97.0 -                 5  0 0 .14
ChangelingZealot   33 none    0   0 0     0 Changeling         97.0 -                 5  0 0 .14
ChangelingMarineShield 34 none 0  0 0     0 Changeling         97.0 -                 5  0 0 .14
ChangelingZerglingWings 36 none 0 0 0     0 Changeling         97.0 -                 5  0 0 .14
CreepTumorQueen     0 none    0   0 0   240 Queen             262.0 -                50  0 0 0
CreepTumorBurrowed  0 none    0   0 0     0 Queen             262.0 -                50  0 0 0
"""

_UPGRADES = """
Stimpack                   BarracksTechLab   167.0 100 100 2240 -
ShieldWall                 BarracksTechLab   167.1 100 100 1760 -
TerranInfantryWeaponsLevel1 EngineeringBay   164.2 100 100 2560 -
TerranInfantryArmorsLevel1 EngineeringBay    164.6 100 100 2560 -
TerranInfantryWeaponsLevel2 EngineeringBay   164.3 175 175 3040 Armory
WarpGateResearch           CyberneticsCore   238.6  50  50 2240 -
Charge                     TwilightCouncil   239.0 100 100 2240 -
BlinkTech                  TwilightCouncil   239.1 150 150 2720 -
ProtossGroundWeaponsLevel1 Forge             182.0 100 100 2880 -
ProtossGroundArmorsLevel1  Forge             182.3 100 100 2880 -
ProtossGroundWeaponsLevel2 Forge             182.1 150 150 3040 TwilightCouncil
zerglingmovementspeed      SpawningPool      192.1 100 100 1760 -
ZergMissileWeaponsLevel1   EvolutionChamber  187.6 100 100 2560 -
ZergMeleeWeaponsLevel1     EvolutionChamber  187.0 100 100 2560 -
ZergGroundArmorsLevel1     EvolutionChamber  187.3 150 150 2560 -
GlialReconstitution        RoachWarren       109.1 100 100 1760 Lair
Burrow                     Hatchery          191.3 100 100 1600 -
"""


def _ability(text: str) -> tuple[int, int]:
    link, _, index = text.partition(".")
    return int(link), int(index)


def _kind(line: str) -> Kind:
    name, link, role, minerals, vespene, food, loops, maker, ability, needs, *rest = line.split()
    hp, dps, reach, speed, *provides = rest
    return Kind(
        name, int(link), role, int(minerals), int(vespene), float(food), int(loops), maker,
        _ability(ability), needs.strip("-"), int(hp), float(dps), float(reach), float(speed),
        int(provides[0]) if provides else 0,
    )  # fmt: skip


def _upgrade(line: str) -> UpgradeKind:
    name, maker, ability, minerals, vespene, loops, needs = line.split()
    cost = int(minerals), int(vespene), int(loops)
    return UpgradeKind(name, maker, _ability(ability), *cost, needs.strip("-"))


KINDS = {kind.name: kind for kind in map(_kind, _UNITS.strip().splitlines())}
UPGRADES = {kind.name: kind for kind in map(_upgrade, _UPGRADES.strip().splitlines())}
