"""Proximal policy optimisation on the imitation reward, after CleanRL's `ppo.py`.

    python examples/ppo.py --replays ~/replays --plot curve.png

The reward is 1 where the agent chooses the function that the player chose. The game goes on
whatever it chooses, so an action is worth the reward it brings and nothing later: hence
`--gamma 0`. Behaviour cloning (`bc.py`) learns the same much faster; this shows the loop, for
rewards of your own. A run that was stopped, by whatever, goes on with `--resume` as if it had
not been.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import time
from itertools import islice
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from sc2gym import checkpoint


@dataclasses.dataclass
class Args:
    """What can be set on the command line."""

    replays: str = ""
    """a folder, file or glob; by default the samples"""
    run: str = "runs/ppo"
    """folder for checkpoints, curves and TensorBoard"""
    resume: bool = False
    """go on with the run in that folder"""
    total_steps: int = 100_000
    """environment steps, of all environments together"""
    num_envs: int = 8
    """environments"""
    num_steps: int = 128
    """steps of each environment between updates"""
    learning_rate: float = 1e-3
    """at the beginning; it falls to zero"""
    gamma: float = 0.0
    """discount"""
    gae_lambda: float = 0.95
    """of generalised advantage estimation"""
    minibatches: int = 4
    """of an update"""
    epochs: int = 4
    """times that an update goes through its steps"""
    clip: float = 0.2
    """of the ratio between new and old policy"""
    entropy: float = 0.01
    """weight of the entropy bonus"""
    value: float = 0.5
    """weight of the value loss"""
    max_grad_norm: float = 0.5
    """gradients are cut to it"""
    step_mul: int = 8
    """game loops a step"""
    minimap_size: int = 32
    """pixels a side"""
    save_every: int = 5
    """updates from one checkpoint to the next"""
    seed: int = 1
    """of everything"""
    threads: int = 0
    """CPU threads of torch; by default as many as there are cores"""
    device: str = "cuda" if torch.cuda.is_available() else "cpu"
    """where to train"""
    plot: str = ""
    """draw the learning curve into this PNG at the end"""


def layer(module: Any, std: float = 2**0.5) -> Any:
    nn.init.orthogonal_(module.weight, std)
    nn.init.zeros_(module.bias)
    return module


class Agent(nn.Module):
    """The minimap, the bank, and the player's last action before this step."""

    def __init__(self, envs: gymnasium.vector.VectorEnv[Any, Any, Any]):
        super().__init__()
        space: Any = envs.single_observation_space
        layers, height, width = space["minimap"].shape
        functions = int(envs.single_action_space.n)
        self.minimap = nn.Sequential(
            layer(nn.Conv2d(layers, 16, 4, 4)), nn.ReLU(),
            layer(nn.Conv2d(16, 32, 3, 2, 1)), nn.ReLU(),
            nn.Flatten(), layer(nn.Linear(32 * (height // 8) * (width // 8), 128)), nn.ReLU(),
        )  # fmt: skip
        self.player = layer(nn.Linear(space["player"].shape[0], 32))
        self.last = nn.Embedding(functions, 32)
        self.actor = layer(nn.Linear(128 + 32 + 32, functions), 0.01)
        self.critic = layer(nn.Linear(128 + 32 + 32, 1), 1.0)

    def forward(self, minimap: Tensor, player: Tensor, last: Tensor) -> tuple[Categorical, Tensor]:
        """The policy and the value of N steps."""
        features = torch.cat(
            [
                # Layers hold small numbers: kinds, owners, counts.
                self.minimap(minimap.float() / 10),
                torch.relu(self.player(player.clamp(0).float().log1p() / 5)),
                self.last(last),
            ],
            -1,
        )
        return Categorical(logits=self.actor(features)), self.critic(features).squeeze(-1)


def main(args: Args) -> list[float]:
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    envs = gymnasium.make_vec(
        "sc2gym:SC2Replay-v0",
        num_envs=args.num_envs,
        replays=args.replays or None,
        observe=("minimap", "player"),
        minimap_size=args.minimap_size,
        step_mul=args.step_mul,
        reward="imitation",
        # An end and the next beginning are one step: no steps that count for nothing.
        autoreset_mode="SameStep",
    )
    agent = Agent(envs).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), args.learning_rate, eps=1e-5)
    parts: dict[str, Any] = {"envs": envs, "model": agent, "optimizer": optimizer}

    run = Path(args.run)
    run.mkdir(parents=True, exist_ok=True)
    file = run / "checkpoint.pt"
    updates = args.total_steps // (args.num_envs * args.num_steps)
    done = 0
    envs.reset(seed=args.seed)
    last = torch.zeros(args.num_envs, dtype=torch.long)
    ended = torch.zeros(args.num_envs)
    if args.resume and checkpoint.latest(run) is not None:
        loaded = checkpoint.load(file, map_location=device, **parts)
        done, last, ended = loaded.step, loaded.extra["last"].cpu(), loaded.extra["ended"].cpu()
    seen, infos = envs.unwrapped.observe()
    curve = Curve(run / "loss.csv", ("update", "loss", "reward", "acted"), done)
    board = tensorboard(run, done)

    rewards_so_far: list[float] = []
    began = time.perf_counter()
    with checkpoint.every(file, steps=args.save_every, **parts) as saver:
        for update in range(done + 1, updates + 1):
            optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - (update - 1) / updates)
            # Play.
            shape = args.num_steps, args.num_envs
            memory: dict[str, list[Tensor]] = {
                name: [] for name in ("minimap", "player", "last", "action", "log_prob", "value")
            }
            rewards, dones, acted = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)
            for step in range(args.num_steps):
                dones[step] = ended
                inputs = {
                    "minimap": torch.from_numpy(seen["minimap"]).to(device),
                    "player": torch.from_numpy(seen["player"]).to(device),
                    "last": last.to(device),
                }
                with torch.no_grad():
                    policy, value = agent(**inputs)
                    action = policy.sample()
                for name, tensor in inputs.items():
                    memory[name].append(tensor)
                memory["action"].append(action)
                memory["log_prob"].append(policy.log_prob(action))
                memory["value"].append(value)
                # What the player does now is for the agent to see from the next step on.
                now = torch.from_numpy(np.asarray(infos["expert_action"], np.int64))
                acted[step] = now != 0
                last = torch.where(now != 0, now, last)
                seen, reward, terminated, truncated, infos = envs.step(action.cpu().numpy())
                rewards[step] = torch.from_numpy(reward)
                ended = torch.from_numpy(terminated | truncated).float()
                last = torch.where(ended.bool(), 0, last)
            batch = {name: torch.stack(tensors) for name, tensors in memory.items()}

            # Advantages.
            with torch.no_grad():
                _, following = agent(
                    torch.from_numpy(seen["minimap"]).to(device),
                    torch.from_numpy(seen["player"]).to(device),
                    last.to(device),
                )
            values = batch.pop("value").cpu()
            following, over = following.cpu(), ended
            advantages = torch.zeros(shape)
            running = torch.zeros(args.num_envs)
            for step in reversed(range(args.num_steps)):
                error = rewards[step] + args.gamma * following * (1 - over) - values[step]
                running = error + args.gamma * args.gae_lambda * (1 - over) * running
                advantages[step] = running
                following, over = values[step], dones[step]
            flat = {name: tensor.flatten(0, 1) for name, tensor in batch.items()}
            flat["advantage"] = advantages.flatten().to(device)
            flat["return"] = (advantages + values).flatten().to(device)

            # Learn.
            size = args.num_envs * args.num_steps
            total = 0.0
            for _ in range(args.epochs):
                for chosen in torch.randperm(size).to(device).chunk(args.minibatches):
                    mini = {name: tensor[chosen] for name, tensor in flat.items()}
                    policy, value = agent(mini["minimap"], mini["player"], mini["last"])
                    ratio = (policy.log_prob(mini["action"]) - mini["log_prob"]).exp()
                    advantage = mini["advantage"]
                    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                    clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
                    policy_loss = -torch.min(advantage * ratio, advantage * clipped).mean()
                    value_loss = 0.5 * (value - mini["return"]).square().mean()
                    loss = (
                        policy_loss
                        + args.value * value_loss
                        - args.entropy * policy.entropy().mean()
                    )
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                    optimizer.step()
                    total += loss.item()

            # Of the steps where the player acted, how many the agent got right.
            share = float(rewards.sum() / acted.sum().clamp(min=1))
            rewards_so_far.append(share)
            curve.add(update, total, float(rewards.mean()), share)
            board("reward where the player acted", share, update)
            board("loss", total, update)
            if update % 10 == 0 or update == updates:
                speed = (update - done) * size / (time.perf_counter() - began)
                print(
                    f"{update * size:8} steps, {speed:6.0f} a second: right where the player"
                    f" acted {share:.1%}",
                    flush=True,
                )
            saver(update, last=last, ended=ended)
        saver.save(updates, last=last, ended=ended)
    envs.close()
    if args.plot:
        plot(args.plot, curve.path, args.num_envs * args.num_steps)
    return rewards_so_far


