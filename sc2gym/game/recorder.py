"""Records many replays through StarCraft, several at a time, and goes on where it was stopped.

The parent here never touches pysc2: it hands replays to `sc2gym.game.worker` processes, replaces
those that die or hang, and writes down what became of each replay in the manifest of the folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import importlib.metadata
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from sc2gym.errors import SC2GymError
from sc2gym.game.worker import KINDS, Settings
from sc2gym.recording import SUFFIX

MANIFEST = "manifest.jsonl"
LOG = "recorder.log"
# With our own path, in our own order, as multiprocessing does it. (In PYTHONPATH it would come
# before the standard library, and enum34, which pysc2 asks for, would take the place of enum.)
_BOOTSTRAP = "import sys; sys.path[:] = {path!r}; from sc2gym.game.worker import main; main()"
GRACE = 30.0  # seconds beyond the game's own timeout after which a silent worker is replaced


class RecorderError(SC2GymError):
    """Recording as a whole cannot go on: no game, no room, or a folder in other use."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one replay.

    Attributes:
        replay: Its path.
        content_hash: Of its bytes.
        kind: "done", or the kind of failure, a key of `worker.KINDS`.
        reason: Of the failure, "" if done.
        files: Per file made: its name, and bytes as in `recording.Sizes`.
        seconds: That it took.
        loops: Game loops it has.
    """

    replay: str
    content_hash: str
    kind: str
    reason: str = ""
    files: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0
    loops: int = 0


@dataclasses.dataclass(frozen=True)
class Report:
    """What a run did.

    Attributes:
        outcomes: Of every replay that this run took on, in order of finishing.
        before: How many were there already, from earlier runs.
        seconds: That the run took.
    """

    outcomes: tuple[Outcome, ...]
    before: int
    seconds: float

    @property
    def failures(self) -> list[Outcome]:
        """Those that failed, by kind."""
        failed = [outcome for outcome in self.outcomes if outcome.kind != "done"]
        return sorted(failed, key=lambda outcome: list(KINDS).index(outcome.kind))

    def __str__(self) -> str:
        done = [outcome for outcome in self.outcomes if outcome.kind == "done"]
        lines = [f"{len(done)} games in {_clock(self.seconds)}"]
        if self.before:
            lines[0] += f", {self.before} done before"
        files = [file for outcome in done for file in outcome.files]
        if files and "alone" in files[0]:
            raw, stored, alone = (sum(f[key] for f in files) for key in ("raw", "stored", "alone"))
            lines.append(
                f"{_bytes(stored / len(done))} a game; raw {_bytes(raw / len(done))}, "
                f"one compressed frame a file {_bytes(alone / len(done))}"
            )
        counts = Counter(outcome.kind for outcome in self.failures)
        for kind, meaning in KINDS.items():
            if counts[kind]:
                lines.append(f"{kind}: {counts[kind]} ({meaning})")
                reasons = Counter(f.reason for f in self.failures if f.kind == kind)
                example = {f.reason: f.replay for f in self.failures if f.kind == kind}
                for reason, count in reasons.most_common(5):
                    lines.append(f"  {count} x {reason}, as {example[reason]}")
        return "\n".join(lines)


def record(
    replays: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    settings: Settings | None = None,
    *,
    workers: int = 1,
    timeout: float = 360,
    retries: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Records replays into a folder: a file a replay and player.

    A replay that is done already is left alone; those that failed are tried again.

    Args:
        replays: Files and folders, the latter searched recursively.
        out: The folder; made if it is not there. All that is in it has the same settings.
        settings: How to record; by default raw units and score of player 1, every 8 loops.
        workers: How many at a time; each runs one game, or two where the opponent is recorded.
        timeout: Seconds that the game may take for an answer.
        retries: How often to try again where the game crashed or did not answer.
        progress: Called when something has happened, and about twice a second.

    Raises:
        RecorderError: Nothing can be recorded at all.
        FileNotFoundError: There is no replay.
    """
    settings = settings or Settings()

    def names(replay: Path, content_hash: str) -> list[str]:
        stem = replay.stem[:100].replace("{", "(").replace("}", ")")
        return [f"{stem}-{content_hash[:8]}-p{{player}}{SUFFIX}"]

    return _run("record", replays, out, settings, names, workers, timeout, retries, progress)


