"""A `.SC2Replay` file, decoded without the game."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sc2gym import columns, protocol
from sc2gym._fast import bits
from sc2gym.archive import MAX_FILE_BYTES, Archive
from sc2gym.errors import CorruptReplayError, ReplayError, UnsupportedReplayError
from sc2gym.protocol import VERSIONED, BuildPolicy, EventTypes, Protocol, Stream
from sc2gym.relocation import locate

_RESULTS = {1: "win", 2: "loss", 3: "tie"}

# m_gameSpeed -> game loops a second. The tracker and game streams count 16 loops a game second;
# a game second is shorter the faster the game is set, and ladder games are always Faster.
_LOOPS_PER_SECOND = {0: 9.6, 1: 12.8, 2: 16.0, 3: 19.2, 4: 22.4}

_RACES = {"Terr": "Terran", "Prot": "Protoss", "Zerg": "Zerg"}

# The race names of details, which are in the language of whoever saved the file.
_LOCAL_RACES = {
    "terran": "Terran", "terraner": "Terran", "terrano": "Terran", "терран": "Terran",
    "terranie": "Terran", "terranos": "Terran", "人类": "Terran", "人類": "Terran",
    "테란": "Terran", "терраны": "Terran",
    "protoss": "Protoss", "протосс": "Protoss", "protosi": "Protoss", "星灵": "Protoss",
    "神族": "Protoss", "프로토스": "Protoss", "протоссы": "Protoss",
    "zerg": "Zerg", "зерг": "Zerg", "zergi": "Zerg", "异虫": "Zerg", "蟲族": "Zerg",
    "저그": "Zerg", "зерги": "Zerg", "zergs": "Zerg",
}  # fmt: skip

_CONTROL_COMPUTER = 3

# What stands in front of an event's columns; the tracker stream has no users.
_LEADING = (("_gameloop", "i8"), ("_userid", "i8"), ("_index", "i8"))

_LOBBY_FIELDS = frozenset({
    "m_syncLobbyState", "m_gameDescription", "m_mapSizeX", "m_mapSizeY",
    "m_lobbyState", "m_slots", "m_control", "m_userId", "m_workingSetSlotId",
    "m_userInitialData", "m_scaledRating",
})  # fmt: skip


@dataclass(frozen=True)
class Player:
    """One playing side of a game.

    Attributes:
        player_id: As the tracker stream numbers players, from 1.
        user_id: As the game stream numbers users; None for a computer player.
        name: Without clan; empty in anonymised files.
        clan: The clan tag, or empty.
        race: "Terran", "Protoss" or "Zerg"; "Unknown" if the file does not say.
        team: Team number.
        color: (red, green, blue), each 0 to 255.
        result: "win", "loss", "tie" or "undecided".
        mmr: Match-making rating, None where the file has none.
        apm: Actions a minute as the game counted them, likewise.
        is_ai: Whether the computer plays it.
    """

    player_id: int
    user_id: int | None
    name: str
    clan: str
    race: str
    team: int
    color: tuple[int, int, int]
    result: str
    mmr: int | None
    apm: float | None
    is_ai: bool


def content_hash(data: bytes) -> str:
    """What replays are known by: 32 hexadecimal digits of their bytes' BLAKE2b."""
    return blake2b(data, digest_size=16).hexdigest()


def _hash_of(path: Path) -> str:
    return content_hash(path.read_bytes())


