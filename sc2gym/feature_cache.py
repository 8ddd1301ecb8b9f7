"""Features by (replay, player, step), from memory or kept on disk.

On disk an episode is one file, called by a digest of all that its contents depend on: the
replay's bytes, the player, the steps, the layout, and the versions of this format and package.
It is written beside and renamed, so any number of processes can share a folder. A row is a step,
compressed by itself and with a checksum of its own, so that one step is read without the others.

    head    magic, format, rows, bytes of a row, the digest it is called by, CRC-32 of all before
            and of the table
    table   for each row: where its bytes begin, how many, their CRC-32
    rows    zlib
"""

from __future__ import annotations

import json
import math
import os
import struct
import threading
import time
import warnings
import weakref
import zlib
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from . import spaces
from ._fast.frame import Frames
from .beside import locked, replacing, sweep
from .library import Library, outside

#: Of the files; others are not looked at.
FORMAT = 1
SUFFIX = ".features"
MAX_BYTES = 10 << 30

_HEAD = struct.Struct("<8sIIQ32sI")
_MAGIC = b"sc2feat\n"
_TABLE = np.dtype([("offset", "<u8"), ("nbytes", "<u4"), ("crc32", "<u4")])
_LEVEL = 1  # frames are mostly zeros: higher levels cost much and gain little
_MOST_OPEN = 32
_USED = 1.0  # seconds; a file's time of use is not renewed more often
_PATIENCE = 60.0  # seconds from a failure to write to the next try


@dataclass(frozen=True, eq=False)
class Layout:
    """How an observation lies in a row of bytes.

    Attributes:
        frames: What fills it.
        parts: (key, shape, dtype, first byte, byte after the last) of each array.
        nbytes: Of all.
        is_bare: Whether the observation is the one array itself, not a dict.
        about: All that it depends on, as JSON has it.
    """

    frames: Frames
    parts: tuple[tuple[str, tuple[int, ...], np.dtype[Any], int, int], ...]
    nbytes: int
    is_bare: bool
    about: tuple[Any, ...]

    def arrays(self, row: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[Any]]:
        """Views of a row, by key."""
        return {
            key: row[begin:end].view(dtype).reshape(shape)
            for key, shape, dtype, begin, end in self.parts
        }

    def observation(self, row: npt.NDArray[np.uint8]) -> Any:
        """The observation in a row, in views of it."""
        arrays = self.arrays(row)
        return next(iter(arrays.values())) if self.is_bare else arrays


@lru_cache(maxsize=16)
def layout_of(
    observe: str | tuple[str, ...],
    minimap_size: int | tuple[int, int],
    minimap_layers: tuple[str, ...] | None,
    max_units: int,
    unit_columns: tuple[str, ...] | None,
) -> Layout:
    """The layout that options ask for; raises as `spaces.observation_space`."""
    space, frames = spaces.observation_space(
        observe,
        minimap_size=minimap_size,
        minimap_layers=minimap_layers,
        max_units=max_units,
        unit_columns=unit_columns,
    )
    is_bare = not isinstance(space, gymnasium.spaces.Dict)
    every = {str(observe if is_bare and isinstance(observe, str) else ""): space}
    if isinstance(space, gymnasium.spaces.Dict):
        every = dict(space.spaces)
    parts, at = [], 0
    for key, each in every.items():
        assert each.shape is not None and each.dtype is not None
        at += -at % 8  # so that a view has the alignment of its type
        end = at + each.dtype.itemsize * int(np.prod(each.shape, dtype=np.int64))
        parts.append((key, each.shape, each.dtype, at, end))
        at = end
    about = (
        [[key, list(shape), dtype.str] for key, shape, dtype, _, _ in parts],
        list(minimap_layers or spaces.DEFAULT_LAYERS),
        list(unit_columns or spaces.DEFAULT_COLUMNS),
    )
    return Layout(frames, tuple(parts), at, is_bare, about)


