"""What keeping features on disk gains over decoding replays again.

    python benchmarks/features.py [REPLAYS ..] [--observe minimap] [--step-mul 8] [--rounds 5]

Every way is asked for the same random steps of the same episodes. "Cold" begins with nothing in
memory: the time to the first features of a replay. Files are in the page cache, which favours
the large ones: those of the disk cache.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

import sc2gym
from sc2gym import feature_cache, library


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("replays", nargs="*")
    parser.add_argument("--observe", default="minimap", help="keys, with commas")
    parser.add_argument("--step-mul", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    names = given.observe.split(",")
    observe = names[0] if len(names) == 1 else names
    replays = sc2gym.Library(given.replays or None, step_mul=given.step_mul)
    count = len(replays)
    generator = np.random.default_rng(0)
    steps = [generator.integers(len(replays.episode(n)), size=200).tolist() for n in range(count)]

    def forget() -> None:
        library._cache.clear()
        feature_cache.cache_of.cache_clear()

    def first(cache_dir: str | None = None) -> float:
        """Milliseconds to the first features of a replay."""
        times = []
        for number in range(count):
            forget()
            began = time.perf_counter()
            replays.features(number, observe=observe, cache_dir=cache_dir)
            times.append(time.perf_counter() - began)
        return 1e3 * median(times)

    def each(cache_dir: str | None = None) -> float:
        """Microseconds for features once the episode is there."""
        times = []
        for number in range(count):
            replays.features(number, observe=observe, cache_dir=cache_dir)
            began = time.perf_counter()
            for step in steps[number]:
                replays.features(number, step=step, observe=observe, cache_dir=cache_dir)
            times.append((time.perf_counter() - began) / len(steps[number]))
        return 1e6 * median(times)

    with tempfile.TemporaryDirectory() as folder:
        rounds = []
        for _ in range(given.rounds):
            for path in Path(folder).iterdir():
                path.unlink()
            fill = first(cache_dir=folder)
            rounds.append((first(), first(cache_dir=folder), fill, each(), each(cache_dir=folder)))
        on_disk = sum(path.stat().st_size for path in Path(folder).iterdir())
    decode, open_, fill, memory, disk = (median(column) for column in zip(*rounds, strict=True))
    total = sum(len(replays.episode(n)) + 1 for n in range(count))
    files = {replays.name(n) for n in range(count)}
    packed = sum(Path(name).stat().st_size for name in files)
    print(f"{count} episodes, {total:,} frames of {observe}; {given.rounds} rounds, medians")
    print(f"{'':34}{'from the replay':>18}{'from cache_dir':>18}")
    print(f"{'first features of an episode, ms':34}{decode:18.2f}{open_:18.2f}")
    print(f"{'  where cache_dir has it not yet':34}{'':18}{fill:18.2f}")
    print(f"{'each further step, us':34}{memory:18.1f}{disk:18.1f}")
    print(f"{'files, MB':34}{packed / 1e6:18.2f}{on_disk / 1e6:18.2f}")
    if open_ < decode:
        saved, lost = decode - open_, (disk - memory) / 1e3
        steps_even = f"after {saved / lost:,.0f} steps of an episode" if lost > 0 else "never"
        print(f"opening is {decode / open_:.1f} times as fast; lost again {steps_even}")


if __name__ == "__main__":
    main()
