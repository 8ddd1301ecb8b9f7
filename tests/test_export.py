"""Exported episodes: equal to the environment's stream, whatever happens on the way."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sc2gym
from sc2gym import cli
from sc2gym.errors import ExportError, ReplayError
from sc2gym.export import Exported, ExportedEpisode, export, file_name, read
from sc2gym.export_formats import FORMATS

SAMPLES = sorted((Path(sc2gym.__file__).parent / "samples").glob("*.SC2Replay"))
# The shortest ones.
SAMPLE = next(path for path in SAMPLES if path.stem == "zvz-rush")
OTHER = next(path for path in SAMPLES if path.stem == "pvp-blink")
ROOT = Path(__file__).parents[1]

ALL = ["minimap", "units", "player", "upgrades", "game_loop"]
SMALL: dict[str, Any] = {"observe": ["minimap", "player"], "minimap_size": 8, "step_mul": 160}
ALL_FORMATS = pytest.mark.parametrize("format", list(FORMATS))


def assert_same_as_env(episode: ExportedEpisode, replay: object, **options: Any) -> None:
    """Steps an environment with the player's actions beside what was exported."""
    env = sc2gym.SC2ReplayEnv(replay, **options)
    info = episode.info
    which = info["player"] - 1 if isinstance(replay, bytes) else Path(info["replay"]).stem
    seen, told = env.reset(options={"replay": which, "player": info["player"]})
    for key in ("player", "race", "opponent_race", "map", "result"):
        assert info[key] == told[key]

    def observed(step: int) -> None:
        ours, theirs = episode.observations, seen
        if not isinstance(theirs, dict):
            ours, theirs = {"": ours}, {"": theirs}
        assert set(ours) == set(theirs)
        for key in theirs:
            assert ours[key].dtype == theirs[key].dtype, key
            np.testing.assert_array_equal(ours[key][step], theirs[key], key)
        assert episode.game_loops[step] == told["game_loop"]

    for step in range(len(episode)):
        observed(step)
        assert episode.expert_actions[step] == told["expert_action"]
        seen, reward, terminated, truncated, told = env.step(told["expert_action"])
        assert episode.rewards[step] == reward
        assert episode.terminations[step] == terminated
        assert episode.truncations[step] == truncated
        assert (terminated or truncated) == (step == len(episode) - 1)
    observed(len(episode))


@ALL_FORMATS
@pytest.mark.parametrize("reward", ["imitation", "score", "outcome"])
def test_what_is_read_back_is_the_environments_stream(format, reward, tmp_path):
    options: dict[str, Any] = {"observe": ALL, "step_mul": 48, "reward": reward}
    result = export(SAMPLE, tmp_path / "out", format=format, **options)
    assert (result.written, result.present, result.skipped) == (2, 0, [])
    back = Exported(tmp_path / "out")
    assert len(back) == 2 and [each.info["player"] for each in back] == [1, 2]
    for episode in back:
        assert_same_as_env(episode, SAMPLE, **options)
    assert any(each.rewards.any() for each in back)
    # One file by itself, without the rest of the folder.
    alone = read(tmp_path / "out" / back.episodes[1]["file"])
    assert alone.info == back[1].info
    np.testing.assert_array_equal(alone.observations["units"], back[1].observations["units"])


@ALL_FORMATS
def test_other_shapes_layers_and_columns(format, tmp_path):
    for number, options in enumerate([
        {"observe": "minimap", "minimap_size": (9, 17), "minimap_layers": ["player_relative"]},
        {"observe": "units", "max_units": 3, "unit_columns": ["x", "unit_type"]},
        {"observe": ["game_loop"], "step_mul": "actions"},
        {"observe": "upgrades", "player": "winner"},
    ]):  # fmt: skip
        options = {"step_mul": 160, **options}
        out = tmp_path / str(number)
        export(SAMPLE, out, format=format, **options)
        back = Exported(out)
        for episode in back:
            assert_same_as_env(episode, SAMPLE, **options)
        if options["observe"] == "minimap":
            assert back[0].info["arrays"]["observations/minimap"]["names"] == ["player_relative"]


