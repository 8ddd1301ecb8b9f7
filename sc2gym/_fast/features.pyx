"""From a decoder's records to the arrays that pysc2's `Features.transform_obs` makes of them.

The numbers are pysc2's to the last bit, so the arithmetic is its: 64-bit floats, in its order,
cut towards zero where pysc2 puts a float into an integer array. Names and meanings are those of
`pysc2.lib.features` 4.0.0. What pysc2 cannot hold is cut to what fits, not an error: an integer
beyond 64 bits, a position that is not a number.
"""

cimport cython
from libc.math cimport floor
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from sc2gym._fast.unit cimport Point, Unit
from sc2gym._fast.wire cimport Decoder, Table

import numpy as np

from sc2gym.errors import CorruptMessageError

cdef inline int64_t whole(double value) noexcept nogil:
    """Towards zero; what no integer can be is the nearest one, not a number is 0."""
    if -9.2e18 < value < 9.2e18:
        return <int64_t> value
    if value >= 9.2e18:
        return 0x7FFFFFFFFFFFFFFF
    return 0 if value != value else -0x7FFFFFFFFFFFFFFF


cdef inline int64_t ratio(float value, float most) noexcept nogil:
    return whole(<double> value / most * 255) if most > 0 else 0


cdef inline void place(const View* view, const Point* at, int64_t* out) noexcept nogil:
    out[0] = whole(floor((at.x * 1.0 + view.before_x) * view.scale_x + view.after_x))
    out[1] = whole(
        floor((at.y * -1.0 + view.map_height + view.before_y) * view.scale_y + view.after_y)
    )


