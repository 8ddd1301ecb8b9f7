"""Where replays are now that were somewhere else when something was saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from .errors import ReplayError, SC2GymError

_PathLike = str | os.PathLike[str]


class Relocation:
    """Finds files by their contents.

    Args:
        places: A folder (searched with all below it) or a file, or several.
    """

    def __init__(self, places: _PathLike | Iterable[_PathLike]):
        if isinstance(places, (str, os.PathLike)):
            places = [places]
        self.places = [Path(place).expanduser() for place in places]
        for place in self.places:
            if not place.exists():
                raise FileNotFoundError(f"no such file or folder: {place}")
        self._hashes: dict[Path, str | None] = {}

    def find(self, name: str, content_hash: str, hash_of: Callable[[Path], str]) -> Path | None:
        """The file with these contents; one of the same file name is preferred."""
        name = Path(name).name
        suffix = Path(name).suffix.lower()
        for file in sorted(self._files(), key=lambda file: (file.name != name, file)):
            if file.suffix.lower() == suffix or file in self.places:
                if file not in self._hashes:
                    self._hashes[file] = _hash(file, hash_of)
                if self._hashes[file] == content_hash:
                    return file
        return None

    def _files(self) -> Iterator[Path]:
        for place in self.places:
            if place.is_dir():
                for parent, _, names in os.walk(place):
                    yield from (Path(parent, name) for name in names)
            else:
                yield place


def _hash(file: Path, hash_of: Callable[[Path], str]) -> str | None:
    try:
        return hash_of(file)
    except (OSError, SC2GymError):
        return None


_current: ContextVar[Relocation | None] = ContextVar("relocation", default=None)


@contextmanager
def relocate(places: _PathLike | Iterable[_PathLike]) -> Iterator[None]:
    """Says where replays are now, for what is unpickled or loaded inside.

        with sc2gym.relocate("/new/place"):
            envs = pickle.loads(data)

    Args:
        places: A folder, searched with all below it, or files. Replays are known by their
            contents, so they may have other names too.
    """
    token = _current.set(Relocation(places))
    try:
        yield
    finally:
        _current.reset(token)


def relocated_to() -> list[Path] | None:
    """The places that `relocate` names now."""
    relocation = _current.get()
    return list(relocation.places) if relocation else None


def locate(
    path: _PathLike,
    content_hash: str,
    hash_of: Callable[[Path], str],
    others: Iterable[_PathLike] = (),
) -> Path:
    """Where the file that was at `path` is now.

    Args:
        path: Where it was.
        content_hash: Of its contents.
        hash_of: Gives that of a file.
        others: More places to look in.

    Raises:
        ReplayError: It is not there, or has other contents now.
    """
    path = Path(path)
    there = path.expanduser()
    if there.is_file() and _hash(there, hash_of) == content_hash:
        return path
    relocation = _current.get()
    for place in ([relocation] if relocation else []) + [Relocation(other) for other in others]:
        found = place.find(str(path), content_hash, hash_of)
        if found is not None:
            return found
    if there.exists():
        reason = "the file has changed since it was saved"
    else:
        reason = "the file is gone; if it has moved, say where to with sc2gym.relocate"
    raise ReplayError(reason, name=str(path))
