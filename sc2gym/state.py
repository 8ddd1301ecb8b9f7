"""Where environments are, as plain data, and how others go on from there.

A state is small: positions in the order of episodes, not what is shown there. It has in it the
names and contents' hashes of the replays, so that it finds them again whatever they are called
and wherever they are; it never opens a path itself.

Episodes are known by number, lanes by their number in all shards together. Lane L of N takes the
positions L, L + N, L + 2N.. of the order; so where every lane is next says what has been begun.
For another number of lanes, what was passed over up to the furthest lane becomes the backlog of
a new order, and episodes in progress are dealt out; a lane that gets several goes on with them
one after the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from .errors import CheckpointError, RecordingError, ReplayError
from .library import Library, Order
from .options import Options

if TYPE_CHECKING:
    from .library import Source

#: Of the states; a newer one is refused.
VERSION = 1

# What comes of data that is not what it should be.
_MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

# Positions that lanes may be apart; in a year of training it is thousands.
_FURTHEST = 1 << 24

_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


@dataclass(frozen=True)
class Lane:
    """Where a lane is.

    Attributes:
        position: The position in the order that it takes next.
        index: The number of the episode it is in; None for one that takes the next at once.
        step: The step of the episode that it is at.
        elapsed: The steps since it began there.
        over: Whether no step is left.
        length: Steps of the episode.
        waiting: (index, step, elapsed) of episodes that it goes on with before new ones.
    """

    position: int
    index: int | None = None
    step: int = 0
    elapsed: int = 0
    over: bool = False
    length: int = 0
    waiting: tuple[tuple[int, int, int], ...] = ()


def reshard(order: Order, lanes: Sequence[Lane], count: int) -> tuple[Order, list[Lane]]:
    """What `count` lanes do that go on for those of `lanes`, which are all there were.

    Returns:
        The order that they follow, and where each of them is.
    """
    # All numbers of the plain sequence from the furthest lane's next on are to come; of those
    # before, what lanes had not come to yet.
    end = max([len(order.backlog), *(lane.position for lane in lanes)])
    if sum(end - lane.position for lane in lanes) > _FURTHEST * len(lanes):
        raise CheckpointError(f"lanes are too far apart, up to {end} positions of the order")
    left = sorted(
        position
        for lane in lanes
        for position in range(lane.position, end, len(lanes))
    )  # fmt: skip
    backlog = tuple(order.number(position) for position in left)
    progress = [
        (lane.index, lane.step, lane.elapsed)
        for lane in lanes
        if lane.index is not None and not lane.over
    ] + [entry for lane in lanes for entry in lane.waiting]
    dealt = []
    for number in range(count):
        own = progress[number::count]
        # The first comes as if the lane had just got to it.
        dealt.append(Lane(number, waiting=tuple(own)))
    return dataclasses.replace(order, backlog=backlog, base=order.number(end)), dealt


class Stateful:
    """What the environments have in common that can be saved, copied, pickled and resumed."""

    options: Options
    library: Library
    #: Makes everything that follows from options, library and `_arguments`.
    _build: Callable[..., None]

    # What the environments implement

    def _arguments(self) -> dict[str, Any]:
        """What `_build` takes beside options and library."""
        raise NotImplementedError

    def _where(self) -> tuple[Order | None, list[Lane]]:
        """The order, None before the first reset, and where the lanes are, in what was shown."""
        raise NotImplementedError

    def _go_to(self, order: Order | None, lanes: list[Lane]) -> None:
        """Puts the lanes there."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Drops what was prepared by the numbers that episodes have."""

    def _num_lanes(self) -> int:
        # A single environment must not have `num_envs`, by which wrappers tell vector ones.
        num_lanes: int = getattr(self, "num_envs", 1)
        return num_lanes

    def _spaces(self) -> list[gymnasium.Space[Any]]:
        spaces = [
            getattr(self, name, None)
            for name in (
                "observation_space",
                "action_space",
                "single_observation_space",
                "single_action_space",
            )
        ]
        return [space for space in spaces if space is not None]

    # What they offer

    def state_dict(self) -> dict[str, Any]:
        """Where the environment is: plain numbers, strings, lists and dicts.

        What was prepared ahead and not handed out is not part of it.
        """
        order, lanes = self._where()
        environment: Any = self
        return {
            "version": VERSION,
            "library": self.library.state_dict(),
            "shard": list(self.options.shard),
            "order": None
            if order is None
            else {**dataclasses.asdict(order), "backlog": list(order.backlog)},
            "lanes": [
                {**dataclasses.asdict(lane), "waiting": [list(entry) for entry in lane.waiting]}
                for lane in lanes
            ],
            "num_envs": self._num_lanes(),
            "np_random": _generator_state(environment.np_random),
            "np_random_seed": int(environment.np_random_seed),
            "spaces": [_space_state(space) for space in self._spaces()],
        }

    def load_state_dict(
        self,
        state: dict[str, Any] | Sequence[dict[str, Any]],
        *,
        relocate: Source | Sequence[Source] | None = None,
    ) -> None:
        """Goes to where a state was saved; the next step is the one that came after it there.

        The state can be of an environment with another number of lanes or ranks, as long as it
        is of all ranks: then give the list of theirs to every rank. Over an epoch no episode is
        lost or repeated; those in progress go on where they were.

        `observe` shows again what was shown last; a training loop goes on from that.

        Args:
            state: What `state_dict` gave, or the states of all ranks.
            relocate: Where to find replays that are not among this environment's.

        Raises:
            CheckpointError: Not a state; one of a newer version; not of all ranks; or a replay
                is missing or has changed. The environment is then as it was.
        """
        states = [state] if isinstance(state, dict) else list(state)
        rank, world = self.options.shard
        before = self.library.order_of_episodes()
        try:
            order, lanes, own = _read(states, rank, world, self._num_lanes())
            spaces = self._spaces()
            randoms = _generator(own["np_random"]), int(own["np_random_seed"])
            if len(own["spaces"]) == len(spaces):
                generators = [
                    _space_generators(space, saved)
                    for space, saved in zip(spaces, own["spaces"], strict=True)
                ]
            else:  # of the other kind of environment
                generators = []
            # Threads must not mix up episodes while numbers change.
            self._forget()
            self.library.load_state_dict(own["library"], relocate=relocate)
            if order is not None and order.count != len(self.library):
                raise CheckpointError(
                    f"the state's order is of {order.count} episodes, its library has"
                    f" {len(self.library)}"
                )
            self._check(lanes)
            self._go_to(order, lanes)
        except BaseException as error:
            self.library.put_episodes(before)
            if isinstance(error, (ReplayError, RecordingError)):
                raise CheckpointError(f"an episode in progress cannot go on: {error}") from error
            if isinstance(error, _MALFORMED):
                raise CheckpointError(f"not the state of an environment: {error!r}") from error
            raise
        environment: Any = self
        environment._np_random, environment._np_random_seed = randoms
        for pairs in generators:
            for space, generator in pairs:
                space._np_random = generator

    def _check(self, lanes: list[Lane]) -> None:
        for lane in lanes:
            for index, step, elapsed in lane.waiting:
                if not 0 <= index < len(self.library) or step < 0 or elapsed < 0:
                    raise CheckpointError(f"no step {step} of episode {index} to go on from")
            if lane.index is None:
                continue
            if not 0 <= lane.index < len(self.library):
                raise CheckpointError(f"no episode {lane.index}")
            episode = self.library.episode(lane.index)
            if lane.length != len(episode):
                raise CheckpointError(
                    f"{episode.name}: {len(episode)} steps, when it was saved {lane.length}"
                )
            if not (0 <= lane.step < len(episode) + lane.over and lane.elapsed >= 0):
                raise CheckpointError(f"{episode.name}: no step {lane.step} to go on from")

    def __getstate__(self) -> dict[str, Any]:
        options = self.options
        if isinstance(options.replays, Iterator):  # it is used up
            options = dataclasses.replace(options, replays=None)
        return {
            "options": options,
            "library": self.library,
            "arguments": self._arguments(),
            "state": self.state_dict(),
            "spec": getattr(self, "spec", None),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._build(state["options"], state["library"], **state["arguments"])
        environment: Any = self
        environment.spec = state["spec"]
        self.load_state_dict(state["state"])


def _read(
    states: Sequence[dict[str, Any]], rank: int, world: int, num_envs: int
) -> tuple[Order | None, list[Lane], dict[str, Any]]:
    """The order and lanes for this rank, and the state that its random numbers come from."""
    for state in states:
        if not isinstance(state, dict) or "version" not in state:
            raise CheckpointError("not the state of an environment: it has no version")
        if state["version"] > VERSION:
            raise CheckpointError(
                f"the state is of version {state['version']}, this version of sc2gym reads up to"
                f" {VERSION}: a newer one saved it"
            )
    shards = [(state["num_envs"], *state["shard"]) for state in states]
    if len(states) == 1 and shards[0] == (num_envs, rank, world):
        # As it was, whatever the other ranks do.
        return _order(states[0]), _lanes(states[0]), states[0]
    states = sorted(states, key=lambda state: int(state["shard"][0]))
    saved_world = len(states)
    saved_envs = states[0]["num_envs"] if states else 0
    for number, state in enumerate(states):
        if [state["num_envs"], *state["shard"]] != [saved_envs, number, saved_world]:
            listed = ", ".join(f"{n} lanes of rank {r} of {w}" for n, r, w in shards)
            raise CheckpointError(
                f"this environment has {num_envs} lanes, as rank {rank} of {world}; for another"
                f" number it takes a list with the states of all ranks, once each, not {listed}"
            )
        if _order(state) != _order(states[0]):
            raise CheckpointError("the ranks' states are not of one run: their orders differ")
    if not states:
        raise CheckpointError("no state in the list")
    own = states[rank % saved_world]
    if (saved_envs, saved_world) == (num_envs, world):
        return _order(own), _lanes(own), own
    order = _order(own)
    lanes = [lane for state in states for lane in _lanes(state)]
    if order is None or len(lanes) != saved_envs * saved_world:
        return None, [], own
    order, dealt = reshard(order, lanes, num_envs * world)
    return order, dealt[rank * num_envs : (rank + 1) * num_envs], own


def _order(state: dict[str, Any]) -> Order | None:
    order = state["order"]
    if order is None:
        return None
    return Order(
        int(order["count"]),
        int(order["seed"]),
        bool(order["shuffle"]),
        tuple(map(int, order["backlog"])),
        int(order["base"]),
    )


def _lanes(state: dict[str, Any]) -> list[Lane]:
    lanes = [
        Lane(
            int(lane["position"]),
            None if lane["index"] is None else int(lane["index"]),
            int(lane["step"]),
            int(lane["elapsed"]),
            bool(lane["over"]),
            int(lane["length"]),
            tuple((int(i), int(step), int(elapsed)) for i, step, elapsed in lane["waiting"]),
        )
        for lane in state["lanes"]
    ]
    if len(lanes) not in (0, state["num_envs"]) or any(lane.position < 0 for lane in lanes):
        raise CheckpointError("the state's lanes are not as many as it says, or nowhere")
    return lanes


# Random states


def _generator_state(generator: np.random.Generator) -> dict[str, Any]:
    state: dict[str, Any] = _listed(generator.bit_generator.state)
    return state


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _generator(state: dict[str, Any]) -> np.random.Generator:
    name = state["bit_generator"]
    if name not in _BIT_GENERATORS:
        raise ValueError(f"no bit generator {name!r}")
    generator = np.random.Generator(getattr(np.random, name)(0))
    words = np.uint32 if name == "MT19937" else np.uint64

    def arrays(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: arrays(item) for key, item in value.items()}
        return np.array(value, words) if isinstance(value, list) else value

    generator.bit_generator.state = arrays(state)
    return generator


def _parts(space: gymnasium.Space[Any]) -> list[gymnasium.Space[Any]]:
    return list(space.spaces.values()) if isinstance(space, gymnasium.spaces.Dict) else []


def _space_state(space: gymnasium.Space[Any]) -> dict[str, Any]:
    return {
        "own": _generator_state(space.np_random),
        "parts": [_space_state(part) for part in _parts(space)],
    }


def _space_generators(
    space: gymnasium.Space[Any], state: dict[str, Any]
) -> list[tuple[gymnasium.Space[Any], np.random.Generator]]:
    pairs = [(space, _generator(state["own"]))]
    parts = _parts(space)
    if len(parts) == len(state["parts"]):  # else it observes something else now
        for part, saved in zip(parts, state["parts"], strict=True):
            pairs += _space_generators(part, saved)
    return pairs
