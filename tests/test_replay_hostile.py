"""Bad input to the replay layer: one documented error, in bounded time and memory."""

from __future__ import annotations

import contextlib
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sc2gym import archive, columns, protocol
from sc2gym._fast.bits import INDEX
from sc2gym.errors import CorruptReplayError, ReplayError, UnsupportedReplayError
from sc2gym.protocol import STREAMS, VERSIONED, unpack_type
from sc2gym.replay import Replay
from sc2gym.testing import Member, PlayerSetup, describe, small_replay, write_archive, write_replay

MB = 1 << 20


def read_all(replay: Replay) -> int:
    """Reads whatever a replay has; returns how many of its parts were in order."""
    sound = 0
    parts: list[Callable[[], object]] = [
        lambda: replay.details,
        lambda: replay.init_data,
        lambda: replay.metadata,
        lambda: replay.attributes,
        lambda: replay.players,
        lambda: (replay.map_name, replay.map_size, replay.loops_per_second, replay.version),
        *(
            lambda stream=stream: replay.events(stream, dict.fromkeys(replay.event_counts(stream)))
            for stream in STREAMS
        ),
    ]
    for part in parts:
        try:
            part()
            sound += 1
        except ReplayError as error:
            assert error.name == "hostile"
            assert str(error).startswith("hostile: ")
    return sound


def survives(data: bytes) -> int:
    try:
        replay = Replay(data, name="hostile")
    except ReplayError as error:
        assert error.name == "hostile"
        return 0
    return read_all(replay)


@contextlib.contextmanager
def bounded(seconds: float, megabytes: float) -> Iterator[None]:
    """Time, and memory as Python and NumPy ask for it, stay below the given bounds."""
    tracemalloc.start()
    began = time.perf_counter()
    try:
        yield
        assert time.perf_counter() - began < seconds
        assert tracemalloc.get_traced_memory()[1] < megabytes * MB
    finally:
        tracemalloc.stop()


@cache
def small() -> bytes:
    return small_replay(loops=400)


# -- files that are no replays ------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"  <!DOCTYPE html><html>", "web page"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "picture"),
        (b"\xff\xd8\xff\xe0" + bytes(100), "picture"),
        (b"PK\x03\x04" + bytes(100), "zip"),
        (b"hello", "not a replay"),
        (bytes(5000), "not a replay"),
    ],
)
def test_other_files_are_called_what_they_are(data: bytes, message: str) -> None:
    with pytest.raises(UnsupportedReplayError, match=message) as caught:
        Replay.open(data, name="game.SC2Replay")
    assert str(caught.value).startswith("game.SC2Replay: ")


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.SC2Replay"):
        with pytest.raises(ReplayError) as caught:
            Replay.open(path)
        assert caught.value.name == str(path)


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "film.SC2Replay"
    with path.open("wb") as file:
        file.write(small())
        file.truncate(2 << 30)  # sparse
    with bounded(5, 200), pytest.raises(CorruptReplayError, match="larger than any replay"):
        Replay.open(path)


# -- damaged archives ---------------------------------------------------------------------


