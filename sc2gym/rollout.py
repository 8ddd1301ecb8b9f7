"""Many steps of many lanes in one piece."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Rollout:
    """T steps of B lanes.

    Row t is what an agent knows at step t, what it then did, and what that gave, so
    `observations[t]` and `expert_actions[t]` belong together. Under same-step autoreset the
    last observation of an episode is not among them.

    Attributes:
        observations: (T, B, ...), one array or a dict of them.
        expert_actions: int64 (T, B), what the player did.
        actions: int64 (T, B), what the agent did; without a policy the player's actions.
        rewards: float64 (T, B).
        terminations: bool (T, B).
        truncations: bool (T, B).
        resets: bool (T, B), the steps that only began an episode: what was done means nothing.
        next_observations: (B, ...), what comes after the last step.
    """

    observations: Any
    expert_actions: npt.NDArray[np.int64]
    actions: npt.NDArray[np.int64]
    rewards: npt.NDArray[np.float64]
    terminations: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]
    resets: npt.NDArray[np.bool_]
    next_observations: Any

    def __len__(self) -> int:
        return len(self.rewards)

    def __repr__(self) -> str:
        def form(value: Any) -> str:
            if isinstance(value, dict):
                return "{" + ", ".join(f"{key}: {form(part)}" for key, part in value.items()) + "}"
            return f"{value.dtype}{list(value.shape)}"

        parts = ", ".join(f"{name}={form(value)}" for name, value in vars(self).items())
        return f"Rollout({parts})"
