"""Checkpoints hold everything, and only whole ones are ever used."""

from __future__ import annotations

import io
import math
import os
import pickle
import random
import resource
import shutil
import struct
import subprocess
import sys
import tarfile
import warnings
import zipfile
from collections import Counter, OrderedDict, deque
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sc2gym import CheckpointError, checkpoint, sealed
from sc2gym.plain import Copier, restored

torch = pytest.importorskip("torch")


class Agent:
    """A small agent whose training depends on every random state there is."""

    def __init__(self, seed: int = 0):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(), torch.nn.ReLU(),
            torch.nn.Linear(16, 4),
        )  # fmt: skip
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-2, amsgrad=True)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [5, 12, 12])
        self.scaler = torch.amp.GradScaler("cpu")
        self.rng = np.random.default_rng(seed)
        self.own = torch.Generator().manual_seed(seed)
        self.python = random.Random(seed)

    @property
    def parts(self) -> dict[str, object]:
        return dict(vars(self))

    def train(self, steps: int) -> list[float]:
        losses = []
        for _ in range(steps):
            x = torch.randn(32, 8) + random.random() + torch.rand(8, generator=self.own)
            noise = np.random.normal(size=8) + self.rng.normal(size=8)  # noqa: NPY002
            x = x + torch.from_numpy(noise).float()
            loss = self.model(x * self.python.random()).pow(2).mean()
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()
            losses.append(loss.item())
        return losses


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    whole = Agent().train(30)
    for stop in (0, 1, 11, 29):
        agent = Agent()
        before = agent.train(stop)
        checkpoint.save(tmp_path / "agent.pt", **agent.parts, step=stop)
        agent.train(3)  # what comes after a save must not matter
        other = Agent(seed=1)
        loaded = checkpoint.load(tmp_path / "agent.pt", **other.parts)
        assert loaded.step == stop
        assert before + other.train(30 - stop) == whole


def test_saving_changes_nothing(tmp_path):
    agent = Agent()
    losses = []
    for step in range(10):
        losses += agent.train(1)
        checkpoint.save(tmp_path / "agent.pt", **agent.parts, step=step)
    assert losses == Agent().train(10)


def test_random_states_can_be_left_alone(tmp_path):
    torch.manual_seed(1)
    checkpoint.save(tmp_path)
    expected = torch.rand(3)
    state = torch.get_rng_state()
    checkpoint.load(tmp_path, random=False)
    assert torch.equal(torch.get_rng_state(), state)
    checkpoint.load(tmp_path)
    assert torch.equal(torch.rand(3), expected)


def test_plain_values_come_back(tmp_path):
    extra = {
        "numbers": [1, -(2**100), 0.1, math.inf, True, None],
        "text": "Ähre",
        "raw": b"\0\xff",
        "nothing": b"",
        "pair": (1, ("a", 2.0)),
        "by_number": {1: "one", (2, 3): "pair"},
        "seen": {3, 1, 2},
        "window": deque([1.0, 2.0], maxlen=2),
        "counts": Counter("abca"),
        "tensor": torch.arange(6).reshape(2, 3).T,
        "half": torch.ones(3, dtype=torch.bfloat16),
        "big_endian": np.arange(3, dtype=">u2"),
        "scalar": np.float64(0.5),
        "narrow": np.float32(0.1),
        "empty": np.empty((0, 3), np.uint64),
    }
    checkpoint.save(tmp_path / "a.pt", step=7, **extra)
    loaded = checkpoint.load(tmp_path / "a.pt").extra
    assert loaded.keys() == extra.keys()
    for name, value in extra.items():
        got = loaded[name]
        if isinstance(value, torch.Tensor):
            assert got.dtype == value.dtype and torch.equal(got, value)
        elif isinstance(value, np.ndarray):
            assert got.dtype == value.dtype and got.shape == value.shape
            assert np.array_equal(got, value)
        else:
            assert got == value and type(got) is type(value)
    assert loaded["window"].maxlen == 2


_PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=20)
    | hnp.arrays(
        hnp.integer_dtypes() | hnp.unsigned_integer_dtypes() | hnp.floating_dtypes(sizes=(32, 64)),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3)
        | st.lists(inner, max_size=3).map(deque)
    ),
    max_leaves=12,
)


