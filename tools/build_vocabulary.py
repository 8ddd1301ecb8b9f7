"""Builds the tables in sc2gym/data from the game's own data and two packages.

    python tools/build_vocabulary.py ../shared/data [OUTPUT_FOLDER]

Needs pysc2, s2clientprotocol and sc2reader; the tables need none of them. What comes from where,
of the files below `observations` and `replays`:
    unit types, abilities, upgrades   `ResponseData.pb`, the SC2 API's description of a build
    radii                             units in recorded observations beside it, else `RADII`
    raw functions                     pysc2.lib.actions
    ability links by build            sc2reader, under the names of `ResponseData.pb`
    evidence for links                what the replays show; see `vocabulary_evidence.py`
`observed_links.csv`, links that replays show and no table has, is kept by hand.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from vocabulary_evidence import Evidence, of_folder, products

from sc2gym.game.pysc2_loader import load_pysc2

# First build -> sc2reader's table. Its table for base 24944 is that of Wings of Liberty games
# played on Heart of the Swarm's client, which the build does not tell apart: left out.
LINK_TABLES = {
    **{build: f"WoL/{build}" for build in (16117, 17326, 18092, 19458, 22612)},
    **{build: f"HotS/{build}" for build in (23925, 24247, 24764)},
    38215: "LotV/base",
    **{build: f"LotV/{build}" for build in (44401, 47185, 48258, 53644, 54724, 59587, 70154)},
    **{build: f"LotV/{build}" for build in (76114, 77379, 80949, 89720, 96883, 97364)},
}

# A command of several buildings has one link, which the tables name after any of them.
# `shared_links.csv` says which of these the replays bear out and which stand by name alone.
SHARED = {
    "OrbitalCommandTrain": "CommandCenterTrain",
    "PlanetaryFortressTrain": "CommandCenterTrain",
    "LairTrain": "TrainQueen",
    "HiveTrain": "TrainQueen",
    "HiveResearch": "LairResearch",
    "GreaterSpireResearch": "SpireResearch",
    "ZerglingTrain": "MorphZerglingToBaneling",
    "MorphToBaneling": "MorphZerglingToBaneling",
    "BarracksBuild": "BarracksAddOns",
    "BarracksFlyingBuild": "BarracksAddOns",
    "FactoryBuild": "FactoryAddOns",
    "FactoryFlyingBuild": "FactoryAddOns",
    "StarportBuild": "StarportAddOns",
    "StarportFlyingBuild": "StarportAddOns",
    "CreepTumorBurrowedBuild": "CreepTumorBuild",
    "OracleBuild": "OracleStasisTrapBuild",
    "TemplarArchiveResearch": "TemplarArchivesResearch",
    "LurkerDenMPResearch": "LurkerDenResearch",
}

OF_MAPS = re.compile(r"Bridge|Door|Debris|Ramp(Left|Right)|Gate(Lower|Raise)")

# Radii in cells of what the recorded observations do not show.
RADII = {
    0.25: "Interceptor Larva Locust LocustMP LocustMPFlying",
    0.375: "SCV MULE Marine Reaper Ghost Probe HighTemplar DarkTemplar Drone Zergling Baneling "
    "DroneBurrowed ZerglingBurrowed BanelingBurrowed BanelingCocoon Changeling Broodling Egg",
    0.5: "WidowMine WidowMineBurrowed Zealot Sentry Adept Observer Disruptor Mutalisk Marauder",
    0.625: "Hellion HellionTank Raven Stalker Roach RoachBurrowed Hydralisk HydraliskBurrowed "
    "Infestor InfestorBurrowed Corruptor",
    0.75: "Cyclone VikingFighter VikingAssault Medivac Liberator LiberatorAG Banshee Phoenix "
    "Oracle Ravager RavagerCocoon Viper LurkerMP LurkerMPBurrowed SwarmHostMP",
    0.875: "SiegeTank SiegeTankSieged WarpPrism WarpPrismPhasing Queen QueenBurrowed VoidRay",
    1.0: "Thor ThorAP Immortal Colossus Archon BroodLord Ultralisk UltraliskBurrowed Overlord "
    "Overseer OverlordTransport OverlordCocoon CreepTumor CreepTumorQueen CreepTumorBurrowed",
    1.125: "Tempest SupplyDepot SupplyDepotLowered Pylon PhotonCannon ShieldBattery MissileTurret "
    "SpineCrawler SporeCrawler TechLab Reactor",
    1.25: "Battlecruiser Carrier",
    1.375: "Mothership",
    2.75: "CommandCenter OrbitalCommand PlanetaryFortress CommandCenterFlying "
    "OrbitalCommandFlying Nexus Hatchery Lair Hive",
}
STRUCTURE_RADIUS, UNIT_RADIUS = 1.8125, 0.5

WORKERS = {"SCV", "MULE", "Probe", "Drone", "DroneBurrowed"}
TOWN_HALLS = {
    "CommandCenter", "CommandCenterFlying", "OrbitalCommand", "OrbitalCommandFlying",
    "PlanetaryFortress", "Nexus", "Hatchery", "Lair", "Hive",
}  # fmt: skip
FLYING = {
    "VikingFighter", "Medivac", "Liberator", "LiberatorAG", "Raven", "Banshee", "Battlecruiser",
    "CommandCenterFlying", "OrbitalCommandFlying", "BarracksFlying", "FactoryFlying",
    "StarportFlying", "Observer", "ObserverSiegeMode", "WarpPrism", "WarpPrismPhasing", "Phoenix",
    "VoidRay", "Oracle", "Tempest", "Carrier", "Interceptor", "Mothership", "MothershipCore",
    "Overlord", "OverlordTransport", "OverlordCocoon", "TransportOverlordCocoon", "Overseer",
    "OverseerSiegeMode", "Mutalisk", "Corruptor", "BroodLord", "BroodLordCocoon", "Viper",
    "Scourge", "LocustMPFlying",
}  # fmt: skip
# What the API gives a race and a speed or weapon, yet nobody would count as army.
NOT_ARMY = {
    "Larva", "Egg", "Overlord", "OverlordTransport", "OverlordCocoon", "TransportOverlordCocoon",
    "Overseer", "OverseerSiegeMode", "Interceptor", "Broodling", "BroodlingEscort",
    "AdeptPhaseShift", "Changeling", "ChangelingZealot", "ChangelingMarine",
    "ChangelingMarineShield", "ChangelingZergling", "ChangelingZerglingWings", "KD8Charge",
    "ReleaseInterceptorsBeacon", "ParasiticBombDummy", "OracleStasisTrap", "AutoTurret",
    "PointDefenseDrone",
}  # fmt: skip


def write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Writes a table with a header row."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def radii(folder: Path) -> dict[int, float]:
    """{unit type: radius in cells}, as recorded observations give it."""
    from s2clientprotocol import sc2api_pb2

    seen: dict[int, float] = {}
    for path in sorted(folder.rglob("*ResponseObservation.pb")):
        message = sc2api_pb2.ResponseObservation.FromString(path.read_bytes())
        for unit in message.observation.raw_data.units:
            seen[unit.unit_type] = round(unit.radius, 4)
    return seen


def unit_type_rows(data: Any, seen: dict[int, float]) -> Iterable[Sequence[Any]]:
    """One row a unit type with a name, in order of ids."""
    from s2clientprotocol import common_pb2, data_pb2

    assumed = {name: radius for radius, names in RADII.items() for name in names.split()}
    for unit in data.units:
        if not unit.name:
            continue
        structure = data_pb2.Structure in unit.attributes
        name, race = unit.name, common_pb2.Race.Name(unit.race).replace("NoRace", "")
        worker, townhall = name in WORKERS, name in TOWN_HALLS
        # Types that no player can have carry no race, no cost and no food.
        army = (
            bool(race)
            and not structure
            and not worker
            and name not in NOT_ARMY
            and (unit.food_required > 0 or bool(unit.weapons))
        )
        traits = {
            "structure": structure, "worker": worker, "townhall": townhall, "army": army,
            "flying": name in FLYING, "mineral": unit.has_minerals, "geyser": unit.has_vespene,
        }  # fmt: skip
        radius = seen.get(unit.unit_id) or assumed.get(
            name, STRUCTURE_RADIUS if structure else UNIT_RADIUS
        )
        yield [
            unit.unit_id, name, race, " ".join(t for t in traits if traits[t]), f"{radius:g}",
            int(unit.unit_id in seen), f"{unit.movement_speed:g}", f"{unit.sight_range:g}",
            f"{unit.build_time:g}", f"{unit.food_required:g}", unit.mineral_cost, unit.vespene_cost,
            unit.ability_id,
        ]  # fmt: skip


def listed_links(data: Any) -> Mapping[int, Mapping[int, tuple[str, str]]]:
    """{build: {link: (sc2reader's name, the API's)}} for links that the API has a name for.

    Bridges, doors and other things of a map obey no player: where one shows as a command's name,
    the link has moved.
    """
    known = {
        a.link_name.lower(): a.link_name
        for a in data.abilities
        if a.link_name and not OF_MAPS.search(a.link_name)
    }
    folder = files("sc2reader.data")
    listed: dict[int, dict[int, tuple[str, str]]] = {}
    for build, table in LINK_TABLES.items():
        of_build = listed.setdefault(build, {})
        for line in folder.joinpath(f"{table}_abilities.csv").read_text("utf-8").split():
            link, name = line.split(",")[:2]
            # Some tables list what an ability makes after the ability, under the same link.
            if meant := known.get(SHARED.get(name, name).lower()):
                of_build.setdefault(int(link), (name, meant))
    return listed


def link_rows(listed: Mapping[int, Mapping[int, tuple[str, str]]]) -> Iterable[Sequence[Any]]:
    """(name, its links in every build of `LINK_TABLES`, parted by spaces)."""
    names = sorted({name for links in listed.values() for _, name in links.values()})
    cells: dict[tuple[str, int], list[int]] = {}
    for build, links in listed.items():
        for link, (_, name) in sorted(links.items()):
            cells.setdefault((name, build), []).append(link)
    for name in names:
        yield name, *(" ".join(map(str, cells.get((name, build), ()))) for build in listed)


def evidence_rows(shown: Evidence) -> Iterable[Sequence[Any]]:
    """A row for each command of the replays: how often given, how often followed.

    Its basis is "seen" where its product followed, "not followed" where it never did, and "by
    name" where it makes nothing that the tracker stream shows. Last, where births say which
    ability made them, the name most of them gave and how many.
    """
    from sc2gym import vocabulary

    names, makes = vocabulary.ability_names(), products()
    for key in sorted(shown.commands):
        ability, followed = shown.ability[key], shown.followed[key]
        basis = "by name"
        if makes.get(ability):
            basis = "seen" if followed else "not followed"
        said = [(count, name) for (of_key, name), count in shown.creators.items() if of_key == key]
        count, name = max(said, default=("", ""))
        yield *key, names.get(ability, ""), shown.commands[key], followed, basis, name, count


def shared_rows(
    listed: Mapping[int, Mapping[int, tuple[str, str]]], shown: Evidence
) -> Iterable[Sequence[Any]]:
    """A row for each name of `SHARED`: what the commands of the links listed under it show."""
    from sc2gym import vocabulary

    for alias, name in SHARED.items():
        commands = followed = 0
        for key, count in shown.commands.items():
            table = listed[vocabulary.abilities(key[0]).table_build]
            if table.get(key[1], ("",))[0] == alias:
                commands, followed = commands + count, followed + shown.followed[key]
        tables = sum(alias in (listed_as for listed_as, _ in t.values()) for t in listed.values())
        yield alias, name, tables, commands, followed, "seen" if followed else "by name"


def function_rows() -> Iterable[Sequence[Any]]:
    """pysc2's raw functions with the kind of their argument."""
    from pysc2.lib import actions

    for function in actions.RAW_FUNCTIONS:
        kind = function.function_type.__name__.removeprefix("raw_")
        row = [int(function.id), function.name, kind, function.ability_id, function.general_id]
        yield row


