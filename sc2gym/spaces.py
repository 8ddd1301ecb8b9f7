"""What can be observed and chosen: layers, columns and spaces, under pysc2's names.

A name that pysc2 has means what it means there (`pysc2.lib.features`). For each source of episodes
the tables say how well it knows a thing: "exact", "estimated", or "" for not at all, in which case
it is zero.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex, TypeGuard

import gymnasium
import numpy as np

from sc2gym import vocabulary
from sc2gym._fast.frame import Frames


@dataclass(frozen=True)
class Feature:
    """A layer or a column.

    Attributes:
        id: What the compiled core knows it by.
        meaning: In words, with units.
        events: How well a `.SC2Replay` file tells it.
        recording: How well a recorded observation does.
    """

    id: int
    meaning: str
    events: str = ""
    recording: str = "exact"


LAYERS: dict[str, Feature] = {
    "height_map": Feature(0, "Height of the ground, 0 to 255."),
    "visibility_map": Feature(1, "0 hidden, 1 seen before, 2 visible."),
    "creep": Feature(2, "1 where there is creep."),
    "camera": Feature(
        3,
        "1 where the player's camera looks; from events its centre is exact, its extent typical.",
        "estimated",
    ),
    "player_id": Feature(
        4, "Owner of the unit: player id 1 to 15, 16 for neutral, 0 for no unit.", "estimated"
    ),
    "player_relative": Feature(
        5, "Owner of the unit as the player sees it: 1 self, 2 ally, 3 neutral, 4 enemy.",
        "estimated",
    ),
    "selected": Feature(6, "1 where a unit that the player has selected stands.", "estimated"),
    "alerts": Feature(
        7, "1 where the player is being hurt; from events: lost a unit in the last 160 loops.",
        "estimated",
    ),
    "pathable": Feature(8, "1 where ground units can walk."),
    "buildable": Feature(9, "1 where structures can be placed."),
    "unit_density": Feature(10, "Number of units, at most 255.", "estimated", "estimated"),
    "build_progress": Feature(
        11, "Percent built of a structure under construction, by the time it takes; else 0.",
        "estimated",
    ),
    "unit_class": Feature(
        12,
        "Kind of the unit: 1 mineral field, 2 vespene geyser, 3 other neutral, 4 egg or larva, "
        "5 worker, 6 ground army, 7 air army, 8 structure, 9 defensive structure, 10 town hall.",
        "estimated",
        "estimated",
    ),
}  # fmt: skip
"""Minimap layers, uint8. From events positions are estimated, so layers that show where are too."""

DEFAULT_LAYERS = ("player_relative", "unit_class", "unit_density", "selected", "camera")

# Ids are places in pysc2's FeatureUnit. The tag, 29 there, has 64 bits and so is an array apart.
COLUMNS: dict[str, Feature] = {
    "unit_type": Feature(0, "Unit type id of the SC2 API; 0 for a type it does not have.", "exact"),
    "alliance": Feature(1, "1 self, 2 ally, 3 neutral, 4 enemy.", "exact"),
    "health": Feature(2, "Hit points."),
    "shield": Feature(3, "Shield points."),
    "energy": Feature(4, "Energy."),
    "cargo_space_taken": Feature(5, "Cargo slots in use."),
    "build_progress": Feature(6, "Percent built, 100 when finished.", "estimated"),
    "health_ratio": Feature(7, "Hit points of the most it can have, 0 to 255."),
    "shield_ratio": Feature(8, "Shield of the most it can have, 0 to 255."),
    "energy_ratio": Feature(9, "Energy of the most it can have, 0 to 255."),
    "display_type": Feature(
        10, "1 visible, 2 snapshot, 3 hidden; events know every unit: always 1.", "estimated"
    ),
    "owner": Feature(11, "Player id, 16 for neutral.", "exact"),
    "x": Feature(12, "Cells from the map's left edge.", "estimated"),
    "y": Feature(13, "Cells from the map's top edge.", "estimated"),
    "facing": Feature(14, "Direction it looks in, radians."),
    "radius": Feature(15, "Radius in cells.", "exact"),
    "cloak": Feature(16, "1 cloaked, 2 cloaked but detected, 3 not cloaked, 4 allied cloaked."),
    "is_selected": Feature(17, "1 if the player has it selected.", "estimated"),
    "is_blip": Feature(18, "1 if known by radar only."),
    "is_powered": Feature(19, "1 if powered by a pylon."),
    "mineral_contents": Feature(20, "Minerals left in the field."),
    "vespene_contents": Feature(21, "Vespene left in the geyser."),
    "cargo_space_max": Feature(22, "Cargo slots."),
    "assigned_harvesters": Feature(23, "Workers at work there."),
    "ideal_harvesters": Feature(24, "Workers that would be right there."),
    "weapon_cooldown": Feature(25, "Game loops until it can fire."),
    "order_length": Feature(26, "Orders it has; 0 is idle."),
    "order_id_0": Feature(27, "Raw function id of its first order."),
    "order_id_1": Feature(28, "Raw function id of its second order."),
    "hallucination": Feature(30, "1 if it is one."),
    "buff_id_0": Feature(31, "First buff."),
    "buff_id_1": Feature(32, "Second buff."),
    "addon_unit_type": Feature(33, "Unit type of its add-on."),
    "active": Feature(34, "1 if it is doing something."),
    "is_on_screen": Feature(35, "1 if within the camera's view."),
    "order_progress_0": Feature(36, "Percent of its first order that is done."),
    "order_progress_1": Feature(37, "Percent of its second order that is done."),
    "order_id_2": Feature(38, "Raw function id of its third order."),
    "order_id_3": Feature(39, "Raw function id of its fourth order."),
    "is_in_cargo": Feature(40, "1 if carried by another unit."),
    "buff_duration_remain": Feature(41, "Game loops its buff still lasts."),
    "buff_duration_max": Feature(42, "Game loops its buff lasts in all."),
    "attack_upgrade_level": Feature(43, "Level of its weapons."),
    "armor_upgrade_level": Feature(44, "Level of its armour."),
    "shield_upgrade_level": Feature(45, "Level of its shields."),
}
"""Columns of the unit table, float32; each row is a unit, in order of birth."""

DEFAULT_COLUMNS = (
    "unit_type", "alliance", "owner", "x", "y", "radius", "build_progress", "is_selected",
)  # fmt: skip

PLAYER: dict[str, Feature] = {
    "player_id": Feature(0, "Player id.", "exact"),
    "minerals": Feature(1, "Minerals in the bank, as of the last 160th loop.", "exact"),
    "vespene": Feature(2, "Vespene in the bank, likewise.", "exact"),
    "food_used": Feature(3, "Supply used, likewise.", "exact"),
    "food_cap": Feature(4, "Supply available, likewise; at most 200.", "exact"),
    "food_army": Feature(5, "Supply used by what is not a worker, likewise.", "estimated"),
    "food_workers": Feature(6, "Supply used by workers, likewise.", "exact"),
    "idle_worker_count": Feature(7, "Workers without orders."),
    "army_count": Feature(8, "Finished army units.", "estimated"),
    "warp_gate_count": Feature(9, "Warp gates.", "exact"),
    "larva_count": Feature(10, "Larvae.", "exact"),
}
"""pysc2's player vector, int32. Replays carry the economy every 160 loops (7 s at Faster)."""

