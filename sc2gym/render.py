"""A step of an episode as a picture: what there is to see, from whichever source it comes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import spaces, vocabulary
from .picture import (
    ENEMY,
    GEYSER,
    MINERALS,
    NEUTRAL,
    NOBODY,
    OWN,
    SIZE,
    SMALL,
    STRUCTURE,
    UNIT,
    Color,
    Picture,
    Scene,
    Side,
    distinct_colors,
    draw,
)

if TYPE_CHECKING:
    from ._fast.frame import Frames
    from .episode import Episode


def frame(
    episode: Episode,
    step: int,
    size: tuple[int, int] = SIZE,
    *,
    opponent: Episode | None = None,
) -> Picture:
    """Draws a step of an episode.

    Args:
        episode: Whose side the picture takes.
        step: Which step, 0 to `len(episode)`.
        size: (height, width) of the picture.
        opponent: The episode of the other side of the same game, to show its economy too.

    Returns:
        uint8 (height, width, 3), RGB.

    Raises:
        ImportError: Pillow is not installed.
    """
    return draw(look(episode, step, opponent), size)


def look(episode: Episode, step: int, opponent: Episode | None = None) -> Scene:
    """What there is to draw at a step; arguments as in `frame`."""
    space, frames = _view()
    arrays = {key: np.zeros(each.shape, each.dtype) for key, each in space.items()}
    episode.fill(step, frames, arrays)
    units = dict(zip(_COLUMNS, arrays["units"][: int(arrays["unit_count"])].T, strict=True))
    map_width, map_height = episode.map_size
    loop = int(episode.game_loops[step])
    types, alliances = (units[key].astype(np.int64) for key in ("unit_type", "alliance"))
    kinds = _kinds()[types.clip(0, len(_kinds()) - 1)]
    owners = _OWNERS[alliances.clip(0, len(_OWNERS) - 1)]
    resources = (kinds == MINERALS) | (kinds == GEYSER)
    height_map, camera = arrays["minimap"]
    return Scene(
        map_name=episode.map_name,
        map_size=(map_width, map_height),
        seconds=loop / episode.loops_per_second,
        progress=step / max(1, len(episode)),
        sides=_sides(episode, arrays["player"], opponent, loop),
        caption=_last_function(episode, step),
        x=units["x"],
        y=map_height - units["y"],
        kinds=np.where((owners == NOBODY) & ~resources, NEUTRAL, kinds),
        owners=owners,
        radii=units["radius"],
        finished=units["build_progress"] >= 100,
        camera=_outline(camera, episode.map_size),
        ground=_whole_map(height_map, episode.map_size) if height_map.any() else None,
    )


def _sides(
    episode: Episode, player: npt.NDArray[np.int32], opponent: Episode | None, loop: int
) -> tuple[Side, ...]:
    own, enemy = episode.player, episode.opponent
    colors = distinct_colors(own.color, enemy.color if enemy else None)
    first = _side(own.name, own.race, colors[0], player)
    if enemy is None:
        return (first,)
    if opponent is None:
        return first, Side(enemy.name, enemy.race, colors[1])
    # Its steps may be others, as where a step is an action.
    step = int(np.searchsorted(opponent.game_loops, loop, side="right")) - 1
    other = np.zeros_like(player)
    opponent.fill(max(0, step), _view()[1], {"player": other})
    return first, _side(enemy.name, enemy.race, colors[1], other)


def _side(name: str, race: str, color: Color, player: npt.NDArray[np.int32]) -> Side:
    at = {key: int(player[feature.id]) for key, feature in spaces.PLAYER.items()}
    food = at["food_used"], at["food_cap"]
    return Side(name, race, color, at["minerals"], at["vespene"], food)


def _last_function(episode: Episode, step: int) -> str:
    done = np.flatnonzero(episode.expert_actions[:step])
    if not len(done):
        return ""
    function = int(episode.expert_actions[done[-1]])
    known = vocabulary.RAW_FUNCTIONS
    return known[function].name if function < len(known) else "unknown command"


_COLUMNS = ("unit_type", "alliance", "x", "y", "radius", "build_progress")
# By alliance: none, self, ally, neutral, enemy.
_OWNERS = np.array([NOBODY, OWN, OWN, NOBODY, ENEMY])


@lru_cache(maxsize=1)
def _view() -> tuple[Any, Frames]:
    space, frames = spaces.observation_space(
        ("minimap", "units", "player"),
        minimap_size=128,
        minimap_layers=("height_map", "camera"),
        max_units=2048,
        unit_columns=_COLUMNS,
    )
    return space.spaces, frames  # type: ignore[attr-defined]


@lru_cache(maxsize=1)
def _kinds() -> npt.NDArray[np.int64]:
    """What mark a unit gets, by the game's id of its type."""
    types = vocabulary.unit_types()
    kinds = np.full(int(types.ids.max()) + 1, SMALL)
    for kind, chosen in (
        (UNIT, types.is_army),
        (STRUCTURE, types.is_structure),
        (MINERALS, types.is_mineral),
        (GEYSER, types.is_geyser),
    ):
        kinds[types.ids[chosen]] = kind
    return kinds


def _outline(
    camera: Picture, map_size: tuple[int, int]
) -> tuple[float, float, float, float] | None:
    """Left, bottom, right and top in cells of what a layer marks; None if it marks nothing."""
    rows, columns = np.flatnonzero(camera.any(1)), np.flatnonzero(camera.any(0))
    if not len(rows):
        return None
    cell = 1 / _scale(camera, map_size)
    top, bottom = rows[0] * cell, (rows[-1] + 1) * cell
    return (
        float(columns[0] * cell),
        float(max(0.0, map_size[1] - bottom)),
        float(min(map_size[0], (columns[-1] + 1) * cell)),
        float(map_size[1] - top),
    )


def _whole_map(layer: Picture, map_size: tuple[int, int]) -> Picture:
    """The part of a layer that the map takes: it lies in the upper left corner."""
    scale = _scale(layer, map_size)
    width, height = (max(1, round(side * scale)) for side in map_size)
    return layer[:height, :width]


def _scale(layer: Picture, map_size: tuple[int, int]) -> float:
    """Pixels a cell."""
    height, width = layer.shape
    return float(min(height / max(1, map_size[1]), width / max(1, map_size[0])))
