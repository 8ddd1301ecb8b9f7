"""Pictures: what is where, in which colour."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sc2gym import picture

pytest.importorskip("PIL", reason="needs the extra `video`")

BLUE, RED = (70, 150, 255), (235, 64, 52)


def scene(*marks: tuple[float, ...], **other) -> picture.Scene:
    """Marks are (x, y, kind, owner, radius, finished) on a map of 100 by 100."""
    table = np.array(marks, np.float64).reshape(-1, 6)
    values = {
        "map_name": "Some Map",
        "map_size": (100, 100),
        "seconds": 611.9,
        "progress": 0.5,
        "sides": (
            picture.Side("Anna", "Terran", BLUE, 465, 120, (134, 150)),
            picture.Side("Bob", "Zerg", RED),
        ),
        "caption": "Train_Marine_quick",
        "x": table[:, 0],
        "y": table[:, 1],
        "kinds": table[:, 2].astype(int),
        "owners": table[:, 3].astype(int),
        "radii": table[:, 4],
        "finished": table[:, 5].astype(bool),
    }
    return picture.Scene(**{**values, **other})


def at(drawn: np.ndarray, x: float, y: float) -> tuple[int, ...]:
    """The colour at cells (x, y) of a map of 100 by 100 in a picture of the usual size."""
    text = round(512 / 36)
    top, bottom = round(text * 4.0), 608 - round(text * 2.4)
    scale = min(512, bottom - top) / 100
    left, base = (512 - 100 * scale) / 2, (top + bottom) / 2 + 50 * scale
    return tuple(int(c) for c in drawn[round(base - y * scale), round(left + x * scale)])


def hue(color: tuple[int, ...]) -> str:
    if max(color) - min(color) < 24:
        return "grey"
    return ("red", "green", "blue")[int(np.argmax(color))]


def test_a_picture_has_the_size_asked_for():
    for size in (picture.SIZE, (160, 128), (333, 517), (1080, 1920)):
        drawn = picture.draw(scene(), size)
        assert drawn.shape == (*size, 3)
        assert drawn.dtype == np.uint8
    with pytest.raises(ValueError, match="160x128"):
        picture.draw(scene(), (100, 100))


def test_units_have_their_players_colour_where_they_are():
    drawn = picture.draw(
        scene(
            (20, 80, picture.STRUCTURE, picture.OWN, 2.5, True),
            (30, 30, picture.UNIT, picture.OWN, 0.8, True),
            (80, 20, picture.STRUCTURE, picture.ENEMY, 2.5, True),
            (70, 70, picture.SMALL, picture.ENEMY, 0.5, True),
            (50, 90, picture.MINERALS, picture.NOBODY, 1.0, True),
            (50, 10, picture.GEYSER, picture.NOBODY, 1.5, True),
            (10, 10, picture.NEUTRAL, picture.NOBODY, 2.0, True),
        )
    )
    assert hue(at(drawn, 20, 80)) == "blue"
    assert hue(at(drawn, 30, 30)) == "blue"
    assert hue(at(drawn, 80, 20)) == "red"
    assert hue(at(drawn, 70, 70)) == "red"
    assert hue(at(drawn, 50, 90)) == "blue"  # minerals
    assert hue(at(drawn, 50, 10)) == "green"
    assert hue(at(drawn, 10, 10)) == "grey"
    assert at(drawn, 60, 50) == picture.GROUND


def test_a_structure_is_square_larger_than_a_unit_and_hollow_while_it_is_built():
    def area(kind: int, finished: bool) -> int:
        mark = (50.5, 50.5, kind, picture.OWN, 2.0, finished)
        same = picture.draw(scene(mark)) == picture.draw(scene())
        return int((~same.all(-1)).sum())

    def solid(kind: int, finished: bool) -> tuple[int, ...]:
        return at(picture.draw(scene((50.5, 50.5, kind, picture.OWN, 2.0, finished))), 50.5, 50.5)

    assert area(picture.STRUCTURE, True) == pytest.approx(20.0**2, rel=0.2)  # 4 cells at 5 pixels
    bright = sum(solid(picture.STRUCTURE, True))
    assert sum(solid(picture.STRUCTURE, False)) < bright / 2


def test_the_camera_is_a_bright_frame():
    drawn = picture.draw(scene(camera=(40, 40, 60, 55)))
    for x, y in ((40, 47), (60, 47), (50, 40), (50, 55)):
        around = [at(drawn, x + dx / 5, y + dy / 5) for dx in (-1, 0, 1) for dy in (-1, 0, 1)]
        assert max(map(min, around)) > 150
    assert at(drawn, 50, 49) == picture.GROUND


def test_the_ground_is_drawn_where_it_is_known():
    ground = np.zeros((10, 10), np.uint8)
    ground[:5] = 255  # the upper half
    drawn = picture.draw(scene(ground=ground))
    assert sum(at(drawn, 50, 75)) > 2 * sum(at(drawn, 50, 25))


def test_what_is_said_is_in_the_picture():
    plain = picture.draw(scene())
    header, footer = slice(0, 56), slice(608 - 34, 608)
    for change, where in (
        ({"seconds": 612.1}, header),
        ({"caption": "Attack_pt"}, footer),
        ({"map_name": "Another"}, footer),
        ({"progress": 0.9}, footer),
        ({"sides": (picture.Side("Anna", "Terran", BLUE, 466, 120, (134, 150)),)}, header),
    ):
        other = picture.draw(scene(**change))
        rows = np.flatnonzero((other != plain).any((1, 2)))
        assert len(rows), change
        assert where.start <= rows[0] and rows[-1] < where.stop, change


def test_long_and_foreign_names_stay_in_their_place():
    sides = (
        picture.Side("W" * 200, "Terran", BLUE, 10**6, 10**6, (200, 200)),
        picture.Side("\x1b[31m한국어 \ud800" + "M" * 90, "Zerg", RED),
    )
    drawn = picture.draw(scene(sides=sides, map_name="m" * 300, caption="c" * 300))
    plain = picture.draw(scene())
    clock = (slice(4, 30), slice(230, 282))
    np.testing.assert_array_equal(drawn[clock], plain[clock])


def test_the_same_scene_is_the_same_picture():
    marks = [(x, x, picture.UNIT, x % 2, 0.5, True) for x in range(1, 99)]
    np.testing.assert_array_equal(picture.draw(scene(*marks)), picture.draw(scene(*marks)))


cells = st.floats(-1e6, 1e6) | st.floats(0, 100)
sizes = st.floats(0, 1e4) | st.just(float("nan"))
marks = st.tuples(
    cells,
    cells,
    st.integers(0, 5),
    st.integers(0, 2),
    sizes,
    st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(marks, max_size=20),
    st.tuples(st.integers(0, 5000), st.integers(0, 5000)),
    st.floats(-10, 1e9),
    st.floats(-1, 2),
    st.text(max_size=30),
    st.tuples(cells, cells, cells, cells) | st.none(),
)
def test_any_scene_can_be_drawn(table, map_size, seconds, progress, text, camera):
    drawn = picture.draw(
        scene(
            *table,
            map_size=map_size,
            seconds=seconds,
            progress=progress,
            caption=text,
            camera=camera,
        ),
        (160, 128),
    )
    assert drawn.shape == (160, 128, 3)


@pytest.mark.parametrize(
    "colors",
    [
        (None, (255, 0, 0)),
        ((0, 0, 0), (0, 0, 0)),
        ((180, 20, 30), (0, 66, 255)),
        ((250, 10, 10), (240, 20, 10)),
        ((0, 0, 0), (255, 255, 255)),
    ],
)
def test_two_players_can_be_told_apart(colors):
    own, enemy = picture.distinct_colors(*colors)
    assert sum(abs(a - b) for a, b in zip(own, enemy, strict=True)) >= 120
    for color in (own, enemy):
        assert sum(color) > sum(picture.GROUND) + 150


def test_pillow_is_asked_for_by_its_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"sc2gym\[video\]"):
        picture.draw(scene())


def test_scenes_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        scene().seconds = 1.0
