"""What was decoded is kept in memory, up to a bound that all environments of a process share."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, NamedTuple


class CacheInfo(NamedTuple):
    """How the cache of decoded replays did so far.

    Attributes:
        hits: Times a replay was found decoded.
        misses: Times one had to be decoded.
        evictions: Replays dropped to stay within the bound.
        replays: Replays kept now.
        nbytes: Bytes they take.
        max_bytes: The bound.
    """

    hits: int
    misses: int
    evictions: int
    replays: int
    nbytes: int
    max_bytes: int


class Cache:
    """Values by key, the least recently used dropped first; safe to use from several threads.

    Dropping a value frees nothing while someone still uses it. A value larger than the whole
    bound is handed out and not kept.

    Args:
        max_bytes: The bound; None for a quarter of the memory that is free at first use.
    """

    def __init__(self, max_bytes: int | None = None):
        self._max_bytes = max_bytes
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._nbytes = self._hits = self._misses = self._evictions = 0

    @property
    def max_bytes(self) -> int:
        """The bound in bytes. Lowering it drops what no longer fits at once."""
        if self._max_bytes is None:
            self._max_bytes = available_memory() // 4
        return self._max_bytes

    @max_bytes.setter
    def max_bytes(self, value: int) -> None:
        if value < 0:
            raise ValueError(f"cache_bytes must not be negative, got {value}")
        with self._lock:
            self._max_bytes = value
            self._shrink(value)

    def get(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:
        """The value of `key`; where it is not kept, `make()` gives it and its size in bytes.

        `make` runs outside the lock, so that several threads can decode at once, and what it
        raises passes through.
        """
        with self._lock:
            if key in self._values:
                self._hits += 1
                self._values.move_to_end(key)
                return self._values[key][0]
            self._misses += 1
        value, nbytes = make()
        limit = self.max_bytes
        with self._lock:
            if key in self._values:
                # Another thread was faster; one value for all, so that memory is shared.
                return self._values[key][0]
            if nbytes <= limit:
                self._shrink(limit - nbytes)
                self._values[key] = value, nbytes
                self._nbytes += nbytes
        return value

    def _shrink(self, limit: int) -> None:
        while self._nbytes > limit:
            _, (_, nbytes) = self._values.popitem(last=False)
            self._nbytes -= nbytes
            self._evictions += 1

    def clear(self) -> None:
        """Drops everything; the counts of hits, misses and evictions go on."""
        with self._lock:
            self._values.clear()
            self._nbytes = 0

    def info(self) -> CacheInfo:
        """Counts and sizes as of now."""
        limit = self.max_bytes
        with self._lock:
            return CacheInfo(
                self._hits, self._misses, self._evictions, len(self._values), self._nbytes, limit
            )


def available_memory(root: Path = Path("/")) -> int:
    """Bytes this process may still use: what the machine has free, or its control group allows.

    Args:
        root: Where /proc and /sys are, for tests.

    Sources:
        proc_meminfo(5) for MemAvailable; the kernel's cgroup-v2.rst (memory.max, memory.current)
        and cgroup-v1/memory.rst (memory.limit_in_bytes, memory.usage_in_bytes). A group is
        bound by its parents too, so every level up to the root counts.
    """
    found = [
        int(line.split()[1]) * 1024
        for line in _lines(root / "proc/meminfo")
        if line.startswith("MemAvailable:")
    ]
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, limit, usage = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        group = top / path.strip().lstrip("/")
        for level in (group, *group.parents):
            allowed, used = _number(level / limit), _number(level / usage)
            if allowed is not None and used is not None:
                found.append(max(0, allowed - used))
            if level == top:
                break
    # Nothing to read (not Linux): assume a small machine.
    return min(found, default=4 << 30)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return None
