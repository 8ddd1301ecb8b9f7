"""The vector environment: the same as single ones side by side, to the bit, and safe memory."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as vector_wrappers

from sc2gym._fast.batch import Rules, Slot
from sc2gym._fast.frame import Frames
from sc2gym.env import SC2ReplayEnv
from sc2gym.library import SAMPLES
from sc2gym.vector import SC2ReplayVectorEnv

EVERYTHING = ("minimap", "units", "player", "upgrades", "game_loop")
SOME = sorted(SAMPLES.glob("*.SC2Replay"))


def same(one: Any, other: Any, where: str = "") -> None:
    """Fails unless both are equal to the bit, in types, shapes, dtypes and keys."""
    assert type(one) is type(other), f"{where}: {type(one)} and {type(other)}"
    if isinstance(one, dict):
        assert one.keys() == other.keys(), f"{where}: keys {one.keys() ^ other.keys()}"
        for key in one:
            same(one[key], other[key], f"{where}[{key!r}]")
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        if one.dtype == object:
            for index, (a, b) in enumerate(zip(one, other, strict=True)):
                same(a, b, f"{where}[{index}]")
        else:
            assert one.tobytes() == other.tobytes(), where
    elif isinstance(one, tuple):
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            same(a, b, f"{where}[{index}]")
    else:
        assert one == other, f"{where}: {one!r} and {other!r}"


def test_the_comparison_sees_differences() -> None:
    array = np.arange(4)
    pairs: list[tuple[Any, Any]] = [
        (array, array + 1),
        (array, array.astype(np.int32)),
        (array, array[:3]),
        (np.array([0.0]), np.array([-0.0])),
        ({"a": array}, {"a": array, "b": 1}),
        (np.array([{"x": 1}, None]), np.array([{"x": 2}, None])),
        ((1, 2), (1, 3)),
        (1, 1.0),
    ]
    for one, other in pairs:
        with pytest.raises(AssertionError):
            same(one, other)
        same(one, one)


@pytest.fixture(params=["samples", "real"])
def replays(request: pytest.FixtureRequest) -> list[Path]:
    """The samples, and real replays."""
    if request.param == "samples":
        return SOME
    paths: list[Path] = request.getfixturevalue("pysc2_replays")
    return paths[4:]


def _own_reward(episode: Any, step: int, action: int) -> float:
    return float(episode.expert_actions[step]) / 7 + action + step


CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "default": {"step_mul": 400},
    "everything": {"step_mul": 600, "observe": EVERYTHING, "max_units": 64, "reward": "score"},
    "outcome": {"step_mul": 300, "observe": "player", "reward": "outcome", "max_episode_steps": 55},
    "own": {"step_mul": 500, "observe": ["units"], "reward": _own_reward, "order": "sequential"},
    "view": {"step_mul": 350, "copy": False, "minimap_size": (24, 40), "player": "winner"},
    "actions": {"step_mul": "actions", "observe": "game_loop", "max_episode_steps": 40},
}


def _both(replays: Any, n: int, mode: AutoresetMode, **options: Any) -> tuple[Any, Any]:
    rank, world = options.pop("shard", (0, 1))
    lanes = [
        lambda i=i: SC2ReplayEnv(replays, shard=(rank * n + i, world * n), **options)
        for i in range(n)
    ]
    return (
        SC2ReplayVectorEnv(
            replays, num_envs=n, shard=(rank, world), autoreset_mode=mode, **options
        ),
        SyncVectorEnv(lanes, autoreset_mode=mode),
    )


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_it_equals_single_environments_side_by_side(
    replays: list[Path], configuration: str, mode: AutoresetMode
) -> None:
    options = CONFIGURATIONS[configuration]
    envs, sync = _both(replays, 4, mode, **options)
    assert envs.observation_space == sync.observation_space
    assert envs.action_space == sync.action_space
    assert envs.single_observation_space == sync.single_observation_space
    assert envs.metadata["autoreset_mode"] is sync.metadata["autoreset_mode"] is mode
    ends = rewarded = 0
    for seed in (0, 11, 2**40):
        same(envs.reset(seed=seed), sync.reset(seed=[seed] * 4), f"reset {seed}")
        generator = np.random.default_rng(seed)
        expert = np.zeros(4, np.int64)
        for step in range(150):
            # Now and then what the player does, so that there is something to reward.
            actions = np.where(generator.random(4) < 0.5, expert, generator.integers(0, 9, 4))
            actions[actions >= envs.single_action_space.n] = 0
            got, expected = envs.step(actions), sync.step(actions)
            same(got, expected, f"seed {seed}, step {step}")
            expert = got[4]["expert_action"]
            over = got[2] | got[3]
            ends += over.sum()
            rewarded += np.count_nonzero(got[1])
            if mode is AutoresetMode.DISABLED and over.any():
                mask = {"reset_mask": over}
                same(envs.reset(options=dict(mask)), sync.reset(options=dict(mask)), "reset")
        # Without a seed the order goes on.
        same(envs.reset(), sync.reset(), "second reset")
    assert ends >= 20
    assert rewarded > 0


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_shard_equals_its_lanes(mode: AutoresetMode) -> None:
    envs, sync = _both(SOME, 2, mode, shard=(1, 3), step_mul=700)
    same(envs.reset(seed=5), sync.reset(seed=[5, 5]))
    for _ in range(60):
        over = (got := envs.step(np.zeros(2, np.int64)))[2] | got[3]
        same(got, sync.step(np.zeros(2, np.int64)))
        if mode is AutoresetMode.DISABLED and over.any():
            same(envs.reset(options={"reset_mask": over}), sync.reset(options={"reset_mask": over}))


def test_resetting_some_lanes_in_the_middle() -> None:
    for mode in AutoresetMode:
        envs, sync = _both(SOME, 4, mode, step_mul=500, observe=["minimap", "player"])
        same(envs.reset(seed=1), sync.reset(seed=[1] * 4))
        generator = np.random.default_rng(0)
        for _ in range(40):
            mask = generator.random(4) < 0.3
            if mask.any():
                options = {"reset_mask": mask}
                same(envs.reset(options=dict(options)), sync.reset(options=dict(options)))
            got = envs.step(np.ones(4, np.int64))
            same(got, sync.step(np.ones(4, np.int64)))
            over = got[2] | got[3]
            if mode is AutoresetMode.DISABLED and over.any():
                options = {"reset_mask": over}
                same(envs.reset(options=dict(options)), sync.reset(options=dict(options)))


def test_asking_for_an_episode_in_all_lanes() -> None:
    envs, sync = _both(SOME, 3, AutoresetMode.NEXT_STEP, step_mul=500)
    same(envs.reset(seed=1), sync.reset(seed=[1] * 3))
    asked = {"replay": SOME[2].name, "player": 2, "step": 4}
    got = envs.reset(options=asked)
    same(got, sync.reset(options=asked))
    assert got[1]["game_loop"].tolist() == [2000] * 3
    for _ in range(60):
        same(envs.step([0, 0, 0]), sync.step([0, 0, 0]))


@pytest.mark.filterwarnings("ignore:skipped")
def test_bad_replays_are_passed_over_alike(data_dir: Path) -> None:
    # Two that list their players and have no tracker events, among three that are whole.
    bad = sorted((data_dir / "replays" / "versions").rglob("1.*.SC2Replay"))[:2]
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        envs, sync = _both([*bad, *SOME[:3]], 5, mode, step_mul=900)
        same(envs.reset(seed=2), sync.reset(seed=[2] * 5))
        for _ in range(60):
            same(envs.step([0] * 5), sync.step([0] * 5))
        assert {name for name, _ in envs.skipped} == set(map(str, bad))


def test_the_registry_makes_both_kinds() -> None:
    own = gymnasium.make_vec("SC2Replay-v0", num_envs=3, step_mul=500)
    assert isinstance(own, SC2ReplayVectorEnv)
    assert own.spec is not None
    named = gymnasium.make_vec("sc2gym:SC2Replay-v0", num_envs=3, vectorization_mode="sync")
    assert isinstance(named, SyncVectorEnv)
    cut = gymnasium.make_vec("SC2Replay-v0", num_envs=2, max_episode_steps=4)
    cut.reset(seed=0)
    for step in range(4):
        truncated = cut.step([0, 0])[3]
        assert truncated.all() == (step == 3)
    for envs in (own, named, cut):
        envs.close()


# Memory


def _stepper(**options: Any) -> tuple[SC2ReplayVectorEnv, Callable[[], Any]]:
    envs = SC2ReplayVectorEnv(SOME, num_envs=3, step_mul=100, **options)
    actions = np.zeros(3, np.int64)
    return envs, lambda: envs.step(actions)[0]


def _address(array: Any) -> int:
    return int(array.ctypes.data)


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "array": lambda array: array,
    "slice": lambda array: array[1:, 2],
    "row": lambda array: array[1],
    "reshaped": lambda array: array.reshape(3, -1).T,
    "memoryview": memoryview,
    "dlpack": np.from_dlpack,
    "dtype": lambda array: array.view(np.int8),
    "iterator": lambda array: iter(array),
    "broadcast": lambda array: np.broadcast_to(array, (2, *array.shape)),
}


def _read(holder: Any) -> bytes:
    return b"".join(map(bytes, holder)) if not hasattr(holder, "tobytes") else holder.tobytes()


@pytest.mark.parametrize("kind", [*HOLDERS, "torch"])
def test_a_batch_that_anyone_holds_is_left_alone(kind: str) -> None:
    if kind == "torch":
        torch = pytest.importorskip("torch")
        hold: Callable[[Any], Any] = torch.from_numpy
    else:
        hold = HOLDERS[kind]
    envs, step = _stepper()
    held, expected = [], []
    for batch in range(30):
        observation = envs.reset(seed=batch)[0] if batch % 10 == 0 else step()
        kept = observation.copy()
        # Of a dict or an array only this part is held from now on.
        held.append(hold(observation))
        expected.append(_read(hold(kept)) if kind != "torch" else kept.tobytes())
        del observation
    if kind != "iterator":
        got = [h.numpy().tobytes() if kind == "torch" else _read(h) for h in held]
        assert got == expected
    else:
        assert [_read(h) for h in held] == expected
    assert len(set(expected)) >= 15


@pytest.mark.parametrize("prefetch", [0, 1, 5])
def test_memory_nobody_holds_is_used_again(prefetch: int) -> None:
    envs, step = _stepper(observe=["minimap", "player"], prefetch=prefetch)
    envs.reset(seed=0)
    addresses = {_address(step()["minimap"]) for _ in range(50)}
    assert len(addresses) <= 2 + prefetch
    before = step()
    addresses = set()
    for _ in range(50):
        after = step()
        assert not np.shares_memory(before["minimap"], after["minimap"])
        addresses.add(_address(after["minimap"]))
        before = after
    assert len(addresses) <= 3 + prefetch
    # A rollout kept and dropped leaves the environment with its own few slots.
    rollout = [step() for _ in range(20)]
    assert len({_address(each["minimap"]) for each in rollout}) == 20
    del rollout, before, after
    gc.collect()
    assert len({_address(step()["minimap"]) for _ in range(50)}) <= 5 + prefetch


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_without_copy_batches_take_turns(prefetch: int) -> None:
    envs, step = _stepper(copy=False, prefetch=prefetch)
    kept = [envs.reset(seed=0)[0], *(step() for _ in range(19))]
    addresses = [_address(array) for array in kept]
    turn = 2 + prefetch
    assert len(set(addresses)) == turn
    assert (addresses[:turn] * 10)[:20] == addresses
    # Until then it stays as it was.
    before = step()
    was = before.copy()
    after = step()
    np.testing.assert_array_equal(before, was)
    assert not np.array_equal(before, after)


@pytest.mark.parametrize("copy", [True, False])
def test_what_a_caller_does_to_a_batch_is_his_own(copy: bool) -> None:
    envs, step = _stepper(copy=copy)
    reference, expected = _stepper()
    envs.reset(seed=0)
    reference.reset(seed=0)
    for _ in range(10):
        observation = step()
        np.testing.assert_array_equal(observation, expected())
        observation[:] = 77
        observation.flags.writeable = False
        observation.shape = (-1,)


@pytest.mark.parametrize("copy", [True, False])
def test_final_observations_and_infos_stay(copy: bool) -> None:
    envs = SC2ReplayVectorEnv(
        SOME, num_envs=3, step_mul=600, autoreset_mode="SameStep", copy=copy, max_episode_steps=9
    )
    reset = envs.reset(seed=0)
    kept: list[tuple[Any, Any]] = []
    for _ in range(60):
        observation, rewards, terminations, truncations, infos = envs.step([0, 0, 0])
        for part in (rewards, terminations, truncations, *_arrays(infos)):
            kept.append((part, part.copy()))
        for final in infos.get("final_obs", ()):
            if final is not None:
                assert not np.shares_memory(final, observation)
                kept.append((final, final.copy()))
    assert reset is not None
    for part, was in kept:
        np.testing.assert_array_equal(part, was)
    assert sum(part.ndim == 3 for part, _ in kept) >= 15


def _arrays(infos: dict[str, Any]) -> list[Any]:
    found = []
    for value in infos.values():
        if isinstance(value, dict):
            found += _arrays(value)
        elif value.dtype != object:
            found.append(value)
    return found


# Callers' mistakes


@pytest.mark.parametrize(
    "actions",
    [
        [0, 0],
        [0, 0, 0, 0],
        [[0, 0, 0]],
        0,
        [0.0, 1.0, 2.0],
        [0, -1, 0],
        [0, 0, 10**6],
        np.array([0, 2**64 - 1, 0], np.uint64),
        ["a", "b", "c"],
        [None] * 3,
    ],
)
def test_bad_actions_change_nothing(actions: Any) -> None:
    envs, step = _stepper()
    reference, expected = _stepper()
    envs.reset(seed=0)
    reference.reset(seed=0)
    for _ in range(3):
        with pytest.raises(InvalidAction):
            envs.step(actions)
        same(step(), expected())


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint16, np.int64, ">i8"])
def test_any_integers_will_do(dtype: Any) -> None:
    envs, _ = _stepper()
    envs.reset(seed=0)
    wide = np.zeros((3, 2), dtype)[:, 0]
    assert envs.step(wide)[1].tolist() == [0, 0, 0]


def test_the_action_of_a_lane_that_is_reset_is_ignored() -> None:
    envs = SC2ReplayVectorEnv(SOME, num_envs=2, max_episode_steps=1)
    envs.reset(seed=0)
    envs.step([0, 0])
    _, rewards, _, _, infos = envs.step([-1, 10**9])
    assert rewards.tolist() == [0, 0]
    assert infos["_replay"].all()


def test_steps_out_of_turn() -> None:
    envs = SC2ReplayVectorEnv(SOME, num_envs=2, autoreset_mode="Disabled", max_episode_steps=1)
    for call in (lambda: envs.step([0, 0]), envs.render):
        with pytest.raises(ResetNeeded):
            call()
    with pytest.raises(ResetNeeded, match="first reset"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    envs.reset(seed=0)
    envs.step([0, 0])
    with pytest.raises(ResetNeeded, match=r"lanes \[0, 1\]"):
        envs.step([0, 0])
    envs.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(ResetNeeded, match=r"lanes \[1\]"):
        envs.step([0, 0])


def test_mistaken_options_are_named() -> None:
    for options, error, message in (
        ({"num_envs": 0}, ValueError, "num_envs must be a whole number, 1 or more"),
        ({"num_envs": 1.5}, ValueError, "num_envs"),
        ({"prefetch": "x"}, ValueError, "prefetch must be a whole number, 0 or more"),
        ({"num_threads": 0}, ValueError, "num_threads"),
        ({"num_env": 2}, TypeError, "did you mean 'num_envs'"),
        ({"autoreset_mode": "SameSteps"}, ValueError, "did you mean 'SameStep'"),
        ({"render_mode": "human"}, ValueError, "rgb_array"),
    ):
        with pytest.raises(error, match=message):
            SC2ReplayVectorEnv(SOME, **options)  # type: ignore[arg-type]


def test_mistaken_resets_are_named() -> None:
    envs, _ = _stepper()
    envs.reset(seed=0)
    for reset, message in (
        ({"seed": [0, 1, 2]}, "the same"),
        ({"seed": [0, 0]}, "the same"),
        ({"seed": 1.5}, "the same"),
        ({"options": 3}, "names and values"),
        ({"options": {"reset_mask": np.zeros(3, bool)}}, "one of them true"),
        ({"options": {"reset_mask": np.ones(2, bool)}}, "3 booleans"),
        ({"options": {"reset_mask": np.ones(3)}}, "3 booleans"),
        ({"options": {"rest_mask": np.ones(3, bool)}}, "reset_mask"),
        ({"seed": 1, "options": {"reset_mask": np.ones(3, bool)}}, "not with reset_mask"),
    ):
        with pytest.raises(ValueError, match=message):
            envs.reset(**reset)  # type: ignore[arg-type]


def test_lanes_that_share_episodes_say_so() -> None:
    with pytest.warns(UserWarning, match="5 environments share 2 episodes"):
        envs = SC2ReplayVectorEnv(SOME[0], num_envs=5)
    _, infos = envs.reset(seed=0)
    assert set(infos["player"].tolist()) == {1, 2}


def test_the_samples_are_shared_without_a_word() -> None:
    envs = SC2ReplayVectorEnv(num_envs=4 * len(SOME))
    _, infos = envs.reset(seed=0)
    assert len(set(infos["replay"].tolist())) == len(SOME)


def test_slots_refuse_memory_that_does_not_fit() -> None:
    rules = Rules(Frames([0], (8, 8), [0], 4, 3), True, 10, "imitation", "NextStep", None)
    assert len(Slot({"minimap": np.empty((2, 1, 8, 8), np.uint8)}, rules)) == 2
    for array in (
        np.empty((2, 1, 8, 9), np.uint8),
        np.empty((2, 1, 8, 16), np.uint8)[..., ::2],
        np.empty((8, 8, 1, 2), np.uint8).T,
    ):
        with pytest.raises(ValueError, match="contiguous rows of 64 bytes"):
            Slot({"minimap": array}, rules)
    with pytest.raises(KeyError):
        Slot({"maximap": np.empty((2, 64), np.uint8)}, rules)


def test_slots_refuse_calls_out_of_turn() -> None:
    rules = Rules(Frames([0], (8, 8), [0], 4, 3), True, 10, "imitation", "NextStep", None)

    def slot(count: int) -> Slot:
        return Slot({"minimap": np.empty((count, 1, 8, 8), np.uint8)}, rules)

    for call in (lambda: slot(2).fill(), lambda: slot(2).follow(slot(2))):
        with pytest.raises(ResetNeeded, match="lane 0 has no episode"):
            call()
    for call in (lambda: slot(2).stay(slot(3)), lambda: slot(2).hand_out(slot(3), [0, 0])):
        with pytest.raises(ValueError, match="lanes"):
            call()
    for call in (lambda: slot(2).info(2), lambda: slot(2).step(-1)):
        with pytest.raises(IndexError, match="of 2"):
            call()


@pytest.mark.skipif(not importlib.util.find_spec("PIL"), reason="needs Pillow")
def test_pictures_of_all_lanes_are_those_of_single_environments() -> None:
    envs, sync = _both(SOME, 2, AutoresetMode.NEXT_STEP, step_mul=400, render_mode="rgb_array")
    envs.reset(seed=0)
    sync.reset(seed=[0, 0])
    for _ in range(3):
        same(envs.render(), sync.render())
        envs.step([0, 0])
        sync.step([0, 0])


# Gymnasium's wrappers


@pytest.mark.parametrize("mode", AutoresetMode)
def test_wrappers_that_count_episodes(mode: AutoresetMode) -> None:
    envs = vector_wrappers.RecordEpisodeStatistics(
        SC2ReplayVectorEnv(SOME, num_envs=2, autoreset_mode=mode, max_episode_steps=5)
    )
    envs.reset(seed=0)
    lengths: list[int] = []
    for _ in range(30):
        _, _, terminations, truncations, infos = envs.step(np.zeros(2, np.int64))
        over = terminations | truncations
        lengths += infos["episode"]["l"][over].tolist() if over.any() else []
        if mode is AutoresetMode.DISABLED and over.any():
            envs.reset(options={"reset_mask": over})
    assert len(lengths) >= 10
    assert set(lengths) == {5}


def test_wrappers_that_change_observations() -> None:
    envs: Any = SC2ReplayVectorEnv(SOME, num_envs=2, step_mul=100)
    envs = vector_wrappers.RescaleObservation(
        vector_wrappers.DtypeObservation(envs, np.float32), np.float32(0), np.float32(1)
    )
    observation, _ = envs.reset(seed=0)
    assert observation.dtype == np.float32
    assert 0 < observation.max() <= 1
    listed = vector_wrappers.DictInfoToList(SC2ReplayVectorEnv(SOME, num_envs=2))
    _, infos = listed.reset(seed=0)
    assert {info["player"] for info in infos} <= {1, 2}
    assert len(infos) == 2


def test_samples_drawn_from_the_spaces_have_the_form_of_batches() -> None:
    envs = SC2ReplayVectorEnv(SOME, num_envs=2, observe=EVERYTHING, max_units=20)
    observation, _ = envs.reset(seed=0)
    assert envs.observation_space.contains(observation)
    sample = envs.observation_space.sample()
    assert {k: (v.shape, v.dtype) for k, v in sample.items()} == {
        k: (v.shape, v.dtype) for k, v in observation.items()
    }
