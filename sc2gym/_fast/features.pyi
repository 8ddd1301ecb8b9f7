from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sc2gym._fast.wire import Decoder

class FeatureUnits:
    def __init__(self, decoder: Decoder, functions: npt.NDArray[np.int32]) -> None: ...
    def count(self, passengers: bool = False) -> int: ...
    def fill(
        self,
        out: npt.NDArray[np.int64],
        view: Sequence[float],
        *,
        on_screen: bool = False,
        tags: bool = True,
        passengers: bool = False,
    ) -> int: ...

def fill_planes(
    decoder: Decoder,
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    out: npt.NDArray[Any],
) -> None: ...
