"""Environments that are saved, copied or pickled at any moment go on as if they had not been."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import multiprocessing
import os
import pickle
import shutil
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import sc2gym
from sc2gym import CheckpointError, ReplayError, SC2ReplayEnv, SC2ReplayVectorEnv
from sc2gym.episode import episodes
from sc2gym.library import SAMPLES, Library, Order
from sc2gym.replay import Replay
from sc2gym.state import Lane, reshard

# Large steps, so that episodes end and epochs pass.
STEP = 64
FILES = sorted(SAMPLES.glob("*.SC2Replay"))
EVERYTHING = ("minimap", "units", "player", "upgrades", "game_loop")


def same(one: Any, other: Any, where: str = "") -> None:
    """Fails unless both are equal to the bit, in types, shapes, dtypes and keys."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            same(one[key], other[key], f"{where}[{key!r}]")
    elif isinstance(one, (tuple, list)):
        assert len(one) == len(other), where
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            same(a, b, f"{where}[{index}]")
    elif isinstance(one, np.ndarray) and one.dtype != object:
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        assert one.tobytes() == other.tobytes(), where
    elif isinstance(one, np.ndarray):
        same(one.tolist(), other.tolist(), where)
    else:
        assert one == other, f"{where}: {one!r} and {other!r}"


def single(**options: Any) -> SC2ReplayEnv:
    return SC2ReplayEnv(FILES, **{"step_mul": STEP, "observe": ("player", "game_loop"), **options})


def vector(num_envs: int = 3, **options: Any) -> SC2ReplayVectorEnv:
    options = {"step_mul": STEP, "observe": ("player", "game_loop"), "prefetch": 0, **options}
    return SC2ReplayVectorEnv(FILES, num_envs=num_envs, **options)


def ahead(num_envs: int = 3, **options: Any) -> SC2ReplayVectorEnv:
    """With threads that prepare batches and decode episodes."""
    return vector(num_envs, prefetch=3, num_threads=2, **options)


def take(env: Any, steps: int) -> list[Any]:
    """What an environment gives: everything of every step, actions from its own space."""
    stream = []
    for _ in range(steps):
        if isinstance(env, SC2ReplayEnv):
            if env._episode is None or env._over:
                stream.append(env.reset())
            stream.append(copy.deepcopy(env.step(env.action_space.sample())))
        else:
            if env._current is None:
                stream.append(env.reset())
            disabled = env.metadata["autoreset_mode"] is AutoresetMode.DISABLED
            over = np.array([env._current.over(i) for i in range(env.num_envs)])
            if disabled and over.any():
                stream.append(env.reset(options={"reset_mask": over}))
            stream.append(copy.deepcopy(env.step(env.action_space.sample())))
    return stream


def by_pickle(env: Any) -> Any:
    return pickle.loads(pickle.dumps(env))


def by_cloudpickle(env: Any) -> Any:
    return pickle.loads(cloudpickle.dumps(env))


def by_json(env: Any) -> Any:
    fresh = copy_of_the_same_options(env)
    fresh.load_state_dict(json.loads(json.dumps(env.state_dict())))
    return fresh


def by_torch(env: Any) -> Any:
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save(env.state_dict(), file)
    file.seek(0)
    fresh = copy_of_the_same_options(env)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


def copy_of_the_same_options(env: Any) -> Any:
    options = {f.name: getattr(env.options, f.name) for f in dataclasses.fields(env.options)}
    return type(env)(**options, **env._arguments())


WAYS = [by_pickle, by_cloudpickle, copy.deepcopy, by_json, by_torch]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [single, vector, ahead])
def test_a_copy_gives_the_same_stream(make, way):
    env = make()
    env.reset(seed=3)
    env.action_space.seed(4)
    for steps in (0, 1, 2, 150, 83, 400):
        take(env, steps)
        copied = way(env)
        same(take(copied, 60), take(env, 60))
    copied = way(env)
    same(take(copied, 2000), take(env, 2000))


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("make", [vector, ahead])
def test_at_every_step_around_an_end(make, mode):
    envs = make(2, autoreset_mode=mode, max_episode_steps=7, order="sequential")
    envs.reset(seed=1)
    for _ in range(20):
        copied = by_pickle(envs)
        same(take(copied, 12), take(by_json(envs), 12))
        same(take(by_pickle(envs), 12), take(copy.deepcopy(envs), 12))
        before = by_pickle(envs)
        same(take(envs, 1), take(before, 1))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [single, vector, ahead])
