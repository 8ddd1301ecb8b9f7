"""Finding replays, putting their episodes in order, and keeping what was decoded.

An episode is one replay from one player's side. A library knows its episodes by number without
having decoded them; which number comes when is an `Order`, a pure function, so that any number
of environments in any number of processes agree on it without talking to each other.
"""

from __future__ import annotations

import glob
import hashlib
import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import recorded
from .cache import Cache, CacheInfo
from .episode import Episode, episodes
from .errors import CheckpointError, RecordingError, ReplayError, UnsupportedReplayError
from .progress import track
from .recording import SUFFIX, Recording, RecordingInfo, identity_of
from .relocation import locate, relocated_to
from .replay import Replay

#: What `replays=` takes: a file, a folder (searched recursively), a glob, a replay's bytes, or
#: several of these.
Source = str | os.PathLike[str] | bytes

ENVIRONMENT_VARIABLE = "SC2GYM_REPLAYS"
SAMPLES = Path(__file__).parent / "samples"

#: Of the states that libraries save; a newer one is refused.
STATE_VERSION = 1

# Files from which on a terminal shows how far reading them is.
_MANY = 200

_cache = Cache()

# What is wrong with one file, and no reason to give up the others.
_UNUSABLE = (ReplayError, RecordingError, OSError)


@dataclass(frozen=True)
class Order:
    """The endless sequence of episodes, as a pure function of its fields.

    Every epoch is a permutation of all episodes. Position k belongs to the lane with
    k % lanes == lane, counting the lanes of all shards; the lanes of an epoch are disjoint, and
    together they are complete.

    Attributes:
        count: Number of episodes.
        seed: Which permutations.
        shuffle: False for the same sequence 0, 1, 2.. in every epoch.
        backlog: Numbers of the plain sequence that come first. With `base` it lets a run go on
            with another number of lanes: what had not been started when it was saved.
        base: The number of the plain sequence that follows the backlog.
    """

    count: int
    seed: int = 0
    shuffle: bool = True
    backlog: tuple[int, ...] = ()
    base: int = 0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"an order needs at least one episode, got {self.count}")
        if self.seed < 0:
            raise ValueError(f"a seed must not be negative, got {self.seed}")

    def number(self, position: int) -> int:
        """The number in the plain sequence that comes at `position`."""
        ahead = position - len(self.backlog)
        return self.base + ahead if ahead >= 0 else self.backlog[position]

    def __getitem__(self, position: int) -> int:
        """The episode at `position`, 0 or more."""
        epoch, place = divmod(self.number(position), self.count)
        if not self.shuffle:
            return place
        return int(_permutation(self.count, self.seed, epoch)[place])


