from typing import Any

import numpy as np
import numpy.typing as npt

from sc2gym._fast.frame import Frames, FrameSource
from sc2gym._fast.tracks import Tracks

_Int32s = npt.NDArray[np.int32]

class TrackSource(FrameSource):
    def __init__(
        self,
        tracks: Tracks,
        types: tuple[
            _Int32s, npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.float32]
        ],
        special: tuple[int, int, int, int],
        relation: npt.NDArray[np.uint8],
        map_size: tuple[int, int],
        stats: tuple[_Int32s, _Int32s],
        upgrades: tuple[_Int32s, _Int32s],
        cameras: tuple[_Int32s, npt.NDArray[np.float32]],
        selections: tuple[_Int32s, _Int32s],
        losses: _Int32s,
    ) -> None: ...
    @property
    def nbytes(self) -> int: ...

def fill_frame(
    source: FrameSource, game_loop: int, frames: Frames, arrays: dict[str, npt.NDArray[Any]]
) -> int: ...
