"""The feed: what is prepared ahead is what would have been, and it ends cleanly."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode
from test_vector import EVERYTHING, SOME, same

from sc2gym._fast.crew import Crew
from sc2gym.ahead import Ahead, NotReady
from sc2gym.errors import RecordingError, ReplayError
from sc2gym.rollout import Rollout
from sc2gym.vector import SC2ReplayVectorEnv

pytestmark = pytest.mark.filterwarnings("ignore:.* environments share")

PREFETCHED: list[dict[str, Any]] = [
    {"prefetch": 1},
    {"prefetch": 2, "num_threads": 3},
    {"prefetch": 7, "num_threads": 2},
    {"prefetch": 0, "num_threads": 4},
    {"prefetch": 3, "copy": False},
    {"prefetch": 2, "cache_bytes": 0},
]


@pytest.fixture(autouse=True)
def _cache_as_before() -> Iterator[None]:
    yield
    SC2ReplayVectorEnv(SOME[0], cache_bytes=1 << 30)


def plain(num_envs: int = 4, **options: Any) -> SC2ReplayVectorEnv:
    return SC2ReplayVectorEnv(SOME, num_envs=num_envs, prefetch=0, **options)


def drive(envs: SC2ReplayVectorEnv, seed: int, steps: int, pause: bool = False) -> Iterator[Any]:
    """What an agent sees that acts at random, resets lanes, and makes mistakes."""
    generator = np.random.default_rng(seed)
    n = envs.num_envs
    yield envs.reset(seed=seed)
    for _ in range(steps):
        dice = generator.random()
        if dice < 0.05:
            mask = generator.random(n) < 0.5
            mask[0] |= not mask.any()
            yield envs.reset(options={"reset_mask": mask})
        elif dice < 0.07:
            yield envs.reset()
        elif dice < 0.12:
            with pytest.raises(InvalidAction):
                envs.step(np.zeros(n) if _over(envs).all() else np.full(n, -1))
        elif pause and dice > 0.9:
            time.sleep(0.002)
        got = envs.step(generator.integers(0, 9, n))
        yield got
        over = got[2] | got[3]
        if over.any() and envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED:
            yield envs.reset(options={"reset_mask": over})


def _over(envs: SC2ReplayVectorEnv) -> Any:
    assert envs._current is not None
    return np.array([envs._current.over(lane) for lane in range(envs.num_envs)])


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("feed", PREFETCHED, ids=str)
def test_batches_are_the_same_with_and_without(feed: dict[str, Any], mode: AutoresetMode) -> None:
    options: dict[str, Any] = {"step_mul": 300, "autoreset_mode": mode, "reward": "score"}
    options |= {"observe": EVERYTHING, "max_units": 40, "max_episode_steps": 35}
    fed = SC2ReplayVectorEnv(SOME, num_envs=4, **options, **feed)
    bare = plain(**options)
    ends = 0
    both = zip(drive(fed, 1, 200, pause=True), drive(bare, 1, 200), strict=True)
    for batch, (got, expected) in enumerate(both):
        same(got, expected, f"batch {batch}")
        ends += (got[2] | got[3]).sum() if len(got) == 5 else 0
    assert ends >= 10
    assert fed.prefetch == 0 or len(fed._ahead) > 0 or mode is AutoresetMode.DISABLED


def test_threads_do_the_filling_while_the_agent_thinks() -> None:
    envs = SC2ReplayVectorEnv(SOME, num_envs=16, prefetch=3)
    envs.reset(seed=0)
    deadline = time.monotonic() + 10
    while not all(map(envs._crew.is_ready, envs._ahead)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(envs._ahead) == 3
    assert all(map(envs._crew.is_ready, envs._ahead))
    following = envs.peek()
    assert following is not None
    kept = following.copy()
    del following
    np.testing.assert_array_equal(envs.step(np.zeros(16, np.int64))[0], kept)


def test_small_batches_are_not_worth_a_thread() -> None:
    assert [SC2ReplayVectorEnv(SOME, num_envs=n).prefetch for n in (1, 7, 8)] == [0, 0, 2]
    for mistaken in ({"prefetch": -1}, {"num_threads": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(mistaken))} must be a whole number"):
            SC2ReplayVectorEnv(SOME, **mistaken)  # type: ignore[arg-type]


# Trouble comes up where it would have


def _with_bad(tmp_path: Path, data_dir: Path) -> list[Path]:
    bad = sorted((data_dir / "replays" / "versions").rglob("1.*.SC2Replay"))[:2]
    return [*SOME[:3], *(Path(shutil.copy(path, tmp_path)) for path in bad)]


@pytest.mark.parametrize("on_error", ["skip", "raise"])
def test_bad_replays_come_up_at_their_step(tmp_path: Path, data_dir: Path, on_error: Any) -> None:
    replays = _with_bad(tmp_path, data_dir)

    def story(**feed: Any) -> list[Any]:
        envs = SC2ReplayVectorEnv(
            replays, num_envs=2, step_mul=900, on_error=on_error, order="sequential", **feed
        )
        told: list[Any] = []
        for step in range(60):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    got = envs.step(np.zeros(2, np.int64)) if step else envs.reset(seed=0)
                    told.append(got[-1]["game_loop"].tolist())
                except ReplayError as error:
                    told.append(str(error))
            told += [str(warning.message) for warning in caught]
            told.append(list(envs.skipped))
        return told

    expected = story(prefetch=0)
    assert story(prefetch=4) == expected
    assert story(prefetch=4, num_threads=2) == expected
    assert sum(isinstance(entry, str) for entry in expected) >= 2


def test_an_exception_in_the_thread_reaches_the_caller_with_its_cause() -> None:
    envs = SC2ReplayVectorEnv(SOME, num_envs=8, prefetch=2, max_episode_steps=9)
    envs.reset(seed=0)
    cause = ValueError("the disk is on fire")

    def broken(index: int) -> Any:
        raise RuntimeError("no episode") from cause

    envs._episodes.forget()
    envs._episodes._desk.make = envs._episodes.make = broken
    envs.reset(options={"replay": 0})  # needs no more episodes yet
    with pytest.raises(RuntimeError, match="no episode") as caught:
        for _ in range(12):
            envs.step(np.zeros(8, np.int64))
    assert caught.value.__cause__ is cause


def test_what_is_made_ahead_is_made_once() -> None:
    made: list[int] = []
    gate = threading.Event()

    def make(index: int) -> str:
        made.append(index)
        gate.wait(10)
        return f"value {index}"

    ahead = Ahead(make)
    ahead.want(1)
    ahead.want(1)
    ahead.want(2)
    with pytest.raises(NotReady):
        ahead.peek(1)
    with pytest.raises(NotReady):
        ahead.peek(3)
    gate.set()
    assert [ahead.get(1), ahead.get(2), ahead.get(3)] == ["value 1", "value 2", "value 3"]
    assert sorted(made) == [1, 2, 3]
    ahead.close()
    assert not ahead.alive
    assert ahead.get(1) == "value 1"


def test_an_episodes_end_finds_the_next_one_decoded() -> None:
    envs = SC2ReplayVectorEnv(SOME, num_envs=2, prefetch=1, step_mul=100, cache_bytes=0)
    decoded_by: set[str] = set()
    make = envs._episodes._desk.make

    def watched(index: int) -> Any:
        decoded_by.add(threading.current_thread().name)
        return make(index)

    envs._episodes._desk.make = watched
    envs.reset(seed=0)
    ends = 0
    for _ in range(400):
        *_, terminations, truncations, _ = envs.step([0, 0])
        ends += int((terminations | truncations).sum())
        time.sleep(0.0005)
    assert ends >= 2
    assert decoded_by == {"sc2gym decoding ahead"}


# Recordings: their source takes the GIL in the thread, and can fail there


@pytest.fixture(scope="module")
def recorded(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pyarrow")
    from test_recorded_episode import LOOPS, write

    path = tmp_path_factory.mktemp("recorded") / "game.SC2Recording"
    return write(path, data_dir / "observations", LOOPS)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_recordings_too(recorded: Path) -> None:
    options: dict[str, Any] = {"source": "recording", "step_mul": 8, "max_episode_steps": 9}
    fed = SC2ReplayVectorEnv(recorded, num_envs=8, prefetch=4, num_threads=3, **options)
    bare = SC2ReplayVectorEnv(recorded, num_envs=8, prefetch=0, **options)
    same(fed.reset(seed=0), bare.reset(seed=0))
    actions = np.zeros(8, np.int64)
    for step in range(60):
        expected = bare.step(actions)
        if step % 20 == 5:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    same(fed.step(actions), expected)
                    status = 0
                finally:
                    os._exit(status)
            _wait(child, 60)
        same(fed.step(actions), expected)
    same(fed.rollout(20).observations, bare.rollout(20).observations)


def test_damage_comes_up_at_its_step(recorded: Path, tmp_path: Path) -> None:
    from sc2gym.recording import Recording

    damaged = tmp_path / "damaged.SC2Recording"
    whole = bytearray(recorded.read_bytes())
    whole[Recording(recorded)._offsets[3] - 40] ^= 1
    damaged.write_bytes(whole)

    def story(prefetch: int) -> tuple[int, str]:
        envs = SC2ReplayVectorEnv(damaged, num_envs=8, prefetch=prefetch, source="recording")
        envs.reset(seed=0)
        for step in range(50):
            try:
                envs.step(np.zeros(8, np.int64))
            except RecordingError as error:
                return step, str(error)
        return 50, ""

    assert story(4) == story(0)
    assert story(4)[0] < 50


# Endings


def _tasks(at_most: int = 0) -> int:
    """Threads there are. One that was joined stays listed for a moment."""
    deadline = time.monotonic() + 5
    while (count := len(os.listdir("/proc/self/task"))) > at_most > 0:
        if time.monotonic() > deadline:
            break
        time.sleep(0.005)
    return count


def _tasks_at_rest(at_most: int = 0) -> int:
    """The same without those of environments that nobody has any more."""
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("sc2gym"):
            thread.join(1)
    time.sleep(0.05)
    return _tasks(at_most)


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")


def _busy(**options: Any) -> SC2ReplayVectorEnv:
    envs = SC2ReplayVectorEnv(SOME, num_envs=16, prefetch=4, num_threads=3, **options)
    envs.reset(seed=0)
    envs.step(np.zeros(16, np.int64))
    return envs


@needs_proc
def test_closing_ends_the_threads_and_steps_go_on() -> None:
    before = _tasks_at_rest()
    envs, other = _busy(), plain(16)
    other.reset(seed=0)
    other.step(np.zeros(16, np.int64))
    assert _tasks() >= before + 3
    envs.close()
    assert _tasks(before) == before
    for _ in range(5):
        same(envs.step(np.zeros(16, np.int64)), other.step(np.zeros(16, np.int64)))
    assert _tasks(before) == before


@needs_proc
def test_garbage_ends_its_threads() -> None:
    before = _tasks_at_rest()
    for _ in range(5):
        envs = _busy()
        del envs
    assert _tasks_at_rest(before) == before

    def in_a_cycle() -> None:
        holder: list[Any] = []
        holder.append(_busy(reward=lambda episode, step, action: float(len(holder))))

    in_a_cycle()
    assert _tasks() >= before + 3
    assert _tasks_at_rest(before) == before


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_goes_on_by_itself() -> None:
    envs = SC2ReplayVectorEnv(SOME, num_envs=16, prefetch=4, num_threads=2, step_mul=100)
    other = plain(16, step_mul=100)
    actions = np.zeros(16, np.int64)
    other.reset(seed=3)
    expected = [other.step(actions) for _ in range(300)]
    envs.reset(seed=3)
    for step in range(300):
        if step % 60 == 20:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    for later in range(step, 300):
                        same(envs.step(actions), expected[later])
                    envs.close()
                    status = 0
                finally:
                    os._exit(status)
            _wait(child, 60)
        same(envs.step(actions), expected[step])


def _wait(child: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


SCRIPT = """
# Whoever runs the tests in the background has them, and all they start, ignore Ctrl-C.
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import sys, numpy as np
from sc2gym.vector import SC2ReplayVectorEnv
envs = SC2ReplayVectorEnv(num_envs=16, prefetch=4, num_threads=2, step_mul=50)
envs.reset(seed=0)
for step in range({steps}):
    envs.step(np.zeros(16, np.int64))
    if step == 50:
        print("under way", flush=True)
