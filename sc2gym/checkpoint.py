"""Saving a whole run, and going on as if it had not been stopped.

    from sc2gym import checkpoint

    checkpoint.save("run/agent.pt", envs=envs, model=model, optimizer=optimizer, step=step)
    step = checkpoint.load("run/agent.pt", envs=envs, model=model, optimizer=optimizer).step

One file holds the states of all that is given, and those of Python's, NumPy's, torch's and
CUDA's random numbers. `every` saves in the background and when the machine is about to be taken
away. `torch.load(path, weights_only=True)` reads the files too.

Several ranks save a file each. For another number of ranks or lanes each takes what all had:

    states = [checkpoint.read(path).parts["envs"] for path in paths]
    envs.load_state_dict(states)

Nothing is ever unpickled: a file can hold numbers, strings, lists, dicts and tensors, and no
code. It needs the extra `torch`.
"""

from __future__ import annotations

import os
import random as python_random
import signal
import threading
import time
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from . import sealed
from .errors import CheckpointError
from .plain import Copier, restored
from .wrapped import load_wrapper_states, unwrapped, wrapper_states

if TYPE_CHECKING:
    from typing_extensions import Self

#: Of the files; a newer one is refused.
FORMAT = 1

#: The file in a folder, where `path` names a folder.
DEFAULT_NAME = "checkpoint.pt"

