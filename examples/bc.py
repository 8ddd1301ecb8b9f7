"""Behaviour cloning: learn to choose the function that the player chose.

    python examples/bc.py --replays ~/replays --held-out 2 --plot curve.png

The last `--held-out` replays are never trained on. On them the network is measured at the steps
where the player acted (which function, given that he acts) and at all steps (whether he acts at
all as well), beside two baselines: the most frequent action of the training replays, and the
action before. A run that was stopped, by whatever, goes on with `--resume` as if it had not been.

A network sees what an agent sees at that step: the minimap, the units, the bank, and the
player's own last actions; never his current one.
"""

from __future__ import annotations

import argparse
import collections
import csv
import dataclasses
import json
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from sc2gym import checkpoint, library, vocabulary
from sc2gym.dataset import ReplayDataset

NO_OP = 0
LAYERS = ("player_relative", "unit_class", "unit_density", "selected", "camera")
COLUMNS = ("unit_type", "alliance", "is_selected", "build_progress")
# How many of the last actions are shown in their order; the others only by how often they occur.
LATEST = 4


@dataclasses.dataclass
class Args:
    """What can be set on the command line."""

    replays: str = ""
    """a folder, file or glob; by default the samples"""
    held_out: int = 2
    """how many replays, the last by name, to measure on only"""
    run: str = "runs/bc"
    """folder for checkpoints, curves and TensorBoard"""
    resume: bool = False
    """go on with the run in that folder"""
    updates: int = 800
    """optimiser steps"""
    threads: int = 0
    """CPU threads of torch; by default as many as there are cores"""
    batch_size: int = 32
    """windows a batch"""
    steps: int = 16
    """steps a window"""
    learning_rate: float = 1e-3
    """at the beginning; it falls to zero along a cosine"""
    weight_decay: float = 0.05
    """of AdamW"""
    dropout: float = 0.4
    """share of the features left out in training"""
    no_op_share: float = 0.3
    """share of the steps without an action to train on"""
    history: int = 32
    """how many of the player's last actions to show"""
    step_mul: str = "actions"
    """game loops a step, or "actions" for a step where the player did something"""
    minimap_size: int = 32
    """pixels a side"""
    evaluate_every: int = 100
    """updates from one measurement on the held-out replays to the next"""
    save_every: int = 100
    """updates from one checkpoint to the next"""
    seed: int = 1
    """of the network and of the data's order"""
    device: str = "cuda" if torch.cuda.is_available() else "cpu"
    """where to train"""
    plot: str = ""
    """draw the curves into this PNG at the end"""