"""


def _run(steps: int) -> subprocess.Popen[str]:
    script = SCRIPT.format(steps=steps)
    root = str(Path(__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": root},
    )


def test_ctrl_c_ends_it() -> None:
    with _run(10**9) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "under way\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode != 0
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("steps", [0, 1, 300])
def test_a_script_that_just_ends_ends(steps: int) -> None:
    with _run(steps) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert errors == ""


def test_crews_refuse_what_makes_no_sense() -> None:
    for count in (-1, 10**4):
        with pytest.raises(ValueError, match="num_threads"):
            Crew(count)
    envs = _busy()
    slot = envs._ahead[0]
    with pytest.raises(ValueError, match="in line already"):
        envs._crew.submit(slot)
    with pytest.raises(ValueError, match="another crew"):
        Crew(0).wait(slot)
    envs.close()


# Rollouts


def _by_steps(envs: SC2ReplayVectorEnv, shown: Any, info: Any, steps: int, policy: Any) -> Any:
    rows: dict[str, list[Any]] = {}
    for _ in range(steps):
        actions = info["expert_action"] if policy is None else policy(shown)
        row = {"observations": shown, "expert_actions": info["expert_action"], "actions": actions}
        if isinstance(shown, dict):
            row["observations"] = {key: array.copy() for key, array in shown.items()}
        shown, rewards, terminations, truncations, info = envs.step(actions)
        row |= {"rewards": rewards, "terminations": terminations, "truncations": truncations}
        for key, value in row.items():
            rows.setdefault(key, []).append(value)
    stacked: dict[str, Any] = {key: _stack(values) for key, values in rows.items()}
    return stacked, shown, info


def _stack(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {key: np.stack([value[key] for value in values]) for key in values[0]}
    return np.stack(values)


def _choose(observations: Any) -> Any:
    game_loop = observations["game_loop"] if isinstance(observations, dict) else observations
    return game_loop.reshape(len(game_loop), -1)[:, 0].astype(np.int64) % 5


@pytest.mark.parametrize("policy", [None, _choose], ids=["expert", "policy"])
@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("reward", ["imitation", "outcome", "own"])
def test_a_rollout_equals_its_steps(reward: str, mode: AutoresetMode, policy: Any) -> None:
    options: dict[str, Any] = {"step_mul": 400, "autoreset_mode": mode}
    options |= {"observe": EVERYTHING, "max_units": 30} if reward == "own" else {}
    options["reward"] = reward
    if reward == "own":
        options["reward"] = lambda episode, step, action: step + action / 7
    if mode is AutoresetMode.DISABLED:
        options["step_mul"] = 30
    envs = SC2ReplayVectorEnv(SOME, num_envs=4, prefetch=2, num_threads=2, **options)
    other = plain(**options)
    envs.reset(seed=4)
    shown, info = other.reset(seed=4)
    ends = rewarded = 0
    for steps in (1, 50, 50, 7, 50):
        expected, shown, info = _by_steps(other, shown, info, steps, policy)
        rollout = envs.rollout(steps, policy)
        assert len(rollout) == steps
        for name, value in expected.items():
            same(getattr(rollout, name), value, f"{name} of {steps}")
        same(rollout.next_observations, shown)
        ends += int((rollout.terminations | rollout.truncations).sum())
        rewarded += np.count_nonzero(rollout.rewards)
        if mode is AutoresetMode.NEXT_STEP:
            over = (rollout.terminations | rollout.truncations)[:-1]
            np.testing.assert_array_equal(rollout.resets[1:], over)
        else:
            assert not rollout.resets.any()
        # Steps in between, of whatever is ahead.
        actions = np.zeros(4, np.int64)
        shown, *_, info = other.step(actions)
        same(envs.step(actions)[0], shown)
    # Sixty short steps of a game bring nobody to its end; at random nobody plays like a player.
    assert rewarded > 0 or (policy is not None and reward == "imitation") or not ends
    assert ends >= (0 if mode is AutoresetMode.DISABLED else 8)


def test_a_rollout_is_not_begun_where_it_cannot_be_ended() -> None:
    envs = SC2ReplayVectorEnv(SOME, num_envs=2, autoreset_mode="Disabled", max_episode_steps=9)
    with pytest.raises(ResetNeeded, match="before rollout"):
        envs.rollout(3)
    envs.reset(seed=0)
    with pytest.raises(ResetNeeded, match="9 steps left"):
        envs.rollout(10)
    rollout = envs.rollout(9)
    assert rollout.truncations[-1].all()
    with pytest.raises(ResetNeeded, match="0 steps left"):
        envs.rollout(1)
    with pytest.raises(ValueError, match="steps must be a whole number, 1 or more"):
        plain_envs = plain(2)
        plain_envs.reset(seed=0)
        plain_envs.rollout(0)


def test_a_rollout_that_is_held_stays() -> None:
    envs = SC2ReplayVectorEnv(SOME, num_envs=2, prefetch=1)
    envs.reset(seed=0)
    first = envs.rollout(20)
    part = first.observations[3:5, 1]
    address, was = first.observations.ctypes.data, part.copy()
    del first
    second = envs.rollout(20)
    np.testing.assert_array_equal(part, was)
    assert not np.shares_memory(second.observations, part)
    other = second.observations.ctypes.data
    assert other != address
    del second
    assert envs.rollout(20).observations.ctypes.data == other


def test_a_rollout_says_what_is_in_it() -> None:
    envs = SC2ReplayVectorEnv(SOME, num_envs=2, observe=["player", "game_loop"])
    envs.reset(seed=0)
    rollout: Rollout = envs.rollout(3)
    assert "player: int32[3, 2, 11]" in repr(rollout)
    assert "rewards=float64[3, 2]" in repr(rollout)


def test_preloading_decodes_everything_that_fits() -> None:
    envs = SC2ReplayVectorEnv(SOME, num_envs=2, step_mul=77)
    before = envs.cache_info()
    after = envs.preload()
    assert after.replays - before.replays == len(SOME)
    misses = after.misses
    envs.reset(seed=0)
    assert envs.cache_info().misses == misses
    small = SC2ReplayVectorEnv(SOME, num_envs=2, step_mul=78, cache_bytes=2 * 10**5)
    kept = small.preload()
    assert 0 < kept.nbytes <= 2 * 10**5
