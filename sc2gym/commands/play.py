"""`sc2gym play`: a replay as moving pictures."""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .. import movie
from ..picture import SIZE, Picture
from ..progress import clock, track
from ..render import frame

if TYPE_CHECKING:
    from ..episode import Episode

DESCRIPTION = """
Shows a replay on its minimap: structures as squares, units as discs, workers as dots, in the
players' colours, with the player's camera, both economies, and what the player did last.
"""
EPILOG = """
examples:
  sc2gym play game.SC2Replay                          in a window
  sc2gym play game.SC2Replay --speed 32 --from 5:00   quickly, from there on
  sc2gym play game.SC2Replay --out game.gif           an animation
  sc2gym play game.SC2Replay --out fight.mp4 --from 8:10 --to 9:30 --speed 4

In the window, Space holds the game and lets it go on; Q or Escape ends it.
A window and MP4 need the extra `video`: pip install "sc2gym[video]"
"""


_MOST_SPEED = 10_000  # an hour's game in the blink of an eye


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `sc2gym play`."""
    add = parser.add_argument
    add("replay", metavar="FILE", help="a replay, or a recording")
    add("--out", type=_animation, metavar="FILE", help="write a .gif or .mp4 instead of a window")
    add("--player", type=int, metavar="ID", help="whose side to take (the first player's)")
    add("--speed", type=_positive, default=8.0, help="times as fast as the game was (8)")
    add("--step-mul", type=count, default=8, metavar="LOOPS", help="game loops a picture (8)")
    add("--from", type=_time, default=0.0, dest="begin", metavar="M:SS", help="begin there")
    add("--to", type=_time, default=math.inf, dest="end", metavar="M:SS", help="end there")
    add(
        "--size",
        type=_size,
        default=SIZE,
        metavar="H,W",
        help=f"height and width of the picture in pixels ({SIZE[0]},{SIZE[1]})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Plays the replay, or writes it."""
    sides = _sides(Path(arguments.replay).expanduser(), arguments.step_mul)
    episode = _side(sides, arguments.player)
    first, last = _steps(episode, arguments.begin, arguments.end)
    pictures = _pictures(episode, _opponent(episode, sides), range(first, last), arguments.size)
    fps = episode.loops_per_second * arguments.speed / arguments.step_mul
    if arguments.out is None:
        _show(pictures, fps, f"{episode.map_name} - sc2gym")
        return 0
    # Fewer pictures where a file would hold more than viewers show.
    every = max(1, math.ceil(fps / 50))
    kept = itertools.islice(pictures, 0, None, every)
    steps = range(first, last, every)
    bar = track(kept, "drawing", total=len(steps), unit="pictures")
    written = movie.save(arguments.out, bar, fps / every)
    length, size = clock(written * every / fps), arguments.out.stat().st_size / 1e6
    print(f"{arguments.out}: {written:,} pictures, {length}, {size:.1f} MB")
    return 0


def _sides(path: Path, step_mul: int) -> tuple[Episode, ...]:
    from .. import recorded
    from ..episode import episodes
    from ..recording import SUFFIX, Recording
    from ..replay import Replay

    if path.is_dir():
        raise ValueError(f"{path} is a folder: play takes one file of it")
    if path.suffix.lower() == SUFFIX.lower():
        return (recorded.episode(Recording(path), step_mul),)
    return episodes(Replay.open(path), "both", step_mul)


def _show(pictures: Iterator[Picture], fps: float, title: str) -> None:
    window = movie.Window(title, fps)
    try:
        for picture in pictures:
            if not window.show(picture):
                return
    finally:
        window.close()


def _pictures(
    episode: Episode, opponent: Episode | None, steps: range, size: tuple[int, int]
) -> Iterator[Picture]:
    for step in steps:
        yield frame(episode, step, size, opponent=opponent)


def _side(sides: tuple[Episode, ...], player: int | None) -> Episode:
    for episode in sides:
        if player in (None, episode.player.player_id):
            return episode
    known = ", ".join(f"{each.player.player_id} ({each.player.name})" for each in sides)
    raise ValueError(f"there is no player {player}: the replay has {known or 'none'}")


def _opponent(episode: Episode, sides: tuple[Episode, ...]) -> Episode | None:
    """The other side of a game of two, whose economy the picture shows too."""
    other = [each for each in sides if each is not episode]
    return other[0] if episode.opponent is not None and len(other) == 1 else None


def _steps(episode: Episode, begin: float, end: float) -> tuple[int, int]:
    """First step, and the one after the last, from one time in seconds to another.

    Raises:
        ValueError: The game is shorter, or the end comes before the beginning.
    """
    seconds = episode.game_loops / episode.loops_per_second
    first, last = (int(seconds.searchsorted(at)) for at in (begin, end))
    last = min(last + 1, len(seconds))
    if first >= last:
        if end <= begin:
            raise ValueError(f"--to {clock(end)} comes before --from {clock(begin)}")
        length = clock(float(seconds[-1]))
        raise ValueError(f"nothing to show from {clock(begin)} on: the game lasts {length}")
    return first, last


def _animation(text: str) -> Path:
    path = Path(text).expanduser()
    if path.suffix.lower() not in movie.FORMATS:
        raise argparse.ArgumentTypeError(f"{text!r} does not end in {' or '.join(movie.FORMATS)}")
    return path


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _MOST_SPEED:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number above 0, and {_MOST_SPEED:,} at most"
        )
    return value


def count(text: str) -> int:
    """A whole number above 0, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _time(text: str) -> float:
    """Seconds, or minutes and seconds: 90, 1:30."""
    try:
        parts = [float(part) for part in text.split(":")]
    except ValueError:
        parts = []
    if not 1 <= len(parts) <= 3 or not all(0 <= part < math.inf for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: 1:30, or 90 seconds")
    seconds = 0.0
    for part in parts:
        seconds = 60 * seconds + part
    return seconds


def _size(text: str) -> tuple[int, int]:
    height, _, width = text.replace("x", ",").partition(",")
    try:
        size = int(height), int(width)
    except ValueError:
        size = 0, 0
    if size[0] < 160 or size[1] < 128 or size[0] % 2 or size[1] % 2 or max(size) > 4096:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size: height,width, even, from 160,128 to 4096,4096"
        )
    return size
