"""Names of the game as numbers: unit types, abilities, pysc2's raw functions, upgrades.

The tables in `sc2gym/data` are read when first asked for; `tools/build_vocabulary.py` makes them.
What a table lacks becomes one unknown entry, to be counted by the caller, and never an error.

How sure they are:
    Functions of 4.0 and later: every link that the real replays at hand use is held against what
        the tracker stream shows next (`link_evidence.csv` has the counts) and against sc2reader.
    Functions before 4.0: less sure. There are tables for few builds, some links moved in between,
        and before 2.0.8 no tracker stream shows what a command did. Where a link is doubtful,
        the command is unknown rather than perhaps wrong.
    Unit facts: of one build (the `ResponseData` of the table builder), whatever build a replay
        is of; speeds, costs and times have changed by balance patches since 2010.
    Radii: recorded where `radius_seen` is 1 in `unit_types.csv`; else set by hand after units of
        like size, to draw with, not to measure with.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

NO_OP: Final = 0
"""The raw function of doing nothing."""
UNKNOWN: Final = 564
"""A command that is none of pysc2's raw functions: one id after the last of them."""
NUM_FUNCTIONS: Final = UNKNOWN + 1
"""Raw functions of pysc2 4.0.0, and the unknown one."""

_DATA = Path(__file__).parent / "data"

# m_cmdFlags of a command that switches an ability's autocast on or off (sc2reader's name).
_SET_AUTOCAST = 0x40
_AUTOCAST = 4

# Argument kinds in the order in which an ability's functions are tried for a target kind. The first
# is what pysc2 looks for; a build says "unit" for geysers only, so the rest still is the same act.
_PREFERRED = (
    ("cmd", "cmd_pt", "cmd_unit"),  # no target
    ("cmd_pt", "cmd_unit", "cmd"),  # a point
    ("cmd_unit", "cmd_pt", "cmd"),  # a unit
    ("cmd", "cmd_pt", "cmd_unit"),  # other data, such as a unit in a queue
    ("autocast", "cmd"),
)

_SMART = 1
_NUM_INDICES = 32

_Scalar = TypeVar("_Scalar", bound=np.generic)

# From 4.0 on the nearest table fits best; before it, the last one at or before the build, as
# sc2reader found: tables are rare there, and each expansion dealt the links anew.
_NEAREST_FROM = 59587
# Before 4.0, between a table's build and the next one's: the highest link that replays of such
# builds confirm, their last one too. Above it, a link that the next table gives another name may
# have moved already (by 3.3 links from 305 on had, by two or more).
_CONFIRMED = {24764: 301, 38215: 259}


class RawFunction(NamedTuple):
    """One of pysc2's raw functions.

    Attributes:
        id: Its number.
        name: As in `pysc2.lib.actions.RAW_FUNCTIONS`.
        kind: Its arguments: "no_op", "move_camera", "cmd", "cmd_pt", "cmd_unit" or "autocast".
        ability: The ability id it stands for; 0 where it is none.
        general: The general ability's id, 0 where the ability has none.
    """

    id: int
    name: str
    kind: str
    ability: int
    general: int


@dataclass(frozen=True, eq=False)
class UnitTypes:
    """Facts about unit types; place 0 of every array is the unknown type.

    Attributes:
        names: As in the tracker stream and the API's `UnitTypeData`; "" for the unknown.
        index: {name as the tracker stream has it: place}.
        ids: int32, the API's `unit_type` (that of `pysc2.lib.units`), 0 for the unknown.
        races: "Terran", "Protoss", "Zerg", or "" for what belongs to none.
        is_structure, is_worker, is_townhall, is_army, is_flying, is_mineral, is_geyser: bool.
            Army is what fights or costs food and is neither worker nor structure. Minerals and
            geysers are structures too; a refinery is no geyser. Workers, town halls, fliers and
            what is no army are set by hand: the API does not say.
        radius: float32, cells; of types that no recording at hand shows, set by hand.
        speed: float32, cells a game loop, without upgrades and creep, in one build.
        sight_range: float32, cells.
        build_loops: float32, game loops that it takes to make one.
        food: float32, supply that it needs.
        minerals, vespene: int32, what it costs, with what it is made from.
        abilities: int32, the ability that makes it, 0 where none does.
    """

    names: tuple[str, ...]
    index: Mapping[bytes, int]
    ids: npt.NDArray[np.int32]
    races: tuple[str, ...]
    is_structure: npt.NDArray[np.bool_]
    is_worker: npt.NDArray[np.bool_]
    is_townhall: npt.NDArray[np.bool_]
    is_army: npt.NDArray[np.bool_]
    is_flying: npt.NDArray[np.bool_]
    is_mineral: npt.NDArray[np.bool_]
    is_geyser: npt.NDArray[np.bool_]
    radius: npt.NDArray[np.float32]
    speed: npt.NDArray[np.float32]
    sight_range: npt.NDArray[np.float32]
    build_loops: npt.NDArray[np.float32]
    food: npt.NDArray[np.float32]
    minerals: npt.NDArray[np.int32]
    vespene: npt.NDArray[np.int32]
    abilities: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, eq=False)
