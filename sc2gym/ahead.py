"""Decoding episodes in the background, before their turn comes."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class NotReady(Exception):
    """Asked for without waiting, something is not there yet, or could not be made."""


@dataclass(eq=False)
class _Wish(Generic[T]):
    index: int
    ready: threading.Event = field(default_factory=threading.Event)
    value: T | None = None
    error: BaseException | None = None


class _Desk(Generic[T]):
    """What the thread and its owner share; the thread keeps nothing of the owner alive."""

    def __init__(self, make: Callable[[int], T]):
        self.make = make
        # The collector may close the desk in the midst of anything, in this thread too.
        self.lock = threading.RLock()
        # Held while something is made, so that a process does not fork in the midst of it.
        self.busy = threading.Lock()
        self.come = threading.Condition(self.lock)
        self.line: deque[_Wish[T]] = deque()
        self.closed = False

    def work(self) -> None:
        while True:
            with self.lock:
                while not self.line and not self.closed:
                    self.come.wait()
                if self.closed:
                    return
                wish = self.line.popleft()
            with self.busy:
                self.fulfil(wish)

    def fulfil(self, wish: _Wish[T]) -> None:
        try:
            wish.value = self.make(wish.index)
        except BaseException as error:
            wish.error = error
        wish.ready.set()

    def close(self) -> None:
        with self.lock:
            self.closed = True
            self.line.clear()
            self.come.notify_all()


class Ahead(Generic[T]):
    """Makes values by number in a thread, first asked for first made.

    What goes wrong in the thread is raised where the value is asked for. The thread begins with
    the first wish and ends with `close`, with this object, or with the interpreter; it is never
    in the midst of anything when the process forks, and a child begins one of its own.

    Args:
        make: Gives the value of a number, in the thread or in the caller's.
    """

    def __init__(self, make: Callable[[int], T]):
        self.make = make
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._wishes: dict[int, _Wish[T]] = {}
        self._desk = _Desk(self.make)
        self._thread: threading.Thread | None = None

    def want(self, index: int) -> None:
        """Has a value made, unless it is being made already."""
        if index in self._wishes:
            return
        wish: _Wish[T] = _Wish(index)
        with self._desk.lock:
            if self._desk.closed:
                return
            self._wishes[index] = wish
            self._desk.line.append(wish)
            self._desk.come.notify()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._desk.work, name="sc2gym decoding ahead", daemon=True
            )
            self._thread.start()
            weakref.finalize(self, self._desk.close)

    def get(self, index: int) -> T:
        """The value, and the wish for it is fulfilled; made here where nobody began to.

        Raises:
            Exception: What making it raised.
        """
        wish = self._wishes.get(index)
        if wish is None:
            return self.make(index)
        with self._desk.lock:
            waits = wish in self._desk.line
            if waits:
                self._desk.line.remove(wish)
        if waits:
            del self._wishes[index]
            return self.make(index)
        # As a loop, so that Ctrl-C is noticed everywhere.
        while not wish.ready.wait(1.0):
            pass
        del self._wishes[index]
        if wish.error is not None:
            raise wish.error
        assert wish.value is not None
        return wish.value

    def peek(self, index: int) -> T:
        """The value, where that needs no waiting; the wish stays until `get`.

        Raises:
            NotReady: It would have to be waited for, or cannot be made.
        """
        wish = self._wishes.get(index)
        if wish is None or wish.value is None:
            raise NotReady(index)
        return wish.value

    def drop(self, index: int) -> None:
        """Takes a wish back."""
        wish = self._wishes.pop(index, None)
        with self._desk.lock:
            if wish is not None and wish in self._desk.line:
                self._desk.line.remove(wish)

    def forget(self) -> None:
        """Takes back all wishes."""
        with self._desk.lock:
            self._desk.line.clear()
        self._wishes.clear()

    def close(self) -> None:
        """Ends the thread, with what it is making; `get` makes everything itself from now on."""
        self.forget()
        self._desk.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether there is a thread."""
        return self._thread is not None and self._thread.is_alive()


_all: weakref.WeakSet[Ahead[Any]] = weakref.WeakSet()
_held: list[_Desk[Any]] = []


def _before_fork() -> None:
    for each in list(_all):
        each._desk.busy.acquire()
        each._desk.lock.acquire()
        _held.append(each._desk)


def _release() -> None:
    while _held:
        desk = _held.pop()
        desk.lock.release()
        desk.busy.release()


def _in_child() -> None:
    _release()
    for each in list(_all):
        closed = each._desk.closed
        each._begin()
        each._desk.closed = closed


@atexit.register
def _at_exit() -> None:
    for each in list(_all):
        each.close()


os.register_at_fork(before=_before_fork, after_in_parent=_release, after_in_child=_in_child)
