"""The training scripts run, learn, and go on to the bit where they were killed."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"

# Small, and on one thread: the sums that are to be equal must be added in the same order.
SMALL = {
    "bc.py": "--threads 1 --updates 24 --batch-size 4 --steps 8 --evaluate-every 12 --save-every 2",
    "ppo.py": "--threads 1 --num-envs 4 --num-steps 16 --total-steps 1536 --save-every 2",
}
UPDATES = 24
FOUR_UPDATES = {"bc.py": "--updates 4", "ppo.py": "--total-steps 256"}


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def load(name):
    spec = importlib.util.spec_from_file_location(Path(name).stem, EXAMPLES / name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def rows(path):
    return np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)


def start(name, run, *more):
    command = [sys.executable, EXAMPLES / name, "--device", "cpu", "--run", run, *more]
    root = str(EXAMPLES.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [*command, *SMALL[name].split()],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def finish(process):
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors.decode()


def written(curve):
    """How many lines there are."""
    return len(curve.read_bytes().splitlines()) if curve.exists() else 0


@pytest.mark.parametrize("name", sorted(SMALL))
def test_killed_and_resumed_to_the_bit(name, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(name, whole))
    chance = random.Random(name)
    kills = int(os.environ.get("SC2GYM_TEST_KILLS", "10"))
    died = 0
    for _ in range(kills):
        process = start(name, killed, "--resume")
        # Until it has got on a little, then to some moment within the next updates.
        before, goal = written(killed / "loss.csv"), chance.randint(1, 4)
        while process.poll() is None and written(killed / "loss.csv") < before + goal:
            time.sleep(0.005)
        time.sleep(chance.random() * 0.1)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        died += process.returncode == -signal.SIGKILL
    assert died > 0
    finish(start(name, killed, "--resume"))
    expected = (whole / "loss.csv").read_bytes()
    assert (killed / "loss.csv").read_bytes() == expected
    assert written(whole / "loss.csv") == UPDATES + 1
    if name == "bc.py":
        for file in ("accuracy.csv", "summary.json"):
            assert (killed / file).read_bytes() == (whole / file).read_bytes()


class Stopped(Exception):
    pass


@pytest.mark.parametrize("name", sorted(FOUR_UPDATES))
def test_stopped_after_any_update_and_resumed_to_the_bit(name, tmp_path, monkeypatch):
    script = load(name)
    flags = f"--device cpu {SMALL[name]} {FOUR_UPDATES[name]} --save-every 1".split()
    add, stop_after = script.Curve.add, [0]

    def add_and_stop(curve, update, *values):
        add(curve, update, *values)
        if curve.path.name == "loss.csv" and update == stop_after[0]:
            raise Stopped

    def run(folder, *more):
        script.main(script.parse([*flags, "--run", str(folder), *more]))
        return (folder / "loss.csv").read_bytes()

    monkeypatch.setattr(script.Curve, "add", add_and_stop)
    expected = run(tmp_path / "whole")
    assert written(tmp_path / "whole" / "loss.csv") == 4 + 1
    for update in (1, 2, 3):
        folder = tmp_path / str(update)
        stop_after[0] = update
        with pytest.raises(Stopped):
            run(folder)
        stop_after[0] = 0
        assert run(folder, "--resume") == expected, f"stopped after update {update}"


def test_cloning_learns_from_the_samples(tmp_path):
    bc = load("bc.py")
    args = bc.Args(
        run=str(tmp_path), updates=40, batch_size=8, steps=8, evaluate_every=20, device="cpu",
        plot=str(tmp_path / "curve.png"), threads=1,
    )  # fmt: skip
    summary = bc.main(args)
    loss = rows(tmp_path / "loss.csv")[:, 1]
    assert len(loss) == 40
    assert loss[-10:].mean() < 0.6 * loss[:5].mean()
    assert summary["acted"] <= summary["acted, top five"] <= 1
    assert 0 < summary["acted, previous"] < 1
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert rows(tmp_path / "accuracy.csv")[:, 0].tolist() == [20, 40]


def test_cloning_counts_right_answers():
    bc = load("bc.py")
    tally = bc.Tally()
    ranked = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 7, 2]])
    tally.add(torch.tensor([1, 6, 5, 7]), ranked)
    assert (tally.steps, tally.right, tally.top5, tally.accuracy) == (4, 1, 3, 0.25)
    assert dict(tally.by_function) == {1: [1, 1], 6: [1, 0], 5: [1, 0], 7: [1, 0]}


def test_a_network_does_not_see_what_it_is_to_foretell():
    bc = load("bc.py")
    args = bc.Args(threads=1)
    torch.manual_seed(0)
    dataset = bc.ReplayDataset(
        steps=8, burn_in=1, history=args.history, minimap_size=32, step_mul="actions",
        observe=("minimap", "units", "player", "game_loop"),
        minimap_layers=bc.LAYERS, unit_columns=bc.COLUMNS,
    )  # fmt: skip
    agent = bc.Agent(args, bc.vocabulary.NUM_FUNCTIONS, bc.types_of(bc.library.find())).eval()
    batch = torch.utils.data.default_collate([next(iter(dataset))])
    logits = agent(bc.flatten(agent, batch, torch.device("cpu"))[0])
    batch["actions"] += 1
    batch["rewards"] += 1
    assert torch.equal(logits, agent(bc.flatten(agent, batch, torch.device("cpu"))[0]))


def test_cloning_tells_something_of_replays_held_out(pysc2_replays, tmp_path):
    # The run of the README takes minutes; a short one gets past the most frequent action only.
    bc = load("bc.py")
    args = bc.Args(
        replays=str(pysc2_replays[0].parent), run=str(tmp_path), updates=70, device="cpu",
        evaluate_every=70, threads=1,
    )  # fmt: skip
    summary = bc.main(args)
    assert summary["acted"] > summary["acted, most frequent"] + 0.05
    assert summary["all"] > summary["all, most frequent"]


def test_policy_optimisation_learns_on_the_samples(tmp_path):
    ppo = load("ppo.py")
    # Where the player acts at nearly every step, and enough so that it does not hang on chance.
    args = ppo.Args(
        run=str(tmp_path), total_steps=16 * 64 * 20, num_envs=16, num_steps=64, device="cpu",
        step_mul=64, minimap_size=8, threads=1, learning_rate=3e-3, entropy=0.0,
        plot=str(tmp_path / "curve.png"),
    )  # fmt: skip
    rewards = ppo.main(args)
    assert len(rewards) == 20
    assert np.mean(rewards[-4:]) > 2 * np.mean(rewards[:4]) + 0.02
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("reward", ["score", "outcome"])
def test_offline_learning_runs_on_the_samples(reward):
    offline = load("offline.py")
    torch.manual_seed(0)
    args = offline.Args(reward=reward, updates=40, batch_size=8, steps=8, device="cpu", threads=1)
    found = offline.main(args)
    functions = offline.vocabulary.NUM_FUNCTIONS
    # It learns which actions occur: all alike would cost the logarithm of their number.
    assert found["penalty"] < 0.8 * np.log(functions)
    assert np.isfinite(found["error"])
    assert 0 <= found["right"] <= 1 and found["steps"] > 0


@pytest.mark.parametrize("name", ["bc.py", "ppo.py", "offline.py"])
def test_help_says_what_can_be_set(name):
    module = load(name)
    assert module.parse([]) == module.Args()
    assert module.parse(["--seed", "5", "--threads", "2"]).seed == 5
    shown = subprocess.run(
        [sys.executable, EXAMPLES / name, "--help"], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(EXAMPLES.parent)},
    ).stdout  # fmt: skip
    assert "CPU threads of torch" in shown
    assert "a folder, file or glob" in shown
