"""Whole replays: written, read back by s2protocol and mpyq, equal; real ones, bit for bit."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import mpyq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_testing_encoders import BUILDS, table, values

from sc2gym.errors import UnsupportedReplayError
from sc2gym.testing import (
    EncodeError,
    Member,
    PlayerSetup,
    ReplayWriter,
    describe,
    events,
    write_replay,
)
from sc2gym.testing.writer import write_attributes

STREAMS = ("tracker", "game", "message")


def own(event: dict[str, Any]) -> dict[str, Any]:
    """An event without what s2protocol adds about its place in the stream."""
    return {key: value for key, value in event.items() if key not in ("_eventid", "_bits")}


@pytest.mark.parametrize("stream", STREAMS)
def test_any_stream_comes_back(stream: str) -> None:
    protocol = table(80949)
    kinds = getattr(protocol, f"{stream}_event_types")
    writer = ReplayWriter(80949)

    @settings(max_examples=80, deadline=None)
    @given(st.data())
    def check(draws: st.DataObject) -> None:
        written, loop = [], 0
        for _ in range(draws.draw(st.integers(0, 5))):
            # Any step, so that the loop also wraps round.
            loop += draws.draw(st.integers(0, 200) | st.integers(0, (1 << 32) - 1))
            type_id, name = kinds[draws.draw(st.sampled_from(sorted(kinds)))]
            event = draws.draw(values(protocol.typeinfos, type_id, stream == "tracker"))
            event |= {"_event": name, "_gameloop": loop}
            if stream != "tracker":
                event["_userid"] = {"m_userId": draws.draw(st.integers(0, 31))}
            written.append(event)
        data = writer.events(stream, written)
        read = getattr(protocol, f"decode_replay_{stream}_events")(data)
        assert [own(event) for event in read] == written

    check()


def test_loops_step_back_as_the_game_writes_it() -> None:
    """s2protocol adds up without end; the game counts in 32 bits."""
    lines = [events.unit_done(loop, events.tag(1)) for loop in (3040, 0, 3787)]
    read = table(80949).decode_replay_tracker_events(ReplayWriter(80949).events("tracker", lines))
    assert [event["_gameloop"] & 0xFFFFFFFF for event in read] == [3040, 0, 3787]


@pytest.mark.parametrize("build", BUILDS)
def test_a_described_game_can_be_written_for_every_build(build: int) -> None:
    game = describe(
        [
            PlayerSetup("Anna", "Terran", "win", clan="TAG", mmr=4000, apm=120),
            PlayerSetup("Bot", "Zerg", "loss", computer=True, linked=False),
            PlayerSetup("Watcher", observer=True),
        ],
        loops=5000,
        build=build,
    )
    protocol = table(build)
    data = write_replay(**game)
    archive = mpyq.MPQArchive(io.BytesIO(data))
    header = protocol.decode_replay_header(archive.header["user_data_header"]["content"])
    assert header == game["header"]
    assert header["m_version"]["m_build"] == build
    assert header["m_elapsedGameLoops"] == 5000
    details = protocol.decode_replay_details(archive.read_file("replay.details"))
    assert details == game["details"]
    assert [player["m_result"] for player in details["m_playerList"]] == [1, 2]
    initial = protocol.decode_replay_initdata(archive.read_file("replay.initData"))
    assert initial == game["init_data"]
    users = initial["m_syncLobbyState"]["m_userInitialData"]
    assert [user["m_name"] for user in users] == [b"Anna", b"Watcher"]
    attributes = archive.read_file("replay.attributes.events")
    if build >= 17326:  # before, the stock decoder expects a byte more than files have
        assert protocol.decode_replay_attributes_events(attributes) == game["attributes"]
    assert json.loads(archive.read_file("replay.gamemetadata.json")) == game["metadata"]
    tracker = archive.read_file("replay.tracker.events")
    assert ("tracker_events" in game) == (build >= 26490)
    if build >= 27950:
        setups = list(protocol.decode_replay_tracker_events(tracker))
        assert [(setup["m_playerId"], setup["m_userId"]) for setup in setups] == [(1, 0), (2, None)]


def test_the_old_user_ids_are_five_bare_bits() -> None:
    """Tables before 2.0 leave the type unset, and s2protocol cannot read these streams."""
    writer = ReplayWriter(16939)
    data = writer.events("game", [{"_event": "UserFinishedLoadingSync", "_gameloop": 2,
                                   "_userid": 21}])  # fmt: skip
    decoder = table(16939).BitPackedDecoder(data, table(16939).typeinfos)
    assert decoder.instance(table(16939).svaruint32_typeid) == {"m_uint6": 2}
    assert decoder._int((0, 5)) == 21
    with pytest.raises(EncodeError, match=r"40 is outside 0\.\.31"):
        writer.events("game", [{"_event": "UserFinishedLoadingSync", "_gameloop": 2,
                                "_userid": 40}])  # fmt: skip


def test_real_files_encode_to_what_they_were(real_replays: list[Path]) -> None:
    """Whatever a stock table decodes to the last bit is written back bit for bit."""
    same: dict[str, int] = {}
    for path in real_replays:
        archive = mpyq.MPQArchive(io.BytesIO(path.read_bytes()), listfile=False)
        header = archive.header["user_data_header"]["content"]
        base = table(BUILDS[-1]).decode_replay_header(header)["m_version"]["m_baseBuild"]
        if base not in BUILDS:
            continue
        protocol, writer = table(base), ReplayWriter(base)
        assert writer.header(protocol.decode_replay_header(header)) == header
        parts = {
            "replay.details": (protocol.decode_replay_details, writer.details),
            "replay.initData": (protocol.decode_replay_initdata, writer.init_data),
            "replay.attributes.events": (
                protocol.decode_replay_attributes_events,
                write_attributes,
            ),
        }
        for stream in STREAMS:
            parts[f"replay.{stream}.events"] = (
                getattr(protocol, f"decode_replay_{stream}_events"),
                lambda read, stream=stream, writer=writer: writer.events(stream, read),
            )
        for name, (decode, encode) in parts.items():
            for member in (name, f"{name}.backup"):
                data = archive.read_file(member)
                if not data:
                    continue
                try:
                    value = decode(data)
                    value = value if isinstance(value, dict) else list(value)
                except Exception:  # the table is at fault: SOURCES and DESIGN say where
                    continue
                if name == "replay.attributes.events":
                    # Decoded, they are grouped and have lost the order they were in.
                    assert decode(encode(value)) == value
                    assert len(encode(value)) == len(data)
                elif (base, name) == (15405, "replay.details"):
                    # The first table lacks a player's id, which the game already wrote.
                    assert decode(encode(value)) == value
                    continue
                else:
                    assert encode(value) == data, (path.name, member)
                same[name] = same.get(name, 0) + 1
    assert same == {
        "replay.details": 39,
        "replay.initData": 39,
        "replay.attributes.events": 14,
        "replay.game.events": 20,
        "replay.tracker.events": 18,
        "replay.message.events": 18,
    }


def test_parts_can_be_left_out_replaced_and_damaged() -> None:
    game = describe([PlayerSetup(), PlayerSetup()], loops=10)
    game["metadata"] = None
    data = write_replay(
        **game,
        extra={
            "replay.details": Member(b"damaged"),
            "replay.details.backup": ReplayWriter(80949).details(game["details"]),
        },
        listfile=False,
    )
    archive = mpyq.MPQArchive(io.BytesIO(data), listfile=False)
    assert archive.read_file("replay.details") == b"damaged"
    assert archive.get_hash_table_entry("replay.gamemetadata.json") is None
    assert archive.get_hash_table_entry("replay.game.events") is None
    backup = archive.read_file("replay.details.backup")
    assert table(80949).decode_replay_details(backup) == game["details"]


def test_two_winners_ties_and_no_decision() -> None:
    results = ["win", "win", "tie", "undecided"]
    game = describe([PlayerSetup(result=result) for result in results], loops=10)
    assert [player["m_result"] for player in game["details"]["m_playerList"]] == [1, 1, 3, 0]
    assert [player["Result"] for player in game["metadata"]["Players"]] == [
        "Win",
        "Win",
        "Tie",
        "Undecided",
    ]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"_event": "Cmd"}, "[0]: field _gameloop is missing"),
        ({"_event": "Nonsense", "_gameloop": 0, "_userid": 1}, "[0]: unknown event 'Nonsense'"),
        ({"_gameloop": 0, "_userid": 1}, "[0]: unknown event None"),
        ({"_event": "GameUserLeave", "_gameloop": 0}, "[0]: expected a dict, got None"),
        (events.leave(0, 32), "[0].m_userId: 32 is outside 0..31"),
        (events.camera(0, 1, 300, 0), "[0].m_target.x: 76800 is outside 0..65535"),
        (events.camera(0, 1, 0, 0) | {"m_follow": 0}, "[0].m_follow: expected a bool, got 0"),
    ],
)
def test_an_event_that_does_not_fit_says_where(event: dict[str, Any], message: str) -> None:
    with pytest.raises(EncodeError) as caught:
        ReplayWriter(80949).events("game", [event])
    assert str(caught.value) == message


def test_a_build_without_tracker_events_and_one_without_a_table() -> None:
    with pytest.raises(EncodeError, match="build 15405 has no tracker events"):
        ReplayWriter(15405).events("tracker", [])
    with pytest.raises(UnsupportedReplayError, match="12345"):
        ReplayWriter(12345)


def test_positions_are_relative_and_split() -> None:
    where = [(index * 3, index % 200, 7) for index in range(300)]
    lines = events.unit_positions(240, reversed(where))
    assert [len(line["m_items"]) for line in lines] == [765, 135]
    read: list[tuple[int, int, int]] = []
    for line in lines:
        index = line["m_firstUnitIndex"]
        items = line["m_items"]
        for delta, x, y in zip(*(items[part::3] for part in range(3)), strict=True):
            index += delta
            read.append((index, x, y))
    assert read == where
    assert events.unit_positions(240, []) == []


def test_every_kind_of_event_fits_its_type() -> None:
    unit, other = events.tag(7, 3), events.tag(8)
    tracker = [
        events.unit_born(0, unit, "Marine", 1, 10, 20, creator=other, ability="BarracksTrain"),
        events.unit_born(0, other, "MineralField", 0, 10, 20),
        events.unit_init(1, unit, "Barracks", 1, 3, 4),
        events.unit_done(2, unit),
        events.unit_type_change(3, unit, "BarracksFlying"),
        events.unit_owner_change(4, unit, 2),
        *events.unit_positions(5, [(7, 1, 2)]),
        events.player_stats(160, 1, FoodUsed=12 * 4096, VespeneFriendlyFireTechnology=1),
        events.upgrade(161, 1, "Stimpack"),
        events.unit_died(162, unit, 1, 2, killer=other, killer_player=2),
        events.unit_died(163, other, 1, 2),
    ]
    game = [
        events.camera(1, 0, 31.25, 40.0),
        events.selection(2, 0, [(68, [unit]), (39, [other])], keep=[0]),
        events.control_group(2, 0, 5, 0),
        events.command(3, 0, None, point=(31.25, 40.5), flags=0x108),
        events.command(4, 0, (131, 2), point=(3, 4), unit=other, unit_link=1184),
        events.command(5, 0, (157, 0)),
        events.leave(6, 0),
    ]
    message = [events.chat(9, 1, "gg")]
    protocol, writer = table(80949), ReplayWriter(80949)
    for stream, written in zip(STREAMS, (tracker, game, message), strict=True):
        read = getattr(protocol, f"decode_replay_{stream}_events")(writer.events(stream, written))
        assert [own(event) for event in read] == written
    assert game[4]["m_data"]["TargetUnit"]["m_tag"] == other == (8 << 18) + 1
    with pytest.raises(TypeError, match="no such statistics: Food"):
        events.player_stats(160, 1, Food=1)
