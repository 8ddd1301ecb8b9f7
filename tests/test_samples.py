"""The games that ship with the package: what they are made from, and who else can read them."""

from __future__ import annotations

import importlib.util
import io
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import mpyq
import pytest
import sc2reader
from test_testing_encoders import table

ROOT = Path(__file__).parents[1]
SAMPLES = sorted((ROOT / "sc2gym" / "samples").glob("*.SC2Replay"))
KNOWN = pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
PROTOCOL = table(80949)


@cache
def maker() -> ModuleType:
    """The script that makes them."""
    spec = importlib.util.spec_from_file_location("make_samples", ROOT / "tools/make_samples.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def archive(path: Path) -> mpyq.MPQArchive:
    return mpyq.MPQArchive(io.BytesIO(path.read_bytes()))


@cache
def stream(path: Path, name: str) -> list[dict[str, Any]]:
    data = archive(path).read_file(f"replay.{name}.events")
    return list(getattr(PROTOCOL, f"decode_replay_{name}_events")(data))


@cache
def sc2reader_view(path: Path) -> Any:
    return sc2reader.load_replay(io.BytesIO(path.read_bytes()), load_level=4)


def short(event: dict[str, Any]) -> str:
    return event["_event"].rpartition(".")[2].removeprefix("S").removesuffix("Event")


def test_they_are_few_small_and_of_every_race() -> None:
    assert [path.stem for path in SAMPLES] == sorted(maker().SAMPLES)
    sizes = [path.stat().st_size for path in SAMPLES]
    assert max(sizes) < 60_000
    assert sum(sizes) < 300_000
    winners, seconds = Counter(), []
    for path in SAMPLES:
        replay = sc2reader_view(path)
        seconds.append(replay.frames / 22.4)
        winners[replay.winner.players[0].play_race] += 1
        winners[f"player {replay.winner.players[0].pid}"] += 1
    assert set(winners) == {"Terran", "Protoss", "Zerg", "player 1", "player 2"}
    assert min(seconds) < 330
    assert 840 < max(seconds) < 930


def test_every_kind_of_event_and_change_is_in_one_of_them() -> None:
    tracker = Counter(short(event) for path in SAMPLES for event in stream(path, "tracker"))
    assert set(tracker) == {
        "PlayerSetup", "PlayerStats", "UnitBorn", "UnitDied", "UnitTypeChange", "Upgrade",
        "UnitInit", "UnitDone", "UnitPositions", "UnitOwnerChange",
    }  # fmt: skip
    changes = {
        event["m_unitTypeName"].decode()
        for path in SAMPLES
        for event in stream(path, "tracker")
        if short(event) == "UnitTypeChange"
    }
    assert changes >= {
        "Egg", "Larva", "Lair", "OverlordCocoon", "Overseer", "BanelingCocoon", "Zergling",
        "RoachBurrowed", "Roach", "CreepTumorBurrowed", "OrbitalCommand", "SupplyDepotLowered",
        "SiegeTankSieged", "SiegeTank", "BarracksFlying", "Barracks", "WarpGate",
    }  # fmt: skip
    game = Counter(short(event) for path in SAMPLES for event in stream(path, "game"))
    assert set(game) == {
        "CameraUpdate", "SelectionDelta", "ControlGroupUpdate", "Cmd", "CmdUpdateTargetPoint",
        "CommandManagerState", "GameUserLeave",
    }  # fmt: skip


@KNOWN
def test_the_script_makes_these_very_bytes(path: Path) -> None:
    assert maker().replay(maker().SAMPLES[path.stem]) == path.read_bytes()


@KNOWN
def test_s2protocol_and_mpyq_read_them(path: Path) -> None:
    content = archive(path).header["user_data_header"]["content"]
    header = PROTOCOL.decode_replay_header(content)
    assert header["m_signature"] == b"StarCraft II replay\x1b11"
    assert header["m_version"]["m_baseBuild"] == 80949
    end = header["m_elapsedGameLoops"]
    for name in ("game", "tracker", "message"):
        loops = [event["_gameloop"] for event in stream(path, name)]
        assert loops == sorted(loops)
        assert loops[-1] <= end
    details = PROTOCOL.decode_replay_details(archive(path).read_file("replay.details"))
    assert sorted(player["m_result"] for player in details["m_playerList"]) == [1, 2]
    for file in archive(path).files:
        assert archive(path).read_file(file.decode())


@KNOWN
def test_sc2reader_agrees_about_what_it_sees(path: Path) -> None:
    replay = sc2reader_view(path)
    match = maker().SAMPLES[path.stem]
    assert [player.name for player in replay.players] == list(match.names)
    assert [player.play_race for player in replay.players] == [
        plan.split()[0] for plan in match.plans
    ]
    assert [player.init_data["scaled_rating"] for player in replay.players] == list(match.mmr)
    assert replay.real_type == "1v1"
    assert replay.expansion == "LotV"
    assert replay.speed == "Faster"
    assert replay.map_name == "Sable Crossing"
    assert len(replay.tracker_events) == len(stream(path, "tracker"))
    assert {message.text for message in replay.messages} >= {"glhf", "gg"}
    # The loser says it and leaves.
    loser = next(player for player in replay.players if player.result == "Loss")
    leaves = [event for event in replay.game_events if event.name == "PlayerLeaveEvent"]
    assert leaves[0].player is loser
    assert len(leaves) == 2


@KNOWN
def test_every_command_is_one_that_sc2reader_knows_and_does_what_it_says(path: Path) -> None:
    """What is trained is born of its producer, what is researched arrives."""
    commands = [
        event for event in sc2reader_view(path).game_events if event.name.endswith("CommandEvent")
    ]
    commands = [event for event in commands if not event.name.startswith("Update")]
    names = Counter((event.player.pid, event.ability_name) for event in commands)
    assert not [name for _, name in names if name is None or "Unknown" in name]
    arrived = {
        (event["m_playerId"], event["m_upgradeTypeName"].decode())
        for event in stream(path, "tracker")
        if short(event) == "Upgrade"
    }
    for player, upgrade in arrived:
        assert names[player, RESEARCH[upgrade]] == 1, upgrade
    born = Counter(
        (event["m_controlPlayerId"], event["m_unitTypeName"].decode())
        for event in stream(path, "tracker")
        if short(event) in ("UnitBorn", "UnitInit") and event["_gameloop"] > 0
    )
    for (player, unit), count in born.items():
        for command in MAKES.get(unit, ()):
            if names[player, command]:
                break
        else:
            assert unit not in MAKES, (player, unit, count)
    assert any(unit in MAKES for _, unit in born)


RESEARCH = {
    "Stimpack": "ResearchStimpack",
    "ShieldWall": "ResearchCombatShield",
    "TerranInfantryWeaponsLevel1": "UpgradeTerranInfantryWeapons1",
    "TerranInfantryWeaponsLevel2": "UpgradeTerranInfantryWeapons2",
    "TerranInfantryArmorsLevel1": "UpgradeTerranInfantryArmor1",
    "WarpGateResearch": "ResearchWarpGate",
    "Charge": "ResearchCharge",
    "BlinkTech": "ResearchBlink",
    "ProtossGroundWeaponsLevel1": "UpgradeGroundWeapons1",
    "ProtossGroundWeaponsLevel2": "UpgradeGroundWeapons2",
    "ProtossGroundArmorsLevel1": "UpgradeGroundArmor1",
    "zerglingmovementspeed": "EvolveMetabolicBoost",
    "ZergMissileWeaponsLevel1": "ResearchZergMissileWeaponsLevel1",
    "ZergMeleeWeaponsLevel1": "ResearchZergMeleeWeaponsLevel1",
    "ZergGroundArmorsLevel1": "ResearchZergGroundArmorsLevel1",
    "GlialReconstitution": "EvolveGlialReconstitution",
    "Burrow": "ResearchBurrow",
}
TRAINED = """
    SCV Marine Marauder Reaper Medivac Probe Zealot Stalker Sentry Adept HighTemplar Immortal
    Observer Colossus Drone Overlord Zergling Roach Hydralisk Mutalisk Queen Baneling
    CommandCenter SupplyDepot Refinery Barracks EngineeringBay Factory Starport Armory
    BarracksTechLab BarracksReactor FactoryTechLab StarportReactor Nexus Pylon Assimilator
    Gateway Forge TwilightCouncil TemplarArchive RoboticsBay RoboticsFacility CyberneticsCore
    Hatchery Extractor SpawningPool EvolutionChamber HydraliskDen Spire BanelingNest RoachWarren
    SiegeTank Hellion
"""
MAKES = {
    "VikingFighter": ("TrainViking",),
    "MULE": ("CalldownMULE",),
    "CreepTumorQueen": ("CreepTumor",),
    "Archon": ("ArchonWarpSelection",),
} | {
    unit: (f"Train{unit}", f"Build{unit}", f"WarpIn{unit}", f"Morph{unit}")
    for unit in TRAINED.split()
}