OBSERVATIONS: dict[str, str] = {
    "minimap": "uint8 (layers, height, width): the whole map, the top row first",
    "units": "float32 (max_units, columns): a row a unit in order of birth, then zeros; brings "
    "unit_tags, int64 (max_units,), and unit_count, int32 ()",
    "player": "int32 (11,): pysc2's player vector",
    "upgrades": "int8 (upgrades,): 1 for each the player has, in vocabulary order",
    "game_loop": "int32 (1,): the loop observed",
}


def action_space() -> gymnasium.spaces.Discrete:
    """pysc2's raw functions by id, and one more for commands that are none of them."""
    return gymnasium.spaces.Discrete(vocabulary.NUM_FUNCTIONS)


def observation_space(
    observe: str | Sequence[str] = "minimap",
    *,
    minimap_size: int | tuple[int, int] = 64,
    minimap_layers: Iterable[str] | None = None,
    max_units: int = 512,
    unit_columns: Iterable[str] | None = None,
) -> tuple[gymnasium.Space[Any], Frames]:
    """The space of observations, and the layout by which they are filled.

    Args:
        observe: One key of `OBSERVATIONS` for a bare space, several for a `Dict`.
        minimap_size: (height, width) in pixels, or one number for both.
        minimap_layers: Names from `LAYERS`; None for `DEFAULT_LAYERS`.
        max_units: Rows of the unit table. Of more units the first born are kept.
        unit_columns: Names from `COLUMNS`; None for `DEFAULT_COLUMNS`.

    Raises:
        ValueError: A name there is not, named with the closest there is, or an absurd size.
    """
    layers = _pick(minimap_layers, DEFAULT_LAYERS, LAYERS, "minimap layer")
    columns = _pick(unit_columns, DEFAULT_COLUMNS, COLUMNS, "unit column")
    square = isinstance(minimap_size, SupportsIndex)
    size = (minimap_size, minimap_size) if square else minimap_size
    if not _are_whole(size, 1024) or len(size) != 2:
        raise ValueError(f"minimap_size must be 1 to 1024 pixels a side, not {minimap_size!r}")
    if not _are_whole((max_units,), 4096):
        raise ValueError(f"max_units must be 1 to 4096, not {max_units!r}")
    height, width = map(operator.index, size)
    num_upgrades = len(vocabulary.upgrades().names)
    frames = Frames(
        [LAYERS[name].id for name in layers],
        (height, width),
        [COLUMNS[name].id for name in columns],
        max_units,
        num_upgrades,
    )
    box = gymnasium.spaces.Box
    whole = np.iinfo(np.int32)
    real = np.finfo(np.float32)
    every: dict[str, dict[str, gymnasium.Space[Any]]] = {
        "minimap": {"minimap": box(0, 255, (len(layers), height, width), np.uint8)},
        "units": {
            "units": box(real.min, real.max, (max_units, len(columns)), np.float32),
            # Gymnasium cannot draw samples from a box that ends with the type.
            "unit_tags": box(0, 1 << 62, (max_units,), np.int64),
            "unit_count": box(0, max_units, (), np.int32),
        },
        "player": {"player": box(whole.min, whole.max, (len(PLAYER),), np.int32)},
        "upgrades": {"upgrades": gymnasium.spaces.MultiBinary(num_upgrades)},
        "game_loop": {"game_loop": box(0, whole.max, (1,), np.int32)},
    }
    keys = _pick(
        [observe] if isinstance(observe, str) else observe, (), OBSERVATIONS, "observation"
    )
    parts = {name: space for key in keys for name, space in every[key].items()}
    if isinstance(observe, str) and len(parts) == 1:
        return parts[observe], frames
    return gymnasium.spaces.Dict(parts), frames