class Replay:
    """One replay file. Members are unpacked and decoded when first asked for.

    Args:
        data: The file's bytes.
        name: What errors and infos call it.
        builds: "nearest" uses a neighbouring build's type table where the file's own build
            has none or does not fit; "strict" raises instead. `table_builds` tells what was used.

    Raises:
        ReplayError: Not a replay, or a damaged one. So does every attribute, of what it reads.
    """

    def __init__(self, data: bytes, *, name: str = "<bytes>", builds: BuildPolicy = "nearest"):
        if builds not in ("nearest", "strict"):
            raise ValueError(f'builds must be "nearest" or "strict", not {builds!r}')
        self.name = name
        self.builds: BuildPolicy = builds
        self.table_builds: dict[str, int] = {}
        self._data = data
        self._path: str | None = None
        self._members: dict[str, bytes | None] = {}
        self._streams: dict[Stream, _Stream] = {}
        with self._named():
            self._archive = Archive(data)
            self.header = self._read_header()

    @classmethod
    def open(
        cls,
        source: str | PathLike[str] | bytes,
        *,
        builds: BuildPolicy = "nearest",
        name: str | None = None,
    ) -> Replay:
        """Opens a file, or a file's bytes.

        Raises:
            ReplayError: The file cannot be read or is not a sound replay.
        """
        if isinstance(source, bytes):
            return cls(source, name=name or "<bytes>", builds=builds)
        path = fspath(source)
        try:
            place = Path(path).expanduser()
            if place.exists() and not place.is_file():
                # A pipe would have us wait for whoever writes to it.
                what = "a folder" if place.is_dir() else "a pipe or device"
                raise UnsupportedReplayError(f"{what}, not a file", name=name or path)
            with place.open("rb") as file:
                # One byte more than allowed tells; a film under a replay's name is not read whole.
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise ReplayError(error.strerror or str(error), name=name or path) from error
        replay = cls(data, name=name or path, builds=builds)
        replay._path = path
        return replay

    def __repr__(self) -> str:
        return f"Replay({self.name!r}, version={self.version!r}, game_loops={self.game_loops})"

    def __getstate__(self) -> dict[str, Any]:
        state = {"name": self.name, "builds": self.builds, "content_hash": self.content_hash}
        return state | ({"path": self._path} if self._path else {"data": self._data})

    def __setstate__(self, state: dict[str, Any]) -> None:
        source, name = state.get("data"), state["name"]
        if source is None:
            # Wherever it is now; it is called after that if it was called after its path.
            source = fspath(locate(state["path"], state["content_hash"], _hash_of))
            name = source if name == state["path"] else name
        self.__dict__ = Replay.open(source, builds=state["builds"], name=name).__dict__

    # -- header ---------------------------------------------------------------------------

    def _read_header(self) -> dict[str, Any]:
        # Its layout is the same in every table, so the newest reads all.
        newest = protocol.protocol(protocol.known_builds()[-1])
        block = self._archive.user_data
        header: dict[str, Any] = newest.types.decode(
            block, newest.header_type, True, "header", whole=False
        )
        version = header.get("m_version")
        fields = ("m_major", "m_minor", "m_revision", "m_build", "m_baseBuild")
        if (
            not isinstance(version, dict)
            or not all(isinstance(version.get(field), int) for field in fields)
            or not isinstance(header.get("m_elapsedGameLoops"), int)
        ):
            raise CorruptReplayError(0, "the header lacks the game's version or length")
        if not 0 <= header["m_elapsedGameLoops"] < 1 << 31:
            raise CorruptReplayError(0, f"a game of {header['m_elapsedGameLoops']} loops")
        return header

    @property
    def version(self) -> str:
        """The game's version, such as "4.10.0.75689"."""
        version = self.header["m_version"]
        parts = ("m_major", "m_minor", "m_revision", "m_build")
        return ".".join(str(version[part]) for part in parts)

    @property
    def build(self) -> int:
        """The game's build."""
        build: int = self.header["m_version"]["m_build"]
        return build

    @property
    def base_build(self) -> int:
        """The build whose data format the file has; type tables follow it."""
        build: int = self.header["m_version"]["m_baseBuild"]
        return build

    @property
    def game_loops(self) -> int:
        """The game's length in game loops."""
        loops: int = self.header["m_elapsedGameLoops"]
        return loops

    @cached_property
    def content_hash(self) -> str:
        """A digest of the file's bytes: 32 hexadecimal digits of BLAKE2b."""
        return content_hash(self._data)

    # -- members --------------------------------------------------------------------------

    def member(self, name: str) -> bytes | None:
        """An archive member, unpacked and kept; None where there is none."""
        if name not in self._members:
            with self._named():
                self._members[name] = self._archive.read_member(name)
        return self._members[name]

    def _named(self) -> _Named:
        return _Named(self.name)

    def _decode(
        self, member: str, type_name: str, versioned: bool, wanted: frozenset[str] | None = None
    ) -> dict[str, Any]:
        data = self.member(member) or self.member(f"{member}.backup")
        if data is None:
            raise UnsupportedReplayError(f"the archive has no {member}", name=self.name)
        first: CorruptReplayError | None = None
        with self._named():
            for build in protocol.candidates(self.base_build, None, self.builds):
                table = protocol.protocol(build)
                try:
                    value: dict[str, Any] = table.types.decode(
                        data, getattr(table, type_name), versioned, member, wanted=wanted
                    )
                except CorruptReplayError as error:
                    error.member = member
                    first = first or error
                else:
                    self.table_builds[member] = build
                    return value
            raise self._no_table(first)

    @cached_property
    def details(self) -> dict[str, Any]:
        """`replay.details` (or its backup), as s2protocol decodes it."""
        return self._decode("replay.details", "details_type", True)

    @cached_property
    def init_data(self) -> dict[str, Any]:
        """`replay.initData` (or its backup), as s2protocol decodes it."""
        return self._decode("replay.initData", "init_data_type", False)

    @cached_property
    def metadata(self) -> dict[str, Any] | None:
        """`replay.gamemetadata.json`, which exists from base build 44401."""
        data = self.member("replay.gamemetadata.json")
        if data is None:
            return None
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            what = f"not JSON: {error}"
            raise CorruptReplayError(
                0, what, member="replay.gamemetadata.json", name=self.name
            ) from error
        return value if isinstance(value, dict) else None

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """`replay.attributes.events`, as s2protocol decodes it; empty where there is none."""
        data = self.member("replay.attributes.events")
        if not data:
            return {}
        with self._named():
            return _read_attributes(data)

    # -- who played where -----------------------------------------------------------------

    @property
    def loops_per_second(self) -> float:
        """Game loops in a second of real time at the game's speed: 22.4 at Faster.

        Before Legacy of the Void the game's own clock showed game seconds of 16 loops.
        """
        return _LOOPS_PER_SECOND.get(self.details.get("m_gameSpeed", 4), 22.4)

    @property
    def map_name(self) -> str:
        """The map's title, in the language of whoever saved the file."""
        return _text(self.details.get("m_title"))

    @property
    def map_size(self) -> tuple[int, int]:
        """(width, height) of the whole map in cells; (0, 0) where no table reads the lobby."""
        game = self._lobby.get("m_gameDescription", {})
        return int(game.get("m_mapSizeX") or 0), int(game.get("m_mapSizeY") or 0)

    @cached_property
    def players(self) -> tuple[Player, ...]:
        """The playing sides in order of their player ids; observers are not among them."""
        listed = (self.metadata or {}).get("Players")
        rated = {
            entry["PlayerID"]: entry
            for entry in (listed if isinstance(listed, list) else [])
            if isinstance(entry, dict) and isinstance(entry.get("PlayerID"), int)
        }
        entries = list(enumerate(self.details.get("m_playerList") or [], start=1))
        # A player who had left before the file was saved is marked as an observer too.
        playing = [(i, e) for i, e in entries if not e.get("m_observe") or e.get("m_result")]
        # Where all are on one team, as in maps with their own lobby, results tell who played.
        decided = [(i, e) for i, e in playing if e.get("m_result") in _RESULTS]
        if len({entry.get("m_teamId") for _, entry in playing}) == 1 and len(decided) > 1:
            playing = decided
        return tuple(self._player(i, entry, rated.get(i, {})) for i, entry in playing)

    def _player(self, player_id: int, entry: dict[str, Any], rated: dict[str, Any]) -> Player:
        slot = self._slot(player_id, entry)
        is_ai = slot.get("m_control", entry.get("m_control")) == _CONTROL_COMPUTER
        user_id = None if is_ai else slot.get("m_userId", player_id - 1)
        user = self._user(user_id)
        clan, _, name = _text(entry.get("m_name")).rpartition("<sp/>")
        color = entry.get("m_color") or {}
        return Player(
            player_id=player_id,
            user_id=user_id,
            name=name,
            clan=clan.replace("&lt;", "").replace("&gt;", ""),
            race=_race(entry, rated),
            team=int(entry.get("m_teamId") or 0),
            color=(color.get("m_r", 0), color.get("m_g", 0), color.get("m_b", 0)),
            result=_RESULTS.get(entry.get("m_result", 0), "undecided"),
            mmr=_rating(rated.get("MMR"), user.get("m_scaledRating")),
            apm=_number(rated.get("APM")),
            is_ai=is_ai,
        )

    def _slot(self, player_id: int, entry: dict[str, Any]) -> dict[str, Any]:
        # Older files, and those of bots, have no slot ids; there slots are in players' order.
        slots = self._lobby.get("m_lobbyState", {}).get("m_slots") or []
        slot_id = entry.get("m_workingSetSlotId")
        if slot_id is None:
            return slots[player_id - 1] if player_id <= len(slots) else {}
        return next((s for s in slots if s.get("m_workingSetSlotId") == slot_id), {})

    @cached_property
    def _lobby(self) -> dict[str, Any]:
        # Of thousands of fields those that matter here. A game is still of use where no type
        # table reads its lobby.
        try:
            lobby: dict[str, Any] = self._decode(
                "replay.initData", "init_data_type", False, _LOBBY_FIELDS
            )["m_syncLobbyState"]
        except ReplayError:
            return {}
        return lobby

    def _user(self, user_id: int | None) -> dict[str, Any]:
        users = self._lobby.get("m_userInitialData", ())
        return users[user_id] if user_id is not None and 0 <= user_id < len(users) else {}

    # -- events ---------------------------------------------------------------------------

    def has_stream(self, stream: Stream) -> bool:
        """Whether the file has the stream at all; tracker events exist from 2.0.8."""
        return self.member(f"replay.{stream}.events") is not None

    def _stream(self, stream: Stream, reader: _Reader | None = None) -> _Stream:
        # The first table that reads the whole stream is the one.
        if stream not in self._streams:
            if stream not in protocol.STREAMS:
                raise ValueError(f"stream must be one of {', '.join(protocol.STREAMS)}")
            member = f"replay.{stream}.events"
            data = self.member(member) or b""
            first: CorruptReplayError | None = None
            with self._named():
                for build in protocol.candidates(self.base_build, stream, self.builds):
                    table = protocol.protocol(build)
                    if stream not in table.streams:
                        continue
                    types = table.streams[stream]
                    plans: list[bits.Plan] | None = None
                    if reader:
                        # What the table lacks is said if it turns out to be the one.
                        with suppress(ValueError):
                            plans = reader.plans(table)
                    try:
                        index, order, starts, read = table.types.index(
                            data,
                            stream in VERSIONED,
                            types.types,
                            types.event_id_type,
                            table.loop_type,
                            types.user_type,
                            stream,
                            plans or [],
                        )
                    except CorruptReplayError as error:
                        error.member = member
                        first = first or error
                        continue
                    self._streams[stream] = _Stream(table, types, index, order, starts)
                    self.table_builds[member] = build
                    if reader and plans is not None:
                        reader.read = read
                    break
                else:
                    raise self._no_table(first)
        return self._streams[stream]

    def _no_table(self, error: CorruptReplayError | None) -> ReplayError:
        # Where the build has a table of its own, the file is at fault; else the table may be.
        if error is not None and self.base_build in protocol.known_builds():
            return error
        return UnsupportedReplayError(
            f"s2protocol has no type table for build {self.base_build}, and its neighbours' "
            f"do not fit ({error})"
        )

    def event_counts(self, stream: Stream) -> dict[str, int]:
        """How many events of each type the stream has, most first."""
        found = self._stream(stream)
        counts = np.diff(found.starts)
        named = {name: int(counts[i]) for name, i in found.types.ids.items() if counts[i]}
        return dict(sorted(named.items(), key=lambda item: -item[1]))

    def event_types(self, stream: Stream) -> dict[str, int]:
        """{event name: event id} of all that the stream's type table knows."""
        return dict(self._stream(stream).types.ids)

    def timeline(self, stream: Stream) -> npt.NDArray[np.void]:
        """Every event of a stream in order, without what is in it.

        Returns:
            Read-only structured array with `game_loop` (int64, masked to 32 bits), `user`
            (int16, -1 in the tracker stream), `event_id` (int16) and `offset` (int64, bits).
        """
        return self._stream(stream).index

    def event_fields(self, stream: Stream, event: str) -> list[str]:
        """The columns that an event type has in this replay's type table."""
        found = self._stream(stream)
        return list(columns.column_paths(found.table.build, _type_id(found.types, event)))

    def choices(self, stream: Stream, event: str, path: str) -> dict[int, str]:
        """{tag: name} of the alternatives of a choice such as Cmd's "m_data"."""
        found = self._stream(stream)
        return columns.alternatives(found.table, _type_id(found.types, event), path)

    def events(
        self,
        stream: Stream,
        fields: Mapping[str, Sequence[str] | None],
        *,
        missing: columns.Missing = "raise",
    ) -> dict[str, npt.NDArray[np.void]]:
        """Events as columns.

        Args:
            stream: "game", "tracker" or "message".
            fields: {event: columns}; None for all of its columns. Events go by s2protocol's
                names without the frame: "Cmd" for NNet.Game.SCmdEvent. Columns are dotted
                paths, see `sc2gym.columns`.
            missing: What to do about an event or column that the type table does not have.

        Returns:
            {event: structured array, one row an event in stream order}. Before the columns
            asked for stand `_gameloop` (int64, loops, masked to 32 bits; may step back), `_userid`
            (int64, not in the tracker stream) and `_index` (int64, place in the stream).
            A repeated field brings its child table, "Event.path". An event type that the
            table has but the replay does not is an empty array. The arrays are new.

        Raises:
            CorruptReplayError: with member, offset and the event being read.
            ValueError: An event or column that the type table does not have.
        """
        reader = _Reader(stream, fields, missing)
        # Whoever first asks for events of a stream reads them while they are being found.
        decoded = self._stream(stream, reader)
        if reader.read is None:
            reader.read = []
            data = self.member(f"replay.{stream}.events") or b""
            for event_id, program, null, child_nulls in reader.plans(decoded.table):
                places = decoded.order[decoded.starts[event_id] : decoded.starts[event_id + 1]]
                with self._named():
                    columns_of = program.fill(
                        data,
                        stream in VERSIONED,
                        decoded.index,
                        places,
                        decoded.types.user_type >= 0,
                        null,
                        child_nulls,
                        f"replay.{stream}.events, event {event_id}",
                    )
                reader.read.append(columns_of)
        return reader.found()

    def blob(self, stream: Stream, pair: Sequence[int]) -> bytes | None:
        """The bytes that a blob column's (offset, length) stands for; None for null."""
        offset, length = (int(number) for number in pair)
        if offset < 0:
            return None
        return (self.member(f"replay.{stream}.events") or b"")[offset : offset + length]


