"""Recording through pysc2's own code, against a stand-in for the game: see `standin`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pysc2", reason="needs the game extra")
pytest.importorskip("pyarrow", reason="needs the game extra")
if sys.platform != "linux":
    pytest.skip("the stand-in is laid out as the game is on Linux", allow_module_level=True)

import standin
from standin.server import UNKNOWN_FIELD

from sc2gym.game import commands, recorder, worker
from sc2gym.game.recorder import Outcome, Progress, RecorderError, Report, find_replays
from sc2gym.game.worker import Settings
from sc2gym.recording import Recording, find, wire_fields
from sc2gym.replay import Replay

ROOT = Path(__file__).parents[1]
TIMEOUT = 10  # seconds; pysc2 also tries so often, a second apart, to connect

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterable[Install]:
    """Installs a stand-in game where pysc2 will look, and checks that none is left running."""
    root = tmp_path / "StarCraftII"

    def install(builds: Iterable[int] = (75689,), maps: Iterable[str] = (), **plan: Any) -> Path:
        plans = {"": {"loops": 200}, **plan.pop("plans", {})}
        plans[""].update(plan)
        standin.installation(root, data_dir / "observations", builds, maps, plans)
        monkeypatch.setenv("SC2PATH", str(root))
        return root

    yield install
    assert games(root) == []


def games(root: Path) -> list[int]:
    """Process ids of the stand-in games of an installation, or of what is left of them."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue  # it ended just now
        if str(root).encode() in command and b"-listen" in command:
            found.append(int(process.name))
    return found


def short_hash(replay: Path) -> str:
    import hashlib

    return hashlib.blake2b(replay.read_bytes(), digest_size=16).hexdigest()[:8]


def expected(
    data_dir: Path, settings: Settings, player: int, loops: list[int], end: int
) -> list[bytes]:
    """What the stand-in sends, byte for byte."""
    from standin import world

    interface = settings.interface()
    return [
        UNKNOWN_FIELD
        + world.observation(
            data_dir / "observations", interface, player, loop, previous, end
        ).SerializeToString()
        for previous, loop in zip([0, *loops], loops, strict=False)
    ]


def test_both_players_with_layers_byte_for_byte(
    install: Install, data_dir: Path, pysc2_replays: list[Path], tmp_path: Path
) -> None:
    install(builds=(75689, 75800), loops=100)
    replays = [pysc2_replays[i] for i in (0, 2, 8)]  # the second needs the other build
    settings = Settings(opponent=True, feature_screen=(32, 16), feature_minimap=(24, 24))
    seen: list[str] = []
    report = recorder.record(
        replays,
        tmp_path / "out",
        settings,
        workers=2,
        timeout=TIMEOUT,
        progress=lambda progress: seen.append(str(progress)),
    )
    assert [outcome.reason for outcome in report.outcomes] == ["", "", ""]
    assert seen[-1].startswith("3/3 games")
    files = find([tmp_path / "out"])
    assert len(files) == 6
    assert not list((tmp_path / "out").glob("*.partial"))
    loops = [*range(0, 97, 8), 100]
    from s2clientprotocol import sc2api_pb2 as sc_pb

    for file in files:
        recording = Recording(file)
        info = recording.info
        assert recording.game_loops.tolist() == loops
        wires = [bytes(recording.observation(i)) for i in range(len(recording))]
        assert wires == expected(data_dir, settings, info.player, loops, 100)
        # The comparison means something: through protobuf the bytes would not be the same.
        parsed = sc_pb.ResponseObservation.FromString(wires[5])
        assert parsed.SerializeToString() != wires[5]
        assert parsed.observation.feature_layer_data.renders.height_map.size.x == 32
        assert parsed.observation.player_common.player_id == info.player
        replay = next(r for r in replays if r.stem in file.name)
        assert info.replay == replay.name and info.content_hash.startswith(short_hash(replay))
        assert info.base_build == (75800 if "03" in file.name else 75689)
        assert info.game_version.startswith("4.10.")
        players = Replay.open(replay).players
        assert [p["name"] for p in info.players] == [p.name for p in players]
        assert [p["race"] for p in info.players] == [p.race for p in players]
        assert info.loops_per_second == 22.4
        assert sc_pb.ResponseReplayInfo.FromString(info.replay_info).map_name == info.map_name
        game_info = sc_pb.ResponseGameInfo.FromString(info.game_info)
        assert game_info.start_raw.map_size.x > 0
        interface = sc_pb.InterfaceOptions.FromString(info.interface)
        assert interface == settings.interface() == game_info.options
        assert interface.feature_layer.resolution.x == 32
    assert "a game; raw" in str(report)


