"""s2protocol's type tables, one per game build, compiled for the decoder.

The tables are read from the installed s2protocol package as data: its `versions` package imports
`imp`, which Python 3.12 dropped, so the table files are parsed rather than imported.

Three gaps in the tables are mended, each found on real replays (builds are base builds):

* 15405 to 23260 leave the user-id type unset; in their files it is a bare 5-bit integer.
* 24944 declares no tracker types, though replays of 2.0.8 and 2.0.9 carry the stream.
* Thirteen builds between 23925 and 47185 have no table at all. A neighbour's usually fits.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sc2gym._fast.bits import FIELD, KINDS, NODE, Types
from sc2gym.errors import UnsupportedReplayError

Stream = Literal["game", "message", "tracker"]
BuildPolicy = Literal["nearest", "strict"]

STREAMS: tuple[Stream, ...] = ("game", "message", "tracker")

TypeInfo = tuple[str, list[Any]]

# The marker of the versioned encoding; the other two streams are bit-packed.
VERSIONED: frozenset[str] = frozenset({"tracker"})


@dataclass(frozen=True)
class EventTypes:
    """How one event stream is laid out.

    Attributes:
        ids: Event id of each event name, names without "NNet.Game.S" and "Event".
        types: Type id of each event id.
        event_id_type: Type id of the event id itself.
        user_type: Type id of the user id, -1 where the stream has none.
    """

    ids: Mapping[str, int]
    types: Mapping[int, int]
    event_id_type: int
    user_type: int


@dataclass(frozen=True, eq=False)
class Protocol:
    """The type table of one base build.

    Attributes:
        build: The base build whose table this is.
        typeinfos: The types as s2protocol writes them: (kind, arguments), by type id.
        types: The same, compiled.
        streams: The event streams that the build declares.
        loop_type: Type id of the game-loop delta before an event.
        header_type, details_type, init_data_type: Type ids of these members.
    """

    build: int
    typeinfos: tuple[TypeInfo, ...]
    types: Types
    streams: Mapping[Stream, EventTypes]
    loop_type: int
    header_type: int
    details_type: int
    init_data_type: int


@cache
def _table_files() -> dict[int, Path]:
    spec = find_spec("s2protocol")
    if spec is None or not spec.submodule_search_locations:
        raise UnsupportedReplayError("the s2protocol package is not installed")
    folder = Path(spec.submodule_search_locations[0], "versions")
    matches = ((re.fullmatch(r"protocol(\d+)\.py", path.name), path) for path in folder.iterdir())
    return {int(match[1]): path for match, path in matches if match}


@cache
def known_builds() -> tuple[int, ...]:
    """The base builds that the installed s2protocol has a table for, ascending."""
    return tuple(sorted(_table_files()))


def load_table(build: int) -> dict[str, Any]:
    """The assignments of a table file, as s2protocol wrote them.

    Raises:
        UnsupportedReplayError: s2protocol has no table for the build.
    """
    path = _table_files().get(build)
    if path is None:
        raise UnsupportedReplayError(f"s2protocol has no type table for build {build}")
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


@lru_cache(maxsize=1024)
def candidates(build: int, stream: Stream | None, policy: BuildPolicy) -> tuple[int, ...]:
    """The builds whose tables may fit a file of `build`, best first.

    Args:
        build: The file's base build.
        stream: The event stream to read, None for header, details and init data.
        policy: "strict" admits the build's own table alone; "nearest" then the next higher
            and the next lower one that declare the stream.

    Raises:
        UnsupportedReplayError: There is none.
    """
    builds = known_builds()
    if policy == "strict":
        near = [build] if build in builds else []
    else:
        at = bisect_left(builds, build)
        own = builds[at : at + 1] if build in builds else ()
        above = [b for b in builds[at + len(own) :] if _declares(b, stream)]
        below = [b for b in reversed(builds[:at]) if _declares(b, stream)]
        near = [*own, *above[:1], *below[:1]]
    near = [b for b in near if _declares(b, stream)]
    if not near:
        table = f"table of its {stream} events" if stream else "type table"
        raise UnsupportedReplayError(
            f"s2protocol has no {table} for build {build}"
            + (' (builds="nearest" tries a neighbour\'s)' if policy == "strict" else "")
        )
    return tuple(near)


# The tracker stream came with 2.0.8; the first table that declares it is of build 26490.
_FIRST_TRACKER_BUILD = 26490


def _declares(build: int, stream: Stream | None) -> bool:
    return stream != "tracker" or build >= _FIRST_TRACKER_BUILD


@cache
def protocol(build: int) -> Protocol:
    """The compiled table of one base build, made once."""
    table = load_table(build)
    typeinfos: list[TypeInfo] = table["typeinfos"]
    user_type = table["replay_userid_typeid"]
    if user_type is None:
        user_type = len(typeinfos)
        typeinfos = [*typeinfos, ("_int", [(0, 5)])]
    streams: dict[Stream, EventTypes] = {}
    for stream in STREAMS:
        declared = table[f"{stream}_event_types"]
        event_id_type = table[f"{stream}_eventid_typeid"]
        if declared and event_id_type is not None:
            streams[stream] = EventTypes(
                ids={_short_name(name): event_id for event_id, (_, name) in declared.items()},
                types={event_id: type_id for event_id, (type_id, _) in declared.items()},
                event_id_type=event_id_type,
                user_type=-1 if stream == "tracker" else user_type,
            )
    return Protocol(
        build=build,
        typeinfos=tuple(typeinfos),
        types=_compile(typeinfos),
        streams=streams,
        loop_type=table["svaruint32_typeid"],
        header_type=table["replay_header_typeid"],
        details_type=table["game_details_typeid"],
        init_data_type=table["replay_initdata_typeid"],
    )


def _short_name(name: str) -> str:
    # NNet.Replay.Tracker.SUnitBornEvent -> UnitBorn, NNet.Game.SChatMessage -> ChatMessage.
    return name.rsplit(".", 1)[1].removeprefix("S").removesuffix("Event")


def _compile(typeinfos: list[TypeInfo]) -> Types:
    nodes = np.zeros(len(typeinfos), NODE)
    nodes["dest"] = nodes["table"] = -1
    fields: list[tuple[int, int]] = []
    names: list[str] = []
    for node, (kind, arguments) in zip(nodes, typeinfos, strict=True):
        bounds, child, members = unpack_type(kind, arguments)
        node["kind"] = KINDS[kind]
        node["minimum"], node["bits"] = bounds
        node["child"] = -1 if child is None else child
        node["first"], node["count"] = len(fields), len(members)
        fields += [(tag, type_id) for tag, type_id, _ in members]
        names += [name for *_, name in members]
    return Types(nodes, np.array(fields, FIELD), names)


def unpack_type(
    kind: str, arguments: list[Any]
) -> tuple[tuple[int, int], int | None, list[tuple[int, int, str]]]:
    """One entry of `typeinfos` in a common form.

    Returns:
        ((minimum, bits), type id of the element or content if any, members as
        (tag, type id, name)).
    """
    if kind in ("_int", "_blob", "_bitarray"):
        return arguments[0], None, []
    if kind == "_array":
        return arguments[0], arguments[1], []
    if kind == "_optional":
        return (0, 1), arguments[0], []
    if kind == "_choice":
        return arguments[0], None, [(tag, t, name) for tag, (name, t) in arguments[1].items()]
    if kind == "_struct":
        return (0, 0), None, [(tag, type_id, name) for name, type_id, tag in arguments[0]]
    return (0, 0), None, []
