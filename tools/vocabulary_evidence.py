"""What replays show of what commands mean: python tools/vocabulary_evidence.py FOLDER

A command is followed where its product comes to be for that player, in plausible time, and of or
beside what was selected or where the command pointed. Commands may be refused or cancelled and
players repeat them, so not all are followed; those of a wrongly named link hardly ever are.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import log
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sc2gym import tracks, vocabulary
from sc2gym.errors import SC2GymError
from sc2gym.replay import Replay

# Game loops from a command until a builder begins: it walks, or has other things to do first.
WALK = 2500
# Of the build time in the table: chrono boost and patches make it shorter, queues of five longer.
SHORTEST, LONGEST = 0.55, 6.0
# What morphs does so at once, or waits for a queue or for a place to land.
MORPH = 500
# Cells between a product and the place of the command or of the producer.
NEAR = 5.0
# A command given through the API goes to the units that it names, which the file leaves out;
# what was selected then has nothing to do with it. In the real replays at hand every command of
# the nine made through pysc2 has this flag, and no other.
BY_API = 0x2000000
# Before 2.1 the tracker stream has places in units of four cells.
COARSE_BEFORE = 27950

# The API names one ability for each type; these make it, too.
ALSO_MAKE = {
    "Build StasisTrap": "OracleStasisTrap",
    "Effect AdeptPhaseShift": "AdeptPhaseShift",
    "Effect AutoTurret": "AutoTurret",
    "Effect CalldownMULE": "MULE",
    "Effect KD8Charge": "KD8Charge",
    "Effect SpawnChangeling": "Changeling",
    "Morph Archon": "Archon",
    "Morph Hellbat": "HellionTank",
    "Morph Hellion": "Hellion",
    "Morph LiberatorAAMode": "Liberator",
    "Morph LiberatorAGMode": "LiberatorAG",
    "Morph ObserverMode": "Observer",
    "Morph SpineCrawlerRoot": "SpineCrawler",
    "Morph SporeCrawlerRoot": "SporeCrawler",
    "Morph SupplyDepot Raise": "SupplyDepot",
    "Morph Unsiege": "SiegeTank",
    "Morph VikingFighterMode": "VikingFighter",
    "Morph WarpPrismTransportMode": "WarpPrism",
}

# What something is while it becomes something else.
ON_THE_WAY = {
    "Larva", "Egg", "BanelingCocoon", "RavagerCocoon", "OverlordCocoon", "BroodLordCocoon",
    "TransportOverlordCocoon", "LurkerMPEgg",
}  # fmt: skip

_BORN, _INIT, _TYPE, _UPGRADE = range(4)
ARRIVAL = np.dtype(
    [
        ("loop", "i8"), ("player", "i8"), ("kind", "i8"), ("product", "i8"), ("loops", "f8"),
        ("x", "f8"), ("y", "f8"), ("tag", "i8"), ("creator", "i8"), ("ability", "O"),
    ]
)  # fmt: skip

Key = tuple[int, int, int]
"""(base build, link, index)."""


@dataclass
class Evidence:
    """What one or more replays show.

    Attributes:
        commands: Commands given, by (base build, link, index), repeats included.
        followed: Those whose product came, where the ability that they are mapped to has one.
        seen: (key, product) -> commands that could have made it, by time and place alone.
        creators: (key, link name) -> births of a followed command for which the tracker stream
            itself names the ability (since 4.1 or so).
        ability: Key -> ability id in the vocabulary, 0 for none.
    """

    commands: Counter[Key] = field(default_factory=Counter)
    followed: Counter[Key] = field(default_factory=Counter)
    seen: Counter[tuple[Key, str]] = field(default_factory=Counter)
    creators: Counter[tuple[Key, str]] = field(default_factory=Counter)
    ability: dict[Key, int] = field(default_factory=dict)

    def add(self, other: Evidence) -> None:
        """Adds another replay's."""
        for mine, others in zip(vars(self).values(), vars(other).values(), strict=True):
            mine.update(others)

    @property
    def of_products(self) -> list[Key]:
        """The keys of abilities that make something."""
        return [key for key, ability in self.ability.items() if products().get(ability)]

    @property
    def not_followed(self) -> list[Key]:
        """Of them, those that are never followed."""
        return [key for key in self.of_products if not self.followed[key]]

    @property
    def agreement(self) -> float:
        """The share of commands that make something which are followed."""
        total = sum(self.commands[key] for key in self.of_products)
        return sum(self.followed.values()) / max(1, total)

    def learned(self) -> dict[Key, list[str]]:
        """What each key may make, from times and places alone, whatever it is mapped to.

        Products that follow more often than they follow all commands of the build, those first
        that do so most by the G statistic.
        """
        total: Counter[tuple[int, str]] = Counter()
        commands: Counter[int] = Counter()
        for (key, product), count in self.seen.items():
            total[key[0], product] += count
        for key, count in self.commands.items():
            commands[key[0]] += count
        scores: dict[Key, list[tuple[float, str]]] = {}
        for (key, product), count in self.seen.items():
            share = count / self.commands[key]
            usual = total[key[0], product] / commands[key[0]]
            if share > usual:
                score = share * log(share / usual)
                score += (1 - share) * log((1 - share) / (1 - usual)) if share < 1 else 0
                scores.setdefault(key, []).append((-score, product))
        return {key: [product for _, product in sorted(found)] for key, found in scores.items()}


