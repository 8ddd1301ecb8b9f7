"""What a stand-in game shows: pure functions of the player, the loop and the interface."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

from sc2gym.game import load_schemas

MAP = "KairosJunctionLE"
ACTION_EVERY = 24  # loops between the observed player's commands
ATTACK, STOP = 3674, 3665  # ability ids: Attack, Stop

sc2api = load_schemas()


@functools.cache
def _read(path: Path) -> bytes:
    return path.read_bytes()


@functools.cache
def _message(kind: str, path: Path) -> Any:
    return getattr(sc2api, kind).FromString(_read(path))


def game_info(observations: Path, interface: Any) -> Any:
    """The real `ResponseGameInfo` of a map, with the interface that was asked for."""
    info = sc2api.ResponseGameInfo()
    info.CopyFrom(
        _message("ResponseGameInfo", observations / "maps" / f"{MAP}.ResponseGameInfo.pb")
    )
    info.options.CopyFrom(interface)
    return info


def data(observations: Path) -> Any:
    """The real `ResponseData`."""
    return _message("ResponseData", observations / "ResponseData.pb")


def observation(
    observations: Path, interface: Any, player: int, loop: int, previous: int, end: int
) -> Any:
    """What `player` sees at `loop`, having last looked at `previous`; the game ends at `end`.

    Units walk on circles, each with a speed of its own; minerals and the score grow; the
    player gives a command every `ACTION_EVERY` loops, reported when next observed.
    """
    obs = sc2api.ResponseObservation()
    obs.CopyFrom(
        _message("ResponseObservation", observations / "maps" / f"{MAP}.ResponseObservation.pb")
    )
    inner = obs.observation
    inner.game_loop = loop
    common = inner.player_common
    common.player_id = player
    common.minerals = 50 + loop // 2 + player
    common.vespene = loop // 4
    inner.score.score_details.collected_minerals = float(loop // 2)
    inner.score.score_details.collected_vespene = float(loop // 4)
    inner.score.score_details.killed_value_units = float(10 * (loop // 100))
    own = []
    for index, unit in enumerate(inner.raw_data.units):
        angle = loop * (0.01 + 0.001 * (index % 7)) + index
        if unit.owner in (1, 2):
            unit.pos.x += 3 * np.cos(angle)
            unit.pos.y += 3 * np.sin(angle)
            if player == 2:
                unit.alliance = {1: 4, 4: 1}.get(unit.alliance, unit.alliance)
            if unit.alliance == 1:
                own.append(unit.tag)
    if not interface.raw:
        inner.ClearField("raw_data")
    if not interface.score:
        inner.ClearField("score")
    if interface.HasField("feature_layer"):
        _feature_layers(observations, inner, interface.feature_layer)
    for given in commands(previous, loop):
        action = obs.actions.add(game_loop=given)
        command = action.action_raw.unit_command
        command.ability_id = ATTACK if given // ACTION_EVERY % 2 else STOP
        command.unit_tags.append(own[given % len(own)] if own else 1)
        if command.ability_id == ATTACK:
            command.target_world_space_pos.x = 20.5
            command.target_world_space_pos.y = 30.25 + player
    if loop >= end:
        for other in (1, 2):
            obs.player_result.add(
                player_id=other, result=sc2api.Victory if other == 1 else sc2api.Defeat
            )
    return obs


def commands(previous: int, loop: int) -> list[int]:
    """The loops in [previous, loop) at which the observed player gave a command."""
    return [at for at in range(previous, loop) if at % ACTION_EVERY == ACTION_EVERY - 1]


def _feature_layers(observations: Path, inner: Any, setup: Any) -> None:
    """The real planes, cut to the sizes that were asked for."""
    source = _message(
        "ResponseObservation", observations / "feature_layers_128.ResponseObservation.pb"
    ).observation.feature_layer_data
    for part, size in (
        ("renders", setup.resolution),
        ("minimap_renders", setup.minimap_resolution),
    ):
        for field, image in getattr(source, part).ListFields():
            plane = getattr(getattr(inner.feature_layer_data, part), field.name)
            plane.bits_per_pixel = image.bits_per_pixel
            plane.size.x, plane.size.y = size.x, size.y
            bits = np.unpackbits(np.frombuffer(image.data, np.uint8)).reshape(128, -1)
            rows = bits[: size.y, : size.x * image.bits_per_pixel]
            plane.data = np.packbits(rows.reshape(-1)).tobytes()
