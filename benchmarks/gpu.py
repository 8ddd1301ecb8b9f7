"""Whether the feed keeps a GPU busy: one table, in under five minutes; on the CPU without one.

    python benchmarks/gpu.py [--replays FOLDER] [--num-envs 256] [--seconds 20] [--device cuda]

- Transfer: batches to the device from pageable and from page-locked memory, beside what the bus
  gives for 256 MB at a time.
- Training: behaviour cloning with a small convolutional network, with two loops. The naive one
  steps single environments in Python, stacks and scales on the host, and copies with
  `torch.tensor(batch).to(device)`. The feed's is `ToDevice`, uint8 over the bus, scaled on the
  device. Busy is the share of time in which the device computes a step, by its own clock.
- Check: what arrives on a loaded device is what was sent, to the bit.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sc2gym import spaces
from sc2gym.adapters.torch import Bus, ToDevice
from sc2gym.env import SC2ReplayEnv
from sc2gym.library import SAMPLES, Library
from sc2gym.vector import SC2ReplayVectorEnv

DATA = os.environ.get("SC2GYM_TEST_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
PYSC2 = Path(DATA) / "replays" / "pysc2"


class Device:
    """A device and its clock; the CPU computes at once, so the wall clock is its own."""

    def __init__(self, name: str):
        self.device = torch.device(name)
        self.is_cuda = self.device.type == "cuda"

    def wait(self) -> None:
        """Until all is done that was asked of it."""
        if self.is_cuda:
            torch.cuda.synchronize(self.device)

    def mark(self) -> Any:
        """Its time when it has done all that was asked of it so far."""
        if not self.is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, begin: Any, end: Any) -> float:
        """Seconds from mark to mark."""
        return begin.elapsed_time(end) / 1e3 if self.is_cuda else end - begin


def network(layers: int, device: torch.device) -> nn.Module:
    actions = int(spaces.action_space().n)
    return nn.Sequential(
        nn.Conv2d(layers, 64, 5, stride=2), nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2), nn.ReLU(),
        nn.Conv2d(128, 128, 3), nn.ReLU(),
        nn.Flatten(), nn.LazyLinear(512), nn.ReLU(), nn.Linear(512, actions),
    ).to(device)  # fmt: skip


def naive(replays: Any, num_envs: int, device: torch.device) -> Iterator[tuple[Any, Any]]:
    envs = [SC2ReplayEnv(replays, shard=(lane, num_envs)) for lane in range(num_envs)]
    shown = [env.reset(seed=0) for env in envs]
    while True:
        batch = np.stack([observation for observation, _ in shown]).astype(np.float32) / 255
        actions = [info["expert_action"] for _, info in shown]
        yield torch.tensor(batch).to(device), torch.tensor(actions).to(device)
        for lane, env in enumerate(envs):
            observation, _, terminated, truncated, info = env.step(actions[lane])
            shown[lane] = env.reset() if terminated or truncated else (observation, info)


def fed(replays: Any, num_envs: int, device: torch.device) -> Iterator[tuple[Any, Any]]:
    envs = ToDevice(
        SC2ReplayVectorEnv(replays, num_envs=num_envs, prefetch=4, num_threads=_threads()), device
    )
    observations, infos = envs.reset(seed=0)
    idle = np.zeros(num_envs, np.int64)
    while True:
        yield observations.float() / 255, infos["expert_action"]
        observations, _, _, _, infos = envs.step(idle)


def _threads() -> int:
    return max(1, min(8, (os.cpu_count() or 2) - 1))


def train(
    feed: Callable[..., Iterator[Any]], replays: Any, num_envs: int, where: Device, seconds: float
) -> tuple[float, float]:
    """Steps a second (of environments), and the share of time in which the device computes."""
    batches = feed(replays, num_envs, where.device)
    first, _ = next(batches)
    model = network(first.shape[1], where.device)
    model(first)  # the lazy layer
    optimizer = torch.optim.Adam(model.parameters(), 3e-4)
    half = torch.autocast("cuda", torch.bfloat16) if where.is_cuda else nullcontext()
    marks: list[tuple[Any, Any]] = []
    warm_up, began, steps = 5, 0.0, 0
    while steps < warm_up + 5 or time.perf_counter() - began < seconds:
        if steps == warm_up:
            where.wait()
            marks.clear()
            began = time.perf_counter()
        observations, actions = next(batches)
        begin = where.mark()
        with half:
            loss = nn.functional.cross_entropy(model(observations), actions)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        marks.append((begin, where.mark()))
        steps += 1
        if steps % 8 == 0:
            where.wait()  # as a look at the loss does; nobody runs far ahead
    where.wait()
    passed = time.perf_counter() - began
    busy = sum(where.between(*pair) for pair in marks)
    return len(marks) * num_envs / passed, busy / passed


def transfer(replays: Any, num_envs: int, where: Device) -> Iterator[tuple[str, float]]:
    def speed(send: Callable[[], Any], nbytes: int) -> float:
        rates = []
        for _ in range(5):
            where.wait()
            began = time.perf_counter()
            for _ in range(8):
                send()
            where.wait()
            rates.append(8 * nbytes / (time.perf_counter() - began))
        return max(rates)

    for name, pinned in (("pageable", False), ("page-locked", None)):
        envs = SC2ReplayVectorEnv(replays, num_envs=num_envs, prefetch=0, pinned=pinned)
        batch = envs.reset(seed=0)[0]
        bus = Bus(where.device)
        if where.is_cuda:
            yield name, speed(lambda b=batch, bus=bus: bus.begin(b), batch.nbytes)
        else:
            target = torch.empty(batch.shape, dtype=torch.uint8)
            yield name, speed(lambda b=batch, t=target: t.copy_(torch.from_numpy(b)), batch.nbytes)
    large = torch.ones(256 << 20, dtype=torch.uint8, pin_memory=where.is_cuda)
    target = torch.empty(256 << 20, dtype=torch.uint8, device=where.device)
    yield "bus", speed(lambda: target.copy_(large, non_blocking=True), 256 << 20)


def check(replays: Any, num_envs: int, where: Device, steps: int) -> int:
    """Batches that arrived otherwise than they were sent, with the device at work meanwhile."""
    plain = SC2ReplayVectorEnv(replays, num_envs=num_envs, prefetch=0, pinned=False)
    envs = ToDevice(SC2ReplayVectorEnv(replays, num_envs=num_envs, prefetch=2), where.device)
    load = torch.ones(2048 if where.is_cuda else 64, device=where.device).diag()
    got, expected = [envs.reset(seed=1)[0]], [plain.reset(seed=1)[0].copy()]
    wrong = 0
    for step in range(steps):
        for _ in range(20):
            load = load @ load
        idle = np.zeros(num_envs, np.int64)
        got.append(envs.step(idle)[0])
        expected.append(plain.step(idle)[0].copy())
        if len(got) == 16 or step == steps - 1:
            wrong += sum(
                not np.array_equal(tensor.cpu().numpy(), array)
                for tensor, array in zip(got, expected, strict=True)
            )
            got.clear()
            expected.clear()
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replays", default=PYSC2 if PYSC2.is_dir() else SAMPLES)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--num-envs", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    where = Device(arguments.device)
    if not where.is_cuda:
        torch.set_num_threads(1)  # to show that it runs, on a machine that has other things to do
    num_envs = arguments.num_envs or (256 if where.is_cuda else 16)
    name = torch.cuda.get_device_name(where.device) if where.is_cuda else "the CPU: no CUDA here"
    Library(arguments.replays).preload()
    replays = arguments.replays

    rows: list[tuple[str, str, str]] = []
    speeds = dict(transfer(replays, num_envs, where))
    for kind in ("pageable", "page-locked"):
        share = speeds[kind] / speeds["bus"]
        rows.append((f"transfer, {kind}", f"{speeds[kind] / 1e9:.1f} GB/s", f"{share:.0%} of bus"))
    results = {}
    for kind, feed in (("naive loop", naive), ("feed", fed)):
        results[kind], busy = train(feed, replays, num_envs, where, arguments.seconds)
        rows.append((f"training, {kind}", f"{results[kind]:,.0f} steps/s", f"{busy:.0%} busy"))
    rows.append(
        ("feed beside the naive loop", f"{results['feed'] / results['naive loop']:.1f}x", "")
    )
    steps = 200 if where.is_cuda else 50
    rows.append(
        ("batches written over", f"{check(replays, num_envs, where, steps)} of {steps}", "")
    )

    print(f"{name}, {num_envs} lanes, {os.cpu_count()} CPU cores")
    for row in rows:
        print(f"{row[0]:30} {row[1]:>18} {row[2]:>16}")


if __name__ == "__main__":
    main()
