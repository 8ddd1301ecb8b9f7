"""Windows for training: complete, disjoint, sharded, and resumed to the bit."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from collections import Counter
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from sc2gym import Library, Order, SC2ReplayEnv, checkpoint, library
from sc2gym.dataset import ReplayDataset

# torchdata 0.11 asks torch for something that is on its way out.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

OBSERVE = ("minimap", "units", "player")


def make(**options):
    defaults = {"steps": 16, "minimap_size": 8, "step_mul": 64}
    return ReplayDataset(**defaults | options)


def same(first, second):
    """Whether two windows, or batches of them, are equal to the bit."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    return first.dtype == second.dtype and torch.equal(first, second)


def all_same(first, second):
    first, second = list(first), list(second)
    return len(first) == len(second) > 0 and all(map(same, first, second))


def trained(windows):
    """How often each (episode, step) is trained on."""
    return Counter(
        (int(window["episode"]), step)
        for window in windows
        for step in window["step"][window["mask"]].tolist()
    )


def everything(dataset):
    library = dataset.library
    lengths = [len(library.episode(index)) for index in range(len(library))]
    return Counter((index, step) for index, n in enumerate(lengths) for step in range(n))


@pytest.mark.parametrize("order", ["shuffle", "sequential"])
@pytest.mark.parametrize("burn_in", [0, 5])
def test_an_epoch_is_every_step_once(order, burn_in):
    dataset = make(order=order, burn_in=burn_in, mix=2)
    assert trained(dataset) == everything(dataset)
    assert set(everything(dataset).values()) == {1}


def test_windows_hold_what_the_environment_shows():
    dataset = make(observe=OBSERVE, burn_in=3, successor=True, history=4)
    env = SC2ReplayEnv(observe=OBSERVE, minimap_size=8, step_mul=64)
    for window in islice(dataset, 12):
        index, steps = int(window["episode"]), window["step"].tolist()
        real = [row for row, step in enumerate(steps) if step >= 0]
        assert [steps[row] for row in real] == list(range(steps[real[0]], steps[real[-1]] + 1))
        begin = steps[real[0]]
        observation, info = env.reset(options={"replay": index, "step": begin})
        for row in real:
            seen = {key: value[row].numpy() for key, value in window["observations"].items()}
            for key, value in observation.items():
                np.testing.assert_array_equal(seen[key], value)
            assert window["actions"][row] == info["expert_action"]
            assert bool(window["first"][row]) == (steps[row] == 0)
            observation, reward, terminated, _, info = env.step(info["expert_action"])
            assert window["rewards"][row] == reward
            assert bool(window["terminated"][row]) == terminated
        for key, value in observation.items():  # the successor of the last step
            np.testing.assert_array_equal(window["observations"][key][real[-1] + 1].numpy(), value)


def test_previous_actions_are_those_before_and_never_the_present_one():
    for window in islice(make(history=3, steps=64, step_mul=8), 30):
        episode = Library(step_mul=8).episode(int(window["episode"]))
        for row, step in enumerate(window["step"].tolist()):
            if step < 0:
                continue
            before = [(s, a) for s, a in enumerate(episode.expert_actions[:step].tolist()) if a]
            newest = [action for _, action in reversed(before)][:3]
            assert window["previous_actions"][row].tolist() == newest + [0] * (3 - len(newest))
            loops = episode.game_loops
            since = loops[step] - (loops[before[-1][0]] if before else 0)
            assert window["since_action"][row].item() == pytest.approx(
                since / episode.loops_per_second, rel=1e-6
            )


def test_padding_is_zero_and_not_trained_on():
    padded = 0
    for window in make(burn_in=4, steps=50):
        padding = window["step"] < 0
        padded += int(padding.sum())
        assert not window["mask"][padding].any()
        for key in ("actions", "rewards", "first", "terminated", "observations"):
            assert not window[key][padding].any()
        assert not window["mask"][:4].any()
    assert padded


def test_rewards_are_those_of_the_option():
    library = Library(step_mul=64)
    for reward, whole in (
        ("outcome", lambda episode: episode.outcome),
        ("score", lambda episode: float(episode.score[-1] - episode.score[0])),
        (lambda episode, step, action: step + 1000 * action, None),
    ):
        total = Counter()
        for window in make(reward=reward):
            total[int(window["episode"])] += window["rewards"][window["mask"]].double().sum().item()
            if whole is None:
                steps, actions = window["step"], window["actions"]
                expected = torch.where(window["mask"], steps + 1000 * actions, 0)
                assert torch.equal(window["rewards"].long(), expected)
        if whole is not None:
            for index, value in total.items():
                assert value == pytest.approx(whole(library.episode(index)))


