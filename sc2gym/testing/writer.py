"""A replay from its parts: header, details, initData and event streams to the bytes of a file.

Every part has the shape in which s2protocol decodes it, so writing a replay and reading it back
gives what was put in.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sc2gym.protocol import STREAMS, VERSIONED, Stream, load_table
from sc2gym.testing.encoders import BitPackedEncoder, EncodeError, TypeTable, VersionedEncoder
from sc2gym.testing.mpq import Member, write_archive

__all__ = ["ReplayWriter", "write_replay"]

Event = Mapping[str, Any]

# What s2protocol adds to an event that is not a field of it.
_ADDED = frozenset({"_event", "_eventid", "_gameloop", "_userid", "_bits"})


@dataclass(frozen=True)
class _StreamTypes:
    """How one event stream is written under one build's table."""

    id_type: int
    events: Mapping[int, tuple[int, str]]
    versioned: bool
    users: bool
    names: Mapping[str, int]  # event name, full and short, to event id


class ReplayWriter:
    """Encodes the parts of a replay under one game version's type table.

    Args:
        build: The base build whose table to use; there must be one.

    Raises:
        UnsupportedReplayError: s2protocol has no table for the build.
    """

    def __init__(self, build: int):
        table = load_table(build)
        self.build = build
        self.types: TypeTable = table["typeinfos"]
        self._loops: int = table["svaruint32_typeid"]
        self._user: int | None = table.get("replay_userid_typeid")
        self._roots: dict[str, int] = {
            "header": table["replay_header_typeid"],
            "details": table["game_details_typeid"],
            "init_data": table["replay_initdata_typeid"],
        }
        self._streams: dict[str, _StreamTypes] = {}
        for stream in STREAMS:
            events = table.get(f"{stream}_event_types")
            # Base 24944 names its tracker events and leaves the type of their ids unset.
            if events and table.get(f"{stream}_eventid_typeid") is not None:
                names = {name: number for number, (_, name) in events.items()}
                names |= {short_name(name): number for name, number in list(names.items())}
                self._streams[stream] = _StreamTypes(
                    table[f"{stream}_eventid_typeid"],
                    events,
                    versioned=stream in VERSIONED,
                    users=stream != "tracker",
                    names=names,
                )

    def root(self, part: Literal["header", "details", "init_data"]) -> int:
        """The position in the type table of a whole part's type."""
        return self._roots[part]

    @property
    def streams(self) -> frozenset[str]:
        """The event streams that the build has types for."""
        return frozenset(self._streams)

    def knows(self, stream: Stream, event: str) -> bool:
        """Whether the build has such an event, by its full or short name."""
        return stream in self._streams and event in self._streams[stream].names

    def header(self, value: Mapping[str, Any]) -> bytes:
        """The replay header, as it stands in the archive's user data."""
        return self._versioned("header", value)

    def details(self, value: Mapping[str, Any]) -> bytes:
        """The member replay.details."""
        return self._versioned("details", value)

    def init_data(self, value: Mapping[str, Any]) -> bytes:
        """The member replay.initData."""
        encoder = BitPackedEncoder(self.types)
        encoder.instance(value, self._roots["init_data"])
        return encoder.getvalue()

    def events(self, stream: Stream, events: Iterable[Event]) -> bytes:
        """An event stream, in the order given.

        Each event is a dict of its fields with `_event` (its name, with or without the
        "NNet..." before it and the "Event" after) or `_eventid`, `_gameloop` and, in the game and
        message streams, `_userid` ({"m_userId": n} or n). Game loops that step back are written
        as the game writes them, modulo 2^32.

        Raises:
            EncodeError: An event does not fit its type; `path` starts with its position.
        """
        if stream not in self._streams:
            raise EncodeError(f"build {self.build} has no {stream} events")
        kind = self._streams[stream]
        encoder = (VersionedEncoder if kind.versioned else BitPackedEncoder)(self.types)
        loop = 0
        for position, event in enumerate(events):
            try:
                self._event(encoder, kind, event, loop)
            except EncodeError as error:
                raise error.under(position) from None
            loop = event["_gameloop"]
        return encoder.getvalue()

    def _event(
        self,
        encoder: BitPackedEncoder | VersionedEncoder,
        kind: _StreamTypes,
        event: Event,
        loop: int,
    ) -> None:
        if "_gameloop" not in event:
            raise EncodeError("field _gameloop is missing")
        encoder.instance(_var_uint32(event["_gameloop"] - loop & 0xFFFFFFFF), self._loops)
        if kind.users:
            user = event.get("_userid")
            if isinstance(user, Mapping) and self._user is None:
                user = user.get("m_userId")
            if self._user is None:
                # The first tables leave this type unset; it was a bare number of five bits.
                encoder.integer(user, (0, 5))
            else:
                encoder.instance({"m_userId": user} if isinstance(user, int) else user, self._user)
        number = event.get("_eventid", kind.names.get(event.get("_event", "")))
        if number not in kind.events:
            raise EncodeError(f"unknown event {event.get('_event', number)!r}")
        encoder.instance(number, kind.id_type)
        type_id, _ = kind.events[number]
        encoder.instance({k: v for k, v in event.items() if k not in _ADDED}, type_id)
        encoder.byte_align()

    def _versioned(self, root: str, value: Mapping[str, Any]) -> bytes:
        encoder = VersionedEncoder(self.types)
        encoder.instance(value, self._roots[root])
        return encoder.getvalue()


