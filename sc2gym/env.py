"""The single environment: one replay at a time, one step at a time."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.error import InvalidAction, ResetNeeded

from . import spaces
from ._fast.frame import Frames
from .episode import Episode
from .library import Library, Order, Source, outside
from .options import Options, choose
from .state import Lane, Stateful

if TYPE_CHECKING:
    from .movie import Window

Observation = Any  # one array, or a dict of them
_NO_OP = 0  # the raw function id of no_op

#: What `reset(options=)` takes.
RESET_OPTIONS = ("replay", "player", "step")


class SC2ReplayEnv(Stateful, gymnasium.Env[Observation, np.int64]):
    """Steps through recorded games, one episode at a time.

    The recorded game goes on whatever the agent does: an action is scored against what the
    player did, never executed.

    `step` takes an action for the frame last shown and shows the next one. The info of every
    step has `expert_action` (the raw function id of the player's first command from this frame
    to the next; 0, no_op, where there is none), `game_loop` and `seconds`; that of `reset` also
    `replay`, `player`, `race`, `opponent_race`, `map`, `result` and, where the file has it,
    `mmr`. An episode terminates with the game's end for that player; it is truncated where the
    file stops before that, and at `max_episode_steps`.

    `reset(seed=)` begins the order of episodes anew. `reset(options={"replay": name})` shows a
    certain replay, `"player"` and `"step"` say whose side and from where; the order goes on
    with the next reset.

    It can be copied, pickled and, by `state_dict` and `load_state_dict`, saved at any moment: the
    copy goes on as it would have.

    Args:
        replays: See `Options`.
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
        "render_modes": ["rgb_array", "human"],
        "render_fps": 24,
    }

    def __init__(self, replays: Source | Iterable[Source] | None = None, **options: Any):
        chosen = Options.of({"replays": replays, **options})
        self._build(chosen, open_library(chosen))
        warn_shared(self.library, self._lanes)

    def _build(self, options: Options, library: Library) -> None:
        self.options, self.library = options, library
        self.render_mode = self.options.render_mode
        self.observation_space, self._frames = spaces_of(self.options)
        self.action_space = spaces.action_space()
        # The two observations handed out last; without `copy` the next takes the older's place.
        self._older: dict[str, npt.NDArray[Any]] | None = None
        self._newer: dict[str, npt.NDArray[Any]] | None = None
        self._lane, self._lanes = self.options.shard
        self._order: Order | None = None
        self._position = self._lane
        self._waiting: Sequence[tuple[int, int, int]] = ()
        self._episode: Episode | None = None
        self._index = 0
        self._step = self._elapsed = 0
        self._over = False
        self._window: Window | None = None

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """(name, reason) of every replay left out so far."""
        return self.library.skipped

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins the next episode, or the one that `options` names."""
        super().reset(seed=seed)
        if seed is not None or self._order is None:
            self._order = order_of(self.library, self.options, seed, self.np_random)
            self._position, self._waiting = self._lane, ()
        asked = requested(self.library, options)
        if asked is None:
            self._proceed(self._order)
        else:
            self._episode, self._index, self._step = asked
            self._elapsed = 0
        assert self._episode is not None
        self._over = False
        observation = self._observe()
        return observation, self._info() | self._episode.info()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Scores `action` and shows the next frame.

        Raises:
            InvalidAction: Not an action of the space.
            ResetNeeded: There is no episode, or it is over.
        """
        episode = self._episode
        if episode is None or self._over:
            raise ResetNeeded("call reset: " + ("the episode is over" if episode else "no episode"))
        if not self.action_space.contains(action):
            raise InvalidAction(f"{action!r} is not in {self.action_space}")
        step, self._step = self._step, self._step + 1
        self._elapsed += 1
        end = self._step == len(episode)
        terminated = end and episode.terminated
        limit = self.options.max_episode_steps
        truncated = (end and not terminated) or (limit is not None and self._elapsed >= limit)
        self._over = terminated or truncated
        reward = self._reward(episode, step, int(action), end)
        return self._observe(), reward, terminated, truncated, self._info()

    def observe(self) -> tuple[Observation, dict[str, Any]]:
        """Shows again what was shown last, with the info of a reset, and takes no step.

        Raises:
            ResetNeeded: There is no episode.
        """
        if self._episode is None:
            raise ResetNeeded("call reset before observe")
        return self._observe(), self._info() | self._episode.info()

    def render(self) -> Any:
        """A picture of the frame last shown, uint8 (height, width, 3).

        In "human" mode it is shown in a window (by `reset` and `step` already) and None comes
        back, as it does without a render mode.

        Raises:
            ResetNeeded: There is no episode.
        """
        if self._episode is None:
            raise ResetNeeded("call reset before render")
        if self.render_mode is None:
            gymnasium.logger.warn("render() without render_mode: create the environment with one")
            return None
        from .render import frame

        picture = frame(self._episode, self._step)
        if self.render_mode == "rgb_array":
            return picture
        from .movie import Window

        if self._window is None:
            self._window = Window(fps=self.metadata["render_fps"])
        self._window.show(picture)
        return None

    def close(self) -> None:
        """Closes the window, if there is one."""
        if self._window is not None:
            self._window.close()
            self._window = None

    def _proceed(self, order: Order) -> None:
        drawn, self._step, self._elapsed = self.library.proceed(
            order, self._position, self._lanes, self._waiting
        )
        self._episode, self._index, self._position, self._waiting = drawn

    def _arguments(self) -> dict[str, Any]:
        return {}

    def _where(self) -> tuple[Order | None, list[Lane]]:
        if self._episode is None:
            return None, []
        lane = Lane(
            self._position,
            self._index,
            self._step,
            self._elapsed,
            self._over,
            len(self._episode),
            tuple(self._waiting),
        )
        return self._order, [lane]

    def _go_to(self, order: Order | None, lanes: list[Lane]) -> None:
        if order is None:
            self._order = self._episode = None
            return
        (lane,) = lanes
        if lane.index is None:
            ahead = lane.position, self._lanes, lane.waiting
            drawn, step, elapsed = self.library.proceed(order, *ahead)
        else:
            drawn = self.library.episode(lane.index), lane.index, lane.position, lane.waiting
            step, elapsed = lane.step, lane.elapsed
        self._order = order
        self._episode, self._index, self._position, self._waiting = drawn
        self._step, self._elapsed, self._over = step, elapsed, lane.over

    def _reward(self, episode: Episode, step: int, action: int, end: bool) -> float:
        reward = self.options.reward
        if reward == "imitation":
            expert = episode.expert_actions[step]
            return float(expert != _NO_OP and expert == action)
        if reward == "outcome":
            return float(episode.outcome) if end else 0.0
        if reward == "score":
            return float(episode.score[step + 1] - episode.score[step])
        return float(reward(episode, step, action))

    def _observe(self) -> Observation:
        assert self._episode is not None
        arrays = None if self.options.copy else self._older
        if arrays is None:
            arrays = allocate(self.observation_space, self.options)
        self._older, self._newer = self._newer, arrays
        self._episode.fill(self._step, self._frames, arrays)
        if self.render_mode == "human":
            self.render()
        if isinstance(self.observation_space, gymnasium.spaces.Dict):
            return dict(arrays)
        (array,) = arrays.values()
        return array

    def _info(self) -> dict[str, Any]:
        assert self._episode is not None
        game_loop = int(self._episode.game_loops[self._step])
        return {
            "expert_action": int(self._episode.expert_actions[self._step]),
            "game_loop": game_loop,
            "seconds": game_loop / self._episode.loops_per_second,
        }