def test_bare_observations_and_short_episodes():
    dataset = make(max_episode_steps=20)
    windows = list(dataset)
    assert windows[0]["observations"].shape == (16, *dataset.observation_space.shape)
    assert windows[0]["observations"].dtype == torch.uint8
    assert max(step for _, step in trained(windows)) == 19


# Order


def test_order_is_a_function_of_seed_and_epoch():
    first, second = make(seed=3), make(seed=3)
    assert all_same(first, second)
    assert all_same(first, second)  # the second epoch
    assert first.epoch == second.epoch == 1
    other = make(seed=3)
    other.set_epoch(1)
    assert all_same(other, list(first) and _epoch(seed=3, epoch=1))
    assert not all_same(_epoch(seed=3, epoch=0), _epoch(seed=3, epoch=1))
    assert not all_same(_epoch(seed=3, epoch=0), _epoch(seed=4, epoch=0))


def _epoch(*, epoch, **options):
    dataset = make(**options)
    dataset.set_epoch(epoch)
    return list(dataset)


def test_episodes_come_in_the_order_of_the_library():
    dataset = make(mix=1, seed=5)
    came = list(dict.fromkeys(int(window["episode"]) for window in dataset))
    order = Order(len(dataset.library), 5)
    assert came == [order[k] for k in range(len(dataset.library))]


def test_windows_are_shuffled_over_replays_and_time():
    windows = [(int(w["episode"]), int(w["step"].max())) for w in make()]
    episodes = [episode for episode, _ in windows]
    changes = sum(a != b for a, b in pairwise(episodes))
    assert changes > len(windows) / 3
    rising = sum(a < b for (_, a), (_, b) in pairwise(windows))
    assert 0.25 < rising / len(windows) < 0.75


def test_left_half_way_an_epoch_begins_again():
    dataset = make()
    half = list(islice(dataset, 7))
    assert all_same(half, islice(dataset, 7))


def test_no_end():
    once = [*_epoch(seed=0, epoch=0), *_epoch(seed=0, epoch=1), *_epoch(seed=0, epoch=2)]
    assert all_same(islice(make(epochs=None), len(once)), once)
    assert all_same(make(epochs=3), once)


# Shards


@pytest.mark.parametrize("world", [2, 3, 5])
def test_ranks_share_an_epoch(world):
    shares = [trained(make(shard=(rank, world), seed=2)) for rank in range(world)]
    assert sum(shares, Counter()) == everything(make())


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_share_an_epoch(workers):
    shares = []
    for rank in range(2):
        dataset = make(shard=(rank, 2), seed=2)
        shares.append(trained(DataLoader(dataset, batch_size=None, num_workers=workers)))
    assert sum(shares, Counter()) == everything(make())


def test_workers_that_stay_go_on_to_the_next_epoch():
    loader = DataLoader(make(), batch_size=4, num_workers=2, persistent_workers=True)
    first, second = list(loader), list(loader)
    assert not all_same(first, second)
    dataset = make()
    dataset.set_epoch(1)
    assert all_same(second, DataLoader(dataset, batch_size=4, num_workers=2))


def test_more_shards_than_episodes():
    count = len(Library())
    with pytest.warns(UserWarning, match="some have none"):
        assert list(make(shard=(count, count + 1))) == []


# Saving


def test_resumed_at_any_moment():
    whole = list(make(epochs=2, mix=2))
    running = make(epochs=2, mix=2)
    states = [running.state_dict()]
    for _ in running:
        states.append(running.state_dict())
    assert len(states) == len(whole) + 1
    per_epoch = len(whole) // 2
    for moment in range(0, len(states), 7):
        resumed = make(epochs=1, mix=2)
        resumed.load_state_dict(json.loads(json.dumps(states[moment])))
        end = per_epoch if moment <= per_epoch else 2 * per_epoch
        rest = list(resumed)
        expected = whole[moment:end] if moment < end else []
        assert len(rest) == len(expected) and all(map(same, rest, expected))


def test_resumed_at_an_epochs_end_then_comes_the_next():
    dataset = make()
    first = list(dataset)
    resumed = make()
    resumed.load_state_dict(dataset.state_dict())
    assert list(resumed) == []
    assert all_same(resumed, _epoch(seed=0, epoch=1)) and first


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("moment", [1, 5, 11])
def test_resumed_through_a_stateful_loader(workers, moment):
    def loader():
        return StatefulDataLoader(make(epochs=None), batch_size=3, num_workers=workers)

    whole = list(islice(loader(), 20))
    stopped = loader()
    list(islice(batches := iter(stopped), moment))
    state = pickle.loads(pickle.dumps(stopped.state_dict()))
    del batches
    resumed = loader()
    resumed.load_state_dict(state)
    assert all_same(islice(resumed, 20 - moment), whole[moment:])