@cache
def products() -> Mapping[int, frozenset[str]]:
    """{ability id: what it makes}."""
    made: dict[int, set[str]] = {}
    types, upgrades = vocabulary.unit_types(), vocabulary.upgrades()
    for names, makers in ((types.names, types.abilities), (upgrades.names, upgrades.abilities)):
        for name, maker in zip(names, makers.tolist(), strict=True):
            if maker > 1:
                made.setdefault(maker, set()).add(name)
    for ability, name in vocabulary.ability_names().items():
        again = re.fullmatch(r"(?:Land|TrainWarp|Hallucination|BurrowUp) (\w+)", name)
        if product := again[1] if again else ALSO_MAKE.get(name):
            made.setdefault(ability, {product})
    return {ability: frozenset(names) for ability, names in made.items()}


@cache
def _codes() -> tuple[dict[str, int], npt.NDArray[np.float32]]:
    # Every product's number, and game loops that it takes to make.
    types, upgrades = vocabulary.unit_types(), vocabulary.upgrades()
    names = [*types.names, *upgrades.names]
    loops = np.concatenate([types.build_loops, upgrades.research_loops])
    return {name: code for code, name in reversed(list(enumerate(names)))}, loops


def arrivals(replay: Replay) -> npt.NDArray[np.void]:
    """What came to be after the start, `ARRIVAL` (n,), by loop."""
    tag = ["m_unitTagIndex", "m_unitTagRecycle"]
    creator = ["m_creatorUnitTagIndex", "m_creatorUnitTagRecycle", "m_creatorAbilityName"]
    place = ["m_unitTypeName", "m_controlPlayerId", "m_x", "m_y"]
    present = replay.event_fields("tracker", "UnitBorn")
    events = replay.events(
        "tracker",
        {
            "UnitBorn": [*tag, *place, *(name for name in creator if name in present)],
            "UnitInit": [*tag, *place],
            "UnitTypeChange": [*tag, "m_unitTypeName"],
            "Upgrade": ["m_playerId", "m_upgradeTypeName"],
        },
    )
    codes, loops = _codes()
    scale = _scale(replay)
    owner: dict[int, int] = {}
    found = []
    names = (("UnitBorn", _BORN), ("UnitInit", _INIT), ("UnitTypeChange", _TYPE))
    for event, kind in (*names, ("Upgrade", _UPGRADE)):
        for row in events[event]:
            fields = dict(zip(row.dtype.names, row.tolist(), strict=True))
            named = "m_upgradeTypeName" if kind == _UPGRADE else "m_unitTypeName"
            name = replay.blob("tracker", row[named]) or b""
            code = codes.get(name.decode("utf-8", "replace"))
            unit = (fields.get("m_unitTagIndex", -1) << 18) + fields.get("m_unitTagRecycle", 0)
            player = fields.get("m_controlPlayerId", fields.get("m_playerId"))
            player = owner.setdefault(unit, 0) if player is None else player
            owner[unit] = player
            if code is None or not fields["_gameloop"]:
                continue
            by = fields.get(creator[0], -1)
            # Nulls are far below zero.
            maker = (by << 18) + fields[creator[1]] if by >= 0 else -1
            ability = b""
            if creator[2] in fields and maker >= 0:
                ability = replay.blob("tracker", row[creator[2]]) or b""
            at = (fields.get("m_x", np.nan) * scale, fields.get("m_y", np.nan) * scale)
            found.append(
                (fields["_gameloop"], player, kind, code, loops[code], *at, unit, maker,
                 ability.decode("utf-8", "replace"))
            )  # fmt: skip
    return np.sort(np.array(found, ARRIVAL), order="loop", kind="stable")


