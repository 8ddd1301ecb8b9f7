"""A game as segments: what one unit is, whose, and how it moves, between two loops."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t

cdef enum:
    BLOCK_LOOPS = 256       # loops that share a list of the units that live within them
    MAX_OWNER = 16          # player ids are 0 (nobody) to 15; 16 stands for any other

cdef enum:
    PLACE_SCALE = 64        # places are in 64ths of a cell, from 0 to just below 1024 cells
    SPEED_SCALE = 8192      # velocities in 8192ths of a cell a loop, up to 4 cells a loop

cdef packed struct Op:
    # What a tracker event says of one unit.
    int32_t loop
    int16_t kind
    int16_t owner
    int32_t index
    int32_t recycle
    int32_t type
    float x
    float y
    int32_t creator

cdef packed struct CommandOp:
    # What a game event does to a selection, or whom it sends where.
    int32_t loop
    int16_t kind
    int16_t user
    int16_t motion
    int16_t queued
    float x
    float y
    int64_t target
    int16_t group
    int16_t action
    int32_t mask_kind
    int32_t mask_start
    int32_t mask_count
    int32_t add_start
    int32_t add_count

cdef packed struct Segment:
    # Small, since a library keeps millions of them: 26 bytes.
    int32_t begin           # loops [begin, end)
    int32_t end
    int32_t unit            # ordinal of the unit, in order of birth
    uint16_t x              # from the map's left and bottom edge, at `begin`
    uint16_t y
    int16_t vx
    int16_t vy
    uint16_t moving         # loops from `begin` on that it moves
    int16_t type            # index of `vocabulary.unit_types`
    int8_t owner
    uint8_t building        # 1 while it is under construction, which began with its birth


cdef inline float start_x(const Segment* s) noexcept nogil:
    # Cells from the left edge where the segment begins.
    return s.x * <float>(1.0 / PLACE_SCALE)


cdef inline float start_y(const Segment* s) noexcept nogil:
    # Cells from the bottom edge.
    return s.y * <float>(1.0 / PLACE_SCALE)


cdef inline float speed_x(const Segment* s) noexcept nogil:
    # Cells a loop.
    return s.vx * <float>(1.0 / SPEED_SCALE)


cdef inline float speed_y(const Segment* s) noexcept nogil:
    return s.vy * <float>(1.0 / SPEED_SCALE)


cdef inline float place_x(const Segment* s, int32_t loop) noexcept nogil:
    # Cells from the left edge at a loop of the segment.
    return start_x(s) + speed_x(s) * min(loop - s.begin, <int32_t>s.moving)


cdef inline float place_y(const Segment* s, int32_t loop) noexcept nogil:
    return start_y(s) + speed_y(s) * min(loop - s.begin, <int32_t>s.moving)


cdef class Tracks:
    # Owned arrays behind plain pointers, so that frames are filled without the GIL.
    cdef const Segment* segments
    cdef Py_ssize_t num_segments
    # Of block b: first[block_start[b]:block_start[b + 1]], of every unit that lives in it, in
    # order of birth, the first segment that touches it. The unit's next ones follow that one.
    cdef const int32_t* block_start
    cdef const int32_t* first
    cdef Py_ssize_t num_blocks
    cdef readonly object segment_table
    cdef readonly object unit_tags
    cdef readonly object unit_births
    cdef readonly object blocks
    cdef readonly object selections
    cdef readonly int bad_references
