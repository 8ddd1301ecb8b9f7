"""Plays the sample games that ship with the package and writes them to sc2gym/samples.

Run from the repository root: `python tools/make_samples.py`. The same code gives the same bytes,
so a change in them shows in the commit that caused it.
"""

from __future__ import annotations

from pathlib import Path

from sc2gym.testing.match import Match, replay

FOLDER = Path(__file__).parents[1] / "sc2gym" / "samples"

# Every race, five to fifteen minutes, either side winning.
SAMPLES = {
    "zvz-rush": Match(
        ("Zerg mutalisks", "Zerg rush"), ("Larkspur", "Thistle"), (3120, 3085), (1.0, 1.1),
        least=6700, most=6720, seed=1,
    ),
    "tvz-drop": Match(
        ("Terran", "Zerg"), ("Juniper", "Larkspur"), (4410, 4385), least=6700, seed=3,
    ),
    "zvp-roaches": Match(
        ("Zerg", "Protoss"), ("Thistle", "Marram"), (5020, 4990), least=15000, seed=1,
    ),
    "pvp-blink": Match(
        ("Protoss stalkers", "Protoss"), ("Marram", "Sorrel"), (3760, 3790), least=12500, seed=2,
    ),
    "pvt-storm": Match(
        ("Protoss", "Terran"), ("Sorrel", "Juniper"), (4150, 4205), least=17000, seed=1,
    ),
    "tvt-tanks": Match(
        ("Terran hellions", "Terran"), ("Bracken", "Juniper"), (4630, 4600), least=19700,
        most=20000, seed=14,
    ),
}  # fmt: skip


def main() -> None:
    """Write every sample."""
    FOLDER.mkdir(exist_ok=True)
    for name, match in SAMPLES.items():
        data = replay(match)
        (FOLDER / f"{name}.SC2Replay").write_bytes(data)
        print(f"{name}: {len(data)} bytes")


if __name__ == "__main__":
    main()
