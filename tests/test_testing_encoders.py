"""The encoders are the exact inverse of s2protocol's decoders and of ours, for every type."""

from __future__ import annotations

import importlib.util
import math
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import s2protocol
from hypothesis import given, settings
from hypothesis import strategies as st
from s2protocol import decoders

from sc2gym.errors import CorruptReplayError
from sc2gym.protocol import protocol
from sc2gym.testing import BitPackedEncoder, EncodeError, VersionedEncoder

TABLES = Path(s2protocol.__file__).parent / "versions"
BUILDS = sorted(int(path.stem.removeprefix("protocol")) for path in TABLES.glob("protocol*.py"))


@cache
def table(build: int) -> ModuleType:
    """One of s2protocol's tables, by path: its package imports a module that Python lost."""
    path = TABLES / f"protocol{build}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BitPackedDecoder(decoders.BitPackedDecoder):
    """s2protocol's, where it works under Python 3; it hands text to struct.unpack elsewhere."""

    def _real32(self):
        return struct.unpack(">f", self._buffer.read_unaligned_bytes(4).encode("latin-1"))

    def _real64(self):
        return struct.unpack(">d", self._buffer.read_unaligned_bytes(8).encode("latin-1"))


class VersionedDecoder(decoders.VersionedDecoder):
    """s2protocol's, where it works under Python 3; it divides to a float elsewhere."""

    def _bitarray(self, bounds):
        self._expect_skip(1)
        length = self._vint()
        return length, self._buffer.read_aligned_bytes((length + 7) // 8)


def values(types: Any, type_id: int, versioned: bool, sizes: int = 3) -> st.SearchStrategy:
    """Any value of a type, in s2protocol's shape."""
    kind, arguments = types[type_id]

    def inner(of: int) -> st.SearchStrategy:
        return values(types, of, versioned, max(1, sizes - 1))

    if kind == "_int":
        low, bits = arguments[0]
        return st.integers(low, low + (1 << bits) - 1)
    if kind == "_bool":
        return st.booleans()
    if kind == "_null":
        return st.none()
    if kind == "_fourcc":
        raw = st.binary(min_size=4, max_size=4)
        return raw if versioned else raw.map(lambda value: value.decode("latin-1"))
    if kind in ("_real32", "_real64"):
        width = int(kind[5:])
        return st.tuples(st.floats(width=width, allow_nan=False))
    if kind == "_optional":
        return st.none() | inner(arguments[0])
    if kind == "_choice":
        _, fields = arguments
        return st.one_of(st.fixed_dictionaries({name: inner(of)}) for name, of in fields.values())
    low, bits = arguments[0] if kind != "_struct" else (0, 0)
    top = low + (1 << bits) - 1
    if kind == "_array":
        return st.lists(inner(arguments[1]), min_size=low, max_size=max(low, min(top, sizes)))
    if kind == "_blob":
        return st.binary(min_size=low, max_size=min(top, low + 40))
    if kind == "_bitarray":
        return st.integers(low, min(top, low + 70)).flatmap(
            lambda length: st.tuples(
                st.just(length),
                st.binary(min_size=(length + 7) // 8, max_size=(length + 7) // 8)
                if versioned
                else st.integers(0, (1 << length) - 1),
            )
        )
    assert kind == "_struct"
    fields = arguments[0]
    if [name for name, *_ in fields] == ["__parent"]:
        return inner(fields[0][1])
    return st.fixed_dictionaries({name: inner(of) for name, of, _ in fields})


def decoded(data: bytes, types: Any, type_id: int, versioned: bool) -> Any:
    decoder = (VersionedDecoder if versioned else BitPackedDecoder)(data, types)
    value = decoder.instance(type_id)
    decoder.byte_align()
    assert decoder.done(), "bytes left over"
    return value


def encoded(value: Any, types: Any, type_id: int, versioned: bool) -> bytes:
    encoder = (VersionedEncoder if versioned else BitPackedEncoder)(types)
    encoder.instance(value, type_id)
    return encoder.getvalue()


def numbers(value: Any) -> Iterator[int]:
    """Every integer in a value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, int):
        yield value


@pytest.mark.parametrize("versioned", [False, True], ids=["bit-packed", "versioned"])
@pytest.mark.parametrize("build", [BUILDS[0], 16561, 24944, 80949, BUILDS[-1]])
def test_any_value_of_any_type_comes_back(build: int, versioned: bool) -> None:
    types, own = table(build).typeinfos, protocol(build).types

    @settings(max_examples=120, deadline=None)
    @given(st.data())
    def check(draws: st.DataObject) -> None:
        type_id = draws.draw(st.integers(0, len(types) - 1))
        value = draws.draw(values(types, type_id, versioned))
        data = encoded(value, types, type_id, versioned)
        assert decoded(data, types, type_id, versioned) == value
        if versioned and any(abs(number) >= 1 << 63 for number in numbers(value)):
            # No replay has these, and a signed machine word cannot tell them apart.
            with pytest.raises(CorruptReplayError, match="impossible number"):
                own.decode(data, type_id, versioned, "value")
        else:
            assert own.decode(data, type_id, versioned, "value") == value

    check()


@pytest.mark.parametrize("versioned", [False, True], ids=["bit-packed", "versioned"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_kinds_that_no_table_uses(versioned: bool, data: st.DataObject) -> None:
    types = [
        ("_real32", []),
        ("_real64", []),
        ("_fourcc", []),
        ("_bitarray", [(2, 7)]),
        ("_int", [(0, 3)]),
        ("_struct", [[("a", 4, 9), ("f", 0, 3), ("d", 1, 7), ("t", 2, 2), ("b", 3, 1)]]),
        ("_struct", [[("__parent", 5, 4), ("own", 4, 5)]]),
        ("_struct", [[("__parent", 4, 0)]]),
    ]
    type_id = data.draw(st.integers(0, len(types) - 1))
    value = data.draw(values(types, type_id if type_id != 6 else 5, versioned))
    if type_id == 6:
        value = {**value, "own": data.draw(st.integers(0, 7))}
    assert decoded(encoded(value, types, type_id, versioned), types, type_id, versioned) == value


@given(st.integers(-(1 << 70), 1 << 70))
def test_vint_of_any_size(value: int) -> None:
    encoder = VersionedEncoder([])
    encoder.vint(value)
    assert decoders.VersionedDecoder(encoder.getvalue(), [])._vint() == value


def test_bits_cross_bytes_lowest_first() -> None:
    encoder = BitPackedEncoder([])
    encoder.bits(0b101, 3)
    encoder.bits(0x1FF, 9)
    assert encoder.getvalue() == bytes((0b11111_101, 0b1111))


@pytest.mark.parametrize("versioned", [False, True], ids=["bit-packed", "versioned"])
@pytest.mark.parametrize(
    ("type_id", "value", "message"),
    [
        (0, 8, "8 is outside 0..7"),
        (0, -1, "-1 is outside 0..7"),
        (0, True, "expected an integer, got True"),
        (0, "1", "expected an integer, got '1'"),
        (0, None, "expected an integer, got None"),
        (1, 1, "expected a bool, got 1"),
        (2, b"12345678", "length 8 is outside 0..7"),
        (2, "text", "expected bytes, got 'text'"),
        (3, [1, 2, 3, 9], "length 4 is outside 0..3"),
        (3, [1, 9], "[1]: 9 is outside 0..7"),
        (3, 7, "expected a list, got 7"),
        (4, {"C": 1}, "no choice named 'C'; one of ['A', 'B']"),
        (4, {}, "expected a dict of one item, got {}"),
        (4, {"A": 8}, "A: 8 is outside 0..7"),
        (5, {"inner": {"A": 1}, "list": [0, 8]}, "list[1]: 8 is outside 0..7"),
        (5, 3, "expected a dict, got 3"),
        (6, 0, "expected None, got 0"),
        (7, b"abc", "expected 4 bytes, got b'abc'"),
        (7, "ab\u0416d", "expected 8-bit characters, got 'ab\u0416d'"),
        (8, (2, "x"), None),
        (8, (99, 1), None),
        (9, "1.0", "expected a number, got '1.0'"),
        (9, 1e60, "1e+60 is too large for a 32-bit real"),
    ],
)
def test_what_does_not_fit_says_what_and_where(
    versioned: bool, type_id: int, value: Any, message: str | None
) -> None:
    types = [
        ("_int", [(0, 3)]),
        ("_bool", []),
        ("_blob", [(0, 3)]),
        ("_array", [(0, 2), 0]),
        ("_choice", [(0, 1), {0: ("A", 0), 1: ("B", 1)}]),
        ("_struct", [[("inner", 4, 0), ("list", 3, 1)]]),
        ("_null", []),
        ("_fourcc", []),
        ("_bitarray", [(0, 3)]),
        ("_real32", []),
    ]
    with pytest.raises(EncodeError) as caught:
        encoded(value, types, type_id, versioned)
    assert message is None or str(caught.value) == message


def test_a_bit_array_has_no_more_bits_than_it_says() -> None:
    types = [("_bitarray", [(0, 6)])]
    for value in ((3, 8), (3, -1)):
        with pytest.raises(EncodeError, match="has more than 3 bits"):
            encoded(value, types, 0, versioned=False)


def test_a_bit_packed_struct_needs_every_field_and_a_versioned_one_does_not() -> None:
    types = [("_int", [(0, 3)]), ("_struct", [[("a", 0, 0), ("b", 0, 1)]])]
    with pytest.raises(EncodeError, match="field b is missing"):
        encoded({"a": 1}, types, 1, versioned=False)
    assert decoded(encoded({"b": 1}, types, 1, True), types, 1, True) == {"b": 1}


def test_reals_may_be_bare_numbers_and_infinite() -> None:
    types = [("_real32", []), ("_real64", [])]
    for versioned in (False, True):
        assert decoded(encoded(0.1, types, 1, versioned), types, 1, versioned) == (0.1,)
        assert decoded(encoded(math.inf, types, 0, versioned), types, 0, versioned) == (math.inf,)
