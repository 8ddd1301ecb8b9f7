"""Says how well the vocabulary fits replays: python tools/report_vocabulary.py FOLDER

Per file: the share of commands that map to a raw function, the links that do not, how many of the
commands that make something are followed by it, and those that never are.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from vocabulary_evidence import evidence

from sc2gym import vocabulary
from sc2gym.errors import SC2GymError
from sc2gym.replay import Replay


@dataclass
class Fit:
    """How one replay's commands fit.

    Attributes:
        commands: How many there are, repeats left out.
        unmapped: (link, index, link name) -> commands that map to no raw function.
    """

    commands: int = 0
    unmapped: Counter[tuple[int, int, str]] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        """The share of commands that map."""
        return 1 - sum(self.unmapped.values()) / max(1, self.commands)


def measure(replay: Replay) -> Fit:
    """Counts a replay's commands that map, and those that do not."""
    columns = ["m_abil?", "m_abil.m_abilLink", "m_abil.m_abilCmdIndex", "m_data?", "m_cmdFlags"]
    rows = replay.events("game", {"Cmd": columns})["Cmd"]
    table = vocabulary.abilities(replay.base_build)
    link, index = np.where(rows["m_abil?"], rows["m_abil.m_abilLink"], -1), rows[columns[2]]
    functions = table.raw_function(link, index, rows["m_data?"], rows["m_cmdFlags"])
    fit = Fit(len(rows))
    for row in np.flatnonzero(functions == vocabulary.UNKNOWN):
        place = int(link[row])
        fit.unmapped[place, int(index[row]), table.links.get(place, "")] += 1
    return fit


def main() -> None:
    """Prints a report on a file, or every replay below a folder."""
    root, names = Path(sys.argv[1]), vocabulary.ability_names()
    for path in sorted(root.rglob("*.SC2Replay")) if root.is_dir() else [root]:
        try:
            replay = Replay.open(path)
            fit = measure(replay)
            print(
                f"{path.name} {replay.base_build}: {fit.share:.2%} of {fit.commands} commands map"
            )
            if fit.unmapped:
                print(f"    unmapped: {dict(fit.unmapped)}")
            shown = evidence(replay)
        except SC2GymError as error:
            print(f"{path.name}: {error}")
            continue
        never = {names[shown.ability[k]]: shown.commands[k] for k in shown.not_followed}
        print(f"    {shown.agreement:.1%} of what makes something is followed; never: {never}")


if __name__ == "__main__":
    main()