def test_a_game_without_a_result_ends_truncated(data_dir, tmp_path):
    replay = data_dir / "replays" / "versions" / "4.11.0.77379-coop.SC2Replay"
    export(replay, tmp_path, **SMALL, player=1)
    episode = Exported(tmp_path)[0]
    assert episode.truncations[-1] and not episode.terminations.any()
    assert_same_as_env(episode, replay, **SMALL)


def test_npz_and_pickle_and_parquet_read_without_this_package(tmp_path):
    for format in FORMATS:
        export(SAMPLE, tmp_path / format, format=format, **SMALL)
    want = Exported(tmp_path / "npz")[0]
    (npz,) = (tmp_path / "npz").glob("*-p1.npz")
    with np.load(npz, allow_pickle=False) as members:
        np.testing.assert_array_equal(members["observations/minimap"], want.observations["minimap"])
        assert json.loads(str(members["metadata"])) == want.info
    (pickled,) = (tmp_path / "pickle").glob("*-p1.pickle")
    code = (
        "import pickle, sys, numpy\n"
        f"tree = pickle.load(open({str(pickled)!r}, 'rb'))\n"
        "assert 'sc2gym' not in sys.modules\n"
        "seen, about = tree['observations']['minimap'], tree['metadata']\n"
        "print(seen.sum(), tree['rewards'].sum(), about['map'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    minimap = want.observations["minimap"]
    assert done.stdout.strip() == f"{minimap.sum()} {want.rewards.sum()} {want.info['map']}"
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `recordings`")
    (columns,) = (tmp_path / "parquet").glob("*-p1.parquet")
    table = parquet.read_table(columns)
    assert table.num_rows == len(want) + 1
    assert table["rewards"].to_pylist() == [*want.rewards.tolist(), None]
    assert table["observations.player"].to_pylist() == want.observations["player"].tolist()
    picture = np.frombuffer(table["observations.minimap"][3].as_py(), np.uint8)
    np.testing.assert_array_equal(picture.reshape(minimap.shape[1:]), minimap[3])


# Going on


def test_it_goes_on_where_it_was(tmp_path):
    out = tmp_path / "out"
    whole = tmp_path / "whole"
    export([SAMPLE, OTHER], whole, **SMALL)
    want = {path.name: path.read_bytes() for path in whole.iterdir()}
    first = export([SAMPLE], out, **SMALL)
    assert first.written == 2
    times = {path.name: path.stat().st_mtime_ns for path in out.glob("*.npz")}
    second = export([SAMPLE, OTHER], out, **SMALL)
    assert (second.written, second.present) == (2, 2)
    assert all((out / name).stat().st_mtime_ns == when for name, when in times.items())
    # What is gone, or cut short, is made anew; so is what has no whole line in the index.
    names = sorted(path.name for path in out.glob("*.npz"))
    (out / names[0]).unlink()
    os.truncate(out / names[1], 100)
    index = out / "episodes.jsonl"
    lines = index.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if names[2].encode() not in line]
    torn = next(line for line in lines if names[2].encode() in line)[:40]
    index.write_bytes(b"".join(kept) + torn)
    third = export([SAMPLE, OTHER], out, **SMALL)
    assert (third.written, third.present) == (3, 1)
    assert {path.name: path.read_bytes() for path in out.glob("*.npz")} == {
        name: data for name, data in want.items() if name.endswith(".npz")
    }
    assert len(Exported(out)) == 4
    list(Exported(out))


