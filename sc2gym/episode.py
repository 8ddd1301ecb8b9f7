"""One game from one player's side, step by step: what every environment plays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sc2gym import spaces, tracks, vocabulary
from sc2gym._fast.frame import Frames, FrameSource
from sc2gym._fast.raster import TrackSource, fill_frame
from sc2gym.errors import UnsupportedReplayError
from sc2gym.replay import Player, Replay

StepMul = int | Literal["actions"]

_OUTCOMES = {"win": 1.0, "loss": -1.0}

# Events that are not actions, by pysc2's reckoning (`sc2_replay_utils.raw_action_skips`).
_NOT_ACTIONS = frozenset({
    "SetSyncLoadingTime", "SetSyncPlayingTime", "TriggerSoundLengthSync",
    "UserFinishedLoadingSync", "UserOptions", "CmdUpdateTargetPoint", "CameraSave",
    "ControlGroupUpdate", "SelectionDelta",
})  # fmt: skip

_SELF, _ALLY, _NEUTRAL, _ENEMY = 1, 2, 3, 4
# Values of the layer `unit_class`.
MINERALS, GEYSER, NEUTRAL, EGG, WORKER, GROUND, AIR, STRUCTURE, DEFENCE, TOWN_HALL = range(1, 11)
_DEFENCES = frozenset({
    "Bunker", "MissileTurret", "PhotonCannon", "ShieldBattery", "SpineCrawler", "SporeCrawler",
    "SpineCrawlerUprooted", "SporeCrawlerUprooted", "PointDefenseDrone", "AutoTurret",
})  # fmt: skip


@dataclass(frozen=True, eq=False)
class Episode:
    """A game from one player's side.

    `len(episode)` is the number of steps; there is one frame more than steps.

    Attributes:
        name: The replay's name.
        content_hash: Of the replay's bytes.
        map_name: The map's title.
        map_size: (width, height) in cells.
        player: Whose side.
        opponent: The other player, None where there is not just one.
        source: Fills frames by game loop.
        game_loops: int32 (steps + 1,), the loop that each frame shows.
        expert_actions: int32 (steps + 1,), raw function id of the player's first command from
            that loop on and before the next frame's; no_op (0) where there is none.
        score: float64 (steps + 1,), minerals and vespene gathered plus value killed, from
            statistics that the replay has every 160 loops.
        result: "win", "loss", "tie" or "undecided".
        terminated: Whether the game ends at the last frame; else the stream stops there
            without a result.
        loops_per_second: Game loops a second of real time.
        commands: How many commands the player gave, repeats included.
        unmapped_commands: How many of them have no raw function.
        bad_unit_ids: How many tracker events name a unit that does not live then, and so were
            skipped.
        nbytes: Bytes of memory, with what it shares with the other sides.
    """

    name: str
    content_hash: str
    map_name: str
    map_size: tuple[int, int]
    player: Player
    opponent: Player | None
    source: FrameSource
    game_loops: npt.NDArray[np.int32]
    expert_actions: npt.NDArray[np.int32]
    score: npt.NDArray[np.float64]
    result: str
    terminated: bool
    loops_per_second: float
    commands: int
    unmapped_commands: int
    bad_unit_ids: int
    nbytes: int
    _origin: tuple[dict[str, Any], StepMul] = field(repr=False)

    def __post_init__(self) -> None:
        # Shared with whoever holds the episode.
        for array in (self.game_loops, self.expert_actions, self.score):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.game_loops) - 1

    @property
    def outcome(self) -> float:
        """1.0 for a win, -1.0 for a loss, else 0.0."""
        return _OUTCOMES.get(self.result, 0.0)

    def __reduce__(self) -> tuple[object, ...]:
        # By reference to the replay: decoding again costs less than storing what it gives.
        # The replay itself is not kept, so that its unpacked members need no memory.
        return _restore, (*self._origin, self.player.player_id)

    def info(self) -> dict[str, Any]:
        """What a reset tells: replay, player, race, opponent_race, map, result and mmr."""
        known = {} if self.player.mmr is None else {"mmr": self.player.mmr}
        return {
            "replay": self.name,
            "player": self.player.player_id,
            "race": self.player.race,
            "opponent_race": self.opponent.race if self.opponent else "",
            "map": self.map_name,
            "result": self.result,
        } | known

    def availability(self) -> dict[str, dict[str, str]]:
        """How well this episode knows what can be observed; see `spaces.availability`."""
        return spaces.availability("events")

    def fill(self, step: int, frames: Frames, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Writes the frame of a step into the caller's arrays.

        Args:
            step: 0 to `len(self)`.
            frames: The layout, from `spaces.observation_space`.
            arrays: {observation key: array}, writable and C-contiguous, with the shape and
                dtype of the space; written completely.

        Raises:
            IndexError: No such step.
            ValueError: An array that does not fit.
        """
        if not 0 <= step <= len(self):
            raise IndexError(f"step {step} of an episode of {len(self)}")
        fill_frame(self.source, int(self.game_loops[step]), frames, arrays)


