"""Real replays through our reader and through s2protocol: every field of every event is equal.

s2protocol's answer is the truth. An event is rebuilt from our columns, by the type table, into the
object that s2protocol gives, so that nothing can be left out of the comparison: a column that is
missing, a null that is a zero or a repeated field that is cut short makes the two differ.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import s2protocol
from conftest import DATA
from s2protocol.decoders import BitPackedBuffer, BitPackedDecoder, CorruptedError, TruncatedError

from sc2gym.errors import CorruptReplayError, ReplayError, UnsupportedReplayError
from sc2gym.replay import Replay

NULL = np.iinfo(np.int64).min
STREAMS = ("game", "tracker", "message")

# Base builds without a table of their own, and whose table is used: the next higher one.
NEXT_HIGHER = {24764: 24944, 38215: 51702, 39576: 51702, 42253: 51702}
# The first table that declares tracker events.
FIRST_TRACKER = 26490

# Game streams that s2protocol's tables do not fit, and the event at which that shows.
STOPS_AT = {
    "gameheart-observers": (418, 4105),
    "2.0.3.24764-resumed": (1956, 19989),
    "1.0.0.16117-a": (4, 32),
}
# Lobbies likewise: neither neighbour of these builds reads them.
NO_LOBBY = ("3.0.0.38215-a", "3.1.0-a", "3.3.0-a")

FILES = sorted((DATA / "replays").rglob("*.SC2Replay"))
EACH = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@cache
def table(build: int) -> ModuleType:
    """s2protocol's table of a build, by path (its package does not import on Python 3.12).

    Mended as ours are: old tables leave the user id's type unset, a bare 5-bit integer.
    """
    path = Path(s2protocol.__file__).parent / "versions" / f"protocol{build}.py"
    spec = importlib.util.spec_from_file_location(f"oracle_{build}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if module.replay_userid_typeid is None:
        module.replay_userid_typeid = len(module.typeinfos)
        module.typeinfos.append(("_int", [(0, 5)]))
    return module


def oracle_build(replay: Replay, stream: str) -> int:
    """Whose table should read a stream, worked out apart from the reader."""
    build = NEXT_HIGHER.get(replay.base_build, replay.base_build)
    return max(build, FIRST_TRACKER) if stream == "tracker" else build


ABSENT = object()


class Rebuilt:
    """Events of one type, back from columns to s2protocol's objects."""

    def __init__(
        self, types: list[Any], type_id: int, name: str, columns: dict[str, Any], data: bytes
    ):
        self.types, self.type_id, self.data = types, type_id, data
        self.columns = {
            "" if key == name else key.removeprefix(f"{name}."): array
            for key, array in columns.items()
            if key == name or key.startswith(f"{name}.")
        }
        self.read: Counter[tuple[str, str]] = Counter()
        # Plain lists: one conversion a column instead of one a value.
        self.tables = {
            table: {column: array[column].tolist() for column in array.dtype.names}
            for table, array in self.columns.items()
        }

    def event(self, row: int) -> Any:
        return self.value(self.type_id, "", "", row)

    def take(self, table: str, column: str, row: int) -> Any:
        """A column's value, counted where it is not null."""
        value = self.tables[table][column][row]
        null = value[0] == -1 if isinstance(value, list) else value is False or value == NULL
        self.read[table, column] += not null
        return value

    def check_nulls(self) -> None:
        """What belongs to no event, such as the target of a command without one, is null."""
        for table, array in self.columns.items():
            for column in array.dtype.names:
                values = array[column]
                if column.startswith("_") or values.dtype not in (np.int64, np.bool_):
                    continue
                if values.ndim == 2:
                    there = values[:, 0] != -1
                else:
                    there = values if values.dtype == np.bool_ else values != NULL
                assert np.count_nonzero(there) == self.read[table, column], column

    def value(self, type_id: int, table: str, path: str, row: int) -> Any:
        kind, arguments = self.types[type_id]
        here = path or "value"
        if kind == "_null":
            return None
        if kind == "_optional":
            there = self.take(table, f"{here}?", row)
            return self.value(arguments[0], table, path, row) if there else None
        if kind == "_choice":
            name, chosen = arguments[1][self.take(table, f"{here}?", row)]
            return {name: self.value(chosen, table, f"{path}.{name}" if path else name, row)}
        if kind == "_struct":
            return self.struct(arguments[0], table, path, row)
        value = self.take(table, here, row)
        if kind in ("_int", "_bool", "_real32", "_real64"):
            return ABSENT if value == NULL else value
        if kind == "_fourcc":
            return value.ljust(4, b"\0").decode("latin-1")
        first, size = value
        if first == -1:
            return ABSENT
        if kind == "_blob":
            return self.data[first : first + size]
        if kind == "_bitarray":
            buffer = BitPackedBuffer(self.data[first >> 3 :])
            buffer.read_bits(first & 7)
            return size, buffer.read_bits(size)
        assert kind == "_array", kind
        child = f"{table}.{here}" if table else here
        return [self.value(arguments[1], child, "", at) for at in range(first, first + size)]

    def struct(self, fields: list[Any], table: str, path: str, row: int) -> Any:
        result: dict[str, Any] = {}
        for name, type_id, _ in fields:
            parent = name == "__parent"
            inner = path if parent else f"{path}.{name}" if path else name
            value = self.value(type_id, table, inner, row)
            if parent and isinstance(value, dict):
                result.update(value)
            elif parent and len(fields) == 1:
                return value
            elif value is not ABSENT:
                result[name] = value
        return result