class Agent(nn.Module):
    """Minimap, units, bank and history, each encoded, then two layers."""

    def __init__(self, args: Args, functions: int, unit_ids: Tensor):
        super().__init__()
        self.register_buffer("unit_ids", unit_ids)
        # How much each of the last actions counts: three memories, from short to endless.
        ago = torch.arange(args.history)
        decay = torch.stack([rate**ago for rate in (0.6, 0.9, 1.0)])
        self.register_buffer("decay", decay, persistent=False)
        self.functions = functions
        # Of one-hot player_relative and unit_class, and the three other layers.
        self.minimap = nn.Sequential(
            nn.Conv2d(5 + 11 + 3, 32, 4, 4), nn.ReLU(),
            nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * (args.minimap_size // 8) ** 2, 32),
        )  # fmt: skip
        self.units = nn.Linear(2 * 4 * len(unit_ids), 256)
        self.latest = nn.Embedding(functions, 24)
        self.order = nn.Linear(24 * LATEST, 256)
        self.often = nn.Linear(len(decay) * functions, 256)
        self.player = nn.Linear(11 + 1 + 1, 256)
        self.first = nn.Sequential(nn.LayerNorm(256), nn.ReLU(), nn.Dropout(args.dropout))
        self.second = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Dropout(args.dropout))
        self.head = nn.Linear(256, functions)
        self.mix = nn.Linear(32, 256)
        self.drop = nn.Dropout(args.dropout / 2)
        # What usually follows what, for each of the latest actions by itself.
        self.follow = nn.Embedding(LATEST * functions, functions)
        nn.init.zeros_(self.follow.weight)

    def forward(self, seen: dict[str, Tensor]) -> Tensor:
        """Logits (N, functions) of N steps."""
        minimap = seen["minimap"]
        one_hot = [
            minimap[:, layer, None] == torch.arange(kinds, device=minimap.device).view(-1, 1, 1)
            for layer, kinds in ((0, 5), (1, 11))
        ]
        density = minimap[:, 2:3] / 8
        minimap = torch.cat([*one_hot, density, minimap[:, 3:]], 1)
        figures = torch.cat([seen["player"], seen["game_loop"]], -1).clamp(0).float()
        figures = torch.cat([figures.log1p() / 5, seen["since_action"].log1p()[:, None]], -1)
        previous = seen["previous_actions"]
        latest = previous[:, :LATEST]
        often = previous.new_zeros(len(previous), len(self.decay), self.functions).float()
        often.scatter_add_(
            2,
            previous[:, None].expand(-1, len(self.decay), -1),
            self.decay.expand(len(previous), -1, -1),
        )
        encoded = (
            self.mix(self.minimap(minimap))
            + self.units(self.drop(seen["counts"]))
            + self.order(self.drop(self.latest(latest).flatten(1)))
            + self.often(self.drop(often.log1p().flatten(1)))
            + self.player(figures)
        )
        place = self.functions * torch.arange(LATEST, device=latest.device)
        hidden = self.first(encoded)
        hidden = hidden + self.second(hidden)
        return self.head(hidden) + self.follow(latest + place).sum(1)

    def count(self, units: Tensor, first: Tensor) -> Tensor:
        """How many units of each type there are, and what has changed since the step before.

        Args:
            units: (windows, L, units, columns).
            first: (windows, L), an episode's first steps.

        Returns:
            (windows, L, 2 * 4 * types): logarithms of the numbers of own, selected, unfinished
            and enemy units, then their changes. A change of selection foretells a command.
        """
        kind, alliance, selected, progress = units.unbind(-1)
        kind = kind.contiguous()
        place = torch.searchsorted(self.unit_ids, kind).clamp(max=len(self.unit_ids) - 1)
        known = self.unit_ids[place] == kind
        own = known & (alliance == 1)
        groups = torch.stack(
            [own, own & (selected > 0), own & (progress < 100), known & (alliance == 4)], 2
        ).float()
        counts = units.new_zeros(*units.shape[:2], 4, len(self.unit_ids))
        counts.scatter_add_(3, place.unsqueeze(2).expand_as(groups), groups)
        counts = counts.log1p().flatten(2)
        before = F.pad(counts, (0, 0, 1, 0))[:, :-1]
        return torch.cat([counts, (counts - before) * ~first[..., None]], -1)


