from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

GIVEN: np.dtype[np.void]

def commands(
    cmd: npt.NDArray[np.void],
    point: npt.NDArray[np.void],
    unit: npt.NDArray[np.void],
    again: npt.NDArray[np.void],
    end: int,
) -> npt.NDArray[np.void]: ...
def orders(
    delta: npt.NDArray[np.void],
    group: npt.NDArray[np.void],
    given: npt.NDArray[np.void],
    motions: npt.NDArray[np.int8],
    functions: npt.NDArray[np.int32],
    indices: list[npt.NDArray[np.void]],
    end: int,
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int32]]: ...
def operations(
    tables: list[npt.NDArray[np.void] | None],
    positions: npt.NDArray[np.void] | None,
    items: npt.NDArray[np.void] | None,
    data: bytes,
    types: Mapping[bytes, int],
    scale: float,
    offset: float,
    end: int,
) -> tuple[npt.NDArray[np.void], int]: ...
