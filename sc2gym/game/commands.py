"""The commands `sc2gym record` and `sc2gym reencode`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable

from sc2gym.game.recorder import Progress, Report, record, reencode
from sc2gym.game.worker import Settings

_RECORD = """
Has StarCraft II play replays, and keeps what it observes in files that can be stepped through
where there is no game.
"""
_RECORD_EXAMPLES = """
examples:
  sc2gym record ~/replays --out recordings --workers 4
  sc2gym record ~/replays --out recordings --opponent --feature-screen 64 --feature-minimap 64
  sc2gym play recordings/game-3f2a90c1-p1.SC2Recording

Needs StarCraft II (SC2PATH says where) and pip install "sc2gym[game]". A run that was stopped
goes on where it was when it is started again. More in docs/recordings.md.
"""
_REENCODE = """
Has StarCraft II write replays anew, under the version that is installed, so that old ones can be
played.
"""
_REENCODE_EXAMPLES = """
examples:
  sc2gym reencode ~/replays new-replays --workers 4

Needs StarCraft II (SC2PATH says where) and pip install "sc2gym[game]".
"""


def add_record_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `sc2gym record`."""
    parser.description = _RECORD
    parser.epilog = _RECORD_EXAMPLES
    _add_common_arguments(parser)
    add = parser.add_argument
    add("--player", type=int, default=1, help="player id to observe (1)")
    add("--opponent", action="store_true", help="record the other player too, at the same time")
    add("--step-mul", type=int, default=8, help="game loops between observations (8)")
    add(
        "--actions",
        action="store_true",
        help="observe where a player acted, and at the loop after, instead of every STEP_MUL",
    )
    add("--disable-fog", action="store_true", help="see everything")
    add("--max-loops", type=int, default=0, help="stop there (0: at the end of the game)")
    layers = parser.add_argument_group("what to ask the game for")
    add = layers.add_argument
    add("--no-raw", dest="raw", action="store_false", help="no raw units")
    add("--no-score", dest="score", action="store_false", help="no score")
    add("--feature-screen", type=_size, metavar="W[,H]", help="screen layers of this size")
    add("--feature-minimap", type=_size, metavar="W[,H]", help="minimap layers of this size")
    add("--camera-width", type=float, default=24.0, help="world units across the screen (24)")
    for option, meaning in (
        ("--crop-to-playable-area", "leave out the margin of the map"),
        ("--raw-affects-selection", "raw actions change the selection"),
        ("--show-cloaked", "list cloaked units"),
        ("--show-burrowed-shadows", "list burrowed units that leave a shadow"),
        ("--show-placeholders", "list buildings that are queued to be built"),
    ):
        add(option, action="store_true", help=meaning)


def run_record(arguments: argparse.Namespace) -> int:
    """Does `sc2gym record`; the exit status is 1 if any replay failed."""
    values = vars(arguments)
    chosen = {f.name: values[f.name] for f in dataclasses.fields(Settings) if f.name in values}
    # One size given is meant for both: the game gives screen and minimap layers together.
    screen, minimap = chosen["feature_screen"], chosen["feature_minimap"]
    chosen.update(feature_screen=screen or minimap, feature_minimap=minimap or screen)
    return _finish(
        record(
            arguments.replays,
            arguments.out,
            Settings(**chosen),
            workers=arguments.workers,
            timeout=arguments.timeout,
            retries=arguments.retries,
            progress=_printer(),
        )
    )


def add_reencode_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `sc2gym reencode`."""
    parser.description = _REENCODE
    parser.epilog = _REENCODE_EXAMPLES
    parser.add_argument("replays", nargs="+", metavar="IN", help="replays, or folders of them")
    parser.add_argument("out", metavar="OUT", help="folder to write to")
    _add_pool_arguments(parser)


def run_reencode(arguments: argparse.Namespace) -> int:
    """Does `sc2gym reencode`; the exit status is 1 if any replay failed."""
    return _finish(
        reencode(
            arguments.replays,
            arguments.out,
            workers=arguments.workers,
            timeout=arguments.timeout,
            retries=arguments.retries,
            progress=_printer(),
        )
    )


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("replays", nargs="+", metavar="REPLAYS", help="replays, or folders of them")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to record into")
    _add_pool_arguments(parser)


def _add_pool_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=1, help="games at a time (1)")
    parser.add_argument(
        "--timeout", type=float, default=360, help="seconds to wait for an answer (360)"
    )
    parser.add_argument(
        "--retries", type=int, default=1, help="further tries after a crash or timeout (1)"
    )


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition(",")
    try:
        size = int(width), int(height or width)
    except ValueError:
        size = 0, 0
    if min(size) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: W or W,H")
    return size


def _printer() -> Callable[[Progress], None]:
    """Keeps one line of standard error up to date, or, in a file, adds a line now and then."""
    terminal = sys.stderr.isatty()
    printed, shown, reported = 0.0, 0, 0

    def show(progress: Progress) -> None:
        nonlocal printed, shown, reported
        for outcome in progress.outcomes[reported:]:
            if outcome.kind != "done":
                clear = "\r" + " " * shown + "\r" if terminal else ""
                print(f"{clear}{outcome.replay}: {outcome.kind}: {outcome.reason}", file=sys.stderr)
        reported = len(progress.outcomes)
        over = reported == progress.total
        if time.monotonic() - printed < (0.2 if terminal else 30) and not over:
            return
        printed = time.monotonic()
        line = (
            f"[{_bar(reported / max(1, progress.total))}] {progress}" if terminal else f"{progress}"
        )
        end = "\n" if over or not terminal else ""
        start = "\r" if terminal else ""
        print(f"{start}{line:{shown}}", end=end, file=sys.stderr, flush=True)
        shown = len(line)

    return show


def _bar(share: float, width: int = 20) -> str:
    return ("#" * round(share * width)).ljust(width, ".")


def _finish(report: Report) -> int:
    print(report)
    return 1 if report.failures else 0