@dataclass(frozen=True, eq=False)
class _Stream:
    """Where the events of a stream are; the arrays are those of `Types.index`."""

    table: Protocol
    types: EventTypes
    index: npt.NDArray[np.void]
    order: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]


class _Reader:
    """What `Replay.events` is asked for, by the type table that turns out to be the one."""

    def __init__(
        self,
        stream: Stream,
        fields: Mapping[str, Sequence[str] | None],
        missing: columns.Missing,
    ):
        self.stream = stream
        self.fields = fields
        self.missing = missing
        self.read: list[tuple[npt.NDArray[np.void], list[npt.NDArray[np.void]]]] | None = None
        self._plans: list[tuple[str, columns.Plan]] = []

    def plans(self, table: Protocol) -> list[bits.Plan]:
        """For `Types.index` and `Types.fill`."""
        types = table.streams[self.stream]
        leading = _LEADING if types.user_type >= 0 else _LEADING[::2]
        self._plans = []
        for event, wanted in self.fields.items():
            if event not in types.ids and self.missing == "skip":
                continue
            chosen = None if wanted is None else tuple(wanted)
            type_id = _type_id(types, event)
            plan = columns.plan(table.build, type_id, chosen, leading, self.missing)
            self._plans.append((event, plan))
        return [
            (types.ids[event], plan.program, plan.null, [null for _, null in plan.children])
            for event, plan in self._plans
        ]

    def found(self) -> dict[str, npt.NDArray[np.void]]:
        """What was read, by event and by path of child table."""
        assert self.read is not None
        found = {}
        for (event, plan), (records, children) in zip(self._plans, self.read, strict=True):
            found[event] = records
            for (path, _), child in zip(plan.children, children, strict=True):
                found[f"{event}.{path}"] = child
        return found


