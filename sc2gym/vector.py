"""The vector environment: many replays at a time, in batches that Cython fills."""

from __future__ import annotations

import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from . import spaces
from ._fast.batch import Rules, Slot, Strip
from ._fast.crew import Crew
from .ahead import Ahead, NotReady
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
from .library import Library, Order, Source
from .options import Options, choose, need_count
from .rollout import Rollout
from .state import Lane, Stateful

if TYPE_CHECKING:
    from typing_extensions import Self

    from .episode import Episode

Bools = npt.NDArray[np.bool_]

# Batches kept for use beside those ahead and the one handed out last. A caller may hold a few,
# as frame stacks do, before memory is allocated anew.
_SPARE = 3


class SC2ReplayVectorEnv(Stateful, VectorEnv[Observation, npt.NDArray[np.int64], npt.NDArray[Any]]):
    """Steps through recorded games, `num_envs` at a time.

    It gives to the bit what `SyncVectorEnv` gives over `SC2ReplayEnv`s, of which lane i is the
    one with `shard=(rank * num_envs + i, world_size * num_envs)`, all reset with the same seed.
    What that environment says about steps, infos and ends of episodes holds for every lane.

    With `copy=True` a batch is the caller's for as long as he holds any part of it: it is
    memory of the environment that is used again when nobody refers to it any more. NumPy views,
    `torch.from_numpy` and DLPack do refer to it; a bare pointer, as in a copy to a device that
    is still under way, does not. With `copy=False` a batch is written over by the step after
    the next. Rewards, flags, infos and final observations always have memory of their own.

    Nothing that is shown depends on the agent, so threads fill the next batches while it thinks
    (`prefetch`), and what comes after the current episodes is decoded before they end. What is
    handed out is the same to the bit without.

    Like all of Gymnasium's it is for one thread at a time: two that call `step` at once get
    errors or each other's batches.

    Args:
        replays: See `Options`.
        num_envs: Lanes. Where there are fewer episodes, lanes share them, and a warning says so.
        autoreset_mode: When a lane begins its next episode: with the step after the end (the
            default), with the same step (the end is in `final_obs` and `final_info`), or never
            by itself: see `gymnasium.vector.AutoresetMode`.
        prefetch: Batches to prepare ahead; 0 for none, and for no decoding ahead. By default 2,
            but none of fewer than 8 lanes, which are filled sooner than a thread is woken, and
            none where the process has one core.
        num_threads: Threads that fill batches; more than one is for wide batches.
        pinned: Whether batches are in page-locked memory, from where a GPU fetches them by
            itself. By default they are where torch was imported and sees CUDA.
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
        prefetch: int | None = None,
        num_threads: int = 1,
        pinned: bool | None = None,
        **options: Any,
    ):
        need_count("num_envs", num_envs)
        if prefetch is not None:
            need_count("prefetch", prefetch, least=0)
        need_count("num_threads", num_threads)
        if not isinstance(autoreset_mode, AutoresetMode):
            choose("autoreset_mode", autoreset_mode, [mode.value for mode in AutoresetMode])
            autoreset_mode = AutoresetMode(autoreset_mode)
        chosen = Options.of(
            {"replays": replays, **options},
            others=("num_envs", "autoreset_mode", "prefetch", "num_threads", "pinned"),
        )
        if chosen.render_mode == "human":
            raise ValueError('a window is for a single environment; use render_mode="rgb_array"')
        self._build(
            chosen, open_library(chosen), num_envs, autoreset_mode, prefetch, num_threads, pinned
        )
        warn_shared(self.library, self._lanes)

    def _build(
        self,
        options: Options,
        library: Library,
        num_envs: int,
        autoreset_mode: AutoresetMode,
        prefetch: int | None,
        num_threads: int,
        pinned: bool | None,
    ) -> None:
        self._given = {
            "num_envs": num_envs,
            "autoreset_mode": autoreset_mode,
            "prefetch": prefetch,
            "num_threads": num_threads,
            "pinned": pinned,
        }
        self.options, self.library = options, library
        self.num_envs = num_envs
        self.metadata = {**self.metadata, "autoreset_mode": autoreset_mode}
        self.render_mode = self.options.render_mode
        rank, world = self.options.shard
        self._first, self._lanes = rank * num_envs, world * num_envs

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
        # A prefetch of 0 also turns decoding ahead off.
        self._foresees = prefetch != 0
        if prefetch is None:
            prefetch = 2 if num_envs >= 8 and _cores() > 1 else 0
        self.prefetch = prefetch
        self.pinned = pinned
        # Whoever waits for a batch is one more thread.
        self._crew = Crew(num_threads if prefetch else num_threads - 1, wake=max(1, prefetch // 2))
        weakref.finalize(self, self._crew.close)
        self._episodes: Ahead[Episode] = Ahead(self.library.episode)
        self._order: Order | None = None
        # The batch handed out last, those that follow it as far as they are begun, and others.
        self._current: Slot | None = None
        self._ahead: deque[Slot] = deque()
        self._spare: deque[Slot] = deque()
        self._strip: Strip | None = None

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """(name, reason) of every replay left out so far."""
        return self.library.skipped

    def cache_info(self) -> CacheInfo:
        """Hits, evictions and bytes of the decoded replays that the process keeps."""
        return self.library.cache_info()

    def preload(self) -> CacheInfo:
        """Decodes every replay now, as far as `cache_bytes` allows, with a progress bar."""
        return self.library.preload()

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
        if options is not None and not isinstance(options, Mapping):
            raise ValueError(f"reset options are names and values, not {options!r}")
        options = dict(options or {})
        mask = self._mask(options.pop("reset_mask", None))
        if seed is not None and not isinstance(seed, (int, np.integer)):
            if (
                not isinstance(seed, (Sequence, np.ndarray))
                or len(seed) != self.num_envs
                or len(set(seed)) > 1
            ):
                raise ValueError(f"need one seed, or {self.num_envs} times the same, got {seed}")
            seed = seed[0]
        if seed is not None and mask is not None:
            raise ValueError("a seed begins the order of all lanes anew: not with reset_mask")
        super().reset(seed=seed)
        asked = requested(self.library, options, others=("reset_mask",))
        slot = self._take()
        current = self._current
        new_order = seed is not None or self._order is None
        if seed is not None or self._order is None:
            self._order = order_of(self.library, self.options, seed, self.np_random)
            current = None  # where lanes were in the last order means nothing in this one
        if new_order:
            self._episodes.forget()
        slot.stay(current)
        lanes = range(self.num_envs) if mask is None else np.flatnonzero(mask).tolist()
        if asked is None:
            self._begin(slot, current, lanes, self._episodes.get)
        else:
            episode, index, step = asked
            for lane in lanes:
                slot.begin(lane, (episode, index, *self._next(current, lane)), step)
            self._foresee(slot)
        self._crew.submit(slot)
        self._crew.wait(slot)
        self._drop()
        self._turn_to(slot)
        infos: dict[str, Any] = {}
        for lane in slot.started:
            infos = self._add_info(infos, slot.info(lane) | slot.drawn[lane][0].info(), lane)
        observations = slot.observations()
        self._prepare_ahead()
        return observations, infos

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
        if not self._ahead:
            self._ahead.append(self._prepare(current, self._episodes.get))
        slot = self._ahead[0]
        try:
            self._crew.wait(slot)
        except Exception:
            self._drop()  # it is tried again with the next call
            raise
        # The batch stays ahead where the actions turn out invalid.
        observations, rewards, terminations, truncations, infos = slot.hand_out(current, actions)
        self._turn_to(self._ahead.popleft())
        if slot.started:
            for lane, (observation, info) in slot.finals.items():
                final = {"final_obs": observation, "final_info": info}
                infos = self._add_info(infos, final, lane)
            for lane in slot.started:
                infos = self._add_info(infos, slot.drawn[lane][0].info(), lane)
        self._prepare_ahead()
        return observations, rewards, terminations, truncations, infos

    def peek(self) -> Observation | None:
        """The observations of the next step, in the memory that it will hand out, not to be
        written to; None where they are not ready yet.
        """
        if not self._ahead or not self._crew.is_ready(self._ahead[0]):
            return None
        return self._ahead[0].observations()

    def rollout(
        self, steps: int, policy: Callable[[Observation], npt.ArrayLike] | None = None
    ) -> Rollout:
        """Takes many steps at once.

        The same as calling `step` so many times, with all that is shown put together. Without a
        policy the actions are the player's own, and no Python runs from step to step.

        Its memory is used again by a rollout of as many steps, as soon as nobody holds any part
        of this one.

        Args:
            steps: How many, 1 or more.
            policy: Gives the actions for a batch of observations, which it must not keep.

        Raises:
            ResetNeeded: Before the first reset, or where a lane comes to its end before that
                and does not go on by itself; no step is taken then.
        """
        need_count("steps", steps)
        current = self._current
        if current is None:
            raise ResetNeeded("call reset before rollout")
        left = current.steps_left()
        if self.metadata["autoreset_mode"] is AutoresetMode.DISABLED and left < steps:
            raise ResetNeeded(
                f"a lane has {left} steps left, and autoreset is disabled: no rollout of {steps}"
            )
        if self._strip is None or len(self._strip) != steps or not self._strip.is_free():
            self._strip = None  # first, so that there is room
            self._strip = Strip(self._arrays(steps, self.num_envs), self._rules, steps)
        if policy is not None:
            return self._rollout_with(self._strip, policy)
        self._drop()
        after = self._take()

        def begin(slot: Slot, lane: int) -> None:
            self._begin(slot, slot, [lane], self._episodes.get)

        expert, rewards, terminations, truncations, resets = self._strip.unroll(
            current, after, begin
        )
        for batch in (self._strip, after):
            self._crew.submit(batch)
        try:
            for batch in (self._strip, after):
                self._crew.wait(batch)
        except Exception:
            for batch in (self._strip, after):
                self._crew.cancel(batch)
            self._spare.appendleft(after)
            raise
        self._turn_to(after)
        self._foresee(after)
        rollout = Rollout(
            self._strip.observations(), expert, expert, rewards, terminations, truncations, resets,
            after.observations(),
        )  # fmt: skip
        self._prepare_ahead()
        return rollout

    def _rollout_with(
        self, strip: Strip, policy: Callable[[Observation], npt.ArrayLike]
    ) -> Rollout:
        assert self._current is not None
        observations = strip.observations()
        shape = (len(strip), self.num_envs)
        expert, actions = np.empty(shape, np.int64), np.empty(shape, np.int64)
        rewards = np.empty(shape, np.float64)
        terminations, truncations, resets = (np.empty(shape, np.bool_) for _ in range(3))
        shown = self._current.observations()
        for t in range(len(strip)):
            if isinstance(shown, dict):
                for key, array in shown.items():
                    observations[key][t] = array
            else:
                observations[t] = shown
            expert[t] = self._current.expert_actions()
            chosen = np.asarray(policy(shown))
            shown, rewards[t], terminations[t], truncations[t], _ = self.step(chosen)
            actions[t], resets[t] = chosen, self._current.resets()
        return Rollout(
            observations, expert, actions, rewards, terminations, truncations, resets, shown
        )

    # Preparing

    def _prepare(self, before: Slot, get: Callable[[int], Episode], *, ahead: bool = False) -> Slot:
        """The batch that follows, in line to be filled."""
        slot = self._take(ahead=ahead)
        try:
            ending = slot.follow(before)
            if ending or slot.soon:
                self._begin(slot, before, ending, get)
            self._crew.submit(slot)
        except BaseException:
            self._spare.appendleft(slot)
            raise
        return slot

    def _prepare_ahead(self) -> None:
        """Has batches prepared, up to one that has to wait for something or goes wrong.

        That comes up again when the batch is due, as it would have without this.
        """
        assert self._current is not None
        while len(self._ahead) < self.prefetch:
            before = self._ahead[-1] if self._ahead else self._current
            disabled = self.metadata["autoreset_mode"] is AutoresetMode.DISABLED
            if disabled and not before.steps_left():
                return
            try:
                self._ahead.append(self._prepare(before, self._episodes.peek, ahead=True))
            except NotReady:
                return

    def _begin(
        self, slot: Slot, before: Slot | None, lanes: Iterable[int], get: Callable[[int], Episode]
    ) -> None:
        assert self._order is not None
        # All or none: what is there for one lane must not be lost where another has to wait.
        begun = []
        for lane in lanes:
            position, waiting = self._next(before, lane)
            begun.append(
                (lane, *self.library.proceed(self._order, position, self._lanes, waiting, get))
            )
        for lane, drawn, step, elapsed in begun:
            slot.begin(lane, drawn, step, elapsed)
            self._episodes.drop(drawn[1])
        self._foresee(slot)

    def _foresee(self, slot: Slot) -> None:
        """Has the next episodes of lanes near their ends decoded."""
        if self._order is None or not self._foresees:
            return
        for lane in slot.soon:
            position, waiting = self._next(slot, lane)
            self._episodes.want(
                waiting[0][0]
                if waiting
                else self.library.foresee(self._order, position, self._lanes)
            )

    def _turn_to(self, slot: Slot) -> None:
        if self._current is not None:
            self._spare.append(self._current)
        self._current = slot

    def _drop(self) -> None:
        """Forgets what was prepared."""
        while self._ahead:
            slot = self._ahead.pop()
            self._crew.cancel(slot)
            self._spare.appendleft(slot)

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the threads."""
        if hasattr(self, "_episodes"):
            self._drop()
            self._crew.close()
            self._episodes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # What a slot keeps for a lane: the episode, its number, the lane's next position in the
    # order, and what waits for it before that. The first step of the first lane in any epoch is
    # position 0.

    def _next(self, slot: Slot | None, lane: int) -> tuple[int, Any]:
        return (self._first + lane, ()) if slot is None else slot.drawn[lane][2:]

    def observe(self) -> tuple[Observation, dict[str, Any]]:
        """Shows again what was shown last, with the infos of a reset, and takes no step.

        Raises:
            ResetNeeded: Before the first reset.
        """
        self._go_to(*self._where())
        slot = self._current
        if slot is None:
            raise ResetNeeded("call reset before observe")
        infos: dict[str, Any] = {}
        for lane in range(self.num_envs):
            infos = self._add_info(infos, slot.info(lane) | slot.drawn[lane][0].info(), lane)
        observations = slot.observations()
        self._prepare_ahead()
        return observations, infos

    # Where it is, see `Stateful`

    def _arguments(self) -> dict[str, Any]:
        return self._given

    def _where(self) -> tuple[Order | None, list[Lane]]:
        slot = self._current
        if slot is None:
            return None, []
        lanes = []
        for lane, (episode, index, position, waiting) in enumerate(slot.drawn):
            at = slot.step(lane), slot.elapsed(lane), slot.over(lane)
            lanes.append(Lane(position, index, *at, len(episode), tuple(waiting)))
        return self._order, lanes

    def _forget(self) -> None:
        self._drop()
        self._episodes.forget()

    def _go_to(self, order: Order | None, lanes: list[Lane]) -> None:
        self._forget()
        if order is None:
            self._order = self._current = None
            return
        slot = self._take()
        slot.stay(None)
        for number, lane in enumerate(lanes):
            if lane.index is None:
                ahead = lane.position, self._lanes, lane.waiting
                slot.begin(number, *self.library.proceed(order, *ahead))
            else:
                episode = self.library.episode(lane.index)
                drawn = episode, lane.index, lane.position, lane.waiting
                slot.begin(number, drawn, lane.step, lane.elapsed, lane.over)
        self._crew.submit(slot)
        self._crew.wait(slot)
        self._order = order
        self._turn_to(slot)
        self._foresee(slot)

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

    def _arrays(self, *batch: int) -> dict[str, npt.NDArray[Any]]:
        if self.pinned is False or (self.pinned is None and "torch" not in sys.modules):
            return allocate(self.single_observation_space, self.options, *batch)
        from .adapters.torch import empty_like

        arrays = allocate(self.single_observation_space, self.options, *batch)
        return empty_like(arrays, pinned=self.pinned)

    def _take(self, *, ahead: bool = False) -> Slot:
        """A slot to write to: with `copy` none that anyone holds.

        Without, that of the step before last; `ahead` of the next call, of the step before that.
        """
        spare = self._spare
        if self.options.copy:
            for slot in spare:
                if slot.is_free():
                    spare.remove(slot)
                    return slot
            while len(spare) > _SPARE:
                # Whoever holds its arrays keeps them.
                spare.popleft()
        elif len(spare) > ahead:
            return spare.popleft()
        return Slot(self._arrays(self.num_envs), self._rules)

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


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
