"""Stepping 16 recorded environments: steps a second, the share of unpacking, bytes on disk.

    python benchmarks/recordings.py [--num-envs 16] [--steps 400] [--frames 300]

Recordings are made from the real observations of SC2GYM_TEST_DATA (or ../shared/data): eight maps
with raw units, and one observation with all feature layers at 128x128. From frame to frame most
units stand, and some walk, as in a game. Needs the extra `game`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import sc2gym  # noqa: F401  (registers the environment)
from sc2gym.game import load_schemas
from sc2gym.recording import Recording, RecordingInfo, RecordingWriter, Sizes

DATA = os.environ.get("SC2GYM_TEST_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
OBSERVATIONS = Path(DATA) / "observations"
WALKING = 0.3  # share of units that walk
STEP_MUL = 8

sc2api = load_schemas()


def frames(observation: Path, count: int, seed: int) -> Iterator[bytes]:
    message = sc2api.ResponseObservation.FromString(observation.read_bytes())
    generator = np.random.default_rng(seed)
    units = [u for u in message.observation.raw_data.units if u.owner not in (0, 16)]
    walking = [u for u in units if generator.random() < WALKING]
    course = generator.uniform(-1, 1, (len(walking), 2)) * 0.1 * STEP_MUL
    for index in range(count):
        message.observation.game_loop = STEP_MUL * index
        message.observation.player_common.minerals = 50 + index
        for unit, (x, y) in zip(walking, course, strict=True):
            # There and back, so that nobody leaves the map.
            sign = 1 if index // 50 % 2 == 0 else -1
            unit.pos.x += sign * x
            unit.pos.y += sign * y
        yield message.SerializeToString()


def record(observation: Path, game_info: bytes, path: Path, count: int, seed: int) -> Sizes:
    player = {
        "player_id": 1, "user_id": 0, "name": "A", "clan": "", "race": "Zerg", "team": 1,
        "color": (0, 0, 255), "result": "win", "mmr": None, "apm": None, "is_ai": False,
    }  # fmt: skip
    info = RecordingInfo(
        replay=path.stem,
        content_hash=f"{seed:032x}",
        player=1,
        game_version="",
        base_build=0,
        data_version="",
        map_name=path.stem,
        players=(player,),
        loops_per_second=22.4,
        step_mul=STEP_MUL,
        actions=None,
        disable_fog=False,
        interface=b"",
        game_info=game_info,
        replay_info=b"",
    )
    writer = RecordingWriter(path, info)
    with writer:
        for wire in frames(observation, count, seed):
            writer.append(wire)
        return writer.finish()


class Unpacking:
    """Time spent in `Recording.block` while this is entered."""

    def __enter__(self) -> Unpacking:
        self.seconds = 0.0
        self._block = block = Recording.block

        def timed(recording: Recording, index: int) -> Any:
            begun = time.perf_counter()
            try:
                return block(recording, index)
            finally:
                self.seconds += time.perf_counter() - begun

        Recording.block = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Recording.block = self._block  # type: ignore[method-assign]


def step(folder: Path, num_envs: int, steps: int, **options: Any) -> tuple[float, float]:
    """Environment steps a second, and the share of the time that is unpacking."""
    envs = gymnasium.make_vec(
        "SC2Replay-v0", num_envs=num_envs, replays=folder, source="recording", **options
    )
    envs.reset(seed=0)
    actions = np.zeros(num_envs, np.int64)
    for _ in range(5):
        envs.step(actions)
    with Unpacking() as unpacking:
        begun = time.perf_counter()
        for _ in range(steps):
            envs.step(actions)
        seconds = time.perf_counter() - begun
    envs.close()
    return num_envs * steps / seconds, unpacking.seconds / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--frames", type=int, default=300)
    arguments = parser.parse_args()
    maps = sorted((OBSERVATIONS / "maps").glob("*.ResponseObservation.pb"))
    info = sc2api.ResponseGameInfo()
    info.start_raw.map_size.x, info.start_raw.map_size.y = 184, 184
    with tempfile.TemporaryDirectory() as parent:
        units, layers = Path(parent, "units"), Path(parent, "layers")
        units.mkdir()
        layers.mkdir()
        sizes: dict[str, list[Sizes]] = {"raw units": [], "all layers": []}
        for seed in range(arguments.num_envs):
            source = maps[seed % len(maps)]
            about = source.with_name(source.name.replace("Observation", "GameInfo")).read_bytes()
            path = units / f"{seed}.SC2Recording"
            sizes["raw units"].append(record(source, about, path, arguments.frames, seed))
            sizes["all layers"].append(
                record(
                    OBSERVATIONS / "feature_layers_128.ResponseObservation.pb",
                    info.SerializeToString(),
                    layers / f"{seed}.SC2Recording",
                    max(2, arguments.frames // 5),
                    seed,
                )
            )
        print("bytes a frame       raw  alone in a file   recorded")
        for name, each in sizes.items():
            total = sum(size.frames for size in each)
            raw, alone, stored = (
                sum(getattr(size, key) for size in each) / total
                for key in ("raw", "alone", "stored")
            )
            print(f"{name:12} {raw:10,.0f} {alone:16,.0f} {stored:10,.0f}")
        print(f"\n{arguments.num_envs} environments     steps/s   share of unpacking")
        everything = ["minimap", "units", "player", "upgrades", "game_loop"]
        for name, folder in (("raw units", units), ("all layers", layers)):
            for keys in ("minimap", everything):
                rate, share = step(folder, arguments.num_envs, arguments.steps, observe=keys)
                what = "default" if keys == "minimap" else "all keys"
                print(f"{name:11} {what:9} {rate:10,.0f} {share:12.0%}")


if __name__ == "__main__":
    main()
