"""One line on a terminal that says how far a long piece of work is; nothing anywhere else."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from types import TracebackType
from typing import TextIO, TypeVar

T = TypeVar("T")


def track(
    items: Iterable[T], label: str, *, total: int | None = None, unit: str = ""
) -> Iterator[T]:
    """Yields the items and keeps a progress line meanwhile.

    Args:
        items: What to go through.
        label: What is being done.
        total: How many there are; by default `len(items)` where it has one.
        unit: What they are, in the plural.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    with Progress(label, total, unit=unit) as progress:
        for item in items:
            yield item
            progress.advance()


class Progress:
    """A bar with count, rate and time left, for work that counts up.

    Args:
        label: What is being done.
        total: The count at the end; None where it is not known.
        unit: What is counted, in the plural.
        file: Where to write, standard error by default; silent unless it is a terminal.
    """

    def __init__(
        self, label: str, total: int | None = None, *, unit: str = "", file: TextIO | None = None
    ):
        self.label, self.total, self.unit = label, total, unit
        self.count = 0
        self._file = sys.stderr if file is None else file
        self._shown = self._file.isatty()
        self._began = time.monotonic()
        self._printed = 0.0

    def __enter__(self) -> Progress:
        self._began = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The line goes away: whatever it led to is printed in its place.
        if self._printed:
            self._file.write("\r\x1b[K")
            self._file.flush()

    def advance(self, count: int = 1, note: str = "") -> None:
        """Counts on, and prints if the last time is a tenth of a second ago."""
        self.count += count
        now = time.monotonic()
        if self._shown and now - self._printed >= 0.1:
            self._printed = now
            width = shutil.get_terminal_size().columns - 1
            self._file.write(f"\r\x1b[K{self.line(now - self._began, note)[:width]}")
            self._file.flush()

    def line(self, seconds: float, note: str = "") -> str:
        """What there is to say after `seconds`."""
        rate = self.count / seconds if seconds > 0 else 0.0
        unit = f" {self.unit}" if self.unit else ""
        parts = [self.label]
        if self.total:
            share = min(1.0, self.count / self.total)
            parts += [f"[{'#' * int(20 * share):.<20}] {share:4.0%}"]
            parts += [f"{self.count:,}/{self.total:,}{unit}"]
        else:
            parts += [f"{self.count:,}{unit}"]
        parts += [f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"]
        if self.total and rate:
            parts += [f"{clock(max(0, self.total - self.count) / rate)} left"]
        return "  ".join([*parts, note] if note else parts)


def clock(seconds: float) -> str:
    """Minutes and seconds, with hours where it takes any: 5:07, 1:00:00."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