def test_before_the_first_reset(make, way):
    # Nothing was seeded: the copy must draw the same random order and actions nevertheless.
    env = make()
    copied = way(env)
    same(take(copied, 500), take(env, 500))


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_moment_of_any_history(data):
    """Resets with and without seed, of some lanes, to a named replay, steps, and copies."""
    mode = data.draw(st.sampled_from(list(AutoresetMode)))
    make = data.draw(st.sampled_from([vector, ahead]))
    envs = make(3, autoreset_mode=mode, max_episode_steps=data.draw(st.sampled_from([None, 5])))
    envs.reset(seed=data.draw(st.integers(0, 3)))
    for _ in range(data.draw(st.integers(1, 6))):
        act = data.draw(st.sampled_from(["take", "reset", "seed", "named", "mask", "copy"]))
        if act == "take":
            take(envs, data.draw(st.integers(1, 120)))
        elif act == "reset":
            envs.reset()
        elif act == "seed":
            envs.reset(seed=data.draw(st.integers(0, 3)))
        elif act == "named":
            envs.reset(options={"replay": 3, "step": data.draw(st.integers(0, 50))})
        elif act == "mask":
            envs.reset(options={"reset_mask": np.array([True, False, True])})
        else:
            envs = data.draw(st.sampled_from(WAYS))(envs)
    copied = data.draw(st.sampled_from(WAYS))(envs)
    same(copied.observe(), envs.observe())
    same(take(copied, 150), take(envs, 150))


def _stream_of(data: bytes, steps: int, queue: Any) -> None:
    queue.put(pickle.dumps(take(pickle.loads(data), steps)))


@pytest.mark.parametrize("make", [single, vector, ahead])
def test_in_another_process(make):
    env = make(observe=EVERYTHING, max_units=100)
    env.reset(seed=3)
    take(env, 230)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_stream_of, args=(pickle.dumps(env), 300, queue))
    process.start()
    stream = pickle.loads(queue.get(timeout=60))
    process.join()
    assert process.exitcode == 0
    same(stream, take(env, 300))


def test_under_another_depth_and_number_of_threads():
    envs = ahead(5)
    envs.reset(seed=2)
    for steps in (0, 1, 90, 333):
        take(envs, steps)
        state = envs.state_dict()
        stream = take(envs, 300)
        for prefetch, num_threads in ((0, 1), (1, 1), (8, 4)):
            other = vector(5, prefetch=prefetch, num_threads=num_threads)
            other.load_state_dict(state)
            same(take(other, 300), stream)
            other.close()


def test_between_rollouts():
    envs, plain = ahead(), vector()
    for each in (envs, plain):
        each.reset(seed=2)
    for steps in (5, 64, 200):
        copied = by_pickle(envs)
        one, other, third = (each.rollout(steps) for each in (envs, copied, plain))
        same(vars(one), vars(other))
        same(vars(one), vars(third))
        envs = by_json(envs)
    always = np.zeros(3, np.int64)
    rolled = by_json(envs).rollout(50, policy=lambda observations: always)
    same(rolled.rewards, np.stack([envs.step(always)[1] for _ in range(50)]))


def test_closed_and_never_opened_ones_are_copied_too():
    envs = ahead()
    envs.reset(seed=0)
    take(envs, 10)
    stream = take(by_pickle(envs), 50)
    envs.close()
    same(take(by_pickle(envs), 50), stream)
    same(take(copy.deepcopy(envs), 50), stream)