def write_replay(
    *,
    header: Mapping[str, Any],
    details: Mapping[str, Any] | None = None,
    init_data: Mapping[str, Any] | None = None,
    game_events: Iterable[Event] | None = None,
    tracker_events: Iterable[Event] | None = None,
    message_events: Iterable[Event] | None = None,
    metadata: Mapping[str, Any] | None = None,
    attributes: Mapping[str, Any] | None = None,
    build: int | None = None,
    extra: Mapping[str, bytes | Member] | None = None,
    **archive: Any,
) -> bytes:
    """A whole replay file. A part that is None is left out of the archive.

    Args:
        header: With `m_version.m_baseBuild`, which chooses the type table.
        details: As `decode_replay_details` gives it.
        init_data: As `decode_replay_initdata` gives it.
        game_events: In stream order; see `ReplayWriter.events`.
        tracker_events: In stream order.
        message_events: In stream order.
        metadata: What replay.gamemetadata.json holds.
        attributes: As `decode_replay_attributes_events` gives them; {} writes an empty member, as
            the game itself does at times.
        build: The table to use instead of the header's base build.
        extra: More members by name, or replacements (a damaged one, one stored differently).
        **archive: Passed on to `write_archive`.

    Raises:
        EncodeError: A value does not fit its type.
        UnsupportedReplayError: s2protocol has no table for the build.
    """
    writer = ReplayWriter(header["m_version"]["m_baseBuild"] if build is None else build)
    members: dict[str, bytes | Member] = {}
    if details is not None:
        members["replay.details"] = writer.details(details)
    if metadata is not None:
        members["replay.gamemetadata.json"] = json.dumps(metadata, indent=4).encode()
    if init_data is not None:
        members["replay.initData"] = writer.init_data(init_data)
    streams: tuple[tuple[Stream, Iterable[Event] | None], ...] = (
        ("game", game_events),
        ("message", message_events),
        ("tracker", tracker_events),
    )
    for stream, events in streams:
        if events is not None:
            members[f"replay.{stream}.events"] = writer.events(stream, events)
    if attributes is not None:
        members["replay.attributes.events"] = write_attributes(attributes)
    members |= extra or {}
    return write_archive(members, user_data=writer.header(header), **archive)


def write_attributes(attributes: Mapping[str, Any]) -> bytes:
    """The member replay.attributes.events: plain little-endian numbers, no type table."""
    if not attributes:
        return b""
    values = [
        (scope, value)
        for scope, by_id in attributes["scopes"].items()
        for of_id in by_id.values()
        for value in of_id
    ]
    source = bytes((attributes["source"],)) if "source" in attributes else b""  # since 1.2
    head = source + struct.pack("<II", attributes["mapNamespace"], len(values))
    return head + b"".join(
        # Read back, the text is turned round and freed of zeros.
        struct.pack("<IIB", value["namespace"], value["attrid"], scope)
        + value["value"].rjust(4, b"\0")[::-1]
        for scope, value in values
    )


def short_name(event: str) -> str:
    """An event's name as pysc2 has it: "NNet.Game.SCmdEvent" is "Cmd"."""
    return event.rpartition(".")[2].removeprefix("S").removesuffix("Event")


def _var_uint32(value: int) -> dict[str, int]:
    """A game loop delta in the fewest bits that hold it."""
    return {next(f"m_uint{bits}" for bits in (6, 14, 22, 32) if value < 1 << bits): value}
