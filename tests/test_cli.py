"""The command line, in this process and as users run it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import sc2gym
from sc2gym import cli
from sc2gym.commands import info, play
from sc2gym.replay import Replay

ROOT = Path(__file__).parents[1]
SAMPLES = sorted((Path(sc2gym.__file__).parent / "samples").glob("*.SC2Replay"))
SAMPLE = SAMPLES[0]


def run(*arguments: object, cwd: Path | None = None, **environment: str):
    """Runs `python -m sc2gym` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "sc2gym", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


# What is misspelt, and what helps


def test_python_m_sc2gym_is_the_command():
    done = run("--help")
    assert done.returncode == 0
    assert "sc2gym demo" in done.stdout
    assert done.stderr == ""
    for command in cli.COMMANDS:
        assert re.search(rf"^\s+{command}\s+\w", done.stdout, re.M), command


def test_without_a_command_it_shows_the_help(capsys):
    assert cli.main([]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "examples:" in err


@pytest.mark.parametrize("command", list(cli.COMMANDS))
def test_every_command_has_help(command, capsys):
    assert cli.main([command, "--help"]) == 0
    out, _ = capsys.readouterr()
    assert out.startswith(f"usage: sc2gym {command}")
    assert f"examples:\n  sc2gym {command}" in out
    for line in out.splitlines():
        assert len(line) <= 100


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pley", "x"], "unknown command pley, did you mean play?"),
        (["nonsense"], "unknown command nonsense; commands: info, play, demo"),
        (["--vers"], "unknown option --vers, did you mean --version?"),
        (["info", "--jsn", "x"], "unknown option --jsn, did you mean --json?"),
        (["info", "--jsn"], "unknown option --jsn, did you mean --json?"),
        (["play", "x", "--sped=3"], "unknown option --sped, did you mean --speed?"),
        (["play", "x", "y"], "too many arguments: y"),
        (["play"], "required: FILE"),
        (["play", "x", "--speed", "fast"], "'fast' is not a number above 0"),
        (["play", "x", "--speed", "nan"], "'nan' is not a number above 0"),
        (["play", "x", "--speed", "1e300"], "and 10,000 at most"),
        (["demo", "--seed", "-1"], "'-1' is not a whole number, 0 or more"),
        (["play", "x", "--step-mul", "0"], "'0' is not a whole number above 0"),
        (["play", "x", "--from", "1:x"], "'1:x' is not a time: 1:30, or 90 seconds"),
        (["play", "x", "--size", "10"], "'10' is not a size"),
        (["play", "x", "--out", "x.avi"], "'x.avi' does not end in .gif or .mp4"),
        (["demo", "--num-envs", "-1"], "'-1' is not a whole number above 0"),
        (["demo", "--num-env", "3"], "unknown option --num-env, did you mean --num-envs?"),
    ],
)
def test_a_command_line_that_makes_no_sense(arguments, said, capsys):
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert re.search(r"^see sc2gym.* --help$", err, re.M)
    assert len(err.splitlines()) == 2


# Files that cannot be used: one line on standard error, no traceback


