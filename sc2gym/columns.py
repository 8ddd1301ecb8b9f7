"""What columns an event has, and the plan by which the decoder fills them.

An event type is a tree of structs, choices, optionals and repeated fields. Its leaves are columns
under dotted paths (`m_abil.m_abilLink`, `m_data.TargetUnit.m_tag`). Because null is not zero, a
column under an optional or a choice starts out as null: `NULL` for integers, NaN for reals, False
for booleans, (-1, -1) for the rest.

============== =================== ===========================================================
in the type    column              value
============== =================== ===========================================================
int            int64               the number; uint64 where it has 64 unsigned bits (null is 0)
bool           bool
real           float64
fourcc         S4
blob           int64 pair          (byte offset, length) in the unpacked member
bit array      int64 pair          (bit offset, bit length) in the unpacked member
repeated field int64 pair          (first row, rows) of the child table `Event.path`
optional       bool, named `path?` whether it is there
choice         int64, `path?`      the alternative's tag, NULL where there is none
============== =================== ===========================================================

Elements that are not structs are the column `value` of their child table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from sc2gym._fast.bits import FIELD, KINDS, NODE, Types
from sc2gym.protocol import Protocol, protocol, unpack_type

NULL: int = np.iinfo(np.int64).min
"""What an integer column holds where the file holds null. No integer of the format reaches it."""

Missing = Literal["raise", "skip"]
"""What to do about what a type table does not have."""

_PAIR = np.dtype(("i8", (2,)))
_ROOT = "value"


@dataclass(frozen=True, eq=False)
class Plan:
    """How to read one event type into records.

    Attributes:
        program: The event's types unrolled, with a destination for each wanted column.
        null: A record of nulls, shape (1,).
        children: (path of the repeated field, record of nulls) of each child table.
    """

    program: Types
    null: npt.NDArray[np.void]
    children: tuple[tuple[str, npt.NDArray[np.void]], ...]


@dataclass(frozen=True)
class _Column:
    path: str
    kind: str
    table: int  # 0 is the event itself, the rest are child tables
    dtype: np.dtype[np.generic]
    null: object


class _Unrolled:
    """An event type's tree as flat nodes, each with the column it would fill."""

    def __init__(self, table: Protocol, type_id: int):
        self.table = table
        self.nodes: list[tuple[int, int, int, int, int, int]] = []
        self.fields: list[tuple[int, int]] = []
        self.columns: dict[int, _Column] = {}
        self.child_paths: list[str] = []
        self.child_of: dict[int, int] = {}  # node of a repeated field -> its child table
        self._add(type_id, "", 0)

    def _add(self, type_id: int, path: str, table: int) -> int:
        kind, arguments = self.table.typeinfos[type_id]
        (minimum, bits), content, members = unpack_type(kind, arguments)
        index = len(self.nodes)
        self.nodes.append((0,) * 6)
        column = _column(path or _ROOT, kind, minimum, bits, table)
        if column:
            self.columns[index] = column
        child = -1
        if kind == "_array":
            assert content is not None
            self.child_paths.append(path or _ROOT)
            self.child_of[index] = len(self.child_paths)
            child = self._add(content, "", len(self.child_paths))
        elif content is not None:
            child = self._add(content, path, table)
        added = [
            (tag, self._add(member, path if name == "__parent" else _join(path, name), table))
            for tag, member, name in members
        ]
        self.nodes[index] = (KINDS[kind], bits, minimum, child, len(self.fields), len(added))
        self.fields += added
        return index

    def full_path(self, column: _Column) -> str:
        """The path from the event, through the repeated fields above."""
        if column.table == 0:
            return column.path
        return f"{self.child_path(column.table)}.{column.path}"

    def child_path(self, table: int) -> str:
        """The path of a child table from the event."""
        node = next(node for node, child in self.child_of.items() if child == table)
        return self.full_path(self.columns[node])


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _column(path: str, kind: str, minimum: int, bits: int, table: int) -> _Column | None:
    if kind == "_int":
        if bits == 64 and minimum == 0:
            return _Column(path, kind, table, np.dtype("u8"), 0)
        return _Column(path, kind, table, np.dtype("i8"), NULL)
    if kind == "_bool":
        return _Column(path, kind, table, np.dtype("?"), False)
    if kind in ("_blob", "_bitarray", "_array"):
        return _Column(path, kind, table, _PAIR, -1)
    if kind == "_fourcc":
        return _Column(path, kind, table, np.dtype("S4"), b"")
    if kind in ("_real32", "_real64"):
        return _Column(path, kind, table, np.dtype("f8"), np.nan)
    if kind == "_optional":
        return _Column(f"{path}?", kind, table, np.dtype("?"), False)
    if kind == "_choice":
        return _Column(f"{path}?", kind, table, np.dtype("i8"), NULL)
    return None


