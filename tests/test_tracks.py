"""Unit tracks against a slow model: a dict of living units, one event after the other."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sc2gym._fast.tracks import COMMAND_OP, OP, SEGMENT, Tracks, build

BORN, INIT, DONE, DIED, OWNER, TYPE, POSITION = range(7)
SELECT, GROUP, COMMAND = range(3)
STAYS, GOES, STOPS, ONE_GOES = range(4)
SPEED = np.array([0, 0.5, 0, 0.1], np.float32)
ALL = -1  # any recycle count
NOBODY = np.zeros(16, np.int8)


def follow(
    ops: npt.NDArray[np.void],
    end: int,
    commands: npt.NDArray[np.void] | None = None,
    tags: list[int] | None = None,
    speed: npt.NDArray[np.float32] = SPEED,
    mask_bits: list[int] | None = None,
    mask_indices: list[int] | None = None,
) -> Tracks:
    """`build`, with users 0 and 1 playing players 1 and 2."""
    given_tags = np.array(tags or [0], np.uint32)
    users = NOBODY.copy()
    users[:2] = 1, 2
    return build(
        ops,
        np.zeros(0, COMMAND_OP) if commands is None else commands,
        np.packbits(np.array(mask_bits or [0], np.uint8), bitorder="little"),
        np.array(mask_indices or [0], np.int32),
        given_tags,
        users,
        speed,
        end,
    )


def operation(loop: int, kind: int, index: int, recycle: int = 1, **fields: float) -> Any:
    op = np.zeros((), OP)
    op["loop"], op["kind"], op["index"], op["recycle"], op["creator"] = (
        loop,
        kind,
        index,
        recycle,
        -1,
    )
    for name, value in fields.items():
        op[name] = value
    return op


def order(loop: int, kind: int, user: int = 0, **fields: float) -> Any:
    op = np.zeros((), COMMAND_OP)
    op["loop"], op["kind"], op["user"], op["target"], op["group"] = loop, kind, user, -1, 10
    for name, value in fields.items():
        op[name] = value
    return op


def living(ops: npt.NDArray[np.void], loop: int) -> dict[int, tuple[float, ...]]:
    """tag -> (type, owner, x, y, building) after every operation up to `loop`; nobody moves."""
    units: dict[int, dict[str, Any]] = {}
    for op in ops:
        if op["loop"] > loop:
            break
        index, kind = int(op["index"]), int(op["kind"])
        if kind in (BORN, INIT):
            if 0 <= index < 1 << 14:
                units[index] = {
                    "recycle": int(op["recycle"]),
                    "type": int(op["type"]),
                    "owner": int(op["owner"]),
                    "x": float(op["x"]),
                    "y": float(op["y"]),
                    "building": int(op["loop"]) if kind == INIT else -1,
                }
            continue
        unit = units.get(index)
        if unit is None or (op["recycle"] >= 0 and op["recycle"] != unit["recycle"]):
            continue
        if kind == DIED:
            del units[index]
        elif kind == DONE:
            unit["building"] = -1
        elif kind == OWNER:
            unit["owner"] = int(op["owner"])
        elif kind == TYPE:
            unit["type"] = int(op["type"])
        elif kind == POSITION:
            unit["x"], unit["y"] = float(op["x"]), float(op["y"])
    return {
        (index << 18) + unit.pop("recycle"): tuple(unit.values()) for index, unit in units.items()
    }


def covering(tracks: Tracks, loop: int) -> dict[int, tuple[float, ...]]:
    """The same from the segments that cover a loop."""
    rows = tracks.at(loop)
    assert len(set(rows["unit"])) == len(rows), "a unit is in one place at a time"
    births = tracks.unit_births
    return {
        int(tracks.unit_tags[row["unit"]]): (
            int(row["type"]),
            int(row["owner"]),
            float(row["x"]),
            float(row["y"]),
            int(births[row["unit"]]) if row["building"] else -1,
        )
        for row in rows
    }


@st.composite
def operations(draw: st.DrawFn, wild: bool = False) -> npt.NDArray[np.void]:
    count = draw(st.integers(0, 60))
    rows = np.zeros(count, OP)
    indices = st.integers(-(1 << 31), (1 << 31) - 1) if wild else st.integers(0, 5)
    places = st.integers(-(1 << 30), 1 << 30) if wild else st.integers(0, 200)
    loop = 0
    for i in range(count):
        loop += draw(st.sampled_from([0, 0, 1, 3, 127, 128, 400]))
        rows[i] = (
            loop,
            draw(st.integers(0, 6)),
            draw(st.integers(0, 16)),
            draw(indices),
            draw(st.sampled_from([1, 1, 1, 2, -1])),
            draw(st.integers(0, 3)),
            draw(places),
            draw(places),
            draw(indices if wild else st.integers(-1, 6)),
        )
    born = np.isin(rows["kind"], (BORN, INIT))
    rows["recycle"][born] = np.abs(rows["recycle"][born])
    return rows


@given(operations())
@settings(max_examples=150, deadline=None)
def test_the_living_are_those_of_the_slow_model(ops: npt.NDArray[np.void]) -> None:
    end = int(ops["loop"].max(initial=0)) + 2
    tracks = follow(ops, end)
    for loop in sorted({0, *ops["loop"].tolist(), *(ops["loop"] + 1).tolist()}):
        assert covering(tracks, loop) == living(ops, loop), loop


@given(operations())
@settings(max_examples=100, deadline=None)
def test_blocks_list_the_units_that_live_in_them_in_order(ops: npt.NDArray[np.void]) -> None:
    tracks = follow(ops, int(ops["loop"].max(initial=0)) + 2)
    starts, firsts = tracks.blocks
    table = tracks.segment_table
    assert table["end"].max(initial=0) <= (len(starts) - 1) * 256
    for block in range(len(starts) - 1):
        touches = (table["begin"] < (block + 1) * 256) & (table["end"] > block * 256)
        rows = np.flatnonzero(touches)
        _, first = np.unique(table["unit"][rows], return_index=True)
        assert firsts[starts[block] : starts[block + 1]].tolist() == rows[first].tolist()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(5, 5, 0)], "segment 0: loops"),
        ([(-1, 5, 0)], "segment 0: loops"),
        ([(0, 1 << 30, 0)], "segment 0: loops"),
        ([(0, 5, 0), (4, 9, 0)], "segment 1: loops"),
        ([(0, 5, 0), (5, 9, 2)], "segment 1: units"),
        ([(0, 5, 1), (5, 9, 0)], "segment 1: units"),
        ([(0, 5, -1)], "segment 0: units"),
    ],
)
def test_segments_from_elsewhere_are_looked_at(
    rows: list[tuple[int, int, int]], message: str
) -> None:
    table = np.zeros(len(rows), SEGMENT)
    for row, values in zip(table, rows, strict=True):
        row["begin"], row["end"], row["unit"] = values
    nothing = np.zeros((0, 4), np.int32), np.zeros(0, np.int32)
    with pytest.raises(ValueError, match=message):
        Tracks(table, np.zeros(2, np.int64), np.zeros(2, np.int32), nothing, 0)


@st.composite
def orders(draw: st.DrawFn) -> tuple[npt.NDArray[np.void], list[int], list[int], list[int]]:
    tags = [(draw(st.integers(0, 6)) << 18) + 1 for _ in range(12)]
    bits = draw(st.lists(st.integers(0, 1), min_size=8, max_size=8))
    indices = draw(st.lists(st.integers(-5, 600), min_size=8, max_size=8))
    count = draw(st.integers(0, 40))
    rows = np.zeros(count, COMMAND_OP)
    loop = 0
    for row in rows:
        loop += draw(st.sampled_from([0, 1, 5, 200]))
        row["loop"], row["kind"] = loop, draw(st.integers(0, 2))
        row["user"] = draw(st.integers(0, 2))
        row["motion"], row["queued"] = draw(st.integers(0, 5)), draw(st.booleans())
        row["x"] = draw(st.sampled_from([0.0, 5.5, 200.0, 1e9, np.inf, np.nan]))
        row["y"] = draw(st.sampled_from([0.0, 5.5, 200.0, -1e9]))
        row["target"] = draw(st.sampled_from([-1, *tags, 1 << 60]))
        row["group"], row["action"] = draw(st.integers(0, 10)), draw(st.integers(0, 9))
        row["mask_kind"] = draw(st.integers(0, 3))
        row["mask_start"], row["mask_count"] = draw(st.integers(0, 4)), draw(st.integers(0, 4))
        row["add_start"], row["add_count"] = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    return rows, tags, bits, indices


@given(operations(wild=True), orders())
@settings(max_examples=150, deadline=None)
def test_any_events_make_sound_segments(ops: Any, given_orders: Any) -> None:
    commands, tags, bits, indices = given_orders
    end = int(ops["loop"].max(initial=0)) + 2
    tracks = follow(ops, end, commands, tags, mask_bits=bits, mask_indices=indices)
    table = tracks.segment_table
    assert (table["begin"] < table["end"]).all()
    assert (table["moving"] >= 0).all()
    assert (np.diff(table["unit"]) >= 0).all()
    same = np.flatnonzero(table["unit"][1:] == table["unit"][:-1])
    assert (table["begin"][same + 1] == table["end"][same]).all()
    snapshots, selected = tracks.selections
    assert ((snapshots[:, 2] >= 0) & (snapshots[:, 2:].sum(1) <= len(selected))).all()


@given(operations(), orders(), st.integers(0, 3000))
@settings(max_examples=200, deadline=None)
def test_nothing_depends_on_what_comes_later(ops: Any, given_orders: Any, loop: int) -> None:
    commands, tags, bits, indices = given_orders
    end = int(ops["loop"].max(initial=0)) + 5000
    masks = {"mask_bits": bits, "mask_indices": indices}
    whole = follow(ops, end, commands, tags, **masks)
    # What happened at the loop is known; what was ordered at it shows from the next one on.
    part = follow(ops[ops["loop"] <= loop], end, commands[commands["loop"] < loop], tags, **masks)
    np.testing.assert_equal(covering(part, loop), covering(whole, loop))
    assert selected_at(part, loop) == selected_at(whole, loop)


def selected_at(tracks: Tracks, loop: int) -> dict[int, list[int]]:
    rows, ordinals = tracks.selections
    return {
        int(user): [int(tracks.unit_tags[i]) for i in ordinals[first : first + count]]
        for begin, user, first, count in rows
        if begin <= loop
    }


def test_a_unit_walks_to_where_it_is_sent_and_stays() -> None:
    ops = np.array([operation(0, BORN, 3, type=1, owner=1, x=10, y=20)])
    commands = np.array(
        [
            order(5, SELECT, add_count=1),
            order(10, COMMAND, motion=GOES, x=20, y=20),
        ]
    )
    tracks = follow(ops, 100, commands, [(3 << 18) + 1])
    tag = (3 << 18) + 1
    places = [covering(tracks, loop)[tag][2] for loop in (0, 10, 11, 12, 21, 31, 32, 99)]
    assert places == pytest.approx([10, 10, 10, 10.5, 15, 20, 20, 20])


@pytest.mark.parametrize(("owner", "kind", "moves"), [(1, 1, True), (2, 1, False), (1, 2, False)])
def test_only_own_units_that_can_move_obey(owner: int, kind: int, moves: bool) -> None:
    ops = np.array([operation(0, BORN, 3, type=kind, owner=owner, x=10, y=20)])
    commands = np.array([order(5, SELECT, add_count=1), order(10, COMMAND, motion=GOES, x=20)])
    tracks = follow(ops, 100, commands, [(3 << 18) + 1])
    assert (covering(tracks, 99)[(3 << 18) + 1][2] != 10) == moves


def test_queued_waypoints_stop_and_control_groups() -> None:
    tag = (3 << 18) + 1
    ops = np.array([operation(0, BORN, 3, type=1, owner=1, x=0, y=0)])
    commands = np.array(
        [
            order(0, SELECT, add_count=1),
            order(0, GROUP, group=4, action=0),
            order(1, SELECT, mask_kind=3, add_start=1),  # keep none
            order(2, COMMAND, motion=GOES, x=50),  # given to nobody
            order(3, GROUP, group=4, action=2),
            order(9, COMMAND, motion=GOES, x=10),
            order(9, COMMAND, motion=GOES, x=10, y=10, queued=1),
            order(70, COMMAND, motion=GOES, x=0, y=10),
            order(75, COMMAND, motion=STOPS),
        ]
    )
    tracks = follow(ops, 100, commands, [tag])
    at = {loop: covering(tracks, loop)[tag][2:4] for loop in (9, 20, 30, 40, 50, 71, 76, 99)}
    assert at[9] == (0, 0)
    assert at[20] == pytest.approx((5, 0))
    assert at[30] == pytest.approx((10, 0))
    assert at[40] == pytest.approx((10, 5))
    assert at[50] == pytest.approx((10, 10))
    assert at[76] == pytest.approx((7.5, 10))
    assert at[99] == at[76]
    assert [len(row) for row in (selected_at(tracks, 1)[0], selected_at(tracks, 2)[0])] == [1, 0]
    assert selected_at(tracks, 4)[0] == [tag]


def read_bits(bits: list[int], at: int, count: int) -> tuple[int, int]:
    """s2protocol's `read_bits`: of a byte the low bits come first, of a number the high ones."""
    value, left = 0, count
    while left:
        some = min(left, 8 - at % 8)
        left -= some
        value |= sum(bits[at + i] << i for i in range(some)) << left
        at += some
    return value, at


