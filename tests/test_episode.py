"""Episodes of real replays against their events, taken one by one."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from test_tracks import mask_of

from sc2gym import spaces, tracks, vocabulary
from sc2gym.columns import NULL
from sc2gym.episode import Episode, episodes
from sc2gym.errors import ReplayError, UnsupportedReplayError
from sc2gym.replay import Replay

EVERYTHING = tuple(spaces.OBSERVATIONS)


def arrays_of(max_units: int = 2048) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
    space, frames = spaces.observation_space(EVERYTHING, max_units=max_units)
    return frames, {key: np.empty(box.shape, box.dtype) for key, box in space.items()}


def frame(episode: Episode, step: int) -> dict[str, npt.NDArray[Any]]:
    frames, arrays = arrays_of()
    episode.fill(step, frames, arrays)
    return arrays


def usable(paths: list[Path]) -> list[tuple[Replay, tuple[Episode, ...]]]:
    found = []
    for path in paths:
        replay = Replay.open(path)
        try:
            found.append((replay, episodes(replay, "both", 333)))
        except ReplayError:
            continue
    return found


def life(replay: Replay) -> list[tuple[int, int, int, int, Any]]:
    """(place in stream, loop, tag, owner or -1, type name or None): None and -2 is a death."""
    tag = ["m_unitTagIndex", "m_unitTagRecycle"]
    events = replay.events(
        "tracker",
        {
            "UnitBorn": [*tag, "m_controlPlayerId", "m_unitTypeName"],
            "UnitInit": [*tag, "m_controlPlayerId", "m_unitTypeName"],
            "UnitDied": tag,
            "UnitOwnerChange": [*tag, "m_controlPlayerId"],
            "UnitTypeChange": [*tag, "m_unitTypeName"],
        },
    )
    rows = []
    for event in ("UnitBorn", "UnitInit", "UnitDied", "UnitOwnerChange", "UnitTypeChange"):
        for row in events[event]:
            names = row.dtype.names
            rows.append(
                (
                    int(row["_index"]),
                    event,
                    int(row["_gameloop"]),
                    (int(row["m_unitTagIndex"]) << 18) + int(row["m_unitTagRecycle"]),
                    int(row["m_controlPlayerId"]) if "m_controlPlayerId" in names else None,
                    replay.blob("tracker", row["m_unitTypeName"])
                    if "m_unitTypeName" in names
                    else None,
                )
            )
    return sorted(rows, key=lambda row: row[0])


def test_the_units_of_every_frame_are_those_of_the_events(real_replays: list[Path]) -> None:
    ids = vocabulary.unit_types()
    known = usable(real_replays)
    assert len(known) > 15
    for replay, sides in known:
        rows = life(replay)
        for episode in sides:
            units: dict[int, list[Any]] = {}
            at = latest = 0
            for step in range(len(episode) + 1):
                loop = int(episode.game_loops[step])
                while at < len(rows):
                    _, event, when, tag, owner, name = rows[at]
                    latest = max(latest, min(when, replay.game_loops))
                    if latest > loop:
                        break
                    at += 1
                    if event in ("UnitBorn", "UnitInit"):
                        # An index is used again without a death in some streams.
                        units = {t: u for t, u in units.items() if t >> 18 != tag >> 18}
                        units[tag] = [name, owner]
                    elif tag in units and event == "UnitDied":
                        del units[tag]
                    elif tag in units and event == "UnitOwnerChange":
                        units[tag][1] = owner
                    elif tag in units:
                        units[tag][0] = name
                seen = frame(episode, step)
                count = int(seen["unit_count"])
                shown = {
                    int(tag): (int(row[0]), int(row[2]))
                    for tag, row in zip(
                        seen["unit_tags"][:count], seen["units"][:count], strict=True
                    )
                }
                expected = {
                    tag: (
                        int(ids.ids[ids.index.get(name, 0)]),
                        owner if 0 < owner < 16 else 16,
                    )
                    for tag, (name, owner) in units.items()
                }
                assert shown == expected, (replay.name, loop)
                assert not seen["units"][count:].any() and not seen["unit_tags"][count:].any()


def test_actions_are_stepped_as_pysc2_does(pysc2_replays: list[Path]) -> None:
    for path in pysc2_replays:
        skips = [int(loop) for loop in path.with_suffix(".skips.txt").read_text().split(",")]
        (episode,) = episodes(Replay.open(path), 1, "actions")
        # The file has the loops themselves; the first frame is the game's first.
        assert episode.game_loops.tolist() == sorted({0, *skips}), path.name


def test_frames_are_the_same_whichever_way_they_are_reached(pysc2_replays: list[Path]) -> None:
    episode = episodes(Replay.open(pysc2_replays[4]), 2, 50)[0]
    in_order = [frame(episode, step) for step in range(len(episode) + 1)]
    for step in np.random.default_rng(0).permutation(len(in_order)).tolist()[:100]:
        for key, array in frame(episode, step).items():
            np.testing.assert_array_equal(array, in_order[step][key], err_msg=key)
    again = pickle.loads(pickle.dumps(episode))
    for key, array in frame(again, 99).items():
        np.testing.assert_array_equal(array, in_order[99][key], err_msg=key)


class Cut(Replay):
    """A replay whose streams stop after a loop."""

    until = 0

    def events(self, stream: Any, fields: Any, **options: Any) -> Any:
        found = super().events(stream, fields, **options)
        return {
            event: rows[rows["_gameloop"] <= self.until]
            if "_gameloop" in (rows.dtype.names or ())
            else rows
            for event, rows in found.items()
        }


@pytest.mark.parametrize("until", [1, 1000, 5000, 9007])
def test_no_frame_knows_what_comes_later(pysc2_replays: list[Path], until: int) -> None:
    data = pysc2_replays[8].read_bytes()
    cut = Cut(data)
    cut.until = until
    whole = episodes(Replay(data), "both", 1)
    part = episodes(cut, "both", 1)
    assert len(part) == 2
    for short in part:
        (full,) = (e for e in whole if e.player.player_id == short.player.player_id)
        for key, array in frame(short, until).items():
            np.testing.assert_array_equal(array, frame(full, until)[key], err_msg=key)


def masked(events: Any, row: Any, path: str, bits: npt.NDArray[np.uint8], event: str) -> Any:
    """What a removal mask does: (a function of size to places that stay, the last place named)."""
    kind = int(row[f"{path}?"])
    if kind == 1:
        start, count = row[f"{path}.Mask"].tolist()
        gone = np.flatnonzero(mask_of(bits[start & ~7 :].tolist(), start & 7, count)).tolist()
        assert gone[-1] == count - 1, "a mask ends with the last unit that goes"
    elif kind in (2, 3):
        name = {2: "OneIndices", 3: "ZeroIndices"}[kind]
        start, count = row[f"{path}.{name}"].tolist()
        gone = events[f"{event}.{path}.{name}"]["value"][start : start + count].tolist()
    else:
        return range, -1
    last = max(gone, default=-1)
    if kind == 3:
        return (lambda size: gone), last
    return (lambda size: [i for i in range(size) if i not in gone]), last


def test_selections_contradict_nothing_in_the_files(real_replays: list[Path]) -> None:
    # A group is what its events say, in order of tags, the dead included. Then no mask ever
    # reaches beyond its group, and nothing is added that is there already.
    changes = added = recalled = 0
    for path in real_replays:
        try:
            replay = Replay.open(path)
            events = replay.events("game", {"SelectionDelta": None, "ControlGroupUpdate": None})
            born = tracks.follow(replay).tracks if replay.has_stream("tracker") else None
        except ReplayError:
            continue
        data = np.frombuffer(replay.member("replay.game.events") or b"", np.uint8)
        bits = np.unpackbits(data[:], bitorder="little")
        delta, update = events["SelectionDelta"], events["ControlGroupUpdate"]
        tags = events["SelectionDelta.m_delta.m_addUnitTags"]["value"]
        groups: dict[tuple[int, int], list[int]] = {}
        states: list[tuple[int, set[int]]] = []
        rows = sorted([*delta, *update], key=lambda row: int(row["_index"]))
        for row in rows:
            user = int(row["_userid"])
            selection = groups.setdefault((user, 10), [])
            if "m_controlGroupId" in row.dtype.names:
                place = user, int(row["m_controlGroupId"])
                group = groups.setdefault(place, [])
                stay, last = masked(events, row, "m_delta.m_removeMask", bits, "SelectionDelta")
                start, count = row["m_delta.m_addUnitTags"].tolist()
                new = tags[start : start + count].tolist()
                left = [group[i] for i in stay(len(group))]
                assert last < len(group) and not set(left) & set(new), (path.name, row)
                groups[place] = sorted(left + new)
                changes += 1
                added += count
            else:
                place = user, int(row["m_controlGroupIndex"])
                group = groups.setdefault(place, [])
                action = int(row["m_controlGroupUpdate"])
                stay, last = masked(events, row, "m_mask", bits, "ControlGroupUpdate")
                assert last < len(group), (path.name, row)
                left = [group[i] for i in stay(len(group))]
                if action in (0, 4):
                    groups[place] = list(selection)
                elif action in (1, 5):
                    groups[place] = sorted({*left, *selection})
                elif action == 2:
                    groups[user, 10] = left
                    recalled += 1
                else:
                    groups[place] = []
            if place[1] == 10 or ("m_controlGroupUpdate" in row.dtype.names and action == 2):
                states.append((user, set(groups[user, 10])))
        if born is None:
            continue
        # The tracks show the same, less the dead.
        snapshots, ordinals = born.selections
        known = set(born.unit_tags.tolist())
        assert len(snapshots) == len(states), path.name
        for at, (user, tags_now) in enumerate(states):
            loop, of_user, first, count = snapshots[at].tolist()
            shown = [int(born.unit_tags[i]) for i in ordinals[first : first + count]]
            assert of_user == user and set(shown) <= tags_now, (path.name, loop)
            if at % 50 == 0:
                living = {int(born.unit_tags[i]) for i in born.at(loop - 1)["unit"]}
                assert set(shown) == tags_now & living & known, (path.name, loop)
    assert changes > 15_000 and added > 90_000 and recalled > 4_000


def test_player_and_score_are_the_statistics(pysc2_replays: list[Path]) -> None:
    replay = Replay.open(pysc2_replays[0])
    stats = replay.events("tracker", {"PlayerStats": None})["PlayerStats"]
    for episode in episodes(replay, "both", 160):
        own = stats[stats["m_playerId"] == episode.player.player_id]
        for step in (1, 20, 90):
            loop = episode.game_loops[step]
            row = own[own["_gameloop"] <= loop][-1]
            player = frame(episode, step)["player"]
            assert player[0] == episode.player.player_id
            for place, name in enumerate(("MineralsCurrent", "VespeneCurrent"), start=1):
                assert row[f"m_stats.m_scoreValue{name}"] not in (NULL,)
                assert player[place] == row[f"m_stats.m_scoreValue{name}"]
            assert player[3] == row["m_stats.m_scoreValueFoodUsed"] // 4096
            assert player[6] == row["m_stats.m_scoreValueWorkersActiveCount"]
        assert (np.diff(episode.score) >= -1000).all() and episode.score[-1] > 1000


def test_without_tracker_events_there_is_no_episode(data_dir: Path) -> None:
    path = data_dir / "replays/tricky/4.1.2.60604-anonymised.SC2Replay"
    with pytest.raises(UnsupportedReplayError, match="no tracker events"):
        episodes(Replay.open(path))


def test_bad_unit_ids_are_skipped_or_raised_as_the_caller_chose(data_dir: Path) -> None:
    replay = Replay.open(data_dir / "replays/tricky/2.0.11.26825-bad-unit-ids.SC2Replay")
    born = set()
    bad = 0
    for _, event, _, tag, _, _ in life(replay):
        if event in ("UnitBorn", "UnitInit"):
            born = {other for other in born if other >> 18 != tag >> 18} | {tag}
        elif tag not in born:
            bad += 1
        elif event == "UnitDied":
            born.remove(tag)
    sides = episodes(replay)
    assert {side.bad_unit_ids for side in sides} == {tracks.follow(replay).tracks.bad_references}
    assert sides[0].bad_unit_ids >= bad and sides[0].bad_unit_ids > 0
    with pytest.raises(ReplayError, match=r"\d+ tracker events of units") as caught:
        episodes(replay, on_bad_ids="raise")
    assert "bad-unit-ids" in str(caught.value)
    with pytest.raises(ValueError, match="on_bad_ids must be"):
        episodes(replay, on_bad_ids="ignore")  # type: ignore[arg-type]
    sound = Replay.open(data_dir / "replays/pysc2/replay_09.SC2Replay")
    (side,) = episodes(sound, 1, on_bad_ids="raise")
    assert side.bad_unit_ids == 0


def test_rewinds_and_bad_unit_ids_are_survived(data_dir: Path) -> None:
    tricky = data_dir / "replays/tricky"
    for name in ("2.0.11.26825-bad-unit-ids", "2.1.3.28667-loop-rewind"):
        for episode in episodes(Replay.open(tricky / f"{name}.SC2Replay")):
            assert (np.diff(episode.game_loops) > 0).all()
            assert int(frame(episode, len(episode))["unit_count"]) > 0
    assert (
        episodes(Replay.open(tricky / "2.1.3.28667-loop-rewind.SC2Replay"))[0].game_loops[-1]
        <= 3787
    )


def test_sides_and_wrong_options(pysc2_replays: list[Path]) -> None:
    replay = Replay.open(pysc2_replays[8])
    winner, loser = episodes(replay, "winner")[0], episodes(replay, "loser")[0]
    assert (winner.outcome, loser.outcome) == (1.0, -1.0)
    assert winner.opponent == loser.player
    assert episodes(replay, 7) == ()
    for wrong in ({"players": "bth"}, {"step_mul": 0}, {"step_mul": "action"}):
        with pytest.raises(ValueError, match="must be"):
            episodes(replay, **wrong)  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="step"):
        winner.fill(len(winner) + 1, *arrays_of())