@cache
def _unroll(build: int, type_id: int) -> _Unrolled:
    return _Unrolled(protocol(build), type_id)


@cache
def column_paths(build: int, type_id: int) -> tuple[str, ...]:
    """Every column of an event type, those of child tables by their path from the event."""
    tree = _unroll(build, type_id)
    return tuple(tree.full_path(column) for column in tree.columns.values())


def alternatives(table: Protocol, type_id: int, path: str) -> dict[int, str]:
    """{tag: name} of the choice at `path`."""
    for name, members in _choices(table, type_id, ""):
        if name == path.removesuffix("?"):
            return members
    raise ValueError(f"no choice {path!r}")


def _choices(table: Protocol, type_id: int, path: str) -> Iterator[tuple[str, dict[int, str]]]:
    kind, arguments = table.typeinfos[type_id]
    _, content, members = unpack_type(kind, arguments)
    if kind == "_choice":
        yield path, {tag: name for tag, _, name in members}
    if content is not None:
        yield from _choices(table, content, path)
    for _, member, name in members:
        yield from _choices(table, member, path if name == "__parent" else _join(path, name))


@cache
def plan(
    build: int,
    type_id: int,
    wanted: tuple[str, ...] | None,
    leading: tuple[tuple[str, str], ...],
    missing: Missing = "raise",
) -> Plan:
    """The plan for one event type.

    Args:
        build: Whose table.
        type_id: The event's type.
        wanted: Column paths; None for all. A repeated field's path alone brings all of it.
        leading: (name, dtype) of columns that stand first in a record and are filled elsewhere.
        missing: "skip" leaves out the paths that the event does not have.

    Raises:
        ValueError: A path that the event does not have; the message lists those it has.
    """
    tree = _unroll(build, type_id)
    if wanted is not None and missing == "skip":
        wanted = tuple(path for path in wanted if path in column_paths(build, type_id))
    chosen = _choose(tree, wanted)
    tables = sorted({0, *(tree.columns[node].table for node in chosen)})
    records = {
        table: _record(
            [tree.columns[node] for node in chosen if tree.columns[node].table == table],
            leading if table == 0 else (),
        )
        for table in tables
    }
    order = {table: position - 1 for position, table in enumerate(tables)}
    nodes = np.zeros(len(tree.nodes), NODE)
    for name, values in zip(NODE.names or (), zip(*tree.nodes, strict=True), strict=False):
        nodes[name] = values
    nodes["dest"] = nodes["table"] = -1
    for node in chosen:
        column = tree.columns[node]
        offset = records[column.table].dtype.fields
        assert offset is not None
        nodes[node]["dest"] = offset[column.path][1]
        nodes[node]["table"] = order.get(tree.child_of.get(node, -1), -1)
    program = Types(nodes, np.array(tree.fields, FIELD), [])
    children = tuple((tree.child_path(table), records[table]) for table in tables[1:])
    return Plan(program, records[0], children)


def _choose(tree: _Unrolled, wanted: Sequence[str] | None) -> list[int]:
    paths = {node: tree.full_path(column) for node, column in tree.columns.items()}
    if wanted is None:
        return list(paths)
    missing = sorted(set(wanted) - set(paths.values()))
    if missing:
        raise ValueError(f"no field {missing[0]!r}; there are {', '.join(paths.values())}")
    arrays = {paths[node] for node in tree.child_of}
    whole = tuple(f"{path}." for path in wanted if path in arrays)
    picked = {node for node, path in paths.items() if path in wanted or path.startswith(whole)}
    # What lies in a child table is reached through the pairs that lead there.
    for node in list(picked):
        table = tree.columns[node].table
        while table:
            parent = next(n for n, child in tree.child_of.items() if child == table)
            picked.add(parent)
            table = tree.columns[parent].table
    return sorted(picked)


def _record(columns: list[_Column], leading: tuple[tuple[str, str], ...]) -> npt.NDArray[np.void]:
    dtype = np.dtype([*leading, *((column.path, column.dtype) for column in columns)])
    record = np.zeros(1, dtype)
    for column in columns:
        record[column.path] = column.null
    return record
