"""The options that the single and the vector environment have in common."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

if TYPE_CHECKING:
    from .episode import Episode
    from .library import Source

PLAYERS = ("both", "winner", "loser")
ORDERS = ("shuffle", "sequential")
ON_ERROR = ("skip", "raise")
SOURCES = ("auto", "recording", "events", "game")
REWARDS = ("imitation", "outcome", "score")
RENDER_MODES = ("rgb_array", "human")


@dataclass(frozen=True)
class Options:
    """What an environment can be asked for.

    Attributes:
        replays: A file, a folder (searched recursively), a glob pattern, the bytes of a replay,
            or several of these. None for what the environment variable SC2GYM_REPLAYS names,
            or else the samples that ship with the package.
        observe: The observation: one key for that array itself, several for a dict of them.
            Keys are "minimap", "units", "player", "upgrades" and "game_loop".
        minimap_size: Height and width of the minimap in pixels; one number for a square.
        minimap_layers: Names of the minimap's layers, see `sc2gym.spaces.LAYERS`.
        max_units: Rows of the unit table.
        unit_columns: Names of the unit table's columns, see `sc2gym.spaces.COLUMNS`.
        player: Whose side: "both" makes each side an episode of its own; else a player id,
            "winner" or "loser".
        step_mul: Game loops a step, or "actions" for one step per loop at which the player
            acted.
        order: "shuffle" (every epoch another permutation) or "sequential".
        shard: (rank, world size): this environment's share of every epoch. Shares are disjoint
            and together complete, as long as all ranks reset with the same seed.
        on_error: What to do about a replay that cannot be used: "skip" it with a warning, or
            "raise".
        on_bad_ids: What to do about a replay whose tracker events name units that do not live:
            "skip" those events, or "raise", and `on_error` decides.
        copy: False hands out memory that the step after the next writes over.
        reward: "imitation" is 1 where the player acted and the agent chose the same function,
            else 0; "outcome" is 1, 0 or -1 for a win, neither or a loss at the episode's end;
            "score" is the change of resources collected and value killed; or a function of
            (episode, step, action), where `episode.expert_actions[step]` is what the player did.
        max_episode_steps: Truncates an episode after so many steps.
        cache_bytes: Bound on the decoded replays that the process keeps in memory, for all its
            environments; the last one given counts. By default a quarter of what is free.
        source: "auto" takes a side of a game from its recording where there is one among
            `replays`, else from the replay's events; "recording" or "events" takes one kind of
            file only; "game" has StarCraft II record what has no recording yet.
        render_mode: "rgb_array", "human" or None.
    """

    replays: Source | Iterable[Source] | None = None
    observe: str | Sequence[str] = "minimap"
    minimap_size: int | tuple[int, int] = 64
    minimap_layers: Sequence[str] | None = None
    max_units: int = 512
    unit_columns: Sequence[str] | None = None
    player: int | Literal["both", "winner", "loser"] = "both"
    step_mul: int | Literal["actions"] = 8
    order: Literal["shuffle", "sequential"] = "shuffle"
    shard: tuple[int, int] = (0, 1)
    on_error: Literal["skip", "raise"] = "skip"
    on_bad_ids: Literal["skip", "raise"] = "skip"
    copy: bool = True
    reward: Literal["imitation", "outcome", "score"] | Callable[[Episode, int, int], float] = (
        "imitation"
    )
    max_episode_steps: int | None = None
    cache_bytes: int | None = None
    source: Literal["auto", "recording", "events", "game"] = "auto"
    render_mode: str | None = None

    def __post_init__(self) -> None:
        if not _is_count(self.player):
            choose("player", self.player, PLAYERS, "or a player id, 1 or more")
        if not _is_count(self.step_mul):
            choose("step_mul", self.step_mul, ("actions",), "or a number of game loops, 1 or more")
        choose("order", self.order, ORDERS)
        choose("on_error", self.on_error, ON_ERROR)
        choose("on_bad_ids", self.on_bad_ids, ON_ERROR)
        choose("source", self.source, SOURCES)
        if not callable(self.reward):
            choose("reward", self.reward, REWARDS)
        if self.render_mode is not None:
            choose("render_mode", self.render_mode, RENDER_MODES)
        if self.max_episode_steps is not None:
            need_count("max_episode_steps", self.max_episode_steps)
        if self.cache_bytes is not None:
            need_count("cache_bytes", self.cache_bytes, least=0)
        if not isinstance(self.copy, (bool, np.bool_)):
            raise ValueError(f"copy must be True or False, got {self.copy!r}")
        try:
            rank, world = self.shard
        except (TypeError, ValueError):
            raise ValueError(f"shard must be (rank, world size), got {self.shard!r}") from None
        if not _is_count(world) or not _is_count(rank, 0) or rank >= world:
            raise ValueError(
                f"shard must be (rank, world size), 0 <= rank < size, got {self.shard}"
            )

    @classmethod
    def of(cls, given: dict[str, Any], others: Sequence[str] = ()) -> Options:
        """Options by name.

        Args:
            given: Name -> value.
            others: Names that the caller takes itself, for the message.

        Raises:
            TypeError: There is no option of that name; the message has the closest one.
            ValueError: A value that an option cannot have.
        """
        names = [*(field.name for field in dataclasses.fields(cls)), *others]
        for name in given:
            if name not in names:
                # In Python's words, by which TorchRL knows what an environment does not take.
                raise TypeError(f"unexpected keyword argument {name!r}{closest(name, names)}")
        return cls(**given)


Choice = TypeVar("Choice")


def choose(option: str, value: object, valid: Sequence[str], further: str = "") -> None:
    """Raises ValueError where `value` is none of `valid`, and says which it may have meant.

    Args:
        option: What it is for.
        value: What was given.
        valid: The names there are.
        further: What else it may be, for the message.
    """
    if not isinstance(value, str) or value not in valid:
        further = f", {further}" if further else ""
        raise ValueError(f"unknown {option} {value!r}{closest(value, valid, further)}")


def closest(value: object, valid: Sequence[str], further: str = "") -> str:
    """The end of a message about a name that is none of `valid`."""
    matches = difflib.get_close_matches(str(value), valid, n=1, cutoff=0.5)
    listed = f"valid are {', '.join(valid)}{further}"
    return f"; did you mean {matches[0]!r}? ({listed})" if matches else f"; {listed}"


def need_count(option: str, value: object, least: int = 1) -> None:
    """Raises ValueError where `value` is no whole number, or less than `least`."""
    if not _is_count(value, least):
        raise ValueError(f"{option} must be a whole number, {least} or more, got {value!r}")


def _is_count(value: object, least: int = 1) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        return False
    return bool(value >= least)
