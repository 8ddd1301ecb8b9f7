"""The wire decoder against the protobuf library, on real, random and damaged messages."""

from __future__ import annotations

import ctypes
import mmap
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("s2clientprotocol", reason="needs the game extra")

from wire_oracle import assert_same, messages, parse, schema

from sc2gym._fast.wire import Decoder
from sc2gym.errors import CorruptMessageError
from sc2gym.schema import MESSAGES, Schema, _parse, blank_record, record_dtype

ROOTS = ("ResponseObservation", "ResponseGameInfo", "ResponseData")
random_message = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def real_messages(data_dir: Path) -> list[Path]:
    return sorted((data_dir / "observations").rglob("*.pb"))


def root_of(path: Path) -> str:
    return path.name.split(".")[-2]


def decode(root: str, data: Any) -> Decoder:
    decoder = Decoder(schema(root))
    decoder.read(data)
    return decoder


def check(root: str, data: bytes) -> None:
    assert_same(parse(root, data), data, decode(root, data))


def test_every_value_of_the_real_messages(data_dir: Path) -> None:
    paths = real_messages(data_dir)
    assert len(paths) == 18
    decoders = {root: Decoder(schema(root)) for root in ROOTS}
    for path in paths:  # one after another through the same tables
        data, root = path.read_bytes(), root_of(path)
        decoders[root].read(data)
        assert_same(parse(root, data), data, decoders[root], every_row=True)


def test_schema_is_the_games() -> None:
    mine = _parse(MESSAGES)
    for name, fields in mine.items():
        descriptor = parse(name, b"").DESCRIPTOR
        assert {f.number for f in fields} == set(descriptor.fields_by_number)
        for f in fields:
            theirs = descriptor.fields_by_number[f.number]
            kind = theirs.type
            assert f.name == theirs.name
            assert f.repeated == theirs.is_repeated
            assert (f.oneof or None) == (theirs.containing_oneof and theirs.containing_oneof.name)
            if theirs.enum_type is not None:
                assert f.type == "enum"
                assert f.repeated or f.default == theirs.default_value
            elif theirs.message_type is not None:
                assert f.type == theirs.message_type.name
                assert f.optional == (f.type == name)
            else:
                assert kind == getattr(theirs, f"TYPE_{f.type.upper()}")


@pytest.mark.parametrize("root", ROOTS)
@random_message
@given(data=st.data())
def test_random_messages(root: str, data: st.DataObject) -> None:
    message = data.draw(messages(root))
    check(root, message.SerializeToString())


@random_message
@given(message=messages("Unit", 3))
def test_random_units_among_others(message: Any) -> None:
    """Units have a fast lane; it needs bytes behind the unit, and gives way to the general
    reader where there are none."""
    observation = parse("ResponseObservation", b"")
    observation.observation.raw_data.units.extend([message] * 40)
    check("ResponseObservation", observation.SerializeToString())


