from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from sc2gym._fast.frame import FrameSource
from sc2gym._fast.wire import Decoder

class WireSource(FrameSource):
    failure: Exception | None
    def __init__(
        self,
        decoder: Decoder,
        functions: npt.NDArray[np.int32],
        load: Callable[[int], Buffer],
        game_loops: npt.NDArray[np.int32],
        map_size: tuple[int, int],
        images: npt.NDArray[np.int64],
        player: npt.NDArray[np.int64],
        types: npt.NDArray[np.uint8],
        upgrades: npt.NDArray[np.int32],
        grids: npt.NDArray[np.uint8] | None = None,
    ) -> None: ...
