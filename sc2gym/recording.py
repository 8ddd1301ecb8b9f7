"""Recorded games on disk: the `ResponseObservation` messages of one player, as they came.

A recording is an Arrow IPC file, which pyarrow alone reads:

    reader = pyarrow.ipc.open_file("game-p1.SC2Recording")
    wire = reader.get_batch(0)["observation"][0].as_py()     # ResponseObservation, serialized
    json.loads(reader.schema.metadata[b"sc2gym.recording"])  # replay, player, versions, options

Its record batches are blocks of about two megabytes, compressed with zstd, a row a frame:

    game_loop    int32   loop at which the game was observed
    crc32        uint32  of `observation`
    summary      binary  `observation` without units, layers and pictures: what is needed to
                         open an episode (actions, score, results), without unpacking the rest
    observation  binary  serialized `SC2APIProtocol.ResponseObservation`

Each block states its ordinal and a checksum of its small columns in its own metadata, and the
last one that it is the last, and the checksums of all blocks before it as they are stored. So
whatever is cut off, exchanged or changed is noticed; and as a recording is written beside and
renamed, it is whole or absent.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import os
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sc2gym.errors import RecordingError
from sc2gym.relocation import locate

SUFFIX = ".SC2Recording"
FORMAT = 1
BLOCK_BYTES = 2 << 20
COMPRESSION_LEVEL = 3

_KEY = b"sc2gym.recording"
_CHECKSUM_KEY = b"sc2gym.recording.crc32"
_BLOCK_KEY = b"sc2gym.block"
_BLOCK_CHECKSUM_KEY = b"sc2gym.block.crc32"
_MAGIC = b"ARROW1"

Buffer = bytes | bytearray | memoryview


@dataclasses.dataclass(frozen=True)
class RecordingInfo:
    """What a recording is of, and how it was taken.

    Attributes:
        replay: File name of the replay.
        content_hash: Of the replay's bytes: blake2b of 16 bytes, in hex, as `Replay` gives it.
        player: Player id whose observations these are.
        game_version: Of the game, e.g. "4.10.0.75689".
        base_build: Of the game, e.g. 75689.
        data_version: Of the game's data, "" where the replay does not say.
        map_name: As the game names it.
        players: What is known of each player, as the fields of `sc2gym.replay.Player`.
        loops_per_second: Game loops in a second at the speed that was played.
        step_mul: Game loops between frames, where `actions` is None.
        actions: Game loops at which a player acted, if those were recorded instead.
        disable_fog: Whether everything was seen.
        interface: Serialized `InterfaceOptions`.
        game_info: Serialized `ResponseGameInfo`.
        replay_info: Serialized `ResponseReplayInfo`.
        recorder: Version of sc2gym that wrote it.
    """

    replay: str
    content_hash: str
    player: int
    game_version: str
    base_build: int
    data_version: str
    map_name: str
    players: tuple[dict[str, Any], ...]
    loops_per_second: float
    step_mul: int
    actions: tuple[int, ...] | None
    disable_fog: bool
    interface: bytes
    game_info: bytes
    replay_info: bytes
    recorder: str = ""

    def to_json(self) -> bytes:
        """The metadata of the file; messages are in base64."""
        values = {"format": FORMAT, **dataclasses.asdict(self)}
        for name in _MESSAGES:
            values[name] = base64.b64encode(values[name]).decode()
        return json.dumps(values).encode()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> RecordingInfo:
        """Of a recording, without opening all of it.

        Raises:
            RecordingError: As from `Recording`.
        """
        return Recording(path, index=False).info

    @classmethod
    def from_json(cls, text: bytes) -> RecordingInfo:
        """The opposite; raises ValueError, KeyError or TypeError on anything else."""
        values = json.loads(text)
        if values["format"] != FORMAT:
            raise ValueError(f"format {values['format']}")
        fields = {}
        for field in dataclasses.fields(cls):
            value = values[field.name]
            if field.name in _MESSAGES:
                value = base64.b64decode(value, validate=True)
            elif field.name == "actions" and value is not None:
                value = tuple(map(int, value))
            elif field.name == "players":
                value = tuple(map(dict, value))
            fields[field.name] = value
        return cls(**fields)


# What Python raises about malformed text and numbers.
_MALFORMED = (ValueError, KeyError, TypeError, RecursionError)
_MESSAGES = ("interface", "game_info", "replay_info")


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Bytes of a recording.

    Attributes:
        frames: How many observations.
        raw: Their serialized bytes.
        stored: The file.
        alone: The frames compressed one by one, as they would be with one frame a file.
    """

    frames: int
    raw: int
    stored: int
    alone: int


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """Consecutive frames, unpacked; the arrays are read-only views of one piece of memory.

    Attributes:
        first: Number of the first frame.
        offsets: int32 (frames + 1,): frame i is `data[offsets[i]:offsets[i + 1]]`.
        data: uint8 (bytes,).
    """

    first: int
    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> memoryview:
        """Frame `index` of the block, serialized."""
        start, stop = self.offsets[index], self.offsets[index + 1]
        return self.data.data[start:stop]


