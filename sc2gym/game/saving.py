"""Saving the replay of a game that is being played, under a name that says what it is of."""

from __future__ import annotations

import datetime
import os
import re
import string
from pathlib import Path
from typing import Any

from sc2gym.replay import Replay

DEFAULT_NAME = "{map}-{players}-{date}"
FIELDS = ("map", "players", "races", "version", "date", "agent")


def save_replay(
    controller: Any,
    directory: str | os.PathLike[str],
    name: str = DEFAULT_NAME,
    *,
    agent: str = "",
) -> Path:
    """Writes the replay of the game that a pysc2 controller is in, or has just ended.

    No file is overwritten: where the name is taken, a number is added to it. The file is whole
    or empty, never in part.

    Args:
        controller: A `pysc2.lib.remote_controller.RemoteController`.
        directory: Where to; made if it is not there.
        name: The file's name without its ending, with any of {map}, {players} (as in
            "Ann-vs-Bob"), {races}, {version}, {date} (UTC) and {agent} in it.
        agent: What {agent} stands for.

    Returns:
        The file's path.

    Raises:
        ValueError: `name` has an unknown field, or comes to nothing.
        OSError: It cannot be written.
    """
    _check(name)
    data = controller.save_replay()
    replay = Replay.open(data, name="the replay of the game")
    now = datetime.datetime.now(datetime.timezone.utc)
    filled = name.format(
        map=replay.map_name,
        players="-vs-".join(player.name or "unnamed" for player in replay.players),
        races="v".join(player.race[:1] for player in replay.players),
        version=replay.version,
        date=now.strftime("%Y-%m-%d-%H-%M-%S"),
        agent=agent,
    )
    folder = Path(directory).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    return _write(folder, _file_name(filled), data)


def _check(name: str) -> None:
    """A misspelt template is found out before the game is asked, not after a long match."""
    unknown = {field for _, field, _, _ in string.Formatter().parse(name) if field is not None}
    unknown -= set(FIELDS)
    if unknown:
        known = ", ".join("{" + field + "}" for field in FIELDS)
        raise ValueError(f"no field {sorted(unknown)} in a replay's name; there are {known}")
    if not name.strip():
        raise ValueError("a replay's name is empty")


def _file_name(name: str) -> str:
    """Letters, digits and a few signs of any language; players choose their names themselves."""
    plain = re.sub(r"[^\w .,()+@'-]+", "_", name).strip(" .")
    # 255 bytes are what file systems take, ending and number included.
    return plain.encode()[:200].decode(errors="ignore") or "replay"


def _write(folder: Path, name: str, data: bytes) -> Path:
    number = 1
    while True:
        path = folder / f"{name}{f'-{number}' if number > 1 else ''}.SC2Replay"
        try:
            path.open("xb").close()  # takes the name, or fails where it is taken
            break
        except FileExistsError:
            number += 1
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise
    return path
