"""Saving in the background, and when a signal says that the machine will be taken away."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from sc2gym import CheckpointError, checkpoint, sealed

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def handlers():
    """Handlers must be what they were when a test is over."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        assert signal.getsignal(number) == handler


def _run(path, taken, **options) -> tuple[list[int], list[int]]:
    """Counts up a model; the steps at which a copy was made, and those on the disk."""
    model = torch.nn.Linear(2, 2)
    made = []
    with checkpoint.every(path, model=model, keep=100, **options) as saver:
        for step in taken:
            with torch.no_grad():
                model.weight.fill_(step)
            if saver(step):
                made.append(step)
                saver._writing.join()
    saved = [checkpoint.load(file, model=model).step for file in reversed(sealed.history(path))]
    return made, saved


def test_by_steps(tmp_path):
    path = tmp_path / "a.pt"
    assert _run(path, range(1, 35), steps=10) == ([10, 20, 30], [10, 20, 30])
    # The same ones when it goes on from there, and where several steps are one call.
    assert _run(path, range(31, 55), steps=10)[0] == [40, 50]
    assert _run(path, range(0, 100, 16), steps=30)[0] == [32, 64, 96]


def test_by_minutes(tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    saver = checkpoint.every(tmp_path / "a.pt", minutes=0.5)
    made = []
    for step in range(100):
        now += 1
        if saver(step):
            made.append(step)
            saver._writing.join()
    saver.close()
    assert made == [29, 59, 89]


class _Gate:
    """A part whose checkpoint cannot be written before the gate is open."""

    def __init__(self, monkeypatch):
        self.open = threading.Event()
        write = sealed.write

        def wait(*args):
            assert self.open.wait(30)
            write(*args)

        monkeypatch.setattr(sealed, "write", wait)


def test_training_goes_on_while_a_copy_is_written(tmp_path, monkeypatch):
    gate = _Gate(monkeypatch)
    path = tmp_path / "a.pt"
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    rng = random.Random(0)
    with checkpoint.every(path, steps=1, model=model, optimizer=optimizer, rng=rng) as saver:
        assert not saver(0)
        assert saver(1, note=["first"])
        expected = model.weight.clone(), rng.random()
        # What happens from here on is not in the file, and nothing waits.
        for step in range(2, 20):
            model(torch.ones(2)).sum().backward()
            optimizer.step()
            assert not saver(step)
        assert not path.exists()
        gate.open.set()
    loaded = checkpoint.load(path, model=model, rng=rng)
    assert loaded.step == 1 and loaded.extra == {"note": ["first"]}
    assert torch.equal(model.weight, expected[0]) and rng.random() == expected[1]


def test_one_that_was_due_while_another_was_written_comes_after_it(tmp_path, monkeypatch):
    gate = _Gate(monkeypatch)
    saver = checkpoint.every(tmp_path / "a.pt", steps=10)
    assert saver(0) is False and saver(10) is True and saver(20) is False
    gate.open.set()
    saver._writing.join()
    assert saver(21) is True and saver(29) is False
    saver.close()
    assert checkpoint.load(tmp_path / "a.pt").step == 21


def test_save_and_close_wait(tmp_path):
    saver = checkpoint.every(tmp_path / "a.pt", steps=1, big=torch.ones(1 << 20))
    saver(0)
    saver(1)
    assert saver.save(2) == tmp_path / "a.pt"
    assert checkpoint.load(tmp_path / "a.pt").step == 2
    saver._writing = None
    saver(3)
    saver.close()
    assert checkpoint.load(tmp_path / "a.pt").step == 3
    saver.close()


def test_a_failure_to_write_is_a_warning(tmp_path):
    folder = tmp_path / "folder"
    saver = checkpoint.every(folder / "a.pt", steps=1)
    saver(0)
    saver(1)
    saver._writing.join()
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.write_text("in the way")
    saver(2)
    saver._writing.join()
    with pytest.warns(UserWarning, match=r"not saved: .*a\.pt: File exists") as caught:
        saver(3)
    assert caught[0].filename == __file__
    saver._writing.join()
    saver._error = None
    with pytest.raises(CheckpointError, match="File exists"):
        saver.save(4)
    folder.unlink()
    saver.save(5)
    saver.close()
    assert checkpoint.load(folder / "a.pt").step == 5


def test_what_makes_no_sense(tmp_path):
    with pytest.raises(ValueError, match="say when to save"):
        checkpoint.every(tmp_path, signals=())
    with pytest.raises(ValueError, match="steps must be 1 or more"):
        checkpoint.every(tmp_path, steps=-1)
    with pytest.raises(ValueError, match="minutes must be more than 0"):
        checkpoint.every(tmp_path, minutes=-1)
    with pytest.raises(TypeError, match="model needs state_dict"):
        checkpoint.every(tmp_path, steps=1, model=3)
    errors = []

    def elsewhere():
        try:
            checkpoint.every(tmp_path, steps=1)
        except ValueError as error:
            errors.append(str(error))
        checkpoint.every(tmp_path, steps=1, signals=()).close()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert errors == ["signals can be handled in the main thread only: pass signals=()"]


# Signals


def test_a_warning_signal_saves_at_the_next_call_and_goes_on(tmp_path):
    seen = []
    signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        with checkpoint.every(tmp_path / "a.pt", steps=1000) as saver:
            assert not saver(1)
            os.kill(os.getpid(), signal.SIGUSR1)
            # Not in the middle of a step; and the earlier handler comes after the saving.
            assert not (tmp_path / "a.pt").exists() and seen == []
            assert saver(2) and seen == [signal.SIGUSR1]
            assert checkpoint.load(tmp_path / "a.pt").step == 2
            assert not saver(3)
            os.kill(os.getpid(), signal.SIGUSR1)
            assert saver(4) and len(seen) == 2
        os.kill(os.getpid(), signal.SIGUSR1)
        assert len(seen) == 3
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def test_a_handler_set_later_stays(tmp_path):
    saver = checkpoint.every(tmp_path / "a.pt", steps=1)
    later = lambda number, frame: None  # noqa: E731
    signal.signal(signal.SIGUSR1, later)
    saver.close()
    assert signal.getsignal(signal.SIGUSR1) is later
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


_PROCESS = """
import os, signal, sys, time
import torch
from sc2gym import checkpoint
path, kind = sys.argv[1:]
if kind == "handler":
    def leave(number, frame):
        print("left", number, flush=True)
        sys.exit(5)
    signal.signal(signal.SIGTERM, leave)
if kind == "full":
    os.makedirs(path)
    open(path + "/x", "w").close()
    path += "/x/a.pt"
model = torch.nn.Linear(300, 300)
with checkpoint.every(path, steps=10**9, model=model) as saver:
    step = 0
    print("ready", flush=True)
    while True:
        time.sleep(0.01 if kind != "stuck" else 0.1)
        step += 1
        print("step", step, "signals", len(saver._came), flush=True)
        if kind == "child":
            begun, begin = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(begin, b"x")
                time.sleep(60)
            os.read(begun, 1)  # a signal that comes while it forks is lost
            os.kill(child, signal.SIGTERM)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            print("child", status, flush=True)
            break
        if kind != "stuck":
            saver(step)
"""


def _process(path, kind: str) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", _PROCESS, str(path), kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    return process


@pytest.mark.parametrize(("kind", "code"), [("default", -signal.SIGTERM), ("handler", 5)])
def test_sigterm_saves_and_then_ends_the_process_as_before(tmp_path, kind, code):
    process = _process(tmp_path / "a.pt", kind)
    first = process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    rest, err = process.communicate(timeout=30)
    out = first + rest
    assert process.returncode == code and err == ""
    steps = [int(line.split()[1]) for line in out.splitlines() if line.startswith("step")]
    assert checkpoint.load(tmp_path / "a.pt", model=torch.nn.Linear(300, 300)).step == steps[-1]
    assert ("left 15" in out) == (kind == "handler")


def test_a_second_sigterm_does_not_wait(tmp_path):
    process = _process(tmp_path / "a.pt", "stuck")
    process.send_signal(signal.SIGTERM)
    while not process.stdout.readline().endswith("signals 1\n"):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM


def test_sigterm_ends_the_process_where_nothing_can_be_written(tmp_path):
    process = _process(tmp_path / "a.pt", "full")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM and "not saved" in err


def test_children_end_when_they_are_told_to(tmp_path):
    process = _process(tmp_path / "a.pt", "child")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert f"child {-signal.SIGTERM}" in out
