"""The fidelity report, on recordings made from what the events say, with errors put in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="needs the recordings extra")
pytest.importorskip("google.protobuf", reason="messages are made with the game extra")

from sc2gym import recorded, spaces, vocabulary
from sc2gym.episode import Episode, episodes
from sc2gym.fidelity import compare
from sc2gym.game import load_schemas
from sc2gym.library import find
from sc2gym.recording import Recording, RecordingInfo, RecordingWriter
from sc2gym.replay import Replay

sc2api = load_schemas()


@pytest.fixture(scope="module")
def events() -> Episode:
    return episodes(Replay.open(find()[0]), "both", 160)[0]


def constructed(
    events: Episode, path: Path, change: Callable[[Any], None] = lambda message: None
) -> Episode:
    """The recording that the game would have made, had it been as the events say."""
    observe = ["units", "player"]
    columns = ["unit_type", "owner", "alliance", "x", "y", "radius"]
    space, frames = spaces.observation_space(observe, max_units=2048, unit_columns=columns)
    arrays = {k: np.empty(s.shape, s.dtype) for k, s in space.spaces.items()}  # type: ignore[attr-defined]
    game_info = sc2api.ResponseGameInfo(map_name=events.map_name)
    size = game_info.start_raw.map_size
    size.x, size.y = events.map_size
    players = [p for p in (events.player, events.opponent) if p is not None]
    info = RecordingInfo(
        replay=events.name,
        content_hash=events.content_hash,
        player=events.player.player_id,
        game_version="",
        base_build=0,
        data_version="",
        map_name=events.map_name,
        players=tuple(map(dataclasses.asdict, players)),
        loops_per_second=events.loops_per_second,
        step_mul=160,
        actions=None,
        disable_fog=True,
        interface=b"",
        game_info=game_info.SerializeToString(),
        replay_info=b"",
    )
    functions = vocabulary.raw_functions()
    with RecordingWriter(path, info) as writer:
        for step, loop in enumerate(events.game_loops.tolist()):
            events.fill(step, frames, arrays)
            message = sc2api.ResponseObservation()
            inner = message.observation
            inner.game_loop = loop
            for name, value in zip(spaces.PLAYER, arrays["player"].tolist(), strict=True):
                setattr(inner.player_common, name, value)
            for tag, row in zip(arrays["unit_tags"], arrays["units"], strict=True):
                if tag:
                    unit = inner.raw_data.units.add(tag=int(tag), display_type=1)
                    unit.unit_type, unit.owner, unit.alliance = (int(v) for v in row[:3])
                    unit.pos.x, unit.pos.y = float(row[3]), events.map_size[1] - float(row[4])
                    unit.radius = float(row[5])
            function = functions[int(events.expert_actions[step - 1])] if step else functions[0]
            if function.kind in ("cmd", "cmd_pt", "cmd_unit"):
                command = message.actions.add(game_loop=loop - 1).action_raw.unit_command
                command.ability_id = function.ability
                if function.kind == "cmd_pt":
                    command.target_world_space_pos.x = 1
                elif function.kind == "cmd_unit":
                    command.target_unit_tag = 1
            change(message)
            writer.append(message.SerializeToString())
    return recorded.episode(Recording(path), 160)


def test_events_agree_with_themselves(events: Episode, tmp_path: Path) -> None:
    report = compare(events, constructed(events, tmp_path / "r"))
    assert report.frames == len(events) + 1
    assert report.units > 1000
    assert (report.found, report.extra, report.same_type, report.same_owner) == (1, 0, 1, 1)
    assert max(report.distance) < 1e-3 and max(report.own_distance) < 1e-3
    assert set(report.player) == set(spaces.PLAYER) and not any(report.player.values())
    assert report.expert == 1
    assert "found 100.0%" in str(report)


def test_what_is_wrong_is_measured(events: Episode, tmp_path: Path) -> None:
    def change(message: Any) -> None:
        units = message.observation.raw_data.units
        for unit in units:
            unit.pos.x += 3
            unit.pos.y -= 4
        own = [unit for unit in units if unit.alliance == 1]
        own[0].unit_type = 1
        if len(own) > 1:
            own[1].tag = 1 << 40
        message.observation.player_common.minerals += 7

    report = compare(events, constructed(events, tmp_path / "r", change))
    assert report.distance == pytest.approx((5, 5, 5), abs=1e-3)
    frames = report.frames
    # In each frame one unit is of another type and another one is not the one it was.
    assert 0 < 1 - report.found <= frames / report.units
    assert report.extra > 0
    assert report.same_type < 1 and report.same_owner == 1
    assert report.player["minerals"] == 7 and report.player["vespene"] == 0


def test_only_the_same_game_can_be_compared(events: Episode, tmp_path: Path) -> None:
    truth = constructed(events, tmp_path / "r")
    other = episodes(Replay.open(find()[0]), "both", 160)[1]
    with pytest.raises(ValueError, match="from the same side"):
        compare(other, truth)
