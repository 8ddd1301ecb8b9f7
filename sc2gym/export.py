"""Whole episodes as files: observations, the player's actions, rewards and flags.

    result = sc2gym.export.export("~/replays", "out", format="npz", observe=["minimap", "player"])
    for episode in sc2gym.export.Exported("out"):
        episode.observations["minimap"], episode.expert_actions, episode.rewards

An episode is a file of its own, named by the replay, its contents and the player. A folder holds
what one set of options gives; `manifest.json` says which, and `episodes.jsonl` has a line for
every episode that is there, written after the file is. docs/export.md has the layout.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from . import spaces
from .beside import locked, replacing, sweep
from .env import allocate, spaces_of
from .episode import Episode
from .errors import ExportError, RecordingError, ReplayError
from .export_formats import DAMAGE, FORMATS, Arrays, encode, pyarrow
from .library import Library, Source
from .options import REWARDS, Options, choose
from .progress import Progress

#: Of the layout of folders and files; a newer one is refused.
FORMAT = 1
MANIFEST = "manifest.json"
INDEX = "episodes.jsonl"

_PREFIX = "observations/"
_NO_OP = 0
# The options that make a difference to what an episode's file holds.
_SHAPING = (
    *("observe", "minimap_size", "minimap_layers", "max_units", "unit_columns", "step_mul"),
    "reward",
)


@dataclass
class Result:
    """What an export did.

    Attributes:
        written: Episodes written.
        present: Episodes that were there already.
        skipped: (name, reason) of what could not be exported.
        nbytes: Bytes written.
    """

    written: int = 0
    present: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    nbytes: int = 0


@dataclass(frozen=True, eq=False)
class ExportedEpisode:
    """An episode read back; S is its number of steps.

    Row t is what was seen at step t, what the player then did, and what that gave; the last row
    of the observations is what the last step led to.

    Attributes:
        info: Replay, content_hash, player, race, opponent_race, map, result, mmr (where known),
            outcome, source, loops_per_second, and `arrays`: what there is, with names of layers
            and columns.
        observations: (S + 1, ...), one array or a dict of them, as the environment's.
        game_loops: int32 (S + 1,), the loop of each observation.
        expert_actions: int32 (S,), raw function ids, 0 where the player did nothing.
        rewards: float64 (S,), of an agent that does what the player did.
        terminations: bool (S,), true at the last step of a game that was seen to its end.
        truncations: bool (S,), true at the last step of any other.
    """

    info: dict[str, Any]
    observations: Any
    game_loops: npt.NDArray[np.int32]
    expert_actions: npt.NDArray[np.int32]
    rewards: npt.NDArray[np.float64]
    terminations: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rewards)


def export(
    replays: Source | Iterable[Source] | None,
    out: str | os.PathLike[str],
    *,
    format: Literal["npz", "parquet", "pickle"] = "npz",
    on_error: Literal["skip", "raise"] = "skip",
    **options: Any,
) -> Result:
    """Writes episodes to files; run again after an interruption, it goes on.

    Args:
        replays: As an environment takes them.
        out: A folder; made where there is none. It can have other shards of the same export,
            which can run at the same time.
        format: "npz", "parquet" (needs pyarrow) or "pickle".
        on_error: "skip" warns about a replay that cannot be used and goes on, "raise" raises.
        options: observe, minimap_size, minimap_layers, max_units, unit_columns, player,
            step_mul, reward (by name), shard, source and cache_bytes, as in `Options`.

    Raises:
        ExportError: The folder has an export of other options, or of a newer version.
        OSError: The folder cannot be written to; what is there is whole.
        TypeError, ValueError: An option that does not exist, or that cannot be.
        ReplayError: No replay can be used, or one cannot and `on_error` is "raise".
    """
    choose("format", format, tuple(FORMATS))
    for name in ("order", "copy", "max_episode_steps", "render_mode"):
        if name in options:
            raise TypeError(f"{name} makes no difference to an export")
    asked = Options.of({"replays": replays, "on_error": on_error, **options}, ["out", "format"])
    if callable(asked.reward):
        raise TypeError(f"an export's reward is one of {', '.join(REWARDS)}")
    _, frames = spaces_of(asked)
    if format == "parquet":
        pyarrow()  # before hours of work
    library = Library(
        replays,
        player=asked.player,
        step_mul=asked.step_mul,
        on_error=on_error,
        cache_bytes=asked.cache_bytes,
        source=asked.source,
        on_bad_ids=asked.on_bad_ids,
    )
    folder = Path(out).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    _claim(folder, format, asked)
    result = Result(skipped=library.skipped)
    done = {line["file"] for line in _index(folder) if _is_there(folder, line)}
    rank, world = asked.shard
    mine = range(rank, len(library), world)
    with Progress("exporting", len(mine), unit="episodes") as bar:
        for number in mine:
            _export_one(folder, format, library, number, asked, frames, done, result)
            bar.advance(note=Path(library.name(number)).name)
    return result


def _export_one(
    folder: Path,
    format: str,
    library: Library,
    number: int,
    options: Options,
    frames: Any,
    done: set[str],
    result: Result,
) -> None:
    try:
        file = file_name(library.name(number), *library.side(number)) + FORMATS[format].suffix
        if file in done:
            result.present += 1
            return
        episode = library.usable(number)
        if episode is None:
            return  # the library has warned, and keeps the reason
        arrays = _arrays(episode, options, frames)
    except (RecordingError, ReplayError, OSError) as error:  # recordings are read on the way
        library.skip(number, error)
        return
    about = _about(episode, options, arrays)
    data = encode(format, about, arrays)
    line = {key: value for key, value in about.items() if key not in ("arrays", "format")}
    line["blake2b"] = blake2b(data, digest_size=16).hexdigest()
    # Of two writers of one file the last wins, and the last line of the index is about it.
    with open(folder / INDEX, "a+b") as index:
        with suppress(OSError):
            fcntl.flock(index, fcntl.LOCK_EX)
        with replacing(folder / file) as part:
            part.write(data)
        _append(index, {"file": file, "bytes": len(data), **line})
    done.add(file)
    result.written += 1
    result.nbytes += len(data)


def file_name(replay: str, content: str, player: int) -> str:
    """The name of an episode's file, without the ending: of letters, digits, "-", "_" and ".".

    Args:
        replay: The replay's name; a path has no say but for its last part.
        content: Says what it is, "replay:" or "recording:" and the hash of the replay.
        player: The player id.
    """
    stem = Path(replay.replace("\\", "/")).name
    stem = re.sub(r"\.(sc2replay|sc2recording)$", "", stem, flags=re.IGNORECASE)
    # Most file systems allow 255 bytes.
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", stem).strip("._-")[:120] or "replay"
    digest = re.sub(r"[^0-9a-z]", "", content.rpartition(":")[2])[:16]
    return f"{stem}-{digest}-p{int(player)}"


def _arrays(episode: Episode, options: Options, frames: Any) -> Arrays:
    steps = len(episode)
    space, _ = spaces_of(options)
    seen = allocate(space, options, steps + 1)
    for step in range(steps + 1):
        episode.fill(step, frames, {key: array[step, ...] for key, array in seen.items()})
    ends = np.zeros(steps, bool)
    ends[-1] = True
    return {
        **{f"{_PREFIX}{key}": array for key, array in seen.items()},
        "game_loops": episode.game_loops,
        "expert_actions": episode.expert_actions[:-1],
        "rewards": _rewards(episode, str(options.reward)),
        "terminations": ends & episode.terminated,
        "truncations": ends & (not episode.terminated),
    }


def _rewards(episode: Episode, reward: str) -> npt.NDArray[np.float64]:
    """What the environment gives an agent that does what the player did."""
    rewards: npt.NDArray[np.float64] = np.zeros(len(episode))
    if reward == "imitation":
        rewards[:] = episode.expert_actions[:-1] != _NO_OP
    elif reward == "score":
        rewards[:] = np.diff(episode.score)
    else:
        rewards[-1] = episode.outcome
    return rewards


def _about(episode: Episode, options: Options, arrays: Arrays) -> dict[str, Any]:
    names = {
        "minimap": list(options.minimap_layers or spaces.DEFAULT_LAYERS),
        "units": list(options.unit_columns or spaces.DEFAULT_COLUMNS),
        "player": list(spaces.PLAYER),
    }
    listed = {}
    for name, array in arrays.items():
        listed[name] = {"dtype": array.dtype.name, "shape": list(array.shape)}
        if name.removeprefix(_PREFIX) in names and name.startswith(_PREFIX):
            listed[name]["names"] = names[name.removeprefix(_PREFIX)]
    return {
        "format": FORMAT,
        **episode.info(),
        # Where replays lie on this machine is nobody's business.
        "replay": Path(episode.name).name,
        "content_hash": episode.content_hash,
        "source": "events" if type(episode) is Episode else "recording",
        "steps": len(episode),
        "outcome": float(episode.outcome),
        "terminated": bool(episode.terminated),
        "loops_per_second": float(episode.loops_per_second),
        "arrays": listed,
    }


# The folder


def _claim(folder: Path, format: str, options: Options) -> None:
    """Writes the manifest, or checks that the one there says the same."""
    shaping = {name: _plain(getattr(options, name)) for name in _SHAPING}
    mine = {"format": FORMAT, "files": format, "options": shaping}
    with locked(folder):
        theirs = _manifest(folder) if (folder / MANIFEST).exists() else None
    if theirs is None:
        with replacing(folder / MANIFEST) as file:
            file.write(json.dumps(mine, indent=2).encode() + b"\n")
        theirs = _manifest(folder)
    if theirs["files"] != format:
        raise ExportError(f"{folder} has an export of {theirs['files']} files, not {format}")
    for name, value in shaping.items():
        if theirs["options"].get(name) != value:
            raise ExportError(
                f"{folder} has an export with {name}={theirs['options'].get(name)!r}, not"
                f" {value!r}; choose another folder"
            )


def _plain(value: Any) -> Any:
    if isinstance(value, np.integer):
        return int(value)
    if value is None or isinstance(value, (int, str)):
        return value
    return [_plain(each) for each in value]


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        values = json.loads(path.read_bytes())
        version, files, options = values["format"], values["files"], values["options"]
    except FileNotFoundError:
        raise ExportError(f"{folder} has no export: no {MANIFEST} in it") from None
    except DAMAGE as error:
        raise ExportError(f"{path}: damaged: {error}") from error
    if not isinstance(version, int) or version > FORMAT:
        raise ExportError(
            f"{path}: its format is {version!r}, this version of sc2gym reads up to {FORMAT}"
        )
    if files not in FORMATS or not isinstance(options, dict):
        raise ExportError(f"{path}: damaged: no format {files!r}")
    return {"files": files, "options": options}


def _append(index: BinaryIO, line: dict[str, Any]) -> None:
    text = json.dumps({**line, "crc32": _crc32(line)}).encode() + b"\n"
    size = index.seek(0, os.SEEK_END)
    if size:
        index.seek(size - 1)
        if index.read(1) != b"\n":  # a writer was stopped in the middle of its line
            text = b"\n" + text
    index.write(text)
    index.flush()
    os.fsync(index.fileno())


def _crc32(line: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(line).encode())


def _index(folder: Path) -> list[dict[str, Any]]:
    """The lines of the index that are whole, the last of each file."""
    try:
        text = (folder / INDEX).read_bytes()
    except FileNotFoundError:
        return []
    lines: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        try:
            values = json.loads(line)
            whole = values.pop("crc32") == _crc32(values)
            name, nbytes, digest = (values[key] for key in ("file", "bytes", "blake2b"))
        except DAMAGE:
            continue
        whole = whole and isinstance(nbytes, int) and isinstance(digest, str)
        # A name that leads elsewhere was never written here.
        if whole and isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", name):
            lines[name] = values
    return list(lines.values())


def _is_there(folder: Path, line: dict[str, Any]) -> bool:
    try:
        return bool(os.lstat(folder / line["file"]).st_size == line["bytes"])
    except OSError:
        return False


class Exported(Sequence[ExportedEpisode]):
    """The episodes of a folder, read one at a time, in the order of their files' names.

    Args:
        folder: Where `export` wrote.

    Attributes:
        options: The options that the episodes were exported with.
        episodes: What is known of each without reading it: file, replay, player, race, map..

    Raises:
        ExportError: There is no export, it is damaged, or a newer version wrote it.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder).expanduser()
        manifest = _manifest(self.folder)
        self.format: str = manifest["files"]
        self.options: dict[str, Any] = manifest["options"]
        self.episodes = sorted(_index(self.folder), key=lambda line: str(line["file"]))

    def __len__(self) -> int:
        return len(self.episodes)

    def __getitem__(self, index: Any) -> Any:
        """An episode.

        Raises:
            ExportError: Its file is missing or is not what was written.
        """
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        line = self.episodes[index]
        path = self.folder / line["file"]
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ExportError(f"{path}: {error.strerror or error}") from error
        if blake2b(data, digest_size=16).hexdigest() != line["blake2b"]:
            raise ExportError(f"{path}: damaged: its checksum is wrong")
        return _decode(data, path, self.format, isinstance(self.options.get("observe"), str))

    def __iter__(self) -> Iterator[ExportedEpisode]:
        for index in range(len(self)):
            yield self[index]


