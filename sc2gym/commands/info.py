"""`sc2gym info`: a table of replays."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import ReplayError
from ..library import find
from ..progress import clock, track
from ..protocol import STREAMS
from ..recording import SUFFIX
from ..replay import Replay

DESCRIPTION = """
Reads replays and says who played what on which map, who won, how long it took, under which
version, and how many events the file has.
"""
EPILOG = """
examples:
  sc2gym info game.SC2Replay
  sc2gym info ~/replays                         a folder, and those in it
  sc2gym info "~/replays/2024-*" --json | jq .[].map

A file that cannot be read is named on standard error with the reason, the others are listed
all the same, and the exit status is 1.
"""

_COLUMNS = ("file", "map", "length", "version", "events", "player", "race", "mmr", "result")
_TO_THE_RIGHT = {"length", "events", "mmr"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `sc2gym info`."""
    parser.add_argument(
        "replays",
        nargs="+",
        metavar="FILE|FOLDER",
        help="replays, folders of replays (searched recursively), or glob patterns",
    )
    parser.add_argument(
        "--json", action="store_true", help="a JSON array of objects instead of a table"
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the table; 1 if a file could not be read."""
    facts, failures = [], 0
    found = find(arguments.replays)
    replays = [each for each in found if not str(each).lower().endswith(SUFFIX.lower())]
    if not replays:
        raise ValueError("nothing but recordings there, and info reads replays")
    if len(replays) < len(found):
        # They may well lie beside the replays: environments look for them there.
        print(
            f"sc2gym: recordings left out: {len(found) - len(replays):,} of {len(found):,} files",
            file=sys.stderr,
        )
    for source in track(replays, "reading", unit="replays"):
        try:
            each = describe(Replay.open(source))
        except ReplayError as error:
            print(f"sc2gym: {error}", file=sys.stderr)
            failures += 1
            continue
        for problem in each["problems"]:
            print(f"sc2gym: {problem}", file=sys.stderr)
        failures += bool(each["problems"])
        facts.append(each)
    if arguments.json:
        print(json.dumps(facts, indent=2))
    elif facts:
        folder = _common_folder([each["file"] for each in facts])
        print(format_table(_COLUMNS, [row for each in facts for row in _rows(each, folder)]))
        if folder:
            print(f"{len(facts):,} replays in {folder}")
    return 1 if failures else 0


def describe(replay: Replay) -> dict[str, Any]:
    """What `--json` says about a replay: plain values that JSON can hold.

    A stream of events that cannot be read counts as None, and is among the problems.

    Raises:
        ReplayError: Who played what cannot be read.
    """
    events: dict[str, int | None] = {}
    problems = []
    for stream in STREAMS:
        try:
            events[stream] = sum(replay.event_counts(stream).values())
        except ReplayError as error:
            events[stream] = None
            problems.append(str(error))
    return {
        "file": replay.name,
        "map": replay.map_name,
        "map_size": list(replay.map_size),
        "seconds": round(replay.game_loops / replay.loops_per_second, 2),
        "game_loops": replay.game_loops,
        "version": replay.version,
        "base_build": replay.base_build,
        "table_builds": replay.table_builds,
        "events": events,
        "players": [dataclasses.asdict(player) for player in replay.players],
        "problems": problems,
    }


def _common_folder(files: Sequence[str]) -> str:
    """The folder that several files are all in or below; empty where the names are to stay."""
    if len(files) < 2:
        return ""
    try:
        folder = os.path.commonpath([os.path.dirname(file) for file in files])
    except ValueError:  # absolute and relative ones, or several drives
        return ""
    return "" if folder in ("", os.path.sep) else folder


def _rows(facts: dict[str, Any], folder: str) -> Iterable[tuple[str, ...]]:
    """A row for each player; what is the replay's own stands in the first alone."""
    counts = facts["events"].values()
    own: tuple[str, ...] = (
        os.path.relpath(facts["file"], folder) if folder else facts["file"],
        facts["map"],
        clock(facts["seconds"]),
        facts["version"],
        "?" if None in counts else f"{sum(counts):,}",
    )
    for player in facts["players"] or [None]:
        if player is None:
            yield (*own, "", "", "", "")
        else:
            mmr = "AI" if player["is_ai"] else str(player["mmr"] or "-")
            clan, name = player["clan"].strip("[]"), player["name"]
            name = f"[{clan}] {name}" if clan else name
            yield (*own, name or "-", player["race"], mmr, player["result"])
        own = ("",) * len(own)


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Text in columns under their names, two spaces apart."""
    lines = [tuple(columns), *(tuple(map(_printable, row)) for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            _pad(text, width, name in _TO_THE_RIGHT)
            for text, width, name in zip(line, widths, columns, strict=True)
        ).rstrip()
        for line in lines
    )


def _pad(text: str, width: int, to_the_right: bool) -> str:
    padding = " " * (width - _width(text))
    return padding + text if to_the_right else text + padding


def _width(text: str) -> int:
    """Columns of a terminal: letters of East Asia take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def _printable(text: str) -> str:
    """No control characters: a name in a file must not move a terminal's cursor."""
    return "".join(c if c.isprintable() else "?" for c in text)
