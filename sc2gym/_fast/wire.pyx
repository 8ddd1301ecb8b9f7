"""Protobuf messages straight from the wire into tables of records, in one pass.

A `Decoder` knows one kind of message (see `sc2gym.schema`). `read` walks the bytes once, without
the GIL, and writes each value where it belongs: a singular message field is a record within its
parent's record, a repeated field is rows of a table of its own, of which the parent keeps where
they start and how many there are. Strings, bytes and so images stay where they are: the record
has their offset and length. No Python object is made, and once the tables have grown to the size
of what is read, nothing is allocated either.

Protobuf's rules hold: of a singular field the last value counts, a singular message field that
comes again is merged, setting one member of a oneof clears the others, repeated numbers come
packed or not, unknown fields and fields of another wire type are skipped. One thing differs:
an enum value that the schema's writers did not know yet is kept, not dropped.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from sc2gym._fast.proto cimport (
    END_GROUP, FIXED32, LENGTH, MAX_DEPTH, VARINT, Bytes, read_uint32, read_varint, skip_value,
)
from sc2gym._fast.unit cimport LANE_BYTES, Unit, lane_after_orders, lane_to_orders, two_bytes

import numpy as np

from sc2gym.errors import CorruptMessageError

cdef enum Kind:
    # What a field holds and so how it is written; the last row are repeated fields.
    UNKNOWN, INT32, INT64, BOOL, FLOAT, BLOB, MESSAGE, OPTIONAL,
    INT32S, INT64S, FLOATS, BLOBS, MESSAGES

# For the schema compiler, which builds arrays of `Field`.
KINDS = {
    "int32": INT32, "int64": INT64, "bool": BOOL, "float": FLOAT, "blob": BLOB,
    "message": MESSAGE, "optional": OPTIONAL, "int32*": INT32S, "int64*": INT64S,
    "float*": FLOATS, "blob*": BLOBS, "message*": MESSAGES,
}

cdef enum:
    FIELDS = 64             # field numbers a message can have; higher ones are unknown fields
    TABLE_BYTES = 1 << 28   # the most that one table may take; real ones take kilobytes

MAX_FIELDS = FIELDS

FIELD = np.dtype([
    ("bit", "u8"), ("others", "u8"), ("kind", "i4"), ("wire", "u4"), ("offset", "i4"),
    ("size", "i4"), ("message", "i4"), ("table", "i4"),
])

assert FIELD.itemsize == sizeof(Field)

ERRORS = {
    BAD_TAG: "no field tag",
    BAD_VALUE: "the value goes on past the end of what holds it",
    STRAY_END: "the end of a group that was not begun",
    TOO_DEEP: f"messages nested more than {MAX_DEPTH} deep",
    TOO_MANY: "more rows than the table can take",
}

cdef int fail(State* s, Error error, Bytes at, int32_t message, uint32_t tag) noexcept nogil:
    s.error, s.error_at, s.error_message, s.error_field = error, at, message, tag >> 3
    return -1


cdef int grow(State* s, int32_t table) noexcept nogil:
    with gil:
        return (<Decoder> s.decoder)._grow(table)


cdef inline char* add_row(State* s, int32_t table) noexcept nogil:
    """A new row at the table's end, its content undefined; NULL if there can be none."""
    cdef Table* t = s.tables + table
    if t.count == t.capacity and grow(s, table) < 0:
        return NULL
    t.count += 1
    return t.data + (t.count - 1) * t.row


cdef inline void note_row(const Table* table, char* pair) noexcept nogil:
    """Counts the table's last row in a field's (start, count). Rows of one field never lie
    among those of another record: each field of each place in the tree has its own table."""
    if (<int64_t*> pair)[1] == 0:
        (<int64_t*> pair)[0] = table.count - 1
    (<int64_t*> pair)[1] += 1


