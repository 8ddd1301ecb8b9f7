from collections.abc import Sequence

class FrameSource: ...

class Frames:
    def __init__(
        self,
        layers: Sequence[int],
        minimap_size: tuple[int, int],
        columns: Sequence[int],
        max_units: int,
        num_upgrades: int,
    ) -> None: ...
