"""The single environment: Gymnasium's contract, rewards, ends, options."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import (
    FlattenObservation,
    FrameStackObservation,
    RecordEpisodeStatistics,
    TimeLimit,
)

import sc2gym
from sc2gym.env import SC2ReplayEnv
from sc2gym.episode import episodes
from sc2gym.library import SAMPLES
from sc2gym.replay import Replay

EVERYTHING = ("minimap", "units", "player", "upgrades", "game_loop")
SOME = sorted(SAMPLES.glob("*.SC2Replay"))

# Drawing needs Pillow and, for a window, pygame: the extra "video".
drawable = importlib.util.find_spec("PIL") and importlib.util.find_spec("pygame")


# Gymnasium's own judgement


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"observe": EVERYTHING},
        {"observe": "player"},
        {"observe": ["units", "minimap"], "minimap_size": (32, 48), "max_units": 100},
        {"observe": "upgrades", "step_mul": "actions"},
        {"observe": "game_loop", "reward": "score", "copy": False},
    ],
)
def test_gymnasium_has_no_complaint(options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # copy=False is what the check for reused memory is there to find.
        env = gymnasium.make("sc2gym:SC2Replay-v0", **{**options, "copy": True})
        check_env(env.unwrapped, skip_render_check=True)
        env.close()


@pytest.mark.skipif(not drawable, reason="needs Pillow and pygame")
def test_gymnasium_has_no_complaint_about_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    for mode in ("rgb_array", "human"):
        env = gymnasium.make("SC2Replay-v0", render_mode=mode)
        check_env(env.unwrapped)
        env.close()


def test_the_id_imports_the_package() -> None:
    script = "import gymnasium; gymnasium.make('sc2gym:SC2Replay-v0').reset(seed=1)"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert "SC2Replay-v0" in gymnasium.registry
    assert sc2gym.__name__ == "sc2gym"


def test_the_default_observation_plugs_in_anywhere() -> None:
    env = SC2ReplayEnv()
    assert isinstance(env.observation_space, gymnasium.spaces.Box)
    assert env.observation_space.dtype == np.uint8
    assert env.observation_space.shape is not None
    assert env.observation_space.shape[1:] == (64, 64)
    assert isinstance(env.action_space, gymnasium.spaces.Discrete)


def test_wrappers_of_gymnasium() -> None:
    env: Any = SC2ReplayEnv(replays=SOME[0], step_mul=200)
    env = RecordEpisodeStatistics(TimeLimit(FrameStackObservation(env, 3), 5))
    observation, _ = env.reset(seed=0)
    assert observation.shape == (3, *env.unwrapped.observation_space.shape)
    info: dict[str, Any] = {}
    for step in range(5):
        observation, _, _, truncated, info = env.step(0)
        assert observation in env.observation_space
        assert truncated == (step == 4)
    assert info["episode"]["l"] == 5
    flat = FlattenObservation(SC2ReplayEnv(replays=SOME[0], observe=EVERYTHING))
    observation, _ = flat.reset(seed=0)
    assert observation.ndim == 1


# Steps


def _play(env: SC2ReplayEnv, policy: Any, **reset: Any) -> tuple[list[float], list[dict[str, Any]]]:
    """Rewards and infos of one episode; the policy maps (step, info) to an action."""
    _, info = env.reset(**reset)
    rewards: list[float] = []
    infos = [info]
    over = False
    while not over:
        _, reward, terminated, truncated, info = env.step(policy(len(rewards), info))
        over = terminated or truncated
        rewards.append(reward)
        infos.append(info)
    return rewards, infos


def test_every_frame_and_info_is_the_episodes() -> None:
    env = SC2ReplayEnv(replays=SOME[0], observe=EVERYTHING, step_mul=100, order="sequential")
    for episode in episodes(Replay.open(SOME[0]), "both", 100):
        observation, info = env.reset()
        assert info.items() >= episode.info().items()
        expected = {key: np.empty_like(array) for key, array in observation.items()}
        for step in range(len(episode) + 1):
            episode.fill(step, env._frames, expected)
            for key, array in expected.items():
                np.testing.assert_array_equal(observation[key], array)
            assert info["game_loop"] == episode.game_loops[step]
            assert info["seconds"] == episode.game_loops[step] / episode.loops_per_second
            assert info["expert_action"] == episode.expert_actions[step]
            if step < len(episode):
                observation, _, terminated, truncated, info = env.step(0)
                end = step + 1 == len(episode)
                assert terminated == (end and episode.terminated)
                assert truncated == (end and not episode.terminated)


def test_following_the_expert_is_rewarded() -> None:
    env = SC2ReplayEnv(replays=SOME[0], step_mul=50, order="sequential")
    n = int(env.action_space.n)
    rewards, infos = _play(env, lambda step, info: min(info["expert_action"], n - 1))
    experts = [info["expert_action"] for info in infos[:-1]]
    assert rewards == [float(0 < expert < n) for expert in experts]
    assert sum(rewards) > 10
    # Doing nothing is never rewarded, not even where the player does nothing.
    rewards, _ = _play(env, lambda step, info: 0)
    assert set(rewards) == {0.0}
    # Nor is what the player does one step later.
    rewards, infos = _play(env, lambda step, info: 0 if info["expert_action"] else 1)
    assert sum(rewards) == 0.0


def test_outcome_is_paid_at_the_end() -> None:
    for player, value in (("winner", 1.0), ("loser", -1.0)):
        env = SC2ReplayEnv(replays=SOME[0], player=player, reward="outcome", step_mul=100)
        rewards, _ = _play(env, lambda step, info: 0)
        assert rewards[-1] == value
        assert not any(rewards[:-1])
        cut = SC2ReplayEnv(
            replays=SOME[0], player=player, reward="outcome", step_mul=100, max_episode_steps=7
        )
        rewards, _ = _play(cut, lambda step, info: 0)
        assert rewards == [0.0] * 7


def test_score_adds_up() -> None:
    env = SC2ReplayEnv(replays=SOME[0], player=1, reward="score", step_mul=100)
    (episode,) = episodes(Replay.open(SOME[0]), 1, 100)
    rewards, _ = _play(env, lambda step, info: 0)
    assert sum(rewards) == episode.score[-1] - episode.score[0] > 0


def test_a_reward_of_ones_own() -> None:
    asked = []

    def reward(episode: Any, step: int, action: int) -> int:
        asked.append((episode.player.player_id, step, action))
        return 2 * action

    env = SC2ReplayEnv(replays=SOME[0], player=2, reward=reward, step_mul=200)
    rewards, _ = _play(env, lambda step, info: step % 3)
    assert asked == [(2, step, step % 3) for step in range(len(rewards))]
    assert rewards == [2.0 * (step % 3) for step in range(len(rewards))]
    assert {type(reward) for reward in rewards} == {float}


def test_observations_are_ones_own_unless_copy_is_off() -> None:
    env = SC2ReplayEnv(replays=SOME[0], step_mul=200)
    first, _ = env.reset(seed=0)
    kept = first.copy()
    for _ in range(5):
        observation = env.step(0)[0]
        assert not np.shares_memory(first, observation)
    np.testing.assert_array_equal(first, kept)
    env = SC2ReplayEnv(replays=SOME[0], step_mul=200, copy=False)
    a, b, c = env.reset(seed=0)[0], env.step(0)[0], env.step(0)[0]
    assert a is c
    assert not np.shares_memory(a, b)


# Resets


def test_seeds() -> None:
    env = SC2ReplayEnv(step_mul=400)

    def order(**reset: Any) -> list[tuple[str, int]]:
        infos = [env.reset(**reset)[1]] + [env.reset()[1] for _ in range(7)]
        return [(info["replay"], info["player"]) for info in infos]

    assert order(seed=3) == order(seed=3) != order(seed=4)
    fresh = [SC2ReplayEnv(step_mul=400).reset()[1]["replay"] for _ in range(12)]
    assert len(set(fresh)) > 1, "an environment never seeded begins somewhere else each time"


def test_shards_that_are_never_seeded_agree() -> None:
    count = len(SC2ReplayEnv().library)
    seen = []
    for rank in range(count):
        info = SC2ReplayEnv(shard=(rank, count)).reset()[1]
        seen.append((info["replay"], info["player"]))
    assert len(set(seen)) == count


def test_asking_for_an_episode() -> None:
    env = SC2ReplayEnv(step_mul=100, order="sequential")
    _, first = env.reset(seed=0)
    asked = {"replay": SOME[2].stem, "player": 2, "step": 5}
    _, info = env.reset(options=asked)
    assert (info["replay"], info["player"], info["game_loop"]) == (str(SOME[2]), 2, 500)
    _, after = env.reset()
    assert (after["replay"], after["player"]) == (first["replay"], 2), "the order goes on"
    for options, message in (
        ({"replay": "nobody"}, "no episode of replay 'nobody'"),
        ({"replay": 0, "step": 10**6}, "no step 1000000"),
        ({"replay": 0, "step": -1}, "no step -1"),
        ({"replay": 0, "step": 1.5}, "no step 1.5"),
        ({"step": 3}, "name one too"),
        ({"replays": 0}, "did you mean 'replay'"),
    ):
        with pytest.raises(ValueError, match=message):
            env.reset(options=options)


def test_steps_out_of_turn() -> None:
    env = SC2ReplayEnv(replays=SOME[0], max_episode_steps=1)
    with pytest.raises(ResetNeeded):
        env.step(0)
    with pytest.raises(ResetNeeded):
        env.render()
    env.reset()
    env.step(0)
    with pytest.raises(ResetNeeded, match="over"):
        env.step(0)


@pytest.mark.parametrize("action", [-1, 10**6, 0.5, "build", None, np.array([1, 2])])
def test_actions_that_are_none(action: Any) -> None:
    env = SC2ReplayEnv(replays=SOME[0])
    env.reset()
    with pytest.raises(InvalidAction):
        env.step(action)
    assert env.step(np.int64(1))[4]["game_loop"] == 8, "the environment did not move"


# Options


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"replay": "x"},
            TypeError,
            "unexpected keyword argument 'replay'; did you mean 'replays'",
        ),
        ({"num_envs": 3}, TypeError, "unexpected keyword argument 'num_envs'"),
        ({"observe": "minmap"}, ValueError, "minimap"),
        ({"observe": ["minimap", "unit"]}, ValueError, "units"),
        ({"observe": []}, ValueError, "observation"),
        ({"minimap_layers": ["height_mapp"]}, ValueError, "height_map"),
        ({"unit_columns": ["unit_typ"]}, ValueError, "unit_type"),
        ({"player": "winer"}, ValueError, "did you mean 'winner'"),
        ({"player": 0}, ValueError, "unknown player 0; .* or a player id"),
        ({"step_mul": 0}, ValueError, "unknown step_mul 0; .* or a number of game loops"),
        ({"step_mul": "action"}, ValueError, "did you mean 'actions'"),
        ({"order": "shufle"}, ValueError, "did you mean 'shuffle'"),
        ({"on_error": "ignore"}, ValueError, "valid are skip, raise"),
        ({"reward": "score_delta"}, ValueError, "did you mean 'score'"),
        ({"render_mode": "rgb"}, ValueError, "did you mean 'rgb_array'"),
        (
            {"max_episode_steps": 0},
            ValueError,
            "max_episode_steps must be a whole number, 1 or more",
        ),
        ({"shard": (2, 2)}, ValueError, "0 <= rank < size"),
        ({"shard": 3}, ValueError, "shard must be"),
        ({"shard": (0.0, 2)}, ValueError, "0 <= rank < size"),
        ({"minimap_size": 0}, ValueError, "minimap_size"),
        ({"minimap_size": "64"}, ValueError, "minimap_size .* not '64'"),
        ({"minimap_size": (32.5, 32)}, ValueError, "minimap_size"),
        ({"minimap_size": True}, ValueError, "minimap_size"),
        ({"minimap_layers": "camera"}, ValueError, "a list of names"),
        ({"minimap_layers": 3}, ValueError, "minimap layers are chosen by name"),
        ({"max_units": 0}, ValueError, "max_units"),
        ({"max_units": "many"}, ValueError, "max_units .* not 'many'"),
        ({"max_units": 1.5}, ValueError, "max_units"),
        ({"observe": 3}, ValueError, "observations are chosen by name"),
        ({"observe": [["minimap"]]}, ValueError, "no observation"),
        ({"order": np.zeros(2)}, ValueError, "unknown order"),
        ({"copy": "no"}, ValueError, "copy must be True or False"),
        ({"cache_bytes": "1G"}, ValueError, "cache_bytes must be a whole number"),
        ({"replays": ""}, ValueError, "an empty name"),
        ({"replays": bytearray(8)}, TypeError, "bytearray"),
        ({"replays": "~nobody-here/x"}, FileNotFoundError, "no such file"),
    ],
)
def test_a_mistaken_option_is_named(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        SC2ReplayEnv(**options)


def test_sizes_may_be_numpy_numbers() -> None:
    env = SC2ReplayEnv(
        SOME,
        observe=["minimap", "units"],
        minimap_size=np.int64(8),
        max_units=np.int32(3),
        minimap_layers=["player_relative"],
        unit_columns=("owner",),
    )
    observation, _ = env.reset(seed=0)
    assert observation["minimap"].shape == (1, 8, 8) and observation["units"].shape == (3, 1)
    assert env.observation_space.contains(observation)


def test_bytes_are_a_replay() -> None:
    env = SC2ReplayEnv(SOME[0].read_bytes())
    _, info = env.reset()
    assert info["replay"].startswith("bytes:")


def test_more_shards_than_episodes_are_reported() -> None:
    with pytest.warns(UserWarning, match="5 environments share 2 episodes"):
        SC2ReplayEnv(SOME[0], shard=(0, 5))


def test_a_bad_file_is_skipped_or_raises(tmp_path: Path) -> None:
    shutil.copy(SOME[0], tmp_path / "good.SC2Replay")
    (tmp_path / "bad.SC2Replay").write_bytes(SOME[1].read_bytes()[:2000])
    with pytest.warns(UserWarning, match=r"bad\.SC2Replay"):
        env = SC2ReplayEnv(tmp_path)
    assert [Path(name).name for name, _ in env.skipped] == ["bad.SC2Replay"]
    with pytest.raises(sc2gym.errors.ReplayError, match=r"bad\.SC2Replay"):
        SC2ReplayEnv(tmp_path, on_error="raise")