def write_mask(gone: list[bool], at: int) -> list[int]:
    """Bits of a stream, rubbish up to `at`, in which `mask_of` finds what is given."""
    size = at + len(gone)
    rng = np.random.default_rng(at)
    bits = rng.integers(0, 2, size + 8).tolist()
    for i, goes in enumerate(gone):
        # The one bit that decides: what the reader makes of every single bit being set.
        (place,) = (p for p in range(at, size) if mask_of(_only(p, size), at, len(gone))[i])
        bits[place] = int(goes)
    return bits


def _only(place: int, size: int) -> list[int]:
    return [int(i == place) for i in range(size + 8)]


def mask_of(bits: list[int], at: int, count: int) -> list[bool]:
    """By words of 32 bits, each a number whose bytes, high to low, hold eight units each."""
    gone: list[bool] = []
    for start in range(0, count, 32):
        size = min(32, count - start)
        word, at = read_bits(bits, at, size)
        for byte in range(0, size, 8):
            held = min(8, size - byte)
            value = word >> max(size - byte - 8, 0)
            gone += [bool(value >> i & 1) for i in range(held)]
    return gone


@pytest.mark.parametrize("at", [0, 2, 4, 5, 7])
@pytest.mark.parametrize("count", [1, 3, 7, 8, 9, 13, 16, 31, 32, 33, 37, 41, 63, 64, 70, 100])
def test_removal_masks_are_words_of_bytes(at: int, count: int) -> None:
    tags = [(i << 18) + 1 for i in range(1, 111)]
    gone = np.random.default_rng(count).random(count) < 0.4
    bits = write_mask(gone.tolist(), at)
    assert mask_of(bits, at, count) == gone.tolist()
    ops = np.array([operation(0, BORN, tag >> 18, type=0, owner=1) for tag in tags])
    commands = np.array(
        [
            order(0, SELECT, add_count=len(tags)),
            order(1, SELECT, mask_kind=1, mask_start=at, mask_count=count),
        ]
    )
    tracks = follow(ops, 9, commands, tags[::-1], mask_bits=bits)
    left = [tag for i, tag in enumerate(tags) if i >= count or not gone[i]]
    assert sorted(selected_at(tracks, 5)[0]) == left