def episodes(
    replay: Replay,
    players: str | int = "both",
    step_mul: StepMul = 8,
    *,
    on_bad_ids: Literal["skip", "raise"] = "skip",
) -> tuple[Episode, ...]:
    """The episodes of a replay, which share what is decoded.

    Args:
        replay: Of version 2.0.8 or later.
        players: "both" for every playing side, a player id, "winner" or "loser".
        step_mul: Game loops a step, or "actions" for a step at every loop where the player
            acted, as pysc2's replay agents step.
        on_bad_ids: What to do about tracker events of units that were never born or are dead:
            "skip" them (`Episode.bad_unit_ids` counts them), or "raise".

    Raises:
        ReplayError: A replay that cannot be used.
        ValueError: An option that does not exist.
    """
    chosen = [p for p in replay.players if _is_chosen(p, players)]
    if (isinstance(step_mul, str) and step_mul != "actions") or (
        not isinstance(step_mul, str) and step_mul < 1
    ):
        raise ValueError(f'step_mul must be a number of loops or "actions", not {step_mul!r}')
    if on_bad_ids not in ("skip", "raise"):
        raise ValueError(f'on_bad_ids must be "skip" or "raise", not {on_bad_ids!r}')
    if not chosen:
        return ()
    game = tracks.follow(replay, on_bad_ids=on_bad_ids)
    active = set(game.statistics.player_id.tolist())
    found = [_episode(replay, game, p, step_mul) for p in chosen if p.player_id in active]
    if not found:
        raise UnsupportedReplayError("no player of it has statistics", name=replay.name)
    return tuple(found)


def _is_chosen(player: Player, players: str | int) -> bool:
    if isinstance(players, int):
        return player.player_id == players
    if players == "both":
        return True
    results = {"winner": "win", "loser": "loss"}
    if players not in results:
        raise ValueError(
            f'players must be "both", "winner", "loser" or a player id, not {players!r}'
        )
    return player.result == results[players]


def _restore(origin: dict[str, Any], step_mul: StepMul, player_id: int) -> Episode:
    replay = Replay.__new__(Replay)
    replay.__setstate__(origin)
    return episodes(replay, player_id, step_mul)[0]


def _episode(replay: Replay, game: tracks.Game, player: Player, step_mul: StepMul) -> Episode:
    end = _end(game, player)
    side = tracks.side_of(replay, game, player.player_id, player.user_id)
    commands = game.commands
    own = np.flatnonzero(commands.user == (-2 if player.user_id is None else player.user_id))
    functions = commands.function[own]
    if step_mul == "actions":
        loops = _action_loops(replay, player, end)
    else:
        loops = np.append(np.arange(0, end, step_mul), end).astype(np.int32)
    types = vocabulary.unit_types()
    source = TrackSource(
        game.tracks,
        (types.ids, unit_classes(), types.radius, types.build_loops),
        (types.index[b"Larva"], types.index[b"WarpGate"], GROUND, AIR),
        _relations(replay, player),
        game.map_size,
        side.stats,
        side.upgrades,
        side.cameras,
        (side.selections, game.tracks.selections[1]),
        side.losses,
    )
    row = np.searchsorted(side.stats[0], loops, "right")
    score = np.append(0.0, side.score)[row]
    actions = first_actions(commands.game_loop[own], functions, loops)
    nbytes = game.tracks.nbytes + source.nbytes + loops.nbytes + actions.nbytes + score.nbytes
    return Episode(
        name=replay.name,
        content_hash=replay.content_hash,
        map_name=replay.map_name,
        map_size=game.map_size,
        player=player,
        opponent=opponent_of(player, replay.players),
        source=source,
        game_loops=loops,
        expert_actions=actions,
        score=score,
        result=player.result,
        terminated=player.result != "undecided",
        loops_per_second=replay.loops_per_second,
        commands=len(own),
        unmapped_commands=int(np.count_nonzero(functions == vocabulary.UNKNOWN)),
        bad_unit_ids=game.tracks.bad_references,
        nbytes=nbytes,
        _origin=(replay.__getstate__(), step_mul),
    )


