"""From a replay's bytes to episodes that can be stepped: time and memory.

    python benchmarks/open.py [FOLDER] [--rounds 7] [--keep 1000]

Per file: unpacking the members that an episode needs, by zlib and bz2 alone; then the same bytes
to ready episodes of both players. Then the memory of what is kept, for KEEP replays (the files
over and over, each decoded anew), beside the bytes of their frames under the default options.
"""

from __future__ import annotations

import argparse
import bz2
import os
import resource
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from statistics import median

import sc2gym
from sc2gym.archive import Archive
from sc2gym.episode import Episode, episodes
from sc2gym.replay import Replay

DEFAULT = (
    Path(os.environ.get("SC2GYM_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data")
    / "replays"
    / "pysc2"
)
MEMBERS = ("details", "initData", "gamemetadata.json", "game.events", "tracker.events")


class Packed(Archive):
    """An archive that keeps what there is to unpack."""

    def __init__(self, data: bytes):
        self.packed: list[bytes] = []
        super().__init__(data)
        for member in MEMBERS:
            self.read_member(f"replay.{member}")

    def _unpack(self, packed: bytes, size: int, flags: int) -> bytes:
        if len(packed) < size:
            self.packed.append(packed)
        return Archive._unpack(packed, size, flags)

    def unpack(self) -> None:
        """What cannot be done without."""
        for packed in self.packed:
            (bz2 if packed[0] == 16 else zlib).decompress(packed[1:])


def open_both(data: bytes) -> tuple[Episode, ...]:
    return episodes(Replay(data), "both", 8)


def seconds(call: Callable[[], object]) -> float:
    # Of the processor's time, and the least of some rounds: what else runs must not count.
    began = time.process_time()
    call()
    return time.process_time() - began


def resident() -> int:
    """Bytes of memory that the process has now, or had at most where that is not told."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--keep", type=int, default=1000)
    arguments = parser.parse_args()
    files = sorted(arguments.folder.rglob("*.SC2Replay")) or sorted(
        (Path(sc2gym.__file__).parent / "samples").glob("*.SC2Replay")
    )
    contents = [file.read_bytes() for file in files]

    print(f"{'replay':32} {'unpack':>9} {'open':>9} {'ratio':>6} {'kept':>9} {'frames':>9}")
    opened, ratios = [], []
    for file, data in zip(files, contents, strict=True):
        packed = Packed(data)
        rounds = [
            (seconds(packed.unpack), seconds(lambda data=data: open_both(data)))
            for _ in range(arguments.rounds)
        ]
        bare, ready = (min(column) for column in zip(*rounds, strict=True))
        sides = open_both(data)
        kept = sum(each.nbytes for each in sides)
        frames = sum(frame_bytes() * (len(each) + 1) for each in sides)
        opened.append(ready)
        ratios.append(ready / bare)
        print(
            f"{file.name[:32]:32} {bare * 1e3:6.1f} ms {ready * 1e3:6.1f} ms {ready / bare:6.2f}"
            f" {kept / 1e6:6.2f} MB {frames / 1e6:6.0f} MB"
        )
    print(f"{'median':32} {'':9} {median(opened) * 1e3:6.1f} ms {median(ratios):6.2f}")

    before, began, kept_episodes = resident(), time.perf_counter(), []
    for i in range(arguments.keep):
        kept_episodes.append(open_both(contents[i % len(contents)]))
    passed, grown = time.perf_counter() - began, resident() - before
    raw = sum(frame_bytes() * (len(each) + 1) for sides in kept_episodes for each in sides)
    print(
        f"{arguments.keep:,} replays kept: {grown / 1e6:,.0f} MB"
        f" beside {raw / 1e9:,.1f} GB of frames, opened in {passed:.1f} s"
    )


def frame_bytes() -> int:
    """Bytes of one observation under the default options."""
    from sc2gym.spaces import DEFAULT_LAYERS

    return len(DEFAULT_LAYERS) * 64 * 64


if __name__ == "__main__":
    main()
