"""How far units are from where the replay next says they are.

The tracker stream gives positions of units that fight, every 240 loops. Just before each, the
distance between where the tracks have the unit and where it then turns out to be is the error;
with movement from commands, and with units standing still between the positions given.

    python benchmarks/fidelity.py ../shared/data/replays/pysc2
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sc2gym import tracks
from sc2gym.replay import Replay

# The kind of operation, in `sc2gym._fast.tracks`, that says where a unit is.
POSITION = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("replays", type=Path, nargs="+")
    arguments = parser.parse_args()
    files = [
        file
        for path in arguments.replays
        for file in (sorted(path.rglob("*.SC2Replay")) if path.is_dir() else [path])
    ]
    every: dict[bool, list[npt.NDArray[np.float64]]] = {True: [], False: []}
    print(f"{'cells off, just before a position is given':44} {'median':>7} {'p90':>6} {'mean':>6}")
    for file in files:
        replay = Replay.open(file)
        for movement in (False, True):
            error = errors(tracks.follow(replay, movement=movement), replay)
            every[movement].append(error)
            report(f"{file.stem[:32]} {'commands' if movement else 'standing'}", error)
    for movement in (False, True):
        report("all " + ("commands" if movement else "standing"), np.concatenate(every[movement]))


def errors(game: tracks.Game, replay: Replay) -> npt.NDArray[np.float64]:
    """Distance in cells of each position given from where the unit was a loop before."""
    ops, _ = tracks._operations(replay, game.tracker, game.end)
    ops = ops[(ops["kind"] == POSITION) & (ops["loop"] > 0)]
    off = []
    for op in ops:
        # Where the unit at that index was thought to be the loop before.
        living = game.tracks.at(int(op["loop"]) - 1)
        rows = living[game.tracks.unit_tags[living["unit"]] >> 18 == op["index"]]
        off += np.hypot(rows["x"] - op["x"], rows["y"] - op["y"]).tolist()
    return np.array(off)


def report(name: str, error: npt.NDArray[np.float64]) -> None:
    if len(error):
        low, high = np.percentile(error, (50, 90))
        print(f"{name:44} {low:7.2f} {high:6.1f} {error.mean():6.2f}  ({len(error):,} positions)")


if __name__ == "__main__":
    main()
