"""Writes docs/observations.md from the tables in `sc2gym.spaces`.

python tools/make_docs.py            writes it
python tools/make_docs.py --check    fails if it is not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from sc2gym import spaces, vocabulary  # noqa: E402

OUT = ROOT / "docs" / "observations.md"

HEAD = """\
# Observations

<!-- Written by tools/make_docs.py from the tables in sc2gym/spaces.py. -->

What `observe=` can ask for, under pysc2's names where the meaning is pysc2's. How well a thing is
known depends on where an episode comes from: a replay file (**events**), or a **recording** of
what the game itself showed. *Exact* is what the game had; *estimated* is worked out, causally,
from what was known by then; a dash is not known, and zero.

| key | what |
| --- | --- |
"""

MINIMAP = """
## `minimap`

`minimap_layers=` chooses; without it the starred ones, in that order: {default}.
Pixels are square, the map's longer side fills the minimap, and what is left of the other stays
zero.

"""

UNITS = """
## `units`

`unit_columns=` chooses; without it the starred ones, in that order: {default}. Tags are apart,
in `unit_tags`, as they need 64 bits; `unit_count` says how many rows are units.

"""

PLAYER = """
## `player`

int32 ({count},), in this order.

"""

TAIL = """
## `upgrades`

One entry for each of these {count} upgrades, in this order: {names}.

## Actions

`Discrete({functions})`: pysc2's raw functions by id ({last} is the last), and one more,
{unknown}, for a command of the player's that is none of them; an agent that chooses it never
matches. `0` is `no_op`.

Functions of replays of 4.0 and later are held against what follows each command in the game and
against sc2reader's names. Those of earlier replays are less sure: the numbers of abilities moved
with every build, few builds have a table of them, and before 2.0.8 no event shows what a command
led to. Where a number may have moved, the function is {unknown} rather than perhaps wrong.
"""


def main() -> int:
    """Writes, or compares; the exit status."""
    text = document()
    if "--check" not in sys.argv[1:]:
        OUT.parent.mkdir(exist_ok=True)
        OUT.write_text(text, encoding="utf-8")
        return 0
    if OUT.is_file() and OUT.read_text(encoding="utf-8") == text:
        return 0
    print(f"{OUT} is not up to date: run python tools/make_docs.py", file=sys.stderr)
    return 1


def document() -> str:
    """The whole text."""
    upgrades = vocabulary.upgrades().names
    functions = vocabulary.RAW_FUNCTIONS
    parts = [HEAD]
    parts += [f"| `{key}` | {what} |\n" for key, what in spaces.OBSERVATIONS.items()]
    parts += [MINIMAP.format(default=_names(spaces.DEFAULT_LAYERS))]
    parts += [_table("layer", spaces.LAYERS, spaces.DEFAULT_LAYERS)]
    parts += [UNITS.format(default=_names(spaces.DEFAULT_COLUMNS))]
    parts += [_table("column", spaces.COLUMNS, spaces.DEFAULT_COLUMNS)]
    parts += [PLAYER.format(count=len(spaces.PLAYER)), _table("entry", spaces.PLAYER, ())]
    last = functions[vocabulary.UNKNOWN - 1]
    parts += [
        TAIL.format(
            count=len(upgrades),
            names=", ".join(upgrades),
            functions=vocabulary.NUM_FUNCTIONS,
            last=f"{vocabulary.UNKNOWN - 1}, `{last.name}`,",
            unknown=vocabulary.UNKNOWN,
        )
    ]
    return "".join(parts)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(what: str, features: Mapping[str, spaces.Feature], default: tuple[str, ...]) -> str:
    lines = [f"| {what} | meaning | events | recording |", "| --- | --- | --- | --- |"]
    for name, feature in features.items():
        star = " *" if name in default else ""
        known = (feature.events or "-", feature.recording or "-")
        meaning = feature.meaning.replace("|", "\\|")
        lines.append(f"| `{name}`{star} | {meaning} | {known[0]} | {known[1]} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