def test_what_goes_wrong_is_told_apart_and_the_rest_go_on(
    install: Install, data_dir: Path, pysc2_replays: list[Path], tmp_path: Path
) -> None:
    versions = data_dir / "replays" / "versions"
    dies, once, errors, empty, no_map, no_download, bad_data, launch, good = pysc2_replays
    (tmp_path / "page.SC2Replay").write_text("<html>not found</html>")
    plans = {
        short_hash(dies): {"die_at": 50},
        short_hash(once): {"die_at": 50, "times": 1},
        short_hash(errors): {"error_at": 20},
        short_hash(empty): {"empty_at": 20},
        short_hash(no_map): {"local_map": "Ladder/Gone.SC2Map"},
        short_hash(no_download): {"info_error": "DownloadError"},
        short_hash(bad_data): {"start_error": "InvalidReplayData"},
        short_hash(launch): {"start_error": "LaunchError"},
    }
    install(builds=(75689, 75800, 59587), plans=plans, loops=60)
    report = recorder.record(
        [
            dies,
            tmp_path / "page.SC2Replay",
            once,
            errors,
            versions / "4.3.0.64469-a.SC2Replay",
            empty,
            versions / "1.0.0.16117-a.SC2Replay",
            no_map,
            no_download,
            versions / "4.0.0.59587-a.SC2Replay",
            bad_data,
            launch,
            versions / "3.14.0.54518-a.SC2Replay",
            good,
        ],
        tmp_path / "out",
        timeout=TIMEOUT,
    )
    outcomes = {Path(outcome.replay).name: outcome for outcome in report.outcomes}
    assert len(outcomes) == len(report.outcomes) == 14
    kinds = {name: outcome.kind for name, outcome in outcomes.items()}
    assert kinds == {
        dies.name: "crash",
        "page.SC2Replay": "bad replay",
        once.name: "done",  # at the second try
        errors.name: "game error",
        "4.3.0.64469-a.SC2Replay": "unknown version",
        empty.name: "crash",  # as a connection that is closed in order looks
        "1.0.0.16117-a.SC2Replay": "bad replay",
        no_map.name: "missing map",
        no_download.name: "missing map",
        "4.0.0.59587-a.SC2Replay": "unknown version",
        bad_data.name: "bad replay",
        launch.name: "game error",
        "3.14.0.54518-a.SC2Replay": "unknown version",
        good.name: "done",
    }
    reasons = {name: outcome.reason for name, outcome in outcomes.items()}
    assert (
        "4.3.0 (base build 64469): install Versions/Base64469" in reasons["4.3.0.64469-a.SC2Replay"]
    )
    assert "pysc2 does not know" in reasons["4.0.0.59587-a.SC2Replay"]
    assert "before 3.16.1" in reasons["3.14.0.54518-a.SC2Replay"]
    assert "Gone.SC2Map" in reasons[no_map.name]
    assert "as planned" in reasons[errors.name] and "as planned" in reasons[launch.name]
    assert [Path(f).name.split("-")[0] for f in find([tmp_path / "out"])] == [once.stem, good.stem]
    assert not list((tmp_path / "out").glob("*.partial"))
    text = str(report)
    assert "2 games" in text and "crash: 2" in text and "unknown version: 3" in text
    # All of it is in the manifest too; done ones are left alone, failed ones tried again.
    lines = (tmp_path / "out" / recorder.MANIFEST).read_text().splitlines()
    assert len(lines) == 15
    again = recorder.record([once, good, no_map], tmp_path / "out", timeout=TIMEOUT)
    assert again.before == 2
    assert [outcome.kind for outcome in again.outcomes] == ["missing map"]


def test_a_game_that_hangs(install: Install, pysc2_replays: list[Path], tmp_path: Path) -> None:
    hangs, good = pysc2_replays[:2]
    install(plans={short_hash(hangs): {"hang_at": 20}}, loops=40)
    report = recorder.record([hangs, good], tmp_path / "out", timeout=4, retries=0)
    assert [(o.kind, Path(o.replay).name) for o in report.outcomes] == [
        ("timeout", hangs.name),
        ("done", good.name),
    ]