_PathLike = str | os.PathLike[str]
# Before that, `weights_only` could be got around (CVE-2025-32434).
_TORCH = "2.6"
_ZIP = b"PK\x03\x04"


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds.

    Attributes:
        path: The file.
        step: The step it was saved at.
        extra: The plain values that `save` was given beside the parts.
        parts: The state of every part by its name, where `read` gave this; `load` has put them
            where they belong and leaves none here.
    """

    path: Path
    step: int
    extra: Mapping[str, Any]
    parts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _kinds: Mapping[str, str] = field(default_factory=dict, repr=False)
    _random: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _wrappers: Mapping[str, Any] = field(default_factory=dict, repr=False)


def save(
    path: _PathLike,
    *,
    envs: Any = None,
    model: Any = None,
    optimizer: Any = None,
    scaler: Any = None,
    scheduler: Any = None,
    step: int = 0,
    keep: int = 3,
    **extra: Any,
) -> Path:
    """Saves the state of a run in one file.

    It is written beside, through to the disk, and renamed into place: whatever happens, the last
    good one stays. The one before is kept as `path.1`, that before it as `path.2`.

    Args:
        path: The file; a folder for the file `checkpoint.pt` in it.
        envs: The environments, wrapped or not. The state of Gymnasium's own wrappers is saved,
            as far as it is numbers, arrays and queues of these; that of others is not.
        model: This and the next three: whatever has `state_dict` and `load_state_dict`.
        optimizer: Likewise.
        scaler: Likewise.
        scheduler: Likewise.
        step: Where the run is.
        keep: How many files there are then at most, with the new one.
        extra: More of such parts; random generators (of NumPy, torch or Python); or plain
            values: numbers, strings, bytes, lists, tuples, dicts, sets, tensors, arrays.

    Returns:
        The file.

    Raises:
        TypeError: A part has no state, or there is something in a state that is not plain.
        CheckpointError: It cannot be written.
        ImportError: torch is not installed.
    """
    parts = dict(
        envs=envs, model=model, optimizer=optimizer, scaler=scaler, scheduler=scheduler, **extra
    )
    return _write(_file(path), _contents(Copier(), parts, step), _positive("keep", keep))


def load(
    path: _PathLike,
    *,
    envs: Any = None,
    model: Any = None,
    optimizer: Any = None,
    scaler: Any = None,
    scheduler: Any = None,
    map_location: Any = None,
    random: bool = True,
    **parts: Any,
) -> Checkpoint:
    """Puts a saved state back into the parts given, which need not be all that were saved.

    A file that is damaged, cut short, foreign or of a newer version is not used: a warning says
    so, and the one before it is taken.

    Args:
        path: The file that `save` was given, or a folder, for the newest file in it.
        envs: This and the next four: as in `save`, made as they were then.
        model: Likewise.
        optimizer: Likewise.
        scaler: Likewise.
        scheduler: Likewise.
        map_location: Where tensors go that are not put into a part, as in `torch.load`. In the
            file they are all on the CPU, so that it can be read on a machine without the GPU.
        random: False leaves the random states of Python, NumPy, torch and CUDA as they are.
        parts: The other parts, under the names they were saved with.

    Raises:
        CheckpointError: There is no whole file, it lacks a part, or a part is of another class
            or shape than the one saved. Random states and parts before it are loaded by then.
        TypeError: A part that cannot be one.
        ImportError: torch is not installed.
    """
    parts = dict(
        envs=envs, model=model, optimizer=optimizer, scaler=scaler, scheduler=scheduler, **parts
    )
    given = {name: _part(name, value) for name, value in parts.items() if value is not None}
    for name, part in given.items():
        if part is None:
            raise TypeError(f"{name} has no load_state_dict: {type(parts[name]).__qualname__}")
    checkpoint = read(path, map_location=map_location)
    # What does not fit at all is found before anything is touched.
    for name, part in given.items():
        _check(checkpoint, name, part)
    if random:
        _put_random_states(checkpoint)
    for name, part in given.items():
        try:
            _load_state(part, checkpoint.parts[name])
            problems = load_wrapper_states(parts[name], checkpoint._wrappers.get(name, []))
        except Exception as error:
            raise CheckpointError(f"{checkpoint.path}: {name}: {error}") from error
        for problem in problems:
            warnings.warn(f"{checkpoint.path}: {name}: {problem}", stacklevel=_outside())
    if random:
        # Again, since loading can use random numbers. Parts may look at the states, though.
        _put_random_states(checkpoint)
    return replace(checkpoint, parts={}, _random={}, _wrappers={})


def read(path: _PathLike, *, map_location: Any = None) -> Checkpoint:
    """What `load` would put back, as plain states by name.

    Args:
        path: As in `load`, with the same way round files that cannot be used.
        map_location: As in `load`.

    Raises:
        CheckpointError: There is no whole file.
        ImportError: torch is not installed.
    """
    _torch()
    path = Path(path)
    reasons = []
    for candidate in _candidates(path):
        try:
            checkpoint = _read(candidate, map_location)
        except CheckpointError as error:
            reasons.append(str(error))
            continue
        for reason in reasons:
            warnings.warn(f"{reason}; took {checkpoint.path} instead", stacklevel=_outside())
        return checkpoint
    if reasons:
        raise CheckpointError("; ".join(reasons))
    raise CheckpointError(f"{path}: no checkpoint there")


def latest(folder: _PathLike) -> Path | None:
    """The newest whole checkpoint in a folder, by the time it was saved; None for none."""
    for path in _candidates(Path(folder)):
        try:
            with sealed.opened(path, FORMAT):
                return path
        except CheckpointError:
            continue
    return None


def every(
    path: _PathLike,
    *,
    steps: int | None = None,
    minutes: float | None = None,
    signals: Collection[int] = (signal.SIGTERM, signal.SIGUSR1),
    keep: int = 3,
    envs: Any = None,
    model: Any = None,
    optimizer: Any = None,
    scaler: Any = None,
    scheduler: Any = None,
    **extra: Any,
) -> Saver:
    """Saves again and again, in the background.

        with checkpoint.every("run/agent.pt", steps=1000, envs=envs, model=model) as saver:
            for step in range(start, total):
                ...
                saver(step + 1)

    Args:
        path: As in `save`.
        steps: Save when a multiple of it is reached or passed.
        minutes: Save when so many have gone by since the last time.
        signals: Save at the first call after one of these came, as a scheduler sends before it
            takes the machine away. Then what the signal did before is done, which for SIGTERM
            is to end the process; SIGUSR1 lets it go on. A second one does not wait for the
            call. Handlers can be set in the main thread only; elsewhere pass ().
        keep: As in `save`.
        envs: This and the rest: as in `save`.
        model: Likewise.
        optimizer: Likewise.
        scaler: Likewise.
        scheduler: Likewise.
        extra: Likewise.

    Raises:
        ValueError: No occasion to save, or a handler outside the main thread.
        TypeError: A part has no state.
        ImportError: torch is not installed.
    """
    parts = dict(
        envs=envs, model=model, optimizer=optimizer, scaler=scaler, scheduler=scheduler, **extra
    )
    return Saver(_file(path), parts, steps, minutes, signals, _positive("keep", keep))


class Saver:
    """What `every` returns. Call it once a step, with the number of steps done."""

    def __init__(
        self,
        path: Path,
        parts: dict[str, Any],
        steps: int | None,
        minutes: float | None,
        signals: Collection[int],
        keep: int,
    ):
        _torch()
        if not (steps or minutes or signals):
            raise ValueError("say when to save: steps, minutes or signals")
        self._steps = None if steps is None else _positive("steps", steps)
        if minutes is not None and not minutes > 0:
            raise ValueError(f"minutes must be more than 0, got {minutes}")
        self._seconds = None if minutes is None else 60 * minutes
        self._path, self._parts, self._keep = path, parts, keep
        for name in ("envs", "model", "optimizer", "scaler", "scheduler"):
            _stateful(name, parts[name])
        self._copier = Copier()
        self._writing: threading.Thread | None = None
        self._error: Exception | None = None
        self._multiple: int | None = None
        self._last = time.monotonic()
        self._pid = os.getpid()
        self._came: list[int] = []
        self._earlier: dict[int, Any] = {}
        if signals and threading.current_thread() is not threading.main_thread():
            raise ValueError("signals can be handled in the main thread only: pass signals=()")
        for number in signals:
            self._earlier[number] = signal.signal(number, self._on_signal)

    def __call__(self, step: int, **extra: Any) -> bool:
        """Saves, if it is time: a copy is made now and written while training goes on.

        While the one before is still being written, it waits for a later call instead of
        holding up this one. A failure to write becomes a warning of a later call.

        Args:
            step: How many steps are done.
            extra: Plain values to save beside the others.

        Returns:
            Whether it made a copy.
        """
        if self._came:
            try:
                self.save(step, **extra)
            except CheckpointError as error:
                warnings.warn(f"not saved: {error}", stacklevel=_outside())
            self._pass_on()
            return True
        if self._writing is not None and self._writing.is_alive():
            return False
        self._report()
        if self._steps is not None and self._multiple is None:
            self._multiple = step // self._steps
        if not self._is_due(step):
            return False
        contents = self._copy(step, extra)
        self._writing = threading.Thread(
            target=self._write, args=(contents,), name="sc2gym-checkpoint"
        )
        self._writing.start()
        return True

    def save(self, step: int, **extra: Any) -> Path:
        """Saves now, and waits until it is written.

        Raises:
            CheckpointError: It cannot be written.
        """
        self._wait()
        return _write(self._path, self._copy(step, extra), self._keep)

    def close(self) -> None:
        """Waits for what is being written, and sets the signals' earlier handlers again."""
        for number, earlier in self._earlier.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, signal.SIG_DFL if earlier is None else earlier)
        self._wait()
        self._pass_on()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _is_due(self, step: int) -> bool:
        if self._seconds is not None and time.monotonic() - self._last >= self._seconds:
            return True
        return self._steps is not None and step // self._steps != self._multiple

    def _copy(self, step: int, extra: dict[str, Any]) -> dict[str, Any]:
        # The writer is done: the copier may use its memory again.
        contents = _contents(self._copier, self._parts | extra, step)
        self._last = time.monotonic()
        if self._steps is not None:
            self._multiple = step // self._steps
        return contents

    def _write(self, contents: dict[str, Any]) -> None:
        try:
            _write(self._path, contents, self._keep)
        except Exception as error:
            self._error = error

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.join()
            self._writing = None
        self._report()

    def _report(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            warnings.warn(f"not saved: {error}", stacklevel=_outside())

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid or number in self._came:
            # A child inherits the handler but not the run: it must end when it is told to.
            self._earlier_action(number, frame)
        else:
            self._came.append(number)

    def _pass_on(self) -> None:
        while self._came:
            self._earlier_action(self._came.pop(0), None)

    def _earlier_action(self, number: int, frame: FrameType | None) -> None:
        earlier = self._earlier[number]
        if callable(earlier):
            earlier(number, frame)
        elif earlier in (None, signal.SIG_DFL) and number not in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


# What is in a file


def _contents(copier: Copier, parts: dict[str, Any], step: int) -> dict[str, Any]:
    _torch()
    states, extra = {}, {}
    for name, value in parts.items():
        if value is None:
            continue
        part = _part(name, value)
        if part is None:
            extra[name] = value
        else:
            states[name] = {
                "kind": type(part).__qualname__,
                "state": _state(part),
                "wrappers": wrapper_states(value),
            }
    contents: dict[str, Any] = copier.copy(
        {
            "format": FORMAT,
            "step": int(step),
            "parts": states,
            "extra": extra,
            "random": _random_states(),
        }
    )
    return contents


def _write(path: Path, contents: dict[str, Any], keep: int) -> Path:
    torch = _torch()
    try:
        sealed.write(path, FORMAT, lambda file: torch.save(contents, file), keep)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error
    return path


def _read(path: Path, map_location: Any) -> Checkpoint:
    torch = _torch()
    with sealed.opened(path, FORMAT) as file:
        # The older layouts of torch.save have had holes that let code through.
        if file.read(len(_ZIP)) != _ZIP:
            raise CheckpointError(f"{path}: not an archive of torch.save")
        file.seek(0)
        try:
            contents = torch.load(file, weights_only=True, map_location=map_location or "cpu")
            contents = restored(contents)
            if not isinstance(contents["step"], int):
                raise TypeError("the step is no number")
            kinds = {name: part["kind"] for name, part in contents["parts"].items()}
            states = {name: part["state"] for name, part in contents["parts"].items()}
            wrappers = {name: part["wrappers"] for name, part in contents["parts"].items()}
            return Checkpoint(
                path, contents["step"], contents["extra"], states, kinds, contents["random"],
                wrappers,
            )  # fmt: skip
        except Exception as error:
            # Whatever a hostile file makes of torch's reader; only the first line, since torch
            # goes on to recommend loading it without weights_only.
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise CheckpointError(f"{path}: not a checkpoint of sc2gym: {reason}") from error


def _file(path: _PathLike) -> Path:
    path = Path(path)
    return path / DEFAULT_NAME if path.is_dir() else path


def _candidates(path: Path) -> list[Path]:
    if not path.is_dir():
        return sealed.history(path)
    # What has no seal but looks like one of ours comes by its own time, to be told of.
    found = []
    for file in path.iterdir():
        if file.name.startswith(".") or not file.is_file():
            continue
        when = sealed.sealed_at(file)
        if when is not None or ".pt" in file.suffixes:
            found.append((file.stat().st_mtime_ns if when is None else when, file))
    return [file for _, file in sorted(found, reverse=True)]


# Parts


def _part(name: str, value: Any) -> Any:
    """What of `value` has a state: itself, or what a wrapper wraps; None for a plain value."""
    if isinstance(value, _generators()):
        return value
    for candidate in (unwrapped(value), value):
        if all(
            callable(getattr(candidate, method, None))
            for method in ("state_dict", "load_state_dict")
        ):
            return candidate
    if name in ("envs", "model", "optimizer", "scaler", "scheduler"):
        raise TypeError(
            f"{name} needs state_dict and load_state_dict; {type(value).__qualname__} has not"
        )
    return None


def _stateful(name: str, value: Any) -> None:
    if value is not None:
        _part(name, value)


def _check(checkpoint: Checkpoint, name: str, part: Any) -> None:
    kinds = checkpoint._kinds
    if name not in kinds:
        held = ", ".join(kinds) or "nothing"
        raise CheckpointError(f"{checkpoint.path}: no {name} in it, but {held}")
    if kinds[name] != type(part).__qualname__:
        raise CheckpointError(
            f"{checkpoint.path}: its {name} is of the class {kinds[name]}, not"
            f" {type(part).__qualname__}"
        )


def _generators() -> tuple[type, ...]:
    torch = _torch()
    return (np.random.Generator, np.random.RandomState, torch.Generator, python_random.Random)


def _state(part: Any) -> Any:
    if isinstance(part, np.random.Generator):
        return part.bit_generator.state
    if isinstance(part, np.random.RandomState):
        return part.get_state(legacy=False)
    if isinstance(part, python_random.Random):
        return _python_state(part.getstate())
    if isinstance(part, _torch().Generator):
        return part.get_state()
    return part.state_dict()


def _load_state(part: Any, state: Any) -> None:
    if isinstance(part, np.random.Generator):
        part.bit_generator.state = state
    elif isinstance(part, np.random.RandomState):
        part.set_state(state)
    elif isinstance(part, python_random.Random):
        part.setstate(_from_python_state(state))
    elif isinstance(part, _torch().Generator):
        part.set_state(state.cpu())
    else:
        part.load_state_dict(state)


# Random states


def _random_states() -> dict[str, Any]:
    torch = _torch()
    return {
        "python": _python_state(python_random.getstate()),
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002
        "torch": torch.get_rng_state(),
        # Only where it is in use: asking would begin its use.
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
    }


def _put_random_states(checkpoint: Checkpoint) -> None:
    try:
        _set_random_states(checkpoint._random)
    except Exception as error:
        raise CheckpointError(f"{checkpoint.path}: random states: {error}") from error


def _set_random_states(states: Mapping[str, Any]) -> None:
    torch = _torch()
    python_random.setstate(_from_python_state(states["python"]))
    np.random.set_state(states["numpy"])  # noqa: NPY002
    torch.set_rng_state(states["torch"].cpu())
    for device, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state.cpu(), device)


def _python_state(state: tuple[Any, ...]) -> dict[str, Any]:
    version, words, gauss = state
    return {"version": version, "words": np.array(words, np.int64), "gauss": gauss}


def _from_python_state(state: Mapping[str, Any]) -> tuple[Any, ...]:
    return state["version"], tuple(state["words"].tolist()), state["gauss"]


# The rest


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            "checkpoints need torch: install sc2gym with the extra, sc2gym[torch]"
        ) from error
    if torch.__version__ < _TORCH:
        raise ImportError(f"checkpoints need torch 2.6 or later, this is {torch.__version__}")
    return torch


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{name} must be 1 or more, got {value}")
    return value


def _outside() -> int:
    """The stack level of the first caller outside this file, for warnings to point at."""
    import sys

    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_code.co_filename == __file__:
        frame, level = frame.f_back, level + 1
    return level
