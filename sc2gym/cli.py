"""The `sc2gym` command: finds the subcommand, and turns what goes wrong into one line.

Exit status: 0 all well, 1 something could not be used, 2 the command line makes no sense,
130 interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import os
import re
import signal
import sys
import textwrap
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn, TextIO

from .errors import SC2GymError

#: Every subcommand: its module, its name there, and what it does. A module that is one command has
#: `add_arguments(parser)` and `run(arguments) -> int`, else `add_NAME_arguments` and `run_NAME`.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "info": ("sc2gym.commands.info", "", "who played what where, and who won"),
    "play": ("sc2gym.commands.play", "", "watch a replay in a window, or make a GIF or MP4 of it"),
    "demo": ("sc2gym.commands.demo", "", "step 16 environments and show what they see"),
    "tune": ("sc2gym.commands.tune", "", "find the batch size and prefetch for this machine"),
    "export": ("sc2gym.commands.export", "", "write episodes to npz, parquet or pickle files"),
    "record": (
        "sc2gym.game.commands",
        "record",
        "have StarCraft II play replays and keep what it observes",
    ),
    "reencode": (
        "sc2gym.game.commands",
        "reencode",
        "have StarCraft II write replays anew",
    ),
}

_EXAMPLES = """
examples:
  sc2gym demo                           what this is, in half a minute
  sc2gym info ~/replays                 a table of all replays in a folder
  sc2gym play game.SC2Replay            watch one
  sc2gym play game.SC2Replay --out game.gif
  sc2gym export ~/replays --out data    episodes as files
  sc2gym COMMAND --help                 more about one command

All but record and reencode work on replay files alone, without StarCraft II.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: The arguments, by default those of the process.

    Returns:
        The exit status.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names in files have letters of all alphabets
            stream.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return _run(sys.argv[1:] if argv is None else argv)
    except SystemExit as stop:  # argparse: --help, or a usage error already printed
        return stop.code if isinstance(stop.code, int) else 2
    except BrokenPipeError:
        # Whoever read the output has seen enough, `| head` say. What Python still has to flush
        # at exit goes nowhere, without another complaint.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except (SC2GymError, OSError, ValueError, ImportError, RuntimeError) as error:
        return fail(error)


def _run(argv: Sequence[str]) -> int:
    parser = _parser(argv)
    if not argv:
        parser.print_help(sys.stderr)
        return 2
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.chosen(arguments.command).unknown(unknown)
    status = int(arguments.run(arguments))
    sys.stdout.flush()
    return status


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"sc2gym: {message}", file=sys.stderr)


def fail(error: Exception) -> int:
    """Says what went wrong on standard error; the exit status."""
    if isinstance(error, OSError) and error.strerror:
        name = f"{error.filename}: " if error.filename else ""
        text = f"{name}{error.strerror.lower()}"
    else:
        text = str(error) or type(error).__name__
    print(f"sc2gym: {text}", file=sys.stderr)
    return 1


class _Parser(argparse.ArgumentParser):
    """An argument parser that suggests what a misspelt command or option may have meant."""

    subparsers: argparse._SubParsersAction[_Parser] | None = None
    given: Sequence[str] = ()  # what is parsed, to look for misspelt options in

    def __init__(self, **kwargs: Any):
        kwargs.update(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
        super().__init__(**kwargs)

    def chosen(self, command: str | None) -> _Parser:
        """The parser of a subcommand, or this one."""
        choices = self.subparsers.choices if self.subparsers else {}
        return choices.get(command or "", self)

    def unknown(self, arguments: Sequence[str]) -> NoReturn:
        """Complains about arguments that belong to nothing."""
        self._complain_about_options(arguments)
        self.error(f"too many arguments: {' '.join(arguments)}")

    def _complain_about_options(self, arguments: Sequence[str]) -> None:
        known = [text for action in self._actions for text in action.option_strings]
        for word in (text.split("=")[0] for text in arguments):
            if word.startswith("--") and word not in (*known, "--"):
                self.error(f"unknown option {word}{_suggest(word, known)}")

    def error(self, message: str) -> NoReturn:
        """Prints the message and where help is; exits with status 2."""
        invalid = re.match(r"argument (?:[^:]*): invalid choice: '([^']*)' \(choose", message)
        if invalid and self.subparsers is not None:
            word, names = invalid.group(1), list(self.subparsers.choices)
            message = f"unknown command {word}{_suggest(word, names)}; commands: {', '.join(names)}"
        elif message.startswith("the following arguments are required"):
            # One of them may be there, misspelt.
            self._complain_about_options(self.given)
        self.exit(2, f"{self.prog}: {message}\nsee {self.prog} --help\n")


def _suggest(word: str, names: Sequence[str]) -> str:
    matches = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f", did you mean {matches[0]}?" if matches else ""


def _parser(argv: Sequence[str]) -> _Parser:
    parser = _Parser(
        prog="sc2gym",
        description="StarCraft II replays as Gymnasium environments.",
        epilog=_EXAMPLES,
    )
    parser.given = argv
    parser.add_argument("--version", action="version", version=f"sc2gym {_version()}")
    parser.subparsers = parser.add_subparsers(
        dest="command",
        metavar="COMMAND",
        title="commands",
        required=True,
        parser_class=_Parser,
    )
    for name, (module_name, suffix, summary) in COMMANDS.items():
        if name not in argv:  # nothing to import for a mention in the help
            parser.subparsers.add_parser(name, help=summary)
            continue
        module = importlib.import_module(module_name)
        doc = textwrap.dedent(getattr(module, "DESCRIPTION", summary))
        command = parser.subparsers.add_parser(
            name, help=summary, description=doc, epilog=getattr(module, "EPILOG", None)
        )
        command.given = argv
        getattr(module, f"add_{suffix}_arguments".replace("__", "_"))(command)
        command.set_defaults(run=getattr(module, f"run_{suffix}".rstrip("_")))
    return parser


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sc2gym")
    except PackageNotFoundError:
        return "(not installed)"
