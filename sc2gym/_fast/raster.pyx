# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Frames from tracks: the segments that cover a loop, drawn into layers and listed in a table.

Checks are off because no index comes from outside unchecked: `Tracks` looks at segments and makes
the lists of blocks, unit types index tables of which `TrackSource` checks the length, and pixels
are clamped to the layer.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from sc2gym._fast.frame cimport (
    NOTES_BYTES, PLAYER_FIELDS, Frames, FrameSource, Layout, Row, Scratch,
)
from sc2gym._fast.tracks cimport (
    BLOCK_LOOPS, MAX_OWNER, Segment, Tracks, place_x, place_y, speed_x, speed_y, start_x, start_y,
)

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
    AHEAD = 6           # units from which the segment is fetched into the cache beforehand
    MANY = 64           # units that are painted or listed at a time
    LEAST_FRAMES = 4    # for which it pays to draw beforehand what stands still
    MOST_FRAMES = 32    # beyond which there is little left that does

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
    const Segment* segments_end
    uint64_t id                 # no other view of the process has it
    const int32_t* block_start
    const int32_t* first
    Py_ssize_t num_blocks
    const int64_t* unit_tags
    const int32_t* unit_births
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


cdef inline int _clamp(float value, float last) noexcept nogil:
    # To a whole number from 0 to `last`; what is not a number is 0.
    value = value if value > 0 else 0
    return <int>(value if value < last else last)


cdef inline uint8_t _progress(const View* view, const Segment* s, int32_t loop) noexcept nogil:
    # Percent built, by how long the type takes; 99 until it is known to be done.
    cdef float whole
    if not s.building:
        return 100
    whole = view.build_loops[s.type]
    if whole <= 0:
        return 0
    return <uint8_t>min(99.0, 100.0 * (loop - view.unit_births[s.unit]) / whole)


cdef inline bint _lives(const View* view, const Segment** at, int32_t loop) noexcept nogil:
    # Moves on from a segment of a unit to the one that covers the loop; whether there is one.
    # The loop is not before the segment, except for a unit that is not born yet.
    cdef const Segment* s = at[0]
    while s.end <= loop and s + 1 < view.segments_end and s[1].unit == s.unit:
        s += 1
    at[0] = s
    return s.begin <= loop < s.end


cdef inline const Segment* _listed(const View* view, Py_ssize_t i, Py_ssize_t end, int32_t loop
                                   ) noexcept nogil:
    # Where the i-th unit of all lists is at a loop of its block, whose list ends at `end`; if it
    # does not live then, its next or its last segment.
    cdef const Segment* s = &view.segments[view.first[i]]
    prefetch(&view.segments[view.first[min(i + AHEAD, end - 1)]])
    _lives(view, &s, loop)
    return s


cdef const Segment* _find(const View* view, Py_ssize_t block, int32_t unit, int32_t loop
                          ) noexcept nogil:
    # Where a unit is at a loop of the block; NULL where it does not live then.
    cdef Py_ssize_t low = view.block_start[block], high = view.block_start[block + 1], middle
    cdef const Segment* s
    while low < high:
        middle = (low + high) >> 1
        if view.segments[view.first[middle]].unit < unit:
            low = middle + 1
        else:
            high = middle
    if low == view.block_start[block + 1]:
        return NULL
    s = &view.segments[view.first[low]]
    return s if s.unit == unit and _lives(view, &s, loop) else NULL


cdef struct Canvas:
    # The planes that units are drawn into; NULL where a layer is not wanted.
    uint8_t* owner
    uint8_t* relation
    uint8_t* density
    uint8_t* progress
    uint8_t* kind
    uint8_t* selected
    uint8_t* camera
    uint8_t* alerts
    int width, height           # in pixels
    float right, bottom         # the last column and line
    size_t size                 # of a plane
    float scale                 # pixels a cell


cdef Canvas _canvas(const View* view, const Layout* layout, uint8_t* minimap) noexcept nogil:
    cdef Canvas canvas
    cdef uint8_t* plane = minimap
    cdef int i
    memset(&canvas, 0, sizeof(Canvas))
    canvas.width, canvas.height = layout.minimap_width, layout.minimap_height
    canvas.right, canvas.bottom = canvas.width - 1, canvas.height - 1
    canvas.size = <size_t>canvas.width * canvas.height
    # As pysc2: the whole map, scaled alike in both directions so that it fits.
    canvas.scale = min(<float>canvas.width / view.map_width,
                       <float>canvas.height / view.map_height)
    for i in range(layout.num_layers):
        if layout.layers[i] == PLAYER_ID:
            canvas.owner = plane
        elif layout.layers[i] == PLAYER_RELATIVE:
            canvas.relation = plane
        elif layout.layers[i] == UNIT_DENSITY:
            canvas.density = plane
        elif layout.layers[i] == BUILD_PROGRESS:
            canvas.progress = plane
        elif layout.layers[i] == UNIT_CLASS:
            canvas.kind = plane
        elif layout.layers[i] == SELECTED:
            canvas.selected = plane
        elif layout.layers[i] == CAMERA:
            canvas.camera = plane
        elif layout.layers[i] == ALERTS:
            canvas.alerts = plane
        plane += canvas.size
    return canvas


