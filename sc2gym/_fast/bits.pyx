# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Both of s2protocol's encodings, read into columns or, for the small members, into objects.

A type table is compiled (by `sc2gym.protocol`) to two flat arrays: nodes, one per type, and fields,
the members of structs and choices. A *plan* is such a table for one event type, unrolled, in which
every node may carry the byte of a record its value goes to. One walk serves everything: it steps
over what has no destination and writes what has one.

Checks are switched off for the file because no index comes from input: input bytes are read through
`cursor.pxd` alone, nodes come from compiled tables, and rows of child tables are claimed in `claim`,
which checks. Errors are codes on the cursor; `_raise` turns them into exceptions.
"""

cimport cython
cimport numpy as cnp
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from sc2gym._fast.cursor cimport (
    BAD_CHOICE, BAD_EVENT, BAD_MARKER, BAD_NUMBER, LEFT_OVER, TOO_DEEP, TOO_MUCH, TRUNCATED, Cursor,
    bits_left, byte_align, cursor_init, fail, read_bits, read_byte, read_length, read_vint, skip_bits,
    take_bytes,
)

import numpy as np

from sc2gym.errors import CorruptReplayError

cnp.import_array()

cdef enum Kind:
    INT = 0
    BOOL = 1
    BLOB = 2
    ARRAY = 3
    BITARRAY = 4
    CHOICE = 5
    STRUCT = 6
    OPTIONAL = 7
    FOURCC = 8
    NOTHING = 9
    REAL32 = 10
    REAL64 = 11

cdef enum:
    MAX_DEPTH = 64      # real values nest 11 deep
    MAX_EVENT_ID = 256
    UNKNOWN = -3        # a width not yet found out
    MAX_TABLE_BYTES = 1 << 27   # of one event's records; the largest of real replays has 10 MB

# The marker byte that opens a value of each kind in the versioned encoding; 255: none.
cdef uint8_t[12] MARKERS = [9, 6, 2, 0, 1, 3, 5, 4, 7, 255, 7, 8]

KINDS = {
    "_int": INT, "_bool": BOOL, "_blob": BLOB, "_array": ARRAY, "_bitarray": BITARRAY,
    "_choice": CHOICE, "_struct": STRUCT, "_optional": OPTIONAL, "_fourcc": FOURCC,
    "_null": NOTHING, "_real32": REAL32, "_real64": REAL64,
}

cdef packed struct Node:
    int32_t kind
    int32_t bits        # width of the number, length or tag in the bit-packed encoding
    int64_t minimum     # added to it
    int32_t child       # element of an array, content of an optional
    int32_t first       # fields of a struct or choice: the first, and how many
    int32_t count
    int32_t dest        # byte of the record that the value goes to, -1: nowhere
    int32_t table       # of an array: the child table its elements go to, -1: nowhere
    int32_t width       # bits it takes in the bit-packed encoding, -1 where that depends
    int32_t wanted      # whether it or anything below it has a destination

cdef packed struct Field:
    int32_t tag
    int32_t node

# The last two are found out by `Types`.
NODE = np.dtype([("kind", "i4"), ("bits", "i4"), ("minimum", "i8"), ("child", "i4"), ("first", "i4"),
                 ("count", "i4"), ("dest", "i4"), ("table", "i4"), ("width", "i4"),
                 ("wanted", "i4")])
FIELD = np.dtype([("tag", "i4"), ("node", "i4")])

cdef struct Table:
    # Of the elements of a repeated field: rows of `stride` bytes, which start out as nulls.
    char* base
    const char* null
    size_t stride
    size_t used
    size_t size

cdef packed struct IndexRow:
    int64_t offset
    int64_t game_loop
    int16_t user
    int16_t event_id

INDEX = np.dtype([("offset", "i8"), ("game_loop", "i8"), ("user", "i2"), ("event_id", "i2")])

cdef struct Walk:
    Cursor cursor
    const Node* nodes
    const Field* fields
    Table* tables
    bint versioned
    bint no_memory
    int depth


cdef size_t claim(Walk* w, Table* t, uint64_t count) noexcept nogil:
    # `count` rows of nulls; the number of the first.
    cdef size_t start = t.used
    cdef size_t needed = start + count
    cdef size_t size = max(needed, 2 * t.size)
    cdef size_t i
    cdef char* base
    if count > MAX_TABLE_BYTES or needed * t.stride > MAX_TABLE_BYTES:
        fail(&w.cursor, TOO_MUCH, needed)
        return 0
    if needed > t.size:
        base = <char*>PyMem_RawRealloc(t.base, size * t.stride)
        if base == NULL:
            w.no_memory = True
            fail(&w.cursor, TRUNCATED, 0)
            return 0
        t.base, t.size = base, size
    for i in range(start, needed):
        memcpy(t.base + i * t.stride, t.null, t.stride)
    t.used = needed
    return start


cdef inline void put(char* row, int dest, int64_t value) noexcept nogil:
    if row != NULL and dest >= 0:
        memcpy(row + dest, &value, 8)


cdef inline void put_pair(char* row, int dest, int64_t first, int64_t second) noexcept nogil:
    put(row, dest, first)
    if dest >= 0:
        put(row, dest + 8, second)


cdef void skip_value(Walk* w) noexcept nogil:
    # A versioned value of a field the table does not know; its marker says how to step over it.
    cdef Cursor* c = &w.cursor
    cdef uint8_t marker = read_byte(c)
    cdef uint64_t length
    if w.depth >= MAX_DEPTH:
        fail(c, TOO_DEEP, MAX_DEPTH)
    if c.error:
        return
    w.depth += 1
    if marker == 0:
        length = read_length(c)
        while length and not c.error:
            skip_value(w)
            length -= 1
    elif marker == 1:
        take_bytes(c, (<uint64_t>read_vint(c) + 7) >> 3)
    elif marker == 2:
        take_bytes(c, <uint64_t>read_vint(c))
    elif marker == 3:
        read_vint(c)
        skip_value(w)
    elif marker == 4:
        if read_byte(c):
            skip_value(w)
    elif marker == 5:
        length = read_length(c)
        while length and not c.error:
            read_vint(c)
            skip_value(w)
            length -= 1
    elif marker == 6:
        take_bytes(c, 1)
    elif marker == 7:
        take_bytes(c, 4)
    elif marker == 8:
        take_bytes(c, 8)
    elif marker == 9:
        read_vint(c)
    else:
        fail(c, BAD_MARKER, marker)
    w.depth -= 1


cdef inline const Field* find_field(
    const Walk* w, const Node* node, int64_t tag, int expected
) noexcept nogil:
    # The field with this tag; fields mostly come in the table's order, so `expected` first.
    cdef const Field* fields = w.fields + node.first
    cdef int i
    if expected < node.count and fields[expected].tag == tag:
        return fields + expected
    for i in range(node.count):
        if fields[i].tag == tag:
            return fields + i
    return NULL


cdef inline int64_t read_number(Walk* w, const Node* node) noexcept nogil:
    # An integer, or the length or tag that begins another kind; wraps as two's complement,
    # which the 64-bit types with a minimum of -2**63 rely on.
    if w.versioned:
        return read_vint(&w.cursor)
    return <int64_t>(<uint64_t>node.minimum + read_bits(&w.cursor, node.bits))


cdef inline void expect(Walk* w, const Node* node) noexcept nogil:
    cdef uint8_t marker
    if w.versioned and MARKERS[node.kind] != 255:
        marker = read_byte(&w.cursor)
        if marker != MARKERS[node.kind] and not w.cursor.error:
            w.cursor.pos -= 1
            fail(&w.cursor, BAD_MARKER, marker)


cdef inline void walk(Walk* w, int index, char* row) noexcept nogil:
    # Reads one value and puts it where its node says; `row` NULL reads without writing.
    if w.versioned:
        walk_versioned(w, w.nodes + index, row)
    else:
        walk_packed(w, w.nodes + index, row)


cdef inline void put_flag(char* row, int dest, bint value) noexcept nogil:
    if row != NULL and dest >= 0:
        row[dest] = value


cdef inline void walk_elements(Walk* w, const Node* node, char* row, uint64_t length) noexcept nogil:
    # Of a repeated field. Elements below may need rows of other tables, never of this one.
    cdef Table* table = NULL
    cdef size_t start = 0
    cdef uint64_t i
    if node.table >= 0 and row != NULL:
        table = &w.tables[node.table]
        start = claim(w, table, length)
        put_pair(row, node.dest, start, length)
    for i in range(length):
        if w.cursor.error:
            break
        walk(w, node.child, table.base + (start + i) * table.stride if table != NULL else NULL)


cdef void walk_packed(Walk* w, const Node* node, char* row) noexcept nogil:
    cdef Cursor* c = &w.cursor
    cdef const Node* child
    cdef const Field* field
    cdef int64_t value, start
    cdef uint64_t length, i
    if node.width >= 0 and (row == NULL or not node.wanted):
        skip_bits(c, node.width)
        return
    if w.depth >= MAX_DEPTH:
        fail(c, TOO_DEEP, MAX_DEPTH)
    if c.error:
        return
    w.depth += 1
    if node.kind == STRUCT:
        field = w.fields + node.first
        for i in range(<uint64_t>node.count):
            child = w.nodes + field[i].node
            if child.kind == INT and row != NULL and child.wanted:
                put(row, child.dest, <int64_t>(
                    <uint64_t>child.minimum + read_bits(c, child.bits)))
            else:
                walk_packed(w, child, row)
            if c.error:
                break
    elif node.kind == INT:
        put(row, node.dest, read_number(w, node))
    elif node.kind == BOOL:
        put_flag(row, node.dest, read_bits(c, 1) != 0)
    elif node.kind == OPTIONAL:
        value = read_bits(c, 1)
        put_flag(row, node.dest, value != 0)
        if value:
            walk_packed(w, w.nodes + node.child, row)
    elif node.kind == CHOICE:
        value = read_number(w, node)
        put(row, node.dest, value)
        field = find_field(w, node, value, <int>(value & 0x7FFF))
        if field != NULL:
            walk_packed(w, w.nodes + field.node, row)
        else:
            fail(c, BAD_CHOICE, value)
    elif node.kind == BLOB:
        value = read_number(w, node)
        start = take_bytes(c, <uint64_t>value)
        put_pair(row, node.dest, start, value)
    elif node.kind == ARRAY:
        length = <uint64_t>read_number(w, node)
        child = w.nodes + node.child
        if length > bits_left(c):
            fail(c, TRUNCATED, length)
        elif child.width >= 0 and (node.table < 0 or row == NULL):
            skip_bits(c, length * <uint64_t>child.width)
        else:
            walk_elements(w, node, row, length)
    elif node.kind == BITARRAY:
        value = read_number(w, node)
        start = <int64_t>(c.pos * 8 + c.bit)
        if value < 0:
            fail(c, BAD_NUMBER, value)
        skip_bits(c, <uint64_t>value)
        put_pair(row, node.dest, start, value)
    elif node.kind == FOURCC:
        # Four bytes, unaligned.
        for i in range(4):
            value = read_bits(c, 8)
            if row != NULL and node.dest >= 0:
                row[node.dest + i] = <char>value
    else:
        walk_real(w, node, row)
    w.depth -= 1


cdef void walk_real(Walk* w, const Node* node, char* row) noexcept nogil:
    cdef float real
    cdef double wide
    cdef int64_t value
    cdef uint32_t bits
    if node.kind == REAL32:
        bits = <uint32_t>read_bits(&w.cursor, 32)
        memcpy(&real, &bits, 4)
        wide = real
        memcpy(&value, &wide, 8)
        put(row, node.dest, value)
    elif node.kind == REAL64:
        put(row, node.dest, <int64_t>read_bits(&w.cursor, 64))


cdef void walk_versioned(Walk* w, const Node* node, char* row) noexcept nogil:
    cdef Cursor* c = &w.cursor
    cdef const Node* child
    cdef const Field* field
    cdef int64_t value, start
    cdef uint64_t length, i
    if w.depth >= MAX_DEPTH:
        fail(c, TOO_DEEP, MAX_DEPTH)
    if c.error:
        return
    w.depth += 1
    expect(w, node)
    if node.kind == INT:
        put(row, node.dest, read_vint(c))
    elif node.kind == BOOL:
        put_flag(row, node.dest, read_byte(c) != 0)
    elif node.kind == STRUCT:
        length = read_length(c)
        for i in range(length):
            field = find_field(w, node, read_vint(c), <int>i)
            if field == NULL:
                skip_value(w)
            else:
                child = w.nodes + field.node
                if child.kind == INT:
                    expect(w, child)
                    put(row, child.dest, read_vint(c))
                else:
                    walk_versioned(w, child, row)
            if c.error:
                break
    elif node.kind == OPTIONAL:
        value = read_byte(c)
        put_flag(row, node.dest, value != 0)
        if value:
            walk_versioned(w, w.nodes + node.child, row)
    elif node.kind == CHOICE:
        value = read_vint(c)
        put(row, node.dest, value)
        field = find_field(w, node, value, <int>(value & 0x7FFF))
        if field != NULL:
            walk_versioned(w, w.nodes + field.node, row)
        else:
            skip_value(w)
    elif node.kind == BLOB:
        value = read_vint(c)
        start = take_bytes(c, <uint64_t>value)
        put_pair(row, node.dest, start, value)
    elif node.kind == ARRAY:
        length = read_length(c)
        if not c.error:
            walk_elements(w, node, row, length)
    elif node.kind == BITARRAY:
        value = read_vint(c)
        if value < 0:
            fail(c, BAD_NUMBER, value)
        start = <int64_t>take_bytes(c, (<uint64_t>value + 7) >> 3) * 8
        put_pair(row, node.dest, start, value)
    elif node.kind == FOURCC:
        for i in range(4):
            value = read_byte(c)
            if row != NULL and node.dest >= 0:
                row[node.dest + i] = <char>value
    else:
        walk_real(w, node, row)
    w.depth -= 1


cdef object _describe(Cursor* c, str what):
    if c.error == TRUNCATED:
        return f"{what}: the data ends before it does"
    if c.error == BAD_MARKER:
        return f"{what}: unexpected value marker {c.detail}"
    if c.error == BAD_CHOICE:
        return f"{what}: no alternative {c.detail}"
    if c.error == BAD_EVENT:
        return f"{what}: id {c.detail} is not in the type table"
    if c.error == BAD_NUMBER:
        return f"{what}: impossible number or length"
    if c.error == TOO_MUCH:
        return f"{what}: {c.detail} of a kind, more than any replay has"
    if c.error == LEFT_OVER:
        return f"{what}: {c.detail} bytes left over"
    return f"{what}: nested more than {MAX_DEPTH} deep"


cdef int _raise(Cursor* c, str what) except -1:
    raise CorruptReplayError(c.pos, _describe(c, what))


@cython.final
cdef class Types:
    """A compiled type table.

    Args:
        nodes: Structured array of dtype `NODE`, one per type.
        fields: Structured array of dtype `FIELD`, the members of structs and choices.
        names: The name of each field, in the order of `fields`.
    """

    cdef const Node[::1] nodes
    cdef const Field[::1] fields
    cdef readonly list names

    def __cinit__(self, nodes, fields, list names):
        self.nodes = nodes
        self.fields = fields
        self.names = names
        self._measure(nodes)

    cdef _measure(self, Node[::1] nodes):
        # What has a fixed width is stepped over in one go where nobody wants it.
        cdef Py_ssize_t i
        for i in range(nodes.shape[0]):
            nodes[i].width = UNKNOWN
        for i in range(nodes.shape[0]):
            self._width(nodes, i, 0)

    cdef int _width(self, Node[::1] nodes, Py_ssize_t index, int depth) except -2:
        cdef Node* node = &nodes[index]
        cdef Py_ssize_t i
        cdef int64_t width = -1, part
        if node.width != UNKNOWN:
            return node.width
        if depth >= MAX_DEPTH:
            raise ValueError("types nested too deep")
        node.wanted = node.dest >= 0
        if node.kind == INT:
            width = node.bits
        elif node.kind == BOOL:
            width = 1
        elif node.kind == FOURCC or node.kind == REAL32:
            width = 32
        elif node.kind == REAL64:
            width = 64
        elif node.kind == NOTHING or node.kind == STRUCT:
            width = 0
        if node.child >= 0:
            self._width(nodes, node.child, depth + 1)
            node.wanted |= nodes[node.child].wanted
        for i in range(node.count):
            part = self._width(nodes, self.fields[node.first + i].node, depth + 1)
            node.wanted |= nodes[self.fields[node.first + i].node].wanted
            if node.kind == STRUCT and width >= 0:
                width = width + part if part >= 0 and width < 1 << 20 else -1
        node.width = <int32_t>width
        return node.width

    cdef void _start(self, Walk* w, const uint8_t[::1] data, bint versioned) noexcept:
        cursor_init(&w.cursor, &data[0] if data.shape[0] else NULL, data.shape[0])
        w.nodes = &self.nodes[0]
        w.fields = &self.fields[0] if self.fields.shape[0] else NULL
        w.tables = NULL
        w.versioned = versioned
        w.no_memory = False
        w.depth = 0

    def decode(self, const uint8_t[::1] data, int type_id, bint versioned, str what,
               bint whole=True, wanted=None):
        """Reads one value of type `type_id` as s2protocol's decoders would give it.

        Structs are dicts, blobs bytes, bit arrays (length, int or bytes) tuples. With `whole`
        the value must be all of the data: a type table that does not fit mostly shows in that.
        Where `wanted` is a set of names, the fields of structs with other names are read but not
        given.

        Raises:
            CorruptReplayError: with the offset.
        """
        cdef Walk w
        self._start(&w, data, versioned)
        value = self._object(&w, type_id, wanted)
        byte_align(&w.cursor)
        if not w.cursor.error and w.cursor.pos != w.cursor.size and whole:
            fail(&w.cursor, LEFT_OVER, w.cursor.size - w.cursor.pos)
        if w.cursor.error:
            _raise(&w.cursor, what)
        return value

    cdef object _object(self, Walk* w, int index, wanted):
        cdef Cursor* c = &w.cursor
        cdef const Node* node = w.nodes + index
        cdef const Field* field
        cdef int64_t value
        cdef uint64_t length, i
        cdef size_t start
        if w.depth >= MAX_DEPTH:
            fail(c, TOO_DEEP, MAX_DEPTH)
        if c.error:
            return None
        w.depth += 1
        result = None
        expect(w, node)
        if node.kind == INT:
            value = read_number(w, node)
            result = <uint64_t>value if node.bits == 64 and node.minimum == 0 else value
        elif node.kind == BOOL:
            result = (read_byte(c) if w.versioned else read_bits(c, 1)) != 0
        elif node.kind == STRUCT:
            result = {}
            length = read_length(c) if w.versioned else <uint64_t>node.count
            for i in range(length):
                if w.versioned:
                    field = find_field(w, node, read_vint(c), <int>i)
                else:
                    field = w.fields + node.first + i
                if c.error:
                    break
                if field == NULL:
                    skip_value(w)
                    continue
                name = self.names[field - w.fields]
                if wanted is not None and name != "__parent" and name not in wanted:
                    walk(w, field.node, NULL)
                    continue
                item = self._object(w, field.node, wanted)
                if name != "__parent":
                    result[name] = item
                elif isinstance(item, dict):
                    result.update(item)
                else:
                    result = item
        elif node.kind == OPTIONAL:
            if read_byte(c) if w.versioned else read_bits(c, 1):
                result = self._object(w, node.child, wanted)
        elif node.kind == CHOICE:
            value = read_number(w, node)
            field = find_field(w, node, value, <int>(value & 0x7FFF))
            if field != NULL:
                result = {self.names[field - w.fields]: self._object(w, field.node, wanted)}
            elif w.versioned:
                skip_value(w)
                result = {}
            else:
                fail(c, BAD_CHOICE, value)
        elif node.kind == BLOB:
            length = <uint64_t>read_number(w, node)
            start = take_bytes(c, length)
            if not c.error:
                result = (<const char*>c.data)[start:start + length]
        elif node.kind == ARRAY:
            length = read_length(c) if w.versioned else <uint64_t>read_number(w, node)
            if length > bits_left(c):
                fail(c, TRUNCATED, length)
            result = []
            while length and not c.error:
                result.append(self._object(w, node.child, wanted))
                length -= 1
        elif node.kind == BITARRAY:
            value = read_number(w, node)
            length = <uint64_t>value
            if value < 0:
                fail(c, BAD_NUMBER, value)
            if w.versioned:
                start = take_bytes(c, (length + 7) >> 3)
                if not c.error:
                    result = (length, (<const char*>c.data)[start:start + ((length + 7) >> 3)])
            elif length > bits_left(c):
                fail(c, TRUNCATED, length)
            else:
                # As of any number: the highest bits first, yet a byte's own in their order.
                number = 0
                left = length
                while left:
                    taken = min(left, 8 - c.bit)
                    number = number << taken | read_bits(c, taken)
                    left -= taken
                result = (length, number)
        elif node.kind == FOURCC:
            result = bytes([read_bits(c, 8) for _ in range(4)])
            if not w.versioned:
                result = result.decode("latin-1")
        elif node.kind == REAL32:
            result = np.uint32(read_bits(c, 32)).view(np.float32).item()
        elif node.kind == REAL64:
            result = np.uint64(read_bits(c, 64)).view(np.float64).item()
        w.depth -= 1
        return result

    def index(self, const uint8_t[::1] data, bint versioned, event_types, int event_id_type,
              int loop_type, int user_type, str what, list plans=[]):
        """Finds every event of a stream.

        Args:
            data: The unpacked member.
            versioned: The encoding: versioned (tracker) or bit-packed (game, message).
            event_types: {event id: type id}.
            event_id_type, loop_type: Type ids of what stands before an event.
            user_type: Likewise; -1 where the stream has no users.
            what: The stream's name, for errors.
            plans: Of events to read on the way, (event id, program, null, child nulls) as in
                `fill`.

        Returns:
            (dtype `INDEX`, order, starts, what `fill` would return for each plan). The first
            three are read-only. The first has of each event the bit offset of its struct, the
            loop masked to 32 bits, the user and the event id. Of those of id i,
            order[starts[i]:starts[i + 1]] are the places; int32 (events,) and (257,).

        Raises:
            CorruptReplayError: with the offset, and the event id where it is at fault.
        """
        cdef Walk w
        cdef Cursor* c = &w.cursor
        cdef int16_t[MAX_EVENT_ID] types
        cdef int i, event_id, type_id
        cdef uint32_t loop = 0
        cdef int user = -1
        cdef size_t used = 0, start = 0
        cdef size_t size = min(data.shape[0] // 8, 1 << 15) + 16   # most streams have fewer
        cdef IndexRow* rows
        cdef Sink sink = Sink(plans, user_type >= 0)
        for i in range(MAX_EVENT_ID):
            types[i] = -1
        for event, type_of in event_types.items():
            if not 0 <= event < MAX_EVENT_ID:
                raise ValueError(f"event id {event} in a type table")
            types[event] = type_of
        self._start(&w, data, versioned)
        event_id = -1
        table = np.empty(size, INDEX)
        while c.pos < c.size and not c.error:
            if used == size:
                size *= 2
                table.resize(size, refcheck=False)
            rows = <IndexRow*>cnp.PyArray_DATA(table)
            with nogil:
                while c.pos < c.size and used < size:
                    start = c.pos
                    event_id = -1
                    loop += <uint32_t>self._number(&w, loop_type)
                    if user_type >= 0:
                        user = <int>self._number(&w, user_type)
                    event_id = <int>self._number(&w, event_id_type)
                    type_id = types[event_id] if 0 <= event_id < MAX_EVENT_ID else -1
                    if type_id < 0:
                        fail(c, BAD_EVENT, event_id)
                        break
                    rows[used].offset = <int64_t>(c.pos * 8 + c.bit)
                    rows[used].game_loop = loop
                    rows[used].user = user
                    rows[used].event_id = event_id
                    if sink.plan_of[event_id] >= 0:
                        sink.read(&w, event_id, loop, user, used)
                    else:
                        walk(&w, type_id, NULL)
                    if c.error:
                        break
                    byte_align(c)
                    used += 1
        if w.no_memory:
            raise MemoryError
        if c.error:
            if c.error == BAD_EVENT:
                c.pos = start
            _raise(c, f"{what} event {used}" + (
                f" (id {event_id})" if event_id >= 0 and c.error != BAD_EVENT else ""))
        table.resize(used, refcheck=False)
        return table, *_by_event_id(table), sink.arrays()

    cdef int64_t _number(self, Walk* w, int index) noexcept nogil:
        # A number, or a struct or choice that holds a single one.
        cdef const Node* node = w.nodes + index
        cdef const Field* field
        cdef int64_t value = 0
        cdef int64_t length = 1
        if w.cursor.error or w.depth >= MAX_DEPTH:
            fail(&w.cursor, TOO_DEEP, MAX_DEPTH)
            return 0
        expect(w, node)
        if node.kind == INT:
            return read_number(w, node)
        if node.kind == CHOICE:
            value = read_number(w, node)
            field = find_field(w, node, value, <int>(value & 0x7FFF))
            if field == NULL:
                fail(&w.cursor, BAD_CHOICE, value)
                return 0
            return self._number(w, field.node)
        if node.kind == STRUCT and node.count == 1:
            if w.versioned:
                length = read_vint(&w.cursor)
                read_vint(&w.cursor)
                if length != 1:
                    fail(&w.cursor, BAD_NUMBER, length)
            w.depth += 1
            value = self._number(w, w.fields[node.first].node)
            w.depth -= 1
            return value
        fail(&w.cursor, BAD_NUMBER, node.kind)
        return 0

    def fill(self, const uint8_t[::1] data, bint versioned, const IndexRow[::1] index,
             const int32_t[::1] places, bint users, null, list child_nulls, str what):
        """Reads some events of a stream by node 0, one record each.

        Args:
            data: The unpacked member.
            versioned: The encoding.
            index, places: From `index`, and which of it to read.
            users: Whether the stream has users.
            null: A record of nulls, shape (1,), that begins with int64 loop, user (if it has
                users) and place.
            child_nulls: Likewise of each child table, with nothing in front.
            what: The event's name, for errors.

        Returns:
            (records, child tables in order).
        """
        cdef Walk w
        cdef const IndexRow* event
        cdef Sink sink = Sink([(0, self, null, child_nulls)], users)
        cdef Py_ssize_t i
        self._start(&w, data, versioned)
        for i in range(places.shape[0]):
            if not 0 <= places[i] < index.shape[0]:
                raise ValueError("places beyond the index")
        with nogil:
            for i in range(places.shape[0]):
                event = &index[places[i]]
                if <uint64_t>event.offset > <uint64_t>w.cursor.size * 8:
                    fail(&w.cursor, TRUNCATED, 0)
                    break
                w.cursor.pos = <size_t>(event.offset >> 3)
                w.cursor.bit = event.offset & 7
                sink.read(&w, 0, event.game_loop, event.user, places[i])
                if w.cursor.error:
                    break
        if w.no_memory:
            raise MemoryError
        if w.cursor.error:
            _raise(&w.cursor, what)
        return sink.arrays()[0]


cdef struct Plan:
    const Node* nodes
    const Field* fields
    Table records
    Table* children
    int num_children


@cython.final
cdef class Sink:
    # Where events of some types are read to: for each plan a table of records and its child
    # tables.
    cdef list plans
    cdef bint users
    cdef int16_t[MAX_EVENT_ID] plan_of
    cdef Plan[MAX_EVENT_ID] plan
    cdef Table* tables

    def __cinit__(self, list plans, bint users):
        cdef Py_ssize_t children = sum([len(each[3]) for each in plans]), i
        cdef Types program
        cdef Plan* plan
        cdef Table* table
        self.plans, self.users = plans, users
        if len(plans) > MAX_EVENT_ID:
            raise ValueError("more plans than events")
        self.tables = table = <Table*>PyMem_RawCalloc(children + 1, sizeof(Table))
        if table == NULL:
            raise MemoryError
        for i in range(MAX_EVENT_ID):
            self.plan_of[i] = -1
        for i, (event_id, program, null, child_nulls) in enumerate(plans):
            if not 0 <= event_id < MAX_EVENT_ID:
                raise ValueError(f"event id {event_id} in a plan")
            if null.dtype.itemsize < 16 + 8 * users:
                raise ValueError("records must begin with loop, user and place")
            self.plan_of[event_id] = <int16_t>i
            plan = &self.plan[i]
            plan.nodes = &program.nodes[0]
            plan.fields = &program.fields[0] if program.fields.shape[0] else NULL
            plan.children, plan.num_children = table, len(child_nulls)
            _empty(&plan.records, null)
            for child_null in child_nulls:
                _empty(table, child_null)
                table += 1

    def __dealloc__(self):
        cdef Py_ssize_t i, j
        for i in range(len(self.plans or ())):
            PyMem_RawFree(self.plan[i].records.base)
            for j in range(self.plan[i].num_children):
                PyMem_RawFree(self.plan[i].children[j].base)
        PyMem_RawFree(self.tables)

    cdef void read(self, Walk* w, int event_id, int64_t loop, int64_t user, int64_t place
                   ) noexcept nogil:
        # Reads the event at the cursor into a record of its plan.
        cdef Plan* plan = &self.plan[self.plan_of[event_id]]
        cdef const Node* nodes = w.nodes
        cdef const Field* fields = w.fields
        cdef size_t number = claim(w, &plan.records, 1)
        cdef char* record = plan.records.base + number * plan.records.stride
        if w.cursor.error:
            return
        put(record, 0, loop)
        if self.users:
            put(record, 8, user)
        put(record, 8 + 8 * self.users, place)
        w.nodes, w.fields, w.tables = plan.nodes, plan.fields, plan.children
        walk(w, 0, record)
        w.nodes, w.fields, w.tables = nodes, fields, NULL

    cdef list arrays(self):
        # (records, child tables) of each plan.
        cdef list found = []
        cdef Py_ssize_t i, j
        for i, (_, _, null, child_nulls) in enumerate(self.plans):
            children = [
                _owned(&self.plan[i].children[j], child_nulls[j].dtype)
                for j in range(len(child_nulls))
            ]
            found.append((_owned(&self.plan[i].records, null.dtype), children))
        return found


cdef void _empty(Table* table, null) noexcept:
    table.base = NULL
    table.null = <const char*>cnp.PyArray_DATA(null)
    table.stride = cnp.PyArray_ITEMSIZE(null)
    table.used = table.size = 0


@cython.final
cdef class Memory:
    # What an array's numbers lie in.
    cdef void* base

    def __dealloc__(self):
        PyMem_RawFree(self.base)


cdef _owned(Table* table, dtype):
    # A table as an array, which takes its memory over.
    cdef Memory memory
    cdef cnp.npy_intp size = table.used * table.stride
    if not table.used:
        return np.empty(0, dtype)
    memory = Memory()
    memory.base = PyMem_RawRealloc(table.base, size)
    if memory.base == NULL:
        raise MemoryError
    table.base = NULL
    table.used = table.size = 0
    rows = cnp.PyArray_SimpleNewFromData(1, &size, cnp.NPY_UINT8, memory.base)
    cnp.set_array_base(rows, memory)
    return rows.view(dtype)


cdef tuple _by_event_id(table):
    # The places of events, those of an id together.
    cdef const IndexRow[::1] rows = table
    orders, starts = np.empty(len(table), np.int32), np.zeros(MAX_EVENT_ID + 1, np.int32)
    cdef int32_t[::1] order = orders, start = starts
    cdef int32_t[MAX_EVENT_ID] end
    cdef Py_ssize_t i
    for i in range(rows.shape[0]):
        start[rows[i].event_id + 1] += 1
    for i in range(MAX_EVENT_ID):
        start[i + 1] += start[i]
        end[i] = start[i]
    for i in range(rows.shape[0]):
        order[end[rows[i].event_id]] = <int32_t>i
        end[rows[i].event_id] += 1
    for array in (table, orders, starts):
        array.flags.writeable = False
    return orders, starts
