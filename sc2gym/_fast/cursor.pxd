"""The one read cursor. Every read is checked against what is left; nothing else touches input bytes.

A failed read sets `error` and leaves the cursor where it stood, so that callers may check once,
after several reads: reads after a failure return 0 and change nothing.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    OK = 0
    TRUNCATED = 1       # more was asked for than is left
    BAD_MARKER = 2      # a versioned value of another kind than the type table says
    BAD_CHOICE = 3      # a choice without such an alternative
    BAD_EVENT = 4       # an event id that the table does not have
    BAD_NUMBER = 5      # a number of more than 63 bits, or a negative length
    TOO_DEEP = 6        # values nested deeper than any real file does
    LEFT_OVER = 7       # bytes after the end of what should fill them
    TOO_MUCH = 8        # more of one kind than any replay has

cdef struct Cursor:
    const uint8_t* data
    size_t size
    size_t pos          # the byte being read
    int bit             # bits of it already used, 0 to 7
    int error
    int64_t detail      # for the message: the event id, the marker or the tag at fault


cdef inline void cursor_init(Cursor* c, const uint8_t* data, size_t size) noexcept nogil:
    c.data = data
    c.size = size
    c.pos = 0
    c.bit = 0
    c.error = OK
    c.detail = 0


cdef inline void fail(Cursor* c, int error, int64_t detail) noexcept nogil:
    if not c.error:
        c.error = error
        c.detail = detail


cdef inline void byte_align(Cursor* c) noexcept nogil:
    if c.bit:
        c.bit = 0
        c.pos += 1


cdef inline uint64_t bits_left(const Cursor* c) noexcept nogil:
    return (<uint64_t>(c.size - c.pos) << 3) - <uint64_t>c.bit


cdef inline uint64_t read_bits(Cursor* c, int count) noexcept nogil:
    # s2protocol's order: a byte gives its low bits first, and what was read first weighs most.
    cdef uint64_t result
    cdef int take = 8 - c.bit
    if c.error:
        return 0
    if <uint64_t>count > bits_left(c):
        fail(c, TRUNCATED, count)
        return 0
    if count < take:
        # Most reads are of a few bits of one byte.
        if count <= 0:
            return 0
        result = (c.data[c.pos] >> c.bit) & ((1 << count) - 1)
        c.bit += count
        return result
    result = c.data[c.pos] >> c.bit
    c.pos += 1
    count -= take
    while count >= 8:
        result = (result << 8) | c.data[c.pos]
        c.pos += 1
        count -= 8
    c.bit = count
    if count:
        result = (result << count) | (c.data[c.pos] & ((1 << count) - 1))
    return result


cdef inline void skip_bits(Cursor* c, uint64_t count) noexcept nogil:
    # Steps over what nobody wants.
    if c.error:
        return
    if count > bits_left(c):
        fail(c, TRUNCATED, count)
        return
    count += c.bit
    c.pos += count >> 3
    c.bit = count & 7


cdef inline uint8_t read_byte(Cursor* c) noexcept nogil:
    # Byte-aligned only, as everything in the versioned encoding is.
    if c.error:
        return 0
    if c.pos >= c.size:
        fail(c, TRUNCATED, 8)
        return 0
    c.pos += 1
    return c.data[c.pos - 1]


cdef inline size_t take_bytes(Cursor* c, uint64_t count) noexcept nogil:
    # Aligns, steps over `count` bytes and returns where they start.
    if c.error:
        return 0
    byte_align(c)
    if count > c.size - c.pos:
        fail(c, TRUNCATED, 0)
        return 0
    c.pos += count
    return c.pos - count


cdef inline int64_t read_vint(Cursor* c) noexcept nogil:
    # The versioned encoding's integer: sign in the lowest bit, then 6, then 7 bits a byte.
    cdef uint8_t byte = read_byte(c)
    cdef bint negative = byte & 1
    if byte < 0x80:
        return -<int64_t>(byte >> 1) if negative else <int64_t>(byte >> 1)
    cdef uint64_t result = (byte >> 1) & 0x3F
    cdef int shift = 6
    while byte & 0x80 and not c.error:
        byte = read_byte(c)
        if shift > 62 or (shift == 62 and byte & 0x7E):
            fail(c, BAD_NUMBER, shift)
            return 0
        result |= <uint64_t>(byte & 0x7F) << shift
        shift += 7
    return -<int64_t>result if negative else <int64_t>result


cdef inline uint64_t read_length(Cursor* c) noexcept nogil:
    # A vint that counts something of at least a byte each.
    cdef int64_t length = read_vint(c)
    if length < 0:
        fail(c, BAD_NUMBER, length)
        return 0
    if <uint64_t>length > c.size - c.pos:
        fail(c, TRUNCATED, length)
        return 0
    return <uint64_t>length
