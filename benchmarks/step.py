"""Steps a second of 16 environments on one core, beside what others do there.

    python benchmarks/step.py [--replays FOLDER] [--num-envs 16] [--seconds 1] [--rounds 5]

A step is one environment's: a batch of 16 counts as 16. Every figure is the median of rounds that
take turns, so that a busy machine slows all of them alike; the ratios are what to compare.
Actions are drawn beforehand, and a batch is held until the next one, as users hold it. The replays
are the nine of pysc2's tests where they are at hand (SC2GYM_TEST_DATA, or ../shared/data), else the
samples; they are decoded beforehand too. EnvPool's Pong needs `pip install envpool`.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import numpy as np

import sc2gym  # noqa: F401  (registers the environment)
from sc2gym.library import Library

DATA = os.environ.get("SC2GYM_TEST_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
PYSC2 = Path(DATA) / "replays" / "pysc2"

Step = Callable[[int], Any]
ALL_KEYS = ("minimap", "units", "player", "upgrades", "game_loop")


def replay_envs(num_envs: int, mode: str, **options: Any) -> tuple[Any, Step]:
    envs = gymnasium.make_vec("SC2Replay-v0", num_envs=num_envs, vectorization_mode=mode, **options)
    envs.reset(seed=0)
    return envs, stepper(envs)


def stepper(envs: Any) -> Step:
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(64)]
    held: Any = None

    def step(i: int) -> None:
        nonlocal held
        held = envs.step(actions[i % 64])

    return step


def cartpole(num_envs: int) -> Step:
    envs = gymnasium.make_vec(
        "CartPole-v1", num_envs=num_envs, vectorization_mode="vector_entry_point"
    )
    envs.reset(seed=0)
    return stepper(envs)


def pong(num_envs: int) -> Step | None:
    try:
        import envpool
    except ImportError:
        return None
    envs = envpool.make("Pong-v5", env_type="gymnasium", num_envs=num_envs, num_threads=1)
    envs.reset()
    rng = np.random.default_rng(0)
    actions = [rng.integers(0, 6, num_envs).astype(np.int32) for _ in range(64)]
    return lambda i: envs.step(actions[i % 64])


def memory_copy(envs: Any) -> Step:
    """Copies a batch of the same size into memory that is there."""
    space = envs.observation_space
    spaces = space.values() if isinstance(space, gymnasium.spaces.Dict) else [space]
    source = [np.ones(each.shape, each.dtype) for each in spaces]
    target = [np.empty_like(each) for each in source]

    def copy(i: int) -> None:
        for to, array in zip(target, source, strict=True):
            np.copyto(to, array)

    return copy


def rate(step: Step, seconds: float, num_envs: int) -> float:
    """Steps a second over at least `seconds`."""
    done, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        for i in range(32):
            step(done + i)
        done += 32
    return done * num_envs / passed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replays", default=PYSC2 if PYSC2.is_dir() else None)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    n = arguments.num_envs
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    # Sixteen environments may share a handful of episodes, which is fine here.
    warnings.simplefilter("ignore")
    given = {"replays": arguments.replays}
    library = Library(arguments.replays)
    for index in range(len(library)):
        library.episode(index)
    vector, full = "vector_entry_point", dict(given, observe=ALL_KEYS)
    envs, default = replay_envs(n, vector, **given)
    full_envs, everything = replay_envs(n, vector, **full)
    contenders: dict[str, Step | None] = {
        "SC2Replay-v0, default options": default,
        "  the same with copy=False": replay_envs(n, vector, **given, copy=False)[1],
        "  SyncVectorEnv over the single environment": replay_envs(n, "sync", **given)[1],
        "  plain memory copy of the batch": memory_copy(envs),
        "SC2Replay-v0, every observation": everything,
        "  plain memory copy of that batch": memory_copy(full_envs),
        "Gymnasium's CartPole-v1, its own vector version": cartpole(n),
        "EnvPool's Pong-v5": pong(n),
    }
    present = {name: step for name, step in contenders.items() if step is not None}
    for step in present.values():
        rate(step, 0.2, n)
    rounds = [
        {name: rate(step, arguments.seconds, n) for name, step in present.items()}
        for _ in range(arguments.rounds)
    ]
    figures = {name: median(each[name] for each in rounds) for name in present}
    base = figures["SC2Replay-v0, default options"]
    print(f"{n} environments on one core, median of {arguments.rounds} rounds")
    for name, figure in figures.items():
        print(f"{name:50} {figure:>14,.0f}/s {figure / base:8.3f}")


if __name__ == "__main__":
    main()
