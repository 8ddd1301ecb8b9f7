"""A game as segments: what one unit is, whose, and how it moves, between two loops."""

from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t

cdef enum:
    BLOCK_LOOPS = 128       # loops that share a list of the segments that touch them
    MAX_OWNER = 16          # player ids are 0 (nobody) to 15; 16 stands for any other

cdef packed struct Segment:
    int32_t begin           # loops [begin, end)
    int32_t end
    float x                 # cells from the map's left and bottom edge, at `begin`
    float y
    float vx                # cells a loop
    float vy
    int32_t moving          # loops from `begin` on that it moves
    int32_t unit            # ordinal of the unit, in order of birth
    int32_t building        # loop at which its construction began, -1 once it is finished
    int16_t type            # index of `vocabulary.unit_types`
    int8_t owner
    uint8_t spare


cdef class Tracks:
    # Owned arrays behind plain pointers, so that frames are filled without the GIL.
    cdef const Segment* segments
    cdef const int32_t* block_start
    cdef const int32_t* block_segments
    cdef Py_ssize_t num_blocks
    cdef readonly object segment_table
    cdef readonly object unit_tags
    cdef readonly object unit_births
    cdef readonly object blocks
    cdef readonly object selections
    cdef readonly int bad_references
