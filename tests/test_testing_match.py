"""Scripted matches obey the rules of the tracker stream, whoever plays whom."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sc2gym.testing import events, write_replay
from sc2gym.testing.match import PLANS, Match, play
from sc2gym.testing.match.battlefield import SIZE, bases, distance, route
from sc2gym.testing.match.rules import KINDS

PAIRS = [
    ("Terran", "Zerg"),
    ("Protoss", "Terran hellions"),
    ("Zerg mutalisks", "Protoss stalkers"),
    ("Zerg rush", "Zerg"),
]


@pytest.fixture(scope="module", params=PAIRS, ids=" v ".join)
def game(request: pytest.FixtureRequest) -> dict[str, Any]:
    return play(Match(request.param, least=9000, most=9600, seed=11))


def short(event: dict[str, Any]) -> str:
    return event["_event"].rpartition(".")[2].removeprefix("S").removesuffix("Event")


def test_units_come_before_they_change_and_go(game: dict[str, Any]) -> None:
    """Every event is about a unit that is there; an index is taken by one unit at a time."""
    there: dict[int, tuple[int, str]] = {}
    used: Counter[int] = Counter()
    unfinished: set[int] = set()
    recycled = 0
    for event in game["tracker_events"]:
        kind = short(event)
        if kind == "UnitPositions":
            index = event["m_firstUnitIndex"]
            items = event["m_items"]
            for delta, x, y in zip(items[::3], items[1::3], items[2::3], strict=True):
                index += delta
                assert index in there
                assert 0 <= x < SIZE[0] and 0 <= y < SIZE[1]
            continue
        if "m_unitTagIndex" not in event:
            continue
        index, recycle = event["m_unitTagIndex"], event["m_unitTagRecycle"]
        if kind in ("UnitBorn", "UnitInit"):
            assert index not in there
            used[index] += 1
            assert recycle == used[index]
            recycled += recycle > 1
            there[index] = recycle, event["m_unitTypeName"].decode()
            assert 0 <= event["m_x"] < SIZE[0] and 0 <= event["m_y"] < SIZE[1]
            if kind == "UnitInit":
                unfinished.add(index)
            if event.get("m_creatorUnitTagIndex") is not None:
                creator = there[event["m_creatorUnitTagIndex"]]
                assert creator[0] == event["m_creatorUnitTagRecycle"]
            continue
        assert there[index][0] == recycle
        if kind == "UnitTypeChange":
            there[index] = recycle, event["m_unitTypeName"].decode()
        elif kind == "UnitDone":
            unfinished.remove(index)
        elif kind == "UnitDied":
            del there[index]
            unfinished.discard(index)
    assert recycled > 30


def test_indices_are_dense(game: dict[str, Any]) -> None:
    indices = {event["m_unitTagIndex"] for event in game["tracker_events"]
               if short(event) in ("UnitBorn", "UnitInit")}  # fmt: skip
    assert indices == set(range(len(indices)))


def test_statistics_add_up(game: dict[str, Any]) -> None:
    """Every 160 loops for both, never in debt, and what one loses to the other he killed."""
    end = game["header"]["m_elapsedGameLoops"]
    rows = [event for event in game["tracker_events"] if short(event) == "PlayerStats"]
    for player in (1, 2):
        mine = [event for event in rows if event["m_playerId"] == player]
        assert [event["_gameloop"] for event in mine] == [1, *range(160, end + 1, 160)]
        for event in mine:
            stats = {key[len("m_scoreValue") :]: value for key, value in event["m_stats"].items()}
            assert min(stats.values()) >= 0, {k: v for k, v in stats.items() if v < 0}
            assert stats["FoodUsed"] <= max(stats["FoodMade"], 200 * 4096) + 8 * 4096
            assert stats["FoodMade"] <= 200 * 4096
    last = {event["m_playerId"]: event["m_stats"] for event in rows}
    for one, other in ((1, 2), (2, 1)):
        for resource in ("Minerals", "Vespene"):
            for share in ("Army", "Economy", "Technology"):
                assert (
                    last[one][f"m_scoreValue{resource}Lost{share}"]
                    == last[other][f"m_scoreValue{resource}Killed{share}"]
                )
    assert last[1]["m_scoreValueMineralsLostArmy"] + last[2]["m_scoreValueMineralsLostArmy"] > 300


def test_food_is_what_the_units_there_eat(game: dict[str, Any]) -> None:
    """At each report, supply used is at least that of the finished units, at most all started."""
    there: dict[int, tuple[int, str]] = {}
    for event in game["tracker_events"]:
        kind = short(event)
        if kind in ("UnitBorn", "UnitInit"):
            name = event["m_unitTypeName"].decode()
            there[event["m_unitTagIndex"]] = event["m_controlPlayerId"], name
        elif kind == "UnitTypeChange":
            owner, _ = there[event["m_unitTagIndex"]]
            there[event["m_unitTagIndex"]] = owner, event["m_unitTypeName"].decode()
        elif kind == "UnitDied":
            there.pop(event["m_unitTagIndex"])
        elif kind == "PlayerStats":
            standing = sum(
                KINDS[name].food
                for owner, name in there.values()
                if owner == event["m_playerId"] and name in KINDS
            )
            inside = sum(name == "Drone" for _, name in there.values())
            used = event["m_stats"]["m_scoreValueFoodUsed"] / 4096
            assert used >= standing - inside


def test_hands_are_human(game: dict[str, Any]) -> None:
    """Sequence numbers count up, no two actions of a user in one loop, selections before orders."""
    for user in (0, 1):
        mine = [event for event in game["game_events"] if event["_userid"] == {"m_userId": user}]
        loops = [event["_gameloop"] for event in mine if short(event) == "Cmd"]
        assert len(set(loops)) == len(loops)
        numbers = [event["m_sequence"] for event in mine if "m_sequence" in event]
        assert numbers == list(range(1, len(numbers) + 1))
        kinds = Counter(map(short, mine))
        assert kinds["GameUserLeave"] == 1
        assert kinds["CameraUpdate"] > 100
        assert kinds["SelectionDelta"] > 50
        assert 40 < game["metadata"]["Players"][user]["APM"] < 250


def test_the_same_seed_is_the_same_game_and_another_is_not() -> None:
    match = Match(("Zerg rush", "Terran"), least=3000, most=3500, seed=4)
    first = write_replay(**play(match))
    assert write_replay(**play(match)) == first
    other = Match(("Zerg rush", "Terran"), least=3000, most=3500, seed=5)
    assert write_replay(**play(other)) != first


def test_every_plan_is_carried_out() -> None:
    """No build order gets stuck: each plan begins nearly all of it in eleven minutes."""
    for plan in sorted(PLANS):
        game = play(Match((plan, "Terran"), least=11000, most=11001, seed=2))
        seen = Counter(
            event["m_unitTypeName"].decode()
            for event in game["tracker_events"]
            if "m_unitTypeName" in event and event.get("m_controlPlayerId", 1) == 1
        )
        seen += Counter(
            event["m_upgradeTypeName"].decode()
            for event in game["tracker_events"]
            if short(event) == "Upgrade" and event["m_playerId"] == 1
        )
        wanted = [name for _, name in PLANS[plan].order]
        missing = [name for name in wanted if not seen[name]]
        assert len(missing) <= len(wanted) // 4, (plan, missing)


def test_the_map_is_fair_and_in_one_piece() -> None:
    for one, two in zip(bases(0), bases(1), strict=True):
        assert (one.x + two.x, one.y + two.y) == SIZE
        assert distance((one.x, one.y), one.minerals[0]) == pytest.approx(
            distance((two.x, two.y), two.minerals[0]), abs=1
        )
        for x, y in (*one.minerals, *one.geysers, *two.minerals, *two.geysers):
            assert 0 < x < SIZE[0] and 0 < y < SIZE[1]
    every = [(base.x, base.y) for side in (0, 1) for base in bases(side)]
    for start in every:
        for end in every:
            assert route(start, end)[-1] == end


def test_events_of_the_matches_are_those_of_the_builders(game: dict[str, Any]) -> None:
    assert {event["_event"] for event in game["tracker_events"]} <= {
        f"NNet.Replay.Tracker.S{name}Event"
        for name in (
            "PlayerSetup", "PlayerStats", "UnitBorn", "UnitDied", "UnitTypeChange", "Upgrade",
            "UnitInit", "UnitDone", "UnitPositions", "UnitOwnerChange",
        )
    }  # fmt: skip
    assert events.tag(3, 2) == 3 * 2**18 + 2