def test_all_observations_and_rewards_go_on():
    options = {"observe": EVERYTHING, "max_units": 64, "reward": "score", "player": "winner"}
    envs = vector(4, **options)
    envs.reset(seed=0)
    take(envs, 333)
    same(take(by_pickle(envs), 400), take(envs, 400))


def test_wrapped_environments_are_copied_whole():
    env = gymnasium.wrappers.RecordEpisodeStatistics(
        gymnasium.wrappers.TimeLimit(single(), max_episode_steps=50)
    )
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(30):
        env.step(env.action_space.sample())
    copied = by_pickle(env)
    for _ in range(20):
        one, other = env.step(env.action_space.sample()), copied.step(copied.action_space.sample())
        one[4].get("episode", {}).pop("t", None)  # the time it took
        other[4].get("episode", {}).pop("t", None)
        same(one, other)
    assert "episode" in one[4] and one[4]["episode"]["l"] == 50


def test_side_by_side_ones_are_copied_too():
    def make() -> SyncVectorEnv:
        shards = [lambda i=i: single(shard=(i, 2)) for i in range(2)]
        return SyncVectorEnv(shards)

    envs = make()
    envs.reset(seed=1)
    actions = np.zeros((500, 2), np.int64)
    for action in actions[:300]:
        envs.step(action)
    others = make()
    others.reset(seed=9)
    for env, other in zip(envs.envs, others.envs, strict=True):
        other.load_state_dict(env.state_dict())
    others._autoreset_envs = envs._autoreset_envs.copy()
    for action in actions:
        same(envs.step(action), others.step(action))


def test_states_go_between_kinds_of_environments():
    """Lane 1 of 3 is the single environment of that shard."""
    envs = vector(3)
    envs.reset(seed=5)
    take(envs, 100)
    lane = single(shard=(1, 3))
    lane.load_state_dict([envs.state_dict()])
    observation, info = lane.observe()
    for _ in range(50):
        batch, *_, infos = envs.step(np.zeros(3, np.int64))
        observation, *_, info = lane.step(0)
        same(observation, {key: array[1] for key, array in batch.items()})
        assert info["expert_action"] == infos["expert_action"][1]


# Small


@pytest.mark.parametrize("make", [single, vector])
def test_pickles_are_small(make):
    env = make(observe=EVERYTHING)
    env.reset(seed=0)
    take(env, 100)
    assert len(pickle.dumps(env)) < 16_000
    assert len(json.dumps(env.state_dict())) < 32_000
    assert len(pickle.dumps(env.library)) < 4_000
    assert len(pickle.dumps(env.library.episode(0))) < 1_000


def test_a_state_is_plain():
    def check(value: Any, where: str) -> None:
        assert type(value) in (int, float, str, bool, list, dict, type(None)), where
        if isinstance(value, dict):
            for key, item in value.items():
                assert type(key) is str, where
                check(item, f"{where}[{key}]")
        elif isinstance(value, list):
            for item in value:
                check(item, where)

    for env in (single(), vector()):
        check(env.state_dict(), "")
        env.reset(seed=3)
        env.np_random = np.random.Generator(np.random.MT19937(0))
        env.action_space._np_random = np.random.Generator(np.random.Philox(0))
        take(env, 10)
        check(env.state_dict(), "")
        same(take(by_json(env), 10), take(env, 10))


def test_a_state_is_a_moment():
    envs = vector()
    envs.reset(seed=0)
    take(envs, 10)
    state = envs.state_dict()
    frozen = copy.deepcopy(state)
    stream = take(envs, 500)
    assert state == frozen
    envs.load_state_dict(state)
    same(take(envs, 500), stream)
    assert state == frozen


def test_observe_is_what_was_shown_last():
    for env in (single(), vector(), vector(copy=False)):
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.observe()
        same(env.reset(seed=0), env.observe())
        shown = take(env, 100)[-1][0]
        shown = copy.deepcopy(shown)
        same(env.observe()[0], shown)
        same(env.observe(), by_pickle(env).observe())
        stream = take(by_pickle(env), 200)
        env.observe()
        same(take(by_pickle(env), 200), stream)
        same(env.step(by_pickle(env).action_space.sample())[0], stream[0][0])