cdef class FeatureUnits:
    """Turns the units of the message a decoder read into rows of pysc2's unit features.

    Args:
        decoder: Of `ResponseObservation`.
        functions: (abilities,) pysc2's raw function id of each ability id, int32; 0 for none.
    """

    def __cinit__(self, Decoder decoder not None, const int32_t[::1] functions not None):
        index = decoder.schema.index
        self.decoder = decoder
        self.functions = functions
        self.units = index("observation.raw_data.units")
        self.orders = index("observation.raw_data.units.orders")
        self.passengers = index("observation.raw_data.units.passengers")
        self.buffs = index("observation.raw_data.units.buff_ids")
        assert decoder.tables[self.orders].row == sizeof(Order)
        assert decoder.tables[self.passengers].row == sizeof(Passenger)

    def __dealloc__(self):
        free(self.slots)

    def count(self, bint passengers=False):
        """How many rows there are to fill."""
        cdef int64_t extra = self.decoder.tables[self.passengers].count if passengers else 0
        return self.decoder.tables[self.units].count + extra

    @cython.boundscheck(False)  # rows are as many as counted above, columns checked
    def fill(
        self, int64_t[:, ::1] out not None, view, *, bint on_screen=False, bint tags=True,
        bint passengers=False,
    ):
        """Writes a row for each unit.

        Args:
            out: (rows, 46) int64, columns as in `pysc2.lib.features.FeatureUnit`.
            view: World to pixels: map height, then x and y of the first offset, the scale and
                the second offset.
            on_screen: Only units that the camera sees.
            tags: Fill the column `tag`.
            passengers: After all units, a row for each unit that another carries.

        Returns:
            The number of rows written; the rest is as it was.
        """
        cdef View where
        cdef int64_t count
        (where.map_height, where.before_x, where.before_y, where.scale_x, where.scale_y,
         where.after_x, where.after_y) = view
        if out.shape[0] < self.count(passengers) or out.shape[1] != UNIT_FEATURES:
            raise ValueError(
                f"unit features are ({self.count(passengers)}, {UNIT_FEATURES}), "
                f"the array ({out.shape[0]}, {out.shape[1]})"
            )
        if out.shape[0] == 0:
            return 0
        with nogil:
            count = self.write(&out[0, 0], &where, on_screen, tags, passengers)
        if count < 0:
            raise MemoryError
        return count

    cdef int64_t write(
        self, int64_t* out, const View* view, bint on_screen, bint tags, bint passengers
    ) noexcept nogil:
        cdef Table* table = self.decoder.tables + self.units
        cdef const Unit* units = <const Unit*> table.data
        cdef const Unit* unit
        cdef const Passenger* carried = <const Passenger*> (
            self.decoder.tables[self.passengers].data
        )
        cdef int64_t i, j, rows = 0
        if self.hash_types() < 0:
            return -1
        for i in range(table.count):
            unit = units + i
            if on_screen and not unit.is_on_screen:
                continue
            self.write_unit(out + rows * UNIT_FEATURES, unit, view, tags)
            rows += 1
        if passengers:
            for i in range(table.count):
                unit = units + i
                if not on_screen or unit.is_on_screen:
                    for j in range(unit.passengers.start,
                                   unit.passengers.start + unit.passengers.count):
                        self.write_passenger(
                            out + rows * UNIT_FEATURES, unit, carried + j, view, tags
                        )
                        rows += 1
        return rows

    cdef void write_unit(
        self, int64_t* out, const Unit* u, const View* view, bint tags
    ) noexcept nogil:
        cdef const Order* orders = <const Order*> self.decoder.tables[self.orders].data
        cdef const uint32_t* buffs = <const uint32_t*> self.decoder.tables[self.buffs].data
        orders += u.orders.start
        buffs += u.buff_ids.start
        out[0] = u.unit_type
        out[1] = u.alliance
        out[2] = whole(u.health)
        out[3] = whole(u.shield)
        out[4] = whole(u.energy)
        out[5] = u.cargo_space_taken
        out[6] = whole(<double> u.build_progress * 100)
        out[7] = ratio(u.health, u.health_max)
        out[8] = ratio(u.shield, u.shield_max)
        out[9] = ratio(u.energy, u.energy_max)
        out[10] = u.display_type
        out[11] = u.owner
        place(view, &u.pos, out + 12)
        out[14] = whole(u.facing)
        out[15] = whole(<double> u.radius * view.scale_x)
        out[16] = u.cloak
        out[17] = u.is_selected
        out[18] = u.is_blip
        out[19] = u.is_powered
        out[20] = u.mineral_contents
        out[21] = u.vespene_contents
        out[22] = u.cargo_space_max
        out[23] = u.assigned_harvesters
        out[24] = u.ideal_harvesters
        out[25] = whole(u.weapon_cooldown)
        out[26] = u.orders.count
        out[27] = self.function(orders, u.orders.count, 0)
        out[28] = self.function(orders, u.orders.count, 1)
        out[29] = <int64_t> u.tag if tags else 0
        out[30] = u.is_hallucination
        out[31] = buffs[0] if u.buff_ids.count > 0 else 0
        out[32] = buffs[1] if u.buff_ids.count > 1 else 0
        out[33] = self.type_of(u.add_on_tag) if u.add_on_tag else 0
        out[34] = u.is_active
        out[35] = u.is_on_screen
        out[36] = whole(<double> orders[0].progress * 100) if u.orders.count > 0 else 0
        out[37] = whole(<double> orders[1].progress * 100) if u.orders.count > 1 else 0
        out[38] = self.function(orders, u.orders.count, 2)
        out[39] = self.function(orders, u.orders.count, 3)
        out[40] = 0
        out[41] = u.buff_duration_remain
        out[42] = u.buff_duration_max
        out[43] = u.attack_upgrade_level
        out[44] = u.armor_upgrade_level
        out[45] = u.shield_upgrade_level

    cdef void write_passenger(
        self, int64_t* out, const Unit* u, const Passenger* p, const View* view, bint tags
    ) noexcept nogil:
        memset(out, 0, UNIT_FEATURES * sizeof(int64_t))
        out[0] = p.unit_type
        out[1] = u.alliance
        out[2] = whole(p.health)
        out[3] = whole(p.shield)
        out[4] = whole(p.energy)
        out[7] = ratio(p.health, p.health_max)
        out[8] = ratio(p.shield, p.shield_max)
        out[9] = ratio(p.energy, p.energy_max)
        out[11] = u.owner
        place(view, &u.pos, out + 12)
        out[29] = <int64_t> p.tag if tags else 0
        out[40] = 1

    @cython.boundscheck(False)  # the ability id is compared with the length
    cdef int64_t function(
        self, const Order* orders, int64_t count, int64_t i
    ) noexcept nogil:
        if i >= count or orders[i].ability_id >= <uint64_t> self.functions.shape[0]:
            return 0
        return self.functions[orders[i].ability_id]

    cdef int hash_types(self) noexcept nogil:
        """Fills the hash table, if there are add-ons; -1 if there is no memory for it.

        Of two units with one tag the later counts, as in pysc2.
        """
        cdef const Table* table = self.decoder.tables + self.units
        cdef const Unit* units = <const Unit*> table.data
        cdef uint64_t size = self.mask + 1 if self.slots != NULL else 256
        cdef int64_t i
        cdef Slot* slot
        for i in range(table.count):
            if units[i].add_on_tag:
                break
        else:
            return 0
        while size < 2 * <uint64_t> table.count:
            size *= 2
        if self.slots == NULL or size != self.mask + 1:
            slot = <Slot*> realloc(self.slots, size * sizeof(Slot))
            if slot == NULL:
                return -1
            self.slots = slot
            self.mask = size - 1
        memset(self.slots, 0, size * sizeof(Slot))
        for i in range(table.count):
            if units[i].tag:        # no tag means no unit, and an empty slot
                slot = self.find(units[i].tag)
                slot.tag, slot.unit_type = units[i].tag, units[i].unit_type
        return 0

    cdef Slot* find(self, uint64_t tag) noexcept nogil:
        """The slot that has the tag, or the empty one where it would go."""
        cdef uint64_t i = (tag * 0x9E3779B97F4A7C15ULL) >> 32 & self.mask
        while self.slots[i].tag != tag and self.slots[i].tag != 0:
            i = (i + 1) & self.mask
        return self.slots + i

    cdef uint32_t type_of(self, uint64_t tag) noexcept nogil:
        return self.find(tag).unit_type