def varint(value: int) -> bytes:
    out = bytearray()
    while True:
        out.append(value & 0x7F | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(out)


def length_delimited(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


UNKNOWN = [
    varint(60 << 3) + varint(2**64 - 1),
    varint(2**29 - 1 << 3 | 1) + bytes(8),
    varint(61 << 3 | 5) + bytes(4),
    length_delimited(1000, b"anything"),
    varint(70 << 3 | 3)
    + length_delimited(1, b"x")
    + varint(5 << 3 | 3)
    + varint(5 << 3 | 4)
    + varint(70 << 3 | 4),
]


@random_message
@given(message=messages("ResponseObservation", 4), data=st.data())
def test_unknown_fields_are_skipped_wherever_they_are(message: Any, data: st.DataObject) -> None:
    plain = message.SerializeToString()
    parts = [data.draw(st.sampled_from(UNKNOWN)), *_fields(plain)]
    between = data.draw(st.permutations(parts))
    inside = b"".join(parts[:1]) + message.observation.SerializeToString()
    raw = message.observation.raw_data
    units = b"".join(
        length_delimited(2, UNKNOWN[4] + unit.SerializeToString() + UNKNOWN[0])
        for unit in raw.units
    )
    check("ResponseObservation", b"".join(between))
    check("ResponseObservation", length_delimited(3, inside))
    check("ResponseObservation", length_delimited(3, length_delimited(5, units)) + bytes(0))


def _fields(data: bytes) -> list[bytes]:
    """The top-level fields of a message whose fields are all messages."""
    fields, at = [], 0
    while at < len(data):
        start = at
        at += 1
        length = shift = 0
        while True:
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += length
        fields.append(data[start:at])
    return fields


@random_message
@given(parts=st.lists(messages("ResponseObservation", 5), min_size=2, max_size=4))
def test_messages_that_come_again_are_merged(parts: list[Any]) -> None:
    """Concatenated, singular fields are overwritten, messages merged, oneofs replaced."""
    check("ResponseObservation", b"".join(part.SerializeToString() for part in parts))


@random_message
@given(
    ids=st.lists(st.integers(0, 2**32 - 1), max_size=5),
    tags=st.lists(st.integers(0, 2**64 - 1), max_size=5),
    packed=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_packed_and_unpacked(ids: list[int], tags: list[int], packed: tuple[bool, ...]) -> None:
    def repeated(number: int, values: list[int], is_packed: bool) -> bytes:
        if is_packed:
            return length_delimited(number, b"".join(map(varint, values)))
        return b"".join(varint(number << 3) + varint(value) for value in values)

    player = length_delimited(1, repeated(3, ids, packed[0]) + repeated(3, ids, packed[1]))
    event = length_delimited(4, repeated(1, tags, packed[2]))
    check("ResponseObservation", length_delimited(3, length_delimited(5, player + event)))


def test_fields_of_another_wire_type_are_unknown() -> None:
    """A game_loop of four bytes, a score that is a number, a unit that is eight bytes."""
    observation = varint(9 << 3 | 5) + bytes(4) + varint(4 << 3) + varint(7)
    observation += length_delimited(5, varint(2 << 3 | 1) + bytes(8))
    check("ResponseObservation", length_delimited(3, observation))


def test_an_enum_value_the_schema_does_not_know_is_kept() -> None:
    """Protobuf would drop it, and a new game's alerts with it: the one difference."""
    data = length_delimited(3, varint(10 << 3) + varint(99)) + length_delimited(
        4, varint(2 << 3) + varint(77)
    )
    decoder = decode("ResponseObservation", data)
    assert decoder["observation.alerts"].tolist() == [99]
    assert decoder["player_result"]["result"].tolist() == [77]
    assert list(parse("ResponseObservation", data).observation.alerts) == []


def test_any_buffer(data_dir: Path, tmp_path: Path) -> None:
    path = data_dir / "observations" / "maps" / "16-BitLE.ResponseObservation.pb"
    data = path.read_bytes()
    pa = pytest.importorskip("pyarrow")
    want = decode("ResponseObservation", data)["observation.raw_data.units"].tobytes()
    with path.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        buffers = [
            bytearray(data),
            memoryview(b"x" + data)[1:],
            np.frombuffer(data, np.int8),
            pa.py_buffer(data),
            pa.array([data], pa.large_binary())[0].as_buffer(),
            mapped,
        ]
        for buffer in buffers:
            got = decode("ResponseObservation", buffer)
            assert got["observation.raw_data.units"].tobytes() == want
        del buffers, buffer
    with pytest.raises(BufferError):
        decode("ResponseObservation", memoryview(data)[::2])
    with pytest.raises(TypeError):
        decode("ResponseObservation", "text")


def test_rows_into_the_callers_arrays(data_dir: Path) -> None:
    data = (data_dir / "observations" / "maps" / "16-BitLE.ResponseObservation.pb").read_bytes()
    units = np.zeros(200, record_dtype("Unit"))
    path = "observation.raw_data.units"
    decoder = Decoder(schema("ResponseObservation"), {path: units})
    decoder.read(data)
    assert len(decoder[path]) == 181
    assert np.array_equal(units[:181], decode("ResponseObservation", data)[path])
    assert not units[181:].view(np.uint8).any()
    few = Decoder(schema("ResponseObservation"), {path: units[:180]})
    with pytest.raises(CorruptMessageError, match="more rows than the table can take"):
        few.read(data)
    for bad in (units.view(np.uint8), units[::2], units.reshape(2, -1)):
        with pytest.raises(ValueError):
            Decoder(schema("ResponseObservation"), {path: bad})
    with pytest.raises(KeyError, match="no table 'units'"):
        Decoder(schema("ResponseObservation"), {"units": units})


def test_reading_again_allocates_nothing_and_old_views_stay_safe(data_dir: Path) -> None:
    import tracemalloc

    data = (data_dir / "observations" / "maps" / "16-BitLE.ResponseObservation.pb").read_bytes()
    decoder = Decoder(schema("ResponseObservation"))
    decoder.read(parse_one_unit())
    early = decoder["observation.raw_data.units"]  # of a table that is about to be outgrown
    decoder.read(data)
    assert early.shape == (1,) and early["tag"][0] > 2**32
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    for _ in range(20):
        decoder.read(data)
    grown = tracemalloc.take_snapshot().compare_to(before, "filename")
    tracemalloc.stop()
    assert sum(s.size_diff for s in grown if "tracemalloc" not in str(s.traceback)) < 4096
    with pytest.raises(ValueError):
        early["tag"][0] = 1


def parse_one_unit() -> bytes:
    message = parse("ResponseObservation", b"")
    message.observation.raw_data.units.add(tag=4342153217)
    return message.SerializeToString()


def small_message() -> bytes:
    """Something of everything, a few hundred bytes."""
    m = parse("ResponseObservation", b"")
    m.observation.game_loop = 300
    m.observation.alerts.append(3)
    raw = m.observation.raw_data
    for tag in (2**32 + 1, 2**33):
        unit = raw.units.add(tag=tag, unit_type=45, health=40, buff_ids=[1, 2])
        unit.pos.x = 1.5
        unit.orders.add(ability_id=16).target_world_space_pos.y = 3
    raw.player.upgrade_ids.append(7)
    image = raw.map_state.creep
    image.bits_per_pixel, image.size.x, image.size.y, image.data = 1, 8, 4, b"abcd"
    m.observation.ui_data.multi.units.add(unit_type=4).add_on.unit_type = 5
    m.actions.add().action_raw.unit_command.unit_tags.extend([1, 2**40])
    m.chat.add(player_id=1, message="gg")
    return bytes(m.SerializeToString())


def agrees_with_protobuf(data: bytes, decoder: Decoder) -> bool:
    """Reads damaged bytes with both; whether they were accepted, by both or by none."""
    from google.protobuf.message import DecodeError

    try:
        message = parse("ResponseObservation", data)
    except DecodeError:
        with pytest.raises(CorruptMessageError) as caught:
            decoder.read(data)
        assert 0 <= caught.value.offset <= len(data)
        assert all(len(decoder[table.path]) == 0 for table in decoder.schema.tables)
        return False
    decoder.read(data)
    assert_same(message, data, decoder, damaged=True)
    return True


def test_cut_off_at_every_byte() -> None:
    data, decoder = small_message(), Decoder(schema("ResponseObservation"))
    whole = [n for n in range(len(data) + 1) if agrees_with_protobuf(data[:n], decoder)]
    assert len(whole) == 4  # nothing, and after the actions, the observation, the chat


def test_every_byte_flipped_in_every_bit() -> None:
    data, decoder = small_message(), Decoder(schema("ResponseObservation"))
    padded = data + length_delimited(2000, bytes(700))  # behind it, room for the fast lane
    accepted = 0
    for at in range(len(data)):
        for bit in range(8):
            flipped = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            accepted += agrees_with_protobuf(flipped, decoder)
            accepted += agrees_with_protobuf(flipped + padded[len(data) :], decoder)
    assert 0 < accepted < 16 * len(data)


@settings(max_examples=2000, deadline=None)
@given(data=st.binary(max_size=60), wrap=st.booleans(), pad=st.booleans())
def test_random_bytes(data: bytes, wrap: bool, pad: bool) -> None:
    if wrap:  # as the content of a unit
        data = length_delimited(3, length_delimited(5, length_delimited(2, data)))
    if pad:
        data += length_delimited(2000, bytes(700))
    agrees_with_protobuf(data, Decoder(schema("ResponseObservation")))


GROUP, END = varint(50 << 3 | 3), varint(50 << 3 | 4)


@pytest.mark.parametrize(
    ("data", "offset", "what"),
    [
        (GROUP, 0, "field 50: the value goes on past the end"),
        (GROUP * 100_000, 0, "field 50: the value goes on past the end"),
        (GROUP * 200 + END * 200, 0, "field 50"),
        (END, 0, "ResponseObservation, field 50: the end of a group that was not begun"),
        (GROUP + varint(51 << 3 | 4), 0, "field 50"),
        (b"\x00", 0, "no field tag"),
        (b"\x1a\x02\x48", 0, "ResponseObservation.observation: the value goes on"),
        (b"\x1a\x01\x48", 2, "Observation.game_loop: the value goes on past the end"),
        (b"\x1a\x0b\x48" + b"\xff" * 10, 2, "Observation.game_loop"),
        (b"\x0f", 0, "ResponseObservation.actions: the value"),
        (b"\xff" * 11, 0, "no field tag"),
        (b"\x1a\xff\xff\xff\xff\x0f", 0, "goes on past the end"),
        (b"\x1a\xff\xff\xff\xff\x7f", 0, "goes on past the end"),
    ],
)
def test_says_where_and_what(data: bytes, offset: int, what: str) -> None:
    with pytest.raises(CorruptMessageError) as caught:
        decode("ResponseObservation", data)
    assert caught.value.offset == offset
    assert what in str(caught.value) and f"byte {offset}" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.offset, str(again)) == (offset, str(caught.value))


def test_groups_and_messages_nest_only_so_deep() -> None:
    for depth in (5, 90, 94, 95, 96, 97, 98, 99, 100, 101, 102, 5000):
        info = b""
        for _ in range(depth):
            info = length_delimited(8, info)
        for number in (1, 2, 8, 3):  # of the single panel's unit
            info = length_delimited(number, info)
        agrees_with_protobuf(info, Decoder(schema("ResponseObservation")))
        agrees_with_protobuf(GROUP * depth + END * depth, Decoder(schema("ResponseObservation")))
    with pytest.raises(CorruptMessageError, match="nested more than 100 deep"):
        decode("ResponseObservation", info)


def test_a_message_cannot_ask_for_unbounded_memory() -> None:
    """Two bytes make a unit's record of 256; a table stops at 256 MiB."""
    units = b"\x12\x00" * ((1 << 20) + 1)
    data = length_delimited(3, length_delimited(5, units))
    with pytest.raises(CorruptMessageError, match="more rows than the table can take"):
        decode("ResponseObservation", data)


def test_one_reader_at_a_time(data_dir: Path) -> None:
    """Threads with a decoder each do not disturb one another."""
    data = (data_dir / "observations" / "maps" / "16-BitLE.ResponseObservation.pb").read_bytes()
    want = decode("ResponseObservation", data)["observation.raw_data.units"].tobytes()
    wrong = []

    def work() -> None:
        decoder = Decoder(schema("ResponseObservation"))
        for _ in range(50):
            decoder.read(data)
            if decoder["observation.raw_data.units"].tobytes() != want:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_records_are_laid_out_as_c_does() -> None:
    """Natural alignment, presence first; the compiled code's structs rely on it."""
    for message in _parse(MESSAGES):
        structure, dtype = c_structure(message), record_dtype(message)
        assert ctypes.sizeof(structure) == dtype.itemsize
        assert dtype.names[0] == "has"
        for name in dtype.names:
            assert getattr(structure, name).offset == dtype.fields[name][1], (message, name)


def c_structure(message: str) -> type[ctypes.Structure]:
    scalars = {
        "int32": ctypes.c_int32,
        "enum": ctypes.c_int32,
        "uint32": ctypes.c_uint32,
        "uint64": ctypes.c_uint64,
        "bool": ctypes.c_bool,
        "float": ctypes.c_float,
        "string": Pair,
        "bytes": Pair,
    }
    columns: list[tuple[str, Any]] = [("has", ctypes.c_uint64)]
    for f in _parse(MESSAGES)[message]:
        if f.repeated or f.optional:
            columns.append((f.name, Pair))
        else:
            columns.append((f.name, scalars.get(f.type) or c_structure(f.type)))
    return type(message, (ctypes.Structure,), {"_fields_": columns})


class Pair(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int64), ("second", ctypes.c_int64))


def test_what_is_absent_is_zero_and_an_enum_its_first_value() -> None:
    assert blank_record("Unit")["display_type"] == 1
    assert blank_record("ActionError")["result"] == 1
    assert Schema("Point").tables[0].blank == bytes(24)