def features(
    library: Library,
    replay: str | int,
    player: int | None,
    step: int,
    layout: Layout,
    cache: FeatureCache | None,
) -> Any:
    """What an environment would show at a step; see `Library.features`."""
    index = library.find(replay, player)
    key = "" if cache is None else _key(library, index, layout)
    kept = None if cache is None else cache.get(key, step, layout.nbytes)
    if kept is not None:
        return layout.observation(kept)
    episode = library.episode(index)

    def row(at: int) -> npt.NDArray[np.uint8]:
        made = np.zeros(layout.nbytes, np.uint8)
        episode.fill(at, layout.frames, layout.arrays(made))
        return made

    asked = row(step)
    if cache is not None and cache.wants(key):
        cache.put(key, layout.nbytes, map(row, range(len(episode) + 1)))
    return layout.observation(asked)


@lru_cache(maxsize=16)
def cache_of(folder: str) -> FeatureCache:
    """The cache of a folder: one in a process, so that files stay open between calls."""
    return FeatureCache(folder)


def _key(library: Library, index: int, layout: Layout) -> str:
    content, player = library.side(index)
    about: list[Any] = [FORMAT, _version(), content, player, library.step_mul, *layout.about]
    if content.startswith("recording"):
        # Named by the replay that it is of, of which there can be other recordings.
        status = os.stat(library.name(index))
        about += [status.st_size, status.st_mtime_ns]
    elif library.source == "game":
        about += ["game"]
    return blake2b(json.dumps(about).encode(), digest_size=32).hexdigest()


@lru_cache
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sc2gym")
    except PackageNotFoundError:
        return ""


class _Damaged(Exception):
    pass


class _Entry:
    """An episode's file, open: its table is read and checked, its rows as they are asked for."""

    def __init__(self, path: Path, key: str, nbytes: int):
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        # Closed when nobody reads from it any more.
        weakref.finalize(self, os.close, self._handle)
        size = os.fstat(self._handle).st_size
        head = os.pread(self._handle, _HEAD.size, 0)
        if len(head) < _HEAD.size:
            raise _Damaged
        magic, version, rows, self.nbytes, digest, crc = _HEAD.unpack(head)
        own = _MAGIC, FORMAT, nbytes, bytes.fromhex(key)
        if (magic, version, self.nbytes, digest) != own or rows * _TABLE.itemsize > size:
            raise _Damaged
        table = os.pread(self._handle, rows * _TABLE.itemsize, _HEAD.size)
        if zlib.crc32(table, zlib.crc32(head[:-4])) != crc:
            raise _Damaged
        self.table = np.frombuffer(table, _TABLE)
        ends = self.table["offset"].astype(np.float64) + self.table["nbytes"]
        if not rows or ends.max() > size:
            raise _Damaged
        self.used = -math.inf

    def __len__(self) -> int:
        return len(self.table)

    def row(self, step: int) -> npt.NDArray[np.uint8]:
        offset, size, crc = self.table[step].item()
        data = os.pread(self._handle, size, offset)
        if len(data) != size or zlib.crc32(data) != crc:
            raise _Damaged
        try:
            row = zlib.decompressobj().decompress(data, self.nbytes)
        except zlib.error:
            raise _Damaged from None
        if len(row) != self.nbytes:
            raise _Damaged
        # Writable, as what an environment gives.
        return np.frombuffer(bytearray(row), np.uint8)