cdef bint fits(const Image* image, int64_t height, int64_t width) noexcept nogil:
    """Whether an image is of the size wanted and has as many bytes as that takes."""
    cdef int64_t pixels = height * width
    cdef int bits = image.bits_per_pixel
    if image.x != width or image.y != height or bits not in (1, 8, 16, 32):
        return False
    return image.length == (pixels + 7) // 8 if bits == 1 else image.length == pixels * (bits // 8)


ctypedef fused Pixel:
    uint8_t
    int32_t


cdef void unpack(
    const Image* image, const uint8_t* data, Pixel* out, int64_t count
) noexcept nogil:
    """Writes an image's pixels, whatever their size, into a plane of another."""
    cdef int64_t i
    cdef uint16_t half
    cdef int32_t word
    cdef uint8_t byte
    data += image.offset
    if image.bits_per_pixel == 1:
        for i in range(count >> 3):
            byte = data[i]
            out[0] = byte >> 7
            out[1] = byte >> 6 & 1
            out[2] = byte >> 5 & 1
            out[3] = byte >> 4 & 1
            out[4] = byte >> 3 & 1
            out[5] = byte >> 2 & 1
            out[6] = byte >> 1 & 1
            out[7] = byte & 1
            out += 8
        for i in range(count & 7):
            out[i] = data[count >> 3] >> (7 - i) & 1
    elif image.bits_per_pixel == 8:
        if Pixel is uint8_t:
            memcpy(out, data, count)
        else:
            for i in range(count):
                out[i] = data[i]
    elif image.bits_per_pixel == 16:
        for i in range(count):
            memcpy(&half, data + 2 * i, 2)
            if Pixel is uint8_t:
                out[i] = <uint8_t> (255 if half > 255 else half)
            else:
                out[i] = half
    elif Pixel is int32_t:
        memcpy(out, data, 4 * count)
    else:
        for i in range(count):
            memcpy(&word, data + 4 * i, 4)
            out[i] = <uint8_t> (0 if word < 0 else 255 if word > 255 else word)


@cython.boundscheck(False)  # one offset a plane, checked below
def fill_planes(
    Decoder decoder, const uint8_t[::1] data, const int64_t[::1] offsets, Pixel[:, :, ::1] out
):
    """Writes images of the message a decoder read into the planes of an array.

    Args:
        decoder: Read `data`.
        data: The message.
        offsets: (planes,) where each plane's `ImageData` is in the decoder's first record.
        out: (planes, height, width), uint8 or int32. Pixels beyond 255 are 255 in uint8.

    An image that is not there, or of size 0 by 0, is a plane of zeros.

    Raises:
        CorruptMessageError: An image is of another size than `out`, or has not as many bytes
            as its size says.
    """
    cdef int64_t plane, height = out.shape[1], width = out.shape[2]
    cdef int64_t record = decoder.tables[0].row
    cdef const Image* image
    if offsets.shape[0] != out.shape[0]:
        raise ValueError(f"{offsets.shape[0]} offsets for {out.shape[0]} planes")
    if decoder.tables[0].count != 1 or height * width == 0:
        raise ValueError("nothing was read, or there is nothing to fill")
    for plane in range(out.shape[0]):
        if not 0 <= offsets[plane] <= record - <int64_t> sizeof(Image):
            raise ValueError(f"no image lies at byte {offsets[plane]} of the record")
        image = <const Image*> (decoder.tables[0].data + offsets[plane])
        if image.x == 0 and image.y == 0:
            memset(&out[plane, 0, 0], 0, height * width * sizeof(Pixel))
            continue
        if image.offset < 0 or image.length < 0 or image.length > data.shape[0] - image.offset:
            raise ValueError("these are not the bytes that were read")
        if not fits(image, height, width):
            raise CorruptMessageError(
                image.offset,
                f"an image of {image.x} by {image.y} pixels of {image.bits_per_pixel} bits has "
                f"{image.length} bytes; wanted is one of {width} by {height}",
            )
        with nogil:
            unpack(image, &data[0], &out[plane, 0, 0], height * width)
