"""What a frame is made of and how it is asked for, shared by every source of frames.

A source (unit tracks of a replay, recorded observations) fills one `Row`: the memory of one
environment in one batch. It does so without the GIL and without allocating, so a batch can be
filled from a background thread and a row may be any memory, page-locked or mapped.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef enum:
    MAX_LAYERS = 32
    MAX_COLUMNS = 64
    PLAYER_FIELDS = 11

cdef struct Layout:
    # Sizes and choices, the same for every row of a batch. `layers` and `columns` hold
    # the ids given in `sc2gym.spaces`.
    int32_t minimap_height
    int32_t minimap_width
    int32_t num_layers
    int32_t layers[MAX_LAYERS]
    int32_t max_units
    int32_t num_columns
    int32_t columns[MAX_COLUMNS]
    int32_t num_upgrades

cdef enum:
    NOTES_BYTES = 1 << 16

cdef struct Scratch:
    int busy                # a thread is at it: others do without
    uint64_t owner          # the source that used it last, 0 for none
    int32_t loop            # and for which frame
    int32_t end             # the first loop for which planes and notes do not hold
    int32_t count           # of notes
    uint8_t* planes         # the size of a row's minimap
    void* notes             # NOTES_BYTES of memory, for a struct of the source's own

cdef struct Row:
    # Where each key of one frame goes, C-contiguous; NULL where the key is not observed.
    # Whatever is not NULL is written completely, padding included.
    uint8_t* minimap        # (num_layers, minimap_height, minimap_width)
    float* units            # (max_units, num_columns)
    int64_t* unit_tags      # (max_units,)
    int32_t* unit_count     # ()
    int32_t* player         # (PLAYER_FIELDS,)
    uint8_t* upgrades       # (num_upgrades,)
    int32_t* game_loop      # (1,)
    # Memory of the row's lane for the source's own use from frame to frame, zero at first;
    # NULL where there is none. Frames are the same with and without.
    Scratch* scratch

# Fills `row` with the frame at `game_loop`; returns 0, or a code of the source's own.
ctypedef int (*fill_function)(
    const void* data, int32_t game_loop, const Layout* layout, const Row* row
) noexcept nogil

cdef class FrameSource:
    # A plain C function and its data, so that a batch can hold many sources in an array
    # and call them without touching Python objects; the batch keeps the object alive.
    cdef fill_function fill
    cdef const void* data

cdef class Frames:
    cdef Layout layout