def main() -> None:
    """Builds every table."""
    data_folder = Path(sys.argv[1])
    source = data_folder / "observations"
    target = Path(
        sys.argv[2] if len(sys.argv) > 2 else Path(__file__).parent.parent / "sc2gym/data"
    )
    load_pysc2()
    from s2clientprotocol import sc2api_pb2

    data = sc2api_pb2.ResponseData.FromString((source / "ResponseData.pb").read_bytes())
    columns = (
        "id,name,race,traits,radius,radius_seen,movement_speed,sight_range,build_loops,"
        "food,minerals,vespene,ability"
    )
    write(target / "unit_types.csv", columns.split(","), unit_type_rows(data, radii(source)))
    write(
        target / "abilities.csv",
        ["id", "link_name", "index", "general_id", "name"],
        (
            [a.ability_id, a.link_name, a.link_index, a.remaps_to_ability_id, a.friendly_name]
            for a in data.abilities
            # Places that the game keeps free are named after their link: left out.
            if a.link_name
            and (a.remaps_to_ability_id or a.friendly_name != f"{a.link_name}_{a.link_index}")
        ),
    )
    write(
        target / "upgrades.csv",
        ["id", "name", "ability", "research_loops"],
        (
            [u.upgrade_id, u.name, u.ability_id, f"{u.research_time:g}"]
            for u in data.upgrades
            if u.name
        ),
    )
    listed = listed_links(data)
    write(target / "links.csv", ["name", *LINK_TABLES], link_rows(listed))
    write(
        target / "raw_functions.csv", ["id", "name", "kind", "ability", "general"], function_rows()
    )
    # What follows reads the tables of the installed package, which these should be.
    shown = Evidence()
    for of_file in of_folder(data_folder / "replays").values():
        shown.add(of_file)
    columns = "base_build,link,index,ability,commands,followed,basis,named,births"
    write(target / "link_evidence.csv", columns.split(","), evidence_rows(shown))
    columns = "listed_as,name,tables,commands,followed,basis"
    write(target / "shared_links.csv", columns.split(","), shared_rows(listed, shown))
    for path in sorted(target.glob("*.csv")):
        print(f"{path.name}: {len(path.read_text('utf-8').splitlines()) - 1} rows")
    repeated = [n for n, k in Counter(u.name for u in data.units if u.name).items() if k > 1]
    assert not repeated, repeated


if __name__ == "__main__":
    main()