def open_library(options: Options) -> Library:
    """The library that options ask for."""
    return Library(
        options.replays,
        player=options.player,
        step_mul=options.step_mul,
        on_error=options.on_error,
        cache_bytes=options.cache_bytes,
        source=options.source,
        on_bad_ids=options.on_bad_ids,
    )


def spaces_of(options: Options) -> tuple[gymnasium.Space[Any], Frames]:
    """The observation space that options ask for, and the layout of its frames."""
    return spaces.observation_space(
        options.observe,
        minimap_size=options.minimap_size,
        minimap_layers=options.minimap_layers,
        max_units=options.max_units,
        unit_columns=options.unit_columns,
    )


def allocate(
    space: gymnasium.Space[Any], options: Options, *batch: int
) -> dict[str, npt.NDArray[Any]]:
    """Arrays for an observation of `space` by key, also where it is one array itself."""
    if isinstance(space, gymnasium.spaces.Dict):
        parts = dict(space.spaces)
    else:
        (key,) = [options.observe] if isinstance(options.observe, str) else options.observe
        parts = {key: space}
    arrays: dict[str, npt.NDArray[Any]] = {}
    for key, part in parts.items():
        assert part.shape is not None
        arrays[key] = np.empty((*batch, *part.shape), part.dtype)
    return arrays


def warn_shared(library: Library, lanes: int) -> None:
    """Warns where there are more lanes, in all shards together, than episodes.

    Not about the samples: they are few, and nobody chose them.
    """
    if lanes > len(library) and not library.is_samples:
        warnings.warn(
            f"{lanes} environments share {len(library)} episodes: some show the same game at"
            " the same time",
            stacklevel=outside(),
        )


def order_of(
    library: Library, options: Options, seed: int | None, generator: np.random.Generator
) -> Order:
    """The order after a reset with `seed`.

    Without a seed it is a random one, except among shards: those must agree, so it is 0.
    """
    if seed is None:
        seed = 0 if options.shard[1] > 1 else int(generator.integers(1 << 63))
    return Order(len(library), seed, options.order == "shuffle")


def requested(
    library: Library, options: dict[str, Any] | None, others: tuple[str, ...] = ()
) -> tuple[Episode, int, int] | None:
    """The episode that `reset(options=)` names, its number, and the step to begin at.

    Args:
        library: Where to find it.
        options: The reset options.
        others: Options that the caller takes itself, for the message about an unknown one.
    """
    if options is not None and not isinstance(options, Mapping):
        raise ValueError(f"reset options are names and values, not {options!r}")
    for name in options or ():
        choose("reset option", name, (*RESET_OPTIONS, *others))
    if not options:
        return None
    if "replay" not in options:
        raise ValueError("the reset options player and step belong to a replay: name one too")
    index = library.find(options["replay"], options.get("player"))
    episode = library.episode(index)
    step = options.get("step", 0)
    if not isinstance(step, (int, np.integer)) or not 0 <= step < len(episode):
        raise ValueError(f"no step {step!r} to begin at: {episode.name} has {len(episode)}")
    return episode, index, int(step)
