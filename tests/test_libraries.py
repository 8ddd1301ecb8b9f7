"""Other people's training code runs on the environment as it is."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import SubprocVecEnv

OPTIONS = {"step_mul": 64, "minimap_size": 36, "max_episode_steps": 40}


def test_stable_baselines_checks_the_environment():
    check_env(gymnasium.make("sc2gym:SC2Replay-v0", **OPTIONS), skip_render_check=True)


@pytest.mark.parametrize(
    ("policy", "observe"),
    [("CnnPolicy", "minimap"), ("MultiInputPolicy", ("minimap", "player", "upgrades"))],
)
def test_stable_baselines_learns(policy, observe, tmp_path):
    envs = make_vec_env(
        "sc2gym:SC2Replay-v0", n_envs=2, seed=1, env_kwargs=OPTIONS | {"observe": observe}
    )
    model = PPO(policy, envs, n_steps=32, batch_size=32, n_epochs=2, seed=1, device="cpu")
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    model.learn(128)
    assert model.num_timesteps == 128
    after = list(model.policy.parameters())
    assert any(not np.array_equal(a.detach(), b) for a, b in zip(after, before, strict=True))
    model.save(tmp_path / "model")
    mean, _ = evaluate_policy(PPO.load(tmp_path / "model", device="cpu"), envs, n_eval_episodes=2)
    assert mean >= 0
    envs.close()


def test_stable_baselines_in_processes():
    envs = make_vec_env(
        "sc2gym:SC2Replay-v0", n_envs=2, seed=1, env_kwargs=OPTIONS, vec_env_cls=SubprocVecEnv
    )
    PPO("CnnPolicy", envs, n_steps=16, batch_size=16, n_epochs=1, device="cpu").learn(32)
    envs.close()


def test_cleanrl_wraps_and_steps():
    # What CleanRL's ppo_atari.py puts around an environment of its own, and how it steps.
    def thunk():
        env = gymnasium.make("sc2gym:SC2Replay-v0", render_mode="rgb_array", **OPTIONS)
        env = gymnasium.wrappers.RecordEpisodeStatistics(env)
        env = gymnasium.wrappers.FrameStackObservation(env, 2)
        return env

    envs = gymnasium.vector.SyncVectorEnv([thunk for _ in range(2)])
    assert isinstance(envs.single_action_space, gymnasium.spaces.Discrete)
    observation, _ = envs.reset(seed=1)
    assert observation.shape == (2, 2, 5, 36, 36)
    finished = 0
    for _ in range(100):
        _, _, _, _, infos = envs.step(envs.action_space.sample())
        finished += int(infos.get("_episode", np.zeros(2)).sum())
    assert finished >= 4
    envs.close()