class RecordingWriter:
    """Writes a recording beside `path` and renames it when it is whole.

    A context manager: leaving it finishes the recording, leaving it by an exception discards it.

    Args:
        path: The file to make; an existing one is replaced at the end.
        info: What is recorded.
        block_bytes: Serialized bytes after which a block is closed.
    """

    def __init__(
        self, path: str | os.PathLike[str], info: RecordingInfo, block_bytes: int = BLOCK_BYTES
    ):
        pa = _pyarrow()
        self.path = Path(path)
        self._partial = self.path.with_name(self.path.name + ".partial")
        self._pa = pa
        self._block_bytes = block_bytes
        self._codec = pa.Codec("zstd", compression_level=COMPRESSION_LEVEL)
        text = info.to_json()
        schema = _schema(pa).with_metadata(
            {_KEY: text, _CHECKSUM_KEY: str(zlib.crc32(text)).encode()}
        )
        self._file = _Sink(self._partial, "wb")
        self._writer = pa.ipc.new_file(
            self._file, schema, options=pa.ipc.IpcWriteOptions(compression=self._codec)
        )
        self._rows: list[tuple[int, int, bytes, bytes]] = []
        self._pending: Any = None  # a full block, held until it is known whether it is the last
        self._stored: list[int] = []
        self._pending_bytes = self._game_loop = 0
        self.frames = self.raw = self._alone = 0

    def append(self, observation: bytes) -> None:
        """Adds a frame, a serialized `ResponseObservation`.

        Raises:
            ValueError: It is not one, or its game loop lies before the last frame's.
        """
        game_loop, summary = summarize(observation)
        if game_loop < self._game_loop:
            raise ValueError(f"game loop {game_loop} after {self._game_loop}")
        self._game_loop = game_loop
        self._rows.append((game_loop, zlib.crc32(observation), summary, observation))
        self._pending_bytes += len(observation)
        self.frames += 1
        self.raw += len(observation)
        self._alone += len(self._codec.compress(observation, asbytes=True))
        if self._pending_bytes >= self._block_bytes:
            self._close_block(last=False)

    def finish(self) -> Sizes:
        """Writes what is left, puts the file in its place, and returns its sizes."""
        try:
            self._close_block(last=True)
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            stored = self._file.tell()
            self._file.close()
            os.replace(self._partial, self.path)
        except BaseException:
            self.discard()
            raise
        return Sizes(self.frames, self.raw, stored, self._alone)

    def discard(self) -> None:
        """Leaves nothing behind."""
        self._rows.clear()
        self._file.close()
        self._partial.unlink(missing_ok=True)

    def _close_block(self, last: bool) -> None:
        # The block before goes out now that it is known not to be the last one.
        if self._pending is not None and (self._rows or not last):
            self._write(self._pending, last=False)
            self._pending = None
        if self._rows or self._pending is None:
            columns = zip(*self._rows, strict=True) if self._rows else ((), (), (), ())
            self._pending = self._pa.record_batch(
                [
                    self._pa.array(c, f.type)
                    for c, f in zip(columns, _schema(self._pa), strict=True)
                ],
                schema=_schema(self._pa),
            )
            self._rows.clear()
            self._pending_bytes = 0
        if last:
            self._write(self._pending, last=True)

    def _write(self, batch: Any, last: bool) -> None:
        statement: dict[str, Any] = {"block": len(self._stored), "last": last}
        if last:
            statement.update(frames=self.frames, raw=self.raw, alone=self._alone)
            statement.update(stored=self._stored)
        text = json.dumps(statement).encode()
        checksum = str(_index_checksum(batch, text)).encode()
        self._writer.write_batch(
            batch, custom_metadata={_BLOCK_KEY: text, _BLOCK_CHECKSUM_KEY: checksum}
        )
        self._stored.append(self._file.checksum)
        self._file.checksum = 0

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.discard()
        elif not self._file.closed:
            self.finish()


