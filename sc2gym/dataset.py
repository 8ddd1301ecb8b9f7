"""Windows of recorded games for PyTorch's DataLoader.

    dataset = ReplayDataset("~/replays", steps=32, burn_in=8, observe=("minimap", "player"))
    for batch in DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True):
        logits = model(batch["observations"])                 # (64, 8 + 32, functions)
        loss = cross_entropy(logits[batch["mask"]], batch["actions"][batch["mask"]])

It needs the extra `torch`.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt

from .env import Observation, allocate, open_library, spaces_of
from .episode import Episode
from .library import Order, Source, outside
from .options import Options

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError as error:
    raise ImportError("ReplayDataset needs torch: pip install sc2gym[torch]") from error

_NO_OP = 0
_STATE_VERSION = 1
# Sets the draws that order windows apart from those that order episodes, which use (epoch,).
_WINDOWS = 1

if TYPE_CHECKING:
    Window = dict[str, Any]
    _Base = IterableDataset[Window]
else:
    _Base = IterableDataset


class ReplayDataset(_Base):
    """Windows of `steps` steps, shuffled over replays and over time.

    The windows of an epoch are disjoint and together are all steps of all episodes. What order
    they come in is a pure function of seed, epoch and shard, and a shard is one worker of one
    rank: shard k takes the episodes k, k + shards, .. of the epoch's order (`Order`), `mix` of
    them at a time, and of those all windows in random order. Nothing else needs to be decoded
    at that time.

    A window is a dict of tensors. In front of its `steps` steps are `burn_in` steps before, for
    a recurrent network to find its state; both together are called L here.

    | key | dtype and shape | |
    | --- | --- | --- |
    | `observations` | of the space, (L, ...), or a dict of such | with `successor` (L + 1, ...) |
    | `actions` | int64 (L,) | raw function id of the player's action; 0, no_op, for none |
    | `previous_actions` | int64 (L, history) | his last actions before, newest first |
    | `since_action` | float32 (L,) | seconds since the newest of them, or since the beginning |
    | `rewards` | float32 (L,) | what `reward` gives for his action |
    | `first` | bool (L,) | the step is an episode's first: a state from before it means nothing |
    | `terminated` | bool (L,) | the game ends with this step |
    | `mask` | bool (L,) | to train on: a step there is, and not for burning in |
    | `episode` | int64 () | number in the library |
    | `step` | int64 (L,) | number in the episode; -1 for padding |

    Windows at an episode's beginning and end are padded with zeros.

    Each `iter` is an epoch, and after a whole one the next is another. In workers that a
    DataLoader starts anew for every epoch (`persistent_workers=False`) nobody remembers that:
    call `set_epoch` before, or pass `epochs=None` for a stream without an end, which also keeps
    ranks in step whose shares differ in length.

    `state_dict` and `load_state_dict` stop and go on to the bit. They follow the protocol of
    torchdata's `StatefulDataLoader`, which asks for them in every worker; with the plain
    `DataLoader` they are of use without workers. A DataLoader draws a number from torch's
    generator whenever it begins; for the rest of an epoch, which had its number before it was
    saved, that is taken back. Give other loaders a `generator` of their own.

    Args:
        replays: As for the environments: see `Options`.
        steps: Steps in a window.
        burn_in: Steps in front of them.
        successor: Whether the observation after the last step is there as well.
        history: Number of previous actions.
        seed: Which order.
        epochs: Epochs for each `iter`; None for no end.
        mix: Episodes in memory, over which windows are shuffled.
        options: The other fields of `Options`, by name. `shard` is by default this process's
            rank, where torch.distributed is initialised. `order="sequential"` shuffles nothing.

    Attributes:
        options: All options.
        library: The episodes.
        observation_space: Of one step.
        epoch: The epoch now, or next.

    Raises:
        TypeError: An option of an unknown name.
        ValueError: An option of an unknown value.
        FileNotFoundError: `replays` names nothing.
        ReplayError: No replay can be used, or one cannot and `on_error` is "raise".
    """

    def __init__(
        self,
        replays: Source | Iterable[Source] | None = None,
        *,
        steps: int = 32,
        burn_in: int = 0,
        successor: bool = False,
        history: int = 8,
        seed: int = 0,
        epochs: int | None = 1,
        mix: int = 16,
        **options: Any,
    ):
        own = ("steps", "burn_in", "successor", "history", "seed", "epochs", "mix")
        self.steps = _count("steps", steps, 1)
        self.burn_in = _count("burn_in", burn_in, 0)
        self.successor = bool(successor)
        self.history = _count("history", history, 0)
        self.seed = _count("seed", seed, 0)
        self.epochs = None if epochs is None else _count("epochs", epochs, 1)
        self.mix = _count("mix", mix, 1)
        options.setdefault("shard", _rank())
        self.options = Options.of({"replays": replays, **options}, others=own)
        self.library = open_library(self.options)
        self.observation_space, self._frames = spaces_of(self.options)
        self.epoch = 0
        # Where in the epoch: how many of this shard's episodes are done with, and how many
        # windows of the ones after.
        self._episodes = self._windows = 0
        self._is_loaded = False
        # Torch's random state when the rest of an epoch was loaded.
        self._random_state: torch.Tensor | None = None

    def set_epoch(self, epoch: int) -> None:
        """Begins with `epoch` at the next `iter`."""
        self.epoch = _count("epoch", epoch, 0)
        self._episodes = self._windows = 0
        self._is_loaded, self._random_state = True, None

    def state_dict(self) -> dict[str, Any]:
        """Where the dataset is: plain numbers and strings."""
        return {
            "version": _STATE_VERSION,
            **self._identity(),
            "epoch": self.epoch,
            "episodes": self._episodes,
            "windows": self._windows,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from there at the next `iter`, which gives the rest of the epoch.

        After an epoch's last window that is nothing, and the `iter` after it the next epoch.
        Put torch's random state back before, as `checkpoint.load` does.

        Raises:
            ValueError: The state is of a newer version, or of a dataset that is another: by
                its seed, windows, shard or number of episodes.
        """
        try:
            version = operator.index(state["version"])
            if version > _STATE_VERSION:
                raise ValueError(
                    f"a state of version {version}, but this sc2gym knows {_STATE_VERSION}"
                )
            for name, value in self._identity().items():
                if state[name] != value:
                    raise ValueError(f"a state with {name}={state[name]!r}, but here it is {value}")
            epoch, episodes, windows = (
                _count(name, state[name], 0) for name in ("epoch", "episodes", "windows")
            )
        except KeyError as error:
            raise ValueError(f"not a state of a ReplayDataset: it lacks {error}") from None
        self.epoch, self._episodes, self._windows = epoch, episodes, windows
        self._is_loaded = True
        self._random_state = torch.get_rng_state() if episodes or windows else None

    def __iter__(self) -> Iterator[Window]:
        if self._is_loaded:
            self._is_loaded = False
            self._take_back_draw()
        else:
            # The beginning of the next epoch, or of this one again if it was left half way.
            if self._episodes >= len(self._mine()):
                self.epoch += 1
            self._episodes = self._windows = 0
        # Not a generator itself: a state asked for before the first window must be that one.
        return self._iterate()

    def _take_back_draw(self) -> None:
        """Has torch's generator as if no DataLoader had begun with the rest of an epoch."""
        before, self._random_state = self._random_state, None
        if before is None or get_worker_info() is not None:
            return
        drawn = torch.Generator()
        drawn.set_state(before)
        # As a DataLoader does, just before this; what else may have been drawn stays.
        torch.empty((), dtype=torch.int64).random_(generator=drawn)
        if torch.equal(drawn.get_state(), torch.get_rng_state()):
            torch.set_rng_state(before)

    def _iterate(self) -> Iterator[Window]:
        last = None if self.epochs is None else self.epoch + self.epochs - 1
        if not self._mine():
            warnings.warn(
                f"{self._shards()} shards share {len(self.library)} episodes: some have none",
                stacklevel=outside(),
            )
            return
        while True:
            mine = self._mine()
            while self._episodes < len(mine):
                group = mine[self._episodes : self._episodes + self.mix]
                usable = [(index, self.library.usable(index)) for index in group]
                opened = [(index, episode) for index, episode in usable if episode is not None]
                order = self._order_windows([episode for _, episode in opened])
                for place, begin in order[self._windows :].tolist():
                    index, episode = opened[place]
                    # Counted first: when the caller has a window, the state is after it.
                    self._windows += 1
                    yield self._window(index, episode, begin)
                self._episodes += len(group)
                self._windows = 0
            if self.epoch == last:
                return
            self.epoch += 1
            self._episodes = 0

    def _mine(self) -> list[int]:
        """The episodes of this shard in this epoch, in order."""
        count = len(self.library)
        order = Order(count, self.seed, self.options.order == "shuffle")
        rank, _ = self.options.shard
        worker = get_worker_info()
        first = rank if worker is None else rank * worker.num_workers + worker.id
        return [order[self.epoch * count + k] for k in range(first, count, self._shards())]

    def _shards(self) -> int:
        worker = get_worker_info()
        return int(self.options.shard[1]) * (1 if worker is None else worker.num_workers)

    def _order_windows(self, group: list[Episode]) -> npt.NDArray[np.int64]:
        """(place in the group, first step) of every window, in order."""
        begins = [np.arange(0, self._length(episode), self.steps) for episode in group]
        places = [np.full(len(begin), place) for place, begin in enumerate(begins)]
        empty = np.empty(0, np.int64)
        windows = np.stack(
            [np.concatenate([*places, empty]), np.concatenate([*begins, empty])], axis=1
        )
        if self.options.order == "shuffle":
            # As in `Order`: only the raw stream is the same in all versions of NumPy.
            worker = get_worker_info()
            shard = self.options.shard[0], 0 if worker is None else worker.id
            key = (self.epoch, _WINDOWS, *shard, self._episodes)
            bits = np.random.Philox(np.random.SeedSequence(self.seed, spawn_key=key))
            windows = windows[np.argsort(bits.random_raw(len(windows)), kind="stable")]
        return windows.astype(np.int64)

    def _length(self, episode: Episode) -> int:
        limit = self.options.max_episode_steps
        return len(episode) if limit is None else min(len(episode), limit)

    def _window(self, index: int, episode: Episode, begin: int) -> Window:
        length = self.burn_in + self.steps
        end = min(begin + self.steps, self._length(episode))
        start = max(0, begin - self.burn_in)
        # Step `start` comes to lie at row `ahead`.
        ahead = self.burn_in - (begin - start)
        rows = slice(ahead, ahead + end - start)
        steps = np.arange(start, end)

        arrays = allocate(self.observation_space, self.options, length + self.successor)
        for array in arrays.values():
            array[:ahead] = 0
            array[rows.stop + self.successor :] = 0
        for step in range(start, end + self.successor):
            row = ahead + step - start
            # With the ellipsis also a scalar is a view.
            views = {key: array[row, ...] for key, array in arrays.items()}
            episode.fill(step, self._frames, views)
        observations: Observation = {key: torch.from_numpy(a) for key, a in arrays.items()}
        if not isinstance(self.observation_space, gymnasium.spaces.Dict):
            (observations,) = observations.values()

        previous, since = _previous(episode, steps, self.history)
        last = len(episode) - 1

        def padded(values: npt.NDArray[Any], dtype: Any, padding: int = 0) -> torch.Tensor:
            whole = np.full((length, *values.shape[1:]), padding, dtype)
            whole[rows] = values
            return torch.from_numpy(whole)

        return {
            "observations": observations,
            "actions": padded(episode.expert_actions[steps], np.int64),
            "previous_actions": padded(previous, np.int64),
            "since_action": padded(since, np.float32),
            "rewards": padded(self._rewards(episode, steps), np.float32),
            "first": padded(steps == 0, np.bool_),
            "terminated": padded((steps == last) & episode.terminated, np.bool_),
            "mask": padded(steps >= begin, np.bool_),
            "episode": torch.tensor(index),
            "step": padded(steps, np.int64, -1),
        }

    def _rewards(self, episode: Episode, steps: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        reward = self.options.reward
        actions = episode.expert_actions[steps]
        if reward == "imitation":
            acted: npt.NDArray[Any] = actions != _NO_OP
            return acted
        if reward == "outcome":
            return np.where(steps == len(episode) - 1, episode.outcome, 0.0)
        if reward == "score":
            return episode.score[steps + 1] - episode.score[steps]
        pairs = zip(steps.tolist(), actions.tolist(), strict=True)
        return np.array([reward(episode, step, action) for step, action in pairs], np.float32)

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a state to mean anything here."""
        rank, world = self.options.shard
        worker = get_worker_info()
        return {
            "count": len(self.library),
            "seed": self.seed,
            "order": self.options.order,
            "steps": self.steps,
            "mix": self.mix,
            "rank": int(rank),
            "world": int(world),
            "worker": 0 if worker is None else worker.id,
            "workers": 1 if worker is None else worker.num_workers,
        }

    def __getstate__(self) -> dict[str, Any]:
        left_out = "_frames", "_random_state"
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _, self._frames = spaces_of(self.options)
        self._random_state = None
        # Where the original is, not a new epoch. After a whole epoch the next one is due.
        self._is_loaded = self._is_loaded or self._windows > 0 or self._episodes > 0
        if self._episodes >= len(self._mine()):
            self._is_loaded = False


def _previous(
    episode: Episode, steps: npt.NDArray[np.int64], history: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The player's last actions before each step, and the seconds since the newest."""
    actions, loops = episode.expert_actions, episode.game_loops
    acted = np.flatnonzero(actions)
    before = np.searchsorted(acted, steps)  # how many actions there were
    which = before[:, None] - 1 - np.arange(history)
    if len(acted) == 0:
        return np.zeros_like(which), loops[steps] / episode.loops_per_second
    previous = np.where(which >= 0, actions[acted[np.maximum(which, 0)]], _NO_OP)
    newest = np.where(before > 0, loops[acted[np.maximum(before - 1, 0)]], 0)
    return previous, (loops[steps] - newest) / episode.loops_per_second


def _rank() -> tuple[int, int]:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _count(name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be an integer, got {value!r}") from None
    if number < least:
        raise ValueError(f"{name} must be {least} or more, got {number}")
    return number
