"""Build orders, and what a commander wants after them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GAS", "HALL", "PLANS", "SUPPLY", "WORKER", "Plan"]

WORKER = {"Terran": "SCV", "Protoss": "Probe", "Zerg": "Drone"}
SUPPLY = {"Terran": "SupplyDepot", "Protoss": "Pylon", "Zerg": "Overlord"}
GAS = {"Terran": "Refinery", "Protoss": "Assimilator", "Zerg": "Extractor"}
HALL = {"Terran": "CommandCenter", "Protoss": "Nexus", "Zerg": "Hatchery"}


@dataclass(frozen=True)
class Plan:
    """A build order and what follows it.

    Attributes:
        order: (supply used, what): a structure, unit or upgrade, begun once that supply is reached.
        army: Units and how many of each for one of the others.
        more: Production structures to add while there is money.
        upgrades: What is researched after the build order.
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
            "22 Queen, 22 zerglingmovementspeed, 23 Zergling, 30 Hatchery, 32 RoachWarren, "
            "33 Queen, 36 Extractor, 38 Lair, 42 EvolutionChamber, 44 ZergMissileWeaponsLevel1, "
            "50 Extractor, 56 HydraliskDen, 58 GlialReconstitution, 60 Overseer, 62 Burrow"
        ),
        {"Roach": 4, "Hydralisk": 2, "Zergling": 3},
        ("Hatchery",),
        ("ZergGroundArmorsLevel1",),
        workers=56,
        attacks=(6000, 30),
    ),
    "Zerg rush": Plan(
        _order(
            "12 SpawningPool, 13 Overlord, 14 Extractor, 15 Zergling, 17 Zergling, 18 Queen, "
            "20 zerglingmovementspeed, 22 BanelingNest, 30 Hatchery, 34 Queen, 40 RoachWarren"
        ),
        {"Zergling": 6, "Baneling": 1, "Roach": 2},
        ("Hatchery",),
        ("ZergMeleeWeaponsLevel1",),
        workers=19,
        halls=2,
        attacks=(3000, 6),
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