# Replays, episodes, libraries


def test_replays_and_episodes(pysc2_replays):
    for path in [*FILES[:2], pysc2_replays[0]]:
        for source in (path, path.read_bytes()):
            replay = Replay.open(source)
            for way in (by_pickle, copy.deepcopy, by_cloudpickle):
                other = way(replay)
                assert other.content_hash == replay.content_hash and other.name == replay.name
                assert other.players == replay.players
                for episode in episodes(replay, step_mul=STEP):
                    again = way(episode)
                    assert again.info() == episode.info() and again.player == episode.player
                    same(again.game_loops, episode.game_loops)
                    same(again.expert_actions, episode.expert_actions)
                    same(again.score, episode.score)


def test_libraries():
    library = Library(FILES, step_mul=STEP, player="winner")
    for way in (by_pickle, copy.deepcopy, by_cloudpickle):
        other = way(library)
        assert [other.name(i) for i in range(len(other))] == [
            library.name(i) for i in range(len(library))
        ]
        assert repr(other) == repr(library)
        same(other.episode(1).expert_actions, library.episode(1).expert_actions)
    assert by_pickle(Library([FILES[0].read_bytes()])).episode(0).name.startswith("bytes:")


# Files that move and change


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    folder.mkdir()
    for file in FILES[:3]:
        shutil.copy(file, folder)
    return folder


def test_moved_files_are_found_by_their_contents(folder, tmp_path):
    envs = SC2ReplayVectorEnv(folder, num_envs=2, step_mul=STEP)
    envs.reset(seed=0)
    for _ in range(50):
        envs.step(np.zeros(2, np.int64))
    data, state = pickle.dumps(envs), envs.state_dict()
    replay, episode = pickle.dumps(Replay.open(folder / FILES[0].name)), pickle.dumps(
        envs.library.episode(0)
    )  # fmt: skip
    expected = [envs.step(np.zeros(2, np.int64)) for _ in range(600)]
    # Elsewhere, and with names that sort the other way round.
    new = tmp_path / "new" / "deep"
    new.mkdir(parents=True)
    for number, file in enumerate(sorted(folder.iterdir())):
        file.rename(new / f"{9 - number}.SC2Replay")
    for saved in (data, replay, episode):
        with (
            sc2gym.relocate(tmp_path / "old"),
            pytest.raises(ReplayError, match=r"is gone; .*sc2gym\.relocate"),
        ):
            pickle.loads(saved)
    with sc2gym.relocate(tmp_path / "new"):
        copied = pickle.loads(data)
        assert pickle.loads(replay).name == str(new / "9.SC2Replay")
        assert pickle.loads(episode).name == str(new / "9.SC2Replay")
    fresh = SC2ReplayVectorEnv(new, num_envs=2, step_mul=STEP)
    fresh.load_state_dict(state)
    elsewhere = SC2ReplayVectorEnv(FILES[3:], num_envs=2, step_mul=STEP)
    with pytest.raises(CheckpointError, match=r"not among the replays; say where.*relocate="):
        elsewhere.load_state_dict(state)
    with pytest.warns(UserWarning, match="left out 6 episodes that were not there"):
        elsewhere.load_state_dict(state, relocate=tmp_path / "new")
    for step in expected:
        for env in (copied, fresh, elsewhere):
            got = env.step(np.zeros(2, np.int64))
            same(got[:4], step[:4])


def test_changed_files_are_told_of(folder):
    library = Library(folder, step_mul=STEP)
    state = library.state_dict()
    saved = [pickle.dumps(each) for each in (library, library.episode(0))]
    shutil.copy(FILES[4], folder / FILES[0].name)
    for data in saved:
        with pytest.raises(ReplayError, match=f"{FILES[0].name}: the file has changed"):
            pickle.loads(data)
    changed = Library(folder, step_mul=STEP)
    with pytest.raises(CheckpointError, match=f"{FILES[0].name}: the file has changed since"):
        changed.load_state_dict(state)