@pytest.fixture
def bad_files(tmp_path) -> dict[str, Path]:
    sample = SAMPLE.read_bytes()
    contents = {
        "empty": b"",
        "page": b"<!DOCTYPE html><html>404</html>",
        "picture": b"\x89PNG\r\n\x1a\n" + bytes(100),
        "half": sample[: len(sample) // 2],
    }
    files = {}
    for name, data in contents.items():
        files[name] = tmp_path / f"{name}.SC2Replay"
        files[name].write_bytes(data)
    return files


@pytest.mark.parametrize("command", ["info", "play"])
@pytest.mark.parametrize("kind", ["empty", "page", "picture", "half"])
def test_a_file_that_is_no_replay(command, kind, bad_files, capsys):
    more = ["--out", str(bad_files["empty"].parent / "x.gif")] if command == "play" else []
    assert cli.main([command, str(bad_files[kind]), *more]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"sc2gym: {bad_files[kind]}: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("command", ["info", "play"])
def test_a_file_that_is_not_there(command, tmp_path, capsys):
    assert cli.main([command, str(tmp_path / "missing.SC2Replay")]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "missing.SC2Replay" in err and "no such file" in err.lower()
    assert "Traceback" not in err


def test_info_is_of_replays_and_passes_recordings_over(tmp_path, capsys):
    shutil.copy(SAMPLE, tmp_path / "game.SC2Replay")
    (tmp_path / "game-p1.SC2Recording").write_bytes(b"ARROW1")
    assert cli.main(["info", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "game.SC2Replay" in out and "recordings left out: 1 of 2 files" in err
    assert cli.main(["info", str(tmp_path / "game-p1.SC2Recording")]) == 1
    assert "nothing but recordings" in capsys.readouterr().err


def test_play_takes_a_file(tmp_path, capsys):
    assert cli.main(["play", str(tmp_path)]) == 1
    assert "is a folder: play takes one file of it" in capsys.readouterr().err


def test_a_folder_without_replays(tmp_path, capsys):
    assert cli.main(["info", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
    assert cli.main(["demo", "--replays", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err


# info


def test_info_is_a_table(capsys):
    assert cli.main(["info", *map(str, SAMPLES)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split() == list(info._COLUMNS)
    assert lines[-1] == f"{len(SAMPLES)} replays in {SAMPLE.parent}"
    assert err == ""
    for sample in SAMPLES:
        replay = Replay.open(sample)
        at = next(i for i, line in enumerate(lines) if line.startswith(sample.name))
        for line, player in zip(lines[at : at + 2], replay.players, strict=True):
            for text in (player.name, player.race, player.result, str(player.mmr)):
                assert text in line
        assert replay.map_name in lines[at] and replay.version in lines[at]
    # Every column begins, or ends, at one place.
    start = lines[0].index("player")
    assert all(line[start - 2 : start] == "  " for line in lines[:-1])


def test_info_as_json_agrees_with_the_replay(capsys):
    assert cli.main(["info", str(SAMPLE.parent), "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert [Path(each["file"]).name for each in read] == [each.name for each in SAMPLES]
    for each in read:
        replay = Replay.open(each["file"])
        assert each["map"] == replay.map_name
        assert each["game_loops"] == replay.game_loops
        assert each["seconds"] == pytest.approx(replay.game_loops / 22.4, abs=0.01)
        assert each["events"]["game"] == sum(replay.event_counts("game").values())
        assert [p["mmr"] for p in each["players"]] == [p.mmr for p in replay.players]
        assert each["problems"] == []


def test_info_lists_the_others_where_a_file_is_bad(bad_files, capsys):
    folder = bad_files["half"].parent
    (folder / "good.SC2Replay").write_bytes(SAMPLE.read_bytes())
    assert cli.main(["info", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert "good.SC2Replay" in out
    assert len(err.splitlines()) == len(bad_files)
    assert all(str(file) in err for file in bad_files.values())
    assert cli.main(["info", str(folder), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_info_of_the_real_replays(pysc2_replays, capsys):
    assert cli.main(["info", "--json", *map(str, pysc2_replays)]) == 0
    read = json.loads(capsys.readouterr().out)
    # From SOURCES.md: game and tracker events of the nine.
    assert [(each["events"]["game"], each["events"]["tracker"]) for each in read] == [
        (6615, 1148),
        (6906, 2035),
        (10644, 3782),
        (9576, 2621),
        (2335, 905),
        (3951, 1356),
        (3468, 1984),
        (4273, 2496),
        (1863, 1418),
    ]


def test_info_says_who_played_where_the_events_cannot_be_read(data_dir, capsys):
    file = data_dir / "replays" / "tricky" / "gameheart-observers.SC2Replay"
    status = cli.main(["info", str(file)])
    out, err = capsys.readouterr()
    assert "SjoWBBII" in out and "Stardust" in out
    assert (status, len(err.splitlines())) in ((0, 0), (1, 1))
    assert ("?" in out) == bool(status)


def test_a_table_keeps_its_columns_with_wide_and_hostile_letters():
    table = info.format_table(
        ("player", "mmr"), [("뉴메타", "12"), ("e\u0301\x1b[31m\n", "3"), ("plain", "4567")]
    )
    assert table.splitlines() == [
        "player    mmr",
        "뉴메타     12",
        "e\u0301?[31m?     3",
        "plain    4567",
    ]


# play


def gif_frames(path: Path) -> list[np.ndarray]:
    image = pytest.importorskip("PIL.Image", reason="needs the extra `video`")
    with image.open(path) as animation:
        frames = []
        for i in range(animation.n_frames):
            animation.seek(i)
            frames.append(np.array(animation.convert("RGB")))
        return frames


def test_play_writes_a_gif(tmp_path, capsys):
    out = tmp_path / "a.gif"
    options = ["--from", "1:00", "--to", "1:20", "--speed", "16", "--size", "304,256"]
    assert cli.main(["play", str(SAMPLE), "--out", str(out), *options]) == 0
    said = capsys.readouterr().out
    frames = gif_frames(out)
    assert f"{len(frames)} pictures" in said
    # 20 s of 22.4 loops, 8 a picture.
    assert len(frames) == pytest.approx(20 * 22.4 / 8, abs=2)
    assert frames[0].shape == (304, 256, 3)
    assert (frames[0] != frames[-1]).any()


def test_play_writes_an_mp4_at_the_speed_asked_for(tmp_path, capsys):
    pytest.importorskip("imageio_ffmpeg", reason="needs the extra `video`")
    out = tmp_path / "a.mp4"
    # 22.4 * 64 / 8 is 179 pictures a second, of which every fourth is kept.
    options = ["--to", "0:30", "--speed", "64", "--size", "160x128", "--player", "2"]
    assert cli.main(["play", str(SAMPLE), "--out", str(out), *options]) == 0
    assert out.stat().st_size > 1000


def test_play_shows_a_window(monkeypatch, capsys):
    pytest.importorskip("pygame", reason="needs the extra `video`")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    began = time.monotonic()
    options = ["--from", "2:00", "--to", "2:40", "--speed", "40", "--step-mul", "32"]
    assert cli.main(["play", str(SAMPLE), *options]) == 0
    assert time.monotonic() - began > 0.8  # 40 s, 40 times as fast
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--player", "7"], "there is no player 7: the replay has 1 ("),
        (["--from", "9:00:00"], "nothing to show from 9:00:00 on: the game lasts"),
        (["--from", "2:00", "--to", "1:00"], "--to 1:00 comes before --from 2:00"),
    ],
)
def test_play_of_what_is_not_there(options, said, tmp_path, capsys):
    out = tmp_path / "a.gif"
    assert cli.main(["play", str(SAMPLE), "--out", str(out), *options]) == 1
    assert said in capsys.readouterr().err
    assert not out.exists()


def test_play_into_a_folder_that_is_not_there(tmp_path, capsys):
    out = tmp_path / "no" / "a.gif"
    assert cli.main(["play", str(SAMPLE), "--out", str(out), "--to", "0:05"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "no/a.gif: no such file" in err


def test_times():
    assert [play._time(text) for text in ("90", "1:30", "1:00:05", "0.5")] == [90, 90, 3605, 0.5]


# demo


def test_demo_steps_reports_and_draws(tmp_path):
    done = run("demo", "--steps", "300", "--out", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no bar where nobody looks
    assert re.search(r"4,800 steps in .* s: [\d,]+ steps a second", done.stdout)
    assert re.search(r"games +\d+ sides: .*(Terran|Zerg|Protoss) vs", done.stdout)
    assert (tmp_path / "here" / "picture.png").stat().st_size > 2000
    frames = gif_frames(tmp_path / "here" / "game.gif")
    assert 200 < len(frames) < 260
    assert (frames[0] != frames[-1]).any()


def test_demo_of_own_replays(tmp_path, pysc2_replays):
    done = run(
        "demo", "--replays", pysc2_replays[8], "--steps", "50", "--num-envs", "2", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "King's Cove LE" in done.stdout
    assert (tmp_path / "demo" / "game.gif").exists()


def test_demo_goes_on_without_what_cannot_be_used(bad_files, tmp_path):
    (tmp_path / "good.SC2Replay").write_bytes(SAMPLE.read_bytes())
    done = run("demo", "--replays", tmp_path, "--steps", "5", "--num-envs", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(bad_files)
    assert all(line.startswith("sc2gym: skipped ") for line in lines)
    assert (tmp_path / "demo" / "picture.png").exists()


# The world around it


def test_head_may_close_the_pipe():
    process = subprocess.Popen(
        [sys.executable, "-m", "sc2gym", "info", *map(str, SAMPLES * 20), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    process.stdout.readline()
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 128 + signal.SIGPIPE
    assert error == b""


def test_control_c_is_no_traceback(tmp_path):
    # Whoever runs the tests in the background has them, and all they start, ignore Ctrl-C.
    start = (
        "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "runpy.run_module('sc2gym', run_name='__main__')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", start, "demo", "--steps", "100000000", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
    )
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.strip() == "interrupted"


def test_letters_that_the_terminal_has_not(data_dir):
    file = data_dir / "replays" / "tricky" / "4.1.2.60604-anonymised.SC2Replay"
    done = run("info", file, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert "\\u" in done.stdout