@given(_PLAIN)
@settings(max_examples=200, deadline=None)
def test_copies_pass_through_torch_and_are_equal(value):
    file = io.BytesIO()
    torch.save(Copier().copy(value), file)
    file.seek(0)
    _assert_same(restored(torch.load(file, weights_only=True)), value)


def _assert_same(got, value):
    assert type(got) is type(value)
    if isinstance(value, np.ndarray):
        assert got.dtype == value.dtype and got.shape == value.shape
        assert got.tobytes() == value.tobytes()
    elif isinstance(value, dict):
        assert list(got) == list(value)
        for key in value:
            _assert_same(got[key], value[key])
    elif isinstance(value, (list, tuple, deque)):
        assert len(got) == len(value)
        for one, other in zip(got, value, strict=True):
            _assert_same(one, other)
    else:
        assert got == value


def test_copies_share_nothing_but_what_was_shared():
    weight = torch.ones(4)
    array = np.ones(3)
    state = OrderedDict(a=weight, tied=weight.view(4), array=array, list=[1])
    copier = Copier()
    copied = copier.copy(state)
    assert copied["a"].data_ptr() == copied["tied"].data_ptr()
    weight.zero_()
    array[:] = 0
    assert copied["a"].sum() == 4 and restored(dict(copied))["array"].sum() == 3
    # The next copy uses the memory again, whatever has changed meanwhile.
    memory = copied["a"].data_ptr()
    again = copier.copy(OrderedDict(a=weight, new=torch.ones(2)))
    assert again["a"].data_ptr() == memory and again["a"].sum() == 0
    other = copier.copy(OrderedDict(a=torch.ones(5, dtype=torch.int32)))
    assert other["a"].dtype == torch.int32 and len(other["a"]) == 5


def test_what_is_not_plain_is_named(tmp_path):
    class Thing:
        pass

    with pytest.raises(TypeError, match=r"\['extra'\]\['config'\]\['x'\]\[1\] is a .*Thing"):
        checkpoint.save(tmp_path / "a.pt", config={"x": [0, Thing()]})
    with pytest.raises(TypeError, match="a key of it is a bytes"):
        checkpoint.save(tmp_path / "a.pt", config={b"x": 1})
    with pytest.raises(TypeError, match=r"model needs state_dict.*; .*Thing has not"):
        checkpoint.save(tmp_path / "a.pt", model=Thing())
    with pytest.raises(TypeError, match="is taken"):
        checkpoint.save(tmp_path / "a.pt", config={"__sc2gym__": "array"})
    assert list(tmp_path.iterdir()) == []


# What is kept


def test_previous_ones_are_kept_under_numbers(tmp_path):
    path = tmp_path / "deep" / "a[1]*.pt"
    for step in range(6):
        checkpoint.save(path, step=step)
        names = [path.name, f"{path.name}.1", f"{path.name}.2"][: step + 1]
        assert sorted(os.listdir(path.parent)) == names
        steps = [checkpoint.load(path.with_name(name)).step for name in names]
        assert steps == list(range(step, max(step - 3, -1), -1))
    checkpoint.save(path, step=6, keep=5)
    checkpoint.save(path, step=7, keep=5)
    assert [checkpoint.load(p).step for p in sealed.history(path)] == [7, 6, 5, 4, 3]
    checkpoint.save(path, step=8, keep=1)
    assert os.listdir(path.parent) == [path.name]
    with pytest.raises(ValueError, match="keep must be 1 or more"):
        checkpoint.save(path, keep=0)


def test_other_files_are_left_alone(tmp_path):
    for name in ("a.pt.best", "a.pt.1.old", "b.pt.7", ".hidden.part"):
        (tmp_path / name).write_text("mine")
    for step in range(5):
        checkpoint.save(tmp_path / "a.pt", step=step)
    for name in ("a.pt.best", "a.pt.1.old", "b.pt.7", ".hidden.part"):
        assert (tmp_path / name).read_text() == "mine"


def test_the_mode_is_what_the_umask_says(tmp_path):
    old = os.umask(0o022)
    try:
        checkpoint.save(tmp_path / "a.pt")
    finally:
        os.umask(old)
    assert (tmp_path / "a.pt").stat().st_mode & 0o777 == 0o644


