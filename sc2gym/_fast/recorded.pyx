"""Frames from recorded observations: the game's own layers and units, into rows of a batch.

A layer that the game recorded is taken as it is, scaled to the size asked for by its nearest
pixels. One that it did not record is drawn from raw units and the map's cells, as far as those
tell (see `sc2gym.spaces`). The whole map is scaled alike in both directions, as pysc2 does.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pythread cimport (
    WAIT_LOCK, PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock,
    PyThread_release_lock, PyThread_type_lock,
)
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from sc2gym._fast.features cimport (
    UNIT_FEATURES, FeatureUnits, Image, Passenger, View, fits,
)
from sc2gym._fast.frame cimport PLAYER_FIELDS, FrameSource, Layout, Row
from sc2gym._fast.proto cimport Bytes
from sc2gym._fast.unit cimport Point, Unit
from sc2gym._fast.wire cimport Decoder, Table

cdef enum Layer:
    # As in `sc2gym.spaces.LAYERS`. The first ten are layers of the game's.
    HEIGHT_MAP, VISIBILITY_MAP, CREEP, CAMERA, PLAYER_ID, PLAYER_RELATIVE, SELECTED, ALERTS,
    PATHABLE, BUILDABLE, UNIT_DENSITY, BUILD_PROGRESS, UNIT_CLASS, NUM_LAYERS

cdef enum:
    NUM_RECORDED = 10
    MAX_SIDE = 8192     # pixels of an image; real ones have at most 512
    NOT_READ = 1        # codes of `fill`: the frame could not be read; `failure` says why
    NO_MEMORY = 2

# Half of what a player sees of the map around the camera's centre, in cells.
cdef double CAMERA_HALF_WIDTH = 14.0
cdef double CAMERA_HALF_HEIGHT = 10.0


cdef inline int pixel_of(double value, int size) noexcept nogil:
    """The pixel at a place, the nearest one if it is outside or not a number."""
    if not value > 0:
        return 0
    return size - 1 if value >= size else <int> value


cdef inline uint8_t pixel_at(const Image* image, Bytes data, int64_t i) noexcept nogil:
    """Pixel `i` of an image that fits; 255 for more."""
    cdef uint16_t half
    cdef int32_t word
    data += image.offset
    if image.bits_per_pixel == 1:
        return data[i >> 3] >> (7 - (i & 7)) & 1
    if image.bits_per_pixel == 8:
        return data[i]
    if image.bits_per_pixel == 16:
        memcpy(&half, data + 2 * i, 2)
        return <uint8_t> min(half, 255)
    memcpy(&word, data + 4 * i, 4)
    return <uint8_t> max(0, min(word, 255))


# The garbage collector would drop what `wire` is a buffer of without releasing the buffer. What
# else is in a cycle with a source (the traceback of its `failure`) is enough to break the cycle.
@cython.no_gc_clear
cdef class WireSource(FrameSource):
    """One player's frames, read from the wire when they are asked for.

    Args:
        decoder: Of `ResponseObservation`, used by this source alone.
        functions: (abilities,) int32, the raw function id of each ability id.
        load: Gives the wire bytes of a frame by its ordinal.
        game_loops: (frames,) int32, ascending. A frame holds until the next one's loop.
        map_size: (width, height) in cells.
        images: (13,) int64, where in the decoder's record are: the images of the game's minimap
            layers, by layer id; the map's visibility and creep; the camera's point.
        player: (11,) int64, where pysc2's player values are in the record.
        types: (n,) uint8, the class of each unit type.
        upgrades: (n,) int32, the place in the upgrade vector of each upgrade id, -1 for none.
        grids: Height, pathing and placement of the map, (height, width) uint8 each, row 0 at
            y = 0; or None.

    Attributes:
        failure: The exception behind the last code that was not 0.
    """

    cdef readonly object failure
    cdef Decoder decoder
    cdef FeatureUnits features
    cdef object load
    cdef PyThread_type_lock lock
    cdef const int32_t[::1] game_loops
    cdef const int64_t[::1] images
    cdef const int64_t[::1] player
    cdef const uint8_t[::1] types
    cdef const int32_t[::1] upgrades
    cdef const uint8_t[:, :, ::1] grids
    cdef int units, passengers, upgrade_ids
    cdef double map_width, map_height
    cdef View view
    cdef Py_ssize_t frame       # the one that is in the decoder, -1 for none
    cdef Py_buffer wire         # and its bytes
    cdef bint held

    def __cinit__(
        self, Decoder decoder not None, functions, load, const int32_t[::1] game_loops not None,
        map_size, const int64_t[::1] images not None, const int64_t[::1] player not None,
        const uint8_t[::1] types not None, const int32_t[::1] upgrades not None,
        const uint8_t[:, :, ::1] grids=None,
    ):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError
        self.decoder = decoder
        self.features = FeatureUnits(decoder, functions)
        self.load = load
        self.game_loops = game_loops
        self.images = images
        self.player = player
        self.types = types
        self.upgrades = upgrades
        self.grids = grids
        self.units = decoder.schema.index("observation.raw_data.units")
        self.passengers = decoder.schema.index("observation.raw_data.units.passengers")
        self.upgrade_ids = decoder.schema.index("observation.raw_data.player.upgrade_ids")
        self.map_width, self.map_height = map_size
        if not (self.map_width > 0 and self.map_height > 0):
            raise ValueError("the map must have a size")
        last = decoder.tables[0].row - max(sizeof(Image), sizeof(Point))
        if len(images) != NUM_RECORDED + 3 or len(player) != PLAYER_FIELDS:
            raise ValueError("an offset for each layer and each player value is needed")
        if not all(0 <= at <= last for at in [*list(images), *list(player)]):
            raise ValueError("offsets beyond the record")
        if grids is not None and (
            grids.shape[0] != 3 or grids.shape[1] < 1 or grids.shape[2] < 1
        ):
            raise ValueError("grids are (3, height, width)")
        self.view.map_height = self.map_height
        self.view.scale_x = self.view.scale_y = 1.0
        self.frame = -1
        self.fill = fill_from_wire
        self.data = <void*> self

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.wire)
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    cdef int fill_row(
        self, int32_t game_loop, const Layout* layout, const Row* row
    ) noexcept:
        cdef int code
        with nogil:
            # Lanes can share a source, but it has one decoder.
            PyThread_acquire_lock(self.lock, WAIT_LOCK)
            code = self.seek(game_loop)
            if code == 0:
                code = self.write(layout, row)
                if row.game_loop != NULL:
                    row.game_loop[0] = game_loop
            PyThread_release_lock(self.lock)
        return code

    cdef int seek(self, int32_t game_loop) noexcept nogil:
        """Has the decoder hold the last frame not after a loop, else the first."""
        cdef Py_ssize_t low = 0, high = self.game_loops.shape[0], middle
        while low < high:
            middle = (low + high) >> 1
            if self.at_loop(middle) <= game_loop:
                low = middle + 1
            else:
                high = middle
        low = low - 1 if low else 0
        if low == self.frame:
            return 0
        self.frame = -1
        with gil:
            if self._hold(low) < 0:
                return NOT_READ
        if self.decoder.decode(<Bytes> self.wire.buf, self.wire.len) < 0:
            with gil:
                self.failure = self.decoder.error()
            return NOT_READ
        self.frame = low
        return 0

    @cython.boundscheck(False)  # only from `seek`, which stays within
    cdef inline int32_t at_loop(self, Py_ssize_t i) noexcept nogil:
        return self.game_loops[i]

    cdef int _hold(self, Py_ssize_t frame) noexcept:
        try:
            data = self.load(frame)
            if self.held:
                self.held = False
                PyBuffer_Release(&self.wire)
            PyObject_GetBuffer(data, &self.wire, PyBUF_SIMPLE)
            self.held = True
        except Exception as error:
            self.failure = error
            return -1
        return 0

    @cython.boundscheck(False)  # as long as the layouts are, and those were checked
    @cython.cdivision(True)
    cdef int write(self, const Layout* layout, const Row* row) noexcept nogil:
        cdef const char* record = self.decoder.tables[0].data
        cdef Table* table = self.decoder.tables + self.upgrade_ids
        cdef int64_t i
        cdef uint32_t upgrade
        if row.minimap != NULL:
            self.draw(layout, row.minimap)
        if row.units != NULL or row.unit_tags != NULL or row.unit_count != NULL:
            if self.features.hash_types() < 0:
                return NO_MEMORY
            self.list_units(layout, row)
        if row.player != NULL:
            for i in range(PLAYER_FIELDS):
                memcpy(row.player + i, record + self.player[i], sizeof(int32_t))
        if row.upgrades != NULL:
            memset(row.upgrades, 0, layout.num_upgrades)
            for i in range(table.count):
                upgrade = (<uint32_t*> table.data)[i]
                if upgrade < self.upgrades.shape[0] and (
                    0 <= self.upgrades[upgrade] < layout.num_upgrades
                ):
                    row.upgrades[self.upgrades[upgrade]] = 1
        return 0

    cdef void list_units(self, const Layout* layout, const Row* row) noexcept nogil:
        """Writes the table of units: all in the game's order, then those that they carry."""
        cdef Table* table = self.decoder.tables + self.units
        cdef Table* carried = self.decoder.tables + self.passengers
        cdef const Unit* units = <const Unit*> table.data
        cdef const Passenger* passengers = <const Passenger*> carried.data
        cdef int64_t[UNIT_FEATURES] values
        cdef int64_t i, j
        cdef int count = 0, room = layout.max_units
        for i in range(min(table.count, room)):
            self.features.write_unit(values, units + i, &self.view, True)
            self.put(layout, row, count, values, units + i)
            count += 1
        for i in range(table.count):
            for j in range(units[i].passengers.start,
                           units[i].passengers.start + units[i].passengers.count):
                if count == room:
                    break
                self.features.write_passenger(
                    values, units + i, passengers + j, &self.view, True
                )
                self.put(layout, row, count, values, NULL)
                count += 1
        if row.unit_count != NULL:
            row.unit_count[0] = count
        if row.units != NULL:
            memset(row.units + <size_t> count * layout.num_columns, 0,
                   <size_t> (room - count) * layout.num_columns * sizeof(float))
        if row.unit_tags != NULL:
            memset(row.unit_tags + count, 0, <size_t> (room - count) * sizeof(int64_t))

    cdef inline void put(
        self, const Layout* layout, const Row* row, int i, const int64_t* values, const Unit* u
    ) noexcept nogil:
        """One row. What pysc2 cuts to whole numbers only because its table has nothing else
        keeps its fraction here; `u` is NULL for a passenger, of whom less is known."""
        cdef float* cell
        cdef int c, column
        if row.unit_tags != NULL:
            row.unit_tags[i] = values[29]
        if row.units == NULL:
            return
        cell = row.units + <size_t> i * layout.num_columns
        for c in range(layout.num_columns):
            column = layout.columns[c]
            if not 0 <= column < UNIT_FEATURES:
                cell[c] = 0
            elif u == NULL:
                cell[c] = <float> values[column]
            elif column == 2:
                cell[c] = u.health
            elif column == 3:
                cell[c] = u.shield
            elif column == 4:
                cell[c] = u.energy
            elif column == 12:
                cell[c] = u.pos.x
            elif column == 13:
                cell[c] = <float> (self.map_height - u.pos.y)
            elif column == 14:
                cell[c] = u.facing
            elif column == 15:
                cell[c] = u.radius
            elif column == 25:
                cell[c] = u.weapon_cooldown
            else:
                cell[c] = <float> values[column]

    cdef void draw(self, const Layout* layout, uint8_t* planes) noexcept nogil:
        cdef Py_ssize_t size = <Py_ssize_t> layout.minimap_height * layout.minimap_width
        cdef int i, layer
        cdef uint8_t* plane
        memset(planes, 0, size * layout.num_layers)
        for i in range(layout.num_layers):
            layer = layout.layers[i]
            plane = planes + i * size
            if 0 <= layer < NUM_RECORDED and self.recorded(layout, layer, plane):
                continue
            if layer == HEIGHT_MAP:
                self.draw_grid(layout, 0, plane)
            elif layer == PATHABLE:
                self.draw_grid(layout, 1, plane)
            elif layer == BUILDABLE:
                self.draw_grid(layout, 2, plane)
            elif layer == VISIBILITY_MAP:
                self.draw_cells(layout, NUM_RECORDED, plane)
            elif layer == CREEP:
                self.draw_cells(layout, NUM_RECORDED + 1, plane)
            elif layer == CAMERA:
                self.draw_camera(layout, plane)
            elif layer != ALERTS:
                self.draw_units(layout, layer, plane)

    @cython.boundscheck(False)  # images has a place for each layer
    cdef inline const Image* image(self, int i) noexcept nogil:
        """An image of the message, NULL if it has none or one that is not sound."""
        cdef const Image* image = <const Image*> (self.decoder.tables[0].data + self.images[i])
        if not (0 < image.x <= MAX_SIDE and 0 < image.y <= MAX_SIDE):
            return NULL
        return image if fits(image, image.y, image.x) else NULL

    @cython.cdivision(True)
    cdef bint recorded(self, const Layout* layout, int layer, uint8_t* plane) noexcept nogil:
        """Takes a layer from the game's own minimap, if it is there."""
        cdef const Image* image = self.image(layer)
        cdef int x, y, height = layout.minimap_height, width = layout.minimap_width
        cdef int64_t line
        cdef Bytes data = <Bytes> self.wire.buf
        if image == NULL:
            return False
        if image.bits_per_pixel == 8 and image.x == width and image.y == height:
            memcpy(plane, data + image.offset, <size_t> height * width)
            return True
        for y in range(height):
            line = <int64_t> y * image.y // height * image.x
            for x in range(width):
                plane[x] = pixel_at(image, data, line + <int64_t> x * image.x // width)
            plane += width
        return True

    cdef inline double scale(self, const Layout* layout) noexcept nogil:
        """Pixels a cell."""
        return min(layout.minimap_width / self.map_width, layout.minimap_height / self.map_height)

    cdef void draw_cells(self, const Layout* layout, int which, uint8_t* plane) noexcept nogil:
        """A picture of the whole map's cells, whose row 0 is at y = 0, so at the bottom."""
        cdef const Image* image = self.image(which)
        cdef double cells = 1 / self.scale(layout)
        cdef int64_t x, y, row, column
        if image == NULL:
            return
        for row in range(layout.minimap_height):
            y = <int64_t> (self.map_height - (row + 0.5) * cells)
            for column in range(layout.minimap_width):
                x = <int64_t> ((column + 0.5) * cells)
                if 0 <= y < image.y and x < image.x:
                    plane[row * layout.minimap_width + column] = pixel_at(
                        image, <Bytes> self.wire.buf, y * image.x + x
                    )

    @cython.boundscheck(False)  # x and y are compared with the grid's size
    cdef void draw_grid(self, const Layout* layout, int which, uint8_t* plane) noexcept nogil:
        """Likewise one of the map's grids."""
        cdef double cells = 1 / self.scale(layout)
        cdef int64_t x, y, row, column
        if self.grids is None:
            return
        for row in range(layout.minimap_height):
            y = <int64_t> (self.map_height - (row + 0.5) * cells)
            for column in range(layout.minimap_width):
                x = <int64_t> ((column + 0.5) * cells)
                if 0 <= y < self.grids.shape[1] and x < self.grids.shape[2]:
                    plane[row * layout.minimap_width + column] = self.grids[which, y, x]

    @cython.boundscheck(False)  # images has a place for it
    cdef void draw_camera(self, const Layout* layout, uint8_t* plane) noexcept nogil:
        cdef const Point* camera = <const Point*> (
            self.decoder.tables[0].data + self.images[NUM_RECORDED + 2]
        )
        cdef double scale = self.scale(layout), y = self.map_height - camera.y
        cdef int left, right, top, bottom, line
        if camera.has == 0:
            return
        left = pixel_of((camera.x - CAMERA_HALF_WIDTH) * scale, layout.minimap_width)
        right = pixel_of((camera.x + CAMERA_HALF_WIDTH) * scale, layout.minimap_width)
        top = pixel_of((y - CAMERA_HALF_HEIGHT) * scale, layout.minimap_height)
        bottom = pixel_of((y + CAMERA_HALF_HEIGHT) * scale, layout.minimap_height)
        for line in range(top, bottom + 1):
            memset(plane + line * layout.minimap_width + left, 1, right - left + 1)

    @cython.boundscheck(False)  # the unit type is compared with the length
    cdef void draw_units(self, const Layout* layout, int layer, uint8_t* plane) noexcept nogil:
        """Squares as large as the units, later ones over earlier ones; density is points."""
        cdef Table* table = self.decoder.tables + self.units
        cdef const Unit* u = <const Unit*> table.data
        cdef double scale = self.scale(layout)
        cdef int width = layout.minimap_width, height = layout.minimap_height
        cdef int x, y, half, line, left, right
        cdef int64_t i, value
        for i in range(table.count):
            x = pixel_of(u.pos.x * scale, width)
            y = pixel_of((self.map_height - u.pos.y) * scale, height)
            value = 0
            if layer == UNIT_DENSITY:
                plane[y * width + x] += plane[y * width + x] < 255
            elif layer == PLAYER_ID:
                value = u.owner
            elif layer == PLAYER_RELATIVE:
                value = u.alliance
            elif layer == SELECTED:
                value = u.is_selected
            elif layer == BUILD_PROGRESS:
                value = <int64_t> (100 * u.build_progress) if 0 < u.build_progress < 1 else 0
            elif layer == UNIT_CLASS and u.unit_type < self.types.shape[0]:
                value = self.types[u.unit_type]
            if value:
                half = pixel_of(u.radius * scale, 61)
                left, right = max(x - half, 0), min(x + half, width - 1)
                for line in range(max(y - half, 0), min(y + half, height - 1) + 1):
                    memset(plane + line * width + left, <uint8_t> value, right - left + 1)
            u += 1


cdef int fill_from_wire(
    const void* data, int32_t game_loop, const Layout* layout, const Row* row
) noexcept nogil:
    """`WireSource`'s fill. Loading a frame takes the GIL, decoding and writing do not."""
    with gil:
        return (<WireSource> data).fill_row(game_loop, layout, row)
