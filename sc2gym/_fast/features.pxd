"""The records and kernels of unit features and images, for all that draw or list units."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from sc2gym._fast.unit cimport Point, Unit
from sc2gym._fast.wire cimport Decoder

cdef enum:
    UNIT_FEATURES = 46      # pysc2's FeatureUnit

cdef struct Order:
    uint64_t has
    uint32_t ability_id
    Point target_world_space_pos
    uint64_t target_unit_tag
    float progress

cdef struct Passenger:
    uint64_t has
    uint64_t tag
    float health
    float health_max
    float shield
    float energy
    uint32_t unit_type
    float shield_max
    float energy_max

cdef struct Image:
    uint64_t has
    int32_t bits_per_pixel
    uint64_t size_has
    int32_t x
    int32_t y
    int64_t offset
    int64_t length

cdef struct Slot:
    # Of a hash table from tags to types, for the types of add-ons.
    uint64_t tag
    uint32_t unit_type

cdef struct View:
    # World to pixels: the y axis turned round, then moved, scaled and moved again.
    double map_height
    double before_x, before_y
    double scale_x, scale_y
    double after_x, after_y


cdef class FeatureUnits:
    cdef Decoder decoder
    cdef int units, orders, passengers, buffs
    cdef const int32_t[::1] functions
    cdef Slot* slots
    cdef uint64_t mask          # of the hash table's size, a power of two, less one

    cdef int64_t write(
        self, int64_t* out, const View* view, bint on_screen, bint tags, bint passengers
    ) noexcept nogil
    cdef void write_unit(self, int64_t* out, const Unit* u, const View* view, bint tags) noexcept nogil
    cdef void write_passenger(
        self, int64_t* out, const Unit* u, const Passenger* p, const View* view, bint tags
    ) noexcept nogil
    cdef int64_t function(self, const Order* orders, int64_t count, int64_t i) noexcept nogil
    cdef int hash_types(self) noexcept nogil
    cdef Slot* find(self, uint64_t tag) noexcept nogil
    cdef uint32_t type_of(self, uint64_t tag) noexcept nogil

cdef bint fits(const Image* image, int64_t height, int64_t width) noexcept nogil