def test_without_links_the_one_before_is_kept_too(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    for step in range(4):
        checkpoint.save(tmp_path / "a.pt", step=step)
    assert [checkpoint.load(p).step for p in sealed.history(tmp_path / "a.pt")] == [3, 2, 1]


def test_latest_is_the_newest_whole_one(tmp_path):
    assert checkpoint.latest(tmp_path) is None
    assert checkpoint.latest(tmp_path / "nowhere") is None
    for step, name in enumerate(["b.pt", "z.pt", "a.pt"]):
        checkpoint.save(tmp_path / name, step=step)
    (tmp_path / "events.log").write_text("not a checkpoint, and not taken for one")
    assert checkpoint.latest(tmp_path) == tmp_path / "a.pt"
    assert checkpoint.load(tmp_path).step == 2
    # Not the time of the file, which copying changes.
    os.utime(tmp_path / "b.pt")
    assert checkpoint.latest(tmp_path) == tmp_path / "a.pt"
    _cut(tmp_path / "a.pt")
    assert checkpoint.latest(tmp_path) == tmp_path / "z.pt"
    with pytest.warns(UserWarning, match="a.pt: cut short"):
        assert checkpoint.load(tmp_path).step == 1


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def test_a_folder_gets_a_file_of_the_default_name(tmp_path):
    assert checkpoint.save(tmp_path, step=3) == tmp_path / "checkpoint.pt"
    assert checkpoint.load(tmp_path).step == 3


# Bad files


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("good") / "a.pt"
    model = torch.nn.Linear(30, 40)
    checkpoint.save(path, model=model, step=1, note="x" * 500)
    checkpoint.save(path, model=model, step=2, note="x" * 500)
    return path


def _refused(path: Path, data: bytes, match: str) -> None:
    """Alone the file is an error; with one before it, that is taken and the reason told."""
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=match):
        checkpoint.load(path, model=torch.nn.Linear(30, 40))
    assert checkpoint.latest(path.parent) in (None, path)


