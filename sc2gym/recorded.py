"""Episodes from recordings: the same steps, spaces and keys as from a replay's events.

A recording has a frame every so many loops, or where the player acted; an episode steps through
those of its frames that `step_mul` asks for.
"""

from __future__ import annotations

import os
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sc2gym import spaces, vocabulary
from sc2gym._fast.frame import Frames
from sc2gym._fast.raster import fill_frame
from sc2gym._fast.recorded import WireSource
from sc2gym._fast.summaries import CAMERA, read_index
from sc2gym._fast.wire import Decoder
from sc2gym.episode import Episode, StepMul, first_actions, opponent_of, unit_classes
from sc2gym.errors import CorruptMessageError, RecordingError, UnsupportedReplayError
from sc2gym.features import wire_source
from sc2gym.observation import decode_game_info, schema
from sc2gym.recording import SUFFIX, Recording, wire_fields
from sc2gym.replay import Player

_RESULTS = {1: "win", 2: "loss", 3: "tie", 4: "undecided"}

# Fields of `InterfaceOptions`.
_RAW, _FEATURE_LAYER = 1, 3


class RecordedEpisode(Episode):
    """An `Episode` whose frames are the game's own observations.

    Its unit rows are in the game's order.
    """

    def fill(self, step: int, frames: Frames, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """As `Episode.fill`.

        Raises:
            RecordingError: The recording is damaged there.
        """
        if not 0 <= step <= len(self):
            raise IndexError(f"step {step} of an episode of {len(self)}")
        source = self.source
        assert isinstance(source, WireSource)
        if fill_frame(source, int(self.game_loops[step]), frames, arrays):
            failure = source.failure or MemoryError()
            if isinstance(failure, CorruptMessageError):
                raise RecordingError(f"{self.name}, step {step}: {failure}") from failure
            raise failure

    def availability(self) -> dict[str, dict[str, str]]:
        """As `Episode.availability`: what the game was not asked for is not known."""
        known = spaces.availability("recording")
        recording: Any = self._origin[0]
        interface = recording.info.interface
        asked = {
            number
            for number, _, value, _ in wire_fields(interface)
            if number == _FEATURE_LAYER or interface[value]
        }
        layers = known["minimap"]
        if _RAW not in asked:
            known["units"] = dict.fromkeys(known["units"], "")
            known["upgrades"] = dict.fromkeys(known["upgrades"], "")
            layers.update(dict.fromkeys(("unit_density", "build_progress", "unit_class"), ""))
        if _FEATURE_LAYER not in asked:
            layers.update(alerts="", camera="estimated")
            if _RAW not in asked:
                grids = ("height_map", "pathable", "buildable")
                layers.update({name: "" for name in layers if name not in grids})
        return known

    def __reduce__(self) -> tuple[object, ...]:
        # By reference to the recording, which knows its file by contents.
        return episode, self._origin


def episode(recording: Recording, step_mul: StepMul = 8) -> RecordedEpisode:
    """The episode of a recording.

    Args:
        recording: Kept open; its frames are unpacked a block at a time.
        step_mul: Game loops a step, a multiple of those between the recording's frames; or
            "actions" for the frames in which the player acts before the next frame (each
            action's own, if the recording was taken with `--actions`).

    Raises:
        RecordingError: It is damaged, too short, or has no frame every `step_mul` loops.
        ValueError: Such a `step_mul` does not exist.
    """
    name = str(recording.path)
    info = recording.info
    if len(recording) < 2:
        raise RecordingError(f"{name}: {len(recording)} frames, nothing to step through")
    decoder = Decoder(schema("ResponseObservation"))
    try:
        score, commands, results = read_index(decoder, recording.summaries(), len(recording))
        game_info = decode_game_info(info.game_info)
        players = [_player(fields) for fields in info.players]
    except (CorruptMessageError, TypeError, ValueError) as error:
        raise RecordingError(f"{name}: {error}") from error
    player = next((p for p in players if p.player_id == info.player), None)
    if player is None:
        raise RecordingError(f"{name}: nothing is known of its player {info.player}")
    frame_loops = recording.game_loops
    # Where the game does not say at which loop it was, an action was just before its frame.
    unsaid = commands[:, 0] < 0
    loops = commands[:, 0].copy()
    loops[unsaid] = frame_loops[-1 - commands[unsaid, 0]] - 1
    order = np.argsort(loops, kind="stable")
    loops = loops[order]
    functions = _functions(commands[order, 1:])
    steps = _steps(name, frame_loops, loops, step_mul)
    if len(steps) < 2:
        raise RecordingError(f"{name}: frames of one loop only, nothing to step through")
    game_loops = frame_loops[steps]
    if not min(game_info.map_size) > 0:
        raise RecordingError(f"{name}: its game info does not say how large the map is")
    result = _RESULTS.get(results.get(info.player, 0), player.result)
    source = wire_source(
        recording.observation,
        frame_loops,
        map_size=game_info.map_size,
        functions=raw_functions(),
        types=_classes_by_id(),
        upgrades=_upgrade_places(),
        game_info=game_info,
    )
    actions, score = first_actions(loops, functions, game_loops), score[steps]
    return RecordedEpisode(
        name=name,
        content_hash=info.content_hash,
        map_name=info.map_name,
        map_size=game_info.map_size,
        player=player,
        opponent=opponent_of(player, players),
        source=source,
        game_loops=game_loops,
        expert_actions=actions,
        score=score,
        result=result,
        # A recording that stops before the end (`--max-loops`) has no result in it.
        terminated=info.player in results and result != "undecided",
        loops_per_second=info.loops_per_second,
        commands=len(loops),
        unmapped_commands=int(np.count_nonzero(functions == vocabulary.UNKNOWN)),
        bad_unit_ids=0,
        nbytes=recording.nbytes + game_loops.nbytes + actions.nbytes + score.nbytes,
        _origin=(recording, step_mul),  # type: ignore[arg-type]
    )


def record(
    replay: Path | bytes, player_id: int, step_mul: StepMul, folder: Path | None = None
) -> Path:
    """The recording of one side of a replay; the game makes it if it is not there yet.

    Args:
        replay: The file.
        player_id: Whose side. The other side is recorded at the same time.
        step_mul: As in `episode`.
        folder: Where recordings are kept; by default what SC2GYM_RECORDINGS names, else
            `sc2gym/recordings` in the user's cache folder.

    Raises:
        ReplayError: The game cannot play it.
        RecorderError: There is no game, or no room.
    """
    from sc2gym.game import Settings
    from sc2gym.game import record as record_all

    if isinstance(replay, bytes):
        raise UnsupportedReplayError("a replay from memory cannot be recorded; give its file")
    if folder is None:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        named = os.environ.get("SC2GYM_RECORDINGS")
        folder = Path(named) if named else Path(cache) / "sc2gym" / "recordings"
    # All in a folder is recorded alike, and one folder is for one process at a time.
    folder = folder / f"{step_mul}"
    content_hash = blake2b(replay.read_bytes(), digest_size=16).hexdigest()
    wanted = f"*-{content_hash[:8]}-p{player_id}{SUFFIX}"
    found = next(folder.glob(wanted), None)
    if found is None:
        settings = Settings(
            opponent=True, actions=step_mul == "actions", step_mul=_number(step_mul)
        )
        for outcome in record_all(replay, folder, settings).failures:
            raise UnsupportedReplayError(f"{outcome.kind}: {outcome.reason}", name=str(replay))
        found = next(folder.glob(wanted), None)
    if found is None:
        raise UnsupportedReplayError(f"no player {player_id} was recorded", name=str(replay))
    return found


def _number(step_mul: StepMul) -> int:
    return 8 if isinstance(step_mul, str) else step_mul


def _player(fields: dict[str, Any]) -> Player:
    red, green, blue = fields["color"]
    return Player(**{**fields, "color": (red, green, blue)})


def _steps(
    name: str,
    frame_loops: npt.NDArray[np.int32],
    command_loops: npt.NDArray[np.int64],
    step_mul: StepMul,
) -> npt.NDArray[np.int64]:
    """The numbers of the frames to step through: the first, those asked for, and the last."""
    # Of frames of one loop the last counts: at the end pysc2 may show a loop again, with results.
    frames = np.flatnonzero(np.append(np.diff(frame_loops) > 0, True))
    loops = frame_loops[frames].astype(np.int64)
    if step_mul == "actions":
        # The frame at which each command was given: the last one not after it.
        at = np.searchsorted(loops, command_loops, "right") - 1
    elif isinstance(step_mul, str) or step_mul < 1:
        raise ValueError(f'step_mul must be a number of loops or "actions", not {step_mul!r}')
    else:
        at = np.flatnonzero((loops - loops[0]) % step_mul == 0)
        wanted = loops[0] + step_mul * np.arange(len(at) + 1)
        missing = np.flatnonzero(np.append(loops[at], -1) != wanted)[0]
        if wanted[missing] < loops[-1]:
            raise RecordingError(
                f"{name}: no frame at loop {wanted[missing]}, as step_mul={step_mul} asks for; "
                f"its first are at {loops[:4].tolist()}"
            )
    last = len(frames) - 1
    steps: npt.NDArray[np.int64] = np.unique(np.clip(np.concatenate(([0], at, [last])), 0, last))
    return frames[steps].astype(np.int64)


@cache
def _classes_by_id() -> npt.NDArray[np.uint8]:
    types = vocabulary.unit_types()
    classes = np.zeros(int(types.ids.max()) + 1, np.uint8)
    classes[types.ids] = unit_classes()
    return classes


@cache
def _upgrade_places() -> npt.NDArray[np.int32]:
    ids = vocabulary.upgrades().ids
    places = np.full(int(ids.max()) + 1, -1, np.int32)
    places[ids] = np.arange(len(ids))
    return places


@cache
def raw_functions() -> npt.NDArray[np.int32]:
    """int32 (abilities,): pysc2's raw function of each ability id in a unit's orders.

    As `pysc2.lib.actions.RAW_ABILITY_ID_TO_FUNC_ID` has it: the first of an ability's.
    """
    functions = [f for f in vocabulary.raw_functions() if f.ability]
    table = np.zeros(max(f.ability for f in functions) + 1, np.int32)
    for function in reversed(functions):
        table[function.ability] = function.id
    return table


def _functions(commands: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Raw functions of (ability id, kind): the same that the events' commands become."""
    table = vocabulary.functions_of_abilities()
    ability, kind = commands.T
    known = (ability > 0) & (ability < table.shape[1])
    target = np.where(kind == CAMERA, 0, kind)
    functions = table[target, np.where(known, ability, 0)]
    functions = np.where(known, functions, vocabulary.UNKNOWN)
    return np.where(kind == CAMERA, _camera(), functions).astype(np.int32)


@cache
def _camera() -> int:
    return next(f.id for f in vocabulary.raw_functions() if f.kind == "move_camera")
