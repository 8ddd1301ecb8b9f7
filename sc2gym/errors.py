"""Every exception the package raises about its inputs, in one hierarchy.

A caller who wants to survive any bad file catches `SC2GymError`. Mistakes in a call (an unknown
option, a step before a reset) are ordinary `ValueError`s and Gymnasium's own errors.
"""

from __future__ import annotations


class SC2GymError(Exception):
    """The base of everything below."""


class ReplayError(SC2GymError):
    """A replay cannot be used.

    Attributes:
        name: The file (or the name given to a replay from memory); None until known.
        reason: What is wrong, without the name.
    """

    def __init__(self, reason: str, *, name: str | None = None):
        super().__init__(reason)
        self.reason = reason
        self.name = name

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}" if self.name else self.reason


class CorruptReplayError(ReplayError):
    """The bytes are not what the format says they are.

    Attributes:
        member: The archive member being read, None for the archive itself.
        offset: The byte in the (unpacked) member at which reading stopped.
        what: The thing being read there.
    """

    def __init__(
        self, offset: int, what: str, *, member: str | None = None, name: str | None = None
    ):
        super().__init__(what, name=name)
        self.member = member
        self.offset = offset
        self.what = what

    def __str__(self) -> str:
        where = f"{self.member or 'archive'}, byte {self.offset}: {self.what}"
        return f"{self.name}: {where}" if self.name else where

    def __reduce__(self) -> tuple[object, ...]:
        return _corrupt, (self.offset, self.what, self.member, self.name)


def _corrupt(offset: int, what: str, member: str | None, name: str | None) -> CorruptReplayError:
    return CorruptReplayError(offset, what, member=member, name=name)


class UnsupportedReplayError(ReplayError):
    """The file is sound but holds something this version cannot use, which the message names."""


class RecordingError(SC2GymError):
    """A recording of game observations is damaged, cut short, or of another format version."""


class CheckpointError(SC2GymError):
    """A checkpoint is damaged, foreign, too new, or does not fit what it is loaded into."""


class ExportError(SC2GymError):
    """An exported episode, or a folder of them, is damaged, foreign, too new, or does not fit."""


class CorruptMessageError(RecordingError):
    """A message of the game is cut off, or its bytes are not what protobuf's format says.

    Attributes:
        offset: The byte in the message at which reading stopped.
        what: The thing being read there and what is wrong with it.
    """

    def __init__(self, offset: int, what: str):
        super().__init__(f"message byte {offset}: {what}")
        self.offset = offset
        self.what = what

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.offset, self.what)