cdef inline int add_value(
    State* s, const Field* field, char* record, uint64_t value
) noexcept nogil:
    """One more number of a repeated field, in a table that `record` is not in."""
    cdef char* row = add_row(s, field.table)
    if row == NULL:
        return -1
    if field.kind == INT64S:
        (<uint64_t*> row)[0] = value
    else:
        (<uint32_t*> row)[0] = <uint32_t> value
    note_row(s.tables + field.table, record + field.offset)
    return 0


cdef int read_row(
    State* s, const Field* field, Bytes at, Bytes end, int32_t table, int64_t base, int depth
) noexcept nogil:
    """Reads [at, end) into a row of the field's table, which may be the record's own."""
    cdef Table* rows = s.tables + field.table
    cdef int64_t* pair = <int64_t*> (s.tables[table].data + base + field.offset)
    cdef char* row
    cdef int64_t index
    if field.kind == OPTIONAL and pair[1] == 1:
        index = pair[0]     # comes again: merged
    else:
        row = add_row(s, field.table)
        if row == NULL:
            return fail(s, TOO_MANY, at, field.message, 0)
        if field.message == s.unit:
            memcpy(row, rows.blank, sizeof(Unit))   # a size known here is a few stores
        else:
            memcpy(row, rows.blank, rows.row)
        index = rows.count - 1
        note_row(rows, s.tables[table].data + base + field.offset)
    if field.kind == BLOBS:
        row = rows.data + index * rows.row
        (<int64_t*> row)[0] = at - s.begin
        (<int64_t*> row)[1] = end - at
        return 0
    if field.message == s.unit and s.end - at >= LANE_BYTES:
        at = read_unit(s, at, end, field, index, depth)
        if at == end:
            return 0
        if at == NULL:
            return -1
    return read_message(s, at, end, field.message, field.table, index * rows.row, depth + 1)


cdef inline Bytes read_unit(
    State* s, Bytes at, Bytes end, const Field* field, int64_t index, int depth
) noexcept nogil:
    """Reads a unit on its fast lane as far as that goes; returns where, NULL if in error."""
    cdef const Field* fields = s.fields + field.message * FIELDS
    cdef Unit* unit = <Unit*> (s.tables[field.table].data) + index
    cdef Bytes start = at
    cdef uint32_t length = 0
    at = lane_to_orders(at, unit)
    while at != NULL and at < end and two_bytes(at) == 0x01B2:
        at = read_uint32(at + 2, end, &length)
        if at == NULL or length > <uint64_t> (end - at):
            break
        if read_row(s, fields + 22, at, at + length, field.table,
                    index * <int64_t> sizeof(Unit), depth + 1) < 0:
            return NULL
        unit.has |= fields[22].bit
        at += length
    if at != NULL and at < end:
        at = lane_after_orders(at, unit)
    if at == NULL or at > end:
        memcpy(unit, s.tables[field.table].blank, sizeof(Unit))
        return start
    return at


cdef Bytes read_packed(
    State* s, const Field* field, Bytes at, Bytes end, char* record
) noexcept nogil:
    """A repeated field's numbers behind one tag and length; NULL if they do not fit it."""
    cdef uint64_t value = 0
    cdef uint32_t length = 0
    at = read_uint32(at, end, &length)
    if at == NULL or length > <uint64_t> (end - at):
        return NULL
    end = at + length
    while at != end:
        if field.kind == FLOATS:
            if end - at < 4:
                return NULL
            memcpy(&value, at, 4)
            at += 4
        else:
            at = read_varint(at, end, &value)
            if at == NULL:
                return NULL
        if add_value(s, field, record, value) < 0:
            return NULL
    return end


cdef void clear(
    const Field* fields, uint64_t bits, char* record, const char* blank
) noexcept nogil:
    """Sets members of a oneof back to nothing. Rows they had stay behind, unreachable."""
    cdef int number
    for number in range(FIELDS):
        if fields[number].bit & bits:
            memcpy(record + fields[number].offset, blank + fields[number].offset,
                   fields[number].size)


