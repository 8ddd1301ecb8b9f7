"""Values to bytes: the inverse of s2protocol's two decoders, driven by the same type tables.

A type table is s2protocol's `typeinfos`: a list of (kind, arguments), referred to by position. A
value has the shape s2protocol decodes it to: dicts for structs, a dict of one item for a choice,
None for an absent optional, bytes for blobs, (length, bits) for bit arrays.

Two deliberate widenings, because s2protocol itself trips there under Python 3: a fourcc may be
bytes or text, a real may be a number or the 1-tuple that s2protocol returns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["BitPackedEncoder", "EncodeError", "TypeTable", "VersionedEncoder"]

TypeTable = Sequence[tuple[str, Sequence[Any]]]
Bounds = tuple[int, int]  # (lowest value, number of bits above it)


class EncodeError(ValueError):
    """A value does not fit the type it is to be written as.

    Attributes:
        path: Where in the value, as field names and positions, outermost first.
        reason: What does not fit.
    """

    def __init__(self, reason: str, path: tuple[str | int, ...] = ()):
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def under(self, step: str | int) -> EncodeError:
        """The same error, seen from one level further out."""
        return EncodeError(self.reason, (step, *self.path))

    def __str__(self) -> str:
        where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in self.path).lstrip(".")
        return f"{where}: {self.reason}" if where else self.reason


class _Encoder:
    """What both encodings share: the walk over the type table.

    A subclass writes each kind. `_out` holds the finished bytes.
    """

    def __init__(self, types: TypeTable):
        self._types = types
        self._out = bytearray()
        kinds = "array bitarray blob bool choice fourcc int null optional real32 real64 struct"
        self._write: dict[str, Callable[..., None]] = {
            f"_{kind}": getattr(self, f"_{kind}") for kind in kinds.split()
        }

    def instance(self, value: Any, type_id: int) -> None:
        """Write one value as the type at `type_id`.

        Raises:
            EncodeError: The value does not fit the type.
        """
        kind, arguments = self._types[type_id]
        self._write[kind](value, *arguments)

    def integer(self, value: Any, bounds: Bounds) -> None:
        """Write a number that no type stands for."""
        self._write["_int"](value, bounds)

    def byte_align(self) -> None:
        """Fill the last byte with zero bits."""

    def getvalue(self) -> bytes:
        """Everything written, up to a whole byte."""
        self.byte_align()
        return bytes(self._out)

    def _each(self, values: Sequence[Any], type_id: int) -> None:
        for position, value in enumerate(values):
            self._inside(position, value, type_id)

    def _inside(self, step: str | int, value: Any, type_id: int) -> None:
        try:
            self.instance(value, type_id)
        except EncodeError as error:
            raise error.under(step) from None


def _integer(value: Any, bounds: Bounds) -> int:
    low, bits = bounds
    if not isinstance(value, int) or isinstance(value, bool):
        raise EncodeError(f"expected an integer, got {value!r}")
    if not low <= value < low + (1 << bits):
        raise EncodeError(f"{value} is outside {low}..{low + (1 << bits) - 1}")
    return value


def _length(value: int, bounds: Bounds) -> int:
    try:
        return _integer(value, bounds)
    except EncodeError as error:
        raise EncodeError(f"length {error.reason}") from None


def _octets(value: Any, size: int | None = None) -> bytes:
    if isinstance(value, str) and size is not None:
        try:
            value = value.encode("latin-1")
        except UnicodeEncodeError:
            raise EncodeError(f"expected 8-bit characters, got {value!r}") from None
    if not isinstance(value, (bytes, bytearray)) or (size is not None and len(value) != size):
        raise EncodeError(f"expected {'bytes' if size is None else f'{size} bytes'}, got {value!r}")
    return bytes(value)


def _boolean(value: Any) -> int:
    if not isinstance(value, bool):
        raise EncodeError(f"expected a bool, got {value!r}")
    return int(value)


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise EncodeError(f"expected a list, got {value!r}")
    return value


def _real(value: Any, form: str) -> bytes:
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise EncodeError(f"expected a number, got {value!r}")
    try:
        return struct.pack(form, value)
    except OverflowError:
        raise EncodeError(f"{value!r} is too large for a 32-bit real") from None


def _chosen(value: Any, fields: dict[int, tuple[str, int]]) -> tuple[int, str, int]:
    if not isinstance(value, dict) or len(value) != 1:
        raise EncodeError(f"expected a dict of one item, got {value!r}")
    (name,) = value
    for tag, (known, type_id) in fields.items():
        if known == name:
            return tag, name, type_id
    raise EncodeError(f"no choice named {name!r}; one of {[name for name, _ in fields.values()]}")


def _parent(value: Any, fields: Sequence[tuple[str, int, int]]) -> Any:
    """What a struct's `__parent` was decoded from.

    s2protocol merges a parent that is a struct into its child, lets any other parent stand for the
    child where it is the only field, and files it under its own name otherwise.
    """
    if isinstance(value, dict):
        return value.get("__parent", value)
    if len(fields) == 1:
        return value
    raise EncodeError(f"expected a dict, got {value!r}")


class BitPackedEncoder(_Encoder):
    """Writes initData, game events and message events.

    Fields follow each other bit by bit and are not named. A number goes out from its highest bits,
    while each byte is filled from its lowest; blobs start at a whole byte.
    """

    def __init__(self, types: TypeTable):
        super().__init__(types)
        self._partial = 0
        self._used = 0  # bits of _partial, 0 to 7

    def byte_align(self) -> None:
        """Fill the last byte with zero bits."""
        if self._used:
            self._out.append(self._partial)
            self._partial = self._used = 0

    def bits(self, value: int, count: int) -> None:
        """Write the lowest `count` bits of `value`."""
        while count:
            taken = min(count, 8 - self._used)
            count -= taken
            self._partial |= (value >> count & ((1 << taken) - 1)) << self._used
            self._used += taken
            if self._used == 8:
                self._out.append(self._partial)
                self._partial = self._used = 0

    def _aligned(self, data: bytes) -> None:
        self.byte_align()
        self._out += data

    def _unaligned(self, data: bytes) -> None:
        for byte in data:
            self.bits(byte, 8)

    def _int(self, value: Any, bounds: Bounds) -> None:
        self.bits(_integer(value, bounds) - bounds[0], bounds[1])

    def _count(self, value: int, bounds: Bounds) -> None:
        self.bits(_length(value, bounds) - bounds[0], bounds[1])

    def _bool(self, value: Any) -> None:
        self.bits(_boolean(value), 1)

    def _null(self, value: Any) -> None:
        if value is not None:
            raise EncodeError(f"expected None, got {value!r}")

    def _optional(self, value: Any, type_id: int) -> None:
        self.bits(value is not None, 1)
        if value is not None:
            self.instance(value, type_id)

    def _array(self, value: Any, bounds: Bounds, type_id: int) -> None:
        self._count(len(_list(value)), bounds)
        self._each(value, type_id)

    def _blob(self, value: Any, bounds: Bounds) -> None:
        self._count(len(_octets(value)), bounds)
        self._aligned(_octets(value))

    def _bitarray(self, value: Any, bounds: Bounds) -> None:
        length, bits = _bit_array(value, int)
        self._count(length, bounds)
        if bits >> length:  # also true of every negative number
            raise EncodeError(f"{bits} has more than {length} bits")
        self.bits(bits, length)

    def _choice(self, value: Any, bounds: Bounds, fields: dict[int, tuple[str, int]]) -> None:
        tag, name, type_id = _chosen(value, fields)
        self._int(tag, bounds)
        self._inside(name, value[name], type_id)

    def _fourcc(self, value: Any) -> None:
        self._unaligned(_octets(value, 4))

    def _real32(self, value: Any) -> None:
        self._unaligned(_real(value, ">f"))

    def _real64(self, value: Any) -> None:
        self._unaligned(_real(value, ">d"))

    def _struct(self, value: Any, fields: Sequence[tuple[str, int, int]]) -> None:
        for name, type_id, _ in fields:
            if name == "__parent":
                self.instance(_parent(value, fields), type_id)
            elif not isinstance(value, dict):
                raise EncodeError(f"expected a dict, got {value!r}")
            elif name not in value:
                raise EncodeError(f"field {name} is missing")
            else:
                self._inside(name, value[name], type_id)


class VersionedEncoder(_Encoder):
    """Writes the replay header, details and tracker events.

    Every value carries its kind, every field its number, so that a reader can skip what it does
    not know. A struct's fields that are missing from the value are left out.
    """

    ARRAY, BITARRAY, BLOB, CHOICE, OPTIONAL, STRUCT, BYTE, WORD, DOUBLE, VINT = range(10)

    def vint(self, value: int) -> None:
        """Write a number of any size: sign and 6 bits, then 7 bits a byte, lowest first."""
        magnitude = abs(value)
        byte = (magnitude & 0x3F) << 1 | (value < 0)
        magnitude >>= 6
        while magnitude:
            self._out.append(byte | 0x80)
            byte = magnitude & 0x7F
            magnitude >>= 7
        self._out.append(byte)

    def _int(self, value: Any, bounds: Bounds) -> None:
        self._out.append(self.VINT)
        self.vint(_integer(value, bounds))

    def _bool(self, value: Any) -> None:
        self._out += bytes((self.BYTE, _boolean(value)))

    def _null(self, value: Any) -> None:
        if value is not None:
            raise EncodeError(f"expected None, got {value!r}")

    def _optional(self, value: Any, type_id: int) -> None:
        self._out += bytes((self.OPTIONAL, value is not None))
        if value is not None:
            self.instance(value, type_id)

    def _array(self, value: Any, bounds: Bounds, type_id: int) -> None:
        self._out.append(self.ARRAY)
        self.vint(_length(len(_list(value)), bounds))
        self._each(value, type_id)

    def _blob(self, value: Any, bounds: Bounds) -> None:
        data = _octets(value)
        self._out.append(self.BLOB)
        self.vint(_length(len(data), bounds))
        self._out += data

    def _bitarray(self, value: Any, bounds: Bounds) -> None:
        length, data = _bit_array(value, bytes)
        self._out.append(self.BITARRAY)
        self.vint(_length(length, bounds))
        self._out += _octets(data, (length + 7) // 8)

    def _choice(self, value: Any, bounds: Bounds, fields: dict[int, tuple[str, int]]) -> None:
        tag, name, type_id = _chosen(value, fields)
        self._out.append(self.CHOICE)
        self.vint(tag)
        self._inside(name, value[name], type_id)

    def _fourcc(self, value: Any) -> None:
        self._out.append(self.WORD)
        self._out += _octets(value, 4)

    def _real32(self, value: Any) -> None:
        self._out.append(self.WORD)
        self._out += _real(value, ">f")

    def _real64(self, value: Any) -> None:
        self._out.append(self.DOUBLE)
        self._out += _real(value, ">d")

    def _struct(self, value: Any, fields: Sequence[tuple[str, int, int]]) -> None:
        if not isinstance(value, dict) and [name for name, *_ in fields] != ["__parent"]:
            raise EncodeError(f"expected a dict, got {value!r}")
        present = [
            field
            for field in sorted(fields, key=lambda field: field[2])
            if field[0] == "__parent" or field[0] in value
        ]
        self._out.append(self.STRUCT)
        self.vint(len(present))
        for name, type_id, tag in present:
            self.vint(tag)
            if name == "__parent":
                self.instance(_parent(value, fields), type_id)
            else:
                self._inside(name, value[name], type_id)


def _bit_array(value: Any, held: type) -> tuple[int, Any]:
    if not (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], int)
        and isinstance(value[1], held)
    ):
        raise EncodeError(f"expected (number of bits, {held.__name__}), got {value!r}")
    return value
