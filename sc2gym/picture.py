"""A game's state as a picture that people understand at a glance.

The middle is the minimap: structures are squares, units discs, workers dots, each in its player's
colour; minerals, geysers and the player's camera as the game shows them. Above it stand the two
players and the clock, below it what the player did last and how far the game is.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

Picture = npt.NDArray[np.uint8]
Color = tuple[int, int, int]

#: (height, width) of a picture: both whole multiples of 16, as video codecs like them.
SIZE = (608, 512)

# What a mark on the map stands for; small are workers, larvae and the like. Later ones are drawn
# over earlier ones.
MINERALS, GEYSER, NEUTRAL, STRUCTURE, SMALL, UNIT = range(6)
OWN, ENEMY, NOBODY = range(3)

BACKDROP: Color = (9, 12, 17)
GROUND: Color = (22, 28, 36)
GRID: Color = (29, 37, 47)
TEXT: Color = (222, 228, 236)
FAINT: Color = (125, 137, 152)
MINERAL_BLUE: Color = (92, 198, 240)
GAS_GREEN: Color = (70, 205, 120)
NEUTRAL_GREY: Color = (98, 104, 112)
# For players whose replay has no colours, or two that look alike.
DEFAULT_COLORS: tuple[Color, Color] = (70, 150, 255), (235, 64, 52)

_OVERSAMPLING = 2
_LARGEST = 8.0  # cells; no unit's radius is more


@dataclass(frozen=True)
class Side:
    """What the picture says about one player; None is left out.

    Attributes:
        food: Supply used and supply available.
    """

    name: str
    race: str
    color: Color
    minerals: int | None = None
    vespene: int | None = None
    food: tuple[int, int] | None = None


@dataclass(frozen=True, eq=False)
class Scene:
    """Everything that is drawn, whatever source it is from.

    Attributes:
        map_size: Width and height in cells of the game's map.
        seconds: Game time.
        progress: Share of the episode that is over, 0 to 1.
        sides: The player, and the opponent where there is just one.
        caption: The last line.
        x, y: float (n,), cells from the map's left and bottom edge, one entry for each mark.
        kinds: int (n,), MINERALS to UNIT.
        owners: int (n,), OWN, ENEMY or NOBODY.
        radii: float (n,), in cells.
        finished: bool (n,), False for what is still being built.
        camera: Left, bottom, right and top of the player's screen in cells.
        ground: uint8 (h, w), brightness of the map's ground, the top row first.
    """

    map_name: str
    map_size: tuple[int, int]
    seconds: float
    progress: float
    sides: tuple[Side, ...]
    caption: str
    x: npt.NDArray[np.floating[Any]]
    y: npt.NDArray[np.floating[Any]]
    kinds: npt.NDArray[np.integer[Any]]
    owners: npt.NDArray[np.integer[Any]]
    radii: npt.NDArray[np.floating[Any]]
    finished: npt.NDArray[np.bool_]
    camera: tuple[float, float, float, float] | None = None
    ground: Picture | None = None


def draw(scene: Scene, size: tuple[int, int] = SIZE) -> Picture:
    """Draws a scene.

    Args:
        scene: What to draw.
        size: (height, width) of the picture, at least (160, 128).

    Returns:
        uint8 (height, width, 3), RGB.

    Raises:
        ImportError: Pillow is not installed.
        ValueError: The picture would be too small to show anything.
    """
    height, width = size
    if height < 160 or width < 128:
        raise ValueError(f"a picture needs at least 160x128 (height x width) pixels, got {size}")
    image_module, draw_module = _pillow()
    text_size = max(9, round(width / 36))
    header, footer = round(text_size * 4.0), round(text_size * 2.4)
    image = image_module.new("RGB", (width, height), BACKDROP)
    minimap = _draw_map(scene, (height - header - footer, width), image_module, draw_module)
    image.paste(minimap, (0, header))
    pen = draw_module.Draw(image)
    _draw_header(scene, pen, width, text_size)
    _draw_footer(scene, pen, (0, height - footer, width, height), text_size)
    return np.array(image)


def _draw_map(
    scene: Scene, size: tuple[int, int], image_module: Any, draw_module: Any
) -> Image.Image:
    """The minimap, drawn larger and shrunk, so that edges are smooth."""
    height, width = (each * _OVERSAMPLING for each in size)
    cells_wide, cells_high = (max(1, each) for each in scene.map_size)
    scale = min(width / cells_wide, height / cells_high)
    left, top = (width - cells_wide * scale) / 2, (height - cells_high * scale) / 2
    bottom = top + cells_high * scale

    image = image_module.new("RGB", (width, height), BACKDROP)
    pen = draw_module.Draw(image)
    right = left + cells_wide * scale
    frame = (left, top, max(left, right - 1), max(top, bottom - 1))
    if scene.ground is None:
        pen.rectangle(frame, fill=GROUND)
        _draw_grid(pen, frame, 16 * scale, max(1, round(width / 512)))
    else:
        whole = [round(each) for each in frame]
        ground = image_module.fromarray(scene.ground).resize(
            (max(1, whole[2] - whole[0] + 1), max(1, whole[3] - whole[1] + 1))
        )
        image.paste(_tint(ground, image_module), (whole[0], whole[1]))

    smallest = 1.1 * width / 512
    colors = [side.color for side in scene.sides[:2]]
    colors += DEFAULT_COLORS[len(colors) :]
    # By kind first, so that an army stands out before the buildings it stands in.
    order = np.lexsort((scene.owners, scene.kinds))
    for i in order[np.isfinite(scene.x + scene.y + scene.radii)[order]].tolist():
        kind, owner = int(scene.kinds[i]), int(scene.owners[i])
        x = left + min(max(float(scene.x[i]), 0.0), cells_wide) * scale
        y = bottom - min(max(float(scene.y[i]), 0.0), cells_high) * scale
        color = colors[owner] if owner in (OWN, ENEMY) else _NEUTRAL_COLORS.get(kind, NEUTRAL_GREY)
        # No file may ask for a mark that takes forever to draw.
        cells = min(float(scene.radii[i]), _LARGEST) * _EXAGGERATION[kind]
        radius = min(max(smallest, cells * scale), width / 8)
        _draw_mark(pen, kind, (x, y), radius, color, bool(scene.finished[i]))
    if scene.camera is not None:
        x0, y0, x1, y1 = scene.camera
        x0, x1 = (min(max(x, 0.0), cells_wide) for x in (x0, x1))
        y0, y1 = (min(max(y, 0.0), cells_high) for y in (y0, y1))
        corners = (left + x0 * scale, bottom - y1 * scale, left + x1 * scale, bottom - y0 * scale)
        thick = max(1, round(width / 400))
        if corners[2] > corners[0] and corners[3] > corners[1]:
            pen.rectangle(corners, outline=(235, 235, 225), width=thick)
    return image.reduce(_OVERSAMPLING)  # type: ignore[no-any-return]


_NEUTRAL_COLORS = {MINERALS: MINERAL_BLUE, GEYSER: GAS_GREEN}
# Drawn true to scale an army would hardly show: a marine is 0.4 cells of 160.
_EXAGGERATION = {MINERALS: 0.9, GEYSER: 0.9, NEUTRAL: 0.9, STRUCTURE: 1.0, SMALL: 1.7, UNIT: 2.3}


def _draw_mark(
    pen: ImageDraw.ImageDraw,
    kind: int,
    center: tuple[float, float],
    radius: float,
    color: Color,
    finished: bool,
) -> None:
    (x, y), edge = center, _mix(color, BACKDROP, 0.65)
    box = (x - radius, y - radius, x + radius, y + radius)
    border = max(1, round(radius / 4))
    if kind == MINERALS:
        pen.rectangle((x - radius, y - radius / 2, x + radius, y + radius / 2), fill=color)
    elif kind in (GEYSER, NEUTRAL):
        pen.rectangle(box, fill=_mix(color, BACKDROP, 0.3), outline=edge, width=border)
    elif kind == STRUCTURE and finished:
        pen.rectangle(box, fill=_mix(color, BACKDROP, 0.18), outline=edge, width=border)
    elif kind == STRUCTURE:
        pen.rectangle(box, fill=_mix(color, BACKDROP, 0.78), outline=color, width=border)
    elif kind == SMALL:
        pen.ellipse(box, fill=_mix(color, TEXT, 0.25))
    else:
        pen.ellipse(box, fill=_mix(color, TEXT, 0.12), outline=edge, width=border)


def _draw_grid(
    pen: ImageDraw.ImageDraw, frame: tuple[float, float, float, float], every: float, thick: int
) -> None:
    left, top, right, bottom = frame
    for i in range(1, int((right - left) / every) + 1):
        pen.line((left + i * every, top, left + i * every, bottom), fill=GRID, width=thick)
    for i in range(1, int((bottom - top) / every) + 1):
        pen.line((left, bottom - i * every, right, bottom - i * every), fill=GRID, width=thick)


def _tint(ground: Image.Image, image_module: Any) -> Image.Image:
    """Grey levels as the ground's shades, dark enough for units to stand out."""
    shade = np.asarray(ground, np.float32)[..., None] / 255
    low, high = np.array(BACKDROP, np.float32) + 6, np.array((86, 98, 108), np.float32)
    return image_module.fromarray((low + (high - low) * shade).astype(np.uint8))  # type: ignore[no-any-return]


