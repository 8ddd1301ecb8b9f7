"""The base of frame sources, and the layout that all rows of a batch share."""


cdef class FrameSource:
    """Anything that can fill a frame at a game loop. Subclasses set `fill` and `data`."""


cdef class Frames:
    """The layout of frames: which layers and columns, and how large.

    Args:
        layers: Layer ids, at most 32.
        minimap_size: (height, width) of the minimap in pixels.
        columns: Unit column ids, at most 64.
        max_units: Rows of the unit table.
        num_upgrades: Length of the upgrade vector.
    """

    def __cinit__(self, layers, minimap_size, columns, int max_units, int num_upgrades):
        if len(layers) > MAX_LAYERS or len(columns) > MAX_COLUMNS:
            raise ValueError(f"at most {MAX_LAYERS} layers and {MAX_COLUMNS} columns")
        self.layout.minimap_height, self.layout.minimap_width = minimap_size
        self.layout.num_layers = len(layers)
        for i, layer in enumerate(layers):
            self.layout.layers[i] = layer
        self.layout.num_columns = len(columns)
        for i, column in enumerate(columns):
            self.layout.columns[i] = column
        self.layout.max_units = max_units
        self.layout.num_upgrades = num_upgrades