class _Sink(io.FileIO):
    """A file that knows the checksum of what was written since it was last set to 0."""

    checksum = 0

    def write(self, data: Any, /) -> int:
        self.checksum = zlib.crc32(data, self.checksum)
        left = memoryview(data).cast("B")
        count = len(left)
        while left:  # a disk that fills up may take a part
            left = left[super().write(left) :]
        return count


class Recording:
    """A recording, opened: its frames are unpacked a block at a time, when asked for.

    The file is mapped, so opening costs the small columns only. Safe to read from several
    threads; pickles as its path.

    Args:
        path: The file.
        index: Whether to read what the other attributes and methods need, besides `info`.

    Attributes:
        path: As given.
        info: What it is of.
        game_loops: int32 (frames,), the loop of each frame, read-only; never falls.
        first_frames: int64 (blocks + 1,), the first frame of each block, then their number.
        sizes: Its bytes.

    Raises:
        RecordingError: The file is damaged, cut short, or of another format version. The
            same is raised where damage is met later, with block and byte offset.
    """

    def __init__(self, path: str | os.PathLike[str], *, index: bool = True):
        self.path = Path(path)
        pa = self._pa = _pyarrow()
        self._lock = threading.Lock()
        try:
            self._map = pa.memory_map(os.fspath(path))
        except (OSError, ValueError) as error:  # pyarrow refuses an empty file with the latter
            raise RecordingError(f"{path}: cannot be opened: {error}") from error
        self._offsets = self._read_footer()
        with self._reading(None, None, "the schema"):
            self._index = pa.ipc.open_file(
                self._map, options=pa.ipc.IpcReadOptions(included_fields=[0, 1, 2])
            )
            self._frames = pa.ipc.open_file(
                self._map, options=pa.ipc.IpcReadOptions(included_fields=[3])
            )
            schema = self._index.schema
            sound = schema.equals(pa.schema(list(_schema(pa))[:3]))
            self.info = self._read_info(schema.metadata or {})
        if not sound:
            raise RecordingError(f"{path}: its columns are not those of a recording")
        self._cached: Block | None = None
        if index:
            self._read_index()

    def __len__(self) -> int:
        return len(self.game_loops)

    @property
    def identity(self) -> str:
        """What pickles know the file by, whatever it is called and wherever it is.

        A hash of the file's end, which says what the recording is of and where each block lies.
        """
        (length,) = struct.unpack("<i", self._bytes[-len(_MAGIC) - 4 : -len(_MAGIC)])
        end = self._bytes[-len(_MAGIC) - 4 - length :]
        return blake2b(end, digest_size=16).hexdigest()

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.path, self.identity)

    @property
    def nbytes(self) -> int:
        """Bytes of memory: the index, and the block that a reader keeps."""
        index = self.game_loops.nbytes + self.first_frames.nbytes + 32 * len(self._checksums)
        return index + sum(len(b.data) for b in self._summaries) + BLOCK_BYTES

    @property
    def num_blocks(self) -> int:
        """How many blocks the frames lie in."""
        return len(self._offsets)

    def block_of(self, frame: int) -> int:
        """The block that holds `frame`."""
        if not 0 <= frame < len(self):
            raise IndexError(f"frame {frame} of {len(self)}")
        return int(np.searchsorted(self.first_frames, frame, side="right")) - 1

    def block(self, index: int) -> Block:
        """Unpacks a block and checks every frame in it."""
        offset = self._offsets[index]
        first, after = self.first_frames[index : index + 2]
        # What is stored is a fraction of what comes out of it, and so checked much faster. Only
        # the last block, which holds the checksums, is checked frame by frame.
        is_last = index == len(self._offsets) - 1
        if (
            not is_last
            and zlib.crc32(self._bytes[self._ends[index] : self._ends[index + 1]])
            != (self._stored[index])
        ):
            raise self._damaged(index, offset, "it fails its checksum")
        with self._lock, self._reading(index, offset, "its frames"):
            batch = self._frames.get_batch(index)
            batch.validate(full=True)
            column = batch.column(0)
            if len(column) != after - first or column.null_count:
                raise ValueError(f"{len(column)} frames where {after - first} belong")
            block = Block(int(first), *_offsets_and_data(column))
        for i, checksum in enumerate(self._checksums[first:after] if is_last else ()):
            if zlib.crc32(block[i]) != checksum:
                raise self._damaged(index, offset, f"frame {first + i} fails its checksum")
        return block

    def observation(self, frame: int) -> memoryview:
        """The serialized `ResponseObservation` of a frame, a read-only view.

        The block of the last frame is kept, so frames in order are unpacked once.
        """
        index = self.block_of(frame)
        block = self._cached
        if block is None or block.first != self.first_frames[index]:
            self._cached = block = self.block(index)
        return block[frame - block.first]

    def summaries(self) -> Iterator[memoryview]:
        """Every frame's message without units, layers and pictures, in order."""
        for block in self._summaries:
            yield from (block[i] for i in range(len(block)))

    def _read_footer(self) -> list[int]:
        """Byte offsets of the blocks, from the end of the file."""
        try:
            self._bytes = memoryview(self._map.read_buffer())
            blocks = _blocks(self._bytes)
            self._ends = [0, *(end for _, end in blocks)]
            return [offset for offset, _ in blocks]
        except (struct.error, ValueError, IndexError) as error:
            raise RecordingError(
                f"{self.path}: not a whole recording: its end, at byte {self._map.size()}, is "
                f"missing or damaged ({error}); record the game again"
            ) from error

    def _read_info(self, metadata: dict[bytes, bytes]) -> RecordingInfo:
        text = metadata.get(_KEY)
        if text is None:
            raise RecordingError(f"{self.path}: an Arrow file, but not a recording of a game")
        try:
            if zlib.crc32(text) != int(metadata[_CHECKSUM_KEY]):
                raise ValueError("fails its checksum")
            version = json.loads(text)["format"]
            if version != FORMAT:
                raise RecordingError(
                    f"{self.path}: recording format {version}, and this release of sc2gym reads "
                    f"format {FORMAT}: " + ("upgrade it" if version > FORMAT else "record again")
                )
            return RecordingInfo.from_json(text)
        except _MALFORMED as error:
            raise RecordingError(f"{self.path}: metadata is damaged: {error!r}") from error

    def _read_index(self) -> None:
        loops, checksums, self._summaries = [], [], list[Block]()
        frames, last = [0], {}
        for index, offset in enumerate(self._offsets):
            with self._reading(index, offset, "its index"):
                batch, metadata = self._index.get_batch_with_custom_metadata(index)
                batch.validate(full=True)
                text = metadata[_BLOCK_KEY]
                if any(column.null_count for column in batch.columns) or (
                    int(metadata[_BLOCK_CHECKSUM_KEY]) != _index_checksum(batch, text)
                ):
                    raise ValueError("it fails its checksum")
                last = json.loads(text)
                is_last = index == len(self._offsets) - 1
                if last["block"] != index or last["last"] is not is_last:
                    raise self._damaged(index, offset, "blocks are missing or out of order")
            loops.append(np.asarray(batch.column(0)))
            checksums.append(np.asarray(batch.column(1)))
            self._summaries.append(Block(frames[-1], *_offsets_and_data(batch.column(2))))
            frames.append(frames[-1] + len(batch))
        if not loops or last["frames"] != frames[-1]:
            raise RecordingError(f"{self.path}: blocks are missing: {frames[-1]} frames found")
        self.game_loops: NDArray[np.int32] = np.concatenate(loops)
        if len(self) and (self.game_loops[0] < 0 or (np.diff(self.game_loops) < 0).any()):
            raise RecordingError(f"{self.path}: its game loops fall")
        self.game_loops.flags.writeable = False
        self._checksums = np.concatenate(checksums).tolist()
        self.first_frames = np.array(frames, np.int64)
        with self._reading(len(self._offsets) - 1, self._offsets[-1], "its statement"):
            self._stored = [int(checksum) for checksum in last["stored"]]
            if len(self._stored) != len(self._offsets) - 1:
                raise ValueError("checksums are missing")
            self.sizes = Sizes(last["frames"], last["raw"], self._map.size(), last["alone"])

    def _reading(self, block: int | None, offset: int | None, what: str) -> _Reading:
        return _Reading(self, block, offset, what)

    def _damaged(self, block: int | None, offset: int | None, what: str) -> RecordingError:
        where = f"block {block} at byte {offset}: " if block is not None else ""
        return RecordingError(f"{self.path}: {where}{what}")