def _draw_header(scene: Scene, pen: ImageDraw.ImageDraw, width: int, text_size: int) -> None:
    large, small = _font(round(text_size * 1.15)), _font(text_size)
    first, second, pad = text_size * 0.75, text_size * 2.3, round(text_size * 0.7)
    minutes, seconds = divmod(int(max(0.0, scene.seconds)), 60)
    clock, clock_font = f"{minutes:02d}:{seconds:02d}", _font(round(text_size * 1.7))
    pen.text((width / 2, first), clock, TEXT, clock_font, anchor="ma")
    for number, side in enumerate(scene.sides[:2]):
        right = number == 1
        at, anchor = (width - pad, "ra") if right else (pad, "la")
        bar = (
            (width - 4, 0, width - 1, text_size * 4 - 6) if right else (0, 0, 3, text_size * 4 - 6)
        )
        pen.rectangle(bar, fill=side.color)
        name = _fit(pen, side.name or "?", large, width * 0.38)  # so that it never meets the clock
        pen.text((at, first), name, side.color, large, anchor=anchor)
        _draw_economy(side, pen, (at, second), small, right)


def _draw_economy(
    side: Side, pen: ImageDraw.ImageDraw, at: tuple[float, float], font: Any, from_right: bool
) -> None:
    """Race, then minerals, vespene and supply, outward in."""
    pieces: list[tuple[str, Color]] = [(side.race[:1].upper(), FAINT)]
    if side.minerals is not None:
        pieces.append((f"{side.minerals}", MINERAL_BLUE))
    if side.vespene is not None:
        pieces.append((f"{side.vespene}", GAS_GREEN))
    if side.food is not None:
        pieces.append((f"{side.food[0]}/{side.food[1]}", TEXT))
    if len(pieces) == 1:
        pieces = [(side.race, FAINT)]
    x, y = at
    gap = pen.textlength("  ", font)
    for text, color in pieces:
        length = pen.textlength(text, font)
        pen.text((x - length if from_right else x, y), text, color, font)
        x += -(length + gap) if from_right else length + gap


