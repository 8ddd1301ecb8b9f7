from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from sc2gym._fast.wire import Decoder

QUICK: int
POINT: int
UNIT: int
AUTOCAST: int
CAMERA: int

def offset_of(dtype: np.dtype[Any], path: str) -> int: ...
def read_index(
    decoder: Decoder, summaries: Iterable[Buffer], frames: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], dict[int, int]]: ...

class ActionReader:
    def __init__(self, dtype: np.dtype[Any]) -> None: ...
