"""What preparing batches ahead gives: speed, waiting, rollouts, memory.

    python benchmarks/feed.py [--replays FOLDER] [--seconds 0.3] [--rounds 5] [--kept 1000]
    python benchmarks/feed.py --only speed,wait,rollout,memory

A step is one environment's: a batch of 16 counts as 16. Contenders take turns, and a figure is the
best of the rounds: other work on the machine only ever slows one down. The replays are the nine of
pysc2's tests where they are at hand (SC2GYM_TEST_DATA, or ../shared/data), else the samples; they
are decoded beforehand. On a machine with nothing to spare threads gain nothing; what they take
off the caller's own thread is shown apart. EnvPool's Pong needs `pip install envpool`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from sc2gym.library import SAMPLES, Library, find
from sc2gym.vector import SC2ReplayVectorEnv

DATA = os.environ.get("SC2GYM_TEST_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
PYSC2 = Path(DATA) / "replays" / "pysc2"
ALL_KEYS = ("minimap", "units", "player", "upgrades", "game_loop")

Step = Callable[[], Any]


def stepper(envs: Any, dtype: Any = np.int64) -> Step:
    """Steps and holds each batch until the next, as users do."""
    envs.reset()
    actions = np.zeros(envs.num_envs if hasattr(envs, "num_envs") else len(envs), dtype)
    held: Any = None

    def step() -> None:
        nonlocal held
        held = envs.step(actions)

    return step


def rate(step: Step, seconds: float) -> float:
    """Calls a second."""
    for _ in range(4):
        step()
    done, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        for _ in range(8):
            step()
        done += 8
    return done / passed


def best(contenders: dict[Any, Step], arguments: Any) -> dict[Any, float]:
    rounds = [
        {name: rate(step, arguments.seconds) for name, step in contenders.items()}
        for _ in range(arguments.rounds)
    ]
    return {name: max(each[name] for each in rounds) for name in contenders}


def own_time(step: Step, calls: int) -> float:
    """Seconds of the processor that a call takes of the agent's own thread."""
    step()
    began = time.thread_time()
    for _ in range(calls):
        step()
    return (time.thread_time() - began) / calls