class FeatureCache:
    """Rows of bytes by key and step, in a folder that processes share and that stays in a bound.

    What cannot be written (a full disk, a folder for reading only) is not kept, with a warning
    the first time; what is damaged is dropped. The least recently used goes first.

    Args:
        folder: Made where there is none.
        max_bytes: The bound on all files together.

    Raises:
        OSError: There is no such folder and none can be made.
    """

    def __init__(self, folder: str | os.PathLike[str], max_bytes: int = MAX_BYTES):
        self.folder = Path(folder).expanduser()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.max_bytes = -1
        self._too_large: set[str] = set()
        self.bound(max_bytes)
        self._open: OrderedDict[str, _Entry] = OrderedDict()
        self._lock = threading.Lock()
        self._warned = False
        self._retry = 0.0
        with suppress(OSError):
            sweep(self.folder)

    def bound(self, max_bytes: int) -> None:
        """Sets the bound on all files together; holds when the next is written."""
        if max_bytes < 0:
            raise ValueError(f"cache_dir_bytes must not be negative, got {max_bytes}")
        if max_bytes != self.max_bytes:
            self.max_bytes = max_bytes
            self._too_large = set()

    def get(self, key: str, step: int, nbytes: int) -> npt.NDArray[np.uint8] | None:
        """A row of what is kept under `key`, the caller's own; None where nothing is.

        Args:
            key: 64 hexadecimal digits.
            step: Which row.
            nbytes: Bytes of a row.

        Raises:
            IndexError: No such row.
        """
        entry = self._entry(key, nbytes)
        if entry is None:
            return None
        if not 0 <= step < len(entry):
            raise IndexError(f"step {step} of an episode of {len(entry) - 1}")
        now = time.monotonic()
        if now - entry.used > _USED:
            entry.used = now
            with suppress(OSError):
                os.utime(self._path(key))
        try:
            return entry.row(step)
        except (_Damaged, OSError):
            with self._lock:
                self._open.pop(key, None)
            self._unlink(key)
            return None

    def wants(self, key: str) -> bool:
        """Whether there is a point in `put`: not where it failed a short while ago."""
        return key not in self._too_large and time.monotonic() >= self._retry

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"

    def _entry(self, key: str, nbytes: int) -> _Entry | None:
        with self._lock:
            entry = self._open.get(key)
            if entry is None:
                try:
                    entry = _Entry(self._path(key), key, nbytes)
                except FileNotFoundError:
                    return None
                except (_Damaged, OSError):
                    self._unlink(key)
                    return None
                self._open[key] = entry
                if len(self._open) > _MOST_OPEN:
                    self._open.popitem(last=False)
            self._open.move_to_end(key)
        return entry

    def _unlink(self, key: str) -> None:
        with suppress(OSError):
            self._path(key).unlink()

    def put(self, key: str, nbytes: int, rows: Iterable[npt.NDArray[np.uint8]]) -> None:
        """Keeps all rows of an entry, or warns that it cannot.

        Args:
            key: 64 hexadecimal digits.
            nbytes: Bytes of a row.
            rows: The rows.
        """
        packed = [zlib.compress(row.data, _LEVEL) for row in rows]
        table = np.zeros(len(packed), _TABLE)
        table["nbytes"] = [len(each) for each in packed]
        table["crc32"] = [zlib.crc32(each) for each in packed]
        start = _HEAD.size + table.nbytes
        table["offset"] = start + np.cumsum(table["nbytes"], dtype=np.int64) - table["nbytes"]
        size = start + int(table["nbytes"].sum())
        if size > self.max_bytes:
            self._too_large.add(key)
            return
        head = _HEAD.pack(_MAGIC, FORMAT, len(packed), nbytes, bytes.fromhex(key), 0)[:-4]
        crc = zlib.crc32(table.tobytes(), zlib.crc32(head))
        try:
            self._shrink(self.max_bytes - size)
            with replacing(self._path(key)) as file:
                file.write(head + struct.pack("<I", crc) + table.tobytes())
                file.writelines(packed)
            # Others may have written meanwhile.
            self._shrink(self.max_bytes)
        except OSError as error:
            self._retry = time.monotonic() + _PATIENCE
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"features are not kept in {self.folder}: {error.strerror or error}",
                    stacklevel=outside(),
                )

    def _shrink(self, limit: int) -> None:
        """Removes the least recently used until the rest is within the limit."""
        with locked(self.folder):
            found = []
            for each in os.scandir(self.folder):
                if each.name.endswith(SUFFIX):
                    with suppress(FileNotFoundError):
                        status = each.stat(follow_symlinks=False)
                        found.append((status.st_mtime_ns, status.st_size, each.name))
            total = sum(size for _, size, _ in found)
            for _, size, name in sorted(found):
                if total <= limit:
                    break
                with suppress(FileNotFoundError):
                    (self.folder / name).unlink()
                total -= size
