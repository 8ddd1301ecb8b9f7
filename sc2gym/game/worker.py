"""One worker of the recorder: a process with pysc2 in it, which its parent drives line by line.

`python -m sc2gym.game.worker` reads JSON from its standard input, first the settings, then a
task a line, and writes reports to its standard output. A process of its own because pysc2 wants
absl's command line flags, which are one set a process; because a game that hangs can hang what
waits for it; and because the end of the parent, however it ends, then ends worker and games:
they are one process group, which goes when the input does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from sc2gym.errors import ReplayError
from sc2gym.game.pysc2_loader import load_pysc2
from sc2gym.recording import RecordingInfo, RecordingWriter, summarize, wire_fields
from sc2gym.replay import Player, Replay

REPORT_EVERY = 0.5  # seconds between reports of progress
_OBSERVATION = 10  # the field of Response that holds ResponseObservation

Report = Callable[..., None]


@dataclasses.dataclass(frozen=True)
class Settings:
    """How games are recorded; the same for every game in a folder of recordings.

    Attributes:
        player: Player id to observe.
        opponent: Whether to record the other player too, in a second game beside the first.
        step_mul: Game loops between observations.
        actions: Observe at the loops at which a player acted, and at the next, instead.
        disable_fog: Whether to see everything.
        max_loops: Where to stop, 0 for the game's end.
        raw: Whether to ask for raw units and maps.
        score: Whether to ask for the score.
        feature_screen: (width, height) of the screen layers, None for no feature layers.
        feature_minimap: (width, height) of the minimap layers.
        camera_width: World units that the screen layers show.
        crop_to_playable_area: Whether layers and raw positions leave out what lies around it.
        raw_affects_selection: As in `InterfaceOptions`; likewise the three `show` options.
    """

    player: int = 1
    opponent: bool = False
    step_mul: int = 8
    actions: bool = False
    disable_fog: bool = False
    max_loops: int = 0
    raw: bool = True
    score: bool = True
    feature_screen: tuple[int, int] | None = None
    feature_minimap: tuple[int, int] | None = None
    camera_width: float = 24.0
    crop_to_playable_area: bool = False
    raw_affects_selection: bool = False
    show_cloaked: bool = False
    show_burrowed_shadows: bool = False
    show_placeholders: bool = False

    def __post_init__(self) -> None:
        if self.step_mul < 1 or self.player < 1 or self.max_loops < 0:
            raise ValueError("step_mul and player start at 1, max_loops at 0")
        if (self.feature_screen is None) != (self.feature_minimap is None):
            raise ValueError("the game gives screen and minimap layers together: ask for both")
        for size in filter(None, (self.feature_screen, self.feature_minimap)):
            if len(size) != 2 or min(size) < 1:
                raise ValueError(f"a size of feature layers is (width, height), not {size}")
        if not (self.raw or self.score or self.feature_screen):
            raise ValueError("nothing to record: ask for raw, score or feature layers")

    def interface(self) -> Any:
        """The `InterfaceOptions` that ask the game for this."""
        from s2clientprotocol import sc2api_pb2 as sc_pb

        options = sc_pb.InterfaceOptions(
            raw=self.raw,
            score=self.score,
            raw_affects_selection=self.raw_affects_selection,
            raw_crop_to_playable_area=self.crop_to_playable_area,
            show_cloaked=self.show_cloaked,
            show_burrowed_shadows=self.show_burrowed_shadows,
            show_placeholders=self.show_placeholders,
        )
        if self.feature_screen and self.feature_minimap:
            layers = options.feature_layer
            layers.width = self.camera_width
            layers.resolution.x, layers.resolution.y = self.feature_screen
            layers.minimap_resolution.x, layers.minimap_resolution.y = self.feature_minimap
            layers.crop_to_playable_area = self.crop_to_playable_area
        return options


class Failure(Exception):
    """Why one replay could not be done.

    Attributes:
        kind: One of KINDS.
        reason: For people.
    """

    def __init__(self, kind: str, reason: str):
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


KINDS = {
    "unknown version": "the game version that the replay was played on is not installed",
    "missing map": "the game cannot find or load the map",
    "bad replay": "the file is not a replay that the game or pysc2 can read",
    "crash": "the game ended, or could not be started",
    "timeout": "the game did not answer",
    "game error": "the game answered with an error",
}

# After these the game process is not to be trusted with another replay.
_PROCESS_FAILURES = ("crash", "timeout", "game error")


class Recorder:
    """Records replays through one `ReplayObservationStream`, and so its cache of processes."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self._stream: Any = None

    def run(self, task: dict[str, Any], report: Report) -> dict[str, Any]:
        """Records a replay; returns what the parent wants to know of the files."""
        settings = self._settings
        replay = _read(task["replay"])
        steps, loops = _steps(replay, settings) if settings.actions else (None, None)
        stream = self._stream = self._stream or self._open_stream()
        stream.start_replay_from_data(replay, player_id=settings.player)
        controllers = stream._controllers
        info = stream.replay_info()
        report("started", loops=info.game_duration_loops)
        players = [settings.player, settings.player % 2 + 1][: len(controllers)]
        taps = [_Tap.on(controller) for controller in controllers]
        with contextlib.ExitStack() as stack:
            writers = [
                stack.enter_context(
                    RecordingWriter(
                        task["files"].format(player=player),
                        self._describe(task, controller, info, player, loops, replay),
                    )
                )
                for player, controller in zip(players, controllers, strict=True)
            ]
            for observations in _observations(stream, steps, report):
                for tap, observation, writer in zip(taps, observations, writers, strict=True):
                    writer.append(tap.observation(observation))
            sizes = [writer.finish() for writer in writers]
        return {
            "files": [
                {"file": writer.path.name, "player": player, **dataclasses.asdict(size)}
                for writer, player, size in zip(writers, players, sizes, strict=True)
            ]
        }

    def _open_stream(self) -> Any:
        from pysc2.lib.replay.replay_observation_stream import ReplayObservationStream

        return ReplayObservationStream(
            self._settings.interface(),
            step_mul=self._settings.step_mul,
            disable_fog=self._settings.disable_fog,
            game_steps_per_episode=self._settings.max_loops,
            add_opponent_observations=self._settings.opponent,
        )

    def _describe(
        self,
        task: dict[str, Any],
        controller: Any,
        info: Any,
        player: int,
        loops: Sequence[int] | None,
        replay: bytes,
    ) -> RecordingInfo:
        players, loops_per_second = _players(replay, info)
        return RecordingInfo(
            replay=Path(task["replay"]).name,
            content_hash=task["content_hash"],
            player=player,
            game_version=info.game_version,
            base_build=info.base_build,
            data_version=info.data_version,
            map_name=info.map_name,
            players=players,
            loops_per_second=loops_per_second,
            step_mul=self._settings.step_mul,
            actions=None if loops is None else tuple(loops),
            disable_fog=self._settings.disable_fog,
            interface=self._settings.interface().SerializeToString(),
            game_info=controller.game_info().SerializeToString(),
            replay_info=info.SerializeToString(),
            recorder=task["recorder"],
        )

    def close(self) -> None:
        """Ends the games; the next replay gets new ones."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


class Reencoder:
    """Plays replays through the game and writes the replays that it records meanwhile."""

    STEP = 1000  # game loops between looks at whether it is over

    def __init__(self, settings: Settings):
        self._settings = settings
        self._run_config: Any = None
        self._process: Any = None

    def run(self, task: dict[str, Any], report: Report) -> dict[str, Any]:
        """Writes a replay anew; returns its size before and after."""
        from s2clientprotocol import sc2api_pb2 as sc_pb

        replay = _read(task["replay"])
        controller = self._controller(_game_version(replay))
        info = controller.replay_info(replay)
        report("started", loops=info.game_duration_loops)
        request = sc_pb.RequestStartReplay(
            replay_data=replay,
            options=sc_pb.InterfaceOptions(score=True),
            record_replay=True,
            observed_player_id=self._settings.player,
        )
        if info.local_map_path:
            request.map_data = self._run_config.map_data(info.local_map_path, len(info.player_info))
        controller.start_replay(request)
        while True:
            controller.step(self.STEP)
            observation = controller.observe()
            report("progress", loop=observation.observation.game_loop)
            if observation.player_result:
                break
        written = controller.save_replay()
        target = Path(task["files"])
        partial = target.with_name(target.name + ".partial")
        partial.write_bytes(written)
        os.replace(partial, target)
        return {"files": [{"file": target.name, "raw": len(replay), "stored": len(written)}]}

    def _controller(self, version: Any) -> Any:
        from pysc2 import run_configs

        wanted = run_configs.get(version=version)
        if self._process is None or self._run_config.version != wanted.version:
            self.close()
            self._run_config = wanted
            self._process = wanted.start(want_rgb=False)
        return self._process.controller

    def close(self) -> None:
        """Ends the game."""
        process, self._process = self._process, None
        if process is not None:
            process.close()


class _Tap:
    """Stands before a controller's websocket and keeps the last message as it came."""

    def __init__(self, socket: Any):
        self._socket = socket
        self._received = b""

    @classmethod
    def on(cls, controller: Any) -> _Tap:
        client = controller._client
        if not isinstance(client._sock, cls):
            client._sock = cls(client._sock)
        tap: _Tap = client._sock
        return tap

    def recv(self) -> bytes:
        self._received = self._socket.recv()
        return self._received

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def observation(self, parsed: Any) -> bytes:
        """The bytes from which pysc2 parsed this `ResponseObservation`.

        At the end of some games there is a stub without an observation, for which pysc2 gives
        the one before with the result added. No bytes were received that say this, so what
        pysc2 gives is serialized.
        """
        wire = b"".join(
            self._received[start:stop]
            for number, _, start, stop in wire_fields(self._received)
            if number == _OBSERVATION
        )
        stub = parsed.observation.game_loop
        with contextlib.suppress(ValueError):
            if summarize(wire)[0] == stub:
                return wire
        serialized: bytes = parsed.SerializeToString()
        return serialized


