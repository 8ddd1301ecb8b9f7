"""Written replays through our own reader: every field of every event is what was put in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_samples import KNOWN
from test_testing_encoders import table, values

from sc2gym.errors import UnsupportedReplayError
from sc2gym.replay import Replay
from sc2gym.testing import Member, PlayerSetup, describe, small_replay, write_replay

NULL = np.iinfo(np.int64).min
STREAMS = ("game", "tracker", "message")


def short(event: dict[str, Any]) -> str:
    return event["_event"].rpartition(".")[2].removeprefix("S").removesuffix("Event")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, int | float]]:
    """(column, number) of everything in an event that is one number."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if not name.startswith("_"):
                yield from leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, (bool, int)):
        yield path, value


def same(replay: Replay, stream: str, written: list[dict[str, Any]]) -> int:
    """Holds the reader's columns against the events; returns how many values were compared."""
    compared = 0
    rows: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for index, event in enumerate(written):
        rows.setdefault(short(event), []).append((index, event))
    assert replay.event_counts(stream) == {name: len(of) for name, of in rows.items()}
    for name, columns in replay.events(stream, dict.fromkeys(rows)).items():
        if name not in rows:
            continue  # the child table of a repeated field
        assert columns["_index"].tolist() == [index for index, _ in rows[name]]
        assert columns["_gameloop"].tolist() == [
            event["_gameloop"] & 0xFFFFFFFF for _, event in rows[name]
        ]
        if stream != "tracker":
            users = [event["_userid"]["m_userId"] for _, event in rows[name]]
            assert columns["_userid"].tolist() == users
        expected = [dict(leaves(event)) for _, event in rows[name]]
        known = {path for row in expected for path in row}
        assert known <= set(columns.dtype.names)
        for path in known:
            column = columns[path]
            for row, value in zip(expected, column.tolist(), strict=True):
                if path in row:
                    assert value == row[path], (name, path)
                elif column.dtype == np.int64:
                    assert value == NULL, (name, path)
                compared += 1
    return compared


@KNOWN
def test_the_samples(path: Path) -> None:
    replay = Replay.open(path)
    for stream in STREAMS:
        data = replay.member(f"replay.{stream}.events")
        written = list(getattr(table(80949), f"decode_replay_{stream}_events")(data))
        compared = same(replay, stream, written)
        assert compared > (1000 if stream != "message" else 2)
    assert replay.map_name == "Sable Crossing"
    assert replay.map_size == (144, 136)
    assert sorted(player.result for player in replay.players) == ["loss", "win"]
    assert [player.player_id for player in replay.players] == [1, 2]
    assert all(player.mmr > 3000 and player.apm > 40 for player in replay.players)
    assert set(replay.table_builds.values()) == {80949}


@pytest.mark.parametrize("build", [24944, 26490, 51702, 80949, 98310])
@pytest.mark.parametrize("stream", STREAMS)
def test_any_stream_in_a_replay(stream: str, build: int) -> None:
    kinds = getattr(table(build), f"{stream}_event_types")
    if stream == "tracker" and table(build).tracker_eventid_typeid is None:
        pytest.skip(f"the table of {build} has no tracker events")
    parts = describe([PlayerSetup(), PlayerSetup()], loops=10, build=build)

    @settings(max_examples=25, deadline=None)
    @given(st.data())
    def check(draws: st.DataObject) -> None:
        written, loop = [], 0
        for _ in range(draws.draw(st.integers(1, 4))):
            loop += draws.draw(st.integers(0, 200) | st.integers(0, (1 << 32) - 1))
            type_id, name = kinds[draws.draw(st.sampled_from(sorted(kinds)))]
            event = draws.draw(values(table(build).typeinfos, type_id, stream == "tracker"))
            event |= {"_event": name, "_gameloop": loop}
            if stream != "tracker":
                event["_userid"] = {"m_userId": draws.draw(st.integers(0, 31))}
            written.append(event)
        same(Replay.open(write_replay(**{**parts, f"{stream}_events": written})), stream, written)

    check()


def test_what_is_described_is_read() -> None:
    replay = Replay.open(
        small_replay(
            [
                PlayerSetup("Anna", "Terran", "win", clan="TAG", mmr=4000, apm=120),
                PlayerSetup("Watcher", observer=True),
                PlayerSetup("Bot", "Zerg", "loss", computer=True),
                PlayerSetup("Cara", "Protoss", "undecided", team=0),
            ],
            loops=1234,
            map_size=(200, 176),
            game_speed=2,
        )
    )
    assert replay.game_loops == 1234
    assert replay.version == "5.0.0.80949"
    assert replay.map_size == (200, 176)
    assert replay.loops_per_second == 16
    assert [
        (player.player_id, player.user_id, player.name, player.clan, player.race, player.result,
         player.team, player.mmr, player.apm, player.is_ai)
        for player in replay.players
    ] == [
        (1, 0, "Anna", "TAG", "Terran", "win", 0, 4000, 120, False),
        (2, None, "Bot", "", "Zerg", "loss", 1, None, 100, True),
        (3, 2, "Cara", "", "Protoss", "undecided", 0, None, 100, False),
    ]  # fmt: skip


CONTENT = bytes(i * i >> 6 & 0xFF for i in range(40_000))


def holding(member: Member, version: int) -> bytes:
    parts = describe([PlayerSetup(), PlayerSetup()], loops=10)
    return write_replay(**parts, extra={"replay.server.battlelobby": member}, version=version)


@pytest.mark.parametrize("size", [1, 4096, 16384, 32768, 40_000])
@pytest.mark.parametrize("sectors", [False, True])
@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("compression", ["bz2", "zlib", "stored"])
@pytest.mark.parametrize("version", [1, 3])
def test_every_way_a_member_may_lie(version, compression, crc, sectors, size) -> None:
    data = holding(Member(CONTENT[:size], compression, sectors=sectors, crc=crc), version)
    assert Replay.open(data).member("replay.server.battlelobby") == CONTENT[:size]


def test_an_empty_member_is_none_and_an_encrypted_one_is_refused() -> None:
    assert Replay.open(holding(Member(b""), 3)).member("replay.server.battlelobby") is None
    sealed = Replay.open(holding(Member(CONTENT, encrypted=True), 3))
    with pytest.raises(UnsupportedReplayError, match="encrypted"):
        sealed.member("replay.server.battlelobby")
