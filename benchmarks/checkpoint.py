"""What saving costs: sizes of files and pickles, how long a step stalls, how long it takes.

    python benchmarks/checkpoint.py [--megabytes 200] [--num-envs 16] [--rounds 5] [--folder FOLDER]

The agent is a network and its Adam state, of about so many megabytes together, trained while copies
are written in the background. A stall is what `every` adds to the step in which it makes a copy; it
is given beside `torch.save` in the foreground, which is what a loop without it waits for. Figures
are medians of rounds.
"""

from __future__ import annotations

import argparse
import pickle
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from sc2gym import SC2ReplayVectorEnv, checkpoint


def seconds(function, *args, **options) -> float:
    before = time.perf_counter()
    function(*args, **options)
    return time.perf_counter() - before


def environments(num_envs: int) -> SC2ReplayVectorEnv:
    envs = SC2ReplayVectorEnv(num_envs=num_envs)
    envs.reset(seed=0)
    envs.rollout(300)
    data, state = pickle.dumps(envs), envs.state_dict()
    fresh = SC2ReplayVectorEnv(num_envs=num_envs)
    rows = [
        ("pickle of the environments", f"{len(data) / 1e3:.1f} kB"),
        ("state_dict()", f"{1e3 * median(seconds(envs.state_dict) for _ in range(20)):.2f} ms"),
        ("pickle.dumps", f"{1e3 * median(seconds(pickle.dumps, envs) for _ in range(20)):.2f} ms"),
        (
            "load_state_dict()",
            f"{1e3 * median(seconds(fresh.load_state_dict, state) for _ in range(20)):.2f} ms",
        ),
    ]
    print(f"{num_envs} environments, default observations")
    for name, value in rows:
        print(f"  {name:<44}{value:>12}")
    return envs


def agent(megabytes: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    # Weights and Adam's two moments, four bytes each.
    width = round((megabytes * 1e6 / 4 / 3 / 8) ** 0.5)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(8)))
    return model, torch.optim.Adam(model.parameters())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write; a temporary one by default")
    args = parser.parse_args()

    envs = environments(args.num_envs)
    model, optimizer = agent(args.megabytes)
    width = model[0].in_features
    batch = torch.randn(16, width)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    step()
    plain, stall, during, save, load = [], [], [], [], []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder) / "agent.pt"
        parts = {"envs": envs, "model": model, "optimizer": optimizer}
        with checkpoint.every(path, steps=1, **parts) as saver:
            saver(0)
            for number in range(args.rounds + 1):
                plain += [seconds(step) for _ in range(5)]
                stalled = seconds(saver, number + 1)
                busy = []
                while saver._writing.is_alive():
                    busy.append(seconds(step))
                if number:  # the first makes the memory that the others use again
                    stall.append(stalled)
                    during += busy
                else:
                    first = stalled
        for _ in range(args.rounds):
            save.append(seconds(checkpoint.save, path, **parts))
            load.append(seconds(checkpoint.load, path, **parts))
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        foreground = [seconds(torch.save, states, path) for _ in range(args.rounds)]
        size = path.stat().st_size

    print(f"an agent of {size / 1e6:.0f} MB with its optimiser, on the CPU")
    rows = [
        ("a training step", median(plain)),
        ("stall of the step that makes a copy", median(stall)),
        ("  the first time", first),
        ("a training step while one is written", median(during) if during else float("nan")),
        ("save, through to the disk", median(save)),
        ("torch.save alone, not through to the disk", median(foreground)),
        ("load, with the checksum", median(load)),
    ]
    for name, value in rows:
        print(f"  {name:<44}{1e3 * value:>9.1f} ms")
    print(f"  stall in training steps: {median(stall) / median(plain):.2f}")


if __name__ == "__main__":
    main()
