"""Files that appear whole or not at all: written beside their place, then renamed into it."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_PART = ".part"


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` at the end, if all went well.

    Raises:
        OSError: It cannot be written; what was at `path` is as it was.
    """
    with locked(path.parent):
        # Made and locked in one, so that no other process takes it for one left behind.
        beside = path.with_name(f".{secrets.token_hex(12)}{_PART}")
        file = open(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), "w+b")  # noqa: SIM115
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def sweep(folder: Path) -> None:
    """Removes what writers have left that were killed: files that nobody holds a lock on."""
    with locked(folder):
        for beside in folder.glob(f".*{_PART}"):
            with suppress(OSError), open(beside, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                beside.unlink()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps all others that ask for it out of a folder meanwhile."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # not every file system has locks; one writer needs none
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
