# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Frames from tracks: the segments that cover a loop, drawn into layers and listed in a table.

Checks are off because no index comes from outside unchecked: block lists and segments are made by
`tracks.build`, unit types index tables of which `TrackSource` checks the length, and pixels are
clamped to the layer.
"""

from libc.math cimport floor
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.string cimport memset

from sc2gym._fast.frame cimport (
    PLAYER_FIELDS, Frames, FrameSource, Layout, Row, fill_function,
)
from sc2gym._fast.tracks cimport BLOCK_LOOPS, MAX_OWNER, Segment, Tracks

import numpy as np

# Layers and columns that tracks can fill, by their ids in `sc2gym.spaces`.
cdef enum Layer:
    CAMERA = 3
    PLAYER_ID = 4
    PLAYER_RELATIVE = 5
    SELECTED = 6
    ALERTS = 7
    UNIT_DENSITY = 10
    BUILD_PROGRESS = 11
    UNIT_CLASS = 12

cdef enum Column:
    UNIT_TYPE = 0
    ALLIANCE = 1
    PROGRESS = 6
    DISPLAY_TYPE = 10
    OWNER = 11
    X = 12
    Y = 13
    RADIUS = 15
    IS_SELECTED = 17

cdef enum:
    VISIBLE = 1                 # DisplayType.Visible
    MAX_DRAWN = 4096            # units drawn in a frame; the rest of an absurd file is not
    ALERT_LOOPS = 160           # for how long a loss is shown
    SELF = 1

cdef struct View:
    const Segment* segments
    const int32_t* block_start
    const int32_t* block_segments
    Py_ssize_t num_blocks
    const int64_t* unit_tags
    const int32_t* type_id      # tables by unit type
    const uint8_t* type_class
    const float* type_radius
    const float* build_loops
    Py_ssize_t larva, warp_gate, first_army_class, last_army_class
    uint8_t[MAX_OWNER + 1] relation     # player_relative by owner
    int32_t map_width, map_height
    # Step functions of this side: loops from which a row holds, ascending, and the rows.
    const int32_t* stat_loops
    const int32_t* stats        # (n, PLAYER_FIELDS)
    Py_ssize_t num_stats
    const int32_t* upgrade_loops
    const int32_t* upgrades
    Py_ssize_t num_upgrades
    const int32_t* camera_loops
    const float* cameras        # (n, 2)
    Py_ssize_t num_cameras
    const int32_t* selections   # (n, 3): loop, first, count
    Py_ssize_t num_selections
    const int32_t* selected
    const int32_t* losses       # (n, 3): loop, and the cell
    Py_ssize_t num_losses

# Half of what a player sees of the map around the camera's centre, in cells.
cdef float CAMERA_HALF_WIDTH = 14.0
cdef float CAMERA_HALF_HEIGHT = 10.0


cdef inline Py_ssize_t _last(const int32_t* rows, Py_ssize_t count, int stride, int32_t loop
                             ) noexcept nogil:
    # The last row whose loop is not after `loop`; -1 for none.
    cdef Py_ssize_t low = 0, high = count, middle
    while low < high:
        middle = (low + high) >> 1
        if rows[middle * stride] <= loop:
            low = middle + 1
        else:
            high = middle
    return low - 1


cdef inline int _clamp(float value, int size) noexcept nogil:
    cdef int whole
    if not value > 0:
        return 0
    if value >= size:
        return size - 1
    whole = <int>value
    return whole


cdef struct Marks:
    # The units of one frame, ready to draw.
    int count
    int32_t[MAX_DRAWN] pixel
    int32_t[MAX_DRAWN] segment
    uint8_t[MAX_DRAWN] half     # half the side of the square that a unit covers, in pixels
    uint8_t[MAX_DRAWN] chosen


cdef void _collect(const View* view, int32_t loop, const Layout* layout, Marks* marks
                   ) noexcept nogil:
    cdef Py_ssize_t block = loop // BLOCK_LOOPS, i
    cdef Py_ssize_t row = _last(view.selections, view.num_selections, 3, loop)
    cdef const int32_t* chosen = NULL
    cdef const int32_t* chosen_end = NULL
    cdef const Segment* s
    cdef float scale, top, moved
    cdef int count = 0, index, width = layout.minimap_width, height = layout.minimap_height
    marks.count = 0
    if loop < 0 or block >= view.num_blocks:
        return
    if row >= 0:
        chosen = view.selected + view.selections[row * 3 + 1]
        chosen_end = chosen + view.selections[row * 3 + 2]
    scale, top = _scale(view, layout), view.map_height
    for i in range(view.block_start[block], view.block_start[block + 1]):
        index = view.block_segments[i]
        s = &view.segments[index]
        if loop < s.begin or loop >= s.end:
            continue
        moved = min(loop - s.begin, s.moving)
        marks.pixel[count] = (
            _clamp((top - s.y - s.vy * moved) * scale, height) * width
            + _clamp((s.x + s.vx * moved) * scale, width)
        )
        marks.segment[count] = index
        marks.half[count] = <uint8_t>min(view.type_radius[s.type] * scale, 60.0)
        # Both the block's list and the selection are in order of the units' ordinals.
        while chosen < chosen_end and chosen[0] < s.unit:
            chosen += 1
        marks.chosen[count] = chosen < chosen_end and chosen[0] == s.unit
        count += 1
        if count == MAX_DRAWN:
            break
    marks.count = count


cdef inline float _scale(const View* view, const Layout* layout) noexcept nogil:
    # As pysc2: the whole map, scaled alike in both directions so that it fits.
    cdef float x = <float>layout.minimap_width / view.map_width
    cdef float y = <float>layout.minimap_height / view.map_height
    return min(x, y)


cdef inline uint8_t _progress(const View* view, const Segment* s, int32_t loop) noexcept nogil:
    # Percent built, by how long the type takes; 99 until it is known to be done.
    cdef float whole
    if s.building < 0:
        return 100
    whole = view.build_loops[s.type]
    if whole <= 0:
        return 0
    return <uint8_t>min(99.0, 100.0 * (loop - s.building) / whole)


cdef inline uint8_t _value(const View* view, int layer, const Marks* marks, int i, int32_t loop
                           ) noexcept nogil:
    cdef const Segment* s = &view.segments[marks.segment[i]]
    if layer == PLAYER_RELATIVE:
        return view.relation[s.owner]
    if layer == UNIT_CLASS:
        return view.type_class[s.type]
    if layer == PLAYER_ID:
        return 16 if s.owner == 0 else s.owner      # as pysc2 numbers neutral units
    if layer == BUILD_PROGRESS:
        return 0 if s.building < 0 else _progress(view, s, loop)
    return marks.chosen[i]


cdef void _square(uint8_t* plane, const Layout* layout, int pixel, int half, uint8_t value
                  ) noexcept nogil:
    cdef int width = layout.minimap_width, x = pixel % width, y = pixel // width, row
    cdef int left = max(x - half, 0), right = min(x + half, width - 1)
    for row in range(max(y - half, 0), min(y + half, layout.minimap_height - 1) + 1):
        memset(plane + row * width + left, value, right - left + 1)


cdef void _draw(const View* view, int layer, int32_t loop, const Layout* layout,
                const Marks* marks, uint8_t* plane) noexcept nogil:
    cdef int i
    cdef uint8_t value
    cdef const Segment* segments = view.segments
    if layer == CAMERA:
        _draw_camera(view, loop, layout, plane)
    elif layer == ALERTS:
        _draw_losses(view, loop, layout, plane)
    elif layer == UNIT_DENSITY:
        for i in range(marks.count):
            plane[marks.pixel[i]] += plane[marks.pixel[i]] < 255
    elif layer == PLAYER_RELATIVE or layer == UNIT_CLASS or layer == PLAYER_ID:
        for i in range(marks.count):
            value = _value(view, layer, marks, i, loop)
            if marks.half[i] == 0:
                plane[marks.pixel[i]] = value
            else:
                _square(plane, layout, marks.pixel[i], marks.half[i], value)
    elif layer == SELECTED or layer == BUILD_PROGRESS:
        for i in range(marks.count):
            value = _value(view, layer, marks, i, loop)
            if value:
                _square(plane, layout, marks.pixel[i], marks.half[i], value)


cdef void _draw_camera(const View* view, int32_t loop, const Layout* layout, uint8_t* plane
                       ) noexcept nogil:
    cdef Py_ssize_t row = _last(view.camera_loops, view.num_cameras, 1, loop)
    cdef float scale = _scale(view, layout), x, y
    cdef int left, right, top, bottom, line
    if row < 0:
        return
    x, y = view.cameras[2 * row], view.map_height - view.cameras[2 * row + 1]
    left = _clamp((x - CAMERA_HALF_WIDTH) * scale, layout.minimap_width)
    right = _clamp((x + CAMERA_HALF_WIDTH) * scale, layout.minimap_width)
    top = _clamp((y - CAMERA_HALF_HEIGHT) * scale, layout.minimap_height)
    bottom = _clamp((y + CAMERA_HALF_HEIGHT) * scale, layout.minimap_height)
    for line in range(top, bottom + 1):
        memset(plane + line * layout.minimap_width + left, 1, right - left + 1)


cdef void _draw_losses(const View* view, int32_t loop, const Layout* layout, uint8_t* plane
                       ) noexcept nogil:
    cdef Py_ssize_t row = _last(view.losses, view.num_losses, 3, loop)
    cdef float scale = _scale(view, layout)
    while row >= 0 and view.losses[3 * row] > loop - ALERT_LOOPS:
        plane[
            _clamp((view.map_height - view.losses[3 * row + 2] - 0.5) * scale,
                   layout.minimap_height) * layout.minimap_width
            + _clamp((view.losses[3 * row + 1] + 0.5) * scale, layout.minimap_width)
        ] = 1
        row -= 1


cdef void _list(const View* view, int32_t loop, const Layout* layout, const Row* row,
                const Marks* marks) noexcept nogil:
    cdef int count = min(marks.count, layout.max_units), i, c, column
    cdef const Segment* s
    cdef float moved, value
    cdef float* cell = row.units
    if row.unit_count != NULL:
        row.unit_count[0] = count
    for i in range(count):
        s = &view.segments[marks.segment[i]]
        moved = min(loop - s.begin, s.moving)
        if row.unit_tags != NULL:
            row.unit_tags[i] = view.unit_tags[s.unit]
        if row.units == NULL:
            continue
        for c in range(layout.num_columns):
            column = layout.columns[c]
            if column == UNIT_TYPE:
                value = view.type_id[s.type]
            elif column == ALLIANCE:
                value = view.relation[s.owner]
            elif column == X:
                value = s.x + s.vx * moved
            elif column == Y:
                value = view.map_height - (s.y + s.vy * moved)
            elif column == OWNER:
                value = 16 if s.owner == 0 else s.owner
            elif column == PROGRESS:
                value = _progress(view, s, loop)
            elif column == RADIUS:
                value = view.type_radius[s.type]
            elif column == IS_SELECTED:
                value = marks.chosen[i]
            elif column == DISPLAY_TYPE:
                value = VISIBLE
            else:
                value = 0
            cell[0] = value
            cell += 1
    if row.units != NULL:
        memset(cell, 0, <size_t>(layout.max_units - count) * layout.num_columns * sizeof(float))
    if row.unit_tags != NULL:
        memset(row.unit_tags + count, 0, <size_t>(layout.max_units - count) * sizeof(int64_t))


cdef void _player(const View* view, int32_t loop, const Marks* marks, int32_t* player
                  ) noexcept nogil:
    cdef Py_ssize_t row = _last(view.stat_loops, view.num_stats, 1, loop)
    cdef const Segment* s
    cdef int i
    cdef uint8_t of_class
    for i in range(PLAYER_FIELDS):
        player[i] = view.stats[row * PLAYER_FIELDS + i] if row >= 0 else 0
    player[8] = player[9] = player[10] = 0
    for i in range(marks.count):
        s = &view.segments[marks.segment[i]]
        if view.relation[s.owner] != SELF or s.building >= 0:
            continue
        of_class = view.type_class[s.type]
        player[8] += view.first_army_class <= of_class <= view.last_army_class
        player[9] += s.type == view.warp_gate
        player[10] += s.type == view.larva


cdef int fill_from_tracks(const void* data, int32_t loop, const Layout* layout, const Row* row
                          ) noexcept nogil:
    cdef const View* view = <const View*>data
    cdef Marks marks
    cdef Py_ssize_t plane_size = <Py_ssize_t>layout.minimap_height * layout.minimap_width
    cdef Py_ssize_t i
    cdef int layer
    if row.minimap != NULL or row.units != NULL or row.unit_tags != NULL or row.player != NULL \
            or row.unit_count != NULL:
        _collect(view, loop, layout, &marks)
    if row.minimap != NULL:
        memset(row.minimap, 0, plane_size * layout.num_layers)
        for layer in range(layout.num_layers):
            _draw(view, layout.layers[layer], loop, layout, &marks,
                  row.minimap + layer * plane_size)
    if row.units != NULL or row.unit_tags != NULL or row.unit_count != NULL:
        _list(view, loop, layout, row, &marks)
    if row.player != NULL:
        _player(view, loop, &marks, row.player)
    if row.upgrades != NULL:
        memset(row.upgrades, 0, layout.num_upgrades)
        for i in range(_last(view.upgrade_loops, view.num_upgrades, 1, loop) + 1):
            if 0 <= view.upgrades[i] < layout.num_upgrades:
                row.upgrades[view.upgrades[i]] = 1
    if row.game_loop != NULL:
        row.game_loop[0] = loop
    return 0


cdef class TrackSource(FrameSource):
    """Frames of one player's side of a game.

    Args:
        tracks: The game's units.
        types: Tables by unit type: int32 API id, uint8 class, float32 radius (cells), float32
            build time (loops).
        special: Types of larva and warp gate, first and last class that counts as army.
        relation: uint8 (17,), pysc2's player_relative by owner.
        map_size: (width, height) in cells, both positive.
        stats: int32 (n,) loops and int32 (n, 11) rows of pysc2's player vector.
        upgrades: int32 (n,) loops and int32 (n,) places in the upgrade vector.
        cameras: int32 (n,) loops and float32 (n, 2) centres in cells.
        selections: int32 (n, 3) of (loop, first, count) and int32 ordinals of units.
        losses: int32 (n, 3) of (loop, x, y).

    All loops ascend; a row holds from its loop on.
    """

    cdef View view
    cdef Tracks tracks
    cdef tuple kept

    def __cinit__(self, Tracks tracks, types, special, relation, map_size, stats, upgrades,
                  cameras, selections, losses):
        cdef View* view = &self.view
        memset(view, 0, sizeof(View))
        self.tracks = tracks
        self.kept = (types, relation, stats, upgrades, cameras, selections, losses)
        view.segments = tracks.segments
        view.block_start = tracks.block_start
        view.block_segments = tracks.block_segments
        view.num_blocks = tracks.num_blocks
        cdef const int64_t[::1] unit_tags = tracks.unit_tags
        view.unit_tags = &unit_tags[0] if unit_tags.shape[0] else NULL
        cdef const int32_t[::1] type_id = types[0]
        cdef const uint8_t[::1] type_class = types[1]
        cdef const float[::1] radius = types[2]
        cdef const float[::1] build_loops = types[3]
        used = tracks.segment_table["type"]
        if not type_id.shape[0] == type_class.shape[0] == radius.shape[0] == build_loops.shape[0]:
            raise ValueError("tables by unit type must be of one length")
        if len(used) and not 0 <= used.min() <= used.max() < type_id.shape[0]:
            raise ValueError("tracks have unit types beyond the tables")
        view.type_id = &type_id[0]
        view.type_class = &type_class[0]
        view.type_radius = &radius[0]
        view.build_loops = &build_loops[0]
        view.larva, view.warp_gate, view.first_army_class, view.last_army_class = special
        for owner in range(MAX_OWNER + 1):
            view.relation[owner] = relation[owner]
        view.map_width, view.map_height = map_size
        if view.map_width <= 0 or view.map_height <= 0:
            raise ValueError("the map must have a size")
        cdef const int32_t[::1] loops
        cdef const int32_t[::1] flat
        cdef const float[::1] places
        loops, flat = stats[0], stats[1].reshape(-1)
        if flat.shape[0] != loops.shape[0] * PLAYER_FIELDS:
            raise ValueError("stats need a row a loop")
        view.num_stats = loops.shape[0]
        view.stat_loops = &loops[0] if view.num_stats else NULL
        view.stats = &flat[0] if view.num_stats else NULL
        loops, flat = upgrades
        if flat.shape[0] != loops.shape[0]:
            raise ValueError("upgrades need a place a loop")
        view.num_upgrades = loops.shape[0]
        view.upgrade_loops = &loops[0] if view.num_upgrades else NULL
        view.upgrades = &flat[0] if view.num_upgrades else NULL
        loops, places = cameras[0], cameras[1].reshape(-1)
        if places.shape[0] != 2 * loops.shape[0]:
            raise ValueError("cameras need a centre a loop")
        view.num_cameras = loops.shape[0]
        view.camera_loops = &loops[0] if view.num_cameras else NULL
        view.cameras = &places[0] if view.num_cameras else NULL
        rows, ordinals = selections
        if len(rows) and (rows[:, 1:].min() < 0 or (rows[:, 1] + rows[:, 2]).max() > len(ordinals)):
            raise ValueError("selections reach beyond their units")
        flat, loops = rows.reshape(-1), ordinals
        view.num_selections = flat.shape[0] // 3
        view.selections = &flat[0] if view.num_selections else NULL
        view.selected = &loops[0] if loops.shape[0] else NULL
        flat = losses.reshape(-1)
        view.num_losses = flat.shape[0] // 3
        view.losses = &flat[0] if view.num_losses else NULL
        self.fill = fill_from_tracks
        self.data = view

    @property
    def nbytes(self):
        """Bytes of memory of this side alone; the tracks are shared by all sides."""
        _, _, stats, upgrades, cameras, selections, losses = self.kept
        arrays = (*stats, *upgrades, *cameras, selections[0], losses)
        return sum(array.nbytes for array in arrays)


cdef void* _address(array, size_t itemsize, Py_ssize_t size) except? NULL:
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError("frames go into writable C-contiguous arrays")
    if array.itemsize != itemsize or array.size != size:
        raise ValueError(f"an array of {array.size} items of {array.itemsize} bytes where "
                         f"{size} of {itemsize} belong")
    return <void*><size_t>array.ctypes.data


def fill_frame(FrameSource source, int game_loop, Frames frames, dict arrays):
    """Fills one frame into arrays by observation key; others are left alone.

    Args:
        source: Where frames come from.
        game_loop: Which one.
        frames: The layout.
        arrays: {key: array}, each C-contiguous, with the shape and dtype of its space.

    Raises:
        ValueError: An array of another size, dtype or order, or an unknown key.
    """
    cdef Row row
    cdef Layout* layout = &frames.layout
    memset(&row, 0, sizeof(Row))
    for key, array in arrays.items():
        if key == "minimap":
            row.minimap = <uint8_t*>_address(
                array, 1, layout.num_layers * layout.minimap_height * layout.minimap_width)
        elif key == "units":
            row.units = <float*>_address(array, 4, layout.max_units * layout.num_columns)
        elif key == "unit_tags":
            row.unit_tags = <int64_t*>_address(array, 8, layout.max_units)
        elif key == "unit_count":
            row.unit_count = <int32_t*>_address(array, 4, 1)
        elif key == "player":
            row.player = <int32_t*>_address(array, 4, PLAYER_FIELDS)
        elif key == "upgrades":
            row.upgrades = <uint8_t*>_address(array, 1, layout.num_upgrades)
        elif key == "game_loop":
            row.game_loop = <int32_t*>_address(array, 4, 1)
        else:
            raise ValueError(f"no observation key {key!r}")
    cdef int code
    with nogil:
        code = source.fill(source.data, game_loop, layout, &row)
    return code