def test_the_last_loop_shows_who_lives() -> None:
    ops = np.array([operation(0, BORN, 3, type=1, owner=1), operation(40, BORN, 4, type=1)])
    tracks = follow(ops, 40)
    assert [len(covering(tracks, loop)) for loop in (0, 39, 40, 41)] == [1, 1, 2, 0]


def test_a_walk_without_end_has_a_length_all_the_same() -> None:
    ops = np.array([operation(0, BORN, 3, type=3, owner=1)])
    commands = np.array([order(0, SELECT, add_count=1), order(1, COMMAND, motion=GOES, x=1 << 30)])
    tracks = follow(ops, 100, commands, [(3 << 18) + 1])
    assert (tracks.segment_table["moving"] >= 0).all()
    assert np.isfinite(covering(tracks, 100)[(3 << 18) + 1]).all()


def test_a_tag_used_again_is_another_unit() -> None:
    ops = np.array(
        [
            operation(0, BORN, 3, 1, type=1, owner=1),
            operation(10, DIED, 3, 1),
            operation(20, BORN, 3, 2, type=2, owner=2),
            operation(25, OWNER, 3, 1, owner=5),  # of the dead one: counted, not followed
        ]
    )
    tracks = follow(ops, 40)
    assert tracks.unit_tags.tolist() == [(3 << 18) + 1, (3 << 18) + 2]
    assert [len(covering(tracks, loop)) for loop in (0, 9, 10, 19, 20, 39)] == [1, 1, 0, 0, 1, 1]
    assert covering(tracks, 39)[(3 << 18) + 2][:2] == (2, 2)
    assert tracks.bad_references == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("loop", -1), ("loop", 1 << 30), ("type", 4), ("type", -1), ("owner", 17), ("owner", -1)],
)
def test_operations_out_of_range_are_refused(field: str, value: int) -> None:
    ops = np.array([operation(0, BORN, 3), operation(0, BORN, 4)])
    ops[field][1] = value
    with pytest.raises(ValueError, match="operation 1"):
        follow(ops, 10)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("user", 16), ("user", -1), ("group", 11), ("mask_kind", 4), ("mask_start", -1),
        ("mask_count", 2), ("add_start", 2), ("add_count", 1 << 30), ("loop", -1),
    ],
)  # fmt: skip
def test_orders_out_of_range_are_refused(field: str, value: int) -> None:
    commands = np.array([order(0, SELECT)])
    commands[field] = value
    with pytest.raises(ValueError, match="command 0"):
        follow(np.zeros(0, OP), 10, commands)


def _copies(tracks: Tracks) -> Iterator[Tracks]:
    yield pickle.loads(pickle.dumps(tracks))
    yield copy.deepcopy(tracks)


def test_copies_are_alike() -> None:
    ops = np.array([operation(0, BORN, 3, type=1, owner=1), operation(7, DIED, 3)])
    tracks = follow(ops, 40)
    for other in _copies(tracks):
        assert (other.segment_table == tracks.segment_table).all()
        assert other.nbytes == tracks.nbytes > 0
