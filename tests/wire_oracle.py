"""Every value of a decoded message held against the protobuf library, and random messages."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from hypothesis import strategies as st

from sc2gym._fast.wire import Decoder
from sc2gym.game import load_schemas
from sc2gym.schema import Schema, fields_of

sc_pb = load_schemas()


@functools.cache
def schema(root: str) -> Schema:
    return Schema(root)


def assert_same(
    message: Any, data: bytes, decoder: Decoder, *, every_row: bool = False, damaged: bool = False
) -> None:
    """Asserts that `decoder`, having read `data`, holds what protobuf's `message` does.

    Args:
        message: What protobuf made of `data`.
        data: The bytes.
        decoder: Has read them.
        every_row: Each row of each table belongs to a record, so no row was lost (which is
            right only where a oneof was set anew).
        damaged: `data` may have enum values that protobuf drops, and text that is no text.
    """
    check = _Check(data, decoder, damaged)
    check.record(message, decoder[""][0], "")
    counts = {path: len(rows) for path, rows in check.tables.items() if path and len(rows)}
    for path, count in counts.items():
        assert check.rows.get(path, 0) <= count
    if every_row:
        assert check.rows == counts


class _Check:
    def __init__(self, data: bytes, decoder: Decoder, damaged: bool):
        self.data = data
        self.tables = {table.path: decoder[table.path] for table in decoder.schema.tables}
        self.damaged = damaged
        self.rows: dict[str, int] = {}

    def record(self, message: Any, record: np.void, path: str) -> None:
        descriptor = message.DESCRIPTOR
        present = {f.name for f, _ in message.ListFields()}
        names = fields_of(descriptor.name)
        assert {f.name for f in descriptor.fields} == set(names)
        has = int(record["has"])
        mine = {name for bit, name in enumerate(names) if has >> bit & 1}
        for f in descriptor.fields:
            below = f"{path}.{f.name}".lstrip(".")
            value, column = getattr(message, f.name), record[f.name]
            if self.damaged and f.enum_type is not None and self.unknown(f, column, below):
                continue
            assert (f.name in mine) == (f.name in present), below
            if f.is_repeated:
                self.rows_of(f, value, column, below)
            elif f.message_type is not None and f.message_type.name == descriptor.name:
                self.rows_of(f, [value] if f.name in present else [], column, below)
            else:
                self.value(f, value, column, below)

    def unknown(self, f: Any, column: Any, path: str) -> bool:
        """Whether an enum field has values that protobuf does not know."""
        known = f.enum_type.values_by_number
        if f.is_repeated:
            rows = self.tables[path][column["start"] :][: column["count"]]
            return not set(rows.tolist()) <= set(known)
        return int(column) not in known

    def rows_of(self, f: Any, values: Any, rows: np.void, path: str) -> None:
        start, count = int(rows["start"]), int(rows["count"])
        assert count == len(values), path
        if not count:
            return
        # A message that contains itself has one table for all depths: its path does not grow.
        table = path.replace(".add_on.add_on", ".add_on")
        mine = self.tables[table][start : start + count]
        assert len(mine) == count
        self.rows[table] = self.rows.get(table, 0) + count
        for value, row in zip(values, mine, strict=True):
            self.value(f, value, row, table)

    def value(self, f: Any, value: Any, mine: Any, path: str) -> None:
        if f.message_type is not None:
            self.record(value, mine, path)
        elif isinstance(value, str | bytes):
            value = value.encode() if isinstance(value, str) else value
            start = int(mine["offset"])
            assert self.data[start : start + int(mine["length"])] == value, path
        elif isinstance(value, float):
            assert np.float32(value).tobytes() == np.float32(mine).tobytes(), path
        else:
            assert int(mine) == int(value), path


@functools.cache
def messages(name: str, depth: int = 4) -> st.SearchStrategy[Any]:
    """Messages with any of their fields set, to `depth` levels, built by the protobuf library."""
    return _messages(_message_class(name), depth)


def _message_class(name: str) -> Any:
    from google.protobuf import message_factory

    descriptor = sc_pb.DESCRIPTOR.pool.FindMessageTypeByName(f"SC2APIProtocol.{name}")
    return message_factory.GetMessageClass(descriptor)


def parse(name: str, data: bytes) -> Any:
    return _message_class(name).FromString(data)


def _messages(cls: Any, depth: int) -> st.SearchStrategy[Any]:
    fields = [f for f in cls.DESCRIPTOR.fields if depth or f.message_type is None]
    if not fields:
        return st.builds(cls)

    @st.composite
    def build(draw: st.DrawFn) -> Any:
        message = cls()
        chosen = draw(st.sets(st.sampled_from(range(len(fields))), max_size=8))
        for i in chosen:
            f = fields[i]
            if f.message_type is not None:
                part = messages(f.message_type.name, depth - 1)
                if f.is_repeated:
                    getattr(message, f.name).extend(draw(st.lists(part, max_size=3)))
                else:
                    getattr(message, f.name).CopyFrom(draw(part))
            elif f.is_repeated:
                getattr(message, f.name).extend(draw(st.lists(_scalar(f), max_size=4)))
            else:
                setattr(message, f.name, draw(_scalar(f)))
        return message

    return build()


def _scalar(f: Any) -> st.SearchStrategy[Any]:
    if f.enum_type is not None:
        return st.sampled_from([value.number for value in f.enum_type.values])
    return {
        f.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
        f.TYPE_UINT32: st.integers(0, 2**32 - 1),
        f.TYPE_UINT64: st.integers(0, 2**64 - 1),
        f.TYPE_FLOAT: st.floats(width=32),
        f.TYPE_BOOL: st.booleans(),
        f.TYPE_STRING: st.text(max_size=8),
        f.TYPE_BYTES: st.binary(max_size=8),
    }[f.type]