def evidence(replay: Replay, mapping: Mapping[int, int] | None = None) -> Evidence:
    """Holds a replay's commands against what came to be after them.

    Args:
        replay: With a tracker stream.
        mapping: {ability id: another} to hold a wrong vocabulary against it instead.
    """
    game = tracks.follow(replay)
    commands, came = game.commands, arrivals(replay)
    table = vocabulary.abilities(replay.base_build)
    abilities = table.ability(commands.ability_link, commands.ability_index)
    abilities = np.array([(mapping or {}).get(a, a) for a in abilities.tolist()], np.int64)
    players = {player.user_id: player.player_id for player in replay.players}
    codes, _ = _codes()
    names = {code: name for name, code in codes.items()}
    own = {player: came[came["player"] == player] for player in players.values()}
    selected = _Selections(game)
    near = NEAR + _scale(replay) - 1
    result = Evidence()
    for row in np.flatnonzero(commands.ability_link >= 0):
        player = players.get(int(commands.user[row]))
        if player is None:
            continue
        link, index = int(commands.ability_link[row]), int(commands.ability_index[row])
        key, ability = (replay.base_build, link, index), int(abilities[row])
        result.commands[key] += 1
        result.ability[key] = ability
        loop = int(commands.game_loop[row])
        chosen = selected.at(int(commands.user[row]), loop)
        if commands.flags[row] & BY_API:
            chosen = replace(chosen, by_link=table.links.get(link, ""))
        target = float(commands.x[row]), float(commands.y[row])
        fit = _fitting(own[player], loop, chosen, target, near)
        made = {names[code] for code in fit["product"].tolist()} - ON_THE_WAY
        result.seen.update((key, name) for name in made)
        wanted = products().get(ability, frozenset())
        if made & wanted:
            result.followed[key] += 1
            born = {
                one["ability"] for one in fit if one["ability"] and names[one["product"]] in wanted
            }
            result.creators.update((key, name) for name in born)
    return result


def _scale(replay: Replay) -> int:
    return 4 if replay.base_build < COARSE_BEFORE else 1