def test_a_worker_that_hangs_is_replaced(
    install: Install,
    pysc2_replays: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The game's own timeout is out of reach here; it is the parent that loses patience.
    monkeypatch.setattr(recorder, "GRACE", 4.0 - 600)
    hangs, good = pysc2_replays[:2]
    install(plans={short_hash(hangs): {"hang_at": 20, "times": 1}}, loops=40)
    report = recorder.record([hangs, good], tmp_path / "out", timeout=600)
    assert [(o.kind, Path(o.replay).name) for o in report.outcomes] == [
        ("done", good.name),
        ("done", hangs.name),
    ]
    assert not list((tmp_path / "out").glob("*.partial"))


def test_a_killed_recorder_leaves_no_game_behind_and_goes_on(
    install: Install, pysc2_replays: list[Path], tmp_path: Path
) -> None:
    first, second = pysc2_replays[:2]
    root = install(plans={short_hash(second): {"slow": 0.05}}, loops=400)
    out = tmp_path / "out"
    code = f"""
        import sys
        sys.path[:] = {sys.path!r}
        from sc2gym.game.recorder import record
        record({[str(first), str(second)]!r}, {str(out)!r}, timeout={TIMEOUT})
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    manifest = out / recorder.MANIFEST
    wait_until(lambda: manifest.exists() and len(manifest.read_text().splitlines()) == 2)
    wait_until(lambda: list(out.glob("*.partial")))
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not games(root))
    assert [path.name for path in find([out])] == [
        f"{first.stem}-{short_hash(first)}-p1.SC2Recording"
    ]
    assert len(list(out.glob("*.partial"))) == 1
    with manifest.open("ab") as file:
        file.write(b'{"replay": "cut off in the mid')
    kept = find([out])[0].stat()
    plan = json.loads((root / "plan.json").read_text())
    plan["plan"] = {"": {"loops": 400}}
    (root / "plan.json").write_text(json.dumps(plan))
    report = recorder.record([first, second], out, timeout=TIMEOUT)
    assert report.before == 1 and len(report.outcomes) == 1
    assert not list(out.glob("*.partial"))
    assert find([out])[0].stat() == kept
    one, two = (Recording(path) for path in find([out]))
    assert len(one) == len(two) == 51
    assert len([json.loads(line) for line in manifest.read_text().splitlines()]) == 3


def wait_until(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ctrl_c_ends_the_games(install: Install, pysc2_replays: list[Path], tmp_path: Path) -> None:
    root = install(loops=4000, slow=0.05)

    def interrupt(progress: Progress) -> None:
        if progress.running:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recorder.record(pysc2_replays[0], tmp_path / "out", timeout=TIMEOUT, progress=interrupt)
    wait_until(lambda: not games(root))


def test_where_the_player_acted(
    install: Install, data_dir: Path, pysc2_replays: list[Path], tmp_path: Path
) -> None:
    replay = pysc2_replays[8]
    acted = [int(n) for n in replay.with_name("replay_09.skips.txt").read_text().split(",") if n]
    install(loops=acted[-1] + 1)
    settings = Settings(actions=True)
    report = recorder.record(replay, tmp_path / "out", settings, timeout=TIMEOUT)
    assert report.outcomes[0].reason == ""
    recording = Recording(find([tmp_path / "out"])[0])
    wanted = sorted({0, *acted, *(loop + 1 for loop in acted)})
    assert recording.info.actions == tuple(acted)
    assert recording.game_loops.tolist() == wanted
    assert (
        bytes(recording.observation(len(wanted) - 1))
        == expected(data_dir, settings, 1, wanted, acted[-1] + 1)[-1]
    )


def test_step_sequence() -> None:
    assert worker.step_sequence([]) == [1][:0]
    assert worker.step_sequence([5, 6, 10]) == [5, 1, 1, 3, 1]
    assert worker.step_sequence([0, 3]) == [1, 2, 1]


def test_reencode(install: Install, pysc2_replays: list[Path], tmp_path: Path) -> None:
    first, other_build = pysc2_replays[0], pysc2_replays[2]
    install(builds=(75689, 75800), loops=2500)
    same_name = tmp_path / "elsewhere" / first.name
    same_name.parent.mkdir()
    shutil.copy(pysc2_replays[1], same_name)
    out = tmp_path / "out"
    out.mkdir()
    (out / other_build.name).write_bytes(b"not to be overwritten")
    report = recorder.reencode([first, same_name, other_build], out, timeout=TIMEOUT)
    assert [outcome.kind for outcome in report.outcomes] == ["done"] * 3
    assert (out / first.name).read_bytes() == first.read_bytes() + b"encoded again"
    renamed = f"{first.stem}-{short_hash(same_name)}.SC2Replay"
    assert (out / renamed).read_bytes() == same_name.read_bytes() + b"encoded again"
    assert (out / other_build.name).read_bytes() == b"not to be overwritten"
    assert recorder.reencode([first, same_name], out, timeout=TIMEOUT).before == 2


def test_no_game_at_all(
    pysc2_replays: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install: Install
) -> None:
    monkeypatch.setenv("SC2PATH", str(tmp_path / "nowhere"))
    with pytest.raises(RecorderError, match=r"StarCraft II is not installed .* set SC2PATH"):
        recorder.record(pysc2_replays[0], tmp_path / "out")


def test_a_game_that_does_not_start(
    install: Install, pysc2_replays: list[Path], tmp_path: Path
) -> None:
    install(die_at_start=True)
    report = recorder.record(pysc2_replays[0], tmp_path / "out", timeout=TIMEOUT, retries=0)
    assert report.outcomes[0].kind == "crash"
    assert "does not start" in report.outcomes[0].reason


def test_a_folder_is_for_one_kind_of_recording(
    install: Install, pysc2_replays: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with (
        recorder.Manifest(out, {"do": "record", "step_mul": 8}),
        pytest.raises(RecorderError, match="another run is writing"),
    ):
        recorder.record(pysc2_replays[0], out)
    with pytest.raises(RecorderError, match="another step_mul: use another folder"):
        recorder.record(pysc2_replays[0], out, Settings(step_mul=4))
    with pytest.raises(RecorderError, match="another do"):
        recorder.reencode(pysc2_replays[0], out)
    (out / recorder.MANIFEST).write_bytes(b"[1]\nnonsense\n")
    with pytest.raises(RecorderError, match="damaged"):
        recorder.record(pysc2_replays[0], out)


def test_folder_that_cannot_be_written(pysc2_replays: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecorderError, match="cannot write into"):
        recorder.record(pysc2_replays[0], tmp_path / "file")


def test_no_room_for_the_recording_stops_the_run(
    install: Install, pysc2_replays: list[Path], tmp_path: Path
) -> None:
    """A failure of ours is not put down to a replay: the first one ends the run, and says why."""
    install(loops=40)
    out = tmp_path / "out"
    out.mkdir()
    name = f"{pysc2_replays[0].stem}-{short_hash(pysc2_replays[0])}-p1.SC2Recording"
    (out / name).mkdir()  # so that the recording cannot be put in its place
    with pytest.raises(RecorderError, match="Is a directory"):
        recorder.record(pysc2_replays[0], out, timeout=TIMEOUT)
    assert not list(out.glob("*.partial"))


def test_finding_replays(tmp_path: Path) -> None:
    for name in ("b/2.SC2Replay", "b/c/1.sc2replay", "b/notes.txt", "a.SC2Replay"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = find_replays([tmp_path / "b", tmp_path / "a.SC2Replay", tmp_path / "a.SC2Replay"])
    assert [path.name for path in found] == ["2.SC2Replay", "1.sc2replay", "a.SC2Replay"]
    with pytest.raises(FileNotFoundError, match="does not exist"):
        find_replays(tmp_path / "x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no replays in .*empty"):
        find_replays(tmp_path / "empty")


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"step_mul": 0}, "start at 1"),
        ({"feature_screen": (64, 64)}, "ask for both"),
        ({"feature_screen": (64, 0), "feature_minimap": (64, 64)}, "width, height"),
        ({"raw": False, "score": False}, "nothing to record"),
    ],
)
def test_settings_that_cannot_be(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Settings(**values)


def test_the_end_of_a_game_without_an_observation() -> None:
    """pysc2 answers such a stub with the observation before it; that, not the stub, is kept."""
    from s2clientprotocol import sc2api_pb2 as sc_pb

    from sc2gym.game import load_schemas

    load_schemas()
    stub = sc_pb.Response(status=sc_pb.ended)
    stub.observation.observation.game_loop = 2**32 - 1
    given = sc_pb.ResponseObservation()
    given.observation.game_loop = 16
    given.player_result.add(player_id=1, result=sc_pb.Tie)

    class Socket:
        def recv(self) -> bytes:
            return stub.SerializeToString()

    tap = worker._Tap(Socket())
    tap.recv()
    assert sc_pb.ResponseObservation.FromString(tap.observation(given)) == given
    # With the observation there, it is the bytes received that are kept.
    stub.observation.observation.game_loop = 16
    tap.recv()
    received = tap.observation(given)
    assert received != given.SerializeToString()
    assert [number for number, *_ in wire_fields(received)] == [3]


def test_time_left_and_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(total=4, started=time.monotonic() - 10)
    assert progress.seconds_left is None
    assert str(progress) == "0/4 games, 0 loops/s, ? left"
    progress.outcomes.append(Outcome("a", "", "done", loops=1000))
    progress.outcomes.append(Outcome("b", "", "crash", "the reason", loops=1000))
    progress.running[0] = (500, 1000)
    # 1500 loops in 10 s; 500 are left of the running one, 1000 of the one to come.
    assert progress.loops == 1500
    assert progress.seconds_left == pytest.approx(10, abs=0.1)
    assert str(progress) == "2/4 games, 150 loops/s, 0:00:10 left, 1 failed"
    show = commands._printer()
    show(progress)
    show(progress)
    printed = capsys.readouterr().err
    assert printed.count("b: crash: the reason") == 1
    assert printed.count("2/4 games") == 1
    report = Report(tuple(progress.outcomes), 3, 3700)
    assert str(report).startswith("1 games in 1:01:40, 3 done before")


def test_stepping_what_has_to_be_recorded_first(
    install: Install,
    pysc2_replays: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`source="game"`: the first time the game plays it, the second it is there."""
    from sc2gym.library import Library
    from sc2gym.recorded import RecordedEpisode

    install(loops=80)
    monkeypatch.setenv("SC2GYM_RECORDINGS", str(tmp_path / "kept"))
    library = Library(pysc2_replays[0], source="game", step_mul=20)
    assert len(library) == 2
    episode = library.episode(1)
    assert isinstance(episode, RecordedEpisode)
    assert episode.game_loops.tolist() == [0, 20, 40, 60, 80]
    assert episode.player.player_id == 2
    monkeypatch.setenv("SC2PATH", str(tmp_path / "nowhere"))
    again = Library(pysc2_replays[0], source="game", step_mul=20, player=1)
    assert again.episode(0).player.player_id == 1
    with pytest.raises(RecorderError, match="SC2PATH"):
        Library(pysc2_replays[0], source="game", step_mul=40).episode(0)


def test_command_line(
    install: Install, pysc2_replays: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(builds=(75800,), loops=40)
    parser = argparse.ArgumentParser()
    commands.add_record_arguments(parser)
    out = str(tmp_path / "out")
    arguments = [str(pysc2_replays[2]), "--out", out, "--workers", "4", "--feature-minimap", "16,8"]
    arguments += ["--step-mul", "20", "--timeout", str(TIMEOUT), "--disable-fog", "--player", "2"]
    assert commands.run_record(parser.parse_args(arguments)) == 0
    recording = Recording(find([out])[0])
    assert recording.game_loops.tolist() == [0, 20, 40]
    assert recording.info.disable_fog and recording.info.player == 2
    assert commands.run_record(parser.parse_args([str(pysc2_replays[0]), *arguments[1:]])) == 1
    printed = capsys.readouterr()
    assert "unknown version: 1" in printed.out and "Base75689" in printed.out
    assert "unknown version" in printed.err
    with pytest.raises(SystemExit):
        parser.parse_args([*arguments, "--feature-screen", "x"])
    assert "not a size" in capsys.readouterr().err
    parser = argparse.ArgumentParser()
    commands.add_reencode_arguments(parser)
    target = tmp_path / "again"
    arguments = [str(pysc2_replays[2]), str(target), "--timeout", str(TIMEOUT)]
    assert commands.run_reencode(parser.parse_args(arguments)) == 0
    assert (target / pysc2_replays[2].name).exists()


def test_the_flags_of_the_calling_process_are_its_own(
    install: Install, pysc2_replays: list[Path], tmp_path: Path
) -> None:
    """Recording from a script that uses absl changes nothing about its flags or its modules."""
    install(loops=16)
    code = f"""
        import sys
        sys.path[:] = {sys.path!r}
        from absl import flags
        from sc2gym.game.recorder import record
        report = record({str(pysc2_replays[0])!r}, {str(tmp_path / "out")!r}, timeout={TIMEOUT})
        assert [o.kind for o in report.outcomes] == ["done"], report
        assert not flags.FLAGS.is_parsed() and "sc2_timeout" not in flags.FLAGS
        assert "pysc2" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, env=os.environ)
