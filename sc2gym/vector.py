"""The vector environment: many replays at a time, in batches that Cython fills."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from . import spaces
from ._fast.batch import Rules, Slot
from .cache import CacheInfo
from .env import (
    Observation,
    SC2ReplayEnv,
    allocate,
    open_library,
    order_of,
    requested,
    spaces_of,
    warn_shared,
)
from .library import Order, Source
from .options import Options, choose

if TYPE_CHECKING:
    from typing_extensions import Self

Bools = npt.NDArray[np.bool_]

# The batch in the caller's hands and the one being filled.
_SLOTS = 2
# Beyond those a caller may keep a few, as frame stacks do, before memory is allocated anew.
_SLOTS_WITH_COPY = 4


class SC2ReplayVectorEnv(VectorEnv[Observation, npt.NDArray[np.int64], npt.NDArray[Any]]):
    """Steps through recorded games, `num_envs` at a time.

    It gives to the bit what `SyncVectorEnv` gives over `SC2ReplayEnv`s, of which lane i is the
    one with `shard=(rank * num_envs + i, world_size * num_envs)`, all reset with the same seed.
    What that environment says about steps, infos and ends of episodes holds for every lane.

    With `copy=True` a batch is the caller's for as long as he holds any part of it: it is
    memory of the environment that is used again when nobody refers to it any more. NumPy views,
    `torch.from_numpy` and DLPack do refer to it; a bare pointer, as in a copy to a device that
    is still under way, does not. With `copy=False` a batch is written over by the step after
    the next. Rewards, flags, infos and final observations always have memory of their own.

    Args:
        replays: See `Options`.
        num_envs: Lanes. Where there are fewer episodes, lanes share them, and a warning says so.
        autoreset_mode: When a lane begins its next episode: with the step after the end (the
            default), with the same step (the end is in `final_obs` and `final_info`), or never
            by itself: see `gymnasium.vector.AutoresetMode`.
        options: The other fields of `Options`, by name.

    Attributes:
        options: All options.
        library: The episodes.

    Raises:
        TypeError: An option of an unknown name.
        ValueError: An option of an unknown value.
        FileNotFoundError: `replays` names nothing.
        ReplayError: No replay can be used, or one cannot and `on_error` is "raise".
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": ["rgb_array"],
        "render_fps": SC2ReplayEnv.metadata["render_fps"],
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        replays: Source | Iterable[Source] | None = None,
        *,
        num_envs: int = 1,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **options: Any,
    ):
        if num_envs < 1:
            raise ValueError(f"num_envs must be 1 or more, got {num_envs}")
        if not isinstance(autoreset_mode, AutoresetMode):
            choose("autoreset_mode", autoreset_mode, [mode.value for mode in AutoresetMode])
            autoreset_mode = AutoresetMode(autoreset_mode)
        self.options = Options.of(
            {"replays": replays, **options}, others=("num_envs", "autoreset_mode")
        )
        self.num_envs = num_envs
        self.metadata = {**self.metadata, "autoreset_mode": autoreset_mode}
        self.render_mode = self.options.render_mode
        if self.render_mode == "human":
            raise ValueError('a window is for a single environment; use render_mode="rgb_array"')
        self.library = open_library(self.options)
        rank, world = self.options.shard
        self._first, self._lanes = rank * num_envs, world * num_envs
        warn_shared(self.library, self._lanes)

        self.single_observation_space, frames = spaces_of(self.options)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.single_action_space = spaces.action_space()
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rules = Rules(
            frames,
            not isinstance(self.single_observation_space, gymnasium.spaces.Dict),
            int(self.single_action_space.n),
            self.options.reward,
            autoreset_mode.value,
            self.options.max_episode_steps,
        )
        self._slots = deque(self._allocate() for _ in range(_SLOTS))
        self._order: Order | None = None
        # The batch handed out last, and the one that follows it where that is prepared already.
        self._current: Slot | None = None
        self._ahead: Slot | None = None

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """(name, reason) of every replay left out so far."""
        return self.library.skipped

    def cache_info(self) -> CacheInfo:
        """Hits, evictions and bytes of the decoded replays that the process keeps."""
        return self.library.cache_info()

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins an episode in every lane.

        Args:
            seed: Begins the order anew. It is one order for all lanes: a list, as
                `SyncVectorEnv` takes, must hold one and the same seed for each.
            options: "reset_mask", a boolean for each lane, leaves the others where they are;
                "replay", "player" and "step" begin the same episode in all lanes reset.
        """
        options = dict(options or {})
        mask = self._mask(options.pop("reset_mask", None))
        if seed is not None and not isinstance(seed, (int, np.integer)):
            if len(seed) != self.num_envs or len(set(seed)) > 1:
                raise ValueError(f"need one seed, or {self.num_envs} times the same, got {seed}")
            seed = seed[0]
        if seed is not None and mask is not None:
            raise ValueError("a seed begins the order of all lanes anew: not with reset_mask")
        super().reset(seed=seed)
        asked = requested(self.library, options, others=("reset_mask",))
        slot = self._take()
        current = self._current
        if seed is not None or self._order is None:
            self._order = order_of(self.library, self.options, seed, self.np_random)
            current = None  # where lanes were in the last order means nothing in this one
        slot.stay(current)
        for lane in range(self.num_envs) if mask is None else np.flatnonzero(mask).tolist():
            if asked is None:
                slot.begin(lane, self._draw(current, lane))
            else:
                episode, index, step = asked
                slot.begin(lane, (episode, index, self._position(current, lane)), step)
        slot.fill()
        self._current, self._ahead = slot, None
        infos: dict[str, Any] = {}
        for lane in slot.started:
            infos = self._add_info(infos, slot.info(lane) | slot.drawn[lane][0].info(), lane)
        return slot.observations(), infos

    def step(
        self, actions: npt.NDArray[np.int64]
    ) -> tuple[Observation, npt.NDArray[np.float64], Bools, Bools, dict[str, Any]]:
        """Scores the actions and hands out the next batch.

        Raises:
            InvalidAction: Not `num_envs` integers of the action space. The actions of lanes
                that this step resets may be anything.
            ResetNeeded: Before the first reset, or, without autoreset, with a lane at its end.
        """
        current = self._current
        if current is None:
            raise ResetNeeded("call reset before step")
        slot = self._ahead
        if slot is None:
            # Kept where the actions turn out invalid: the next call uses it.
            slot = self._ahead = self._prepare(current)
        observations, rewards, terminations, truncations, infos = slot.hand_out(current, actions)
        self._current, self._ahead = slot, None
        if slot.started:
            for lane, (observation, info) in slot.finals.items():
                final = {"final_obs": observation, "final_info": info}
                infos = self._add_info(infos, final, lane)
            for lane in slot.started:
                infos = self._add_info(infos, slot.drawn[lane][0].info(), lane)
        return observations, rewards, terminations, truncations, infos

    def _prepare(self, before: Slot) -> Slot:
        slot = self._take()
        for lane in slot.follow(before):
            slot.begin(lane, self._draw(before, lane))
        slot.fill()
        return slot

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # What a slot keeps for a lane: the episode, its number, and the lane's next position in
    # the order. The first step of the first lane in any epoch is position 0.

    def _position(self, slot: Slot | None, lane: int) -> int:
        if slot is None:
            return self._first + lane
        position: int = slot.drawn[lane][2]
        return position

    def _draw(self, slot: Slot | None, lane: int) -> tuple[Any, int, int]:
        assert self._order is not None
        return self.library.draw(self._order, self._position(slot, lane), self._lanes)

    def _mask(self, mask: Any) -> Bools | None:
        if mask is None:
            return None
        if self._current is None:
            raise ResetNeeded("the first reset must be of all lanes, without reset_mask")
        mask = np.asarray(mask)
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise ValueError(
                f"reset_mask must be {self.num_envs} booleans, one of them true, got {mask!r}"
            )
        chosen: Bools = mask
        return chosen

    # Memory

    def _allocate(self) -> Slot:
        arrays = allocate(self.single_observation_space, self.options, self.num_envs)
        return Slot(arrays, self._rules)

    def _take(self) -> Slot:
        """A slot to write to: never the current one, and with `copy` none that anyone holds."""
        slots = self._slots
        for slot in slots:
            if slot is not self._current and (not self.options.copy or slot.is_free()):
                return slot
        if len(slots) == _SLOTS_WITH_COPY:
            # Whoever holds its arrays keeps them.
            slots.popleft()
        slots.append(self._allocate())
        return slots[-1]

    # Pictures

    def render(self) -> tuple[npt.NDArray[np.uint8], ...] | None:
        """A picture of every lane, uint8 (height, width, 3); None without a render mode.

        Raises:
            ResetNeeded: Before the first reset.
        """
        if self._current is None:
            raise ResetNeeded("call reset before render")
        if self.render_mode is None:
            gymnasium.logger.warn("render() without render_mode: create the environment with one")
            return None
        from .render import frame

        slot = self._current
        return tuple(frame(slot.drawn[lane][0], slot.step(lane)) for lane in range(self.num_envs))