# Lanes that straddle an epoch's end ask for two in turn.
@lru_cache(maxsize=8)
def _permutation(count: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    # NumPy keeps the raw stream of a bit generator and of SeedSequence the same in all its
    # versions; that of Generator.permutation it may change (NEP 19).
    bits = np.random.Philox(np.random.SeedSequence(seed, spawn_key=(epoch,)))
    return np.argsort(bits.random_raw(count), kind="stable")


def find(replays: Source | Iterable[Source] | None = None) -> list[Path | bytes]:
    """Every replay that `replays` names, in a fixed order.

    Args:
        replays: A file, a folder (searched recursively for `*.SC2Replay` and
            `*.SC2Recording`), a glob pattern, the bytes of a replay, or several of these; `~`
            is expanded. None for what SC2GYM_REPLAYS names, or else the samples that ship with
            the package.

    Raises:
        FileNotFoundError: A path does not exist and no pattern matches it, or a folder has no
            replay in it.
        ValueError: An empty list.
        TypeError: Something that names no replay.
    """
    if replays is None:
        replays = os.environ.get(ENVIRONMENT_VARIABLE) or SAMPLES
    if isinstance(replays, (str, bytes, os.PathLike)):
        return list(_expand(replays))
    if not isinstance(replays, Iterable) or isinstance(replays, (bytearray, memoryview, dict)):
        raise TypeError(f"replays must name files or hold bytes, got {type(replays).__name__}")
    found = [each for replay in replays for each in _expand(replay)]
    if not found:
        raise ValueError("replays is an empty list; leave it out to use the samples")
    return found


def _expand(source: Source) -> Iterator[Path | bytes]:
    if isinstance(source, bytes):
        yield source
        return
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"a replay is a path or bytes, got {type(source).__name__}")
    if not os.fspath(source):
        raise ValueError("an empty name is no replay; leave replays out to use the samples")
    path = Path(os.path.expanduser(source))  # a home that is not there stays as it is
    if path.is_dir():
        found = sorted(_walk(path))
        if not found:
            raise FileNotFoundError(f"no .SC2Replay file in the folder {path} or below it")
        yield from found
    elif path.exists():
        # Asked for by name, so whatever it is called.
        yield path
    else:
        pattern = str(path)
        matches = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else []
        if not matches:
            what = "no file matches" if glob.has_magic(pattern) else "no such file or folder:"
            raise FileNotFoundError(f"{what} {pattern}")
        for match in map(Path, matches):
            if match.is_dir():
                yield from sorted(_walk(match))
            else:
                yield match