def availability(source: Literal["events", "recording"]) -> dict[str, dict[str, str]]:
    """How well a source knows each layer, column and player value, by observation key.

    "exact", "estimated", or "" for not at all, in which case it is zero.
    """
    tables = {"minimap": LAYERS, "units": COLUMNS, "player": PLAYER}
    known = {
        key: {name: getattr(feature, source) for name, feature in table.items()}
        for key, table in tables.items()
    }
    return known | {"upgrades": {"upgrades": "exact"}, "game_loop": {"game_loop": "exact"}}


def _are_whole(numbers: object, most: int) -> TypeGuard[Sequence[SupportsIndex]]:
    # NumPy's whole numbers are numbers, too.
    return isinstance(numbers, Sequence) and all(
        isinstance(number, SupportsIndex)
        and not isinstance(number, bool)
        and 1 <= operator.index(number) <= most
        for number in numbers
    )


def _pick(
    names: Iterable[str] | None, default: Sequence[str], known: Mapping[str, object], what: str
) -> list[str]:
    if isinstance(names, str):
        raise ValueError(f"{what}s are given as a list of names, not as {names!r}")
    if names is None:
        names = default
    if not isinstance(names, Iterable):
        raise ValueError(f"{what}s are chosen by name, not by {names!r}")
    picked = list(names)
    for name in picked:
        if not isinstance(name, str) or name not in known:
            close = difflib.get_close_matches(str(name), known, 1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            raise ValueError(f"no {what} {name!r}{hint} There are: {', '.join(known)}")
    if not picked:
        raise ValueError(f"at least one {what} is needed")
    if len(set(picked)) < len(picked):
        raise ValueError(f"one {what} is named twice: {', '.join(picked)}")
    return picked
