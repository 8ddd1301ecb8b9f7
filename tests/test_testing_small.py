"""Small games: the edge cases other tests are built from, read by s2protocol and sc2reader."""

from __future__ import annotations

import io
from typing import Any

import mpyq
import pytest
import sc2reader
from test_testing_encoders import BUILDS, table

from sc2gym.testing import FIRST_FREE_INDEX, EncodeError, PlayerSetup, events, small_replay

WIN, LOSS = PlayerSetup("A", "Terran", "win"), PlayerSetup("B", "Protoss", "loss")


def stream(data: bytes, name: str) -> list[dict[str, Any]]:
    member = mpyq.MPQArchive(io.BytesIO(data)).read_file(f"replay.{name}.events")
    return list(getattr(table(80949), f"decode_replay_{name}_events")(member or b""))


def sc2reader_view(data: bytes) -> Any:
    return sc2reader.load_replay(io.BytesIO(data), load_level=4)


@pytest.mark.parametrize(
    "players",
    [
        [WIN, LOSS],
        [WIN, PlayerSetup("C", "Zerg", "win")],
        [PlayerSetup("A", result="undecided"), PlayerSetup("B", result="undecided")],
        [PlayerSetup("A", result="tie"), PlayerSetup("B", result="tie")],
        [WIN, LOSS, PlayerSetup("C", "Zerg", "loss")],
        [WIN, PlayerSetup("Bot", "Zerg", "loss", computer=True)],
        [WIN, LOSS, PlayerSetup("Watcher", observer=True)],
        [PlayerSetup("A", team=0), PlayerSetup("B", team=0), PlayerSetup("C", team=1)],
    ],
    ids=["1v1", "two winners", "undecided", "tie", "three", "computer", "observer", "teams"],
)
def test_all_kinds_of_lobby(players: list[PlayerSetup]) -> None:
    replay = sc2reader_view(small_replay(players))
    playing = [player for player in players if not player.observer]
    assert [player.name for player in replay.players] == [player.name for player in playing]
    assert [player.play_race for player in replay.players] == [player.race for player in playing]
    assert len(replay.observers) == len(players) - len(playing)
    assert len(replay.teams) == len({
        order if player.team is None else player.team for order, player in enumerate(playing)
    })  # fmt: skip
    results = {"win": "Win", "loss": "Loss"}
    for seen, player in zip(replay.players, playing, strict=True):
        if player.result in results:
            assert seen.result == results[player.result]


def test_events_are_put_in_their_place() -> None:
    tag = events.tag(FIRST_FREE_INDEX, 3)
    data = small_replay(
        tracker=[
            events.unit_born(100, tag, "Marine", 1, 30, 30),
            events.unit_died(160, tag, 31, 30),
        ],
        game=[events.command(90, 0, (161, 0)), events.leave(400, 1)],
        message=[events.chat(5, 0, "hi")],
    )
    tracker = stream(data, "tracker")
    loops = [event["_gameloop"] for event in tracker]
    assert loops == sorted(loops)
    died = next(event for event in tracker if event["_event"].endswith("UnitDiedEvent"))
    assert died["m_killerPlayerId"] is None
    assert died["m_unitTagRecycle"] == 3
    assert tracker.index(died) > max(
        place for place, event in enumerate(tracker) if "Stats" in event["_event"]
        and event["_gameloop"] == 160
    )  # fmt: skip
    assert [event["_gameloop"] for event in stream(data, "game")] == [2, 3, 90, 400, 800]
    assert stream(data, "message")[0]["m_string"] == b"hi"
    assert max(event["m_unitTagIndex"] for event in tracker if "m_unitTypeName" in event
               and event["_gameloop"] == 0) < FIRST_FREE_INDEX  # fmt: skip


def test_loops_that_step_back_stay_where_they_are_put() -> None:
    data = small_replay(
        tracker=[events.upgrade(900, 1, "Stimpack"), events.upgrade(0, 1, "Burrow")]
    )
    last = [event["_gameloop"] & 0xFFFFFFFF for event in stream(data, "tracker")][-2:]
    assert last == [900, 0]


def test_nobody_need_leave_and_nobody_need_be_linked() -> None:
    players = [PlayerSetup("A", linked=False), PlayerSetup("B", linked=False)]
    data = small_replay(players, leave=False)
    assert not [event for event in stream(data, "game") if "Leave" in event["_event"]]
    archive = mpyq.MPQArchive(io.BytesIO(data))
    details = table(80949).decode_replay_details(archive.read_file("replay.details"))
    assert [player["m_workingSetSlotId"] for player in details["m_playerList"]] == [None, None]


@pytest.mark.parametrize("build", [24944, 26490, 38215, 57507, 75689, 98310])
def test_other_builds_since_2_0(build: int) -> None:
    build = min(known for known in BUILDS if known >= build)
    data = small_replay(build=build, game=[events.command(9, 0, (1, 0), unit=5)])
    archive = mpyq.MPQArchive(io.BytesIO(data))
    read = list(table(build).decode_replay_game_events(archive.read_file("replay.game.events")))
    assert [event["_gameloop"] for event in read] == [2, 3, 9, 800]


def test_a_build_whose_events_differ_says_so() -> None:
    with pytest.raises(EncodeError, match=r"unknown event 'NNet.Game.SGameUserLeaveEvent'"):
        small_replay(build=16561)
