"""Decoding game and tracker streams to columns, beside s2protocol's decoding of the same bytes.

    python benchmarks/decode.py [FOLDER] [--rounds 7]

Every column of every event that a file has, against s2protocol's object per event. Both read
members that are unpacked already, with their type tables loaded. Times are of the processor.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections import deque
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from types import ModuleType

import s2protocol

from sc2gym.protocol import Stream
from sc2gym.replay import Replay

DEFAULT = (
    Path(os.environ.get("SC2GYM_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data")
    / "replays"
    / "pysc2"
)
BOTH: tuple[Stream, ...] = ("game", "tracker")


@cache
def table(build: int) -> ModuleType:
    path = Path(s2protocol.__file__).parent / "versions" / f"protocol{build}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ours(replay: Replay) -> None:
    replay._streams.clear()
    for stream in BOTH:
        replay.events(stream, dict.fromkeys(replay.event_counts(stream)))


def theirs(replay: Replay) -> None:
    for stream in BOTH:
        member = f"replay.{stream}.events"
        decode = getattr(table(replay.table_builds[member]), f"decode_replay_{stream}_events")
        deque(decode(replay.member(member)), maxlen=0)


def seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    paths = sorted(options.folder.rglob("*.SC2Replay"))
    if not paths:
        parser.error(f"no replay in {options.folder}")
    print(
        f"{'replay':28}{'events':>8}{'s2protocol':>13}{'columns':>11}{'ratio':>8}{'events/s':>13}"
    )
    ratios = []
    for path in paths:
        replay = Replay.open(path)
        ours(replay)
        theirs(replay)
        events = sum(sum(replay.event_counts(stream).values()) for stream in BOTH)
        # In turns, so that a busy machine is as busy for one as for the other.
        rounds = [
            (seconds(lambda: theirs(replay)), seconds(lambda: ours(replay)))  # noqa: B023
            for _ in range(options.rounds)
        ]
        slow, fast = (median(times) for times in zip(*rounds, strict=True))
        ratios.append(median(slow / fast for slow, fast in rounds))
        print(
            f"{path.stem[:27]:28}{events:8}{slow * 1e3:10.1f} ms{fast * 1e3:8.2f} ms"
            f"{ratios[-1]:8.0f}{events / fast:13,.0f}"
        )
    print(f"median ratio {median(ratios):.0f}, smallest {min(ratios):.0f}")


if __name__ == "__main__":
    main()
