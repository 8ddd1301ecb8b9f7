"""A unit as the game writes it: the record's layout, and a fast lane past its scalar fields.

Nearly all of what is to be decoded are units, and the game writes their fields in the order of
their numbers. The lane expects just that: one comparison a field, no table, no check against the
end. It may do so because the caller made sure that LANE_BYTES can be read, and because it only
counts if it ends at the unit's end or before (there the general reader goes on, with whatever
the lane did not expect); anything else is read again from the start, generally.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from sc2gym._fast.proto cimport Bytes

cdef extern from *:
    int trailing_zeros "__builtin_ctzll"(unsigned long long) noexcept nogil

cdef enum:
    LANE_BYTES = 640    # 42 fields of at most two bytes of tag and ten of value, and more

cdef struct Pair:
    int64_t start
    int64_t count

cdef struct Point:
    uint64_t has
    float x
    float y
    float z

cdef struct Unit:
    # As `sc2gym.schema.record_dtype("Unit")`; the decoder compares their sizes.
    uint64_t has
    int32_t display_type
    int32_t alliance
    uint64_t tag
    uint32_t unit_type
    int32_t owner
    Point pos
    float facing
    float radius
    float build_progress
    int32_t cloak
    uint8_t is_selected
    uint8_t is_on_screen
    uint8_t is_blip
    float health
    float health_max
    float shield
    float energy
    int32_t mineral_contents
    int32_t vespene_contents
    uint8_t is_flying
    uint8_t is_burrowed
    Pair orders
    uint64_t add_on_tag
    Pair passengers
    int32_t cargo_space_taken
    int32_t cargo_space_max
    Pair buff_ids
    int32_t assigned_harvesters
    int32_t ideal_harvesters
    float weapon_cooldown
    float detect_range
    float radar_range
    uint64_t engaged_target_tag
    uint8_t is_powered
    float shield_max
    float energy_max
    uint8_t is_hallucination
    uint8_t is_active
    int32_t attack_upgrade_level
    int32_t armor_upgrade_level
    int32_t shield_upgrade_level
    int32_t buff_duration_remain
    int32_t buff_duration_max
    Pair rally_targets


cdef inline uint16_t two_bytes(Bytes at) noexcept nogil:
    cdef uint16_t word
    memcpy(&word, at, 2)
    return word


cdef inline Bytes int_field(Bytes at, uint32_t* value) noexcept nogil:
    """Of at most two bytes, as all that occur; NULL for a longer one, here and below."""
    if at[0] < 0x80:
        value[0] = at[0]
        return at + 1
    value[0] = at[0] & 0x7F | <uint32_t> at[1] << 7
    if at[1] < 0x80:
        return at + 2
    return NULL


cdef inline Bytes bool_field(Bytes at, uint8_t* value) noexcept nogil:
    value[0] = at[0] != 0
    if at[0] < 0x80:
        return at + 1
    return NULL


cdef inline Bytes wide_field(Bytes at, uint64_t* value) noexcept nogil:
    """A unit's tag, so mostly five bytes: eight at once, without a branch for each."""
    cdef uint64_t word, last
    memcpy(&word, at, 8)
    last = ~word & 0x8080808080808080ULL
    if last == 0:
        return NULL
    last &= -last           # the top bit of the last byte
    word &= (last - 1) & 0x7F7F7F7F7F7F7F7FULL
    word = word & 0x007F007F007F007FULL | (word & 0x7F007F007F007F00ULL) >> 1
    word = word & 0x00003FFF00003FFFULL | (word & 0x3FFF00003FFF0000ULL) >> 2
    value[0] = word & 0x0FFFFFFFULL | (word & 0x0FFFFFFF00000000ULL) >> 4
    return at + (trailing_zeros(last) + 1) // 8


cdef inline Bytes float_field(Bytes at, float* value) noexcept nogil:
    memcpy(value, at, 4)
    return at + 4


cdef inline Bytes point_field(Bytes at, Point* point) noexcept nogil:
    """A message with x, y and z, of 15 bytes, whose length is where reading starts."""
    memcpy(&point.x, at + 2, 4)
    memcpy(&point.y, at + 7, 4)
    memcpy(&point.z, at + 12, 4)
    point.has = 7
    return at + 16