def flatten(
    agent: Agent, batch: dict[str, Any], device: torch.device
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """What is seen, the actions and the mask, (windows * L, ...), on the device."""
    # uint8 goes over the bus, and becomes real numbers there.
    batch = {key: value for key, value in batch.items() if key != "observations"} | batch[
        "observations"
    ]
    on_device = {key: value.to(device, non_blocking=True) for key, value in batch.items()}
    on_device["counts"] = agent.count(on_device["units"], on_device["first"])
    names = ("minimap", "player", "game_loop", "counts", "previous_actions", "since_action")
    flat = {key: on_device[key].flatten(0, 1) for key in names}
    return flat, on_device["actions"].flatten(), on_device["mask"].flatten()


class Tally:
    """Right answers: of all, within the first five, and by function."""

    def __init__(self) -> None:
        self.steps = self.right = self.top5 = 0
        self.by_function: dict[int, list[int]] = collections.defaultdict(lambda: [0, 0])

    def add(self, actions: Tensor, ranked: Tensor) -> None:
        """Counts steps by the best five guesses, (N, 5), or the only one, (N, 1)."""
        hits = ranked == actions.unsqueeze(-1)
        self.steps += len(actions)
        self.right += int(hits[:, 0].sum())
        self.top5 += int(hits.any(-1).sum())
        for action, hit in zip(actions.tolist(), hits[:, 0].tolist(), strict=True):
            self.by_function[action][0] += 1
            self.by_function[action][1] += hit

    @property
    def accuracy(self) -> float:
        """Share of right first guesses."""
        return self.right / max(self.steps, 1)


@torch.no_grad()
def evaluate(
    agent: Agent, dataset: ReplayDataset, args: Args, frequent: tuple[int, int]
) -> dict[str, Tally]:
    """Measures on the held-out replays."""
    device = torch.device(args.device)
    agent.eval()
    tallies: dict[str, Tally] = collections.defaultdict(Tally)
    # A side that never acts is played by the computer, whose commands are not in the file.
    idle = [i for i in range(len(dataset.library)) if not acts(dataset, i)]
    dataset.set_epoch(0)
    for batch in DataLoader(dataset, args.batch_size):
        batch["mask"] &= ~torch.isin(batch["episode"], torch.tensor(idle)).unsqueeze(-1)
        before = F.pad(batch["actions"], (1, 0))[:, :-1].to(device).flatten()
        seen, actions, mask = flatten(agent, batch, device)
        seen, actions, before = {k: v[mask] for k, v in seen.items()}, actions[mask], before[mask]
        if not len(actions):
            continue
        logits = agent(seen).float()
        # It has met only so many of the steps without an action; they are more frequent.
        logits[:, NO_OP] -= float(np.log(args.no_op_share))
        tallies["all"].add(actions, logits.topk(5).indices)
        tallies["all, most frequent"].add(actions, torch.full_like(actions, frequent[0])[:, None])
        tallies["all, previous"].add(actions, before[:, None])
        acted = actions != NO_OP
        logits[:, NO_OP] = -torch.inf
        actions = actions[acted]
        last = seen["previous_actions"][acted, 0]
        tallies["acted"].add(actions, logits[acted].topk(5).indices)
        tallies["acted, most frequent"].add(actions, torch.full_like(actions, frequent[1])[:, None])
        tallies["acted, previous"].add(actions, last[:, None])
    agent.train()
    return tallies


def types_of(replays: list[Any]) -> Tensor:
    """The unit types that occur in replays, sorted: those of the network's inputs."""
    now_and_then = ReplayDataset(
        replays, step_mul=160, observe="units", unit_columns=["unit_type"], order="sequential"
    )
    return torch.cat([window["observations"]["units"].unique() for window in now_and_then]).unique()


def acts(dataset: ReplayDataset, index: int) -> bool:
    episode = dataset.library.usable(index)
    return episode is not None and bool(episode.expert_actions.any())


def main(args: Args) -> dict[str, Any]:
    replays = library.find(args.replays or None)
    if not 0 < args.held_out < len(replays):
        raise SystemExit(f"cannot hold out {args.held_out} of {len(replays)} replays")
    windows: dict[str, Any] = {
        # One step before each window, for what has changed since.
        "steps": args.steps, "burn_in": 1, "history": args.history,
        "step_mul": args.step_mul if args.step_mul == "actions" else int(args.step_mul),
        "observe": ("minimap", "units", "player", "game_loop"),
        "minimap_size": args.minimap_size, "minimap_layers": LAYERS, "unit_columns": COLUMNS,
    }  # fmt: skip
    train = ReplayDataset(replays[: -args.held_out], seed=args.seed, epochs=None, **windows)
    held_out = ReplayDataset(replays[-args.held_out :], order="sequential", **windows)
    counts: collections.Counter[int] = collections.Counter()
    for index in range(len(train.library)):
        if acts(train, index):
            counts.update(train.library.episode(index).expert_actions.tolist())
    most = counts.most_common(2)
    # Of all actions, and of those that are one.
    frequent = most[0][0], next(action for action, _ in most if action != NO_OP)
    idle = torch.tensor([i for i in range(len(train.library)) if not acts(train, i)])

    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    unit_types = types_of(replays[: -args.held_out])
    agent = Agent(args, vocabulary.NUM_FUNCTIONS, unit_types).to(device)
    optimizer = torch.optim.AdamW(
        agent.parameters(), args.learning_rate, weight_decay=args.weight_decay
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.updates)
    is_cuda = device.type == "cuda"
    scaler = torch.amp.GradScaler(enabled=is_cuda)
    parts: dict[str, Any] = {
        "model": agent, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler,
        "dataset": train,
    }  # fmt: skip

    run = Path(args.run)
    run.mkdir(parents=True, exist_ok=True)
    file = run / "checkpoint.pt"
    done = 0
    if args.resume and checkpoint.latest(run) is not None:
        done = checkpoint.load(file, map_location=device, **parts).step
    losses = Curve(run / "loss.csv", ("update", "loss"), done)
    accuracies = Curve(run / "accuracy.csv", ("update", "acted", "acted_top5", "all"), done)
    board = tensorboard(run, done)

    began, waited = time.perf_counter(), 0.0
    with checkpoint.every(file, steps=args.save_every, **parts) as saver:
        batches = iter(DataLoader(train, args.batch_size, pin_memory=is_cuda))
        for update in range(done + 1, args.updates + 1):
            asked = time.perf_counter()
            batch = next(batches)
            waited += time.perf_counter() - asked
            batch["mask"] &= ~torch.isin(batch["episode"], idle).unsqueeze(-1)
            seen, actions, mask = flatten(agent, batch, device)
            chosen = torch.rand(actions.shape).to(device) < args.no_op_share
            kept = mask & ((actions != NO_OP) | chosen)
            with torch.autocast(device.type, torch.float16, enabled=is_cuda):
                logits = agent({key: value[kept] for key, value in seen.items()})
                loss = F.cross_entropy(logits.float(), actions[kept])
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()

            losses.add(update, loss.item())
            board("loss", loss.item(), update)
            if update % args.evaluate_every == 0 or update == args.updates:
                found = evaluate(agent, held_out, args, frequent)
                acted, every = found["acted"], found["all"]
                top5 = acted.top5 / max(acted.steps, 1)
                accuracies.add(update, acted.accuracy, top5, every.accuracy)
                board("held out/accuracy where the player acted", acted.accuracy, update)
                board("held out/accuracy at all steps", every.accuracy, update)
                print(
                    f"{update:6} updates, {time.perf_counter() - began:5.0f} s: loss"
                    f" {loss.item():.3f}, held out: acted {acted.accuracy:.1%}"
                    f" (top five {top5:.1%}), all {every.accuracy:.1%}",
                    flush=True,
                )
            saver(update)
        saver.save(args.updates)
    found = evaluate(agent, held_out, args, frequent)
    print(f"\nwaiting for data: {waited / max(time.perf_counter() - began, 1e-9):.0%} of the time")
    report(found)
    summary = {name: tally.accuracy for name, tally in found.items()}
    summary["acted, top five"] = found["acted"].top5 / max(found["acted"].steps, 1)
    (run / "summary.json").write_text(json.dumps(summary, indent=1))
    if args.plot:
        plot(args.plot, losses.path, accuracies.path, found)
    return summary


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


def report(found: dict[str, Tally]) -> None:
    print(
        f"\n{'held-out steps':16}{'number':>8}{'network':>9}{'most frequent':>15}{'previous':>10}"
    )
    for name in ("acted", "all"):
        others = [found[f"{name}, {kind}"].accuracy for kind in ("most frequent", "previous")]
        print(
            f"{name:16}{found[name].steps:8}{found[name].accuracy:9.1%}"
            f"{others[0]:15.1%}{others[1]:10.1%}"
        )
    names = [function.name for function in vocabulary.raw_functions()]
    print(f"\n{'function':32}{'number':>8}{'right':>8}{'previous':>10}")
    by_number = sorted(found["acted"].by_function.items(), key=lambda item: -item[1][0])
    for action, (number, right) in by_number[:15]:
        before = found["acted, previous"].by_function[action][1]
        name = names[action] if action < len(names) else "unknown"
        print(f"{name:32}{number:8}{right / number:8.1%}{before / number:10.1%}")


def plot(path: str, losses: Path, accuracies: Path, found: dict[str, Tally]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    loss = np.loadtxt(losses, delimiter=",", skiprows=1, ndmin=2)
    accuracy = np.loadtxt(accuracies, delimiter=",", skiprows=1, ndmin=2)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2))
    width = min(25, len(loss))
    smooth = np.convolve(loss[:, 1], np.ones(width) / width, "valid")
    left.plot(loss[width - 1 :, 0], smooth)
    left.set(xlabel="updates", ylabel="loss on the training replays")
    right.plot(accuracy[:, 0], 100 * accuracy[:, 1], marker=".", label="network")
    for kind, style in (("previous", "--"), ("most frequent", ":")):
        level = 100 * found[f"acted, {kind}"].accuracy
        right.axhline(level, color="gray", linestyle=style, label=f"{kind} action")
    right.set(xlabel="updates", ylabel="% right where the player acted\n(held-out replays)")
    right.legend(loc="lower right")
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
