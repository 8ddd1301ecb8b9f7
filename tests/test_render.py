"""Pictures: what is where, in which colour."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sc2gym import render

pytest.importorskip("PIL", reason="needs the extra `video`")

BLUE, RED = (70, 150, 255), (235, 64, 52)


def scene(*marks: tuple[float, ...], **other) -> render.Scene:
    """Marks are (x, y, kind, owner, radius, finished) on a map of 100 by 100."""
    table = np.array(marks, np.float64).reshape(-1, 6)
    values = {
        "map_name": "Some Map",
        "map_size": (100, 100),
        "seconds": 611.9,
        "progress": 0.5,
        "sides": (
            render.Side("Anna", "Terran", BLUE, 465, 120, (134, 150)),
            render.Side("Bob", "Zerg", RED),
        ),
        "caption": "Train_Marine_quick",
        "x": table[:, 0],
        "y": table[:, 1],
        "kinds": table[:, 2].astype(int),
        "owners": table[:, 3].astype(int),
        "radii": table[:, 4],
        "finished": table[:, 5].astype(bool),
    }
    return render.Scene(**{**values, **other})


def at(picture: np.ndarray, x: float, y: float) -> tuple[int, ...]:
    """The colour at cells (x, y) of a map of 100 by 100 in a picture of the usual size."""
    text = round(512 / 36)
    top, bottom = round(text * 4.0), 608 - round(text * 2.4)
    scale = min(512, bottom - top) / 100
    left, base = (512 - 100 * scale) / 2, (top + bottom) / 2 + 50 * scale
    return tuple(int(c) for c in picture[round(base - y * scale), round(left + x * scale)])


def hue(color: tuple[int, ...]) -> str:
    if max(color) - min(color) < 24:
        return "grey"
    return ("red", "green", "blue")[int(np.argmax(color))]


def test_a_picture_has_the_size_asked_for():
    for size in (render.SIZE, (160, 128), (333, 517), (1080, 1920)):
        picture = render.draw(scene(), size)
        assert picture.shape == (*size, 3)
        assert picture.dtype == np.uint8
    with pytest.raises(ValueError, match="160x128"):
        render.draw(scene(), (100, 100))


def test_units_have_their_players_colour_where_they_are():
    picture = render.draw(
        scene(
            (20, 80, render.STRUCTURE, render.OWN, 2.5, True),
            (30, 30, render.UNIT, render.OWN, 0.8, True),
            (80, 20, render.STRUCTURE, render.ENEMY, 2.5, True),
            (70, 70, render.WORKER, render.ENEMY, 0.5, True),
            (50, 90, render.MINERALS, render.NOBODY, 1.0, True),
            (50, 10, render.GEYSER, render.NOBODY, 1.5, True),
            (10, 10, render.NEUTRAL, render.NOBODY, 2.0, True),
        )
    )
    assert hue(at(picture, 20, 80)) == "blue"
    assert hue(at(picture, 30, 30)) == "blue"
    assert hue(at(picture, 80, 20)) == "red"
    assert hue(at(picture, 70, 70)) == "red"
    assert hue(at(picture, 50, 90)) == "blue"  # minerals
    assert hue(at(picture, 50, 10)) == "green"
    assert hue(at(picture, 10, 10)) == "grey"
    assert at(picture, 60, 50) == render.GROUND


def test_a_structure_is_square_larger_than_a_unit_and_hollow_while_it_is_built():
    def area(kind: int, finished: bool) -> int:
        mark = (50.5, 50.5, kind, render.OWN, 2.0, finished)
        same = render.draw(scene(mark)) == render.draw(scene())
        return int((~same.all(-1)).sum())

    def solid(kind: int, finished: bool) -> tuple[int, ...]:
        return at(render.draw(scene((50.5, 50.5, kind, render.OWN, 2.0, finished))), 50.5, 50.5)

    assert area(render.STRUCTURE, True) == pytest.approx(20.0**2, rel=0.2)  # 4 cells at 5 pixels
    bright = sum(solid(render.STRUCTURE, True))
    assert sum(solid(render.STRUCTURE, False)) < bright / 2


def test_the_camera_is_a_bright_frame():
    picture = render.draw(scene(camera=(40, 40, 60, 55)))
    for x, y in ((40, 47), (60, 47), (50, 40), (50, 55)):
        around = [at(picture, x + dx / 5, y + dy / 5) for dx in (-1, 0, 1) for dy in (-1, 0, 1)]
        assert max(map(min, around)) > 150
    assert at(picture, 50, 49) == render.GROUND


def test_the_ground_is_drawn_where_it_is_known():
    ground = np.zeros((10, 10), np.uint8)
    ground[:5] = 255  # the upper half
    picture = render.draw(scene(ground=ground))
    assert sum(at(picture, 50, 75)) > 2 * sum(at(picture, 50, 25))


def test_what_is_said_is_in_the_picture():
    plain = render.draw(scene())
    header, footer = slice(0, 56), slice(608 - 34, 608)
    for change, where in (
        ({"seconds": 612.1}, header),
        ({"caption": "Attack_pt"}, footer),
        ({"map_name": "Another"}, footer),
        ({"progress": 0.9}, footer),
        ({"sides": (render.Side("Anna", "Terran", BLUE, 466, 120, (134, 150)),)}, header),
    ):
        other = render.draw(scene(**change))
        rows = np.flatnonzero((other != plain).any((1, 2)))
        assert len(rows), change
        assert where.start <= rows[0] and rows[-1] < where.stop, change


def test_long_and_foreign_names_stay_in_their_place():
    sides = (
        render.Side("W" * 200, "Terran", BLUE, 10**6, 10**6, (200, 200)),
        render.Side("\x1b[31m한국어 \ud800" + "M" * 90, "Zerg", RED),
    )
    picture = render.draw(scene(sides=sides, map_name="m" * 300, caption="c" * 300))
    plain = render.draw(scene())
    clock = (slice(4, 30), slice(230, 282))
    np.testing.assert_array_equal(picture[clock], plain[clock])


def test_the_same_scene_is_the_same_picture():
    marks = [(x, x, render.UNIT, x % 2, 0.5, True) for x in range(1, 99)]
    np.testing.assert_array_equal(render.draw(scene(*marks)), render.draw(scene(*marks)))


cells = st.floats(-1e6, 1e6) | st.floats(0, 100)
marks = st.tuples(
    cells,
    cells,
    st.integers(0, 5),
    st.integers(0, 2),
    st.floats(0, 1e4),
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
    picture = render.draw(
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
    assert picture.shape == (160, 128, 3)


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
    own, enemy = render.distinct_colors(*colors)
    assert sum(abs(a - b) for a, b in zip(own, enemy, strict=True)) >= 120
    for color in (own, enemy):
        assert sum(color) > sum(render.GROUND) + 150


def test_pillow_is_asked_for_by_its_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"sc2gym\[video\]"):
        render.draw(scene())


def test_scenes_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        scene().seconds = 1.0
