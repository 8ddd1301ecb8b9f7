"""`sc2gym demo`: what this is, in half a minute."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from .. import movie
from ..episode import Episode, episodes
from ..errors import ReplayError
from ..library import find
from ..picture import Picture
from ..progress import Progress, clock, track
from ..render import frame
from ..replay import Replay
from ..vocabulary import RAW_FUNCTIONS
from .play import count

DESCRIPTION = """
Steps a batch of environments through the sample replays, or yours, with random actions, and says
how fast that went and what there was to see. Writes a picture and a short animation.
"""
EPILOG = """
examples:
  sc2gym demo
  sc2gym demo --replays ~/replays --num-envs 64
"""

# The animation: a whole game in a quarter of a minute.
_PICTURES, _FPS = 225, 15
_POOL = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `sc2gym demo`."""
    add = parser.add_argument
    add("--replays", nargs="+", metavar="PATH", help="replays or folders, instead of the samples")
    add("--num-envs", type=count, default=16, metavar="N", help="environments in a batch (16)")
    add("--steps", type=count, default=4000, metavar="N", help="steps of each (4000)")
    add("--seed", type=_seed, default=0, metavar="N", help="which replays come when (0)")
    add("--out", type=Path, default=Path("demo"), metavar="DIR", help="folder to write to (demo)")


def run(arguments: argparse.Namespace) -> int:
    """Steps, reports, and writes the pictures."""
    envs = gymnasium.make_vec(
        "sc2gym:SC2Replay-v0", num_envs=arguments.num_envs, replays=arguments.replays
    )
    with closing(envs):
        print(f"SC2Replay-v0, {arguments.num_envs} environments")
        print(f"  observation  {_describe(envs.observation_space)}")
        print(f"  action       {envs.single_action_space} for each")
        print(_step(envs, arguments.steps, arguments.seed).report())
    arguments.out.mkdir(parents=True, exist_ok=True)
    _write_pictures(_longest(arguments.replays), arguments.out)
    return 0


@dataclass
class _Seen:
    """What came by: in how many steps, in how much time."""

    num_envs: int
    steps: int = 0
    seconds: float = 0.0
    game_seconds: float = 0.0
    reward: float = 0.0
    games: Counter[tuple[str, str]] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    functions: Counter[int] = field(default_factory=Counter)

    def report(self) -> str:
        """A few lines for people."""
        played = sum(self.games.values())
        acted = self.steps - self.functions[0]
        most = [(i, n) for i, n in self.functions.most_common(6) if i][:5]
        lines = [
            f"{self.steps:,} steps in {self.seconds:.2f} s:"
            f" {self.steps / self.seconds:,.0f} steps a second"
            f" ({self.game_seconds / 3600:.1f} hours of game)",
            f"  games        {played} sides: "
            + ", ".join(f"{n} {a} vs {b}" for (a, b), n in self.games.most_common(6)),
            "  results      " + ", ".join(f"{n} {r}" for r, n in self.outcomes.most_common()),
            f"  the players  acted in {acted / self.steps:.0%} of the steps: "
            + ", ".join(f"{RAW_FUNCTIONS[i].name} {n / max(1, acted):.0%}" for i, n in most),
            f"  the agent    did at random what the player did {int(self.reward)} times"
            f" of {acted:,}; nothing it does changes the game",
        ]
        return "\n".join(lines)


def _step(envs: gymnasium.vector.VectorEnv[Any, Any, Any], steps: int, seed: int) -> _Seen:
    seen = _Seen(envs.num_envs)
    envs.action_space.seed(seed)
    # Drawn beforehand: sampling takes longer than a step.
    pool = [envs.action_space.sample() for _ in range(_POOL)]
    _, infos = envs.reset(seed=seed)
    _note_games(seen, infos)
    with Progress("stepping", steps * envs.num_envs, unit="steps") as progress:
        for step in range(steps):
            before = infos
            began = time.perf_counter()
            _, rewards, _, _, infos = envs.step(pool[step % _POOL])
            seen.seconds += time.perf_counter() - began
            seen.functions.update(before["expert_action"].tolist())
            seen.reward += float(rewards.sum())
            forward = infos["seconds"] - before["seconds"]
            seen.game_seconds += float(forward[forward > 0].sum())
            if "replay" in infos:
                _note_games(seen, infos)
            progress.advance(envs.num_envs)
    seen.steps = steps * envs.num_envs
    return seen


def _note_games(seen: _Seen, infos: dict[str, Any]) -> None:
    for lane in np.flatnonzero(infos["_replay"]):
        races = infos["race"][lane], infos["opponent_race"][lane] or "others"
        seen.games[races] += 1
        seen.outcomes[infos["result"][lane]] += 1


def _describe(space: gymnasium.Space[Any]) -> str:
    if isinstance(space, gymnasium.spaces.Dict):
        return ", ".join(f"{key} {_describe(each)}" for key, each in space.items())
    return f"{space.dtype} {space.shape}"


def _longest(replays: list[str] | None) -> Replay:
    """The longest of the first few replays: there is most to see in it."""
    opened = []
    for source in find(replays)[:20]:
        try:
            replay = Replay.open(source)
            if replay.players and replay.event_counts("tracker"):
                opened.append(replay)
        except ReplayError:
            continue  # the environments have warned of it
    if not opened:
        raise ValueError("there is nothing to draw in the first 20 replays")
    return max(opened, key=lambda replay: replay.game_loops)


def _write_pictures(replay: Replay, out: Path) -> None:
    from PIL import Image

    step_mul = max(1, replay.game_loops // _PICTURES)
    sides = episodes(replay, "both", step_mul)
    opponent = sides[1] if len(sides) == 2 else None
    game, steps = sides[0], len(sides[0]) + 1

    def draw(step: int) -> Picture:
        return frame(game, step, opponent=opponent)

    Image.fromarray(draw(min(_busiest(sides), len(game)))).save(out / "picture.png")
    pictures = track(map(draw, range(steps)), "drawing", total=steps, unit="pictures")
    movie.save(out / "game.gif", pictures, _FPS)
    length = clock(replay.game_loops / replay.loops_per_second)
    print(f"wrote {out / 'picture.png'} and {out / 'game.gif'}:")
    print(f"  {length} minutes on {replay.map_name} in {steps // _FPS} s")


def _busiest(sides: tuple[Episode, ...]) -> int:
    """The step in which most is being killed: income is steady, so scores jump in fights."""
    shortest = min(len(each) for each in sides)
    total = np.sum([each.score[: shortest + 1] for each in sides], axis=0)
    # Scores change every 160 loops, which may be longer than a step.
    gained = total[4:] - total[:-4] if shortest >= 40 else np.diff(total)
    opening = len(gained) // 10
    return int(np.argmax(gained[opening:])) + opening + 2


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)