def speed(arguments: Any) -> None:
    kinds: dict[str, dict[str, Any]] = {"default": {}, "full": {"observe": ALL_KEYS}}
    print(f"\n{'steps a second':30} {'caller, us a batch':>24}")
    print(f"{'':18}{'without':>12} {'2 ahead':>12} {'without':>12} {'2 ahead':>12}")
    for num_envs in (1, 16, 64, 256):
        for kind, options in kinds.items():
            contenders = {
                prefetch: stepper(
                    SC2ReplayVectorEnv(
                        arguments.replays, num_envs=num_envs, prefetch=prefetch, **options
                    )
                )
                for prefetch in (0, 2)
            }
            figures = best(contenders, arguments)
            times = {
                prefetch: min(own_time(step, 4 + 2048 // num_envs) for _ in range(3)) * 1e6
                for prefetch, step in contenders.items()
            }
            without, ahead = (figures[prefetch] * num_envs for prefetch in (0, 2))
            print(
                f"{num_envs:3} lanes, {kind:8}{without:>12,.0f} {ahead:>12,.0f}"
                f" {times[0]:>12,.1f} {times[2]:>12,.1f}"
            )
    others: dict[str, tuple[int, Step]] = {}
    two = gymnasium.make_vec(
        "sc2gym:SC2Replay-v0", 2, "async", replays=str(arguments.replays), step_mul=8
    )
    others["AsyncVectorEnv, 2 workers, default"] = 2, stepper(two)
    try:
        import envpool
    except ImportError:
        pass
    else:
        pong = envpool.make("Pong-v5", env_type="gymnasium", num_envs=16)
        others["EnvPool's Pong-v5, 16 lanes"] = 16, stepper(pong, np.int32)
    figures = best({name: step for name, (_, step) in others.items()}, arguments)
    for name, (num_envs, _) in others.items():
        print(f"{name:36} {figures[name] * num_envs:>12,.0f}")
    two.close()


def wait(arguments: Any) -> None:
    """An agent that computes as long as a batch takes."""
    print("\nwaiting for a batch, of a step with an agent that computes as long as a batch takes")
    for num_envs in (16, 64):
        for prefetch in (0, 2, 4):
            shares = [_wait_share(arguments, num_envs, prefetch) for _ in range(arguments.rounds)]
            print(f"{num_envs:5} lanes, {prefetch} ahead {min(shares):>24.1%}")


def _wait_share(arguments: Any, num_envs: int, prefetch: int) -> float:
    bare = SC2ReplayVectorEnv(arguments.replays, num_envs=num_envs, prefetch=0)
    compute = 1 / rate(stepper(bare), arguments.seconds / 3)
    envs = SC2ReplayVectorEnv(arguments.replays, num_envs=num_envs, prefetch=prefetch)
    actions = np.zeros(num_envs, np.int64)
    held: Any = envs.reset(seed=0)
    waited, began = 0.0, time.perf_counter()
    steps = max(10, round(arguments.seconds / compute / 2))
    for _ in range(steps):
        until = time.perf_counter() + compute
        while time.perf_counter() < until:
            pass
        start = time.perf_counter()
        if not envs._ahead:  # none is, or one that waits for a replay to be decoded
            held = envs.step(actions)
            waited += time.perf_counter() - start
            continue
        # What `step` does first.
        envs._crew.wait(envs._ahead[0])
        waited += time.perf_counter() - start
        held = envs.step(actions)
    del held
    return waited / (time.perf_counter() - began)


def rollout(arguments: Any) -> None:
    num_envs, steps = 64, 128
    contenders: dict[str, Step] = {}
    for threads in (1, 2):
        envs = SC2ReplayVectorEnv(
            arguments.replays, num_envs=num_envs, prefetch=0, num_threads=threads
        )
        envs.reset(seed=0)
        # Nothing holds one when the next begins, so that all have the same memory.
        contenders[f"rollout({steps}), {threads} thread{'s' * (threads > 1)}"] = lambda envs=envs: (
            envs.rollout(steps) and None
        )
    nbytes = envs.rollout(steps).observations.nbytes
    source, target = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
    contenders["plain memory copy"] = lambda: np.copyto(target, source)
    rates: dict[str, float] = {}
    for _ in range(arguments.rounds):
        for name, call in contenders.items():
            call()
            began = time.perf_counter()
            call()
            passed = time.perf_counter() - began
            rates[name] = max(rates.get(name, 0.0), nbytes / passed)
    print(f"\n{num_envs} lanes, {nbytes / 1e6:.0f} MB of observations")
    for name, figure in rates.items():
        share = figure / rates["plain memory copy"]
        print(
            f"{name:28} {figure / 1e9:>8.2f} GB/s {share:>6.0%}"
            f" {figure / nbytes * num_envs * steps:>14,.0f} steps/s"
        )


def memory(arguments: Any) -> None:
    found = [path for path in find(arguments.replays) if isinstance(path, Path)]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.kept):
            path = found[number % len(found)]
            Path(folder, f"{number:04}.SC2Replay").symlink_to(path.resolve())
        library = Library(folder, step_mul=8, cache_bytes=64 << 30)
        files = sum(path.stat().st_size for path in Path(folder).iterdir())
        kept, resident = library.cache_info(), _resident()
        began = time.perf_counter()
        info = library.preload()
        passed = time.perf_counter() - began
        frames = sum(len(library.episode(index)) for index in range(len(library)))
    envs = SC2ReplayVectorEnv(arguments.replays)
    frame = sum(
        int(np.prod(space.shape)) * space.dtype.itemsize
        for space in [envs.single_observation_space]
    )
    print(f"\n{info.replays - kept.replays} replays kept, decoded in {passed:.1f} s")
    for name, size in (
        ("decoded, as counted", info.nbytes - kept.nbytes),
        ("decoded, as the process grew", _resident() - resident),
        ("the files themselves", files),
        ("all frames of both sides (default)", frames * frame),
    ):
        print(f"{name:36} {size / 1e6:>12,.0f} MB")


def _resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


PARTS = {"speed": speed, "wait": wait, "rollout": rollout, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replays", default=PYSC2 if PYSC2.is_dir() else SAMPLES)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kept", type=int, default=1000)
    parser.add_argument("--only", default=",".join(PARTS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    Library(arguments.replays).preload()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    for name in arguments.only.split(","):
        PARTS[name](arguments)


if __name__ == "__main__":
    main()