class Upgrades:
    """Upgrades in the order of the vector that observations have.

    Attributes:
        names: As in the tracker stream and the API's `UpgradeData`.
        index: {name as the tracker stream has it: place}. Sprays and rewards, which the stream
            lists as upgrades too, are not in it.
        ids: int32, the API's `upgrade_id` (that of `pysc2.lib.upgrades`).
        abilities: int32, the ability that researches it, 0 where none does.
        research_loops: float32, game loops that it takes, in one build.
    """

    names: tuple[str, ...]
    index: Mapping[bytes, int]
    ids: npt.NDArray[np.int32]
    abilities: npt.NDArray[np.int32]
    research_loops: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, eq=False)
class Abilities:
    """What the commands of one build's replays mean.

    Attributes:
        table_build: The build whose link table is used.
        links: {link: its name in the API's `AbilityData`}.
    """

    table_build: int
    links: Mapping[int, str]
    _ids: npt.NDArray[np.int32]

    def ability(self, links: npt.ArrayLike, indices: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Ability ids of commands.

        Args:
            links: m_abilLink, integers (n,). Below 0 (no ability) is a right click.
            indices: m_abilCmdIndex, integers (n,).

        Returns:
            int32 (n,); 0 where a command is not known.
        """
        link, index = np.asarray(links, np.int64), np.asarray(indices, np.int64)
        known = (link >= 0) & (link < len(self._ids) // _NUM_INDICES)
        known &= (index >= 0) & (index < _NUM_INDICES)
        ids = self._ids[np.where(known, link * _NUM_INDICES + index, 0)]
        return np.where(link < 0, _SMART, np.where(known, ids, 0)).astype(np.int32)

    def raw_function(
        self,
        links: npt.ArrayLike,
        indices: npt.ArrayLike,
        targets: npt.ArrayLike,
        flags: npt.ArrayLike = 0,
    ) -> npt.NDArray[np.int32]:
        """pysc2's raw functions of commands.

        As pysc2's `Features.reverse_raw_action` does for an `AgentInterfaceFormat` that hides
        specific actions (its default), a command becomes the general function where there is
        one: a siege tank's and a marine's attack both are `Attack_unit`.

        Args:
            links: m_abilLink, integers (n,). Below 0 (no ability) is a right click: Smart.
            indices: m_abilCmdIndex, integers (n,).
            targets: The place of m_data's alternative: 0 none, 1 point, 2 unit, 3 other data.
                Anything else is none.
            flags: m_cmdFlags; tells switching autocast from casting.

        Returns:
            int32 (n,), `UNKNOWN` where a command is not known or no raw function stands for it.
        """
        target = np.asarray(targets, np.int64)
        target = np.where((target < 0) | (target > 3), 0, target)
        target = np.where(np.asarray(flags, np.int64) & _SET_AUTOCAST, _AUTOCAST, target)
        functions: npt.NDArray[np.int32] = functions_of_abilities()[
            target, self.ability(links, indices)
        ]
        return functions


def _lines(table: str) -> Iterator[str]:
    # The tables have no quotes and no commas in their cells, so splitting is all it takes.
    lines = iter((_DATA / f"{table}.csv").read_text("utf-8").splitlines())
    next(lines)
    return lines


def _rows(table: str) -> Iterator[list[str]]:
    return (line.split(",") for line in _lines(table))


@cache
def raw_functions() -> tuple[RawFunction, ...]:
    """pysc2's raw functions by id, and the unknown one after them."""
    rows = (
        RawFunction(int(id_), name, kind, int(ability), int(general))
        for id_, name, kind, ability, general in _rows("raw_functions")
    )
    return (*rows, RawFunction(UNKNOWN, "unknown", "no_op", 0, 0))


@cache
def unit_types() -> UnitTypes:
    """The unit types of the game."""
    # Columns: id, name, race, traits, then numbers; see the header of the table.
    rows = [line.split(",", 4) for line in _lines("unit_types")]
    names = ("", *(row[1] for row in rows))
    traits: list[set[str]] = [set(), *(set(row[3].split()) for row in rows)]
    numbers = np.fromstring(",".join(row[4] for row in rows), np.float64, sep=",")
    # Transposed, so that each column is contiguous; in front the unknown type, all zero.
    numbers = np.pad(numbers.reshape(len(rows), -1).T, ((0, 0), (1, 0)))
    radius, _, speed, sight, loops, food = numbers[:6].astype(np.float32, order="C")
    minerals, vespene, makers = numbers[6:].astype(np.int32, order="C")

    def having(trait: str) -> npt.NDArray[np.bool_]:
        return _frozen(np.array([trait in of_type for of_type in traits]))

    return UnitTypes(
        names,
        {name.encode(): place for place, name in enumerate(names) if place},
        _frozen(np.array([0, *(int(row[0]) for row in rows)], np.int32)),
        ("", *(row[2] for row in rows)),
        is_structure=having("structure"),
        is_worker=having("worker"),
        is_townhall=having("townhall"),
        is_army=having("army"),
        is_flying=having("flying"),
        is_mineral=having("mineral"),
        is_geyser=having("geyser"),
        radius=_frozen(radius),
        # The API gives cells a game second of 16 loops.
        speed=_frozen(speed / np.float32(16)),
        sight_range=_frozen(sight),
        build_loops=_frozen(loops),
        food=_frozen(food),
        minerals=_frozen(minerals),
        vespene=_frozen(vespene),
        abilities=_frozen(makers),
    )


@cache
def upgrades() -> Upgrades:
    """The upgrades of the game."""
    rows = list(_rows("upgrades"))
    names = tuple(row[1] for row in rows)
    return Upgrades(
        names=names,
        index={name.encode(): place for place, name in enumerate(names)},
        ids=_frozen(np.array([int(row[0]) for row in rows], np.int32)),
        abilities=_frozen(np.array([int(row[2]) for row in rows], np.int32)),
        research_loops=_frozen(np.array([float(row[3]) for row in rows], np.float32)),
    )


@cache
def ability_names() -> Mapping[int, str]:
    """{ability id: its name in the API}, such as 560: "Train Marine"."""
    return {id_: name for id_, _, _, _, name in _ability_rows()} | {_SMART: "Smart"}


@cache
def abilities(base_build: int) -> Abilities:
    """The abilities of a base build's replays.

    Links count the abilities of the game's data, so they move with every build that adds some.
    A build without a table gets the nearest build's, before 4.0 the last one's at or before it
    and without the links that may have moved since; `observed_links.csv` holds what replays
    themselves show of links for which that is not right.
    """
    builds, columns = _link_table()
    place = _table_for(base_build, builds)
    table_build, links = builds[place], _links_of(columns, place)
    if (highest := _CONFIRMED.get(table_build)) and base_build != table_build:
        following = _links_of(columns, place + 1)
        links = {k: v for k, v in links.items() if k <= highest or following.get(k) == v}
    observed = _observed_links()
    nearest = base_build
    if base_build >= _NEAREST_FROM:
        nearest = min((table_build, *observed), key=lambda build: abs(build - base_build))
    links.update(observed.get(nearest, {}))
    ids = _ability_ids()
    table = np.zeros((max(links) + 1) * _NUM_INDICES, np.int32)
    for link, name in links.items():
        for index, ability in ids.get(name, ()):
            table[link * _NUM_INDICES + index] = ability
    return Abilities(table_build, links, _frozen(table))


@cache
def motion() -> npt.NDArray[np.int8]:
    """How each raw function moves the units that it is given to, int8 (NUM_FUNCTIONS,).

    0 not at all, 1 all of them to the target, 2 they stop, 3 the nearest goes to the target,
    4 what they train goes there, 5 either 1 or 4, by whether they can move.
    """
    return _frozen(np.array([_motion(function) for function in raw_functions()], np.int8))


def _motion(function: RawFunction) -> int:
    name = function.name
    if name.startswith(("Stop", "HoldPosition")):
        return 2
    if function.kind not in ("cmd_pt", "cmd_unit"):
        return 0
    if name.startswith("Smart"):
        return 5
    if name.startswith("Rally"):
        return 4
    together = ("Attack", "Move", "Patrol", "Scan_Move", "Harvest", "Load", "Unload", "Land")
    if name.startswith((*together, "Effect_Repair", "Effect_Blink", "Effect_Charge")):
        return 1
    # Spells and buildings take one caster or builder; warping in takes none of the selected.
    return 0 if name.startswith("Train") else 3


def _frozen(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    array.setflags(write=False)
    return array


@cache
def _link_table() -> tuple[tuple[int, ...], list[list[str]]]:
    # Builds, and rows of a name and its links in each of them, parted by spaces.
    header = (_DATA / "links.csv").open(encoding="utf-8")
    with header:
        builds = tuple(map(int, header.readline().split(",")[1:]))
    return builds, list(_rows("links"))


def _links_of(rows: list[list[str]], place: int) -> dict[int, str]:
    return {int(link): row[0] for row in rows for link in row[place + 1].split()}


def _table_for(base_build: int, builds: tuple[int, ...]) -> int:
    if base_build >= _NEAREST_FROM:
        return min(range(len(builds)), key=lambda place: abs(builds[place] - base_build))
    return max(0, bisect_right(builds, base_build) - 1)


@cache
def _observed_links() -> Mapping[int, Mapping[int, str]]:
    # {build: {link: name}}
    tables: dict[int, dict[int, str]] = {}
    for build, link, name, *_ in _rows("observed_links"):
        tables.setdefault(int(build), {})[int(link)] = name
    return tables


@cache
def _ability_rows() -> tuple[tuple[int, str, int, int, str], ...]:
    # (ability id, name of its link, index, general ability's id, name)
    return tuple(
        (int(id_), link, int(index), int(general), name)
        for id_, link, index, general, name in _rows("abilities")
    )


@cache
def _ability_ids() -> Mapping[str, list[tuple[int, int]]]:
    ids: dict[str, list[tuple[int, int]]] = {}
    for ability, link, index, _, _ in _ability_rows():
        if index < _NUM_INDICES:
            ids.setdefault(link, []).append((index, ability))
    return ids


@cache
def functions_of_abilities() -> npt.NDArray[np.int32]:
    """int32 (kinds of target, abilities): raw functions, the general one where there is one."""
    # The API's own remaps cover abilities that pysc2 does not list.
    functions = [function for function in raw_functions() if function.ability]
    rows = _ability_rows()
    size = 1 + max(*(f.ability for f in functions), *(max(row[0], row[3]) for row in rows))
    stands_for = np.arange(size)
    for id_, _, _, general, _ in rows:
        stands_for[id_] = general or id_
    for function in functions:
        stands_for[function.ability] = function.general or stands_for[function.ability]
    by_kind: dict[str, npt.NDArray[np.int32]] = {}
    for function in reversed(functions):  # of two for one ability, the first counts
        of_kind = by_kind.setdefault(function.kind, np.full(size, UNKNOWN, np.int32))
        of_kind[function.ability] = function.id
    table = np.full((len(_PREFERRED), size), UNKNOWN, np.int32)
    for of_target, kinds in zip(table, _PREFERRED, strict=True):
        for candidate in (stands_for, np.arange(size)):
            for kind in kinds:
                found = by_kind[kind][candidate]
                np.copyto(of_target, found, where=of_target == UNKNOWN)
    return _frozen(table)


RAW_FUNCTIONS: Final = raw_functions()
"""The raw functions by id; `RAW_FUNCTIONS[0].name` is "no_op"."""