def read(path: str | os.PathLike[str]) -> ExportedEpisode:
    """One file of an export, by itself; its observations are always a dict.

    Raises:
        ExportError: It is not an exported episode, or is damaged.
    """
    path = Path(path)
    for name, kind in FORMATS.items():
        if path.suffix == kind.suffix:
            try:
                data = path.read_bytes()
            except OSError as error:
                raise ExportError(f"{path}: {error.strerror or error}") from error
            return _decode(data, path, name, bare=False)
    raise ExportError(
        f"{path}: not an exported episode: its name ends in none of .npz, .parquet and .pickle"
    )


def _decode(data: bytes, path: Path, format: str, bare: bool) -> ExportedEpisode:
    try:
        info, arrays = FORMATS[format].read(io.BytesIO(data))
        version = info["format"]
        if not isinstance(version, int) or version > FORMAT:
            raise ExportError(
                f"{path}: its format is {version!r}, this version of sc2gym reads up to {FORMAT}"
            )
        listed = info["arrays"]
        if set(listed) != set(arrays):
            raise ValueError("its arrays are not those it lists")
        for name, array in arrays.items():
            about = listed[name]
            if array.dtype.name != about["dtype"] or list(array.shape) != about["shape"]:
                raise ValueError(f"{name} is {array.dtype.name}{list(array.shape)}, not {about}")
        seen = {
            name[len(_PREFIX) :]: arrays.pop(name) for name in listed if name.startswith(_PREFIX)
        }
        episode = ExportedEpisode(
            info, next(iter(seen.values())) if bare and len(seen) == 1 else seen, **arrays
        )
        steps = len(episode)
        for one in (episode.expert_actions, episode.terminations, episode.truncations):
            if one.shape != (steps,):
                raise ValueError("its arrays are not of one length")
        if any(len(array) != steps + 1 for array in (episode.game_loops, *seen.values())):
            raise ValueError("its arrays are not of one length")
    except DAMAGE as error:
        raise ExportError(f"{path}: damaged, or not an exported episode: {error}") from error
    return episode