cdef struct Marks:
    # Units as the segments that they are in, ready to be drawn. Column by column, so that the
    # compiler works on several at a time.
    int count
    const Segment* segment[MANY]
    int32_t[MANY] unit
    int32_t[MANY] begin
    int32_t[MANY] end
    int32_t[MANY] moving
    float[MANY] x
    float[MANY] y
    float[MANY] vx
    float[MANY] vy
    uint8_t[MANY] owner
    uint8_t[MANY] relation
    uint8_t[MANY] kind
    uint8_t[MANY] building
    int32_t[MANY] half          # of the square that one covers, in pixels; 0 for a pixel
    # And at the loop for which they are drawn.
    uint8_t[MANY] lives         # a mask: 0 or 255
    uint8_t[MANY] progress
    int32_t[MANY] pixel


cdef inline void _mark(const View* view, const Canvas* canvas, const Segment* s, Marks* marks,
                       int i) noexcept nogil:
    marks.segment[i], marks.unit[i] = s, s.unit
    marks.begin[i], marks.end[i], marks.moving[i] = s.begin, s.end, s.moving
    marks.x[i], marks.y[i] = start_x(s), start_y(s)
    marks.vx[i], marks.vy[i] = speed_x(s), speed_y(s)
    marks.owner[i] = 16 if s.owner == 0 else s.owner
    marks.relation[i] = view.relation[s.owner]
    marks.kind[i] = view.type_class[s.type]
    marks.building[i] = s.building
    marks.half[i] = <int32_t>(view.type_radius[s.type] * canvas.scale)


cdef inline int _pixel(float x, float y, float scale, float right, float bottom, int width
                       ) noexcept nogil:
    # Of a place in cells from the map's left and upper edge.
    return _clamp(y * scale, bottom) * width + _clamp(x * scale, right)


cdef void _place(const View* view, const Canvas* canvas, Marks* marks, int32_t loop
                 ) noexcept nogil:
    # Where marks are at a loop. With variables of its own, so that the compiler sees that what
    # is written changes none of them.
    cdef int i, width = canvas.width, count = marks.count
    cdef float scale = canvas.scale, right = canvas.right, bottom = canvas.bottom
    cdef float height = view.map_height, moved
    for i in range(count):
        moved = min(loop - marks.begin[i], marks.moving[i])
        marks.pixel[i] = _pixel(
            marks.x[i] + marks.vx[i] * moved, height - (marks.y[i] + marks.vy[i] * moved),
            scale, right, bottom, width,
        )
    for i in range(count):
        marks.lives[i] = 255 if (marks.begin[i] <= loop) & (loop < marks.end[i]) else 0
    if canvas.progress != NULL:
        for i in range(count):
            marks.progress[i] = 0
            if marks.building[i] & marks.lives[i]:
                marks.progress[i] = _progress(view, marks.segment[i], loop)


cdef inline void _raise_to(uint8_t* pixel, uint8_t value) noexcept nogil:
    pixel[0] = max(pixel[0], value)


cdef void _raise_all(uint8_t* plane, const Marks* marks, const uint8_t* values) noexcept nogil:
    cdef int i
    if plane != NULL:
        for i in range(marks.count):
            _raise_to(&plane[marks.pixel[i]], values[i] & marks.lives[i])


cdef void _paint(const View* view, const Canvas* canvas, Marks* marks, int32_t loop
                 ) noexcept nogil:
    # Where units share a pixel the highest value shows. So it does not matter which is drawn
    # first, and what stands still can be drawn once for many frames.
    cdef uint8_t* pixel
    cdef int i
    _place(view, canvas, marks, loop)
    if canvas.density != NULL:
        for i in range(marks.count):
            pixel = &canvas.density[marks.pixel[i]]
            pixel[0] += (pixel[0] < 255) & marks.lives[i]
    _raise_all(canvas.relation, marks, marks.relation)
    _raise_all(canvas.kind, marks, marks.kind)
    _raise_all(canvas.owner, marks, marks.owner)
    _raise_all(canvas.progress, marks, marks.progress)
    for i in range(marks.count):
        if marks.half[i] and marks.lives[i]:
            _paint_square(canvas, marks, i)