cdef int read_message(
    State* s, Bytes at, Bytes end, int32_t message, int32_t table, int64_t base, int depth
) noexcept nogil:
    """Reads the fields in [at, end) into the record at byte `base` of `table`."""
    cdef const Field* fields = s.fields + message * FIELDS
    cdef const Field* field
    cdef Bytes start
    cdef char* record = s.tables[table].data + base
    cdef uint64_t has = (<uint64_t*> record)[0]
    cdef uint64_t value = 0
    cdef uint32_t tag = 0, length = 0
    if depth > MAX_DEPTH:
        return fail(s, TOO_DEEP, at, message, 0)
    while at != end:
        start = at
        at = read_uint32(at, end, &tag)
        if at == NULL or tag < 8:
            return fail(s, BAD_TAG, start, message, 0)
        # Field 0 does not exist: its entry stands for all that are unknown.
        field = fields + (tag >> 3 if tag < 8 * FIELDS else 0)
        if tag & 7 != field.wire:
            if tag & 7 == LENGTH and field.kind in (INT32S, INT64S, FLOATS):
                at = read_packed(s, field, at, end, record)
                if at != NULL and (<int64_t*> (record + field.offset))[1]:
                    has |= field.bit
            else:
                at = skip_value(at, end, tag, depth)
            if at == NULL:
                return fail(s, STRAY_END if tag & 7 == END_GROUP else BAD_VALUE,
                            start, message, tag)
            continue
        if field.others & has:
            clear(fields, field.others & has, record,
                  s.tables[table].blank + base % s.tables[table].row)
            has &= ~field.others
        has |= field.bit
        if field.wire == FIXED32:
            if end - at < 4:
                return fail(s, BAD_VALUE, start, message, tag)
            memcpy(&value, at, 4)
            at += 4
            if field.kind == FLOAT:
                memcpy(record + field.offset, &value, 4)
            elif add_value(s, field, record, value) < 0:
                return fail(s, TOO_MANY, start, message, tag)
        elif field.wire == VARINT:
            at = read_varint(at, end, &value)
            if at == NULL:
                return fail(s, BAD_VALUE, start, message, tag)
            if field.kind == INT32:
                (<uint32_t*> (record + field.offset))[0] = <uint32_t> value
            elif field.kind == INT64:
                (<uint64_t*> (record + field.offset))[0] = value
            elif field.kind == BOOL:
                (<uint8_t*> (record + field.offset))[0] = value != 0
            elif add_value(s, field, record, value) < 0:
                return fail(s, TOO_MANY, start, message, tag)
        else:
            at = read_uint32(at, end, &length)
            if at == NULL or length > <uint64_t> (end - at):
                return fail(s, BAD_VALUE, start, message, tag)
            if field.kind == MESSAGE:
                if read_message(s, at, at + length, field.message, table,
                                base + field.offset, depth + 1) < 0:
                    return -1
            elif field.kind == BLOB:
                (<int64_t*> (record + field.offset))[0] = at - s.begin
                (<int64_t*> (record + field.offset))[1] = length
            elif read_row(s, field, at, at + length, table, base, depth) < 0:
                return -1
            at += length
            record = s.tables[table].data + base    # rows added may have moved the table
    (<uint64_t*> record)[0] = has
    return 0


