"""A state that Python 3.11 saved goes on alike under every version, on every machine.

`python tests/test_resume_across_versions.py` saves it anew, into `saved_state.json`. What is
compared is what the files say and not what is estimated from them, which may get better.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sc2gym.vector import SC2ReplayVectorEnv

SAVED = Path(__file__).with_name("saved_state.json")
STEPS = 400


def environments(replays: list[Path]) -> SC2ReplayVectorEnv:
    return SC2ReplayVectorEnv(replays[:4], num_envs=3, step_mul=320, minimap_size=8)


def windows(replays: list[Path]) -> Any:
    pytest.importorskip("torch", reason="needs the extra `torch`")
    from sc2gym import dataset

    return dataset.ReplayDataset(
        replays[:4], steps=8, mix=2, seed=3, epochs=None, step_mul=320, minimap_size=8
    )


def stream(envs: SC2ReplayVectorEnv) -> Iterator[Any]:
    """What the environments go on with, as plain numbers and names."""
    for _ in range(STEPS):
        _, _, terminations, truncations, infos = envs.step(np.zeros(3, np.int64))
        begun = infos.get("_replay", np.zeros(3, bool))
        yield (
            infos["game_loop"].tolist(), terminations.tolist(), truncations.tolist(),
            [Path(infos["replay"][lane]).name for lane in np.flatnonzero(begun)],
            [int(infos["player"][lane]) for lane in np.flatnonzero(begun)],
        )  # fmt: skip
    yield envs.np_random.bit_generator.random_raw(4).tolist()


def order(dataset: Any) -> Iterator[Any]:
    """Which windows come next: more than an epoch of them."""
    for window in islice(dataset, 100):
        yield int(window["episode"]), window["step"].tolist()


def digest(items: Iterator[Any]) -> str:
    return blake2b("\n".join(map(json.dumps, items)).encode(), digest_size=16).hexdigest()


def test_environments_go_on_as_under_python_3_11(pysc2_replays: list[Path]) -> None:
    saved = json.loads(SAVED.read_text())
    envs = environments(pysc2_replays)
    envs.load_state_dict(saved["environments"])
    story = list(stream(envs))
    assert sum(len(names) for *_, names, _ in story[:-1]) > 16  # over two epochs
    assert digest(iter(story)) == saved["stream"]


def test_windows_go_on_as_under_python_3_11(pysc2_replays: list[Path]) -> None:
    saved = json.loads(SAVED.read_text())
    dataset = windows(pysc2_replays)
    dataset.load_state_dict(saved["dataset"])
    assert digest(order(dataset)) == saved["order"]
    assert dataset.epoch > saved["dataset"]["epoch"]


def _save() -> None:
    from conftest import DATA

    replays = sorted((DATA / "replays" / "pysc2").glob("*.SC2Replay"))
    envs, dataset = environments(replays), windows(replays)
    envs.reset(seed=7)
    for _ in range(50):
        envs.step(np.zeros(3, np.int64))
    envs.np_random.random(5)
    list(islice(dataset, 20))
    states = {"environments": envs.state_dict(), "dataset": dataset.state_dict()}
    for replay in states["environments"]["library"]["replays"]:
        replay["name"] = Path(replay["name"]).name
    states |= {"stream": digest(stream(envs)), "order": None}
    again = windows(replays)
    again.load_state_dict(states["dataset"])
    states["order"] = digest(order(again))
    SAVED.write_text(json.dumps(states, indent=1) + "\n")


if __name__ == "__main__":
    _save()