class _Named:
    """Gives replay errors that pass through the name of the file."""

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ReplayError) and error.name is None:
            error.name = self.name


def _type_id(types: EventTypes, event: str) -> int:
    try:
        return types.types[types.ids[event]]
    except KeyError:
        raise ValueError(f"no event {event!r}; there are {', '.join(types.ids)}") from None


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _race(entry: dict[str, Any], extra: dict[str, Any]) -> str:
    # The metadata's are four letters in English; details are in the saver's language.
    assigned = _RACES.get(str(extra.get("AssignedRace")))
    return assigned or _LOCAL_RACES.get(_text(entry.get("m_race")).lower(), "Unknown")


def _number(value: object) -> float | None:
    # JSON may hold anything, NaN and infinity included.
    return value if isinstance(value, (int, float)) and abs(value) < 1e9 else None


def _rating(*candidates: object) -> int | None:
    # Unrated players carry 0 or a large negative number.
    numbers = (_number(candidate) for candidate in candidates)
    return next((int(rating) for rating in numbers if rating is not None and rating > 0), None)


def _read_attributes(data: bytes) -> dict[str, Any]:
    # Little-endian: source (from 1.2 on), map namespace, count, then 13 bytes an attribute.
    size = len(data)
    start = next((start for start in (9, 8) if size >= start and (size - start) % 13 == 0), None)
    if start is None:
        raise CorruptReplayError(size, "cut short", member="replay.attributes.events")
    scopes: dict[int, dict[int, list[dict[str, Any]]]] = {}
    for at in range(start, size, 13):
        attribute = int.from_bytes(data[at + 4 : at + 8], "little")
        value = {
            "namespace": int.from_bytes(data[at : at + 4], "little"),
            "attrid": attribute,
            "value": data[at + 9 : at + 13][::-1].strip(b"\0"),
        }
        scopes.setdefault(data[at + 8], {}).setdefault(attribute, []).append(value)
    return {
        **({"source": data[0]} if start == 9 else {}),
        "mapNamespace": int.from_bytes(data[start - 8 : start - 4], "little"),
        "scopes": scopes,
    }
