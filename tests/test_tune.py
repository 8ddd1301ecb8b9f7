"""`sc2gym tune` measures every setting, and what it says is what it measured."""

from __future__ import annotations

import re

import pytest
import torch

from sc2gym import cli
from sc2gym.commands import tune


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def settings(text):
    row = r"^ +(\d+) +(\d+) +([\d,]+) +(\d+)% +(\S.*)$"
    return {(int(n), int(p)): rest for n, p, *rest in re.findall(row, text, re.MULTILINE)}


@pytest.mark.parametrize("device", ["none", "cpu"])
def test_a_row_for_every_setting(device, capsys):
    options = "--num-envs 1 4 --prefetch 0 2 --seconds 0.1 --minimap-size 16 --device"
    assert cli.main(["tune", *options.split(), device]) == 0
    text = capsys.readouterr().out
    found = settings(text)
    assert found.keys() == {(1, 0), (1, 2), (4, 0), (4, 2)}
    speeds = {key: int(value[0].replace(",", "")) for key, value in found.items()}
    assert min(speeds.values()) > 0
    assert {value[2] for value in found.values()} == {"-"}  # no GPU, no memory of it
    num_envs, prefetch = max(speeds, key=speeds.get)
    assert f"most steps a second: num_envs={num_envs}, prefetch={prefetch}" in text


def test_with_nothing_to_learn_all_the_time_is_waiting(capsys):
    options = "--num-envs 16 --prefetch 0 --seconds 0.2 --device none"
    assert cli.main(["tune", *options.split()]) == 0
    ((_, idle, _),) = settings(capsys.readouterr().out).values()
    assert int(idle) > 80


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--prefetch -1", "not a whole number, 0 or more"),
        ("--num-envs 0", "not a whole number above 0"),
        ("--seconds 0", "not a number of seconds above 0"),
        ("--seconds nan", "not a number of seconds above 0"),
    ],
)
def test_absurd_options(options, words, capsys):
    assert cli.main(["tune", *options.split()]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_a_gpu_that_is_not_there(capsys):
    assert cli.main(["tune", "--device", "cuda"]) == 1
    assert "no CUDA" in capsys.readouterr().err


def test_without_torch_nothing_learns(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    assert tune._device(None) == "none"
    with pytest.raises(ImportError, match=r"sc2gym\[torch\]"):
        tune._device("cpu")