def _draw_footer(
    scene: Scene, pen: ImageDraw.ImageDraw, box: tuple[int, int, int, int], text_size: int
) -> None:
    left, top, right, bottom = box
    pad, font = round(text_size * 0.7), _font(text_size)
    thick = max(2, text_size // 5)
    line = top + pad // 2
    pen.rectangle((left, line, right, line + thick - 1), fill=GRID)
    done = min(1.0, max(0.0, scene.progress)) * (right - left)
    if done >= 1:
        pen.rectangle((left, line, left + done, line + thick - 1), fill=FAINT)
    middle = (line + thick + bottom) / 2
    caption = _fit(pen, scene.caption, font, (right - left) * 0.56)
    pen.text((left + pad, middle), caption, TEXT, font, anchor="lm")
    map_name = _fit(pen, scene.map_name, font, (right - left) * 0.36)
    pen.text((right - pad, middle), map_name, FAINT, font, anchor="rm")


def _fit(pen: ImageDraw.ImageDraw, text: str, font: Any, width: float) -> str:
    """The text, shortened to what fits and free of what no font here can show."""
    text = "".join(c if c.isprintable() and ord(c) < _glyphs() else "?" for c in text)
    if pen.textlength(text, font) <= width:
        return text
    while text and pen.textlength(text + "..", font) > width:
        text = text[:-1]
    return text + ".."


def _mix(color: Color, other: Color, share: float) -> Color:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(color, other, strict=True))
    return red, green, blue


def distinct_colors(own: Color | None, enemy: Color | None) -> tuple[Color, Color]:
    """Colours to draw two players in: theirs where both can be told apart, on a dark ground."""
    if own is None or enemy is None:
        return DEFAULT_COLORS
    bright = _brighten(own), _brighten(enemy)
    if sum(abs(a - b) for a, b in zip(*bright, strict=True)) < 120:
        return DEFAULT_COLORS
    return bright


def _brighten(color: Color) -> Color:
    """The same hue, at least so bright that it shows; players may be black."""
    luma = (299 * color[0] + 587 * color[1] + 114 * color[2]) / 1000
    return _mix(color, (255, 255, 255), (105 - luma) / (255 - luma)) if luma < 105 else color


def _pillow() -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise ImportError('pictures need Pillow: pip install "sc2gym[video]"') from error
    return Image, ImageDraw


@lru_cache(maxsize=1)
def _font_file() -> Path | None:
    """A font with Latin, Greek and Cyrillic letters: pygame's own, a neighbour in the extra."""
    pygame = importlib.util.find_spec("pygame")
    folders = pygame.submodule_search_locations if pygame else None
    file = Path(folders[0], "freesansbold.ttf") if folders else None
    return file if file and file.is_file() else None


@lru_cache(maxsize=32)
def _font(size: int) -> Any:
    from PIL import ImageFont

    file = _font_file()
    return ImageFont.truetype(str(file), size) if file else ImageFont.load_default(size)


def _glyphs() -> int:
    """Letters below this code point can be shown; Pillow's built-in font has ASCII alone."""
    return 0x500 if _font_file() else 0x7F