cdef void _paint_square(const Canvas* canvas, const Marks* marks, int i) noexcept nogil:
    # What covers more than a pixel covers a square.
    cdef int x = marks.pixel[i] % canvas.width, y = marks.pixel[i] // canvas.width
    cdef int half = marks.half[i], row, pixel
    cdef int left = max(x - half, 0), right = min(x + half, canvas.width - 1)
    for row in range(max(y - half, 0), min(y + half, canvas.height - 1) + 1):
        for pixel in range(row * canvas.width + left, row * canvas.width + right + 1):
            if canvas.owner != NULL:
                _raise_to(&canvas.owner[pixel], marks.owner[i])
            if canvas.relation != NULL:
                _raise_to(&canvas.relation[pixel], marks.relation[i])
            if canvas.kind != NULL:
                _raise_to(&canvas.kind[pixel], marks.kind[i])
            if canvas.progress != NULL:
                _raise_to(&canvas.progress[pixel], marks.progress[i])


cdef void _draw_units(const View* view, Py_ssize_t block, int32_t loop, const Layout* layout,
                      const Row* row) noexcept nogil:
    cdef Canvas canvas = _canvas(view, layout, row.minimap)
    cdef Scratch* scratch = row.scratch
    cdef bint mine = scratch != NULL and try_lock(&scratch.busy)
    if mine and _is_prepared(view, block, loop, layout, scratch):
        _draw_changing(view, &canvas, block, loop, layout, row.minimap, scratch)
    else:
        _draw_all(view, &canvas, block, loop, layout, row.minimap)
    if mine:
        unlock(&scratch.busy)
    if canvas.camera != NULL:
        _draw_camera(view, &canvas, loop)
    if canvas.alerts != NULL:
        _draw_losses(view, &canvas, loop)


cdef void _draw_all(const View* view, const Canvas* canvas, Py_ssize_t block, int32_t loop,
                    const Layout* layout, uint8_t* minimap) noexcept nogil:
    cdef Py_ssize_t i, end = view.block_start[block + 1]
    cdef const Segment* s
    cdef Selection selection = _selection(view, loop)
    cdef Marks marks
    marks.count = 0
    memset(minimap, 0, layout.num_layers * canvas.size)
    for i in range(view.block_start[block], end):
        s = _listed(view, i, end, loop)
        if s.begin <= loop < s.end:
            _mark(view, canvas, s, &marks, marks.count)
            marks.count += 1
            if marks.count == MANY:
                _paint(view, canvas, &marks, loop)
                _paint_selected(view, canvas, block, loop, &marks, &selection)
                marks.count = 0
    _paint(view, canvas, &marks, loop)
    _paint_selected(view, canvas, block, loop, &marks, &selection)


