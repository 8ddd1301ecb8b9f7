"""Animations are read back with Pillow and ffmpeg; the window runs on SDL's dummy driver."""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sc2gym import movie

pytest.importorskip("PIL", reason="needs the extra `video`")
from PIL import Image, ImageSequence


def moving_square(count: int, size: tuple[int, int] = (64, 96)) -> Iterator[np.ndarray]:
    for i in range(count):
        picture = np.full((*size, 3), (10, 20, 30), np.uint8)
        picture[10:20, i % 80 : i % 80 + 10] = (250, 60, 40)
        yield picture


def frames_of(path: Path) -> list[np.ndarray]:
    with Image.open(path) as image:
        return [np.array(each.convert("RGB")) for each in ImageSequence.Iterator(image)]


def test_a_gif_holds_every_picture(tmp_path):
    assert movie.save(tmp_path / "a.gif", moving_square(30), 20) == 30
    read = frames_of(tmp_path / "a.gif")
    assert len(read) == 30
    for got, expected in zip(read, moving_square(30), strict=True):
        np.testing.assert_allclose(got.astype(int), expected.astype(int), atol=8)


@pytest.mark.parametrize("fps", [7.3, 22.4, 30])
def test_a_gif_lasts_as_long_as_it_should(tmp_path, fps):
    movie.save(tmp_path / "a.gif", moving_square(60), fps)
    with Image.open(tmp_path / "a.gif") as image:
        lasts = sum(each.info["duration"] for each in ImageSequence.Iterator(image))
        assert image.info["loop"] == 0
    assert lasts / 1000 == pytest.approx(60 / fps, abs=0.02)


def test_a_gif_of_pictures_that_do_not_change(tmp_path):
    picture = next(moving_square(1))
    movie.save(tmp_path / "a.gif", [picture] * 5, 10)
    assert len(frames_of(tmp_path / "a.gif")) == 5
    assert (tmp_path / "a.gif").stat().st_size < 4000


def test_a_long_gif_needs_no_memory(tmp_path):
    movie.save(tmp_path / "warm.gif", moving_square(2), 20)
    tracemalloc.start()
    movie.save(tmp_path / "a.gif", moving_square(300, (256, 256)), 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * 256 * 256 * 3  # of 300


# imageio-ffmpeg leaves its reader's pipes to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_mp4_can_be_decoded(tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="needs the extra `video`")
    assert movie.save(tmp_path / "a.mp4", moving_square(20), 10) == 20
    reader = ffmpeg.read_frames(str(tmp_path / "a.mp4"))
    meta = next(reader)
    frames = list(reader)
    assert meta["source_size"] == (96, 64)
    assert meta["fps"] == 10
    assert len(frames) == 20
    first = np.frombuffer(frames[0], np.uint8).reshape(64, 96, 3)
    np.testing.assert_allclose(first[40, 60].astype(int), (10, 20, 30), atol=16)
    assert first[15, 4, 0] > 150


def test_bad_requests_say_what_is_wrong_and_leave_nothing(tmp_path):
    with pytest.raises(ValueError, match=r"\.gif or \.mp4"):
        movie.save(tmp_path / "a.avi", moving_square(2), 10)
    with pytest.raises(ValueError, match="no pictures"):
        movie.save(tmp_path / "a.gif", [], 10)
    with pytest.raises(ValueError, match="fps"):
        movie.save(tmp_path / "a.gif", moving_square(2), 0)
    with pytest.raises(ValueError, match="even"):
        movie.save(tmp_path / "a.mp4", moving_square(2, (63, 96)), 10)
    mixed = [*moving_square(9), *moving_square(1, (32, 32))]
    with pytest.raises(ValueError, match="differ in size"):
        movie.save(tmp_path / "a.gif", mixed, 10)
    with pytest.raises(ValueError, match="differ in size"):
        movie.save(tmp_path / "a.mp4", mixed, 10)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def headless(monkeypatch):
    pytest.importorskip("pygame", reason="needs the extra `video`")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


def test_a_window_keeps_the_pace_and_shows_the_picture(headless):
    import pygame

    window = movie.Window(fps=40)
    pictures = list(moving_square(12))
    began = time.monotonic()
    assert all(window.show(picture) for picture in pictures)
    assert time.monotonic() - began >= 10 / 40
    shown = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
    np.testing.assert_array_equal(shown, pictures[-1])
    window.close()
    window.close()
    assert not window.show(pictures[0])


@pytest.mark.parametrize("key", ["K_q", "K_ESCAPE", None])
def test_a_window_can_be_closed(headless, key):
    import pygame

    window = movie.Window(fps=1000)
    picture = next(moving_square(1))
    assert window.show(picture)
    event = pygame.event.Event(pygame.QUIT)
    if key:
        event = pygame.event.Event(pygame.KEYDOWN, key=getattr(pygame, key))
    pygame.event.post(event)
    assert not window.show(picture)
    assert window.closed


def test_space_holds_a_window(headless):
    import pygame

    window = movie.Window(fps=1000)
    picture = next(moving_square(1))
    window.show(picture)
    for _ in range(2):
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_SPACE))
    assert window.show(picture) and not window.paused  # held, and let go
    pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_SPACE))
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    assert not window.show(picture)


@pytest.mark.parametrize("driver", ["no such driver", None])
def test_no_display_is_explained(monkeypatch, driver):
    pygame = pytest.importorskip("pygame", reason="needs the extra `video`")
    pygame.display.quit()
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    if driver:
        monkeypatch.setenv("SDL_VIDEODRIVER", driver)
    elif sys.platform != "linux":
        pytest.skip("other systems always have a display")
    with pytest.raises(RuntimeError, match="SDL_VIDEODRIVER=dummy"):
        movie.Window()
