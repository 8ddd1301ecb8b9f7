from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

KINDS: dict[str, int]
NODE: np.dtype[np.void]
FIELD: np.dtype[np.void]
INDEX: np.dtype[np.void]

class Types:
    names: list[str]
    def __init__(
        self, nodes: npt.NDArray[np.void], fields: npt.NDArray[np.void], names: list[str]
    ) -> None: ...
    def decode(
        self, data: bytes, type_id: int, versioned: bool, what: str, whole: bool = True
    ) -> Any: ...
    def index(
        self,
        data: bytes,
        versioned: bool,
        event_types: Mapping[int, int],
        event_id_type: int,
        loop_type: int,
        user_type: int,
        what: str,
    ) -> npt.NDArray[np.void]: ...
    def fill(
        self,
        data: bytes,
        versioned: bool,
        offsets: npt.NDArray[np.int64],
        records: npt.NDArray[np.void],
        children: list[npt.NDArray[np.void]],
        what: str,
    ) -> list[npt.NDArray[np.void]]: ...
