"""Decoding recorded observations, beside the protobuf library and pysc2.

    python benchmarks/wire.py [FOLDER] [--rounds 9]

FOLDER holds serialized `*.ResponseObservation.pb` messages (by default the tests' data). For each:

    parse       protobuf's C library (upb), bytes to message, no value looked at
    decode      the same bytes into tables of all values, layers left as views of the bytes
    pysc2       `Features.transform_obs` of the parsed message, parsing not counted
    views       decode and unit features, for the same arrays, layers as they lie in the message
    arrays      decode, unit features and, where there are layers, all of them widened to int32
    copy        a plain copy of the bytes that are used: for decode those of the message without
                its images, for arrays those of the message read and of the arrays written

Memory is the caller's and used again. Figures are medians of rounds that take turns.
Needs `pip install "sc2gym[game]"`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from sc2gym.features import (
    MINIMAP_LAYERS,
    SCREEN_LAYERS,
    UNIT_FEATURES,
    FeatureReader,
    View,
    raw_functions,
)
from sc2gym.game import load_pysc2
from sc2gym.observation import decode

DATA = Path(os.environ.get("SC2GYM_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data")
MAP_SIZE = (184, 184)


def measure(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Microseconds of each function, the median of rounds of about five milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    counts = {}
    for name, function in functions.items():
        function()
        start = time.perf_counter()
        function()
        counts[name] = max(1, int(5e-3 / (time.perf_counter() - start)))
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                function()
            times[name].append((time.perf_counter() - start) / counts[name])
    return {name: 1e6 * median(values) for name, values in times.items()}


def functions_of(wire: bytes) -> dict[str, Callable[[], object]]:
    from pysc2.lib import features, point
    from s2clientprotocol import sc2api_pb2

    parse = sc2api_pb2.ResponseObservation.FromString
    message, observation = parse(wire), decode(wire)
    height, width = next((p.shape for p in observation.feature_screen.values()), (0, 0))
    layers = features.Dimensions(screen=(width, height), minimap=(width, height)) if width else None
    transformer = features.Features(
        features.AgentInterfaceFormat(
            feature_dimensions=layers,
            camera_width_world_units=24,
            use_raw_units=True,
            use_raw_actions=True,
        ),
        map_size=point.Point(*MAP_SIZE),
    )

    reader = FeatureReader(View(MAP_SIZE), raw_functions())
    units = np.empty((len(observation.units), len(UNIT_FEATURES)), np.int64)
    screen = np.empty((len(SCREEN_LAYERS), height, width), np.int32)
    minimap = np.empty((len(MINIMAP_LAYERS), height, width), np.int32)

    def views() -> None:
        reader.read(wire)
        reader.raw_units(units)

    def arrays() -> None:
        views()
        if width:
            reader.feature_screen(screen)
            reader.feature_minimap(minimap)

    o = message.observation
    images = [
        len(image.data)
        for group in (
            o.feature_layer_data.renders,
            o.feature_layer_data.minimap_renders,
            o.raw_data.map_state,
        )
        for _, image in group.ListFields()
    ]
    used = len(wire) - sum(images)
    written = units.nbytes + (screen.nbytes + minimap.nbytes if width else 0)
    return {
        "parse": lambda: parse(wire),
        "decode": lambda: reader.read(wire),
        "pysc2": lambda: transformer.transform_obs(message),
        "views": views,
        "arrays": arrays,
        "copy used": copy_of(used),
        "copy all": copy_of((len(wire) if width else used) + written),
    }


def copy_of(size: int) -> Callable[[], object]:
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    return lambda: np.copyto(target, source)


def main() -> None:
    parser = argparse.ArgumentParser(description="Decoding speed, beside protobuf and pysc2.")
    parser.add_argument("folder", nargs="?", type=Path, default=DATA / "observations")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    load_pysc2()
    paths = sorted(options.folder.rglob("*.ResponseObservation.pb"))
    if not paths:
        print(f"nothing to measure: no *.ResponseObservation.pb in {options.folder}")
        return

    print("times in microseconds; x: so many times faster; /copy: so many times a plain copy\n")
    heads = ("parse", "decode", "x", "/copy", "pysc2", "views", "x", "arrays", "x", "/copy")
    print(f"{'message':24}{'bytes':>8}" + "".join(f"{head:>8}" for head in heads))
    for path in paths:
        wire = path.read_bytes()
        t = measure(functions_of(wire), options.rounds)
        cells = (
            f"{t['parse']:8.1f}{t['decode']:8.1f}{t['parse'] / t['decode']:8.1f}",
            f"{t['decode'] / t['copy used']:8.1f}",
            f"{t['pysc2']:8.0f}{t['views']:8.1f}{t['pysc2'] / t['views']:8.0f}",
            f"{t['arrays']:8.1f}{t['pysc2'] / t['arrays']:8.0f}{t['arrays'] / t['copy all']:8.1f}",
        )
        print(f"{path.name.split('.')[0]:24}{len(wire):8}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
