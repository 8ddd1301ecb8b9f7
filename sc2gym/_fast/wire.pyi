from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from sc2gym.schema import Schema

KINDS: dict[str, int]
FIELD: np.dtype[np.void]
MAX_FIELDS: int

class Decoder:
    schema: Schema
    def __init__(
        self, schema: Schema, tables: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> None: ...
    def read(self, data: Buffer) -> None: ...
    def __getitem__(self, path: str) -> npt.NDArray[Any]: ...
