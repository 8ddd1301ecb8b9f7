"""Says how well the vocabulary fits replays: python tools/report_vocabulary.py FOLDER

Per file: the share of commands that map to a raw function, the links that do not, and commands
whose product (a unit born or morphed, an upgrade) that player never gets afterwards.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sc2gym import vocabulary
from sc2gym.errors import SC2GymError
from sc2gym.replay import Replay


@dataclass
class Fit:
    """How one replay's commands fit.

    Attributes:
        commands: How many there are.
        unmapped: (link, index, link name) -> commands that map to no raw function.
        confirmed: Commands whose product the tracker stream shows later for that player.
        missing: Ability name -> commands whose product it does not show.
    """

    commands: int = 0
    unmapped: Counter[tuple[int, int, str]] = field(default_factory=Counter)
    confirmed: int = 0
    missing: Counter[str] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        """The share of commands that map."""
        return 1 - sum(self.unmapped.values()) / max(1, self.commands)


def measure(replay: Replay) -> Fit:
    """Holds a replay's commands against what its tracker stream shows after them."""
    columns = ["m_abil?", "m_abil.m_abilLink", "m_abil.m_abilCmdIndex", "m_data?", "m_cmdFlags"]
    rows = replay.events("game", {"Cmd": columns})["Cmd"]
    table = vocabulary.abilities(replay.base_build)
    link, index = np.where(rows["m_abil?"], rows["m_abil.m_abilLink"], -1), rows[columns[2]]
    functions = table.raw_function(link, index, rows["m_data?"], rows["m_cmdFlags"])
    fit = Fit(len(rows))
    for row in np.flatnonzero(functions == vocabulary.UNKNOWN):
        place = int(link[row])
        fit.unmapped[place, int(index[row]), table.links.get(place, "")] += 1
    if replay.has_stream("tracker"):
        _confirm(replay, rows, table.ability(link, index), fit)
    return fit


def _confirm(replay: Replay, rows: np.ndarray, abilities: np.ndarray, fit: Fit) -> None:
    last = _last_seen(replay)
    products: dict[int, list[bytes]] = {}
    types, upgrades = vocabulary.unit_types(), vocabulary.upgrades()
    for names, makers in ((types.names, types.abilities), (upgrades.names, upgrades.abilities)):
        for name, maker in zip(names, makers.tolist(), strict=True):
            if maker > 1:
                products.setdefault(maker, []).append(name.encode())
    players = {player.user_id: player.player_id for player in replay.players}
    known = vocabulary.ability_names()
    for user, loop, ability in zip(rows["_userid"], rows["_gameloop"], abilities, strict=True):
        made, player = products.get(int(ability)), players.get(int(user))
        if made and player is not None:
            if any(last.get((player, name), -1) >= loop for name in made):
                fit.confirmed += 1
            else:
                fit.missing[known[int(ability)]] += 1


def _last_seen(replay: Replay) -> dict[tuple[int, bytes], int]:
    # (player, product) -> the last loop at which one came to be.
    tag, name = ["m_unitTagIndex", "m_unitTagRecycle"], "m_unitTypeName"
    events = replay.events(
        "tracker",
        {
            "UnitBorn": [*tag, name, "m_controlPlayerId"],
            "UnitInit": [*tag, name, "m_controlPlayerId"],
            "UnitTypeChange": [*tag, name],
            "Upgrade": ["m_playerId", "m_upgradeTypeName"],
        },
    )
    last: dict[tuple[int, bytes], int] = {}
    owner: dict[tuple[int, int], int] = {}
    for event in ("UnitBorn", "UnitInit", "UnitTypeChange"):
        for row in events[event]:
            unit = int(row[tag[0]]), int(row[tag[1]])
            if event != "UnitTypeChange":
                owner[unit] = int(row["m_controlPlayerId"])
            key = owner.get(unit, 0), replay.blob("tracker", row[name])
            last[key] = max(last.get(key, -1), int(row["_gameloop"]))
    for row in events["Upgrade"]:
        key = int(row["m_playerId"]), replay.blob("tracker", row["m_upgradeTypeName"])
        last[key] = max(last.get(key, -1), int(row["_gameloop"]))
    return last


def main() -> None:
    """Prints a report on a file, or every replay below a folder."""
    root = Path(sys.argv[1])
    for path in sorted(root.rglob("*.SC2Replay")) if root.is_dir() else [root]:
        try:
            replay = Replay.open(path)
            fit = measure(replay)
        except SC2GymError as error:
            print(f"{path.name}: {error}")
            continue
        print(f"{path.name} {replay.base_build}: {fit.share:.2%} of {fit.commands} commands map")
        print(f"    products seen: {fit.confirmed}, not seen: {dict(fit.missing)}")
        if fit.unmapped:
            print(f"    unmapped: {dict(fit.unmapped)}")


if __name__ == "__main__":
    main()