def decoded(module: ModuleType, stream: str, data: bytes) -> Iterator[dict[str, Any]]:
    return getattr(module, f"decode_replay_{stream}_events")(data)


def short(name: str) -> str:
    return name.rpartition(".")[2].removeprefix("S").removesuffix("Event")


@EACH
@pytest.mark.parametrize("stream", STREAMS)
def test_every_field_of_every_event(path: Path, stream: str) -> None:
    replay = Replay.open(path)
    member = f"replay.{stream}.events"
    data = replay.member(member) or b""
    build = oracle_build(replay, stream)
    module = table(build)
    if stream == "game" and path.stem in STOPS_AT:
        assert_stops_where_s2protocol_does(replay, module, data, *STOPS_AT[path.stem])
        return

    counts = replay.event_counts(stream)
    assert replay.table_builds[member] == build
    columns = replay.events(stream, dict.fromkeys(counts))
    ids = {short(name): type_id for type_id, name in getattr(
        module, f"{stream}_event_types").values()}  # fmt: skip
    rebuilt = {name: Rebuilt(module.typeinfos, ids[name], name, columns, data) for name in counts}
    seen = dict.fromkeys(counts, 0)
    for index, event in enumerate(decoded(module, stream, data)):
        name = short(event.pop("_event"))
        row = seen[name]
        seen[name] += 1
        record = rebuilt[name].tables[""]
        assert record["_index"][row] == index
        assert record["_gameloop"][row] == event.pop("_gameloop") & 0xFFFFFFFF
        if stream != "tracker":
            user = event.pop("_userid")
            assert record["_userid"][row] == (user["m_userId"] if isinstance(user, dict) else user)
        del event["_eventid"], event["_bits"]
        assert rebuilt[name].event(row) == event, (name, row)
    assert seen == counts
    for events in rebuilt.values():
        events.check_nulls()


def assert_stops_where_s2protocol_does(
    replay: Replay, module: ModuleType, data: bytes, event: int, offset: int
) -> None:
    count = 0
    with pytest.raises((CorruptedError, TruncatedError)):
        for _ in decoded(module, "game", data):
            count += 1
    assert count == event
    with pytest.raises(ReplayError, match=rf"byte {offset}: game event {event}: id \d+ ") as caught:
        replay.event_counts("game")
    assert caught.value.name == replay.name
    if replay.base_build in NEXT_HIGHER:
        assert isinstance(caught.value, UnsupportedReplayError)
        assert str(replay.base_build) in str(caught.value)
    else:
        assert isinstance(caught.value, CorruptReplayError)
        assert caught.value.member == "replay.game.events"
        assert caught.value.offset == offset


@EACH
def test_header_details_and_attributes(path: Path) -> None:
    replay = Replay.open(path)
    module = table(oracle_build(replay, "game"))
    newest = table(max(int(file.stem[8:]) for file in Path(module.__file__).parent.glob("p*.py")))
    assert replay.header == newest.decode_replay_header(replay._archive.user_data)
    details = replay.member("replay.details") or replay.member("replay.details.backup")
    assert replay.details == module.decode_replay_details(details)
    attributes = replay.member("replay.attributes.events") or b""
    if attributes and len(attributes) % 13 == 8:
        # Files before 1.2 lack the first byte, which s2protocol always expects.
        expected = module.decode_replay_attributes_events(b"\0" + attributes)
        del expected["source"]
        assert replay.version < "1.2"
    else:
        expected = module.decode_replay_attributes_events(attributes)
    assert replay.attributes == expected


@EACH
def test_the_lobby(path: Path) -> None:
    replay = Replay.open(path)
    data = replay.member("replay.initData") or replay.member("replay.initData.backup")
    module = table(oracle_build(replay, "game"))
    if path.stem in NO_LOBBY:
        with pytest.raises(UnsupportedReplayError, match=str(replay.base_build)):
            _ = replay.init_data
        # s2protocol fails too, or stops short of the end without noticing.
        decoder = BitPackedDecoder(data, module.typeinfos)
        with contextlib.suppress(CorruptedError, TruncatedError):
            decoder.instance(module.replay_initdata_typeid)
            decoder.byte_align()
            assert not decoder.done()
        return
    if path.stem == "1.0.0.16117-a":
        module = table(16561)  # its own does not read all of it
    assert replay.init_data == module.decode_replay_initdata(data)


def test_all_files_are_here(real_replays: list[Path]) -> None:
    assert len(FILES) == len(real_replays) == 29