def _walk(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        for name in names:
            if name.lower().endswith((".sc2replay", SUFFIX.lower())):
                yield Path(parent, name)


@dataclass(frozen=True, slots=True)
class _File:
    source: Path | bytes
    name: str
    key: tuple[Any, ...]  # what the cache knows it by: changes when the file does

    @classmethod
    def of(cls, source: Path | bytes) -> _File:
        if isinstance(source, bytes):
            digest = hashlib.blake2b(source, digest_size=16).hexdigest()
            return cls(source, f"bytes:{digest[:12]}", (digest,))
        status = source.stat()
        if not stat.S_ISREG(status.st_mode):
            # A pipe would have us wait for whoever writes to it.
            raise UnsupportedReplayError("not a file but a pipe or device", name=str(source))
        return cls(source, str(source), (str(source), status.st_size, status.st_mtime_ns))

    @property
    def is_recording(self) -> bool:
        return self.name.lower().endswith(SUFFIX.lower())

    def open(self) -> Replay:
        return Replay.open(self.source, name=self.name)

    def content_hash(self) -> str:
        """Of the replay, or of the one that was recorded."""
        if self.key not in _known_hashes:
            _known_hashes[self.key] = (
                RecordingInfo.read(self.name).content_hash
                if self.is_recording
                else self.open().content_hash
            )
        return _known_hashes[self.key]

    def fingerprint(self) -> str:
        """Of the file itself: a replay can have been recorded more than once."""
        if not self.is_recording:
            return self.content_hash()
        if self.key not in _known_recordings:
            _known_recordings[self.key] = identity_of(Path(self.name))
        return _known_recordings[self.key]

    def identity(self) -> str:
        """What states know it by, whatever it is called and wherever it is."""
        return f"{'recording' if self.is_recording else 'replay'}:{self.content_hash()}"

    def episodes(
        self, step_mul: int | Literal["actions"], on_bad_ids: Literal["skip", "raise"]
    ) -> tuple[Episode, ...]:
        """Of all sides at once: they share most of their memory. A recording has one."""
        if self.is_recording:
            return (recorded.episode(Recording(self.name), step_mul),)
        return episodes(self.open(), "both", step_mul, on_bad_ids=on_bad_ids)


class Library:
    """The episodes of a set of replays.

    Building one reads each file's players (a millisecond or so a file); events are decoded when
    an episode is first asked for, and kept, least recently used going first, in memory that all
    libraries of the process share.

    Args:
        replays: As in `find`.
        player: Whose side: "both" (every playing player), a player id, "winner" or "loser".
        step_mul: Game loops a step, or "actions" for a step per loop at which the player acted.
        on_error: "skip" warns about a replay that cannot be used, naming file and reason, and
            goes on without it; "raise" raises.
        cache_bytes: Bound on what the process keeps decoded; the last one given counts. None
            leaves it as it is, at first a quarter of the memory that is free.
        source: "auto" takes a side of a game from its recording if there is one among the
            files, else from the replay's events; "recording" and "events" take one kind of file
            and leave out the other; "game" records what has no recording, when it is first
            asked for, and needs StarCraft II.
        on_bad_ids: What to do about tracker events of units that do not live: "skip" them, or
            "raise", and `on_error` decides about the replay.

    Attributes:
        skipped: (name, reason) of every replay left out so far.
        is_samples: Whether these are the samples, for want of anything else.

    Raises:
        FileNotFoundError, ValueError, TypeError: As in `find`.
        ReplayError: A replay cannot be used and `on_error` is "raise", or none can.
    """

    def __init__(
        self,
        replays: Source | Iterable[Source] | None = None,
        *,
        player: str | int = "both",
        step_mul: int | Literal["actions"] = 8,
        on_error: str = "skip",
        cache_bytes: int | None = None,
        source: str = "auto",
        on_bad_ids: Literal["skip", "raise"] = "skip",
    ):
        self.player = player
        self.step_mul = step_mul
        self.source = source
        self.on_error = on_error
        self.on_bad_ids = on_bad_ids
        self.skipped: list[tuple[str, str]] = []
        self._cache_bytes = cache_bytes
        if cache_bytes is not None:
            _cache.max_bytes = cache_bytes
        self.is_samples = replays is None and not os.environ.get(ENVIRONMENT_VARIABLE)
        found = [file for file in find(replays) if _takes(source, _name(file))]
        if not found:
            raise FileNotFoundError(f"no files for source={source!r} among the replays")
        self._episodes: list[tuple[_File, int]] = []
        self._bad: set[int] = set()
        for each in track(found, "reading replays") if len(found) > _MANY else found:
            try:
                file = _File.of(each)
                selected = _select(_players(file), player)
            except _UNUSABLE as error:
                self._skip(error, _name(each))
            else:
                self._episodes += [(file, player_id) for player_id in selected]
        if any(file.is_recording for file, _ in self._episodes):
            self._episodes = _best(self._episodes)
        if not self._episodes:
            raise ReplayError(self._none_of(len(found)))

    def _none_of(self, count: int) -> str:
        if not self.skipped:
            return f"none of {count} replays has an episode for player={self.player!r}"
        first = ": ".join(self.skipped[0])
        if count == 1:
            return first
        if len(self.skipped) == count:
            return f"none of {count} replays can be read; the first: {first}"
        return (
            f"none of {count} replays has an episode for player={self.player!r}"
            f" ({len(self.skipped)} cannot be read; the first: {first})"
        )

    def __len__(self) -> int:
        return len(self._episodes)

    def __repr__(self) -> str:
        return f"Library({len(self)} episodes, player={self.player!r}, step_mul={self.step_mul!r})"

    def name(self, index: int) -> str:
        """The name of the replay of an episode."""
        return self._episodes[index][0].name

    def side(self, index: int) -> tuple[str, int]:
        """What an episode is of: its replay's kind and content hash, and the player id."""
        file, player_id = self._episodes[index]
        return file.identity(), player_id

    def find(self, replay: str | int, player: int | None = None) -> int:
        """The number of an episode.

        Args:
            replay: The replay's name, its file name with or without the ending, or the
                episode's number itself.
            player: The player id; None for the first that the library has.

        Raises:
            ValueError: There is none.
        """
        if isinstance(replay, (int, np.integer)):
            if not 0 <= replay < len(self):
                raise ValueError(f"no episode {replay}: there are {len(self)}")
            replay = int(replay)
            if player in (None, self._episodes[replay][1]):
                return replay
            raise ValueError(
                f"episode {replay} is of player {self._episodes[replay][1]}, not {player}"
            )
        for index, (file, player_id) in enumerate(self._episodes):
            path = Path(file.name)
            if replay in (file.name, path.name, path.stem) and player in (None, player_id):
                return index
        who = "" if player is None else f" for player {player}"
        raise ValueError(f"no episode of replay {replay!r}{who}")

    def episode(self, index: int) -> Episode:
        """Episode `index`, decoded or from memory.

        Raises:
            ReplayError: It cannot be decoded, or has nothing to step through.
        """
        file, player_id = self._episodes[index]
        if self.source == "game" and not file.is_recording:
            file = _File.of(recorded.record(file.source, player_id, self.step_mul))

        key = file.key, self.step_mul, self.on_bad_ids

        def decode() -> tuple[tuple[Episode, ...], int]:
            decoded = file.episodes(self.step_mul, self.on_bad_ids)
            return decoded, _nbytes(decoded)

        decoded: tuple[Episode, ...] = _cache.get(key, decode)
        for episode in decoded:
            if episode.player.player_id == player_id:
                if len(episode) < 1:
                    raise UnsupportedReplayError("nothing to step through", name=file.name)
                return episode
        raise ReplayError(f"player {player_id} has no statistics, so no episode", name=file.name)

    def features(
        self,
        replay: str | int,
        player: int | None = None,
        step: int = 0,
        *,
        observe: str | Sequence[str] = "minimap",
        minimap_size: int | tuple[int, int] = 64,
        minimap_layers: Sequence[str] | None = None,
        max_units: int = 512,
        unit_columns: Sequence[str] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_dir_bytes: int | None = None,
    ) -> Any:
        """What an environment shows of a replay at a step, without going there step by step.

        Args:
            replay: As in `find`; an episode's number is the fastest.
            player: The player id; None for the first that the library has.
            step: 0 to the number of steps.
            observe: This and the next four as in `sc2gym.options.Options`.
            minimap_size: Likewise.
            minimap_layers: Likewise.
            max_units: Likewise.
            unit_columns: Likewise.
            cache_dir: A folder to keep the frames of whole episodes in, which any number of
                processes can share; docs/export.md says when that is worth it. None keeps
                decoded replays in memory, as always.
            cache_dir_bytes: Bound on the files in it, at first 10 GiB; the last one given counts.

        Returns:
            One array, or a dict of them; the caller's own.

        Raises:
            ValueError: There is no such episode, or no such layer, column or size.
            IndexError: It has no such step.
            ReplayError: It cannot be decoded.
            OSError: There is no folder `cache_dir` and none can be made.
        """
        from . import feature_cache

        def fixed(value: Any) -> Any:
            return value if value is None or isinstance(value, (str, int)) else tuple(value)

        layout = feature_cache.layout_of(
            fixed(observe),
            fixed(minimap_size),
            fixed(minimap_layers),
            max_units,
            fixed(unit_columns),
        )
        cache = None
        if cache_dir is not None:
            cache = feature_cache.cache_of(os.path.abspath(Path(cache_dir).expanduser()))
            if cache_dir_bytes is not None:
                cache.bound(cache_dir_bytes)
        return feature_cache.features(self, replay, player, step, layout, cache)

    def preload(self) -> CacheInfo:
        """Decodes every replay, with a progress bar on a terminal, as far as memory is allowed.

        Bad ones are passed over, or raise, as when their turn comes.

        Returns:
            What is kept.
        """
        dropped = _cache.info().evictions
        for index in track(range(len(self)), "decoding replays", unit="episodes"):
            self._usable(index, self.episode)
            if _cache.info().evictions > dropped:
                break  # from here on each would take the place of another
        return self.cache_info()

    def foresee(self, order: Order, position: int, stride: int) -> int:
        """The number of the episode that `draw` will try first."""
        for _ in range(len(self)):
            if order[position] not in self._bad:
                break
            position += stride
        return order[position]

    def draw(
        self,
        order: Order,
        position: int,
        stride: int,
        get: Callable[[int], Episode] | None = None,
    ) -> tuple[Episode, int, int]:
        """The first usable episode at `position`, `position + stride`..

        What cannot be used is passed over as if it had not been there, whenever it was found
        out, so the outcome depends on the files alone.

        Args:
            order: The sequence.
            position: Where in it to begin.
            stride: Positions from one to the next: the number of lanes.
            get: Gives an episode in place of `episode`.

        Returns:
            The episode, its number, and the position after it.

        Raises:
            ReplayError: An episode cannot be used and `on_error` is "raise", or none can.
        """
        get = get or self.episode
        for _ in range(len(self)):
            index = order[position]
            position += stride
            episode = self._usable(index, get)
            if episode is not None:
                return episode, index, position
        # A lane may meet the same few episodes for ever (16 of them in sequence and 16 lanes,
        # say). Where those are all bad it takes what follows them.
        for number in range(index + 1, index + len(self)):
            episode = self._usable(number % len(self), get)
            if episode is not None:
                return episode, number % len(self), position
        raise ReplayError(
            f"none of {len(self)} episodes can be used; the first: {': '.join(self.skipped[0])}"
        )

    def proceed(
        self,
        order: Order,
        position: int,
        stride: int,
        waiting: Sequence[tuple[int, int, int]],
        get: Callable[[int], Episode] | None = None,
    ) -> tuple[tuple[Episode, int, int, Sequence[tuple[int, int, int]]], int, int]:
        """What a lane goes on with: an episode that waits for it, or else what it draws.

        Args:
            order: The sequence, and the next two as in `draw`.
            position: Likewise.
            stride: Likewise.
            waiting: (number, step, steps elapsed) of episodes begun elsewhere.
            get: As in `draw`.

        Returns:
            (episode, its number, the position after it, what waits then), its step, and the
            steps elapsed.
        """
        for place, (index, step, elapsed) in enumerate(waiting, 1):
            episode = self._usable(index, get or self.episode)
            if episode is not None:
                return (episode, index, position, waiting[place:]), step, elapsed
        return (*self.draw(order, position, stride, get), ()), 0, 0

    # Where the episodes are from

    def state_dict(self) -> dict[str, Any]:
        """Which episodes there are, by their replays' names and contents, as plain data."""
        replays: list[dict[str, Any]] = []
        before = None
        for file, player_id in self._episodes:
            if file is not before:
                before = file
                about = {"name": file.name, "content": file.identity(), "players": []}
                replays.append(about)
            replays[-1]["players"].append(player_id)
        return {"version": STATE_VERSION, "step_mul": self.step_mul, "replays": replays}

    def load_state_dict(
        self, state: dict[str, Any], *, relocate: Source | Iterable[Source] | None = None
    ) -> None:
        """Puts the episodes into the order they had, by their replays' contents.

        Episodes that were not there are left out, with a warning: they would change the order.

        Args:
            state: What `state_dict` gave.
            relocate: Where to look for replays that this library has not.

        Raises:
            CheckpointError: A replay is missing or has changed, or the state is of a newer
                version or of other steps.
        """
        if state["version"] > STATE_VERSION:
            raise CheckpointError(
                f"the library's state is of version {state['version']}, this version of sc2gym"
                f" reads up to {STATE_VERSION}: a newer one saved it"
            )
        if state["step_mul"] != self.step_mul:
            raise CheckpointError(
                f"saved with step_mul={state['step_mul']!r}, not {self.step_mul!r}"
            )
        if relocate is None:
            relocate = relocated_to()
        sides: dict[tuple[str, int], list[tuple[_File, int]]] = {}

        def add(library: Library) -> None:
            for file, player_id in library._episodes:
                sides.setdefault((file.identity(), player_id), []).append((file, player_id))

        def take(name: str, content: str, player_id: int) -> tuple[_File, int] | None:
            found = sides.get((content, player_id))
            if not found:
                return None
            # Replays can be there twice: the one of that name, else one of a new name.
            named = [entry for entry in found if entry[0].name == name]
            new = [entry for entry in found if entry[0].name not in names]
            entry = (named or new or found)[0]
            if len(found) > 1:
                found.remove(entry)
            return entry

        add(self)
        names = {about["name"] for about in state["replays"]}
        episodes, seen = [], set()
        for about in state["replays"]:
            for player_id in about["players"]:
                asked = about["name"], about["content"], player_id
                entry = take(*asked)
                if entry is None and relocate is not None:
                    add(Library(relocate, step_mul=self.step_mul, source=self.source))
                    relocate = None
                    entry = take(*asked)
                if entry is None:
                    raise CheckpointError(f"{about['name']}: {self._why_missing(*asked)}")
                episodes.append(entry)
                seen.add((about["content"], player_id))
        if not episodes:
            raise CheckpointError("the library's state has no episodes")
        left_out = [
            entry
            for entry in self._episodes
            if (entry[0].identity(), entry[1]) not in seen
        ]  # fmt: skip
        if left_out:
            warnings.warn(
                f"left out {len(left_out)} episodes that were not there when the state was saved"
                f" (of {left_out[0][0].name} and on), to go on as before",
                stacklevel=outside(),
            )
        self.put_episodes(episodes)

    def _why_missing(self, name: str, content: str, player_id: int) -> str:
        for file, _ in self._episodes:
            if file.identity() == content:
                return f"no episode of player {player_id}, with player={self.player!r}"
        if any(Path(file.name).name == Path(name).name for file, _ in self._episodes):
            return "the file has changed since the state was saved"
        return "not among the replays; say where it is now with relocate="

    def order_of_episodes(self) -> list[tuple[_File, int]]:
        """The episodes by number: opaque, for `put_episodes`."""
        return self._episodes

    def put_episodes(self, episodes: list[tuple[_File, int]]) -> None:
        """Numbers the episodes as they were."""
        if episodes != self._episodes:
            self._episodes = episodes
            self._bad = set()

    def __getstate__(self) -> dict[str, Any]:
        files: dict[_File, int] = {}
        episodes = [
            (files.setdefault(file, len(files)), player_id) for file, player_id in self._episodes
        ]
        return {
            **self.__dict__,
            "_episodes": episodes,
            "_bad": set(),
            "_files": [(file.source, file.key, file.fingerprint()) for file in files],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Another installation has the samples elsewhere.
        others = [SAMPLES] if state["is_samples"] else []
        files = [
            _again(source, key, fingerprint, others)
            for source, key, fingerprint in state.pop("_files")
        ]
        self.__dict__.update(state)
        self._episodes = [(files[number], player_id) for number, player_id in state["_episodes"]]
        if self._cache_bytes is not None:
            _cache.max_bytes = self._cache_bytes

    def usable(self, index: int) -> Episode | None:
        """Episode `index`, or None, with a warning the first time, if it cannot be used.

        Raises:
            ReplayError, OSError: It cannot, and `on_error` is "raise".
        """
        return self._usable(index, self.episode)

    def skip(self, index: int, error: Exception) -> None:
        """Passes episode `index` over from now on, as if it could not be decoded.

        Raises:
            ReplayError, OSError: `error`, if `on_error` is "raise".
        """
        self._bad.add(index)
        self._skip(error, self.name(index))

    def _usable(self, index: int, get: Callable[[int], Episode]) -> Episode | None:
        if index in self._bad:
            return None
        try:
            return get(index)
        except _UNUSABLE as error:
            self._bad.add(index)
            self._skip(error, self.name(index))
            return None

    def _skip(self, error: Exception, name: str) -> None:
        if self.on_error == "raise":
            raise error
        # Member and byte are part of the reason; the name stands before it already.
        reason = error.strerror if isinstance(error, OSError) else None
        reason = (reason or str(error)).removeprefix(f"{name}: ")
        if (name, reason) not in self.skipped:
            self.skipped.append((name, reason))
            warnings.warn(f"skipped {name}: {reason}", stacklevel=outside())

    def cache_info(self) -> CacheInfo:
        """Hits, evictions and bytes of the decoded replays that the process keeps."""
        return _cache.info()


def _nbytes(decoded: tuple[Episode, ...]) -> int:
    # The size of each side has in it what all share, which is most of it.
    arrays = [
        each.game_loops.nbytes + each.expert_actions.nbytes + each.score.nbytes for each in decoded
    ]
    return max(each.nbytes for each in decoded) + sum(arrays) - max(arrays)


def _name(source: Path | bytes) -> str:
    return _File.of(source).name if isinstance(source, bytes) else str(source)


def _again(
    source: Path | bytes, key: tuple[Any, ...], fingerprint: str, others: Sequence[Path]
) -> _File:
    """A file that was pickled, wherever it is now.

    Raises:
        ReplayError: It is gone or has changed.
    """
    if isinstance(source, bytes):
        return _File.of(source)
    try:
        file = _File.of(source)
    except OSError:
        file = None
    if file is None or file.key != key:
        file = _File.of(
            locate(source, fingerprint, lambda path: _File.of(path).fingerprint(), others)
        )
    (_known_recordings if file.is_recording else _known_hashes)[file.key] = fingerprint
    return file


# Many environments over the same files, as in SyncVectorEnv, read each file's players once.
_known_players: dict[tuple[Any, ...], tuple[tuple[int, str], ...]] = {}
_known_hashes: dict[tuple[Any, ...], str] = {}
_known_recordings: dict[tuple[Any, ...], str] = {}


def _players(file: _File) -> tuple[tuple[int, str], ...]:
    if file.key not in _known_players:
        if file.is_recording:
            info = RecordingInfo.read(file.name)
            results = {player["player_id"]: player["result"] for player in info.players}
            _known_players[file.key] = ((info.player, results.get(info.player, "undecided")),)
        else:
            replay = file.open()
            players = replay.players
            _known_players[file.key] = tuple((each.player_id, each.result) for each in players)
            _known_hashes[file.key] = replay.content_hash
    return _known_players[file.key]


def _takes(source: str, name: str) -> bool:
    is_recording = name.lower().endswith(SUFFIX.lower())
    return source != ("events" if is_recording else "recording")


def _best(episodes: list[tuple[_File, int]]) -> list[tuple[_File, int]]:
    """Without the sides of replays that there is a recording of, and the further ones of that."""
    hashes = {file.key: file.content_hash() for file, _ in episodes}
    taken: dict[tuple[str, int], int] = {}
    for number, (file, player_id) in enumerate(episodes):
        if file.is_recording:
            taken.setdefault((hashes[file.key], player_id), number)
    return [
        (file, player_id)
        for number, (file, player_id) in enumerate(episodes)
        if taken.get((hashes[file.key], player_id), number) == number
    ]


def _select(players: Sequence[tuple[int, str]], which: str | int) -> list[int]:
    chosen: Callable[[int, str], bool] = {
        "both": lambda player_id, result: True,
        "winner": lambda player_id, result: result == "win",
        "loser": lambda player_id, result: result == "loss",
    }.get(str(which), lambda player_id, result: player_id == which)
    return [player_id for player_id, result in players if chosen(player_id, result)]


def outside() -> int:
    """The stack level of the first caller outside this package, for warnings to point at."""
    here = str(Path(__file__).parent)
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame, level = frame.f_back, level + 1
    return level
