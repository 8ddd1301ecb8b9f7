"""Batches for torch: page-locked memory, and tensors that are on the device when asked for."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv, VectorWrapper

from sc2gym.vector import SC2ReplayVectorEnv

try:
    import torch
except ImportError as error:
    raise ImportError("this needs torch: pip install 'sc2gym[torch]'") from error

if TYPE_CHECKING:
    from torch import Tensor

# Copies under way before the oldest is waited for: each keeps a batch from being used again.
_MOST_COPIES = 4
# Small arrays travel together, each from a multiple of this on.
_ALIGNMENT = 16


def empty_like(
    arrays: dict[str, npt.NDArray[Any]], *, pinned: bool | None
) -> dict[str, npt.NDArray[Any]]:
    """Page-locked arrays of the same shapes and types.

    Args:
        arrays: Key -> array.
        pinned: None for the arrays themselves where there is no CUDA to lock memory for.

    Raises:
        RuntimeError: `pinned`, and memory cannot be locked.
    """
    try:
        if pinned or torch.cuda.is_available():
            return {
                # The tensor is the array's base, and memory is free when both are gone.
                key: torch.empty(array.shape, dtype=_dtype(array), pin_memory=True).numpy()
                for key, array in arrays.items()
            }
    except RuntimeError as error:
        # Also in a forked child, where CUDA cannot be used.
        if pinned:
            raise RuntimeError(f"memory cannot be page-locked here: {error}") from error
    return arrays


class ToDevice(VectorWrapper[Any, Any, Any]):
    """Gives batches as tensors on a device.

    Observations do not depend on actions, so where `envs` is the environment itself the next
    batch is copied, on a stream of its own, while the agent works on this one. The batch's
    memory is not used again before its copy has arrived. Tensors are the caller's to keep.

        envs = ToDevice(gymnasium.make_vec("SC2Replay-v0", num_envs=64), "cuda")
        observations, infos = envs.reset(seed=0)
        logits = model(observations)

    Observations, rewards, flags and the numbers among infos are tensors with the dtypes of the
    environment; actions may be tensors on any device, or arrays. On the CPU tensors share the
    memory of the batch.

    Args:
        envs: The environment, wrapped or not.
        device: Where to; a GPU's copies are asynchronous only from page-locked memory, which
            the environment allocates by itself where torch is imported and sees CUDA.

    Raises:
        ValueError: The environment has `copy=False`: it would write over what is being copied.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any], device: str | torch.device = "cuda"):
        super().__init__(envs)
        options = getattr(envs.unwrapped, "options", None)
        if options is not None and not options.copy:
            raise ValueError("ToDevice needs an environment with copy=True")
        self.device = torch.device(device)
        self._bus = Bus(self.device)
        # What a wrapper below changes can only be copied when it has.
        self._source = envs if isinstance(envs, SC2ReplayVectorEnv) else None
        self._next: Copy | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """As the environment's, with tensors."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self._next = None
        shown = self._bus.begin(observations)
        (infos,) = self._together(infos)
        self._look_ahead()
        return self._bus.finish(shown), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As the environment's, with tensors."""
        if isinstance(actions, torch.Tensor):
            actions = actions.detach().cpu().numpy()
        observations, *rest = self.env.step(actions)
        shown = self._next
        if shown is None or not shown.is_of(observations):
            shown = self._bus.begin(observations)
        self._next = None
        rewards, terminations, truncations, infos = self._together(*rest)
        self._look_ahead()
        return self._bus.finish(shown), rewards, terminations, truncations, infos

    def _look_ahead(self) -> None:
        following = self._source.peek() if self._source is not None else None
        if following is not None:
            self._next = self._bus.begin(following)

    def _together(self, *values: Any) -> tuple[Any, ...]:
        """The values with tensors on the device in place of arrays of numbers."""
        arrays: list[npt.NDArray[Any]] = []
        _collect(values, arrays)
        starts, size = [], 0
        for array in arrays:
            starts.append(size)
            size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        packed = self._bus.memory(size)
        for start, array in zip(starts, arrays, strict=True):
            packed[start : start + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        there = self._bus.finish(self._bus.begin(packed))
        tensors = iter([
            there[start : start + array.nbytes].view(_dtype(array)).reshape(array.shape)
            for start, array in zip(starts, arrays, strict=True)
        ])  # fmt: skip
        replaced: tuple[Any, ...] = _replace(values, tensors)
        return replaced


class Copy(NamedTuple):
    """A batch on its way, or arrived.

    Attributes:
        host: The memory that it comes from.
        tensors: The memory that it goes to, in the same structure.
        event: A `torch.cuda.Event` that has passed when it is there; None where it always is.
    """

    host: Any
    tensors: Any
    event: Any

    def is_of(self, observations: Any) -> bool:
        """Whether this is the copy of a batch: memory that is held is no other's."""
        return bool(_first(self.host).ctypes.data == _first(observations).ctypes.data)


class Bus:
    """Copies to a device, in order, beside what the device computes."""

    def __init__(self, device: torch.device):
        self.device = device
        self.stream: Any = None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.flying: deque[Copy] = deque()

    def memory(self, size: int) -> npt.NDArray[np.uint8]:
        """Bytes to copy from."""
        tensor = torch.empty(size, dtype=torch.uint8, pin_memory=self.stream is not None)
        array: npt.NDArray[np.uint8] = tensor.numpy()
        return array

    def begin(self, batch: Any) -> Copy:
        """Begins a copy; the batch is held until it has arrived."""
        self._land()
        if self.stream is None:
            return Copy(batch, _map(lambda array: self._send(array), batch), None)
        with torch.cuda.stream(self.stream):
            tensors = _map(self._send, batch)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self.stream)
        copy = Copy(batch, tensors, event)
        self.flying.append(copy)
        return copy

    def _send(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    def _land(self) -> None:
        while self.flying:
            event = self.flying[0].event
            if len(self.flying) >= _MOST_COPIES:
                event.synchronize()
            if not event.query():
                return
            self.flying.popleft()

    def finish(self, copy: Copy) -> Any:
        """The tensors of a copy, for what is computed from here on to wait for."""
        if copy.event is not None:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(copy.event)
            # They are memory of the other stream: it must not use them again too early.
            _map(lambda tensor: tensor.record_stream(stream), copy.tensors)
        return copy.tensors


def _map(function: Any, batch: Any) -> Any:
    if isinstance(batch, dict):
        return {key: function(part) for key, part in batch.items()}
    return function(batch)


def _first(batch: Any) -> Any:
    return next(iter(batch.values())) if isinstance(batch, dict) else batch


def _is_numbers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "biuf"


def _collect(value: Any, arrays: list[npt.NDArray[Any]]) -> None:
    if _is_numbers(value):
        arrays.append(value)
    elif isinstance(value, (tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            _collect(part, arrays)


def _replace(value: Any, tensors: Any) -> Any:
    """The same structure, visited in the same order."""
    if _is_numbers(value):
        return next(tensors)
    if isinstance(value, dict):
        return {key: _replace(part, tensors) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_replace(part, tensors) for part in value)
    return value


def _dtype(array: npt.NDArray[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, array.dtype)).dtype