def test_touched_files_are_the_same(folder):
    library = Library(folder, step_mul=STEP)
    data = pickle.dumps(library)
    for file in folder.iterdir():
        os.utime(file, (1, 1))
    assert pickle.loads(data).state_dict() == library.state_dict()


def test_more_files_than_before_are_left_out(folder):
    envs = SC2ReplayVectorEnv(folder, num_envs=2, step_mul=STEP)
    envs.reset(seed=0)
    state = envs.state_dict()
    more = SC2ReplayVectorEnv(FILES, num_envs=2, step_mul=STEP)
    with pytest.warns(UserWarning, match="left out 6 episodes"):
        more.load_state_dict(state)
    more.action_space.seed(0)
    envs.action_space.seed(0)
    one, other = take(envs, 400), take(more, 400)
    same([step[:4] for step in one], [step[:4] for step in other])


def test_the_same_replay_under_several_names(tmp_path):
    for name in "abc":
        shutil.copy(FILES[0], tmp_path / f"{name}.SC2Replay")
    library = Library(tmp_path, step_mul=STEP)
    state = library.state_dict()
    (tmp_path / "b.SC2Replay").rename(tmp_path / "z.SC2Replay")
    other = Library(tmp_path, step_mul=STEP)
    other.load_state_dict(state)
    names = [Path(other.name(i)).stem for i in range(len(other))]
    assert names == ["a", "a", "z", "z", "c", "c"]


# What is refused


def test_states_that_do_not_fit():
    envs = vector(2)
    envs.reset(seed=0)
    take(envs, 50)
    good = envs.state_dict()
    lane = good["lanes"][0]
    bad: list[tuple[Any, str]] = [
        (good | {"version": 2}, "is of version 2.*reads up to 1: a newer one"),
        (good | {"library": good["library"] | {"version": 9}}, "library's state is of version 9"),
        (good | {"library": good["library"] | {"step_mul": 8}}, "saved with step_mul=8, not 64"),
        (good | {"library": good["library"] | {"replays": []}}, "no episodes"),
        (good | {"order": good["order"] | {"count": 5}}, "order is of 5 episodes"),
        (good | {"order": good["order"] | {"seed": -1}}, "must not be negative"),
        (good | {"order": 3}, "not the state"),
        (good | {"lanes": good["lanes"][:1]}, "not as many"),
        (good | {"lanes": [lane, lane | {"position": -5}]}, "nowhere"),
        (good | {"lanes": [lane, lane | {"index": 12}]}, "no episode 12"),
        (good | {"lanes": [lane, lane | {"index": -1}]}, "no episode -1"),
        (good | {"lanes": [lane, lane | {"step": 10**6}]}, "no step 1000000"),
        (good | {"lanes": [lane, lane | {"step": 2**40}]}, "no step"),
        (good | {"lanes": [lane, lane | {"elapsed": 2**40}]}, "not the state|no step"),
        (good | {"lanes": [lane, lane | {"length": 3}]}, "when it was saved 3"),
        (good | {"lanes": [lane, lane | {"waiting": [[99, 0, 0]]}]}, "no step 0 of episode 99"),
        (good | {"lanes": [lane, lane | {"waiting": [[1]]}]}, "not the state"),
        (good | {"lanes": [lane, {}]}, "not the state"),
        (good | {"np_random": {"bit_generator": "system"}}, "no bit generator 'system'"),
        (good | {"np_random": {"bit_generator": "PCG64"}}, "not the state"),
        (good | {"spaces": [1, 2, 3, 4]}, "not the state"),
        ({"version": 1, "shard": [0, 1], "num_envs": 1}, "not the state"),
        ({}, "has no version"),
        ([], "no state in the list"),
        ([3], "has no version"),
        ({"version": 1}, "not the state"),
        ({"version": "one"}, "not the state"),
        ([good, good], "takes a list with the states of all ranks, once each, not 2 lanes"),
    ]
    expected = take(by_pickle(envs), 100)
    for state, match in bad:
        with pytest.raises(CheckpointError, match=match):
            envs.load_state_dict(state)
        # And nothing has happened to the environment.
        same(take(by_pickle(envs), 100), expected)