def _observations(stream: Any, steps: list[int] | None, report: Report) -> Iterator[list[Any]]:
    """The stream's observations as a list, one a player, with progress reported meanwhile."""
    reported = time.monotonic()
    for observations in stream.observations(step_sequence=steps):
        if not isinstance(observations, list):
            observations = [observations]
        yield observations
        if time.monotonic() - reported > REPORT_EVERY:
            report("progress", loop=observations[0].observation.game_loop)
            reported = time.monotonic()


def step_sequence(loops: Sequence[int]) -> list[int]:
    """Steps that lead from loop 0 to each of `loops` and to the loop after it.

    The game reports an action with the next observation, so whoever wants the action given at
    a loop needs both (as pysc2's `replay_converter.get_step_sequence` has it).
    """
    wanted = sorted({0, *loops, *(loop + 1 for loop in loops)})
    return [after - before for before, after in itertools.pairwise(wanted)]


def _steps(replay: bytes, settings: Settings) -> tuple[list[int], list[int]]:
    from pysc2.lib.replay import sc2_replay, sc2_replay_utils

    try:
        acted = sc2_replay_utils.raw_action_skips(sc2_replay.SC2Replay(replay))
    except Exception as error:  # mpyq, json and s2protocol raise whatever comes
        raise Failure("bad replay", f"its events cannot be read: {error!r}") from error
    players = [settings.player, settings.player % 2 + 1] if settings.opponent else [settings.player]
    loops = sorted({loop for player in players for loop in acted.get(player, ())})
    if not loops:
        raise Failure("bad replay", f"player {settings.player} does nothing in it")
    return step_sequence(loops), loops