def reencode(
    replays: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    workers: int = 1,
    timeout: float = 360,
    retries: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Plays replays through the game and keeps the replays that it records meanwhile.

    As `pysc2.bin.reencode_replays`, for files of any installed versions, several at a time. No
    file is overwritten: where a name is taken, the replay's hash is added to it. Arguments and
    errors are those of `record`.
    """

    def names(replay: Path, content_hash: str) -> list[str]:
        return [replay.name, f"{replay.stem}-{content_hash[:8]}{replay.suffix}"]

    return _run("reencode", replays, out, Settings(), names, workers, timeout, retries, progress)


def find_replays(
    replays: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> list[Path]:
    """The replays among files and folders, in order; folders are searched recursively.

    Raises:
        FileNotFoundError: A path is not there, or there is no replay in any.
    """
    paths = [replays] if isinstance(replays, str | os.PathLike) else list(replays)
    found: dict[Path, None] = {}
    for path in (Path(p).expanduser() for p in paths):
        if path.is_dir():
            found |= dict.fromkeys(
                sorted(p for p in path.rglob("*") if p.suffix.lower() == ".sc2replay")
            )
        elif path.exists():
            found[path] = None
        else:
            raise FileNotFoundError(f"{path} does not exist")
    if not found:
        raise FileNotFoundError(f"no replays in {', '.join(map(str, paths)) or 'nothing'}")
    return list(found)


@dataclasses.dataclass
class Progress:
    """How far a run is.

    Attributes:
        total: Replays to do in this run.
        outcomes: Those done or failed, in order of finishing.
        running: Game loops that each running game has reached, and has, by worker.
        started: When, by `time.monotonic`.
    """

    total: int
    outcomes: list[Outcome] = dataclasses.field(default_factory=list)
    running: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    started: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def loops(self) -> int:
        """Game loops gone through so far."""
        done = sum(outcome.loops for outcome in self.outcomes if outcome.kind == "done")
        return done + sum(at for at, _ in self.running.values())

    @property
    def loops_per_second(self) -> float:
        """Since the start."""
        return self.loops / max(1e-9, time.monotonic() - self.started)

    @property
    def seconds_left(self) -> float | None:
        """If the games to come are as long as those so far; None until one is known."""
        lengths = [outcome.loops for outcome in self.outcomes if outcome.loops]
        lengths += [length for _, length in self.running.values() if length]
        if not lengths or not self.loops:
            return None
        waiting = self.total - len(self.outcomes) - len(self.running)
        left = waiting * sum(lengths) / len(lengths)
        left += sum(max(0, length - at) for at, length in self.running.values())
        return left / self.loops_per_second

    def __str__(self) -> str:
        failed = sum(outcome.kind != "done" for outcome in self.outcomes)
        left = self.seconds_left
        return (
            f"{len(self.outcomes)}/{self.total} games, {self.loops_per_second:,.0f} loops/s, "
            + ("?" if left is None else _clock(left))
            + " left"
            + (f", {failed} failed" if failed else "")
        )


class Manifest:
    """The file in a folder that says what is in it: a line about the folder, a line a replay.

    Held open and locked while a run goes on; every line is on disk before the next replay is
    taken on, and a last line that was cut off by a kill is dropped.

    Args:
        folder: Made if it is not there.
        header: What everything in the folder has in common.

    Raises:
        RecorderError: Another run holds it, or it is about something else.
    """

    def __init__(self, folder: Path, header: dict[str, Any]):
        self.path = folder / MANIFEST
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b")
        except OSError as error:
            raise RecorderError(f"cannot write into {folder}: {error}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise RecorderError(f"another run is writing into {folder}") from error
        self._entries: dict[str, dict[str, Any]] = {}
        try:
            self._load(header)
        except BaseException:
            self.close()
            raise

    def _load(self, header: dict[str, Any]) -> None:
        self._file.seek(0)
        text = self._file.read()
        end = text.rfind(b"\n") + 1
        self._file.truncate(end)
        try:
            lines = [json.loads(line) for line in text[:end].splitlines()]
            for entry in lines[1:]:
                self._entries[entry["content_hash"]] = entry
        except (ValueError, TypeError, KeyError) as error:
            raise RecorderError(f"{self.path} is damaged: {error!r}") from error
        # As they read after a turn through JSON, which has no tuples.
        header = json.loads(json.dumps(header))
        if not lines:
            self._append(header)
        else:
            differing = sorted(k for k, v in header.items() if lines[0].get(k, v) != v)
            if differing:
                raise RecorderError(
                    f"{self.path.parent} holds the results of a run with another "
                    f"{', '.join(differing)}: use another folder, or the options of that run"
                )

    def is_done(self, content_hash: str) -> bool:
        """Whether a replay is done and its files are there."""
        entry = self._entries.get(content_hash)
        return (
            entry is not None
            and entry["kind"] == "done"
            and all((self.path.parent / file["file"]).exists() for file in entry["files"])
        )

    def add(self, outcome: Outcome) -> None:
        """Writes down what became of a replay."""
        entry = dataclasses.asdict(outcome)
        self._entries[outcome.content_hash] = entry
        self._append(entry)

    def _append(self, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Lets others at it."""
        self._file.close()

    def __enter__(self) -> Manifest:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@dataclasses.dataclass
class _Task:
    replay: Path
    content_hash: str
    files: str  # the path to write, with {player} in it where there is a file a player
    attempts: int = 0


class _Worker:
    """A worker process as the parent sees it; its reports arrive in a queue as (worker, report).

    A report None says that the process has ended.
    """

    def __init__(
        self, number: int, setup: dict[str, Any], reports: queue.SimpleQueue[Any], log: IO[bytes]
    ):
        self.number = number
        self.task: _Task | None = None
        self.begun = self.heard = time.monotonic()
        self.loops = 0
        self.given_up = False
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOTSTRAP.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,  # so that a signal to our group, as Ctrl-C, reaches us only
        )
        self._send(setup)
        self._listener = threading.Thread(target=self._listen, args=(reports,), daemon=True)
        self._listener.start()

    def _listen(self, reports: queue.SimpleQueue[Any]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                reports.put((self, json.loads(line)))
        reports.put((self, None))

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, which is reported
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def give(self, task: _Task, recorder: str) -> None:
        """Has it do a replay."""
        self.task = task
        self.loops = 0
        self.begun = self.heard = time.monotonic()
        task.attempts += 1
        self._send(
            {
                "replay": os.fspath(task.replay),
                "content_hash": task.content_hash,
                "files": task.files,
                "recorder": recorder,
            }
        )

    def stop(self) -> None:
        """Lets it end its games in peace."""
        self._send({"stop": True})

    def wait(self, seconds: float) -> int | None:
        """The exit status, None if it has not ended after so long."""
        try:
            return self._process.wait(max(0, seconds))
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Ends it and its games, and reaps it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()


def _run(
    do: str,
    replays: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    settings: Settings,
    names: Callable[[Path, str], list[str]],
    workers: int,
    timeout: float,
    retries: int,
    progress: Callable[[Progress], None] | None,
) -> Report:
    if workers < 1:
        raise ValueError(f"{workers} workers")
    folder = Path(out).expanduser().absolute()
    paths = find_replays(replays)
    header = {"do": do, **dataclasses.asdict(settings)}
    with Manifest(folder, header) as manifest, (folder / LOG).open("ab") as log:
        for left in folder.glob("*.partial"):  # of a run that was killed; we hold the lock
            left.unlink()
        tasks: list[_Task] = []
        unreadable: list[Outcome] = []
        seen: set[str] = set()
        taken = {path.name for path in folder.iterdir()}
        before = 0
        for path in paths:
            try:
                data = path.read_bytes()
            except OSError as error:
                unreadable.append(
                    Outcome(str(path), "", "bad replay", f"cannot be read: {error.strerror}")
                )
                continue
            content_hash = hashlib.blake2b(data, digest_size=16).hexdigest()
            if content_hash in seen:
                continue
            seen.add(content_hash)
            if manifest.is_done(content_hash):
                before += 1
            else:
                name = next(n for n in names(path, content_hash) if n not in taken)
                taken.add(name)
                tasks.append(_Task(path.absolute(), content_hash, os.fspath(folder / name)))
        state = Progress(len(tasks) + len(unreadable), list(unreadable))
        setup = {
            "do": do,
            "settings": dataclasses.asdict(settings),
            "timeout": max(1, round(timeout)),
        }
        pool = _Pool(setup, log, timeout + GRACE)
        try:
            pool.run(tasks, min(workers, len(tasks)), retries, state, manifest, progress)
        finally:
            pool.close()
        return Report(tuple(state.outcomes), before, time.monotonic() - state.started)


class _Pool:
    """The workers of a run."""

    def __init__(self, setup: dict[str, Any], log: IO[bytes], patience: float):
        self._setup = setup
        self._log = log
        self._patience = patience
        self._reports: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._workers: dict[int, _Worker] = {}
        try:
            self._recorder = importlib.metadata.version("sc2gym")
        except importlib.metadata.PackageNotFoundError:
            self._recorder = ""

    def run(
        self,
        tasks: Sequence[_Task],
        workers: int,
        retries: int,
        state: Progress,
        manifest: Manifest,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        waiting = deque(tasks)
        for number in range(workers):
            self._start(number)
        while len(state.outcomes) < state.total:
            for worker, report in self._heard():
                outcome = self._outcome(worker, report, state)
                if outcome is None:
                    if worker.task is None and waiting:  # it is ready
                        worker.give(waiting.popleft(), self._recorder)
                    continue
                task, worker.task = worker.task, None
                assert task is not None
                state.running.pop(worker.number, None)
                again = outcome.kind in ("crash", "timeout") and task.attempts <= retries
                if again:
                    waiting.append(task)
                else:
                    manifest.add(outcome)
                    state.outcomes.append(outcome)
                if report is None:  # the process went with the game
                    worker.kill()
                    self._start(worker.number)
                elif waiting:
                    worker.give(waiting.popleft(), self._recorder)
            if progress is not None:
                progress(state)

    def _start(self, number: int) -> None:
        self._workers[number] = _Worker(number, self._setup, self._reports, self._log)

    def _heard(self) -> list[tuple[_Worker, dict[str, Any] | None]]:
        """The next report, or those that stand for workers silent for too long."""
        try:
            return [self._reports.get(timeout=0.5)]
        except queue.Empty:
            pass
        now = time.monotonic()
        silent = [
            worker
            for worker in self._workers.values()
            if worker.task is not None and now - worker.heard > self._patience
        ]
        for worker in silent:
            worker.given_up = True
            worker.kill()
        return []

    def _outcome(
        self, worker: _Worker, report: dict[str, Any] | None, state: Progress
    ) -> Outcome | None:
        """What a report says about the worker's replay; None if that is not over yet."""
        worker.heard = time.monotonic()
        if report is None:
            status = worker.wait(10)
            if worker.task is None:
                raise RecorderError(f"a worker ended by itself (status {status}); see {LOG}")
            if worker.given_up:
                return self._about(worker, "timeout", "nothing was heard from the worker")
            return self._about(worker, "crash", f"the worker ended with status {status}; see {LOG}")
        event = report["event"]
        if event == "broken":
            raise RecorderError(report["reason"])
        if event == "started":
            worker.loops = report["loops"]
            state.running[worker.number] = (0, worker.loops)
        elif event == "progress":
            state.running[worker.number] = (report["loop"], worker.loops)
        elif event == "done":
            return self._about(worker, "done", "", tuple(report["files"]))
        elif event == "failed":
            return self._about(worker, report["kind"], report["reason"])
        return None

    def _about(
        self, worker: _Worker, kind: str, reason: str, files: tuple[dict[str, Any], ...] = ()
    ) -> Outcome:
        assert worker.task is not None
        return Outcome(
            replay=os.fspath(worker.task.replay),
            content_hash=worker.task.content_hash,
            kind=kind,
            reason=reason,
            files=files,
            seconds=round(time.monotonic() - worker.begun, 3),
            loops=worker.loops,
        )

    def close(self) -> None:
        """Ends every worker and game: the idle ones in peace, the others at once."""
        for worker in self._workers.values():
            if worker.task is None:
                worker.stop()
        deadline = time.monotonic() + 15
        for worker in self._workers.values():
            if worker.task is None:
                worker.wait(deadline - time.monotonic())
            worker.kill()


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
