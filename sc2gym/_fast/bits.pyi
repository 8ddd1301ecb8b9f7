from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

KINDS: dict[str, int]
NODE: np.dtype[np.void]
FIELD: np.dtype[np.void]
INDEX: np.dtype[np.void]

_Columns: TypeAlias = tuple[npt.NDArray[np.void], list[npt.NDArray[np.void]]]
Plan: TypeAlias = tuple[int, Types, npt.NDArray[np.void], list[npt.NDArray[np.void]]]

class Types:
    names: list[str]
    def __init__(
        self, nodes: npt.NDArray[np.void], fields: npt.NDArray[np.void], names: list[str]
    ) -> None: ...
    def decode(
        self,
        data: bytes,
        type_id: int,
        versioned: bool,
        what: str,
        whole: bool = True,
        wanted: frozenset[str] | None = None,
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
        plans: list[Plan] = ...,
    ) -> tuple[
        npt.NDArray[np.void], npt.NDArray[np.int32], npt.NDArray[np.int32], list[_Columns]
    ]: ...
    def fill(
        self,
        data: bytes,
        versioned: bool,
        index: npt.NDArray[np.void],
        places: npt.NDArray[np.int32],
        users: bool,
        null: npt.NDArray[np.void],
        child_nulls: list[npt.NDArray[np.void]],
        what: str,
    ) -> _Columns: ...
