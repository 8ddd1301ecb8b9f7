"""Episodes from recordings, held against the protobuf library and against plain Python."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("pyarrow", reason="needs the recordings extra")
pytest.importorskip("google.protobuf", reason="messages are made with the game extra")

import pyarrow.ipc
from standin import world

from sc2gym import recorded, spaces, vocabulary
from sc2gym.env import SC2ReplayEnv
from sc2gym.errors import RecordingError, ReplayError
from sc2gym.features import UNIT_FEATURES, FeatureReader, View
from sc2gym.library import Library
from sc2gym.observation import decode, decode_game_info
from sc2gym.recording import Recording, RecordingInfo, RecordingWriter
from sc2gym.relocation import relocate
from sc2gym.replay import Replay
from sc2gym.vector import SC2ReplayVectorEnv

sc2api = world.sc2api
END = 400


def player(player_id: int, race: str, result: str) -> dict[str, Any]:
    return {
        "player_id": player_id,
        "user_id": player_id - 1,
        "name": f"P{player_id}",
        "clan": "",
        "race": race,
        "team": player_id,
        "color": (0, 0, 255),
        "result": result,
        "mmr": 4000,
        "apm": None,
        "is_ai": False,
    }


def interface(layers: int = 0) -> Any:
    options = sc2api.InterfaceOptions(raw=True, score=True)
    if layers:
        for resolution in (
            options.feature_layer.resolution,
            options.feature_layer.minimap_resolution,
        ):
            resolution.x = resolution.y = layers
    return options


def write(
    path: Path,
    observations: Path,
    loops: list[int],
    *,
    layers: int = 0,
    side: int = 1,
    end: int = END,
    change: Any = None,
) -> Path:
    """Records what the stand-in shows; `change(message)` alters each before it is written."""
    options = interface(layers)
    info = RecordingInfo(
        replay="game.SC2Replay",
        content_hash="00" * 16,
        player=side,
        game_version="4.10.0.75689",
        base_build=75689,
        data_version="",
        map_name="Kairos Junction LE",
        players=(player(1, "Zerg", "win"), player(2, "Terran", "loss")),
        loops_per_second=22.4,
        step_mul=8,
        actions=None,
        disable_fog=False,
        interface=options.SerializeToString(),
        game_info=world.game_info(observations, options).SerializeToString(),
        replay_info=b"",
    )
    with RecordingWriter(path, info, 300_000) as writer:
        for previous, loop in zip([0, *loops], loops, strict=False):
            message = world.observation(observations, options, side, loop, previous, end)
            if change is not None:
                change(message)
            writer.append(message.SerializeToString())
    return path


LOOPS = list(range(0, END + 1, 8))


@pytest.fixture(scope="module")
def observations(data_dir: Path) -> Path:
    return data_dir / "observations"


@pytest.fixture(scope="module")
def path(observations: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("recorded") / "game.SC2Recording", observations, LOOPS)


@pytest.fixture(scope="module")
def path_with_layers(observations: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layers")
    return write(folder / "game.SC2Recording", observations, LOOPS[:20], layers=64, end=10**6)


def frame(
    episode: recorded.RecordedEpisode, step: int, **options: Any
) -> dict[str, npt.NDArray[Any]]:
    observe = ["minimap", "units", "player", "upgrades", "game_loop"]
    space, frames = spaces.observation_space(observe, **options)
    # Filled with rubbish, so that whatever is not written shows.
    arrays = {k: np.full(s.shape, 77, s.dtype) for k, s in space.spaces.items()}  # type: ignore[attr-defined]
    episode.fill(step, frames, arrays)
    assert space.contains(arrays) or episode.map_size == (0, 0)
    return arrays


def function(name: str) -> int:
    return next(f.id for f in vocabulary.raw_functions() if f.name == name)


def test_the_episode_is_the_game(path: Path) -> None:
    episode = recorded.episode(Recording(path))
    assert len(episode) == 50
    assert episode.game_loops.tolist() == LOOPS
    assert episode.info() == {
        "replay": str(path),
        "player": 1,
        "race": "Zerg",
        "opponent_race": "Terran",
        "map": "Kairos Junction LE",
        "result": "win",
        "mmr": 4000,
    }
    assert (episode.outcome, episode.terminated, episode.loops_per_second) == (1.0, True, 22.4)
    # collected minerals and vespene, and ten for each hundred loops, as the stand-in has it
    expected = [loop // 2 + loop // 4 + 10 * (loop // 100) for loop in LOOPS]
    assert episode.score.tolist() == expected
    assert episode.commands == END // world.ACTION_EVERY
    assert episode.unmapped_commands == 0


def test_the_expert_is_who_acts_before_the_next_frame(path: Path) -> None:
    episode = recorded.episode(Recording(path))
    expected = np.zeros(51, np.int32)
    for loop in world.commands(0, END):
        attack = loop // world.ACTION_EVERY % 2
        expected[loop // 8] = function("Attack_pt" if attack else "Stop_quick")
    assert episode.expert_actions.tolist() == expected.tolist()
    assert len(np.unique(expected)) == 3


def test_the_expert_is_pysc2s(path: Path) -> None:
    """What pysc2 itself makes of each action, `Features.reverse_raw_action` run for real."""
    pytest.importorskip("pysc2", reason="needs the game extra")
    from sc2gym.game import load_pysc2

    load_pysc2()
    from pysc2.lib import features

    recording = Recording(path)
    info = sc2api.ResponseGameInfo.FromString(recording.info.game_info)
    transform = features.features_from_game_info(
        info,
        agent_interface_format=features.parse_agent_interface_format(
            raw_resolution=64, use_raw_units=True, action_space="RAW"
        ),
    )
    episode = recorded.episode(recording)
    before = None
    for step in range(len(episode) + 1):
        message = sc2api.ResponseObservation.FromString(bytes(recording.observation(step)))
        for action in message.actions[:1]:
            call = transform.reverse_raw_action(action, before)
            assert int(call.function) == episode.expert_actions[step - 1]
        before = transform.transform_obs(message)


def test_the_order_ids_are_pysc2s() -> None:
    pytest.importorskip("pysc2", reason="needs the game extra")
    from sc2gym import features
    from sc2gym.game import load_pysc2

    load_pysc2()
    ours, theirs = recorded.raw_functions(), features.raw_functions()
    for ability in range(max(len(ours), len(theirs))):
        mine = ours[ability] if ability < len(ours) else 0
        his = theirs[ability] if ability < len(theirs) else 0
        assert mine == his, ability


def test_the_first_of_several_commands_counts(path: Path) -> None:
    episode = recorded.episode(Recording(path), 80)
    assert episode.game_loops.tolist() == [0, 80, 160, 240, 320, 400]
    # Commands at 23, 47, 71 | 95, 119, 143 | 167, 191, 215, 239 | 263, 287, 311 | 335, 359, 383;
    # Stop and Attack by turns.
    stop, attack = function("Stop_quick"), function("Attack_pt")
    assert episode.expert_actions.tolist() == [stop, attack, stop, stop, attack, 0]


def test_steps_where_the_player_acts(path: Path) -> None:
    episode = recorded.episode(Recording(path), "actions")
    assert episode.game_loops.tolist() == [0, *(n // 8 * 8 for n in world.commands(0, END)), 400]
    assert (episode.expert_actions[1:-1] != 0).all()


def test_a_loop_that_is_not_said_is_the_one_before_the_frame(
    observations: Path, tmp_path: Path
) -> None:
    def forget(message: Any) -> None:
        for action in message.actions:
            action.ClearField("game_loop")

    path = write(tmp_path / "r", observations, [0, 24, 48, 72], change=forget)
    episode = recorded.episode(Recording(path), 24)
    assert [bool(a) for a in episode.expert_actions] == [True, True, True, False]


def test_kinds_of_actions(observations: Path, tmp_path: Path) -> None:
    """Each kind alone between two frames."""
    made = iter(range(100))

    def act(message: Any) -> None:
        del message.actions[:]
        index = next(made) - 1
        if index < 0 or index >= 8:
            return
        action = message.actions.add(game_loop=message.observation.game_loop - 1)
        raw, layer = action.action_raw, action.action_feature_layer
        if index == 0:
            raw.unit_command.ability_id = world.STOP
        elif index == 1:
            raw.unit_command.ability_id = world.ATTACK
            raw.unit_command.target_unit_tag = 0
        elif index == 2:
            raw.camera_move.center_world_space.x = 5
        elif index == 3:
            raw.toggle_autocast.ability_id = 1042  # Build Interceptors
        elif index == 4:
            layer.unit_command.ability_id = world.ATTACK
            layer.unit_command.target_minimap_coord.x = 3
        elif index == 5:
            layer.camera_move.center_minimap.x = 3
        elif index == 6:
            action.action_ui.select_army.selection_add = False
            action.ClearField("action_raw")
        else:
            raw.unit_command.ability_id = 999_999

    path = write(tmp_path / "r", observations, list(range(0, 80, 8)), change=act)
    episode = recorded.episode(Recording(path))
    assert episode.expert_actions.tolist() == [
        function("Stop_quick"),
        function("Attack_unit"),
        function("raw_move_camera"),
        function("Build_Interceptors_autocast"),
        function("Attack_pt"),
        function("raw_move_camera"),
        0,
        vocabulary.UNKNOWN,
        0,
        0,
    ]
    assert episode.unmapped_commands == 1


def test_units_are_those_of_pysc2(path: Path) -> None:
    recording = Recording(path)
    episode = recorded.episode(recording)
    names = list(spaces.COLUMNS)
    info = decode_game_info(recording.info.game_info)
    reader = FeatureReader(View(info.map_size), recorded.raw_functions())
    for step in (0, 17, 50, 3):
        arrays = frame(episode, step, unit_columns=names)
        message = sc2api.ResponseObservation.FromString(bytes(recording.observation(step)))
        units = message.observation.raw_data.units
        count = int(arrays["unit_count"])
        assert count == len(units) > 100
        assert arrays["unit_tags"][:count].tolist() == [unit.tag for unit in units]
        assert not arrays["unit_tags"][count:].any() and not arrays["units"][count:].any()
        reader.read(recording.observation(step))
        rows = np.zeros((count, len(UNIT_FEATURES)), np.int64)
        assert reader.raw_units(rows) == count
        for place, name in enumerate(names):
            column = arrays["units"][:count, place]
            if name == "x":
                expected = [unit.pos.x for unit in units]
            elif name == "y":
                expected = [info.map_size[1] - unit.pos.y for unit in units]
            elif name in ("health", "shield", "energy", "facing", "radius", "weapon_cooldown"):
                expected = [getattr(unit, name) for unit in units]
            else:
                expected = rows[:, UNIT_FEATURES.index(name)].tolist()
            assert np.allclose(column, expected, atol=1e-5), name


def test_player_upgrades_and_loop(observations: Path, tmp_path: Path) -> None:
    upgrades = vocabulary.upgrades()
    ids = [int(upgrades.ids[3]), int(upgrades.ids[10]), 10**6]

    def improve(message: Any) -> None:
        message.observation.raw_data.player.upgrade_ids.extend(ids)

    path = write(tmp_path / "r", observations, [0, 8, 16], side=2, change=improve)
    arrays = frame(recorded.episode(Recording(path)), 1)
    assert np.flatnonzero(arrays["upgrades"]).tolist() == [3, 10]
    assert arrays["game_loop"].tolist() == [8]
    recording = Recording(path)
    common = sc2api.ResponseObservation.FromString(
        bytes(recording.observation(1))
    ).observation.player_common
    assert arrays["player"].tolist() == [getattr(common, name) for name in spaces.PLAYER]
    assert arrays["player"][0] == 2 and arrays["player"][1] == 50 + 4 + 2


def test_max_units_and_no_units(path: Path, observations: Path, tmp_path: Path) -> None:
    arrays = frame(recorded.episode(Recording(path)), 5, max_units=7)
    assert arrays["unit_count"] == 7 and arrays["unit_tags"].all()
    empty = write(
        tmp_path / "r",
        observations,
        [0, 8],
        change=lambda message: message.observation.ClearField("raw_data"),
    )
    arrays = frame(recorded.episode(Recording(empty)), 0)
    assert arrays["unit_count"] == 0 and not arrays["units"].any()
    many = write(
        tmp_path / "m",
        observations,
        [0, 8],
        change=lambda message: message.observation.raw_data.units.extend(
            list(message.observation.raw_data.units) * 4
        ),
    )
    arrays = frame(recorded.episode(Recording(many)), 1, max_units=4096)
    assert arrays["unit_count"] > 800


def test_layers_are_the_games_own(path_with_layers: Path) -> None:
    recording = Recording(path_with_layers)
    episode = recorded.episode(recording)
    names = list(spaces.LAYERS)
    arrays = frame(episode, 3, minimap_layers=names, minimap_size=64)
    planes = decode(recording.observation(3)).feature_minimap
    own = [name for name in names if name in planes]
    assert len(own) == 8
    for name in own:
        assert np.array_equal(arrays["minimap"][names.index(name)], planes[name]), name
    arrays = frame(episode, 3, minimap_layers=names, minimap_size=32)
    for name in own:
        assert np.array_equal(arrays["minimap"][names.index(name)], planes[name][::2, ::2]), name


def test_layers_that_the_recording_lacks_are_drawn(path: Path) -> None:
    recording = Recording(path)
    names = list(spaces.LAYERS)
    arrays = frame(recorded.episode(recording), 9, minimap_layers=names)
    layer = dict(zip(names, arrays["minimap"], strict=True))
    # Nobody is hurt, selects or builds, and there is no creep on that map.
    assert not layer.pop("alerts").any() and not layer.pop("creep").any()
    assert not layer.pop("selected").any() and not layer.pop("build_progress").any()
    assert [name for name, plane in layer.items() if not plane.any()] == []
    units = decode(recording.observation(9)).units
    types = vocabulary.unit_types()
    height = decode_game_info(recording.info.game_info).map_size[1]
    scale = 64 / max(decode_game_info(recording.info.game_info).map_size)
    # A field that nothing is drawn over: its class is told by its type id.
    mineral = units[np.isin(units["unit_type"], types.ids[types.is_mineral])][-1]
    x, y = int(mineral["pos"]["x"] * scale), int((height - mineral["pos"]["y"]) * scale)
    assert layer["unit_class"][y, x] == 1 and layer["player_relative"][y, x] == 3


def test_any_step_in_any_order_and_from_several_threads(path: Path) -> None:
    episode = recorded.episode(Recording(path))
    alone = [frame(recorded.episode(Recording(path)), step) for step in range(0, 51, 5)]
    wrong = []

    def read(seed: int) -> None:
        for place in np.random.default_rng(seed).integers(0, len(alone), 40):
            arrays = frame(episode, int(place) * 5)
            for key, array in arrays.items():
                if not np.array_equal(array, alone[place][key]):
                    wrong.append((place, key))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_is_not_known_is_named_and_zero(
    path: Path, path_with_layers: Path, observations: Path, tmp_path: Path
) -> None:
    raw = recorded.episode(Recording(path)).availability()
    assert raw["units"]["health"] == "exact" and raw["minimap"]["alerts"] == ""
    assert raw["minimap"]["camera"] == "estimated" and raw["minimap"]["creep"] == "exact"
    layers = recorded.episode(Recording(path_with_layers)).availability()
    assert layers["minimap"]["alerts"] == layers["minimap"]["camera"] == "exact"
    recording = Recording(path)
    bare = tmp_path / "bare.SC2Recording"
    info = dataclasses.replace(
        recording.info, interface=sc2api.InterfaceOptions(raw=False, score=True).SerializeToString()
    )
    with RecordingWriter(bare, info) as writer:
        for summary in recording.summaries():
            writer.append(bytes(summary))
    episode = recorded.episode(Recording(bare))
    known = episode.availability()
    arrays = frame(
        episode, 5, minimap_layers=list(spaces.LAYERS), unit_columns=list(spaces.COLUMNS)
    )
    assert not any(known["units"].values()) and not arrays["units"].any()
    assert known["upgrades"]["upgrades"] == "" and not arrays["upgrades"].any()
    for plane, (name, how) in zip(arrays["minimap"], known["minimap"].items(), strict=True):
        assert plane.any() == bool(how), name
    assert known["player"]["minerals"] == "exact" and arrays["player"][1] > 0
    events = spaces.availability("events")
    assert events["units"]["health"] == "" and events["units"]["unit_type"] == "exact"


def test_pickles(path: Path) -> None:
    episode = recorded.episode(Recording(path), 16)
    again = pickle.loads(pickle.dumps(episode))
    assert again.game_loops.tolist() == episode.game_loops.tolist()
    for key, array in frame(again, 4).items():
        assert np.array_equal(array, frame(episode, 4)[key])


def test_moved_recordings_are_found_by_their_contents(
    path: Path, observations: Path, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    first = shutil.copy(path, old / "game-p1.SC2Recording")
    write(old / "game-p2.SC2Recording", observations, LOOPS, side=2)
    env = SC2ReplayEnv(old, step_mul=16, minimap_size=16)
    env.library.preload()
    env.reset(seed=0)
    episode = recorded.episode(Recording(first), 16)
    saved = pickle.dumps((env, episode, Recording(first)))
    # Renamed so that each has the other's name: of one replay, they differ by the player only.
    new.mkdir()
    for file, name in zip(sorted(old.iterdir()), ("game-p2", "game-p1"), strict=True):
        file.rename(new / f"{name}.SC2Recording")
    with pytest.raises(ReplayError, match=r"gone.*sc2gym\.relocate"):
        pickle.loads(saved)
    with relocate(new):
        env_again, episode_again, recording_again = pickle.loads(saved)
    moved = new / "game-p2.SC2Recording"
    assert episode_again.name == str(moved) and recording_again.path == moved
    assert episode_again.availability() == episode.availability()
    for key, array in frame(episode_again, 4).items():
        assert np.array_equal(array, frame(episode, 4)[key])
    for _ in range(60):
        (shown, *others), (shown_again, *others_again) = env.step(0), env_again.step(0)
        assert np.array_equal(shown, shown_again) and others[:3] == others_again[:3]
        if others[1] or others[2]:
            assert env.reset()[1]["player"] == env_again.reset()[1]["player"]
    # Another recording in its place, of the same replay and side.
    write(moved, observations, LOOPS[:-5])
    with relocate(new / "game-p1.SC2Recording"), pytest.raises(ReplayError, match="gone"):
        pickle.loads(saved)
    shutil.copy(moved, first)
    with pytest.raises(ReplayError, match="has changed since"):
        pickle.loads(saved)


def test_a_game_that_stops_without_a_result(observations: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "r", observations, [0, 8, 16], end=1000)
    episode = recorded.episode(Recording(path))
    assert (episode.terminated, episode.result, episode.outcome) == (False, "win", 1.0)


def test_a_loop_shown_again_and_far_apart_loops(observations: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "r", observations, [0, 8, 16, 16])
    assert recorded.episode(Recording(path)).game_loops.tolist() == [0, 8, 16]

    def late(message: Any) -> None:
        if message.observation.game_loop == 16:
            message.observation.game_loop = 2**31 - 1

    path = write(tmp_path / "f", observations, [0, 8, 16], end=1000, change=late)
    assert recorded.episode(Recording(path), "actions").game_loops[-1] == 2**31 - 1
    with pytest.raises(RecordingError, match="no frame at loop 16"):
        recorded.episode(Recording(path))
    path = write(tmp_path / "o", observations, [8, 8])
    with pytest.raises(RecordingError, match="nothing to step through"):
        recorded.episode(Recording(path))


@pytest.mark.parametrize(
    ("step_mul", "complaint"), [(4, "no frame at loop 4, as step_mul=4 asks"), (12, "loop 12")]
)
def test_steps_that_were_not_recorded(path: Path, step_mul: int, complaint: str) -> None:
    with pytest.raises(RecordingError, match=complaint):
        recorded.episode(Recording(path), step_mul)


def test_options_that_do_not_exist(path: Path) -> None:
    for step_mul in (0, "action"):
        with pytest.raises(ValueError, match="step_mul"):
            recorded.episode(Recording(path), step_mul)  # type: ignore[arg-type]


def test_damage_met_while_stepping_is_told(path: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.SC2Recording"
    whole = bytearray(path.read_bytes())
    whole[Recording(path)._offsets[2] - 40] ^= 1
    damaged.write_bytes(whole)
    recording = Recording(damaged)
    episode = recorded.episode(recording)
    first = int(recording.first_frames[1])
    frame(episode, first - 1)
    with pytest.raises(RecordingError, match=r"damaged.SC2Recording: block 1 at byte \d+"):
        frame(episode, first)
    frame(episode, int(recording.first_frames[2]))


def test_messages_that_make_no_sense(observations: Path, tmp_path: Path) -> None:
    def strange(message: Any) -> None:
        for unit in message.observation.raw_data.units:
            unit.pos.x, unit.pos.y = float("nan"), float("-inf")
            unit.radius = float("inf")
            unit.owner = -5
            unit.unit_type = 2**32 - 1
            unit.build_progress = float("nan")

    path = write(tmp_path / "r", observations, [0, 8], change=strange)
    _, frames = spaces.observation_space("minimap", minimap_layers=list(spaces.LAYERS))
    arrays = {"minimap": np.empty((len(spaces.LAYERS), 64, 64), np.uint8)}
    recorded.episode(Recording(path)).fill(0, frames, arrays)


def test_too_short(observations: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="nothing to step through"):
        recorded.episode(Recording(write(tmp_path / "r", observations, [0])))


@pytest.fixture
def folder(
    observations: Path, pysc2_replays: list[Path], tmp_path: Path, path: Path
) -> tuple[Path, Path]:
    """A folder with a replay and a recording of its first player, and the replay."""
    replay = tmp_path / "files" / pysc2_replays[8].name
    replay.parent.mkdir()
    shutil.copy(pysc2_replays[8], replay)
    table = pyarrow.ipc.open_file(path)
    content_hash = Replay.open(replay).content_hash
    info = dataclasses.replace(Recording(path).info, content_hash=content_hash)
    target = replay.with_name("of-player-1.SC2Recording")
    with RecordingWriter(target, info, 300_000) as writer:
        for frames in (table.get_batch(i) for i in range(table.num_record_batches)):
            for observation in frames["observation"].to_pylist():
                writer.append(observation)
    return replay.parent, replay


def kinds(library: Library) -> list[tuple[bool, int]]:
    episodes = (library.episode(i) for i in range(len(library)))
    return [(isinstance(e, recorded.RecordedEpisode), e.player.player_id) for e in episodes]


def test_a_folder_of_both(folder: tuple[Path, Path]) -> None:
    both, replay = folder
    # The recording where there is one, for that player; the events for the other.
    assert sorted(kinds(Library(both))) == [(False, 2), (True, 1)]
    assert kinds(Library(both, source="events")) == [(False, 1), (False, 2)]
    assert kinds(Library(both, source="recording")) == [(True, 1)]
    assert kinds(Library(both, source="recording", player="winner")) == [(True, 1)]
    with pytest.raises(FileNotFoundError, match="source='recording'"):
        Library(replay, source="recording")
    copy = both / "again.SC2Recording"
    shutil.copy(both / "of-player-1.SC2Recording", copy)
    assert len(Library(both)) == 2


def test_a_damaged_recording_among_others_is_skipped(folder: tuple[Path, Path]) -> None:
    both, _ = folder
    (both / "bad.SC2Recording").write_bytes(b"ARROW1 and no more")
    with pytest.warns(UserWarning, match=r"skipped .*bad.SC2Recording: .*not a whole recording"):
        library = Library(both)
    assert len(library) == 2 and len(library.skipped) == 1
    with pytest.raises(RecordingError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Library(both, on_error="raise")


def test_environments_step_through_recordings(folder: tuple[Path, Path]) -> None:
    both, _ = folder
    options: dict[str, Any] = {
        "replays": both,
        "source": "recording",
        "observe": ["minimap", "units", "player"],
        "reward": "score",
    }
    env = SC2ReplayEnv(**options)
    obs, info = env.reset(seed=1)
    assert info["map"] == "Kairos Junction LE" and info["race"] == "Zerg"
    total, steps, terminated = 0.0, 0, False
    with pytest.warns(UserWarning, match="share 1 episodes"):
        envs = SC2ReplayVectorEnv(num_envs=2, **options)
    batch, infos = envs.reset(seed=1)
    while not terminated:
        assert env.observation_space.contains(obs)
        assert infos["expert_action"][1] == info["expert_action"]
        for key, value in obs.items():
            assert np.array_equal(batch[key][0], value), key
        obs, reward, terminated, truncated, info = env.step(np.int64(0))
        batch, rewards, terminations, _, infos = envs.step(np.zeros(2, np.int64))
        assert rewards[0] == reward and terminations[0] == terminated and not truncated
        total, steps = total + float(reward), steps + 1
    assert (steps, total) == (50, 200 + 100 + 40)
    envs.close()


def test_damage_stops_a_batch_and_says_where(folder: tuple[Path, Path]) -> None:
    both, _ = folder
    path = both / "of-player-1.SC2Recording"
    whole = bytearray(path.read_bytes())
    whole[Recording(path)._offsets[3] - 40] ^= 1
    path.write_bytes(whole)
    envs = SC2ReplayVectorEnv(num_envs=1, replays=both, source="recording")
    with pytest.raises(RecordingError, match=r"block 2 at byte \d+"):
        envs.reset(seed=0)
        for _ in range(50):
            envs.step(np.zeros(1, np.int64))
    envs.close()
