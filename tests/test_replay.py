"""What a replay says about itself, on real files; the traps of the tricky ones."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sc2gym import protocol
from sc2gym.columns import NULL
from sc2gym.errors import CorruptReplayError, ReplayError, UnsupportedReplayError
from sc2gym.replay import Replay
from sc2gym.testing import PlayerSetup, small_replay

COUNTS = [
    (6615, 1148), (6906, 2035), (10644, 3782), (9576, 2621), (2335, 905), (3951, 1356),
    (3468, 1984), (4273, 2496), (1863, 1418),
]  # fmt: skip


@pytest.fixture
def tricky(data_dir: Path) -> Path:
    return data_dir / "replays" / "tricky"


@pytest.fixture
def versions(data_dir: Path) -> Path:
    return data_dir / "replays" / "versions"


def total(replay: Replay, stream: protocol.Stream) -> int:
    return sum(replay.event_counts(stream).values())


def test_the_pysc2_replays(pysc2_replays: list[Path]) -> None:
    assert len(pysc2_replays) == 9
    for number, (path, counts) in enumerate(zip(pysc2_replays, COUNTS, strict=True), 1):
        replay = Replay.open(path)
        assert (total(replay, "game"), total(replay, "tracker")) == counts
        assert replay.base_build in (75689, 75800)
        assert replay.build == replay.base_build
        assert set(replay.table_builds.values()) == {replay.base_build}
        assert replay.details["m_cacheHandles"] == []
        assert replay.attributes == {}
        assert [player.player_id for player in replay.players] == [1, 2]
        assert [player.is_ai for player in replay.players] == [False, number >= 5]
        assert [player.user_id for player in replay.players] == [0, None if number >= 5 else 1]
        assert {player.result for player in replay.players} == {"win", "loss"}
        assert min(replay.map_size) >= 64
        assert replay.loops_per_second == 22.4


# -- the tricky files ---------------------------------------------------------------------


def test_only_backups_and_no_tracker_events(tricky: Path) -> None:
    replay = Replay.open(tricky / "4.1.2.60604-anonymised.SC2Replay")
    assert replay.member("replay.details") is None
    assert replay.member("replay.initData") is None
    assert (replay.base_build, replay.build, replay.game_loops) == (60321, 60604, 24023)
    assert replay.version == "4.1.2.60604"
    assert total(replay, "game") == 9840
    assert not replay.has_stream("tracker")
    assert total(replay, "tracker") == 0
    assert [(p.name, p.race, p.result, p.mmr) for p in replay.players] == [
        ("", "Terran", "loss", 3825),
        ("", "Protoss", "win", 3432),
    ]


def test_loops_may_step_back(tricky: Path) -> None:
    replay = Replay.open(tricky / "2.1.3.28667-loop-rewind.SC2Replay")
    counts = replay.event_counts("tracker")
    assert sum(counts.values()) == 362
    loops = np.empty(362, np.int64)
    for events in replay.events("tracker", dict.fromkeys(counts, ())).values():
        loops[events["_index"]] = events["_gameloop"]
    assert (loops[309], loops[310]) == (3040, 0)
    assert np.flatnonzero(np.diff(loops) < 0).tolist() == [309]
    assert loops.max() == loops[-1] == replay.game_loops == 3787


def test_the_listfile_is_not_needed(tricky: Path) -> None:
    replay = Replay.open(tricky / "1.1.3.16939-encrypted-listfile.SC2Replay")
    with pytest.raises(UnsupportedReplayError, match="encrypted"):
        replay.member("(listfile)")
    assert total(replay, "game") == 2964
    users = replay.events("game", {"Cmd": ()})["Cmd"]["_userid"]
    assert set(users.tolist()) == {1, 2}  # before 2.0 the stream names players, not users
    assert [player.race for player in replay.players] == ["Terran", "Protoss"]  # saved in Korean


def test_resumed_names_the_build(tricky: Path) -> None:
    replay = Replay.open(tricky / "2.0.3.24764-resumed.SC2Replay")
    with pytest.raises(UnsupportedReplayError, match="24764"):
        replay.events("game", {"Cmd": None})
    assert [player.name for player in replay.players] == ["NeoSteele", "Zoulas"]


def test_observers_apart(tricky: Path) -> None:
    replay = Replay.open(tricky / "gameheart-observers.SC2Replay")
    assert [(p.name, p.race, p.result) for p in replay.players] == [
        ("SjoWBBII", "Terran", "loss"),
        ("Stardust", "Protoss", "win"),
    ]
    with pytest.raises(CorruptReplayError, match="byte 4105: game event 418: id 14"):
        replay.events("game", {"Cmd": None})
    assert total(replay, "tracker") == 1084  # the other streams lose nothing by it


def test_tracker_events_agree_on_who_plays(real_replays: list[Path]) -> None:
    """PlayerSetup (from 2.0.11 on) names the user of each player: ours are the same."""
    checked = 0
    for path in real_replays:
        replay = Replay.open(path)
        if "PlayerSetup" not in replay.event_counts("tracker"):
            continue
        setup = replay.events("tracker", {"PlayerSetup": None})["PlayerSetup"]
        users = {
            player: None if user == NULL else user
            for player, user, kind in setup[["m_playerId", "m_userId", "m_type"]].tolist()
            if kind == 1 or user == NULL
        }
        for player in replay.players:
            if player.player_id in users:
                assert users[player.player_id] == player.user_id, path.name
                checked += 1
    assert checked > 30


def test_units_never_born_are_read(tricky: Path) -> None:
    replay = Replay.open(tricky / "2.0.11.26825-bad-unit-ids.SC2Replay")
    events = replay.events("tracker", dict.fromkeys(replay.event_counts("tracker")))
    assert sum(len(events[name]) for name in replay.event_counts("tracker")) == 393


def test_coop(versions: Path) -> None:
    replay = Replay.open(versions / "4.11.0.77379-coop.SC2Replay")
    assert [p.name for p in replay.players if not p.is_ai] == ["daniel", "TalvNNN"]
    assert {p.result for p in replay.players} == {"undecided"}


# -- policies and records -----------------------------------------------------------------


def test_builds_without_a_table(versions: Path) -> None:
    path = versions / "3.0.0.38215-a.SC2Replay"
    replay = Replay.open(path)
    assert total(replay, "game") == 6140
    assert replay.table_builds["replay.game.events"] == 51702
    strict = Replay.open(path, builds="strict")
    for read in (lambda: strict.details, lambda: total(strict, "game")):
        with pytest.raises(UnsupportedReplayError, match="build 38215"):
            read()
    with pytest.raises(ValueError, match="builds must be"):
        Replay.open(path, builds="any")


def test_a_build_newer_than_every_table() -> None:
    newest = protocol.known_builds()[-1]
    assert protocol.candidates(newest + 1, "game", "nearest") == (newest,)
    assert protocol.candidates(newest, "game", "nearest")[0] == newest
    assert protocol.candidates(23925, "game", "nearest") == (24944, 23260)
    assert protocol.candidates(24944, "tracker", "nearest")[0] == 26490
    with pytest.raises(UnsupportedReplayError, match="tracker events for build 24944"):
        protocol.candidates(24944, "tracker", "strict")


def test_speed() -> None:
    for speed, loops in enumerate((9.6, 12.8, 16.0, 19.2, 22.4)):
        assert Replay.open(small_replay(game_speed=speed)).loops_per_second == loops


# -- columns ------------------------------------------------------------------------------


def test_columns_asked_for(pysc2_replays: list[Path]) -> None:
    replay = Replay.open(pysc2_replays[0])
    events = replay.events(
        "game",
        {"Cmd": ["m_abil.m_abilLink", "m_data?", "m_data.TargetPoint.x"], "CameraUpdate": ()},
    )
    commands = events["Cmd"]
    assert commands.dtype.names == (
        "_gameloop", "_userid", "_index", "m_abil.m_abilLink", "m_data?", "m_data.TargetPoint.x",
    )  # fmt: skip
    assert events["CameraUpdate"].dtype.names == ("_gameloop", "_userid", "_index")
    alternatives = replay.choices("game", "Cmd", "m_data")
    points = commands["m_data?"] == {name: tag for tag, name in alternatives.items()}["TargetPoint"]
    assert 0 < points.sum() < len(commands)
    assert ((commands["m_data.TargetPoint.x"] != NULL) == points).all()
    assert len(commands) == replay.event_counts("game")["Cmd"]
    both = np.concatenate([array["_index"] for array in events.values()])
    assert len(np.unique(both)) == len(both)


def test_repeated_fields_are_child_tables(pysc2_replays: list[Path]) -> None:
    replay = Replay.open(pysc2_replays[0])
    events = replay.events("game", {"SelectionDelta": ["m_delta.m_addUnitTags"]})
    parents, tags = events["SelectionDelta"], events["SelectionDelta.m_delta.m_addUnitTags"]
    pairs = parents["m_delta.m_addUnitTags"]
    assert pairs[:, 1].sum() == len(tags)
    assert (pairs[1:, 0] == pairs[:-1].sum(axis=1)).all()
    assert (tags["value"] != NULL).all()


def test_null_is_not_zero(pysc2_replays: list[Path]) -> None:
    died = Replay.open(pysc2_replays[2]).events("tracker", {"UnitDied": None})["UnitDied"]
    killer = died["m_killerPlayerId"]
    assert (killer == NULL).any()
    assert set(killer[killer != NULL].tolist()) <= {0, 1, 2}
    assert (died["m_killerPlayerId?"] == (killer != NULL)).all()


def test_blobs(pysc2_replays: list[Path]) -> None:
    replay = Replay.open(pysc2_replays[0])
    born = replay.events("tracker", {"UnitBorn": ["m_unitTypeName"]})["UnitBorn"]
    names = {replay.blob("tracker", pair) for pair in born["m_unitTypeName"]}
    assert {b"Nexus", b"Probe"} <= names
    assert replay.blob("tracker", (-1, -1)) is None


def test_misspelt(pysc2_replays: list[Path]) -> None:
    replay = Replay.open(pysc2_replays[0])
    with pytest.raises(ValueError, match="no event 'Cmdd'; there are"):
        replay.events("game", {"Cmdd": None})
    with pytest.raises(ValueError, match="no field 'm_abill'; there are"):
        replay.events("game", {"Cmd": ["m_abill"]})
    with pytest.raises(ValueError, match="stream must be one of"):
        replay.events("games", {})
    with pytest.raises(ValueError, match="no choice"):
        replay.choices("game", "Cmd", "m_abil")


# -- carrying replays about ----------------------------------------------------------------


def test_pickles_by_path_or_by_bytes(tmp_path: Path) -> None:
    data = small_replay()
    path = tmp_path / "game.SC2Replay"
    path.write_bytes(data)
    opened = Replay.open(path)
    assert len(opened.players) == 2
    stored = pickle.dumps(opened)
    assert len(stored) < 500
    again = pickle.loads(stored)
    assert (again.name, again.content_hash) == (opened.name, opened.content_hash)
    assert again.players == opened.players

    held = Replay.open(data, name="held")
    again = pickle.loads(pickle.dumps(held))
    assert (again.name, again.details) == ("held", held.details)

    path.write_bytes(small_replay([PlayerSetup("Else"), PlayerSetup("Other")]))
    with pytest.raises(ReplayError, match="changed"):
        pickle.loads(stored)


def test_s2protocol_is_read_not_run(tmp_path: Path) -> None:
    """Its `versions` package does not import on Python 3.12: it is not imported at all."""
    path = tmp_path / "game.SC2Replay"
    path.write_bytes(small_replay())
    code = (
        "import sys; from sc2gym.replay import Replay; r = Replay.open(sys.argv[1]);"
        "r.players; r.event_counts('game');"
        "assert not [m for m in sys.modules if m.startswith('s2protocol')], sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(path)], check=True)


def test_columns_come_alike_while_events_are_found_and_after(real_replays: list[Path]) -> None:
    wanted = {
        "game": {"Cmd": None, "SelectionDelta": None, "CameraUpdate": ["m_target.x"]},
        "tracker": {"UnitBorn": None, "UnitPositions": None, "PlayerStats": ["m_playerId"]},
    }
    for file in real_replays[::4]:
        at_once, after = Replay.open(file), Replay.open(file)
        for stream, fields in wanted.items():
            try:
                after.timeline(stream)
            except ReplayError:
                continue
            expected = after.events(stream, fields, missing="skip")
            found = at_once.events(stream, fields, missing="skip")
            assert list(found) == list(expected)
            for name in found:
                np.testing.assert_array_equal(found[name], expected[name])
            np.testing.assert_array_equal(at_once.timeline(stream), after.timeline(stream))


def test_what_a_type_table_lacks_is_an_error_or_left_out(pysc2_replays: list[Path]) -> None:
    for found_before in (False, True):
        replay = Replay.open(pysc2_replays[0])
        if found_before:
            replay.timeline("game")
        with pytest.raises(ValueError, match="no event 'Dance'; there are"):
            replay.events("game", {"Dance": None})
        with pytest.raises(ValueError, match="no field 'm_colour'; there are"):
            replay.events("game", {"Cmd": ["m_cmdFlags", "m_colour"]})
        found = replay.events(
            "game", {"Dance": None, "Cmd": ["m_cmdFlags", "m_colour"]}, missing="skip"
        )
        assert list(found) == ["Cmd"]
        assert found["Cmd"].dtype.names == ("_gameloop", "_userid", "_index", "m_cmdFlags")
