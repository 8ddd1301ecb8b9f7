from __future__ import annotations

import io

import pytest

from sc2gym.progress import Progress, clock, track


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_is_silent_unless_on_a_terminal(capsys):
    assert list(track(range(5), "counting")) == [0, 1, 2, 3, 4]
    assert capsys.readouterr() == ("", "")


def test_it_shows_itself_and_goes_away():
    terminal = Terminal()
    with Progress("reading", 10, unit="files", file=terminal) as progress:
        progress.advance(4)
        progress.advance(1)  # within the tenth of a second: not printed
    text = terminal.getvalue()
    assert "reading  [########............]  40%  4/10 files" in text
    assert "5/10" not in text
    assert text.endswith("\r\x1b[K")


def test_a_line_has_count_rate_and_time_left():
    progress = Progress("reading", 1000, unit="files", file=io.StringIO())
    progress.advance(250)
    assert (
        progress.line(5) == "reading  [#####...............]  25%  250/1,000 files  50/s  0:15 left"
    )
    progress = Progress("reading", file=io.StringIO())
    progress.advance(3)
    assert progress.line(2, "last.SC2Replay") == "reading  3  1.5/s  last.SC2Replay"
    assert Progress("reading", 0, file=io.StringIO()).line(0) == "reading  0  0.0/s"


def test_an_exception_goes_through():
    terminal = Terminal()
    with pytest.raises(KeyError), Progress("reading", 10, file=terminal) as progress:
        progress.advance()
        raise KeyError("inside")
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (307, "5:07"), (3600, "1:00:00")]
)
def test_clock(seconds, text):
    assert clock(seconds) == text
