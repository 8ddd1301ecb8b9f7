"""A made-up map: two mains in opposite corners, four bases a side, one way to walk between them.

Everything lies twice, turned by half a turn about the centre. Positions are cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["NAME", "SIZE", "Base", "Point", "bases", "distance", "obstacles", "route"]

NAME = "Sable Crossing"
SIZE = (144, 136)
Point = tuple[float, float]

# Where the halls of one side go, in the order a player takes them, and the direction (degrees)
# in which their resources lie.
_BASES = (((28.5, 28.5), 225), ((33.5, 57.5), 180), ((60.5, 30.5), 270), ((27.5, 86.5), 180))
# The ground between: one side's crossings, the centre, and which of them are connected.
_NODES = {
    "main": (28.5, 28.5),
    "ramp": (38.0, 42.0),
    "natural": (36.0, 57.0),
    "choke": (48.0, 60.0),
    "third": (60.0, 33.0),
    "fourth": (30.0, 85.0),
    "flank": (46.0, 88.0),
}
_EDGES = (
    ("main", "ramp"),
    ("ramp", "natural"),
    ("natural", "choke"),
    ("choke", "third"),
    ("choke", "flank"),
    ("flank", "fourth"),
    ("choke", "centre"),
    ("flank", "centre"),
)


@dataclass(frozen=True)
class Base:
    """A place for a hall.

    Attributes:
        x, y: Where the hall goes.
        minerals: Eight mineral fields, every other one a small one.
        geysers: Two.
    """

    x: float
    y: float
    minerals: tuple[Point, ...]
    geysers: tuple[Point, ...]


def distance(a: Point, b: Point) -> float:
    """Between two points; unlike `math.dist`, to the last bit the same in every Python."""
    x, y = a[0] - b[0], a[1] - b[1]
    return math.sqrt(x * x + y * y)


def _turned(point: Point) -> Point:
    return SIZE[0] - point[0], SIZE[1] - point[1]


def _base(centre: Point, direction: float) -> Base:
    def at(offset: float, distance: float) -> Point:
        angle = math.radians(direction + offset)
        return (
            round(centre[0] + distance * math.cos(angle)),
            round(centre[1] + distance * math.sin(angle)),
        )

    minerals = tuple(at(-54 + 15.5 * n, 7 + (n % 2) * 0.8) for n in range(8))
    return Base(*centre, minerals, (at(-82, 7.5), at(82, 7.5)))


def bases(side: int) -> tuple[Base, ...]:
    """One side's bases, in the order they are taken; side 0 or 1."""
    if side == 0:
        return tuple(_base(centre, direction) for centre, direction in _BASES)
    return tuple(_base(_turned(centre), direction + 180) for centre, direction in _BASES)


def obstacles() -> tuple[tuple[str, Point], ...]:
    """What else is on the map and nobody's."""
    half = (
        ("XelNagaTower", (56.0, 84.0)),
        ("DestructibleRockEx16x6", (44.0, 75.0)),
        ("UnbuildablePlatesDestructible", (41.0, 46.0)),
    )
    return half + tuple((name, _turned(point)) for name, point in half)


def _graph() -> tuple[dict[str, Point], dict[str, list[str]]]:
    nodes: dict[str, Point] = {"centre": (SIZE[0] / 2, SIZE[1] / 2)}
    links: dict[str, list[str]] = {"centre": []}
    for suffix, turn in (("", lambda point: point), ("'", _turned)):
        for name, point in _NODES.items():
            nodes[name + suffix] = turn(point)
            links[name + suffix] = []
        for one, two in _EDGES:
            a, b = (name if name == "centre" else name + suffix for name in (one, two))
            links[a].append(b)
            links[b].append(a)
    return nodes, links


_POINTS, _LINKS = _graph()


def _nearest(point: Point) -> str:
    return min(_POINTS, key=lambda name: (distance(_POINTS[name], point), name))


def route(start: Point, end: Point) -> list[Point]:
    """The way on foot, without the start: over as few crossings as lead there, then to the end."""
    first, last = _nearest(start), _nearest(end)
    ways = [[first]]
    seen = {first}
    while ways:
        way = ways.pop(0)
        if way[-1] == last:
            return [_POINTS[name] for name in way[1:-1]] + [end]
        for name in _LINKS[way[-1]]:
            if name not in seen:
                seen.add(name)
                ways.append([*way, name])
    raise AssertionError("the map is in one piece")