cdef bint _is_prepared(const View* view, Py_ssize_t block, int32_t loop, const Layout* layout,
                       Scratch* scratch) noexcept nogil:
    # Whether the lane's scratch memory holds what stands still at this loop. Where frames follow
    # each other closely that is seen to, for a power of two of loops.
    cdef int32_t pace = loop - scratch.loop, loops = 1, end
    cdef bint follows = scratch.owner == view.id
    scratch.owner, scratch.loop = view.id, loop
    if follows and pace >= 0 and loop < scratch.end:
        return True
    scratch.end = 0
    if not follows or pace <= 0:
        return False
    while loops < BLOCK_LOOPS and loops < pace * MOST_FRAMES:
        loops *= 2
    end = (loop // loops + 1) * loops
    return end - loop > pace * LEAST_FRAMES and _prepare(view, block, loop, end, layout, scratch)


cdef bint _prepare(const View* view, Py_ssize_t block, int32_t loop, int32_t end,
                   const Layout* layout, Scratch* scratch) noexcept nogil:
    # Draws what stands still until `end`, in the same block, and notes what else lives until
    # then: a unit by its segment at the loop, or by its first. False where that is too much.
    cdef Canvas canvas = _canvas(view, layout, scratch.planes)
    cdef Py_ssize_t i, last = view.block_start[block + 1]
    cdef Marks* kept = <Marks*>scratch.notes
    cdef Marks still
    cdef const Segment* s
    cdef bint lives
    still.count = kept.count = scratch.count = 0
    memset(scratch.planes, 0, layout.num_layers * canvas.size)
    for i in range(view.block_start[block], last):
        s = _listed(view, i, last, loop)
        lives = s.begin <= loop < s.end
        if lives and s.end >= end and s.begin + s.moving <= loop and not s.building:
            _mark(view, &canvas, s, &still, still.count)
            still.count += 1
            if still.count == MANY:
                _paint(view, &canvas, &still, loop)
                still.count = 0
        elif lives or loop < s.begin < end:
            _mark(view, &canvas, s, kept, kept.count)
            kept.count += 1
            if kept.count == MANY:
                scratch.count += 1
                if scratch.count == NOTES_BYTES // sizeof(Marks):
                    return False
                kept += 1
                kept.count = 0
    _paint(view, &canvas, &still, loop)
    scratch.count += 1
    scratch.end = end
    return True


cdef void _draw_changing(const View* view, const Canvas* canvas, Py_ssize_t block, int32_t loop,
                         const Layout* layout, uint8_t* minimap, Scratch* scratch
                         ) noexcept nogil:
    cdef Marks* marks = <Marks*>scratch.notes
    cdef const Segment* s
    cdef Selection selection = _selection(view, loop)
    cdef int i, part
    memcpy(minimap, scratch.planes, layout.num_layers * canvas.size)
    for part in range(scratch.count):
        for i in range(marks.count):
            if loop >= marks.end[i]:
                s = marks.segment[i]
                _lives(view, &s, loop)
                _mark(view, canvas, s, marks, i)
                if loop >= s.end:
                    marks.begin[i] = marks.end[i] = INT32_MAX   # dead: no need to look again
        _paint(view, canvas, marks, loop)
        _paint_selected(view, canvas, block, loop, marks, &selection)
        marks += 1
    if canvas.selected != NULL:
        while selection.next < selection.end:
            _draw_selected(view, canvas, block, loop, selection.next[0])
            selection.next += 1


cdef void _paint_selected(const View* view, const Canvas* canvas, Py_ssize_t block, int32_t loop,
                          const Marks* marks, Selection* selection) noexcept nogil:
    cdef int i
    if canvas.selected == NULL:
        return
    for i in range(marks.count):
        # What is selected and not met on the way stands still, or is dead.
        while selection.next < selection.end and selection.next[0] < marks.unit[i]:
            _draw_selected(view, canvas, block, loop, selection.next[0])
            selection.next += 1
        if selection.next == selection.end:
            return
        if selection.next[0] == marks.unit[i]:
            _raise_to(&canvas.selected[marks.pixel[i]], 1 & marks.lives[i])
            selection.next += 1


cdef void _draw_selected(const View* view, const Canvas* canvas, Py_ssize_t block, int32_t loop,
                         int32_t unit) noexcept nogil:
    cdef const Segment* s = _find(view, block, unit, loop)
    if s != NULL:
        canvas.selected[_pixel(
            place_x(s, loop), view.map_height - place_y(s, loop), canvas.scale, canvas.right,
            canvas.bottom, canvas.width,
        )] = 1


cdef struct Selection:
    # The ordinals of what the player has selected, ascending, as far as they were not met yet.
    const int32_t* next
    const int32_t* end


cdef inline Selection _selection(const View* view, int32_t loop) noexcept nogil:
    cdef Selection selection
    cdef Py_ssize_t row = _last(view.selections, view.num_selections, 3, loop)
    selection.next = selection.end = NULL
    if row >= 0:
        selection.next = view.selected + view.selections[3 * row + 1]
        selection.end = selection.next + view.selections[3 * row + 2]
    return selection


cdef inline bint _is_selected(Selection* selection, int32_t unit) noexcept nogil:
    # For units in order of birth.
    while selection.next < selection.end and selection.next[0] < unit:
        selection.next += 1
    return selection.next < selection.end and selection.next[0] == unit


cdef void _draw_camera(const View* view, const Canvas* canvas, int32_t loop) noexcept nogil:
    cdef Py_ssize_t row = _last(view.camera_loops, view.num_cameras, 1, loop)
    cdef float x, y
    cdef int left, right, top, bottom, line
    if row < 0:
        return
    x, y = view.cameras[2 * row], view.map_height - view.cameras[2 * row + 1]
    left = _clamp((x - CAMERA_HALF_WIDTH) * canvas.scale, canvas.right)
    right = _clamp((x + CAMERA_HALF_WIDTH) * canvas.scale, canvas.right)
    top = _clamp((y - CAMERA_HALF_HEIGHT) * canvas.scale, canvas.bottom)
    bottom = _clamp((y + CAMERA_HALF_HEIGHT) * canvas.scale, canvas.bottom)
    for line in range(top, bottom + 1):
        memset(canvas.camera + line * canvas.width + left, 1, right - left + 1)


cdef void _draw_losses(const View* view, const Canvas* canvas, int32_t loop) noexcept nogil:
    cdef Py_ssize_t row = _last(view.losses, view.num_losses, 3, loop)
    while row >= 0 and view.losses[3 * row] > loop - ALERT_LOOPS:
        canvas.alerts[
            _clamp((view.map_height - <float>view.losses[3 * row + 2] - 0.5) * canvas.scale,
                   canvas.bottom) * canvas.width
            + _clamp((view.losses[3 * row + 1] + 0.5) * canvas.scale, canvas.right)
        ] = 1
        row -= 1


cdef struct Rows:
    # Units for rows of the table that follow each other.
    int count
    const Segment* segment[MANY]
    uint8_t[MANY] selected


cdef void _write_column(const View* view, Rows* rows, int32_t loop, int column, float* cell,
                        int stride) noexcept nogil:
    cdef const Segment** s = rows.segment
    cdef int i
    if column == UNIT_TYPE:
        for i in range(rows.count):
            cell[i * stride] = view.type_id[s[i].type]
    elif column == ALLIANCE:
        for i in range(rows.count):
            cell[i * stride] = view.relation[s[i].owner]
    elif column == X:
        for i in range(rows.count):
            cell[i * stride] = place_x(s[i], loop)
    elif column == Y:
        for i in range(rows.count):
            cell[i * stride] = view.map_height - place_y(s[i], loop)
    elif column == OWNER:
        for i in range(rows.count):
            cell[i * stride] = 16 if s[i].owner == 0 else s[i].owner
    elif column == PROGRESS:
        for i in range(rows.count):
            cell[i * stride] = _progress(view, s[i], loop)
    elif column == RADIUS:
        for i in range(rows.count):
            cell[i * stride] = view.type_radius[s[i].type]
    elif column == IS_SELECTED:
        for i in range(rows.count):
            cell[i * stride] = rows.selected[i]
    else:
        for i in range(rows.count):
            cell[i * stride] = VISIBLE if column == DISPLAY_TYPE else 0


cdef void _write_rows(const View* view, Rows* rows, int32_t loop, const Layout* layout,
                      const Row* row, int first) noexcept nogil:
    # Column by column: what a column holds is asked once for many units.
    cdef int i, columns = layout.num_columns
    cdef float* cell
    if row.unit_tags != NULL:
        for i in range(rows.count):
            row.unit_tags[first + i] = view.unit_tags[rows.segment[i].unit]
    if row.units != NULL:
        cell = row.units + <size_t>first * columns
        for i in range(columns):
            _write_column(view, rows, loop, layout.columns[i], cell + i, columns)


cdef void _list(const View* view, Py_ssize_t block, int32_t loop, const Layout* layout,
                const Row* row) noexcept nogil:
    cdef Py_ssize_t i, end = view.block_start[block + 1]
    cdef int written = 0
    cdef const Segment* s
    cdef Selection selection = _selection(view, loop)
    cdef Rows rows
    rows.count = 0
    for i in range(view.block_start[block], end):
        s = _listed(view, i, end, loop)
        if not s.begin <= loop < s.end:
            continue
        if written + rows.count == layout.max_units:
            break
        rows.segment[rows.count] = s
        rows.selected[rows.count] = _is_selected(&selection, s.unit)
        rows.count += 1
        if rows.count == MANY:
            _write_rows(view, &rows, loop, layout, row, written)
            written += MANY
            rows.count = 0
    _write_rows(view, &rows, loop, layout, row, written)
    _end_list(written + rows.count, layout, row)


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
    cdef Py_ssize_t row = _last(view.stat_loops, view.num_stats, 1, loop), i, end
    cdef const Segment* s
    cdef uint8_t of_class
    for i in range(PLAYER_FIELDS):
        player[i] = view.stats[row * PLAYER_FIELDS + i] if row >= 0 else 0
    player[8] = player[9] = player[10] = 0
    if block < 0:
        return
    end = view.block_start[block + 1]
    for i in range(view.block_start[block], end):
        s = _listed(view, i, end, loop)
        if s.begin <= loop < s.end and view.relation[s.owner] == SELF and not s.building:
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
        view.segments_end = tracks.segments + tracks.num_segments
        global _views
        _views += 1
        view.id = _views
        view.block_start = tracks.block_start
        view.first = tracks.first
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
