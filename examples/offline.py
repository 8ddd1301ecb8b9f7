"""Offline reinforcement learning from recorded games: discrete conservative Q-learning (CQL).

    python examples/offline.py --replays ~/replays --reward score

Learns what the player's actions are worth in the score (resources collected and value killed, in
thousands) or the outcome (1 or -1 at the end), from his actions alone. CQL (Kumar et al. 2020)
is double Q-learning with a penalty on the worth of actions that he did not take: of those,
recorded games say nothing. The greedy policy is compared with him on replays held out.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from sc2gym import library, vocabulary
from sc2gym.dataset import ReplayDataset


@dataclasses.dataclass
class Args:
    """What can be set on the command line."""

    replays: str = ""
    """a folder, file or glob; by default the samples"""
    held_out: int = 2
    """how many replays, the last by name, to measure on only"""
    reward: str = "score"
    """score or outcome"""
    updates: int = 1000
    """optimiser steps"""
    batch_size: int = 16
    """windows a batch"""
    steps: int = 16
    """steps a window"""
    learning_rate: float = 3e-4
    """of Adam"""
    gamma: float = 0.99
    """discount"""
    alpha: float = 1.0
    """weight of CQL's penalty"""
    tau: float = 0.01
    """share of the network that the target network takes over with an update"""
    minimap_size: int = 32
    """pixels a side"""
    seed: int = 1
    """of the network and of the data's order"""
    threads: int = 0
    """CPU threads of torch; by default as many as there are cores"""
    device: str = "cuda" if torch.cuda.is_available() else "cpu"
    """where to train"""


class QNetwork(nn.Module):
    """The worth of every function, from the minimap, the bank and the player's last action."""

    def __init__(self, space: Any, functions: int):
        super().__init__()
        layers, height, width = space["minimap"].shape
        self.minimap = nn.Sequential(
            nn.Conv2d(layers, 16, 4, 4), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * (height // 8) * (width // 8), 128), nn.ReLU(),
        )  # fmt: skip
        self.player = nn.Linear(space["player"].shape[0], 32)
        self.last = nn.Embedding(functions, 32)
        self.head = nn.Sequential(
            nn.Linear(128 + 32 + 32, 128), nn.ReLU(), nn.Linear(128, functions)
        )

    def forward(self, seen: dict[str, Tensor], last: Tensor) -> Tensor:
        """(N, functions) of N steps."""
        player = seen["player"].clamp(0).float().log1p() / 5
        features = [
            self.minimap(seen["minimap"].float() / 10),
            torch.relu(self.player(player)),
            self.last(last),
        ]
        return self.head(torch.cat(features, -1))


def transitions(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Steps with what followed them, as (N, ...) on the device."""
    batch = {
        key: {name: part.to(device, non_blocking=True) for name, part in value.items()}
        if isinstance(value, dict)
        else value.to(device, non_blocking=True)
        for key, value in batch.items()
    }
    mask, actions = batch["mask"], batch["actions"]
    last = batch["previous_actions"][..., 0]
    return {
        "seen": {key: value[:, :-1][mask] for key, value in batch["observations"].items()},
        "then": {key: value[:, 1:][mask] for key, value in batch["observations"].items()},
        "last": last[mask],
        # The last action as of the next step: this one, unless it is none.
        "last_then": torch.where(actions > 0, actions, last)[mask],
        "action": actions[mask],
        "reward": batch["rewards"][mask],
        "terminated": batch["terminated"][mask],
    }


def main(args: Args) -> dict[str, float]:
    replays = library.find(args.replays or None)
    if not 0 < args.held_out < len(replays):
        raise SystemExit(f"cannot hold out {args.held_out} of {len(replays)} replays")
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    windows: dict[str, Any] = {
        "steps": args.steps, "successor": True, "history": 1, "reward": args.reward,
        "observe": ("minimap", "player"), "minimap_size": args.minimap_size,
    }  # fmt: skip
    train = ReplayDataset(replays[: -args.held_out], seed=args.seed, epochs=None, **windows)
    held_out = ReplayDataset(replays[-args.held_out :], order="sequential", **windows)
    q = QNetwork(train.observation_space, vocabulary.NUM_FUNCTIONS).to(device)
    target = copy.deepcopy(q).requires_grad_(False)
    optimizer = torch.optim.Adam(q.parameters(), args.learning_rate)
    scale = 1e-3 if args.reward == "score" else 1.0
    is_cuda = device.type == "cuda"
    scaler = torch.amp.GradScaler(enabled=is_cuda)

    batches = iter(DataLoader(train, args.batch_size, pin_memory=is_cuda))
    for update in range(1, args.updates + 1):
        steps = transitions(next(batches), device)
        with torch.autocast(device.type, torch.float16, enabled=is_cuda):
            worth = q(steps["seen"], steps["last"]).float()
            with torch.no_grad():
                # Double Q-learning: one network chooses, the other says what it is worth.
                best = q(steps["then"], steps["last_then"]).argmax(-1, keepdim=True)
                later = target(steps["then"], steps["last_then"]).float().gather(-1, best)
                later = later.squeeze(-1) * ~steps["terminated"]
                wanted = scale * steps["reward"] + args.gamma * later
        taken = worth.gather(-1, steps["action"].unsqueeze(-1)).squeeze(-1)
        error = F.smooth_l1_loss(taken, wanted)
        penalty = (worth.logsumexp(-1) - taken).mean()
        optimizer.zero_grad()
        scaler.scale(error + args.alpha * penalty).backward()
        scaler.step(optimizer)
        scaler.update()
        with torch.no_grad():
            for old, new in zip(target.parameters(), q.parameters(), strict=True):
                old.lerp_(new, args.tau)
        if update % 100 == 0 or update == args.updates:
            print(
                f"{update:6} updates: error {error.item():.4f}, penalty {penalty.item():.3f},"
                f" worth of his actions {taken.mean().item():+.3f}",
                flush=True,
            )
    found = evaluate(q, held_out, args, scale)
    print(
        f"held out: error {found['error']:.4f}; where the player acted, the best function is his"
        f" in {found['right']:.1%} of {found['steps']:.0f}, his last one in {found['previous']:.1%}"
    )
    return found | {"error_in_training": error.item(), "penalty": penalty.item()}


@torch.no_grad()
def evaluate(q: QNetwork, dataset: ReplayDataset, args: Args, scale: float) -> dict[str, float]:
    """How well the greedy policy, no_op apart, meets the player's, and the Bellman error."""
    device = torch.device(args.device)
    steps = right = previous = every = 0
    error = 0.0
    for batch in DataLoader(dataset, args.batch_size):
        found = transitions(batch, device)
        worth = q(found["seen"], found["last"])
        later = q(found["then"], found["last_then"]).amax(-1) * ~found["terminated"]
        taken = worth.gather(-1, found["action"].unsqueeze(-1)).squeeze(-1)
        wanted = scale * found["reward"] + args.gamma * later
        error += float((taken - wanted).square().sum())
        every += len(taken)
        acted = found["action"] > 0
        steps += int(acted.sum())
        right += int((worth[:, 1:].argmax(-1) + 1 == found["action"])[acted].sum())
        previous += int((found["last"] == found["action"])[acted].sum())
    return {
        "steps": steps,
        "right": right / max(steps, 1),
        "previous": previous / max(steps, 1),
        "error": error / max(every, 1),
    }


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
