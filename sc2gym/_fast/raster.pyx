# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Frames from tracks: the segments that cover a loop, drawn into layers and listed in a table.

Checks are off because no index comes from outside unchecked: block lists and segments are made by
`tracks.build`, unit types index tables of which `TrackSource` checks the length, and pixels are
clamped to the layer.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from sc2gym._fast.frame cimport (
    PLAYER_FIELDS, Frames, FrameSource, Layout, Row, Scratch,
)
from sc2gym._fast.tracks cimport BLOCK_LOOPS, MAX_OWNER, PART_LOOPS, Segment, Tracks, place_x, place_y

import numpy as np

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define prefetch(address) __builtin_prefetch(address)
    #define try_lock(flag) (!__atomic_exchange_n(flag, 1, __ATOMIC_ACQUIRE))
    #define unlock(flag) __atomic_store_n(flag, 0, __ATOMIC_RELEASE)
    #else
    #define prefetch(address) ((void)(address))
    #define try_lock(flag) 0
    #define unlock(flag) ((void)(flag))
    #endif
    """
    void prefetch(const void* address) noexcept nogil
    bint try_lock(int* flag) noexcept nogil
    void unlock(int* flag) noexcept nogil

cdef enum:
    AHEAD = 6   # members from which the segment is fetched into the cache beforehand

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
    MAX_RADIUS = 64             # cells; so that no square reaches beyond what an int holds
    MAX_MAP = 1 << 16           # cells

cdef enum:
    VISIBLE = 1                 # DisplayType.Visible
    ALERT_LOOPS = 160           # for how long a loss is shown
    SELF = 1

cdef struct View:
    const Segment* segments
    uint64_t id                 # no other view of the process has it
    const int32_t* still_start
    const int32_t* still
    const int32_t* changing_start
    const int32_t* changing
    Py_ssize_t num_blocks
    const int64_t* unit_tags
    const int32_t* unit_births
    const int32_t* type_id      # tables by unit type
    const uint8_t* type_class
    const float* type_radius
    const float* build_loops
    float largest_radius
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

cdef uint64_t _views = 0


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


cdef inline float _scale(const View* view, const Layout* layout) noexcept nogil:
    # As pysc2: the whole map, scaled alike in both directions so that it fits.
    cdef float x = <float>layout.minimap_width / view.map_width
    cdef float y = <float>layout.minimap_height / view.map_height
    return min(x, y)


cdef inline uint8_t _progress(const View* view, const Segment* s, int32_t loop) noexcept nogil:
    # Percent built, by how long the type takes; 99 until it is known to be done.
    cdef float whole
    if not s.building:
        return 100
    whole = view.build_loops[s.type]
    if whole <= 0:
        return 0
    return <uint8_t>min(99.0, 100.0 * (loop - view.unit_births[s.unit]) / whole)


cdef struct Brush:
    # The planes that units are drawn into; NULL where a layer is not wanted.
    uint8_t* owner
    uint8_t* relation
    uint8_t* density
    uint8_t* progress
    uint8_t* kind
    uint8_t* selected
    uint8_t* camera
    uint8_t* alerts


cdef void _planes(const Layout* layout, uint8_t* minimap, Brush* brush) noexcept nogil:
    cdef Py_ssize_t size = <Py_ssize_t>layout.minimap_height * layout.minimap_width
    cdef uint8_t* plane = minimap
    cdef int i
    memset(brush, 0, sizeof(Brush))
    for i in range(layout.num_layers):
        if layout.layers[i] == PLAYER_ID:
            brush.owner = plane
        elif layout.layers[i] == PLAYER_RELATIVE:
            brush.relation = plane
        elif layout.layers[i] == UNIT_DENSITY:
            brush.density = plane
        elif layout.layers[i] == BUILD_PROGRESS:
            brush.progress = plane
        elif layout.layers[i] == UNIT_CLASS:
            brush.kind = plane
        elif layout.layers[i] == SELECTED:
            brush.selected = plane
        elif layout.layers[i] == CAMERA:
            brush.camera = plane
        elif layout.layers[i] == ALERTS:
            brush.alerts = plane
        plane += size


cdef inline void _raise_to(uint8_t* plane, int pixel, uint8_t value) noexcept nogil:
    if plane != NULL and plane[pixel] < value:
        plane[pixel] = value


cdef inline void _paint_pixel(const View* view, const Segment* s, int32_t loop, int pixel,
                              const Brush* brush) noexcept nogil:
    # Where units share a pixel the highest value shows. So it does not matter which is drawn
    # first, and what stands still can be drawn once for many frames.
    _raise_to(brush.relation, pixel, view.relation[s.owner])
    _raise_to(brush.kind, pixel, view.type_class[s.type])
    if brush.owner != NULL:
        _raise_to(brush.owner, pixel, 16 if s.owner == 0 else s.owner)
    if brush.progress != NULL and s.building:
        _raise_to(brush.progress, pixel, _progress(view, s, loop))


cdef inline int _pixel(const View* view, const Segment* s, int32_t loop, const Layout* layout,
                       float scale) noexcept nogil:
    return (
        _clamp((view.map_height - place_y(s, loop)) * scale, layout.minimap_height)
        * layout.minimap_width + _clamp(place_x(s, loop) * scale, layout.minimap_width)
    )


cdef inline void _paint(const View* view, const Segment* s, int32_t loop, int pixel,
                        const Layout* layout, float scale, bint large, const Brush* brush
                        ) noexcept nogil:
    if brush.density != NULL:
        brush.density[pixel] += brush.density[pixel] < 255
    if large and view.type_radius[s.type] * scale >= 1:
        _paint_square(view, s, loop, pixel, layout, scale, brush)
    else:
        _paint_pixel(view, s, loop, pixel, brush)


cdef void _paint_square(const View* view, const Segment* s, int32_t loop, int pixel,
                        const Layout* layout, float scale, const Brush* brush) noexcept nogil:
    # What covers more than a pixel covers a square.
    cdef int width = layout.minimap_width
    cdef int half = <int>(view.type_radius[s.type] * scale)
    cdef int x = pixel % width, y = pixel // width, row, column
    for row in range(max(y - half, 0), min(y + half, layout.minimap_height - 1) + 1):
        for column in range(max(x - half, 0), min(x + half, width - 1) + 1):
            _paint_pixel(view, s, loop, row * width + column, brush)


cdef void _draw_units(const View* view, Py_ssize_t block, int32_t loop, const Layout* layout,
                      const Row* row) noexcept nogil:
    cdef size_t size = layout.num_layers * layout.minimap_height * layout.minimap_width
    cdef Py_ssize_t i, part = loop // PART_LOOPS
    cdef float scale = _scale(view, layout)
    cdef bint large = view.largest_radius * scale >= 1
    cdef Py_ssize_t last = view.changing_start[part + 1] - 1
    cdef int pixel
    cdef const Segment* s
    cdef Scratch* scratch = row.scratch
    cdef const int32_t* selected
    cdef const int32_t* selected_end
    cdef Brush brush
    _planes(layout, row.minimap, &brush)
    if scratch != NULL and not try_lock(&scratch.busy):
        scratch = NULL
    if scratch != NULL and scratch.owner == view.id and scratch.part == block:
        memcpy(row.minimap, scratch.planes, size)
    else:
        memset(row.minimap, 0, size)
        for i in range(view.still_start[block], view.still_start[block + 1]):
            s = &view.segments[view.still[i]]
            pixel = _pixel(view, s, loop, layout, scale)
            _paint(view, s, loop, pixel, layout, scale, large, &brush)
        if scratch != NULL:
            memcpy(scratch.planes, row.minimap, size)
            scratch.owner, scratch.part = view.id, <int32_t>block
    if scratch != NULL:
        unlock(&scratch.busy)
    selected = selected_end = NULL
    if brush.selected != NULL:
        _selection(view, loop, &selected, &selected_end)
    for i in range(view.changing_start[part], last + 1):
        s = &view.segments[view.changing[i]]
        prefetch(&view.segments[view.changing[min(i + AHEAD, last)]])
        if loop < s.begin or loop >= s.end:
            continue
        pixel = _pixel(view, s, loop, layout, scale)
        _paint(view, s, loop, pixel, layout, scale, large, &brush)
        # Members and selection are both in order of birth. What is selected and not met on
        # the way stands still.
        while selected < selected_end and selected[0] <= s.unit:
            if selected[0] == s.unit:
                brush.selected[pixel] = 1
            else:
                _select_still(view, block, selected[0], loop, layout, scale, brush.selected)
            selected += 1
    while selected < selected_end:
        _select_still(view, block, selected[0], loop, layout, scale, brush.selected)
        selected += 1
    if brush.camera != NULL:
        _draw_camera(view, loop, layout, brush.camera)
    if brush.alerts != NULL:
        _draw_losses(view, loop, layout, brush.alerts)


cdef inline void _selection(const View* view, int32_t loop, const int32_t** first,
                            const int32_t** end) noexcept nogil:
    # The ordinals of what the player has selected, ascending.
    cdef Py_ssize_t row = _last(view.selections, view.num_selections, 3, loop)
    if row < 0:
        first[0] = end[0] = NULL
        return
    first[0] = view.selected + view.selections[3 * row + 1]
    end[0] = first[0] + view.selections[3 * row + 2]


cdef void _select_still(const View* view, Py_ssize_t block, int32_t unit, int32_t loop,
                        const Layout* layout, float scale, uint8_t* plane) noexcept nogil:
    # Finds a unit among those that stand still all through the block; it may be dead.
    cdef Py_ssize_t low = view.still_start[block], high = view.still_start[block + 1], middle
    cdef const Segment* s
    while low < high:
        middle = (low + high) >> 1
        if view.segments[view.still[middle]].unit < unit:
            low = middle + 1
        else:
            high = middle
    if low < view.still_start[block + 1]:
        s = &view.segments[view.still[low]]
        if s.unit == unit:
            plane[_pixel(view, s, loop, layout, scale)] = 1


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
            _clamp((view.map_height - <float>view.losses[3 * row + 2] - 0.5) * scale,
                   layout.minimap_height) * layout.minimap_width
            + _clamp((view.losses[3 * row + 1] + 0.5) * scale, layout.minimap_width)
        ] = 1
        row -= 1


cdef struct Walk:
    # The living units of a loop in order of birth: two runs of members, merged.
    Py_ssize_t still
    Py_ssize_t still_end
    Py_ssize_t changing
    Py_ssize_t changing_end


cdef const Segment* _next(const View* view, Walk* walk, int32_t loop) noexcept nogil:
    cdef const Segment* s = NULL
    cdef const Segment* other
    while walk.changing < walk.changing_end:
        s = &view.segments[view.changing[walk.changing]]
        if s.begin <= loop < s.end:
            break
        walk.changing += 1
    if walk.still == walk.still_end:
        if walk.changing == walk.changing_end:
            return NULL
        walk.changing += 1
        return s
    other = &view.segments[view.still[walk.still]]
    if walk.changing < walk.changing_end and s.unit < other.unit:
        walk.changing += 1
        return s
    walk.still += 1
    return other


cdef Walk _walk(const View* view, Py_ssize_t block, int32_t loop) noexcept nogil:
    cdef Walk walk
    cdef Py_ssize_t part = loop // PART_LOOPS
    walk.still, walk.still_end = view.still_start[block], view.still_start[block + 1]
    walk.changing, walk.changing_end = view.changing_start[part], view.changing_start[part + 1]
    return walk


cdef float _cell(const View* view, const Segment* s, int32_t loop, int column, bint chosen
                 ) noexcept nogil:
    if column == UNIT_TYPE:
        return view.type_id[s.type]
    if column == ALLIANCE:
        return view.relation[s.owner]
    if column == X:
        return place_x(s, loop)
    if column == Y:
        return view.map_height - place_y(s, loop)
    if column == OWNER:
        return 16 if s.owner == 0 else s.owner
    if column == PROGRESS:
        return _progress(view, s, loop)
    if column == RADIUS:
        return view.type_radius[s.type]
    if column == IS_SELECTED:
        return chosen
    return VISIBLE if column == DISPLAY_TYPE else 0


cdef void _list(const View* view, Py_ssize_t block, int32_t loop, const Layout* layout,
                const Row* row) noexcept nogil:
    cdef int count = 0, c
    cdef bint chosen
    cdef const Segment* s
    cdef float* cell = row.units
    cdef Walk walk = _walk(view, block, loop)
    cdef const int32_t* selected = NULL
    cdef const int32_t* selected_end = NULL
    _selection(view, loop, &selected, &selected_end)
    while count < layout.max_units:
        s = _next(view, &walk, loop)
        if s == NULL:
            break
        while selected < selected_end and selected[0] < s.unit:
            selected += 1
        chosen = selected < selected_end and selected[0] == s.unit
        if row.unit_tags != NULL:
            row.unit_tags[count] = view.unit_tags[s.unit]
        if cell != NULL:
            for c in range(layout.num_columns):
                cell[c] = _cell(view, s, loop, layout.columns[c], chosen)
            cell += layout.num_columns
        count += 1
    _end_list(count, layout, row)


cdef void _end_list(int count, const Layout* layout, const Row* row) noexcept nogil:
    cdef size_t rest = layout.max_units - count
    if row.unit_count != NULL:
        row.unit_count[0] = count
    if row.units != NULL:
        memset(row.units + <size_t>count * layout.num_columns, 0,
               rest * layout.num_columns * sizeof(float))
    if row.unit_tags != NULL:
        memset(row.unit_tags + count, 0, rest * sizeof(int64_t))


cdef void _player(const View* view, Py_ssize_t block, int32_t loop, int32_t* player
                  ) noexcept nogil:
    cdef Py_ssize_t row = _last(view.stat_loops, view.num_stats, 1, loop)
    cdef const Segment* s
    cdef int i
    cdef uint8_t of_class
    cdef Walk walk
    for i in range(PLAYER_FIELDS):
        player[i] = view.stats[row * PLAYER_FIELDS + i] if row >= 0 else 0
    player[8] = player[9] = player[10] = 0
    if block < 0:
        return
    walk = _walk(view, block, loop)
    while True:
        s = _next(view, &walk, loop)
        if s == NULL:
            return
        if view.relation[s.owner] == SELF and not s.building:
            of_class = view.type_class[s.type]
            player[8] += view.first_army_class <= of_class <= view.last_army_class
            player[9] += s.type == view.warp_gate
            player[10] += s.type == view.larva


cdef int fill_from_tracks(const void* data, int32_t loop, const Layout* layout, const Row* row
                          ) noexcept nogil:
    cdef const View* view = <const View*>data
    # Beyond the game there are no units: block -1.
    cdef Py_ssize_t block = loop // BLOCK_LOOPS if loop >= 0 else -1
    cdef Py_ssize_t i
    if block >= view.num_blocks:
        block = -1
    if row.minimap != NULL:
        if block >= 0:
            _draw_units(view, block, loop, layout, row)
        else:
            memset(row.minimap, 0, <size_t>(
                layout.num_layers * layout.minimap_height * layout.minimap_width))
    if row.units != NULL or row.unit_tags != NULL or row.unit_count != NULL:
        if block >= 0:
            _list(view, block, loop, layout, row)
        else:
            _end_list(0, layout, row)
    if row.player != NULL:
        _player(view, block, loop, row.player)
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
        global _views
        _views += 1
        view.id = _views
        view.still_start = tracks.still_start
        view.still = tracks.still
        view.changing_start = tracks.changing_start
        view.changing = tracks.changing
        view.num_blocks = tracks.num_blocks
        cdef const int64_t[::1] unit_tags = tracks.unit_tags
        view.unit_tags = &unit_tags[0] if unit_tags.shape[0] else NULL
        cdef const int32_t[::1] unit_births = tracks.unit_births
        view.unit_births = &unit_births[0] if unit_births.shape[0] else NULL
        cdef const int32_t[::1] type_id = types[0]
        cdef const uint8_t[::1] type_class = types[1]
        cdef const float[::1] radius = types[2]
        cdef const float[::1] build_loops = types[3]
        used = tracks.segment_table["type"]
        if not type_id.shape[0] == type_class.shape[0] == radius.shape[0] == build_loops.shape[0]:
            raise ValueError("tables by unit type must be of one length")
        if not type_id.shape[0]:
            raise ValueError("tables by unit type must not be empty")
        if len(used) and not 0 <= used.min() <= used.max() < type_id.shape[0]:
            raise ValueError("tracks have unit types beyond the tables")
        if not (0 <= types[2].min() <= types[2].max() <= MAX_RADIUS):
            raise ValueError(f"radii must be 0 to {MAX_RADIUS} cells")
        if not np.isfinite(types[3]).all():
            raise ValueError("build times must be numbers")
        view.type_id = &type_id[0]
        view.type_class = &type_class[0]
        view.type_radius = &radius[0]
        view.build_loops = &build_loops[0]
        view.largest_radius = types[2].max()
        view.larva, view.warp_gate, view.first_army_class, view.last_army_class = special
        cdef const uint8_t[::1] relations = relation
        if relations.shape[0] != MAX_OWNER + 1:
            raise ValueError(f"relation needs {MAX_OWNER + 1} entries, one an owner")
        memcpy(view.relation, &relations[0], MAX_OWNER + 1)
        if not (0 < map_size[0] <= MAX_MAP and 0 < map_size[1] <= MAX_MAP):
            raise ValueError(f"the map must have a size of 1 to {MAX_MAP} cells a side")
        view.map_width, view.map_height = map_size
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
        flat, loops = _triples(selections[0]), selections[1]
        runs = selections[0][:, 1:].astype(np.int64)
        if len(runs) and (runs.min() < 0 or runs.sum(1).max() > loops.shape[0]):
            raise ValueError("selections reach beyond their units")
        view.num_selections = flat.shape[0] // 3
        view.selections = &flat[0] if view.num_selections else NULL
        view.selected = &loops[0] if loops.shape[0] else NULL
        flat = _triples(losses)
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


cdef _triples(rows):
    if rows.ndim != 2 or rows.shape[1] != 3 or not rows.flags.c_contiguous:
        raise ValueError("selections and losses are rows of three")
    return rows.reshape(-1)


cdef void* _address(array, str dtype, Py_ssize_t size) except? NULL:
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError("frames go into writable C-contiguous arrays")
    if array.dtype != dtype or array.size != size:
        raise ValueError(f"an array of {array.size} {array.dtype} where {size} {dtype} belong")
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
                array, "uint8", layout.num_layers * layout.minimap_height * layout.minimap_width)
        elif key == "units":
            row.units = <float*>_address(array, "float32", layout.max_units * layout.num_columns)
        elif key == "unit_tags":
            row.unit_tags = <int64_t*>_address(array, "int64", layout.max_units)
        elif key == "unit_count":
            row.unit_count = <int32_t*>_address(array, "int32", 1)
        elif key == "player":
            row.player = <int32_t*>_address(array, "int32", PLAYER_FIELDS)
        elif key == "upgrades":
            row.upgrades = <uint8_t*>_address(array, "int8", layout.num_upgrades)
        elif key == "game_loop":
            row.game_loop = <int32_t*>_address(array, "int32", 1)
        else:
            raise ValueError(f"no observation key {key!r}")
    cdef int code
    with nogil:
        code = source.fill(source.data, game_loop, layout, &row)
    return code