def _fitting(
    came: npt.NDArray[np.void], loop: int, chosen: _Chosen, target: tuple[float, float], near: float
) -> npt.NDArray[np.void]:
    # What may come of a command, by time and place.
    first, last = np.searchsorted(came["loop"], [loop, loop + 30000])
    came = came[first:last]
    after, kind, needs = came["loop"] - loop, came["kind"], came["loops"]
    made = (kind == _BORN) | (kind == _UPGRADE)
    in_time = np.where(
        made,
        (after >= SHORTEST * needs) & (after <= LONGEST * needs + MORPH),
        after <= np.where(kind == _INIT, WALK, 1.5 * needs + MORPH),
    )
    came = came[in_time]
    kind = came["kind"]
    places = np.concatenate([chosen.places, [target]])
    apart = np.hypot(
        came["x"][:, None] - places[None, :, 0], came["y"][:, None] - places[None, :, 1]
    )
    own = np.isin(came["tag"], chosen.tags) | np.isin(came["creator"], chosen.tags)
    # Where the file names who made it, that counts; else it stands beside.
    beside = (apart <= near).any(1) & ((came["creator"] < 0) | (kind != _BORN))
    fit = np.where(kind == _TYPE, own, own | beside)
    fit |= (kind == _UPGRADE) & chosen.structure
    if chosen.by_link is not None:
        fit |= (kind == _UPGRADE) | (kind == _TYPE)
        fit |= (kind == _BORN) & (came["ability"] == chosen.by_link)
    return came[fit]


@dataclass(frozen=True)
class _Chosen:
    # Whom a command may have been given to: their tags, places (n, 2), and whether a structure
    # is among them. With `by_link` the file does not say; then who did it with the ability of
    # that name.
    tags: npt.NDArray[np.int64]
    places: npt.NDArray[np.float64]
    structure: bool
    by_link: str | None = None


class _Selections:
    """Who was selected."""

    def __init__(self, game: tracks.Game) -> None:
        self._tags = game.tracks.unit_tags
        rows, self._units = game.tracks.selections
        self._rows = {user: rows[rows[:, 1] == user] for user in set(rows[:, 1].tolist())}
        segments = game.tracks.segment_table
        self._segments = segments
        self._first = np.searchsorted(segments["unit"], np.arange(len(self._tags) + 1))

    def at(self, user: int, loop: int) -> _Chosen:
        """Whom a command of that loop may have been given to.

        Selecting and ordering may share a loop, so what was selected before it counts, too.
        """
        rows = self._rows.get(user, np.zeros((0, 4), np.int32))
        begin = max(0, int(np.searchsorted(rows[:, 0], loop)) - 1)
        end = int(np.searchsorted(rows[:, 0], loop, "right"))
        units = {int(u) for _, _, f, n in rows[begin:end] for u in self._units[f : f + n]}
        places = []
        structure = False
        for unit in units:
            segments = self._segments[self._first[unit] : self._first[unit + 1]]
            at = int(np.searchsorted(segments["begin"], loop, "right")) - 1
            if at >= 0:
                here = segments[at]
                since = min(loop - int(here["begin"]), int(here["moving"]))
                # Places are in 64ths of a cell, velocities in 8192ths a loop.
                places.append(
                    [int(here[axis]) / 64 + int(here[f"v{axis}"]) / 8192 * since for axis in "xy"]
                )
                structure |= bool(vocabulary.unit_types().is_structure[here["type"]])
        tags = np.array([self._tags[unit] for unit in units], np.int64)
        return _Chosen(tags, np.array(places, np.float64).reshape(-1, 2), structure)


def of_folder(root: Path) -> dict[str, Evidence]:
    """File name -> what it shows, of every replay below a folder that can be followed."""
    found = {}
    for path in sorted(root.rglob("*.SC2Replay")) if root.is_dir() else [root]:
        try:
            found[path.name] = evidence(Replay.open(path))
        except SC2GymError:
            continue
    return found


def main() -> None:
    """Prints what a file, or every replay below a folder, shows."""
    whole, names = Evidence(), vocabulary.ability_names()
    for name, shown in of_folder(Path(sys.argv[1])).items():
        whole.add(shown)
        print(f"{name}: {shown.agreement:.1%} of what makes something is followed")
    learned = whole.learned()
    for key in sorted(whole.of_products):
        ability = whole.ability[key]
        count, followed = whole.commands[key], whole.followed[key]
        place = [product in products()[ability] for product in learned.get(key, ())]
        mark = "" if any(place[:3]) else f", rather {' '.join(learned.get(key, [])[:3])}"
        print(f"{key} {names[ability]}: {followed} of {count}{mark}")


if __name__ == "__main__":
    main()