def test_an_epoch_through_a_stateful_loader_ends():
    def loader():
        return StatefulDataLoader(make(), batch_size=3, num_workers=2)

    whole = list(loader())
    for moment in (2, len(whole) - 1):
        stopped = loader()
        list(islice(iter(stopped), moment))
        resumed = loader()
        resumed.load_state_dict(stopped.state_dict())
        assert all_same(resumed, whole[moment:])


@pytest.mark.parametrize("steps", [64, 50])
def test_a_plain_loop_over_epochs_is_resumed_with_its_random_numbers(steps, tmp_path):
    # The loop of anyone who trains: it draws random numbers between batches, a checkpoint may be
    # taken after any of them, and the DataLoader draws one as well whenever it begins.
    file, stopped = tmp_path / "at.pt", object()

    def train(stop_after=None):
        torch.manual_seed(0)
        dataset, losses, begun = make(steps=steps, replays=library.find()[:3]), [], 0
        if stop_after is None and file.exists():
            found = checkpoint.load(file, dataset=dataset)
            losses, begun = list(found.extra["losses"]), found.extra["epoch"]
        for epoch in range(begun, 2):
            for batch in DataLoader(dataset, 3):
                drawn = torch.rand(()).item() + random.random() + np.random.rand()  # noqa: NPY002
                losses.append((batch["step"].sum().item(), drawn))
                if len(losses) == stop_after:
                    checkpoint.save(file, dataset=dataset, losses=losses, epoch=epoch)
                    return stopped
        return losses

    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    expected = train()
    for moment in range(1, len(expected) + 1):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        assert train(moment) is stopped
        random.seed(1)
        assert train() == expected, f"stopped after batch {moment} of {len(expected)}"


def test_only_the_draw_of_a_loader_is_taken_back():
    dataset = make()
    running = iter(dataset)
    next(running)
    resumed = make()
    for draws in (0, 3):
        resumed.load_state_dict(dataset.state_dict())
        torch.rand(draws)
        before = torch.get_rng_state()
        next(iter(resumed))
        assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("before", [0, 9])
def test_pickled_it_goes_on(before):
    dataset = make(epochs=None, observe=OBSERVE)
    running = iter(dataset)
    list(islice(running, before))
    copy = pickle.loads(pickle.dumps(dataset))
    assert all_same(islice(copy, 12), islice(running, 12))


def test_states_of_others_are_refused():
    state = make().state_dict()
    for change in (
        {"seed": 1}, {"steps": 8}, {"mix": 3}, {"shard": (0, 2)}, {"order": "sequential"},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="but here it is"):
            make(**change).load_state_dict(state)
    with pytest.raises(ValueError, match="version 2"):
        make().load_state_dict(state | {"version": 2})
    with pytest.raises(ValueError, match="not a state"):
        make().load_state_dict({"version": 1})
    for bad in (-1, "x", None, 1.5):
        with pytest.raises(ValueError, match="windows"):
            make().load_state_dict(state | {"windows": bad})


@pytest.mark.parametrize(
    "option",
    [{"steps": 0}, {"burn_in": -1}, {"mix": 0}, {"seed": -1}, {"epochs": 0}, {"steps": 1.5}],
)
def test_absurd_options(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        make(**option)


def test_unknown_options_are_named():
    with pytest.raises(TypeError, match="burn_in"):
        make(burnin=3)


def test_bad_replays_are_passed_over(tmp_path):
    sample = next(iter(Library()._episodes))[0].source
    whole = sample.read_bytes()
    (tmp_path / "a.SC2Replay").write_bytes(whole)
    (tmp_path / "b.SC2Replay").write_bytes(b"no replay")
    with pytest.warns(UserWarning, match="skipped"):
        dataset = make(replays=tmp_path)
    assert trained(dataset) == everything(dataset)


def test_without_torch_the_error_names_the_extra():
    code = "import sys; sys.modules['torch'] = None; import sc2gym; import sc2gym.dataset"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "sc2gym[torch]" in ended.stderr


def test_real_replays(pysc2_replays):
    dataset = ReplayDataset(pysc2_replays[:3], steps=64, burn_in=1, minimap_size=8)
    assert trained(dataset) == everything(dataset)
