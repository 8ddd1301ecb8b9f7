import numpy as np
import numpy.typing as npt

OP: np.dtype[np.void]
COMMAND_OP: np.dtype[np.void]
SEGMENT: np.dtype[np.void]

class Tracks:
    segment_table: npt.NDArray[np.void]
    unit_tags: npt.NDArray[np.int64]
    unit_births: npt.NDArray[np.int32]
    blocks: tuple[npt.NDArray[np.int32], ...]
    selections: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
    bad_references: int
    def __init__(
        self,
        segment_table: npt.NDArray[np.void],
        unit_tags: npt.NDArray[np.int64],
        unit_births: npt.NDArray[np.int32],
        selections: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]],
        bad_references: int,
    ) -> None: ...
    def at(self, loop: int) -> npt.NDArray[np.void]: ...
    @property
    def nbytes(self) -> int: ...

def build(
    ops: npt.NDArray[np.void],
    commands: npt.NDArray[np.void],
    mask_data: npt.NDArray[np.uint8],
    mask_indices: npt.NDArray[np.int32],
    tags: npt.NDArray[np.uint32],
    owner_of_user: npt.NDArray[np.int8],
    speed: npt.NDArray[np.float32],
    end: int,
) -> Tracks: ...
