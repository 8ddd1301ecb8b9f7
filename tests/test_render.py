"""Pictures of real steps, and the tools of Gymnasium that use them."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import RecordVideo

import sc2gym
from sc2gym import picture, render, spaces
from sc2gym.library import find
from sc2gym.vocabulary import RAW_FUNCTIONS

pytest.importorskip("PIL", reason="needs the extra `video`")


@pytest.fixture(scope="module")
def sides() -> tuple[sc2gym.Episode, ...]:
    file = next(file for file in find() if "tvz-drop" in str(file))
    return sc2gym.episodes(sc2gym.Replay.open(file), "both", 8)


def units_at(episode: sc2gym.Episode, step: int) -> dict[str, np.ndarray]:
    names = ("unit_type", "alliance", "x", "y")
    space, frames = spaces.observation_space("units", unit_columns=names)
    arrays = {key: np.zeros(each.shape, each.dtype) for key, each in space.items()}
    episode.fill(step, frames, arrays)
    rows = arrays["units"][: int(arrays["unit_count"])]
    return dict(zip(names, rows.T, strict=True))


def test_units_are_where_they_are_in_their_players_colours(sides):
    episode, step = sides[0], len(sides[0]) // 2
    drawn = render.frame(episode, step).astype(int)
    own, enemy = picture.distinct_colors(episode.player.color, episode.opponent.color)
    colors = {1: own, 4: enemy}
    units = units_at(episode, step)
    text = round(512 / 36)
    top, bottom = round(text * 4.0), 608 - round(text * 2.4)
    width, height = episode.map_size
    scale = min(512 / width, (bottom - top) / height)
    left, roof = (512 - width * scale) / 2, (top + bottom - height * scale) / 2
    found = []
    for alliance, x, y in zip(units["alliance"], units["x"], units["y"], strict=True):
        if alliance in colors:
            at = drawn[round(roof + y * scale), round(left + x * scale)]
            # Nearer to its own player's colour than to the other's.
            far = [np.abs(at - color).sum() for color in (colors[alliance], colors[5 - alliance])]
            found.append(far[0] < far[1])
    assert len(found) > 50
    assert np.mean(found) > 0.9  # some lie under another, or under the camera's frame


def test_the_camera_is_the_layers(sides):
    scene = render.look(sides[0], 500)
    space, frames = spaces.observation_space(
        "minimap", minimap_layers=["camera"], minimap_size=sides[0].map_size[::-1]
    )
    layer = np.zeros(space.shape, space.dtype)
    sides[0].fill(500, frames, {"minimap": layer})
    rows, columns = np.nonzero(layer[0])
    x0, y0, x1, y1 = scene.camera
    height = sides[0].map_size[1]
    expected = columns.min(), height - rows.max() - 1, columns.max() + 1, height - rows.min()
    np.testing.assert_allclose((x0, y0, x1, y1), expected, atol=2.5)  # a pixel or two of the two


def test_economies_and_the_last_command(sides):
    own, enemy = sides
    step = 600
    assert own.game_loops[step] == enemy.game_loops[step]
    scene = render.look(own, step, enemy)
    both = [(side.minerals, side.vespene, side.food) for side in scene.sides]
    turned = render.look(enemy, step, own)
    assert both == [(side.minerals, side.vespene, side.food) for side in turned.sides[::-1]]
    assert both[0] != both[1]
    alone = render.look(own, step)
    assert alone.sides[1].minerals is None  # a player does not know
    done = [int(i) for i in own.expert_actions[:step] if i]
    assert scene.caption == RAW_FUNCTIONS[done[-1]].name
    assert render.look(own, 0).caption == ""
    assert scene.seconds == pytest.approx(own.game_loops[step] / 22.4)


def test_the_other_side_may_step_otherwise(sides):
    file = next(file for file in find() if "tvz-drop" in str(file))
    acting = sc2gym.episodes(sc2gym.Replay.open(file), "both", "actions")
    for step in (0, 10, len(acting[0])):
        scene = render.look(acting[0], step, acting[1])
        loop = int(acting[0].game_loops[step])
        assert scene.sides[1].minerals is not None
        assert scene.seconds == pytest.approx(loop / 22.4)


def test_first_and_last_step_can_be_drawn(sides):
    for step in (0, len(sides[0])):
        assert render.frame(sides[0], step).shape == (*picture.SIZE, 3)
    with pytest.raises(IndexError):
        render.frame(sides[0], len(sides[0]) + 1)


def test_games_of_many_players_can_be_drawn(data_dir):
    file = data_dir / "replays" / "versions" / "4.11.0.77379-coop.SC2Replay"
    episode = sc2gym.episodes(sc2gym.Replay.open(file))[0]
    assert len(render.look(episode, len(episode)).sides) == 1
    assert render.frame(episode, len(episode)).any()


def test_old_games_can_be_drawn(data_dir):
    for name in ("2.0.8.25605-a", "2.1.4-a", "5.0.0.80949-a"):
        file = data_dir / "replays" / "versions" / f"{name}.SC2Replay"
        episode = sc2gym.episodes(sc2gym.Replay.open(file))[0]
        middle = len(episode) // 2
        drawn = render.frame(episode, middle)
        assert (drawn != render.frame(episode, middle // 2)).any()


def test_recordings_can_be_drawn_with_their_ground(data_dir, tmp_path, capsys):
    pytest.importorskip("pyarrow", reason="needs the extra `recordings`")
    pytest.importorskip("google.protobuf", reason="messages are made with the extra `game`")
    from test_recorded_episode import write

    from sc2gym import cli, recorded
    from sc2gym.recording import Recording

    path = tmp_path / "game.SC2Recording"
    write(path, data_dir / "observations", list(range(0, 160, 8)), layers=64, end=10**6)
    episode = recorded.episode(Recording(path))
    scene = render.look(episode, 3)
    assert len(scene.x) > 100
    assert scene.ground is not None and scene.ground.max() > 50
    assert render.frame(episode, 3).shape == (*picture.SIZE, 3)
    assert cli.main(["play", str(path), "--out", str(tmp_path / "a.gif")]) == 0
    assert "20 pictures" in capsys.readouterr().out


def test_rgb_array_is_the_frame_last_shown():
    env = gymnasium.make("SC2Replay-v0", render_mode="rgb_array")
    env.reset(seed=1)
    first = env.render()
    assert first.shape == (*picture.SIZE, 3) and first.dtype == np.uint8
    for _ in range(50):
        env.step(0)
    assert (env.render() != first).any()
    env.close()


def test_every_lane_of_a_vector_environment_has_a_picture():
    envs = gymnasium.make_vec("SC2Replay-v0", num_envs=3, render_mode="rgb_array")
    envs.reset(seed=0)
    pictures = envs.render()
    assert len(pictures) == 3
    assert all(each.shape == (*picture.SIZE, 3) for each in pictures)
    assert (pictures[0] != pictures[1]).any()
    envs.close()


# imageio-ffmpeg and moviepy leave pipes to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_record_video(tmp_path):
    pytest.importorskip("moviepy", reason="needs the extra `video`")
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    env = gymnasium.make("SC2Replay-v0", render_mode="rgb_array", max_episode_steps=12)
    env = RecordVideo(env, str(tmp_path / "videos"), episode_trigger=lambda episode: episode == 1)
    for _ in range(2):
        env.reset(seed=0)
        truncated = False
        while not truncated:
            *_, truncated, _ = env.step(0)
    env.close()
    (video,) = tmp_path.glob("videos/*.mp4")
    reader = ffmpeg.read_frames(str(video))
    meta = next(reader)
    frames = list(reader)
    assert meta["source_size"] == picture.SIZE[::-1]
    assert len(frames) == 13


def test_human_mode_shows_every_step(monkeypatch):
    pygame = pytest.importorskip("pygame", reason="needs the extra `video`")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = gymnasium.make("SC2Replay-v0", render_mode="human", order="sequential")
    plain = gymnasium.make("SC2Replay-v0", render_mode="rgb_array", order="sequential")
    for each in (env, plain):
        each.reset(seed=0)
        for _ in range(3):
            each.step(0)
    shown = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
    np.testing.assert_array_equal(shown, plain.render())
    assert env.render() is None
    env.close()
    env.close()