@pytest.mark.parametrize("share", range(0, 100, 5))
def test_cut_short(good, tmp_path, share):
    data = good.read_bytes()
    _refused(tmp_path / "a.pt", data[: len(data) * share // 100], "cut short, or not a checkpoint")
    shutil.copy(good.with_name("a.pt.1"), tmp_path / "a.pt.1")
    with pytest.warns(UserWarning, match=r"a\.pt: cut short.*took .*a\.pt\.1 instead") as caught:
        assert checkpoint.load(tmp_path / "a.pt", model=torch.nn.Linear(30, 40)).step == 1
    assert caught[0].filename == __file__


def test_flipped_anywhere(good, tmp_path):
    data = good.read_bytes()
    places = {len(data) * i // 40 for i in range(40)} | set(range(len(data) - 80, len(data)))
    for place in places:
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        _refused(tmp_path / "a.pt", flipped, "damaged|cut short|newer")


def test_longer_than_it_was(good, tmp_path):
    data = good.read_bytes()
    for more in (b"\0", b"more", data):
        _refused(tmp_path / "a.pt", data + more, "cut short|damaged")


def _saved(value: object, **options) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def _seal(data: bytes, version: int = checkpoint.FORMAT) -> bytes:
    """What a sealed file of these contents is, from the format's description."""
    head = struct.pack("<16sIQQ", b"sc2gym sealed \r\n", version, 0, len(data))
    return data + head + blake2b(data + head, digest_size=32).digest()


def test_foreign_files(tmp_path):
    picture = b"\x89PNG\r\n\x1a\n" + bytes(1000)
    pickled = pickle.dumps({"step": 1})
    for data in (b"", b"PK", b"<html>" * 100, picture, pickled, _saved(torch.nn.Linear(2, 2))):
        _refused(tmp_path / "a.pt", data, "cut short, or not a checkpoint of sc2gym")


def test_no_file_at_all(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint there"):
        checkpoint.load(tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match="no checkpoint there"):
        checkpoint.load(tmp_path)
    os.mkfifo(tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match="not a file"):
        checkpoint.load(tmp_path / "a.pt")


def test_from_the_future(good, tmp_path):
    payload = good.read_bytes()[: -sealed.SEAL_SIZE]
    path = tmp_path / "a.pt"
    path.write_bytes(_seal(payload))
    assert checkpoint.load(path).step == 2  # the seal made here is right
    _refused(path, _seal(payload, checkpoint.FORMAT + 1), "its format is 2.*a newer one wrote it")


def test_sealed_but_of_something_else(tmp_path):
    part = {"kind": "Linear", "state": {}, "wrappers": []}
    states = {"format": 1, "step": 1, "parts": {"model": part}, "extra": {}, "random": {}}
    array = {"__sc2gym__": "array", "dtype": "<f8", "shape": [3], "bytes": torch.zeros(8).byte()}
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    cases = [
        [],
        {},
        states | {"step": "one"},
        states | {"parts": [1]},
        states | {"parts": {"model": torch.ones(2)}},
        states | {"extra": {"a": array}},
        states | {"extra": {"a": array | {"dtype": "O"}}},
        states | {"extra": {"a": array | {"shape": [-1]}}},
        states | {"extra": {"a": array | {"shape": 1}}},
        states | {"extra": {"a": array | {"bytes": "no"}}},
        states | {"extra": {"a": {"__sc2gym__": "system", "items": ["touch"]}}},
        states | {"extra": {"a": {"__sc2gym__": "deque", "items": 5, "maxlen": "x"}}},
    ]
    for contents in cases:
        _refused(tmp_path / "a.pt", _seal(_saved(contents)), "a.pt: (not a|no|random)")
    # Whole, but what is in it does not fit.
    (tmp_path / "a.pt").write_bytes(_seal(_saved(states)))
    model = torch.nn.Linear(30, 40)
    before = model.weight.detach().clone()
    with pytest.raises(CheckpointError, match=r"a\.pt: model: (?s:.*)Missing key"):
        checkpoint.load(tmp_path / "a.pt", model=model, random=False)
    # Random states that do not fit are found before any part is loaded.
    with pytest.raises(CheckpointError, match=r"a\.pt: random states"):
        checkpoint.load(tmp_path / "a.pt", model=model)
    assert torch.equal(model.weight, before)
    with pytest.raises(CheckpointError, match="random states"):
        checkpoint.load(tmp_path / "a.pt")
    for data in (b"", b"PK\x03\x04", b"x" * 100):
        _refused(tmp_path / "a.pt", _seal(data), "not a")


# Hostile files


class _Runs:
    """Pickles to a call of os.system."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


class _Evaluates(_Runs):
    def __reduce__(self):
        return eval, (f"open({str(self.path)!r}, 'w')",)


class _Opens(_Runs):
    def __reduce__(self):
        return open, (str(self.path), "w")


def test_code_in_a_file_is_never_run(tmp_path):
    proof = tmp_path / "proof"
    path = tmp_path / "a.pt"
    sound = {"format": 1, "step": 1, "parts": {}, "extra": {}, "random": {}}
    payloads = []
    for kind in (_Runs, _Evaluates, _Opens):
        attack = kind(proof)
        payloads += [
            _saved(attack),
            _saved(sound | {"extra": {"a": attack}}),
            _saved(sound | {"extra": {"a": attack}}, _use_new_zipfile_serialization=False),
            _saved(OrderedDict(a=attack)),
            pickle.dumps(attack),
            _tar(pickle.dumps(attack)),
            _archive({"archive/data.pkl": pickle.dumps(attack, 2), "archive/version": b"3\n"}),
            # TorchScript has readers of its own.
            _archive({
                "archive/data.pkl": pickle.dumps(attack, 2),
                "archive/constants.pkl": pickle.dumps(attack, 2),
                "archive/code/__torch__.py": b"import os\nos.system('touch %b')" % bytes(proof),
                "archive/version": b"3\n",
            }),
        ]  # fmt: skip
    for payload in payloads:
        # Each is a danger to a reader that unpickles, so that this test can fail.
        for data in (payload, _seal(payload)):
            path.write_bytes(data)
            with pytest.raises(CheckpointError):
                checkpoint.load(path)
            assert not proof.exists()
    for dangerous in (payloads[0], payloads[1], payloads[2]):
        torch.load(io.BytesIO(dangerous), weights_only=False)
        assert proof.exists()
        proof.unlink()


def _archive(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def _tar(data: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name in ("storages", "tensors", "pickle"):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def test_paths_that_escape_go_nowhere(good, tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    members = {}
    with zipfile.ZipFile(good) as archive:
        for name in archive.namelist():
            members[name] = archive.read(name)
    for prefix in ("../", "../../../../../../..", str(tmp_path) + "/"):
        path = inside / "a.pt"
        escaped = {f"{prefix}{name}": data for name, data in members.items()}
        path.write_bytes(_seal(_archive(escaped | {f"{prefix}evil": b"evil"})))
        # Whatever comes of it, nothing is written.
        try:
            checkpoint.load(path)
        except CheckpointError as error:
            assert str(path) in str(error)
        assert os.listdir(tmp_path) == ["inside"] and os.listdir(inside) == ["a.pt"]


# What does not fit


def test_parts_of_another_class_or_shape(tmp_path):
    path = tmp_path / "a.pt"
    model = torch.nn.Linear(3, 4)
    adam = torch.optim.Adam(model.parameters())
    checkpoint.save(path, model=model, optimizer=adam)
    other = torch.nn.Linear(3, 4)
    before = other.weight.clone()
    with pytest.raises(CheckpointError, match="its optimizer is of the class Adam, not SGD"):
        checkpoint.load(path, model=other, optimizer=torch.optim.SGD(other.parameters(), 0.1))
    with pytest.raises(CheckpointError, match="no scheduler in it, but model, optimizer"):
        checkpoint.load(path, model=other, scheduler=adam)
    assert torch.equal(other.weight, before)  # nothing was touched
    with pytest.raises(CheckpointError, match=r"model: (?s:.*)size mismatch for weight"):
        checkpoint.load(path, model=torch.nn.Linear(3, 5))
    with pytest.raises(TypeError, match="note has no load_state_dict"):
        checkpoint.load(path, note=3)
    # Only the model, as for an evaluation.
    checkpoint.load(path, model=other)
    assert torch.equal(other.weight, model.weight)


def test_read_gives_the_plain_states(tmp_path):
    model = torch.nn.Linear(3, 4)
    checkpoint.save(tmp_path / "a.pt", model=model, step=5, note="hello")
    places = []
    read = checkpoint.read(
        tmp_path / "a.pt", map_location=lambda storage, place: places.append(place)
    )
    assert set(places) == {"cpu"}  # wherever they were
    assert read.step == 5 and read.extra == {"note": "hello"}
    assert torch.equal(read.parts["model"]["weight"], model.weight)


def test_torch_alone_reads_the_file(good):
    contents = torch.load(good, weights_only=True)
    assert contents["step"] == 2
    torch.nn.Linear(30, 40).load_state_dict(contents["parts"]["model"]["state"])


def test_without_torch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for call in (checkpoint.save, checkpoint.load, checkpoint.read):
        with pytest.raises(ImportError, match=r"sc2gym\[torch\]"):
            call(tmp_path / "a.pt")
    with pytest.raises(ImportError, match=r"sc2gym\[torch\]"):
        checkpoint.every(tmp_path / "a.pt", steps=1)
    assert list(tmp_path.iterdir()) == []


def test_importing_does_not_import_torch():
    code = "import sys, sc2gym.checkpoint; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# Disks


def test_a_file_that_cannot_be_written_whole(tmp_path):
    path = tmp_path / "a.pt"
    model = torch.nn.Linear(300, 400)
    checkpoint.save(path, model=model, step=1)
    for limit in (0, 10, 1000, 100_000, path.stat().st_size - 1):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(CheckpointError, match=r"a\.pt: File too large"):
                checkpoint.save(path, model=model, step=2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert os.listdir(tmp_path) == ["a.pt"]
        assert checkpoint.load(path, model=model).step == 1


_MOUNTED = """
import os, subprocess, sys
import torch
from sc2gym import CheckpointError, checkpoint
folder, kind = sys.argv[1:]
def mount(*options):
    return subprocess.run(["mount", *options, folder], capture_output=True).returncode == 0
if not mount("-t", "tmpfs", "-o", "size=1m", "none"):
    sys.exit(77)
path = folder + "/a.pt"
small, big = torch.nn.Linear(3, 4), torch.nn.Linear(700, 700)
checkpoint.save(path, model=small, step=1)
if kind == "read-only" and not mount("-o", "remount,ro"):
    sys.exit(77)
try:
    checkpoint.save(path, model=big, step=2)
except CheckpointError as error:
    assert ("No space left" if kind == "full" else "Read-only") in str(error), error
else:
    sys.exit("saved")
assert os.listdir(folder) == ["a.pt"], os.listdir(folder)
assert checkpoint.load(path, model=small).step == 1
if kind == "full":  # there is room again
    checkpoint.save(path, model=small, step=3)
    assert checkpoint.load(folder, model=small).step == 3
"""


@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_a_disk_that_is(kind, tmp_path):
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs unshare to mount a small disk")
    run = subprocess.run(
        [unshare, "-rm", sys.executable, "-c", _MOUNTED, str(tmp_path), kind],
        capture_output=True,
        text=True,
    )
    if run.returncode == 77 or "unshare" in run.stderr:
        pytest.skip("a disk cannot be mounted here")
    assert run.returncode == 0, run.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any folder")
def test_a_folder_that_may_not_be_written_to(tmp_path):
    checkpoint.save(tmp_path / "a.pt", step=1)
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(CheckpointError, match="Permission denied"):
            checkpoint.save(tmp_path / "a.pt", step=2)
        assert checkpoint.load(tmp_path / "a.pt").step == 1
    finally:
        tmp_path.chmod(0o755)


# Writers that are killed, and several at once. One process that has torch already forks them.

_WRITERS = """
import os, random, signal, sys, time, warnings
import torch
from sc2gym import CheckpointError, checkpoint, sealed
warnings.simplefilter("error")
torch.set_num_threads(1)
path, kind = sys.argv[1:]
model = torch.nn.Linear(200, 200)

def fill(step):
    with torch.no_grad():
        model.weight.fill_(step)

def write(first, pipe):
    step = first
    while True:
        fill(step)
        checkpoint.save(path, model=model, step=step)
        os.write(pipe, step.to_bytes(8, "little"))
        step += 1

def start(first):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write(first, writer)
        finally:
            os._exit(1)
    os.close(writer)
    return child, reader

def kill(child, reader):
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    data = b""
    while chunk := os.read(reader, 1 << 16):
        data += chunk
    os.close(reader)
    return int.from_bytes(data[-8:], "little") if data else -1

def check():
    # No warning: the newest file itself is whole, and so is every other.
    step = checkpoint.load(path, model=model).step
    assert (model.weight == step).all()
    for other in sealed.history(sealed.Path(path)):
        try:
            older = checkpoint.load(other, model=model).step
        except CheckpointError as error:
            # Another writer gives it the next number just now.
            gone = "No such file", "no checkpoint there"
            assert kind == "several" and any(reason in str(error) for reason in gone), error
        else:
            assert (model.weight == older).all()
    return step

moments = random.Random(0)
last, mid_write = 0, 0
fill(0)
takes = []
for _ in range(5):
    before = time.monotonic()
    checkpoint.save(path, model=model, step=0)
    takes.append(time.monotonic() - before)
takes = sorted(takes)[2]
if kind == "killed":
    for _ in range(50):
        child, reader = start(last + 1)
        time.sleep(moments.uniform(0, 4 * takes))
        done = kill(child, reader)
        mid_write += any(name.endswith(".part") for name in os.listdir(os.path.dirname(path)))
        step = check()
        assert step in (max(done, last), max(done, last) + 1), (done, last, step)
        last = step
    print(last, mid_write)
else:
    children = [start(1000 * i) for i in range(1, 4)]
    try:
        for _ in range(40):
            time.sleep(0.02)
            check()
    finally:
        done = [kill(*child) for child in children]
    assert min(done) >= 1000, done
    check()
checkpoint.save(path, model=model, step=0)
left = sorted(os.listdir(os.path.dirname(path)))
assert left == ["a.pt", "a.pt.1", "a.pt.2"], left
"""


@pytest.mark.parametrize("kind", ["killed", "several"])
def test_writers(kind, tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", _WRITERS, str(tmp_path / "a.pt"), kind],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    if kind == "killed":
        # It was a test only if files were written, and some were cut short.
        last, mid_write = map(int, run.stdout.split())
        assert last >= 5 and mid_write >= 3


def test_a_move_that_was_cut_short_is_not_made_twice(tmp_path):
    path = tmp_path / "a.pt"
    for step in range(3):
        checkpoint.save(path, step=step)
    # As a crash leaves it after the old one got its number and before the new one its place.
    (tmp_path / "a.pt.2").unlink()
    os.rename(tmp_path / "a.pt.1", tmp_path / "a.pt.2")
    os.link(path, tmp_path / "a.pt.1")
    checkpoint.save(path, step=3)
    assert [checkpoint.load(p).step for p in sealed.history(path)] == [3, 2, 1]


def test_warnings_are_none_where_all_is_well(good):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoint.load(good, model=torch.nn.Linear(30, 40)).step == 2