def test_lanes_that_are_nowhere_near_each_other():
    envs = vector(3)
    envs.reset(seed=0)
    state = envs.state_dict()
    state["lanes"][1]["position"] = 10**18 + 1
    other = vector(2)
    other.reset(seed=1)
    with pytest.raises(CheckpointError, match="too far apart"):
        other.load_state_dict(state)
    # In as many lanes it is a state like any other.
    envs.load_state_dict(state)
    take(envs, 600)


def test_an_episode_in_progress_that_is_damaged_now(folder, monkeypatch):
    for make in (SC2ReplayEnv, SC2ReplayVectorEnv):
        env, other = make(folder, step_mul=STEP), make(folder, step_mul=STEP)
        env.reset(seed=0)
        other.reset(seed=1)
        take(other, 10)
        stream = take(by_pickle(other), 100)

        def damaged(index: int) -> Any:
            raise ReplayError("damaged")

        with monkeypatch.context() as patch:
            patch.setattr(other.library, "episode", damaged)
            with pytest.raises(CheckpointError, match="in progress cannot go on: damaged"):
                other.load_state_dict(env.state_dict())
        same(take(other, 100), stream)


def test_a_path_in_a_state_is_never_opened(tmp_path, monkeypatch):
    envs = vector(2)
    envs.reset(seed=0)
    state = envs.state_dict()
    for about in state["library"]["replays"]:
        about["name"] = "/../../etc/passwd"
    monkeypatch.setattr(os, "open", lambda *a, **k: pytest.fail("opened"))
    fresh = vector(2)
    fresh.load_state_dict(state)
    assert all("passwd" not in fresh.library.name(i) for i in range(len(fresh.library)))


# Another number of lanes and ranks


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_resharding_loses_and_repeats_nothing(data):
    """Lanes draw in any pattern, and are dealt out again and again."""
    order = Order(data.draw(st.integers(1, 12)), seed=1)
    count = data.draw(st.integers(1, 6))
    lanes = [Lane(number) for number in range(count)]
    begun: list[int] = []
    progress: Counter[tuple[int, int]] = Counter()  # those in progress, by episode and step

    def advance(number: int) -> None:
        lane = lanes[number]
        if lane.waiting:
            (index, step, elapsed), *rest = lane.waiting
            lane = dataclasses.replace(lane, waiting=tuple(rest))
        else:
            begun.append(order.number(lane.position))
            index, step, elapsed = order[lane.position], len(begun), 0
            lane = dataclasses.replace(lane, position=lane.position + count)
        lanes[number] = dataclasses.replace(
            lane, index=index, step=step, elapsed=elapsed, over=False
        )

    for _ in range(data.draw(st.integers(1, 4))):
        # Where lanes are when anyone can see them: in an episode, or at its end.
        for number in range(count):
            if lanes[number].index is None:
                advance(number)
        for number in data.draw(st.lists(st.integers(0, count - 1), max_size=30)):
            advance(number)
        for number in data.draw(st.sets(st.integers(0, count - 1))):
            lanes[number] = dataclasses.replace(lanes[number], over=True)
        progress = Counter(
            [(lane.index, lane.step) for lane in lanes if not lane.over]
            + [(index, step) for lane in lanes for index, step, _ in lane.waiting]
        )
        count = data.draw(st.integers(1, 6))
        order, lanes = reshard(order, lanes, count)
        assert len(lanes) == count
        dealt = Counter((index, step) for lane in lanes for index, step, _ in lane.waiting)
        assert dealt == progress
        sizes = [len(lane.waiting) for lane in lanes]
        assert max(sizes) - min(sizes) <= 1
    # From here on in step: all numbers up to the last are begun, each once.
    while min(lane.position for lane in lanes) < len(order.backlog) + 2 * count:
        for number in range(count):
            advance(number)
    assert len(set(begun)) == len(begun)
    end = order.number(min(lane.position for lane in lanes))
    assert set(range(end)) <= set(begun)