def _end(game: tracks.Game, player: Player) -> int:
    # The game is over for who leaves it. An observer who leaves does not end it for others.
    leaves = game.game.get("GameUserLeave")
    if leaves is None or player.user_id is None:
        return game.end
    own = leaves["_gameloop"][leaves["_userid"] == player.user_id]
    return max(1, min(game.end, int(own[0]))) if len(own) else game.end


def _action_loops(replay: Replay, player: Player, end: int) -> npt.NDArray[np.int32]:
    # pysc2's rule: events of the user that are actions, until anyone leaves. Of camera moves in
    # a row the last counts, and none at the very end.
    timeline, names = replay.timeline("game"), replay.event_types("game")
    event = timeline["event_id"]
    silent = np.array([names[name] for name in _NOT_ACTIONS if name in names])
    counts = ~np.isin(event, silent)
    leaves = np.flatnonzero(event == names.get("GameUserLeave", -1))
    if len(leaves):
        counts[leaves[0] :] = False
        last = int(timeline["game_loop"][leaves[0]])
    else:
        last = int(timeline["game_loop"][counts][-1]) if counts.any() else end
    own = counts & (timeline["user"] == (-2 if player.user_id is None else player.user_id))
    loop = timeline["game_loop"][own].astype(np.int64)
    is_camera = event[own] == names.get("CameraUpdate", -1)
    # One entry a loop; it is a camera move only if nothing else happened at that loop.
    at, first = np.unique(loop, return_index=True)
    only_camera = np.logical_and.reduceat(is_camera, first) if len(first) else is_camera
    keep = ~only_camera
    if len(keep):
        keep[:-1] |= only_camera[:-1] & ~only_camera[1:]
    loops = np.unique(np.concatenate(([0], at[keep], [last]))).clip(0, end)
    return np.unique(loops).astype(np.int32)


def opponent_of(player: Player, players: Sequence[Player]) -> Player | None:
    """The other player of a game of two."""
    others = [other for other in players if other.player_id != player.player_id]
    return others[0] if len(others) == 1 else None


def first_actions(
    command_loops: npt.NDArray[np.integer],
    functions: npt.NDArray[np.int32],
    loops: npt.NDArray[np.int32],
) -> npt.NDArray[np.int32]:
    """What an expert did at each step.

    Args:
        command_loops: (n,), when the player gave each command.
        functions: int32 (n,), their raw functions.
        loops: int32 (steps + 1,), ascending, the loops of the frames.

    Returns:
        int32 (steps + 1,): the first command from a frame's loop on and before the next one's;
        no_op where there is none, and at the last frame.
    """
    actions = np.full(len(loops), vocabulary.NO_OP, np.int32)
    step = np.searchsorted(loops, command_loops, "right") - 1
    inside = (step >= 0) & (step < len(loops) - 1)
    # In reverse, so that of several commands of a step the first is written last.
    actions[step[inside][::-1]] = functions[inside][::-1]
    return actions


def _relations(replay: Replay, player: Player) -> npt.NDArray[np.uint8]:
    # Owner 0 is nobody, and so is any that does not play. 16 stands for owners out of range.
    relation = np.full(17, _NEUTRAL, np.uint8)
    for other in replay.players:
        if other.player_id <= 16:
            same_team = other.team == player.team and len({p.team for p in replay.players}) > 1
            relation[other.player_id] = _ALLY if same_team else _ENEMY
    if player.player_id <= 16:
        relation[player.player_id] = _SELF
    return relation


@cache
def unit_classes() -> npt.NDArray[np.uint8]:
    """uint8 (types,), the value of the layer `unit_class` by place in the vocabulary."""
    types = vocabulary.unit_types()
    classes = np.full(len(types.ids), NEUTRAL, np.uint8)
    classes[types.is_army & ~types.is_flying] = GROUND
    classes[types.is_army & types.is_flying] = AIR
    classes[types.is_structure] = STRUCTURE
    classes[types.is_worker] = WORKER
    classes[types.is_townhall] = TOWN_HALL
    classes[types.is_mineral] = MINERALS
    classes[types.is_geyser] = GEYSER
    for place, name in enumerate(types.names):
        if name in _DEFENCES:
            classes[place] = DEFENCE
        elif name in ("Larva", "Egg") or name.endswith(("Cocoon", "Egg")):
            classes[place] = EGG
    return classes