def _players(replay: bytes, info: Any) -> tuple[tuple[dict[str, Any], ...], float]:
    """Who plays, and the game's speed: as the file says, or failing that, as the game does."""
    try:
        file = Replay.open(replay)
        return tuple(map(dataclasses.asdict, file.players)), file.loops_per_second
    except ReplayError:
        return tuple(_player(extra) for extra in info.player_info), 22.4


def _player(extra: Any) -> dict[str, Any]:
    player = extra.player_info
    return dataclasses.asdict(
        Player(
            player_id=player.player_id,
            user_id=None,
            name=player.player_name,
            clan="",
            race={1: "Terran", 2: "Zerg", 3: "Protoss"}.get(player.race_actual, "Unknown"),
            team=player.player_id,
            color=(255, 255, 255),
            result={1: "win", 2: "loss", 3: "tie"}.get(extra.player_result.result, "undecided"),
            mmr=extra.player_mmr or None,
            apm=extra.player_apm or None,
            is_ai=player.type == 2,
        )
    )


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Failure("bad replay", f"cannot be read: {error}") from error


def explain(error: Exception) -> Failure:
    """What an exception out of pysc2 says about the replay being done."""
    from google.protobuf.message import DecodeError
    from pysc2.lib import protocol, remote_controller, sc_process
    from pysc2.lib.replay.replay_observation_stream import ReplayError

    text = str(error).strip().replace("\n", " ")
    if isinstance(error, Failure):
        return error
    if isinstance(error, protocol.ConnectionError):
        timed_out = "timed out" in text
        return Failure("timeout" if timed_out else "crash", text)
    if isinstance(error, remote_controller.ConnectError):
        return Failure("crash", f"the game does not start: {text}")
    if isinstance(error, remote_controller.RequestError):
        if any(name in text for name in ("InvalidMapData", "DownloadError")):
            return Failure("missing map", text)
        if any(name in text for name in ("InvalidReplayData", "ParsingError", "PlayerId")):
            return Failure("bad replay", text)
        return Failure("game error", text)
    if isinstance(error, protocol.ProtocolError):
        # A websocket that is closed in an orderly way reads as an empty message.
        return Failure("crash" if "empty response" in text else "game error", text)
    if isinstance(error, sc_process.SC2LaunchError):
        return Failure("unknown version", text)
    if isinstance(error, DecodeError):
        return Failure("game error", f"its answer is not a message: {text}")
    if isinstance(error, ReplayError):
        return Failure("bad replay", text)
    if isinstance(error, ValueError) and text.startswith("Map "):
        return Failure("missing map", text)
    if isinstance(error, ValueError) and text.startswith("Unknown game version"):
        return Failure("unknown version", text)
    return Failure("game error", f"{type(error).__name__}: {text}")