cdef inline Bytes lane_to_orders(Bytes at, Unit* u) noexcept nogil:
    """Fields 1 to 21: what every unit has, then what a visible one has."""
    cdef uint64_t has = 0
    if at[0] == 0x08:
        at = int_field(at + 1, <uint32_t*> &u.display_type)
        has |= 1 << 0
        if at == NULL:
            return NULL
    if at[0] == 0x10:
        at = int_field(at + 1, <uint32_t*> &u.alliance)
        has |= 1 << 1
        if at == NULL:
            return NULL
    if at[0] == 0x18:
        at = wide_field(at + 1, &u.tag)
        has |= 1 << 2
        if at == NULL:
            return NULL
    if at[0] == 0x20:
        at = int_field(at + 1, &u.unit_type)
        has |= 1 << 3
        if at == NULL:
            return NULL
    if at[0] == 0x28:
        at = int_field(at + 1, <uint32_t*> &u.owner)
        has |= 1 << 4
        if at == NULL:
            return NULL
    if at[0] == 0x32 and at[1] == 15 and at[2] == 0x0D and at[7] == 0x15 and at[12] == 0x1D:
        at = point_field(at + 1, &u.pos)
        has |= 1 << 5
    if at[0] == 0x3D:
        at = float_field(at + 1, &u.facing)
        has |= 1 << 6
    if at[0] == 0x45:
        at = float_field(at + 1, &u.radius)
        has |= 1 << 7
    if at[0] == 0x4D:
        at = float_field(at + 1, &u.build_progress)
        has |= 1 << 8
    if at[0] == 0x50:
        at = int_field(at + 1, <uint32_t*> &u.cloak)
        has |= 1 << 9
        if at == NULL:
            return NULL
    if at[0] == 0x58:
        at = bool_field(at + 1, &u.is_selected)
        has |= 1 << 10
        if at == NULL:
            return NULL
    if at[0] == 0x60:
        at = bool_field(at + 1, &u.is_on_screen)
        has |= 1 << 11
        if at == NULL:
            return NULL
    if at[0] == 0x68:
        at = bool_field(at + 1, &u.is_blip)
        has |= 1 << 12
        if at == NULL:
            return NULL
    if at[0] == 0x98:   # straight to is_powered: minerals, rocks and the like, so most units
        u.has = has
        return at
    if at[0] == 0x75:
        at = float_field(at + 1, &u.health)
        has |= 1 << 13
    if at[0] == 0x7D:
        at = float_field(at + 1, &u.health_max)
        has |= 1 << 14
    if two_bytes(at) == 0x0185:
        at = float_field(at + 2, &u.shield)
        has |= 1 << 15
    if two_bytes(at) == 0x018D:
        at = float_field(at + 2, &u.energy)
        has |= 1 << 16
    if two_bytes(at) == 0x0190:
        at = int_field(at + 2, <uint32_t*> &u.mineral_contents)
        has |= 1 << 17
        if at == NULL:
            return NULL
    if two_bytes(at) == 0x0198:
        at = int_field(at + 2, <uint32_t*> &u.vespene_contents)
        has |= 1 << 18
        if at == NULL:
            return NULL
    if two_bytes(at) == 0x01A0:
        at = bool_field(at + 2, &u.is_flying)
        has |= 1 << 19
        if at == NULL:
            return NULL
    if two_bytes(at) == 0x01A8:
        at = bool_field(at + 2, &u.is_burrowed)
        has |= 1 << 20
        if at == NULL:
            return NULL
    u.has = has
    return at


cdef inline Bytes lane_after_orders(Bytes at, Unit* u) noexcept nogil:
    """Fields 23 to 44."""
    cdef uint64_t has = u.has
    if two_bytes(at) == 0x01B8:
        at = wide_field(at + 2, &u.add_on_tag)
        has |= 1 << 22
        if at == NULL:
            return NULL
    if two_bytes(at) == 0x01C8:
        at = int_field(at + 2, <uint32_t*> &u.cargo_space_taken)
        has |= 1 << 24
        if at == NULL:
            return NULL
    if two_bytes(at) == 0x01D0:
        at = int_field(at + 2, <uint32_t*> &u.cargo_space_max)
        has |= 1 << 25
        if at == NULL:
            return NULL
    if two_bytes(at) == 0x01E0:
        at = int_field(at + 2, <uint32_t*> &u.assigned_harvesters)
        has |= 1 << 27
        if at == NULL:
            return NULL
    if two_bytes(at) == 0x01E8:
        at = int_field(at + 2, <uint32_t*> &u.ideal_harvesters)
        has |= 1 << 28
        if at == NULL:
            return NULL
    if two_bytes(at) == 0x01F5:
        at = float_field(at + 2, &u.weapon_cooldown)
        has |= 1 << 29
    if two_bytes(at) == 0x01FD:
        at = float_field(at + 2, &u.detect_range)
        has |= 1 << 30
    if two_bytes(at) == 0x0285:
        at = float_field(at + 2, &u.radar_range)
        has |= 1ULL << 31
    if two_bytes(at) == 0x0290:
        at = wide_field(at + 2, &u.engaged_target_tag)
        has |= 1ULL << 32
        if at == NULL:
            return NULL
    if two_bytes(at) == 0x0298:
        at = bool_field(at + 2, &u.is_powered)
        has |= 1ULL << 33
        if at == NULL:
            return NULL
    if two_bytes(at) == 0x02A5:
        at = float_field(at + 2, &u.shield_max)
        has |= 1ULL << 34
    if two_bytes(at) == 0x02AD:
        at = float_field(at + 2, &u.energy_max)
        has |= 1ULL << 35
    if two_bytes(at) == 0x02B0:
        at = bool_field(at + 2, &u.is_hallucination)
        has |= 1ULL << 36
        if at == NULL:
            return NULL
    if two_bytes(at) == 0x02B8:
        at = bool_field(at + 2, &u.is_active)
        has |= 1ULL << 37
        if at == NULL:
            return NULL
    if two_bytes(at) == 0x02C0:
        at = int_field(at + 2, <uint32_t*> &u.attack_upgrade_level)
        has |= 1ULL << 38
        if at == NULL:
            return NULL
    if two_bytes(at) == 0x02C8:
        at = int_field(at + 2, <uint32_t*> &u.armor_upgrade_level)
        has |= 1ULL << 39
        if at == NULL:
            return NULL
    if two_bytes(at) == 0x02D0:
        at = int_field(at + 2, <uint32_t*> &u.shield_upgrade_level)
        has |= 1ULL << 40
        if at == NULL:
            return NULL
    if two_bytes(at) == 0x02D8:
        at = int_field(at + 2, <uint32_t*> &u.buff_duration_remain)
        has |= 1ULL << 41
        if at == NULL:
            return NULL
    if two_bytes(at) == 0x02E0:
        at = int_field(at + 2, <uint32_t*> &u.buff_duration_max)
        has |= 1ULL << 42
        if at == NULL:
            return NULL
    u.has = has
    return at
