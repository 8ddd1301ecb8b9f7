"""Tensors on a device are the batches to the bit, and nothing is written over on the way."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as vector_wrappers
from test_vector import EVERYTHING, SOME, same

from sc2gym.vector import SC2ReplayVectorEnv

torch = pytest.importorskip("torch")

from sc2gym.adapters.torch import Bus, Copy, ToDevice, empty_like  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.* environments share")
CUDA = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
)


def plain(value: Any) -> Any:
    """The same with arrays in place of tensors."""
    if isinstance(value, torch.Tensor):
        return value.cpu().numpy()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("observe", ["minimap", EVERYTHING])
def test_tensors_are_what_arrays_would_be(observe: Any, mode: AutoresetMode, device: str) -> None:
    options: dict[str, Any] = {"observe": observe, "max_units": 30, "step_mul": 600}
    options |= {"num_envs": 4, "autoreset_mode": mode}
    envs = ToDevice(SC2ReplayVectorEnv(SOME, prefetch=3, **options), device)
    other = SC2ReplayVectorEnv(SOME, prefetch=0, **options)
    generator = np.random.default_rng(0)
    for seed in (0, 1):
        shown = envs.reset(seed=seed)
        same(plain(shown), other.reset(seed=seed))
        kept = []
        for step in range(60):
            actions = generator.integers(0, 9, 4)
            expected = other.step(actions)
            given = torch.from_numpy(actions).to(device) if step % 2 else actions
            got = envs.step(given)
            first = got[0] if torch.is_tensor(got[0]) else got[0]["minimap"]
            assert first.device.type == device
            assert all(torch.is_tensor(part) for part in got[1:4])
            same(plain(got), expected)
            kept.append((first, plain(first).copy()))
            over = expected[2] | expected[3]
            if mode is AutoresetMode.DISABLED and over.any():
                mask = {"reset_mask": over}
                same(plain(envs.reset(options=dict(mask))), other.reset(options=dict(mask)))
        for tensor, was in kept:
            np.testing.assert_array_equal(plain(tensor), was)


def test_wrapped_environments_are_copied_as_they_come() -> None:
    envs = ToDevice(
        vector_wrappers.DtypeObservation(SC2ReplayVectorEnv(SOME, num_envs=2), np.float32), "cpu"
    )
    observations, _ = envs.reset(seed=0)
    assert observations.dtype == torch.float32
    assert envs.step(torch.zeros(2, dtype=torch.int64))[0].dtype == torch.float32


class SlowBus(Bus):
    """A device that is busy: what is sent is read only later, by a thread of its own."""

    def __init__(self, delay: float):
        super().__init__(torch.device("cpu"))
        self.delay = delay

    def begin(self, batch: Any) -> Copy:
        self._land()
        tensors = (
            {key: torch.empty_like(torch.from_numpy(part)) for key, part in batch.items()}
            if isinstance(batch, dict)
            else torch.empty_like(torch.from_numpy(batch))
        )
        # As a DMA engine does, it knows addresses and holds nothing.
        parts = list(batch.values()) if isinstance(batch, dict) else [batch]
        bare = [(part.ctypes.data, part.nbytes) for part in parts]
        targets = list(tensors.values()) if isinstance(tensors, dict) else [tensors]
        event = SlowEvent(self.delay, bare, targets)
        copy = Copy(batch, tensors, event)
        self.flying.append(copy)
        return copy

    def finish(self, copy: Copy) -> Any:
        return copy.tensors


class SlowEvent:
    def __init__(self, delay: float, bare: list[tuple[int, int]], targets: list[Any]):
        self.passed = threading.Event()

        def work() -> None:
            import ctypes

            time.sleep(delay)
            for (address, size), target in zip(bare, targets, strict=True):
                ctypes.memmove(target.data_ptr(), address, size)
            self.passed.set()

        threading.Thread(target=work).start()

    def query(self) -> bool:
        return self.passed.is_set()

    def synchronize(self) -> None:
        self.passed.wait()


@pytest.mark.parametrize("delay", [0.0, 0.003, 0.02])
def test_no_batch_is_written_over_while_it_is_on_its_way(delay: float) -> None:
    envs = ToDevice(SC2ReplayVectorEnv(SOME, num_envs=8, step_mul=100, prefetch=2), "cpu")
    envs._bus = SlowBus(delay)
    other = SC2ReplayVectorEnv(SOME, num_envs=8, step_mul=100, prefetch=0)
    got, expected = [envs.reset(seed=0)[0]], [other.reset(seed=0)[0]]
    for _ in range(60):
        got.append(envs.step(np.zeros(8, np.int64))[0])
        expected.append(other.step(np.zeros(8, np.int64))[0].copy())
    for copy in envs._bus.flying:
        copy.event.synchronize()
    for one, two in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one.numpy(), two)


def test_that_test_would_see_it() -> None:
    envs = SC2ReplayVectorEnv(SOME, num_envs=8, step_mul=100, copy=False, prefetch=2)
    bus = SlowBus(0.02)
    sent = [bus.begin(envs.reset(seed=0)[0])]
    expected = [sent[0].host.copy()]
    for _ in range(20):
        observations = envs.step(np.zeros(8, np.int64))[0]
        expected.append(observations.copy())
        sent.append(bus.begin(observations))
    for copy in sent:
        copy.event.synchronize()
    differ = [
        not np.array_equal(copy.tensors.numpy(), was)
        for copy, was in zip(sent, expected, strict=True)
    ]
    assert any(differ)


def test_memory_that_is_written_over_is_refused() -> None:
    with pytest.raises(ValueError, match="copy=True"):
        ToDevice(SC2ReplayVectorEnv(SOME, num_envs=2, copy=False), "cpu")


@pytest.mark.parametrize("pinned", [None, False])
@pytest.mark.parametrize("copy", [True, False])
def test_torch_takes_any_batch_without_a_warning_or_a_copy(copy: bool, pinned: Any) -> None:
    envs = SC2ReplayVectorEnv(SOME, num_envs=3, observe=EVERYTHING, copy=copy, pinned=pinned)
    batch, infos = envs.reset(seed=0)
    for _ in range(3):
        for array in [*batch.values(), infos["expert_action"], infos["seconds"]]:
            for tensor in (torch.from_numpy(array), torch.from_dlpack(array)):
                assert tensor.data_ptr() == array.ctypes.data
        batch, *rest, infos = envs.step(np.zeros(3, np.int64))
        for array in rest:
            assert torch.from_numpy(array).data_ptr() == array.ctypes.data
    rollout = envs.rollout(4)
    assert torch.from_dlpack(rollout.observations["units"]).shape[:2] == (4, 3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without CUDA")
def test_page_locking_needs_cuda() -> None:
    with pytest.raises(RuntimeError, match="page-locked"):
        SC2ReplayVectorEnv(SOME, num_envs=2, pinned=True).reset(seed=0)
    arrays = {"minimap": np.empty((2, 3), np.uint8)}
    assert empty_like(arrays, pinned=None) is arrays


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_batches_are_page_locked_where_there_is_cuda() -> None:
    envs = SC2ReplayVectorEnv(SOME, num_envs=2)
    observations, _ = envs.reset(seed=0)
    assert torch.from_numpy(observations).is_pinned()
    assert torch.from_numpy(envs.rollout(3).observations).is_pinned()


def test_without_torch_the_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import sc2gym.vector\n"
        "try:\n    import sc2gym.adapters.torch\n"
        "except ImportError as error:\n    print(error)\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    ).stdout
    assert "sc2gym[torch]" in output