class Curve:
    """A CSV file of figures, which a resumed run takes up where its checkpoint was."""

    def __init__(self, path: Path, columns: tuple[str, ...], done: int):
        self.path = path
        kept = []
        if done and path.exists():
            with path.open(newline="") as file:
                # The last line may be half written.
                rows = [row for row in islice(csv.reader(file), 1, None) if len(row) > 1]
                kept = [row for row in rows if int(row[0]) <= done]
        # Beside and renamed: killed at this moment, it must not lose what is there.
        beside = path.with_suffix(".new")
        with beside.open("w", newline="") as file:
            csv.writer(file).writerows([columns, *kept])
        beside.replace(path)

    def add(self, update: int, *values: float) -> None:
        """One line, there at once."""
        with self.path.open("a", newline="") as file:
            # All digits, so that equal files mean equal runs.
            csv.writer(file).writerow([update, *map(repr, values)])


def tensorboard(run: Path, done: int) -> Any:
    """A function that writes a scalar to TensorBoard, if it is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return lambda name, value, update: None
    return SummaryWriter(run, purge_step=done + 1).add_scalar


def plot(path: str, curve: Path, size: int) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = np.loadtxt(curve, delimiter=",", skiprows=1, ndmin=2)
    figure, axes = pyplot.subplots(figsize=(4.5, 3.2))
    axes.plot(rows[:, 0] * size / 1000, 100 * rows[:, 3])
    axes.set(xlabel="thousand steps", ylabel="% right where the player acted")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def parse(argv: list[str] | None = None) -> Args:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    documented = Path(__file__).read_text().split("class Args:")[1].split('"""')[3::2]
    for field, text in zip(dataclasses.fields(Args), documented, strict=False):
        flag = "--" + field.name.replace("_", "-")
        if field.default is False:
            parser.add_argument(flag, action="store_true", help=text)
        else:
            help = f"{text} (%(default)s)"
            parser.add_argument(flag, type=type(field.default), default=field.default, help=help)
    return Args(**vars(parser.parse_args(argv)))


if __name__ == "__main__":
    main(parse())
