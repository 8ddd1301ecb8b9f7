"""`sc2gym tune`: which batch size and prefetch depth keep this machine's agent busy."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from ..progress import track
from .play import count

DESCRIPTION = """
Steps environments in batches of several sizes, with several numbers of batches prepared ahead,
while a network learns from each batch as in training, and reports how many steps that makes a
second, what part of the time the network waits for data, and how much GPU memory it takes.

The network is a small convolutional one on the GPU, if there is one; yours will be slower, and
wait less. With --device none nothing learns: that is how fast the environments are.
"""
EPILOG = """
examples:
  sc2gym tune
  sc2gym tune --replays ~/replays --num-envs 64 128 256 --prefetch 2 4
"""

_WARM_UP = 0.25  # of the time measured: the first batches decode replays and compile kernels


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `sc2gym tune`."""
    add = parser.add_argument
    add("--replays", nargs="+", metavar="PATH", help="replays or folders, instead of the samples")
    add("--num-envs", type=count, nargs="+", default=[16, 64, 256], metavar="N",
        help="batch sizes to try (16 64 256)")  # fmt: skip
    add("--prefetch", type=_depth, nargs="+", default=[0, 1, 2, 4], metavar="N",
        help="numbers of batches ahead to try (0 1 2 4)")  # fmt: skip
    add("--seconds", type=_seconds, default=2.0, metavar="S", help="time for each (2)")
    add("--minimap-size", type=count, default=64, metavar="N", help="pixels a side (64)")
    add("--step-mul", type=count, default=8, metavar="N", help="game loops a step (8)")
    add(
        "--device", default=None, help="where the network is: cuda, cpu or none (the best there is)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measures every combination, and prints a table."""
    device = _device(arguments.device)
    print(f"SC2Replay-v0, minimap {arguments.minimap_size}, network on {device}")
    tried = []
    pairs = [(n, depth) for n in arguments.num_envs for depth in arguments.prefetch]
    for num_envs, prefetch in track(pairs, "measuring", unit="settings"):
        envs = gymnasium.make_vec(
            "sc2gym:SC2Replay-v0",
            num_envs=num_envs,
            replays=arguments.replays,
            minimap_size=arguments.minimap_size,
            step_mul=arguments.step_mul,
            prefetch=prefetch,
        )
        with closing(envs):
            tried.append(_measure(envs, prefetch, device, arguments.seconds))
    print(f"{'num_envs':>8}{'prefetch':>10}{'steps/s':>12}{'idle':>8}{'GPU memory':>14}")
    for each in tried:
        print(each)
    best = max(tried, key=lambda each: each.steps_a_second)
    print(f"most steps a second: num_envs={best.num_envs}, prefetch={best.prefetch}")
    return 0


@dataclass(frozen=True)
class Measured:
    """How a setting did.

    Attributes:
        num_envs: Environments in a batch.
        prefetch: Batches prepared ahead.
        steps_a_second: Of all environments together.
        idle: Share of the time in which the network waited for a batch.
        gpu_bytes: The most GPU memory that was in use; None without a GPU.
    """

    num_envs: int
    prefetch: int
    steps_a_second: float
    idle: float
    gpu_bytes: int | None

    def __str__(self) -> str:
        memory = "-" if self.gpu_bytes is None else f"{self.gpu_bytes / 2**20:,.0f} MiB"
        return (
            f"{self.num_envs:8}{self.prefetch:10}{self.steps_a_second:12,.0f}"
            f"{self.idle:8.0%}{memory:>14}"
        )


def _measure(
    envs: gymnasium.vector.VectorEnv[Any, Any, Any], prefetch: int, device: str, seconds: float
) -> Measured:
    learn, gpu_bytes = _network(envs, device)
    if device.startswith("cuda"):
        from ..adapters.torch import ToDevice

        envs = ToDevice(envs, device)
    actions = np.zeros(envs.num_envs, np.int64)  # drawing them would take longer than a step
    observations, _ = envs.reset(seed=0)
    steps, waited = 0, 0.0
    began = time.perf_counter()
    is_warm = False
    while (now := time.perf_counter()) - began < seconds or steps == 0:
        if not is_warm and now - began > _WARM_UP * seconds:
            began, steps, waited, is_warm = now, 0, 0.0, True
        learn(observations)
        asked = time.perf_counter()
        observations, *_ = envs.step(actions)
        waited += time.perf_counter() - asked
        steps += 1
    took = time.perf_counter() - began
    return Measured(
        envs.num_envs, prefetch, steps * envs.num_envs / took, waited / took, gpu_bytes()
    )


def _network(
    envs: gymnasium.vector.VectorEnv[Any, Any, Any], device: str
) -> tuple[Callable[[Any], None], Callable[[], int | None]]:
    """A function that learns from a batch and returns when it has, and one for GPU memory."""
    if device == "none":
        return lambda observations: None, lambda: None
    import torch
    from torch import nn

    observation: Any = envs.single_observation_space
    action: Any = envs.single_action_space
    layers, functions = observation.shape[0], int(action.n)
    network = nn.Sequential(
        nn.Conv2d(layers, 32, 4, 4), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64 * 16, functions),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters())
    is_cuda = device.startswith("cuda")
    if is_cuda:
        torch.cuda.reset_peak_memory_stats()

    def learn(observations: Any) -> None:
        seen = torch.as_tensor(observations, device=device)
        with torch.autocast(torch.device(device).type, torch.float16, enabled=is_cuda):
            loss = network(seen.float() / 255).float().logsumexp(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if is_cuda:
            torch.cuda.synchronize()

    return learn, lambda: torch.cuda.max_memory_allocated() if is_cuda else None


def _device(asked: str | None) -> str:
    if asked == "none":
        return asked
    try:
        import torch
    except ImportError:
        if asked is None:
            return "none"
        raise ImportError("a network needs torch: pip install 'sc2gym[torch]'") from None
    if asked is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if torch.device(asked).type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"no CUDA on this machine for --device {asked}")
    return asked


def _depth(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if 0 < seconds < 3600:
        return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
