"""`sc2gym export`: episodes as files for whoever wants files."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .. import export as exporting
from .. import spaces
from ..export_formats import FORMATS
from ..options import PLAYERS, REWARDS
from .play import count

DESCRIPTION = """
Writes whole episodes to files, one for each side of each game: observations, what the player
did, rewards and flags. Started again after an interruption, it goes on where it was.
"""
EPILOG = """
in each file, S being the number of steps:
  observations/KEY  (S + 1, ...)  as the environment's; the last is what the last step led to
  game_loops        (S + 1,)      int32, the loop of each observation
  expert_actions    (S,)          int32, raw function ids of pysc2; 0 where nothing was done
  rewards           (S,)          float64, of an agent that does what the player did
  terminations      (S,)          bool, the end of a game that was seen to its end
  truncations       (S,)          bool, the end of one that was not
  metadata                        JSON: replay, player, map, result.., names of layers and columns
In parquet each step is a row and KEY a column observations.KEY: numbers, lists of a fixed size,
or, where an observation has more axes, its bytes in C order. In DIR, manifest.json has the
options, and episodes.jsonl a line for each episode. docs/export.md says more.

examples:
  sc2gym export ~/replays --out data
  sc2gym export ~/replays --out data --format parquet --observe minimap,units,player
  sc2gym export ~/replays --out data --shard 0/4      and 1/4, 2/4, 3/4 elsewhere
  python -c "from sc2gym.export import Exported; print(len(Exported('data')[0]))"

A replay that cannot be used is named on standard error with the reason, the others are written
all the same, and the exit status is 1.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `sc2gym export`."""
    add = parser.add_argument
    add("replays", nargs="+", metavar="FILE|FOLDER", help="replays, folders, or glob patterns")
    add("--out", required=True, metavar="DIR", help="the folder to write to")
    add("--format", choices=list(FORMATS), default="npz", help="kind of files (npz)")
    add(
        "--observe",
        type=_names,
        default=["minimap"],
        metavar="KEY,..",
        help=f"of {', '.join(spaces.OBSERVATIONS)} (minimap)",
    )
    add("--minimap-size", type=_size, default=64, metavar="N|H,W", help="in pixels (64)")
    add("--minimap-layers", type=_names, metavar="NAME,..", help="by default all there are")
    add("--max-units", type=count, default=512, metavar="N", help="rows of the unit table (512)")
    add("--unit-columns", type=_names, metavar="NAME,..", help="columns of the unit table")
    add("--player", type=_player, default="both", help=f"a player id, {', '.join(PLAYERS)} (both)")
    add("--step-mul", type=_step_mul, default=8, metavar="N|actions", help="loops a step (8)")
    add("--reward", choices=REWARDS, default="imitation", help="(imitation)")
    add("--source", choices=("auto", "recording", "events"), default="auto", help="(auto)")
    add("--shard", type=_shard, default=(0, 1), metavar="K/N", help="this share of N; K from 0")


def run(arguments: argparse.Namespace) -> int:
    """Exports; 1 if a replay could not be used."""
    options: dict[str, Any] = {
        name: value
        for name, value in vars(arguments).items()
        if name not in ("command", "run", "replays", "out", "format")
    }
    done = exporting.export(arguments.replays, arguments.out, format=arguments.format, **options)
    there = f", {done.present:,} were there already" if done.present else ""
    print(
        f"{arguments.out}: {done.written:,} episodes, {done.nbytes / 1e6:.1f} MB{there}",
    )
    if done.skipped:
        print(f"sc2gym: skipped {len(done.skipped)}, named above", file=sys.stderr)
    return 1 if done.skipped else 0


def _names(text: str) -> list[str]:
    return [name for name in (part.strip() for part in text.split(",")) if name]


def _size(text: str) -> int | tuple[int, int]:
    parts = text.replace("x", ",").split(",")
    if not all(part.isdecimal() for part in parts) or len(parts) > 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: 64, or height,width")
    return int(parts[0]) if len(parts) == 1 else (int(parts[0]), int(parts[1]))


def _player(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _step_mul(text: str) -> str | int:
    return text if text == "actions" else count(text)


def _shard(text: str) -> tuple[int, int]:
    rank, _, world = text.partition("/")
    if not (rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a share: 0/4 to 3/4, say")
    return int(rank), int(world)
