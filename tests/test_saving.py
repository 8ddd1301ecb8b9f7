"""`save_replay`: names from templates, nothing overwritten."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sc2gym.game.saving import _file_name, save_replay


class Controller:
    """The one method of pysc2's controller that is used."""

    def __init__(self, data: bytes):
        self.data = data
        self.asked = 0

    def save_replay(self) -> bytes:
        self.asked += 1
        return self.data


@pytest.fixture
def controller(pysc2_replays: list[Path]) -> Controller:
    return Controller(pysc2_replays[3].read_bytes())


def test_the_name_says_what_it_is(controller: Controller, tmp_path: Path) -> None:
    path = save_replay(controller, tmp_path / "new", "{map}-{races}-{version}-{agent}", agent="a/b")
    assert path.parent == tmp_path / "new"
    assert re.fullmatch(r"Kairos Junction LE-[TPZ]v[TPZ]-4\.10\.0\.75689-a_b", path.stem)
    assert path.suffix == ".SC2Replay"
    assert path.read_bytes() == controller.data
    path = save_replay(controller, tmp_path)
    assert re.fullmatch(r"Kairos Junction LE-.+-vs-.+-\d{4}(-\d\d){5}", path.stem)


def test_nothing_is_overwritten(controller: Controller, tmp_path: Path) -> None:
    (tmp_path / "game.SC2Replay").write_text("mine")
    names = [save_replay(controller, tmp_path, "game").name for _ in range(2)]
    assert names == ["game-2.SC2Replay", "game-3.SC2Replay"]
    assert (tmp_path / "game.SC2Replay").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("name", ["{mapp}", "{0}", "{}", " "])
def test_a_wrong_template_is_told_before_the_game_is_asked(
    controller: Controller, tmp_path: Path, name: str
) -> None:
    with pytest.raises(ValueError, match="replay's name"):
        save_replay(controller, tmp_path, name)
    assert controller.asked == 0 and list(tmp_path.iterdir()) == []


def test_names_that_players_choose_stay_in_the_folder() -> None:
    assert _file_name("../../etc/passwd") == "_.._etc_passwd"
    assert _file_name("a\0b:c*d\n어비설 리프") == "a_b_c_d_어비설 리프"
    assert _file_name("...") == "replay"
    assert len(_file_name("어" * 500).encode()) <= 200