def test_cut_at_every_percent(pysc2_replays: list[Path]) -> None:
    data = pysc2_replays[8].read_bytes()
    whole = survives(data)
    assert whole == 9
    assert max(survives(data[: len(data) * percent // 100]) for percent in range(100)) == 0


def test_every_byte_flipped() -> None:
    data = bytearray(small())
    whole = survives(bytes(data))
    results = set()
    for at in range(len(data)):
        for change in (0xFF, 1 << at % 8):
            data[at] ^= change
            results.add(survives(bytes(data)))
            data[at] ^= change
    assert results > {0, whole}


def test_regions_of_real_files_overwritten(pysc2_replays: list[Path]) -> None:
    data = pysc2_replays[4].read_bytes()
    step = len(data) // 100
    for fill in (b"\0", b"\xff", b"\x55"):
        for at in range(0, len(data), step):
            survives(data[:at] + fill * step + data[at + step :])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([b"MPQ\x1a", b"MPQ\x1b", b""]))
def test_random_bytes(tail: bytes, magic: bytes) -> None:
    assert survives(magic + tail) == 0


def test_tables_that_claim_too_much() -> None:
    data = bytearray(small())
    start = int.from_bytes(data[8:12], "little")
    for field in (24, 28):  # entries of the hash table, of the block table
        for claim in (5000, 0xFFFFFFFF):
            lying = bytearray(data)
            lying[start + field : start + field + 4] = claim.to_bytes(4, "little")
            with bounded(2, 20), pytest.raises(CorruptReplayError, match=f"{claim} entries"):
                Replay(bytes(lying))


# -- members that unpack to more than they should ----------------------------------------


def with_member(name: str, member: bytes | Member) -> Replay:
    parts = describe([PlayerSetup(), PlayerSetup()], loops=10)
    return Replay(write_replay(**parts, extra={name: member}), name="hostile")


@pytest.mark.parametrize("compression", ["bz2", "zlib"])
@pytest.mark.parametrize("name", ["replay.game.events", "replay.details"])
def test_a_member_of_gigabytes(compression: str, name: str) -> None:
    member = Member(bytes(80 * MB), compression)
    replay = with_member(name, member)
    entry = replay._archive.get_hash_table_entry(name)
    block = replay._archive.block_table[entry.block_table_index]
    assert block.archived_size < MB // 4
    limit = archive.MAX_STREAM_BYTES if "events" in name else archive.MAX_MEMBER_BYTES
    # It says so, it says otherwise, or it says just what is allowed and has more.
    for claim in (80 * MB, 0xFFFFFFFF, 1000, limit):
        replay._archive.block_table[entry.block_table_index] = block._replace(size=claim)
        with bounded(5, limit * 3 / MB + 2), pytest.raises(CorruptReplayError) as caught:
            replay.member(name)
        assert caught.value.member == name
        assert caught.value.offset == block.offset + 1024


def test_sectors_without_content() -> None:
    replay = with_member("x", Member(bytes(100_000), "zlib", sectors=True))
    held = replay._archive
    block = held.block_table[held.get_hash_table_entry("x").block_table_index]
    for packed in (b"", bytes(4), b"\x1c\0\0\0" * 8, b"\xff" * 64):
        with pytest.raises((ValueError, archive.struct.error)):
            held._sectors(packed, block)
    for size, kind in ((10, b""), (10, b"\x03abc"), (10, b"\x02abc"), (10, b"\x10abc")):
        with pytest.raises((ValueError, OSError, EOFError, zlib.error)):
            held._unpack(kind, size, block.flags)


def test_metadata_of_any_shape() -> None:
    for text in (
        b"[]", b"{", b"null", b"\xff", b"[" * 100_000, b'{"Players": 3}', b'{"Players": [3, null]}',
        b'{"Players": [{"PlayerID": []}, {"PlayerID": 1, "MMR": Infinity, "APM": NaN}]}',
        b'{"Players": [{"PlayerID": 1, "MMR": "x", "APM": [], "AssignedRace": {}}]}',
        b'{"Players": [{"PlayerID": 1, "MMR": ' + b"9" * 5000 + b"}]}",
    ):  # fmt: skip
        replay = with_member("replay.gamemetadata.json", text)
        with contextlib.suppress(CorruptReplayError):
            assert len(replay.players) == 2
            assert {player.mmr for player in replay.players} == {None}


# -- streams and small members of lies ----------------------------------------------------


def held_by(replay: Replay, **members: bytes) -> Replay:
    """The replay, with other bytes as the content of some of its members."""
    for name, data in members.items():
        replay._members[f"replay.{name.replace('_', '.')}"] = data
    return replay


def versioned_count(number: int) -> bytes:
    out = bytearray([(number & 0x3F) << 1])
    number >>= 6
    while number:
        out[-1] |= 0x80
        out.append(number & 0x7F)
        number >>= 7
    return bytes(out)


BOMBS = {
    "optionals": b"\x04\x01" * 1_000_000,
    "choices": b"\x03\x00" * 1_000_000,
    "arrays": b"\x00\x02" * 1_000_000,
    "structs": b"\x05\x02\x00" * 1_000_000,
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_values_nested_without_end(bomb: str) -> None:
    unknown = b"\x05\x02" + versioned_count(99) + BOMBS[bomb]
    replay = held_by(Replay(small(), name="hostile"), details=unknown)
    with bounded(1, 1), pytest.raises(CorruptReplayError, match="nested more than 64 deep"):
        _ = replay.details
    # The same in an event: loop delta (a choice of a byte), event id 1, and its struct.
    event = b"\x03\x00\x09\x00" + b"\x09\x02" + unknown
    replay = held_by(Replay(small(), name="hostile"), tracker_events=event)
    with bounded(1, 1), pytest.raises(CorruptReplayError, match="nested") as caught:
        replay.event_counts("tracker")
    assert caught.value.member == "replay.tracker.events"


def test_millions_of_events_that_pack_to_nothing() -> None:
    # Loop delta 0, event id 0 (PlayerStats), and a struct that leaves all of its fields out.
    event = bytes.fromhex("0300 0900 0900 0500")
    replay = held_by(Replay(small(), name="hostile"), tracker_events=event * (2 << 20))
    with (
        bounded(20, 500),
        pytest.raises(CorruptReplayError, match="of a kind, more than any replay has") as caught,
    ):
        replay.events("tracker", {"PlayerStats": None})
    assert caught.value.member == "replay.tracker.events"


@pytest.mark.parametrize("count", [1 << 20, 1 << 31, 1 << 40, (1 << 62) - 1])
@pytest.mark.parametrize("kind", [b"\x00", b"\x01", b"\x02", b"\x05"])
def test_counts_that_lie(kind: bytes, count: int) -> None:
    known = b"\x05\x02\x00" + kind + versioned_count(count)  # field 0 is the list of players
    unknown = b"\x05\x02" + versioned_count(99) + kind + versioned_count(count)
    for data in (known, unknown, kind + versioned_count(count)):
        with bounded(1, 1), pytest.raises(CorruptReplayError) as caught:
            _ = held_by(Replay(small(), name="hostile"), details=data + bytes(50)).details
        assert caught.value.offset <= len(data) + 50


def test_numbers_without_end() -> None:
    for data in (b"\x05\x02\x00\x09" + b"\xff" * 1000, b"\x05" + b"\x80" * 100_000 + b"\0"):
        with bounded(1, 1), pytest.raises(CorruptReplayError):
            _ = held_by(Replay(small(), name="hostile"), details=data).details


def test_every_bit_of_the_streams_flipped(pysc2_replays: list[Path]) -> None:
    whole = Replay.open(pysc2_replays[8])
    whole.name = "hostile"
    rng = np.random.default_rng(1)
    for name in ("game.events", "tracker.events", "message.events", "details", "initData"):
        data = bytearray(whole.member(f"replay.{name}") or b"")
        refused = 0
        for at in rng.choice(len(data), min(len(data), 200), replace=False):
            data[at] ^= 1 << int(rng.integers(8))
            replay = held_by(Replay(small(), name="hostile"), **{name.replace(".", "_"): b""})
            replay._members[f"replay.{name}"] = bytes(data[: len(data) - int(rng.integers(3))])
            refused += read_all(replay) < 9
        assert refused


LEADING = (("_gameloop", "i8"), ("_userid", "i8"), ("_index", "i8"))


@pytest.mark.parametrize("build", [15405, 24944, 51702, 80949])
@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=400))
def test_random_streams(build: int, data: bytes) -> None:
    table = protocol.protocol(build)
    for stream, types in table.streams.items():
        for start in {0, *range(0, len(data), 7)}:
            with contextlib.suppress(CorruptReplayError):
                table.types.index(
                    data[start:], stream in VERSIONED, types.types, types.event_id_type,
                    table.loop_type, types.user_type, stream,
                )  # fmt: skip
        # Straight at the events too, which random bytes seldom come to.
        for type_id in set(types.types.values()):
            plan = columns.plan(build, type_id, None, LEADING)
            nulls = [null for _, null in plan.children]
            index, places = np.zeros(1, INDEX), np.zeros(1, np.int32)
            index["offset"] = len(data) % 8
            with contextlib.suppress(CorruptReplayError):
                plan.program.fill(
                    data, stream in VERSIONED, index, places, True, plan.null, nulls, stream
                )
    for type_id, versioned in (
        (table.header_type, True), (table.details_type, True), (table.init_data_type, False),
    ):  # fmt: skip
        with contextlib.suppress(CorruptReplayError):
            table.types.decode(data, type_id, versioned, "random", False)


def test_no_repeated_field_costs_nothing() -> None:
    """In the bit-packed encoding an element without bits would make a count cost nothing."""
    for build in protocol.known_builds():
        types = protocol.protocol(build).typeinfos

        def least(type_id: int, types: tuple[protocol.TypeInfo, ...] = types) -> int:
            kind, arguments = types[type_id]
            (_, bits), _, members = unpack_type(kind, arguments)
            if kind == "_struct":
                return sum(least(member) for _, member, _ in members)
            return {"_null": 0, "_fourcc": 32, "_real32": 32, "_real64": 64, "_bool": 1}.get(
                kind, bits
            )

        for kind, arguments in types:
            if kind == "_array" and arguments[0][1] > 12:
                assert least(arguments[1]) > 0


def test_a_stream_as_dense_as_can_be() -> None:
    """The most events that a stream may have: memory is bounded by the limit on its bytes."""
    size = MB
    data = bytes(size)
    replay = held_by(Replay(small(), name="hostile"), game_events=data, message_events=data)
    with bounded(10, 100):
        read_all(replay)


def test_an_archive_without_a_replay_in_it() -> None:
    with pytest.raises(UnsupportedReplayError, match="without a replay header"):
        Replay(write_archive({"a": b"b"}, user_data=None))
    with pytest.raises(CorruptReplayError, match="header"):
        Replay(write_archive({"a": b"b"}, user_data=b""))