class _Starts:
    """Which episodes begin, and which go on, as the infos of environments tell."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []
        self.ended = 0

    def see(self, infos: dict[str, Any]) -> None:
        for lane in np.flatnonzero(infos.get("_replay", [])):
            if infos["game_loop"][lane] == 0:
                self.begun.append((infos["replay"][lane], int(infos["player"][lane])))


@pytest.mark.parametrize(
    ("before", "after"),
    [((4, 1), (3, 1)), ((2, 2), (5, 1)), ((3, 1), (2, 3)), ((5, 1), (1, 2)), ((1, 1), (4, 2))],
)
def test_elastic(before, after):
    """Twelve episodes, saved amid the first epoch and taken up by others to beyond the second."""

    def make(lanes: int, world: int) -> list[SC2ReplayVectorEnv]:
        return [vector(lanes, shard=(rank, world)) for rank in range(world)]

    def step(all_envs: list[SC2ReplayVectorEnv], steps: int, starts: _Starts) -> None:
        for _ in range(steps):
            for envs in all_envs:
                *_, infos = envs.step(np.zeros(envs.num_envs, np.int64))
                starts.see(infos)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, second = make(*before), make(*after)
    starts = _Starts()
    for envs in first:
        starts.see(envs.reset(seed=7)[1])
    step(first, 260, starts)
    states = [json.loads(json.dumps(envs.state_dict())) for envs in first]
    in_progress = {
        (info["replay"][lane], info["player"][lane], info["game_loop"][lane])
        for envs in first
        for info in [envs.observe()[1]]
        for lane in range(envs.num_envs)
        if not envs._current.over(lane)
    }
    went_on = set()
    for envs in second:
        envs.load_state_dict(states)
        infos = envs.observe()[1]
        starts.see(infos)
        for lane in range(envs.num_envs):
            about = infos["replay"][lane], infos["player"][lane], infos["game_loop"][lane]
            if infos["game_loop"][lane]:
                went_on.add(about)
    # Those that found no lane at once come later, at the step where they were.
    waiting = [
        (second[0].library.episode(index), at)
        for envs in second
        for _, _, _, rest in envs._current.drawn
        for index, at, _ in rest
    ]
    later = {(e.name, e.player.player_id, e.game_loops[at]) for e, at in waiting}
    assert went_on | later == in_progress and not went_on & later
    assert len(went_on) == min(len(in_progress), after[0] * after[1])
    # Ends are far from each other; the sequence says what has to have begun by then.
    order = second[0]._order
    assert order is not None
    while order.number(min(_positions(second))) < 2 * order.count:
        step(second, 50, starts)
    counted = Counter(starts.begun)
    assert len(counted) == order.count == 12
    # By then every lane is beyond the second epoch: twice each, and what is begun of the third.
    assert min(counted.values()) >= 2
    furthest = max(_positions(second))
    assert sum(counted.values()) <= order.number(furthest)
    expected = Counter()
    plain = Order(order.count, order.seed, order.shuffle)
    lanes = after[0] * after[1]
    for lane, position in enumerate(_positions(second)):
        expected.update(order.number(place) for place in range(lane, position, lanes))
    begun_before = set(range(order.number(furthest))) - {
        order.number(place) for place in range(furthest)
    }
    expected.update(begun_before)
    names = Counter()
    for number in expected:
        episode = second[0].library.episode(plain[number])
        names[episode.name, episode.player.player_id] += 1
    assert names == counted and set(expected.values()) == {1}


def _positions(all_envs: list[SC2ReplayVectorEnv]) -> list[int]:
    return [position for envs in all_envs for _, _, position, _ in envs._current.drawn]


def test_elastic_needs_all_ranks():
    states = []
    for rank in range(2):
        envs = vector(2, shard=(rank, 2))
        envs.reset(seed=1)
        states.append(envs.state_dict())
    other = vector(3)
    with pytest.raises(CheckpointError, match="states of all ranks, once each, not 2 lanes of"):
        other.load_state_dict(states[0])
    with pytest.raises(CheckpointError, match="once each, not 2 lanes of rank 0 of 2, 2 lanes of"):
        other.load_state_dict([states[0], states[0]])
    third = vector(2, shard=(1, 2))
    third.reset(seed=2)
    with pytest.raises(CheckpointError, match="not of one run"):
        other.load_state_dict([states[0], third.state_dict()])
    other.load_state_dict(states[::-1])
    # Where nothing has changed each rank finds its own.
    second = vector(2, shard=(1, 2))
    second.load_state_dict(states)
    assert second.state_dict() == states[1]


# With everything else, in one file


def test_a_checkpoint_of_environments_and_agent(tmp_path):
    torch = pytest.importorskip("torch")
    from sc2gym import checkpoint

    def run(steps: int, resume: bool = False, stop: int | None = None) -> list[float]:
        torch.manual_seed(0)
        envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(
            gymnasium.wrappers.vector.NormalizeReward(vector(3))
        )
        model = torch.nn.Linear(11, 4)
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        first, losses = 0, []  # and the returns of episodes, as they end
        if resume:
            loaded = checkpoint.load(tmp_path, envs=envs, model=model, optimizer=optimizer)
            first, losses = loaded.step, list(loaded.extra["losses"])
            observations, infos = envs.unwrapped.observe()
        else:
            observations, infos = envs.reset(seed=0)
        for step in range(first, steps):
            if step == stop:
                parts = {"envs": envs, "model": model, "optimizer": optimizer}
                checkpoint.save(tmp_path, **parts, step=step, losses=losses)
                return losses
            expert = torch.from_numpy(infos["expert_action"]) % 4
            logits = model(torch.from_numpy(observations["player"]).float() / 1000)
            loss = torch.nn.functional.cross_entropy(logits, expert)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            actions = torch.multinomial(logits.detach().softmax(1), 1)[:, 0].numpy()
            observations, rewards, *_, infos = envs.step(actions)
            losses += [*rewards.tolist(), *infos.get("episode", {"r": np.zeros(0)})["r"].tolist()]
        return losses

    whole = run(250)
    run(250, stop=123)
    run(250, resume=True, stop=124)
    run(250, resume=True, stop=190)
    assert run(250, resume=True) == whole
    with pytest.raises(CheckpointError, match="envs is of the class SC2ReplayVectorEnv, not SC2R"):
        checkpoint.load(tmp_path, envs=single())


def test_the_state_of_wrappers_is_saved(tmp_path):
    pytest.importorskip("torch")
    from sc2gym import checkpoint

    wrappers = gymnasium.wrappers

    def make(stack: int = 3) -> gymnasium.Env:
        env = wrappers.RecordEpisodeStatistics(wrappers.TimeLimit(single(observe="player"), 40))
        env = wrappers.FrameStackObservation(wrappers.NormalizeObservation(env), stack)
        return wrappers.NormalizeReward(env)

    env, other = make(), make()
    env.reset(seed=0)
    other.reset(seed=1)
    for _ in range(57):
        if env.step(0)[2:4] != (False, False):
            env.reset()
    checkpoint.save(tmp_path, envs=env)
    checkpoint.load(tmp_path, envs=other)
    ends = 0
    for _ in range(200):
        one, two = env.step(1), other.step(1)
        for info in (one[4], two[4]):
            ends += "episode" in info
            info.get("episode", {}).pop("t", None)  # the time it took
        same(one, two)
        if one[2] or one[3]:
            same(env.reset(), other.reset())
    assert ends >= 8
    # Others than were saved, or made otherwise, are told of and left as they are.
    with pytest.warns(UserWarning, match=r"FrameStackObservation\.obs_queue is of another size"):
        checkpoint.load(tmp_path, envs=make(4))
    with pytest.warns(UserWarning, match="saved with the wrappers .*FrameStack.*now they are"):
        checkpoint.load(tmp_path, envs=single(observe="player"))
