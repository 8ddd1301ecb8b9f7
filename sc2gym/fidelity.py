"""How right the events of a replay are about a game, beside a recording of it.

    print(compare(events_episode, recorded_episode))

Both are of the same replay and player. Every loop that both show is compared: which units there
are, where, and of what type and owner; the player's values; and what the player does next. The
recording only has what the player saw, so the other side's units count only while it has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sc2gym import spaces
from sc2gym.episode import Episode

_COLUMNS = ("unit_type", "owner", "x", "y", "alliance")
_MAX_UNITS = 4096
_SELF = 1
# Types that the game lists and the events do not, or only by their birth: no sense to compare.
_NEUTRAL = 3


@dataclass(frozen=True)
class Fidelity:
    """What a comparison found. Shares are of 1, distances in cells.

    Attributes:
        frames: Frames compared.
        units: Units compared, summed over frames: those the recording has, neutral ones left out.
        found: Share of them that the events have too.
        extra: The player's units that only the events have, as a share of his.
        same_type: Share of those found that have the right type.
        same_owner: Likewise the right owner.
        distance: (median, 90th, 99th percentile) from where they are to where the events say.
        own_distance: Of the player's units alone.
        player: Mean absolute difference of each value of pysc2's player vector, by name.
        expert: Share of the steps at which the recording has the player act at which the events
            have the same raw function.
    """

    frames: int
    units: int
    found: float
    extra: float
    same_type: float
    same_owner: float
    distance: tuple[float, float, float]
    own_distance: tuple[float, float, float]
    player: dict[str, float]
    expert: float

    def __str__(self) -> str:
        def cells(three: tuple[float, float, float]) -> str:
            return " / ".join(f"{value:.2f}" for value in three)

        lines = [
            f"{self.frames} frames, {self.units} units",
            f"found {self.found:.1%}, extra {self.extra:.1%}",
            f"right type {self.same_type:.1%}, right owner {self.same_owner:.1%}",
            f"cells off (median / 90 % / 99 %): {cells(self.distance)}, "
            f"own units {cells(self.own_distance)}",
            *(f"{name} off by {value:.1f} on average" for name, value in self.player.items()),
            f"expert actions that agree {self.expert:.1%}",
        ]
        return "\n".join(lines)


def compare(events: Episode, truth: Episode) -> Fidelity:
    """Compares two episodes of the same replay and player.

    Args:
        events: From the replay.
        truth: From its recording.

    Raises:
        ValueError: They are not of the same replay and player, or have no loop in common.
    """
    if (events.content_hash, events.player.player_id) != (
        truth.content_hash,
        truth.player.player_id,
    ):
        raise ValueError("a replay is compared with a recording of itself, from the same side")
    loops, mine, theirs = np.intersect1d(events.game_loops, truth.game_loops, return_indices=True)
    if not len(loops):
        raise ValueError("the two have no loop in common: use the same step_mul")
    observe = ["units", "player"]
    space, frames = spaces.observation_space(observe, max_units=_MAX_UNITS, unit_columns=_COLUMNS)
    assert hasattr(space, "spaces")
    one, other = (
        {key: np.empty(part.shape, part.dtype) for key, part in space.spaces.items()}
        for _ in range(2)
    )
    tally = _Tally()
    for step, true_step in zip(mine.tolist(), theirs.tolist(), strict=True):
        events.fill(step, frames, one)
        truth.fill(true_step, frames, other)
        tally.add(one, other)
    # Where both step alike, what they say the player does next can be compared.
    acts = truth.expert_actions[theirs] != 0
    same = truth.expert_actions[theirs] == events.expert_actions[mine]
    return tally.result(len(loops), _share(same[acts]))


class _Tally:
    """Sums over frames."""

    def __init__(self) -> None:
        self.units = self.own = self.extra = 0
        self.types: list[npt.NDArray[np.bool_]] = []
        self.owners: list[npt.NDArray[np.bool_]] = []
        self.distances: list[npt.NDArray[np.float64]] = []
        self.own_distances: list[npt.NDArray[np.float64]] = []
        self.player: list[npt.NDArray[np.int64]] = []

    def add(self, events: dict[str, Any], truth: dict[str, Any]) -> None:
        """Compares one frame."""
        tags, units = _listed(events)
        true_tags, true_units = _listed(truth)
        real = true_units[:, 4] != _NEUTRAL
        true_tags, true_units = true_tags[real], true_units[real]
        _, here, there = np.intersect1d(tags, true_tags, return_indices=True)
        found, true = units[here], true_units[there]
        distance = np.hypot(*(found[:, 2:4] - true[:, 2:4]).T.astype(np.float64))
        own = true[:, 4] == _SELF
        mine = units[:, 4] == _SELF
        self.units += len(true_units)
        self.own += int(mine.sum())
        self.extra += int((mine & ~np.isin(tags, true_tags)).sum())
        self.types.append(found[:, 0] == true[:, 0])
        self.owners.append(found[:, 1] == true[:, 1])
        self.distances.append(distance)
        self.own_distances.append(distance[own])
        self.player.append(np.abs(events["player"].astype(np.int64) - truth["player"]))

    def result(self, frames: int, expert: float) -> Fidelity:
        """What it comes to."""
        types = np.concatenate(self.types)
        return Fidelity(
            frames=frames,
            units=self.units,
            found=len(types) / self.units if self.units else float("nan"),
            extra=self.extra / self.own if self.own else 0.0,
            same_type=_share(types),
            same_owner=_share(np.concatenate(self.owners)),
            distance=_percentiles(self.distances),
            own_distance=_percentiles(self.own_distances),
            player=dict(zip(spaces.PLAYER, np.mean(self.player, axis=0).tolist(), strict=True)),
            expert=expert,
        )


def _listed(arrays: dict[str, Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    count = int(arrays["unit_count"])
    return arrays["unit_tags"][:count].copy(), arrays["units"][:count].copy()


def _share(right: npt.NDArray[np.bool_]) -> float:
    return float(right.mean()) if len(right) else float("nan")


def _percentiles(parts: list[npt.NDArray[np.float64]]) -> tuple[float, float, float]:
    values = np.concatenate(parts)
    if not len(values):
        return (float("nan"),) * 3
    median, most, nearly_all = np.percentile(values, [50, 90, 99])
    return float(median), float(most), float(nearly_all)