class _Reading:
    """Turns whatever pyarrow raises about damaged bytes into a RecordingError."""

    def __init__(self, recording: Recording, block: int | None, offset: int | None, what: str):
        self._where = (recording, block, offset, what)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        recording, block, offset, what = self._where
        # ArrowInvalid is a ValueError, its allocation failure a MemoryError, others OSErrors.
        damage = (recording._pa.ArrowException, OSError, MemoryError, *_MALFORMED)
        if isinstance(value, damage) and not isinstance(value, RecordingError):
            raise recording._damaged(block, offset, f"cannot read {what}: {value}") from value


def summarize(observation: Buffer) -> tuple[int, bytes]:
    """The game loop of a serialized `ResponseObservation`, and it without its large parts.

    Left out are, of `Observation`, raw_data (5), feature_layer_data (6) and render_data (7).

    Raises:
        ValueError: It is not such a message, or its game loop is not an int32.
    """
    game_loop = 0
    summary = bytearray()
    for number, start, value, stop in wire_fields(observation):
        if number != 3:  # observation
            summary += observation[start:stop]
            continue
        inner = observation[value:stop]
        kept = bytearray()
        for field, begin, content, end in wire_fields(inner):
            if field == 9 and content == end:
                raise ValueError("game_loop is not a number")
            if field == 9:
                game_loop, _ = _varint(inner, content)
            if field not in (5, 6, 7):
                kept += inner[begin:end]
        summary += b"\x1a" + encode_varint(len(kept)) + kept
    if game_loop > 2**31 - 1:
        raise ValueError(f"game loop {game_loop} is beyond the format")
    return game_loop, bytes(summary)


