"""Pictures in a row: in a window, as an animated GIF, as an MP4."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .picture import Picture

#: What `save` writes, by the ending of the file's name.
FORMATS = (".gif", ".mp4")

_HOW_TO_INSTALL = 'pip install "sc2gym[video]"'


def save(path: str | os.PathLike[str], pictures: Iterable[Picture], fps: float) -> int:
    """Writes pictures as an animation, one at a time, so that a long one needs no memory.

    A file that could not be finished does not stay behind.

    Args:
        path: Where to; its ending, .gif or .mp4, is the format.
        pictures: uint8 (height, width, 3) each, all of one size. MP4 wants even sides.
        fps: Pictures a second. A GIF counts in hundredths of a second, and viewers slow down
            what is faster than 50 a second.

    Returns:
        How many there were.

    Raises:
        ValueError: Another ending, no pictures, or pictures of different sizes.
        ImportError: What the format needs is not installed; the message names the extra.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise ValueError(f"{path}: an animation ends in {' or '.join(FORMATS)}")
    if not fps > 0:
        raise ValueError(f"fps must be positive, got {fps}")
    iterator = iter(pictures)
    first = next(iterator, None)
    if first is None:
        raise ValueError("there are no pictures to save")
    checked = _of_one_size(itertools.chain([first], iterator), first.shape)
    write = _write_gif if ending == ".gif" else _write_mp4
    try:
        return write(path, checked, fps)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _of_one_size(pictures: Iterable[Picture], shape: tuple[int, ...]) -> Iterator[Picture]:
    for picture in pictures:
        if picture.shape != shape:
            raise ValueError(f"the pictures differ in size: {shape} and {picture.shape}")
        yield picture


def _write_gif(path: Path, pictures: Iterable[Picture], fps: float) -> int:
    try:
        from PIL import GifImagePlugin, Image
    except ImportError as error:
        raise ImportError(f"GIFs need Pillow: {_HOW_TO_INSTALL}") from error
    iterator = iter(pictures)
    # Colours hardly change over a game: those of the first pictures serve all, and a palette
    # that stays lets each picture hold no more than the rectangle that changed.
    opening = list(itertools.islice(iterator, 8))
    sheet = Image.fromarray(np.concatenate([opening[0], opening[-1]]))
    palette = sheet.quantize(255, dither=Image.Dither.NONE)
    before: Picture | None = None
    count = 0
    with path.open("wb") as file:
        for picture in itertools.chain(opening, iterator):
            image = Image.fromarray(picture).quantize(palette=palette, dither=Image.Dither.NONE)
            pixels = np.asarray(image)
            if before is None:
                for block in GifImagePlugin.getheader(image, info={"loop": 0, "optimize": False})[
                    0
                ]:
                    file.write(block)
                box = (0, 0, image.width, image.height)
            else:
                box = _changed(pixels, before)
            # Hundredths add up to the true time, whatever one of them is rounded to.
            hundredths = round((count + 1) * 100 / fps) - round(count * 100 / fps)
            blocks = GifImagePlugin.getdata(
                image.crop(box), box[:2], duration=10 * max(2, hundredths), disposal=1
            )
            for block in blocks:
                file.write(block)
            before, count = pixels, count + 1
        file.write(b";")
    return count


def _changed(now: Picture, before: Picture) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of what differs; one pixel where nothing does."""
    differs = now != before
    rows, columns = np.flatnonzero(differs.any(1)), np.flatnonzero(differs.any(0))
    if not len(rows):
        return 0, 0, 1, 1
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _write_mp4(path: Path, pictures: Iterable[Picture], fps: float) -> int:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise ImportError(f"MP4s need imageio-ffmpeg: {_HOW_TO_INSTALL}") from error
    iterator = iter(pictures)
    first = next(iterator)
    height, width, _ = first.shape
    if height % 2 or width % 2:
        raise ValueError(f"an MP4 needs even sides, got {height}x{width}")
    count = 0
    # Nothing to align to: `macro_block_size` would scale what is no multiple of 16.
    writer = imageio_ffmpeg.write_frames(
        str(path), (width, height), fps=fps, macro_block_size=2, ffmpeg_log_level="error"
    )
    try:
        writer.send(None)
        for picture in itertools.chain([first], iterator):
            writer.send(np.ascontiguousarray(picture))
            count += 1
    finally:
        writer.close()
    return count


class Window:
    """A window that shows pictures at a steady pace.

    Args:
        title: Its title.
        fps: Pictures a second; `show` waits for the next one's time.

    Raises:
        ImportError: pygame is not installed.
        RuntimeError: There is no display to open a window on.
    """

    def __init__(self, title: str = "sc2gym", fps: float = 20.0):
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        try:
            import pygame
        except ImportError as error:
            raise ImportError(f"a window needs pygame: {_HOW_TO_INSTALL}") from error
        self._pygame: Any = pygame
        self.fps = fps
        self.closed = False
        self.paused = False
        self._title = title
        self._screen: Any = None
        problem = ""
        try:
            pygame.display.init()
        except pygame.error as error:
            problem = str(error)
        else:
            # Without a display SDL quietly takes a driver that shows nothing.
            driver = pygame.display.get_driver()
            if driver in ("dummy", "offscreen") and not os.environ.get("SDL_VIDEODRIVER"):
                pygame.display.quit()
                problem = "there is no display"
        if problem:
            raise RuntimeError(
                f"no window can be opened here ({problem}); write a file instead, or set"
                " SDL_VIDEODRIVER=dummy to go without"
            )
        self._clock = pygame.time.Clock()

    def show(self, picture: Picture) -> bool:
        """Shows a picture once its time has come.

        Closing the window, Q and Escape end the show; Space holds it, and lets it go on.

        Args:
            picture: uint8 (height, width, 3).

        Returns:
            False once the user has closed the window; there is nothing to show on any more.
        """
        if self.closed:
            return False
        size = (picture.shape[1], picture.shape[0])
        if self._screen is None or self._screen.get_size() != size:
            self._screen = self._pygame.display.set_mode(size)
            self._pygame.display.set_caption(self._title)
        surface = self._pygame.image.frombuffer(np.ascontiguousarray(picture), size, "RGB")
        self._screen.blit(surface, (0, 0))
        self._pygame.display.flip()
        self._answer()
        self._clock.tick(self.fps)
        while self.paused and not self.closed:
            self._clock.tick(20)
            self._answer()
        return not self.closed

    def _answer(self) -> None:
        game = self._pygame
        for event in game.event.get():
            if event.type == game.QUIT:
                self.close()
                return
            if event.type == game.KEYDOWN:
                if event.key in (game.K_ESCAPE, game.K_q):
                    self.close()
                    return
                if event.key == game.K_SPACE:
                    self.paused = not self.paused

    def close(self) -> None:
        """Closes the window; again is no mistake."""
        if not self.closed:
            self.closed = True
            self._screen = None
            self._pygame.display.quit()
