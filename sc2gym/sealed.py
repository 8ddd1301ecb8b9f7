"""Files that are whole or not there: written beside, sealed with a checksum, renamed into place.

The seal comes last in the file, where a reader of ZIP archives looks past it, so that plain
`torch.load` reads the file too. It finds damage and accidents; it does not prove who wrote it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from .errors import CheckpointError

# Magic, version of the format, when it was sealed (ns), how many bytes come before the seal;
# then a digest of all that is before the digest.
_SEAL = struct.Struct("<16sIQQ")
_MAGIC = b"sc2gym sealed \r\n"
_DIGEST_SIZE = 32
SEAL_SIZE = _SEAL.size + _DIGEST_SIZE

_CHUNK = 1 << 20
_PART = ".part"


class Writer:
    """What fills a file writes to: counts and digests what goes through.

    It never raises. The ZIP writer of torch, when a write fails under it, reports something
    else ("unexpected pos"), so what went wrong is kept here and `seal` raises it.
    """

    def __init__(self, file: BinaryIO):
        self._file = file
        self._digest = blake2b(digest_size=_DIGEST_SIZE)
        self._size = 0
        self._error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Appends `data`."""
        if self._error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self._error = error
            else:
                self._digest.update(data)
        size = len(data)
        self._size += size
        return size

    def flush(self) -> None:
        """Does nothing: `seal` sees to it."""

    def seal(self, version: int) -> None:
        """Writes the seal, and everything through to the disk."""
        if self._error is not None:
            raise self._error
        head = _SEAL.pack(_MAGIC, version, time.time_ns(), self._size)
        self._digest.update(head)
        self._file.write(head + self._digest.digest())
        self._file.flush()
        os.fsync(self._file.fileno())


def write(path: Path, version: int, fill: Callable[[Writer], None], keep: int) -> None:
    """Writes a file that replaces `path`; what was there becomes `path.1`, that `path.2`..

    At any moment, also of a crash, `path` is the one before or the new one, and whole.

    Args:
        path: Its folder is made where there is none.
        version: Of the format of what `fill` writes.
        fill: Writes the contents.
        keep: How many there are then at most, with the new one.

    Raises:
        OSError: It cannot be written; the ones before are as they were.
    """
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        _sweep(folder, path.name)
        beside = folder / f".{path.name}.{secrets.token_hex(8)}{_PART}"
        file = open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb")  # noqa: SIM115
        with suppress(OSError):  # see _sweep; not every file system has locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        with file:
            writer = Writer(file)
            fill(writer)
            writer.seal(version)
            with _locked(folder):
                _rotate(path, keep)
                os.replace(beside, path)
                _sync(folder)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def history(path: Path) -> list[Path]:
    """`path`, `path.1`, `path.2`.., as far as they are there: newest first."""
    numbered = []
    for other in path.parent.glob(f"{_escaped(path.name)}.*"):
        number = other.name[len(path.name) + 1 :]
        if number.isascii() and number.isdigit():
            numbered.append((int(number), other))
    return [path] * path.exists() + [other for _, other in sorted(numbered)]


def sealed_at(path: Path) -> int | None:
    """When a file was sealed, in nanoseconds since 1970; None for one without a seal.

    The seal alone is read, not what it vouches for.
    """
    with suppress(OSError, CheckpointError), _open(path) as file:
        return _seal(path, file)[1]
    return None


@contextmanager
def opened(path: Path, version: int) -> Iterator[BinaryIO]:
    """A whole file of this format, open at its beginning.

    Raises:
        CheckpointError: It cannot be opened, is not whole, or is of a newer version.
    """
    try:
        with _open(path) as file:
            written, _, head, digest = _seal(path, file)
            if written > version:
                raise CheckpointError(
                    f"{path}: its format is {written}, this version of sc2gym reads up to"
                    f" {version}: a newer one wrote it"
                )
            actual = blake2b(digest_size=_DIGEST_SIZE)
            left = file.seek(0, os.SEEK_END) - SEAL_SIZE
            file.seek(0)
            while left > 0 and (chunk := file.read(min(_CHUNK, left))):
                actual.update(chunk)
                left -= len(chunk)
            actual.update(head)
            if actual.digest() != digest:
                raise CheckpointError(f"{path}: damaged: its checksum is wrong")
            file.seek(0)
            yield file
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error


def _open(path: Path) -> BinaryIO:
    # Not to wait for ever where it is a pipe.
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise CheckpointError(f"{path}: not a file")
    return file


def _seal(path: Path, file: BinaryIO) -> tuple[int, int, bytes, bytes]:
    size = file.seek(0, os.SEEK_END) - SEAL_SIZE
    seal = b""
    if size >= 0:
        file.seek(size)
        seal = file.read(SEAL_SIZE)
    head, digest = seal[: _SEAL.size], seal[_SEAL.size :]
    if len(digest) == _DIGEST_SIZE:
        magic, version, when, length = _SEAL.unpack(head)
        if magic == _MAGIC and length == size:
            return version, when, head, digest
    raise CheckpointError(f"{path}: cut short, or not a checkpoint of sc2gym")


def _rotate(path: Path, keep: int) -> None:
    def numbered(number: int) -> Path:
        return path.with_name(f"{path.name}.{number}")

    # A crash can have come between this and the rename that follows it: then it is done.
    first = numbered(1)
    if path.exists() and keep > 1 and not (first.exists() and first.samefile(path)):
        for number in range(keep - 2, 0, -1):
            with suppress(FileNotFoundError):
                os.replace(numbered(number), numbered(number + 1))
        beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_PART}")
        try:
            os.link(path, beside)
        except OSError:  # a file system without links: for a moment it is under `first` only
            beside = path
        os.replace(beside, first)
    for other in history(path):
        suffix = other.name[len(path.name) + 1 :]
        if suffix and int(suffix) >= keep:
            with suppress(FileNotFoundError):
                other.unlink()


def _sweep(folder: Path, name: str) -> None:
    """Removes what writers have left that were killed.

    A writer holds a lock on the file it writes. Making the file and locking it happen under the
    lock of the folder, so no file is without one while its writer lives.
    """
    for beside in folder.glob(f".{_escaped(name)}.*{_PART}"):
        with suppress(OSError), open(beside, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            beside.unlink()


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # not every file system has locks; one writer needs none
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # not every file system takes it for a folder
            os.fsync(handle)
    finally:
        os.close(handle)