def wire_fields(message: Buffer) -> Iterator[tuple[int, int, int, int]]:
    """The top-level fields of a protobuf message: (number, start, start of value, end).

    The value starts behind the tag and, if length-delimited, behind the length.

    Raises:
        ValueError: The bytes are not a message, with the offset.
    """
    position, end = 0, len(message)
    while position < end:
        start = position
        tag, position = _varint(message, position)
        value, kind = position, tag & 7
        if kind == 0:
            _, position = _varint(message, position)
        elif kind == 1:
            position += 8
        elif kind == 2:
            length, value = _varint(message, position)
            position = value + length
        elif kind == 5:
            position += 4
        else:  # groups, which no schema of the game has
            raise ValueError(f"unexpected wire type {kind} at byte {start}")
        if position > end:
            raise ValueError(f"field {tag >> 3} at byte {start} ends beyond the message")
        yield tag >> 3, start, value, position


def encode_varint(value: int) -> bytes:
    """Protobuf's encoding of an unsigned number."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint(message: Buffer, position: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(message[position : position + 10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & (1 << 64) - 1, position + index + 1
    raise ValueError(f"no number at byte {position}")


def _pyarrow() -> ModuleType:
    try:
        import pyarrow
        import pyarrow.ipc
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "recordings need pyarrow: pip install 'sc2gym[recordings]'", name="pyarrow"
        ) from error
    module: ModuleType = pyarrow
    return module


def _schema(pa: ModuleType) -> Any:
    return pa.schema(
        [
            pa.field("game_loop", pa.int32(), nullable=False),
            pa.field("crc32", pa.uint32(), nullable=False),
            pa.field("summary", pa.binary(), nullable=False),
            pa.field("observation", pa.binary(), nullable=False),
        ]
    )


def _index_checksum(batch: Any, text: bytes) -> int:
    """Of what a block states, and of the values of its first three columns."""
    checksum = zlib.crc32(np.asarray(batch.column(0)).data, zlib.crc32(text))
    checksum = zlib.crc32(np.asarray(batch.column(1)).data, checksum)
    for array in _offsets_and_data(batch.column(2)):
        checksum = zlib.crc32(array.data, checksum)
    return checksum


def _offsets_and_data(column: Any) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """The two buffers of a binary column that starts at its buffers' start."""
    _, offsets, data = column.buffers()
    count = len(column)
    if count:
        bounds = np.frombuffer(offsets, np.int32, count + 1, 4 * column.offset)
    else:  # Arrow may leave out the buffers
        bounds = np.zeros(1, np.int32)
    if bounds[0] != 0:
        raise ValueError("offsets do not start at 0")
    # frombuffer refuses a count of 0 from an empty buffer, and validate() checked the others.
    content = np.frombuffer(data, np.uint8, bounds[-1]) if bounds[-1] else np.zeros(0, np.uint8)
    bounds.flags.writeable = content.flags.writeable = False
    return bounds, content