def test_killed_at_random_moments_it_goes_on_and_every_file_is_whole(tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "sc2gym", "export", str(SAMPLE), str(OTHER),
               "--out", str(out), "--step-mul", "16"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    generator = random.Random(5)
    for _ in range(6):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while not (out / "manifest.json").exists() and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(generator.uniform(0, 0.8))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (out / "manifest.json").exists():
            list(Exported(out))  # all that it lists is whole
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    assert not list(out.glob(".*.part"))
    back = Exported(out)
    assert len(back) == 4
    sides = [
        each
        for path in (OTHER, SAMPLE)
        for each in sc2gym.episodes(sc2gym.Replay.open(path), "both", 16)
    ]
    for episode, side in zip(back, sides, strict=True):
        np.testing.assert_array_equal(episode.expert_actions, side.expert_actions[:-1])


def test_shards_are_disjoint_and_complete_and_run_at_once(tmp_path):
    command = [sys.executable, "-m", "sc2gym", "export", *map(str, SAMPLES),
               "--out", str(tmp_path / "out"), "--step-mul", "160", "--shard"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    # The second share twice over: two writers of the same files.
    runs = [
        subprocess.Popen([*command, shard], env=environment, stdout=subprocess.PIPE, text=True)
        for shard in ("0/2", "1/2", "1/2")
    ]
    said = [run.communicate(timeout=120)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], said
    assert " 6 episodes" in said[0]
    back = Exported(tmp_path / "out")
    assert len(list(back)) == 2 * len(SAMPLES)
    assert len({(e.info["content_hash"], e.info["player"]) for e in back}) == 2 * len(SAMPLES)


def test_a_folder_has_one_set_of_options(tmp_path):
    export(SAMPLE, tmp_path, **SMALL)
    for other in ({"minimap_size": 16}, {"observe": "player"}, {"reward": "score"}):
        with pytest.raises(ExportError, match=f"an export with {next(iter(other))}="):
            export(SAMPLE, tmp_path, **{**SMALL, **other})
    with pytest.raises(ExportError, match="an export of npz files, not pickle"):
        export(SAMPLE, tmp_path, format="pickle", **SMALL)
    # Whose side and which share do not change what a file holds.
    assert export(SAMPLE, tmp_path, **SMALL, player=2).present == 1


# Input that is bad


@pytest.mark.filterwarnings("always:skipped")
def test_bad_replays_are_skipped_and_named(tmp_path, capsys):
    data = SAMPLE.read_bytes()
    (tmp_path / "half.SC2Replay").write_bytes(data[: len(data) // 2])
    (tmp_path / "empty.SC2Replay").write_bytes(b"")
    # Sound at first sight: the players can be read, the events cannot.
    broken = bytearray(data)
    broken[len(data) // 3 : 2 * len(data) // 3] = bytes(2 * len(data) // 3 - len(data) // 3)
    (tmp_path / "torn.SC2Replay").write_bytes(broken)
    (tmp_path / "good.SC2Replay").write_bytes(data)
    out = tmp_path / "out"
    arguments = ["--out", str(out), "--step-mul", "160"]
    assert cli.main(["export", str(tmp_path), *arguments]) == 1
    said, complained = capsys.readouterr()
    assert ": 2 episodes" in said
    for name in ("half", "empty", "torn"):
        assert f"skipped {tmp_path}/{name}.SC2Replay: " in complained
    assert "Traceback" not in complained
    assert {each["replay"] for each in Exported(out).episodes} == {"good.SC2Replay"}
    with pytest.raises(ReplayError):
        export(tmp_path / "half.SC2Replay", tmp_path / "other", on_error="raise")
    assert cli.main(["export", str(tmp_path / "good.SC2Replay"), *arguments]) == 0
    assert "0 episodes, 0.0 MB, 2 were there already" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:skipped")
def test_replays_cut_off_and_flipped_anywhere(tmp_path):
    data = SAMPLE.read_bytes()
    generator = random.Random(8)
    for part in range(20):
        (tmp_path / f"cut-{part}.SC2Replay").write_bytes(data[: len(data) * part // 20])
        flipped = bytearray(data)
        flipped[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        (tmp_path / f"flipped-{part}.SC2Replay").write_bytes(flipped)
    (tmp_path / "good.SC2Replay").write_bytes(data)
    result = export(tmp_path, tmp_path / "out", **SMALL)
    back = Exported(tmp_path / "out")
    assert result.written == len(back) == len(list(back))
    names = {each["replay"] for each in back.episodes}
    assert "good.SC2Replay" in names and not any(name.startswith("cut") for name in names)
    skipped = {Path(name).name for name, _ in result.skipped}
    assert skipped | names == {path.name for path in tmp_path.glob("*.SC2Replay")}


def test_the_index_cut_off_and_flipped_anywhere(tmp_path):
    export([SAMPLE, OTHER], tmp_path, **SMALL)
    index = tmp_path / "episodes.jsonl"
    data = index.read_bytes()
    generator = random.Random(9)
    damaged = [data[: len(data) * part // 20] for part in range(20)]
    for _ in range(20):
        flipped = bytearray(data)
        flipped[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        damaged.append(bytes(flipped))
    damaged += [b"\xff\xfe\n" + data, b"[" * 100000 + b"\n" + data, b"1\n[]\nnull\n" + data]
    for each in damaged:
        index.write_bytes(each)
        back = Exported(tmp_path)
        for number in range(len(back)):
            back[number]  # what it lists is whole
        export([SAMPLE, OTHER], tmp_path, **SMALL)
        assert len(list(Exported(tmp_path))) == 4


@pytest.mark.parametrize(
    "name",
    ["../../etc/x", "..", ".", "", "/etc/passwd", "a\\..\\..\\b", "\0", "a/b/../c\n", "-rf",
     "x" * 4000, "\udcff\udcfe", "리플레이", "CON", ".hidden", "..SC2Replay"],
)  # fmt: skip
def test_a_name_never_leads_out_of_the_folder(name):
    made = file_name(name, "replay:0123456789abcdef0123", 1) + ".parquet"
    assert made == Path(made).name and made[0] not in ".-" and len(made) < 255
    assert made.isascii() and made.isprintable()


def test_replays_that_would_escape_are_written_inside(tmp_path, monkeypatch):
    nested = tmp_path / "in" / "deep"
    nested.mkdir(parents=True)
    odd = nested / "..\\..\\up.SC2Replay"
    odd.write_bytes(SAMPLE.read_bytes())
    monkeypatch.chdir(nested)
    out = tmp_path / "in" / "out"
    export(["../deep/..\\..\\up.SC2Replay"], out, **SMALL)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["deep", "out"]
    assert [each.info["replay"] for each in Exported(out)] == [odd.name] * 2
    # An index that somebody changed does not lead out either.
    (tmp_path / "in" / "secret.npz").write_bytes(b"x")
    with open(out / "episodes.jsonl", "a") as index:
        for file in ("../secret.npz", "/etc/passwd", ".", "..", ".x", "a/b", ""):
            line = {"file": file, "bytes": 1, "blake2b": ""}
            line["crc32"] = zlib.crc32(json.dumps(line).encode())
            index.write(json.dumps(line) + "\n")
    assert len(Exported(out)) == 2


@ALL_FORMATS
def test_damaged_files_are_told_apart(format, tmp_path):
    export(SAMPLE, tmp_path, format=format, observe=ALL, step_mul=320, minimap_size=8, max_units=8)
    back = Exported(tmp_path)
    path = tmp_path / back.episodes[0]["file"]
    data = path.read_bytes()
    generator = random.Random(3)
    damaged = [data[: len(data) * part // 20] for part in range(20)]
    for _ in range(150):
        flipped = bytearray(data)
        flipped[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        damaged.append(bytes(flipped))
    want = back[0]
    for each in damaged:
        path.write_bytes(each)
        with pytest.raises(ExportError, match=r"damaged"):
            back[0]
        # Without the checksum of the index: refused, or an episode of the same form.
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                alone = read(path)
        except ExportError:
            continue
        assert len(alone) == len(want)
        assert len(alone.observations["units"]) == len(want) + 1
    path.write_bytes(data + b"x")
    with pytest.raises(ExportError, match="damaged"):
        back[0]
    path.unlink()
    with pytest.raises(ExportError, match="o such file"):
        back[0]


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch pwned",)


def test_nothing_in_a_file_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    objects = [
        Evil(),
        {"metadata": {}, "observations": {"x": Evil()}},
        {"metadata": {"format": 1}, "observations": {}, "rewards": np.array([Evil()], object)},
        np.zeros(3),
        [],
        {"metadata": [], "observations": {}},
        {"metadata": {}, "observations": 3},
        SAMPLE,
    ]
    for number, thing in enumerate(objects):
        path = Path(f"{number}.pickle")
        path.write_bytes(pickle.dumps(thing))
        with pytest.raises(ExportError, match="not an exported episode"):
            read(path)
        path = Path(f"{number}.npz")
        with open(path, "wb") as file:
            np.savez(file, metadata=np.array([thing], object))
        with pytest.raises(ExportError, match="not an exported episode"):
            read(path)
    assert not Path("pwned").exists()
    pickle.loads(pickle.dumps(Evil()))  # it does run when let
    assert Path("pwned").exists()
    with pytest.raises(ExportError, match="its name ends in none of"):
        read("x.txt")


def test_from_the_future(tmp_path):
    for format in FORMATS:
        export(SAMPLE, tmp_path / format, format=format, **SMALL)
        path = next((tmp_path / format).glob(f"*.{format}"))
        with open(path, "rb") as file:
            metadata, arrays = FORMATS[format].read(file)
        with open(path, "wb") as file:
            FORMATS[format].write(file, {**metadata, "format": 2}, arrays)
        with pytest.raises(ExportError, match="its format is 2, this version of sc2gym reads up"):
            read(path)
    manifest = tmp_path / "npz" / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"format": 1', '"format": 2'))
    for use in (lambda: Exported(tmp_path / "npz"), lambda: export(SAMPLE, tmp_path / "npz")):
        with pytest.raises(ExportError, match="its format is 2"):
            use()
    for damaged in (
        "",
        "[]",
        "{}",
        text[: len(text) // 2],
        '{"format": 1, "files": "exe", "options": {}}',
    ):
        manifest.write_text(damaged)
        with pytest.raises(ExportError, match="damaged"):
            Exported(tmp_path / "npz")
    with pytest.raises(ExportError, match="has no export"):
        Exported(tmp_path)


def test_a_full_disk(tmp_path, capsys):
    code = (
        "import resource, signal, sys\n"
        "from sc2gym import cli\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    arguments = ["export", str(SAMPLE), "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 1
    assert done.stderr == "sc2gym: file too large\n"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "episodes.jsonl",
        "manifest.json",
    ]
    assert len(Exported(tmp_path / "out")) == 0
    assert cli.main(arguments) == 0
    assert len(list(Exported(tmp_path / "out"))) == 2


def test_a_folder_that_cannot_be_written_to(tmp_path, capsys):
    (tmp_path / "file").write_bytes(b"")
    assert cli.main(["export", str(SAMPLE), "--out", str(tmp_path / "file")]) == 1
    assert "file: file exists" in capsys.readouterr().err
    assert cli.main(["export", str(SAMPLE), "--out", "/proc/nothing"]) == 1
    assert "/proc/nothing: " in capsys.readouterr().err
    if os.geteuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o500)
        assert cli.main(["export", str(SAMPLE), "--out", str(tmp_path / "locked")]) == 1
        assert "permission denied" in capsys.readouterr().err


# The command


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ([], 2, "required: --out"),
        (["--out", "x", "--format", "csv"], 2, "csv"),
        (["--out", "x", "--shard", "4/4"], 2, "'4/4' is not a share"),
        (["--out", "x", "--step-mul", "0"], 2, "'0' is not a whole number above 0"),
        (["--out", "x", "--minimap-size", "a"], 2, "'a' is not a size"),
        (["--out", "x", "--observ", "units"], 2, "did you mean --observe?"),
        (["--out", "x", "--observe", "minimpa"], 1, "did you mean 'minimap'?"),
        (["--out", "x", "--player", "winer"], 1, "did you mean 'winner'?"),
        (["--out", "x", "--unit-columns", "xx"], 1, "no unit column 'xx'"),
    ],
)
def test_a_command_that_makes_no_sense(options, status, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", str(SAMPLE), *options]) == status
    assert said in capsys.readouterr().err
    assert not Path("x").exists()


def test_all_options_of_the_command(tmp_path, capsys):
    arguments = [
        *("--out", str(tmp_path), "--format", "parquet", "--observe", "minimap, units"),
        *("--minimap-size", "8,16", "--minimap-layers", "player_relative,unit_class"),
        *("--max-units", "9", "--unit-columns", "x,y", "--player", "2", "--step-mul", "80"),
        *("--reward", "score", "--source", "events", "--shard", "0/1"),
    ]
    assert cli.main(["export", str(SAMPLE), *arguments]) == 0
    assert ": 1 episodes, " in capsys.readouterr().out
    (episode,) = Exported(tmp_path)
    assert_same_as_env(
        episode, SAMPLE, observe=["minimap", "units"], minimap_size=(8, 16),
        minimap_layers=["player_relative", "unit_class"], max_units=9, unit_columns=["x", "y"],
        step_mul=80, reward="score",
    )  # fmt: skip


def test_a_call_that_makes_no_sense(tmp_path):
    with pytest.raises(TypeError, match="did you mean 'observe'"):
        export(SAMPLE, tmp_path / "x", observ="units")
    with pytest.raises(TypeError, match="order makes no difference"):
        export(SAMPLE, tmp_path / "x", order="shuffle")
    with pytest.raises(TypeError, match="reward is one of"):
        export(SAMPLE, tmp_path / "x", reward=lambda *_: 0.0)
    with pytest.raises(ValueError, match="unknown format 'parket'; did you mean 'parquet'"):
        export(SAMPLE, tmp_path / "x", format="parket")  # type: ignore[arg-type]
    assert not (tmp_path / "x").exists()


def test_parquet_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'sc2gym\[recordings\]'"):
        export(SAMPLE, tmp_path / "x", format="parquet")
    assert not (tmp_path / "x").exists()


def test_replays_from_memory(tmp_path):
    export([SAMPLE.read_bytes()], tmp_path, **SMALL)
    for episode in Exported(tmp_path):
        assert_same_as_env(episode, SAMPLE.read_bytes(), **SMALL)


def test_recordings_are_exported_and_kept_like_replays(data_dir, tmp_path):
    pytest.importorskip("pyarrow", reason="needs the extra `recordings`")
    pytest.importorskip("pysc2", reason="needs the extra `game`")
    from test_recorded_episode import LOOPS, write

    folder = tmp_path / "recorded"
    folder.mkdir()
    recording = write(folder / "game.SC2Recording", data_dir / "observations", LOOPS[:40])
    for format in FORMATS:
        export(recording, tmp_path / format, format=format, observe=ALL)
        (episode,) = Exported(tmp_path / format)
        assert episode.info["source"] == "recording"
        assert_same_as_env(episode, recording, observe=ALL)
    library = sc2gym.Library(recording)
    for step in (0, len(episode), 0):
        kept = library.features(0, step=step, observe=ALL, cache_dir=tmp_path / "cache")
        for key in ALL:
            np.testing.assert_array_equal(kept[key], episode.observations[key][step])
    # Damaged in the middle: found when its frames are read.
    data = bytearray(recording.read_bytes())
    data[len(data) // 2] ^= 255
    damaged = tmp_path / "damaged.SC2Recording"
    damaged.write_bytes(data)
    with pytest.warns(UserWarning, match=r"skipped .*damaged\.SC2Recording"):
        result = export([damaged, SAMPLE], tmp_path / "both", **SMALL)
    assert result.written == 2 and len(result.skipped) == 1