def _version_advice(replay: bytes, failure: Failure) -> Failure:
    """Says which build to install, and where from."""
    from pysc2.run_configs import lib

    version = _game_version(replay)
    name = f"{version.game_version} (base build {version.build_version})"
    if version.build_version < lib.VERSIONS["3.16.1"].build_version:
        advice = "games before 3.16.1 have no interface to record through"
    elif (
        version.game_version not in lib.VERSIONS
        and _executable_folder(version.build_version).is_dir()
    ):
        advice = "that build is installed, but pysc2 does not know this version of it"
    else:
        advice = (
            f"install Versions/Base{version.build_version} into the StarCraft II folder, "
            "from https://github.com/Blizzard/s2client-proto#downloads"
        )
    return Failure(failure.kind, f"needs game version {name}: {advice}")


def _executable_folder(build: int) -> Path:
    from pysc2 import run_configs

    return Path(run_configs.get().data_dir) / "Versions" / f"Base{build:05d}"


def _do(kind: Recorder | Reencoder, task: dict[str, Any], report: Report) -> None:
    """One task, its outcome reported."""
    try:
        try:
            _game_version(_read(task["replay"]))
            report("done", **kind.run(task, report))
        except OSError:
            raise  # pysc2 wraps those of its connection; this is about our own files
        except Exception as error:
            failure = explain(error)
            if failure.kind == "unknown version":
                failure = _version_advice(_read(task["replay"]), failure)
            raise failure from error
    except Failure as failure:
        if failure.kind in _PROCESS_FAILURES:
            with contextlib.suppress(Exception):
                kind.close()
        report("failed", kind=failure.kind, reason=failure.reason)


def _game_version(replay: bytes) -> Any:
    from pysc2.lib.replay import replay_observation_stream

    try:
        return replay_observation_stream._get_replay_version(replay)
    except Exception as error:  # mpyq and json raise whatever comes
        raise Failure(
            "bad replay",
            f"pysc2 cannot tell its version ({error!r}); replays of before about 3.14 have no "
            "metadata that says it",
        ) from error


def _check_installation() -> None:
    """Raises what says that there is no StarCraft II at all, before any replay is blamed."""
    from pysc2 import run_configs
    from pysc2.lib import sc_process

    try:
        run_configs.get()
    except (OSError, sc_process.SC2LaunchError) as error:
        raise FileNotFoundError(
            f"StarCraft II is not installed where pysc2 looks for it ({error}); set SC2PATH"
        ) from error


def main() -> None:
    """Serves a parent until it says stop, or closes our standard input."""
    # Games inherit file descriptor 1 and print to it; reports get a descriptor of their own.
    reports = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)

    def report(event: str, **values: Any) -> None:
        reports.write(json.dumps({"event": event, **values}) + "\n")

    tasks: SimpleQueue[dict[str, Any]] = SimpleQueue()
    setup = json.loads(sys.stdin.readline())

    def listen() -> None:
        for line in sys.stdin:
            tasks.put(json.loads(line))
        # The parent is gone, perhaps killed: take the games along, whatever they are doing.
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=listen, daemon=True).start()
    kind: Recorder | Reencoder | None = None
    try:
        load_pysc2()
        from absl import flags, logging
        from pysc2 import run_configs  # noqa: F401  (defines its flags, as does the next)
        from pysc2.lib.replay import replay_observation_stream  # noqa: F401

        flags.FLAGS(["worker", f"--sc2_timeout={setup['timeout']}"])
        logging.set_verbosity(logging.WARNING)
        _check_installation()
        settings = Settings(**_tuples(setup["settings"]))
        kind = Recorder(settings) if setup["do"] == "record" else Reencoder(settings)
        report("ready")
        while (task := tasks.get()) != {"stop": True}:
            _do(kind, task, report)
    except Exception as error:
        report("broken", reason=f"{error}" or type(error).__name__)
        raise
    finally:
        if kind is not None:
            kind.close()


def _tuples(settings: dict[str, Any]) -> dict[str, Any]:
    """JSON's lists as the tuples they were."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()}


if __name__ == "__main__":
    main()