def identity_of(path: Path) -> str:
    """`Recording.identity` of a file, without opening all of it.

    Raises:
        RecordingError: As from `Recording`.
    """
    return Recording(path, index=False).identity


def _restore(path: Path, identity: str) -> Recording:
    return Recording(locate(path, identity, identity_of))


def _blocks(file: memoryview) -> list[tuple[int, int]]:
    """Where the record batches of an Arrow IPC file start and end, from its last bytes.

    The file ends in a footer, its length as int32, and "ARROW1". The footer is a flatbuffer, whose
    fourth field is a vector of (offset int64, metadata length int32, padding, body length int64).
    """
    if len(file) < 18 or file[:6] != _MAGIC or file[-6:] != _MAGIC:
        raise ValueError("the mark ARROW1 is missing")
    (length,) = struct.unpack_from("<i", file, len(file) - 10)
    start = len(file) - 10 - length
    if length < 8 or start < 8:
        raise ValueError(f"a footer of {length} bytes")
    footer = file[start : len(file) - 10]
    (table,) = struct.unpack_from("<I", footer)
    (back,) = struct.unpack_from("<i", footer, table)
    vtable = table - back
    if vtable < 0 or struct.unpack_from("<H", footer, vtable)[0] < 12:
        raise ValueError("a footer without blocks")
    slot = table + struct.unpack_from("<H", footer, vtable + 10)[0]
    vector = slot + struct.unpack_from("<I", footer, slot)[0]
    (count,) = struct.unpack_from("<I", footer, vector)
    if count > (len(footer) - vector - 4) // 24:
        raise ValueError(f"{count} blocks")
    blocks = []
    for i in range(count):
        offset, metadata, body = struct.unpack_from("<qi4xq", footer, vector + 4 + 24 * i)
        if offset < 8 or metadata < 0 or body < 0 or offset + metadata + body > start:
            raise ValueError(f"block {i} at byte {offset} lies outside the file")
        blocks.append((offset, offset + metadata + body))
    return blocks


def find(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The recordings among files and, recursively, folders, in order of their paths."""
    found: set[Path] = set()
    for path in map(Path, paths):
        found.update(path.rglob("*" + SUFFIX) if path.is_dir() else [path])
    return sorted(found)