cdef class Decoder:
    """Reads messages of one schema, one after another, into the same tables.

    Args:
        schema: What to read, a `sc2gym.schema.Schema`.
        tables: Arrays to write rows into instead of the decoder's own, by table path. They
            must have the table's dtype, be C-contiguous and writeable, and do not grow: a
            message with more rows than that is refused.

    Not for two threads at a time.
    """

    def __cinit__(self, schema, tables=None):
        cdef const uint8_t[::1] fields = schema.fields.view(np.uint8).reshape(-1)
        cdef const uint8_t[::1] blank
        cdef int index
        self.schema = schema
        self._fields = schema.fields
        self._storage = []
        self._blanks = []
        self._bound = set()
        self.num_tables = len(schema.tables)
        self.tables = <Table*> calloc(self.num_tables, sizeof(Table))
        if self.tables == NULL:
            raise MemoryError
        self.state.fields = <const Field*> &fields[0]
        self.state.tables = self.tables
        self.state.decoder = <void*> self
        self.state.unit = schema.message("Unit")
        for index, table in enumerate(schema.tables):
            if table.path == "observation.raw_data.units":
                assert table.dtype.itemsize == sizeof(Unit)
            blank = np.frombuffer(table.blank, np.uint8)
            self._blanks.append(table.blank)
            self.tables[index].blank = <const char*> &blank[0]
            self.tables[index].row = table.dtype.itemsize
            self._storage.append(None)
            self._store(index, np.empty(1 if index == 0 else 8, table.dtype))
        for path, array in (tables or {}).items():
            self._bind(path, array)

    def __dealloc__(self):
        free(self.tables)

    def _bind(self, path, array):
        index = self.schema.index(path)
        if array.dtype != self.schema.tables[index].dtype or array.ndim != 1:
            raise ValueError(
                f"table {path!r} is one-dimensional, of {self.schema.tables[index].dtype}"
            )
        if not (array.flags.c_contiguous and array.flags.writeable and array.flags.aligned):
            raise ValueError(f"the array for table {path!r} is not contiguous and writeable")
        self._bound.add(index)
        self._store(index, array)

    cdef _store(self, int index, array):
        cdef uint8_t[::1] memory
        self.tables[index].data = NULL
        self.tables[index].capacity = array.shape[0]
        if array.size:
            memory = array.view(np.uint8)
            self.tables[index].data = <char*> &memory[0]
        self._storage[index] = array    # what it was lives on in the views given out

    cdef int _grow(self, int index) noexcept:
        cdef Table* table = self.tables + index
        old = self._storage[index]
        if index in self._bound or 2 * table.capacity * table.row > TABLE_BYTES:
            return -1
        try:
            array = np.empty(2 * table.capacity, old.dtype)
            # All bytes, so that equal messages make equal tables down to the padding.
            used = table.count * table.row
            array.view(np.uint8)[:used] = old.view(np.uint8)[:used]
            self._store(index, array)
        except MemoryError:
            return -1
        return 0

    cdef int decode(self, Bytes data, int64_t size) noexcept nogil:
        """Reads a message; 0, or -1 with the tables empty and the reason in `state`."""
        cdef int index
        cdef int result
        for index in range(self.num_tables):
            self.tables[index].count = 0
        add_row(&self.state, 0)
        memcpy(self.tables[0].data, self.tables[0].blank, self.tables[0].row)
        self.state.error = NO_ERROR
        self.state.begin = data
        self.state.end = data + size
        result = read_message(&self.state, data, data + size, 0, 0, 0, 0)
        if result < 0:
            for index in range(self.num_tables):
                self.tables[index].count = 0
        return result

    def read(self, data):
        """Reads a message; the rows of the one before are gone, also from views of them.

        Args:
            data: Any contiguous buffer: bytes, memoryview, Arrow buffer, mmap.

        Raises:
            CorruptMessageError: The bytes are not such a message; says where. The tables are
                empty then.
        """
        cdef Py_buffer view
        cdef int result
        if self._reading:
            raise RuntimeError("this decoder is reading in another thread")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        self._reading = True
        try:
            with nogil:
                result = self.decode(<Bytes> view.buf, view.len)
            if result < 0:
                raise self.error()
        finally:
            self._reading = False
            PyBuffer_Release(&view)

    cdef error(self):
        cdef State* s = &self.state
        what = self.schema.describe(s.error_message, s.error_field)
        return CorruptMessageError(s.error_at - s.begin, f"{what}: {ERRORS[s.error]}")

    def __getitem__(self, str path):
        """The rows of a table, a read-only view that the next `read` overwrites."""
        cdef int index = self.schema.index(path)
        rows = self._storage[index][:self.tables[index].count]
        rows.flags.writeable = False
        return rows
