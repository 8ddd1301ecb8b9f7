"""pysc2 and its schemas load under today's Python and protobuf, and nothing else changes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

pytest.importorskip("pysc2", reason="needs the game extra")

ROOT = Path(__file__).parents[1]


def run(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a fresh interpreter, where nothing of pysc2 is loaded yet."""
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


def output(code: str, *options: str) -> str:
    done = run(code, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_plain_import_is_broken_which_is_why_the_loader_exists() -> None:
    import google.protobuf

    if int(google.protobuf.__version__.split(".")[0]) < 4:
        pytest.skip("protobuf 3 still accepts the generated code")
    assert run("from s2clientprotocol import sc2api_pb2").returncode != 0


def test_schemas_load_with_the_fast_implementation_and_round_trip(data_dir: Path) -> None:
    message = data_dir / "observations" / "feature_layers_128.ResponseObservation.pb"
    assert (
        output(
            f"""
            from google.protobuf.internal import api_implementation
            from sc2gym.game import load_schemas
            sc2api = load_schemas()
            assert api_implementation.Type() == "upb"
            wire = open({str(message)!r}, "rb").read()
            observation = sc2api.ResponseObservation.FromString(wire)
            assert observation.SerializeToString() == wire
            assert load_schemas() is sc2api
            print(observation.observation.game_loop, len(observation.observation.raw_data.units))
            """
        )
        != "0 0"
    )


def test_every_module_of_pysc2_that_a_replay_passes_through_imports() -> None:
    # Warnings as errors: what Python deprecates today is what breaks tomorrow.
    output(
        """
        from sc2gym.game import load_pysc2
        load_pysc2()
        from pysc2 import run_configs
        from pysc2.lib import actions, colors, features, protocol, remote_controller, sc_process
        from pysc2.lib.replay import replay_observation_stream, sc2_replay, sc2_replay_utils
        assert features.Player.minerals == 1 and colors.shuffled_hue(6).shape == (6, 3)
        assert run_configs.lib.VERSIONS["4.10.0"].build_version == 75689
        """,
        "-W",
        "error",
    )


def test_the_palette_is_the_one_that_pysc2_draws_with_on_python_3_10() -> None:
    # random.shuffle(x, lambda: 0.5) of Python 3.10, worked out by hand for five elements:
    # i=4 swaps with 2, i=3 with 2, i=2 with 1, i=1 with 1.
    from sc2gym.game.pysc2_loader import _fixed_shuffle

    items: list[object] = ["a", "b", "c", "d", "e"]
    _fixed_shuffle(items, lambda: 0.5)
    assert items == ["a", "d", "b", "e", "c"]


def test_pysc2_own_step_skips_come_out(pysc2_replays: list[Path]) -> None:
    replay = pysc2_replays[4]
    skips = replay.with_name(replay.stem + ".skips.txt").read_text()
    assert output(
        f"""
        from sc2gym.game import load_pysc2
        load_pysc2()
        from pysc2.lib.replay import sc2_replay, sc2_replay_utils
        replay = sc2_replay.SC2Replay(open({str(replay)!r}, "rb").read())
        print(",".join(map(str, sc2_replay_utils.raw_action_skips(replay)[1])))
        """
    ) == skips.strip().rstrip(",")


def test_nothing_of_the_process_is_patched() -> None:
    output(
        """
        import builtins, importlib, random, sys

        def state():
            return (dict(vars(builtins)), dict(vars(random)), importlib.import_module,
                    list(sys.meta_path), list(sys.path_hooks), list(sys.path))

        import google.protobuf.descriptor_pool  # its own doings are not ours
        before, modules = state(), dict(sys.modules)
        from sc2gym.game import load_pysc2
        load_pysc2()
        assert state() == before
        assert "imp" not in sys.modules or "imp" in modules
        assert all(sys.modules[name] is module for name, module in modules.items())
        import pysc2.lib.colors as colors
        assert colors.__spec__.name == "pysc2.lib.colors" and colors.__file__.endswith(".py")
        """
    )


def test_no_bytecode_of_the_altered_modules_is_left_behind(tmp_path: Path) -> None:
    output(
        f"""
        import pathlib, sys
        sys.dont_write_bytecode = False
        sys.pycache_prefix = {str(tmp_path)!r}
        from sc2gym.game import load_pysc2
        load_pysc2()
        names = [path.name for path in pathlib.Path({str(tmp_path)!r}).rglob("*.pyc")]
        assert any(name.startswith("pysc2_loader") for name in names), names
        assert not any(name.startswith(("colors", "sc2api_pb2")) for name in names), names
        """
    )


def test_modules_loaded_already_are_left_alone() -> None:
    output(
        """
        import sys, types
        import pysc2.lib, s2clientprotocol
        mine = sys.modules["pysc2.lib.colors"] = types.ModuleType("pysc2.lib.colors")
        from sc2gym.game import load_pysc2
        load_pysc2()
        assert sys.modules["pysc2.lib.colors"] is mine
        """
    )


@pytest.mark.parametrize("missing", ["pysc2", "s2clientprotocol", "google.protobuf"])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(missing: str) -> None:
    assert "sc2gym[game]" in output(
        f"""
        import sys
        sys.modules[{missing!r}] = None
        from sc2gym.game import GameNotInstalledError, load_pysc2
        try:
            load_pysc2()
        except GameNotInstalledError as error:
            print(error)
        """
    )


def test_importing_the_game_side_imports_nothing_heavy() -> None:
    assert (
        output(
            """
        import sys
        import sc2gym.game
        print([n for n in ("pysc2", "google.protobuf", "pyarrow", "absl") if n in sys.modules])
        """
        )
        == "[]"
    )


def test_threads_that_load_at_once_get_the_same_classes() -> None:
    from sc2gym.game import load_schemas

    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(load_schemas().ResponseObservation))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(map(id, found))) == 1
