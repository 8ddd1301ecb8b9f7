"""Protobuf's wire format, byte by byte: varints, tags, lengths, and skipping what is not known.

The counterpart of `cursor` for messages, where every message has an end of its own and most of a
reader's time goes into moving on by a byte: the position is a pointer in a register.

Each reader takes where to read and where the enclosing message ends, and returns where the next
thing begins, NULL if there is no such thing before the end. Nothing is read at or after `end`.
Source: https://protobuf.dev/programming-guides/encoding/. What is accepted is what protobuf's
own C library (upb) accepts; the tests hold them against each other on damaged messages.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum Wire:
    VARINT = 0
    FIXED64 = 1
    LENGTH = 2
    GROUP = 3
    END_GROUP = 4
    FIXED32 = 5

cdef enum:
    MAX_DEPTH = 100     # of messages and groups within one another, as in protobuf's libraries

ctypedef const uint8_t* Bytes


cdef inline Bytes read_varint(Bytes at, Bytes end, uint64_t* value) noexcept nogil:
    """An unsigned integer of up to 64 bits, seven to a byte, the lowest first."""
    cdef uint64_t byte, result = 0
    cdef int shift
    for shift in range(0, 70, 7):
        if at == end:
            return NULL
        byte = at[0]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == 63 and byte > 1:
                return NULL  # more than 64 bits
            value[0] = result
            return at
    return NULL


cdef inline Bytes read_uint32(Bytes at, Bytes end, uint32_t* value) noexcept nogil:
    """A tag or a length: one byte nearly always, never more than five or 32 bits."""
    cdef uint64_t wide = 0
    if at == end:
        return NULL
    if at[0] < 0x80:
        value[0] = at[0]
        return at + 1
    if end - at > 5:
        end = at + 5
    at = read_varint(at, end, &wide)
    if wide > 0xFFFFFFFFU:
        return NULL
    value[0] = <uint32_t> wide
    return at


cdef inline Bytes skip_value(Bytes at, Bytes end, uint32_t tag, int depth) noexcept nogil:
    """Past the value of an unknown field whose tag was just read; a group with all in it."""
    cdef uint64_t ignored
    cdef uint32_t length = 0
    cdef int wire = tag & 7
    if wire == VARINT:
        return read_varint(at, end, &ignored)
    if wire == GROUP:
        return skip_group(at, end, tag >> 3, depth)
    if wire == FIXED64:
        length = 8
    elif wire == FIXED32:
        length = 4
    elif wire == LENGTH:
        at = read_uint32(at, end, &length)
    else:
        return NULL
    if at == NULL or length > <uint64_t> (end - at):
        return NULL
    return at + length


cdef inline Bytes skip_group(Bytes at, Bytes end, uint32_t number, int depth) noexcept nogil:
    """Past a group's fields and its end tag. Open groups are counted on a stack of numbers,
    not by recursion, so that a message cannot choose how deep this goes."""
    cdef uint32_t[MAX_DEPTH + 1] opened
    cdef uint32_t tag = 0
    cdef int top = 0
    opened[0] = number
    while True:
        if depth + top >= MAX_DEPTH:
            return NULL
        at = read_uint32(at, end, &tag)
        if at == NULL or tag < 8:
            return NULL
        if tag & 7 == GROUP:
            top += 1
            opened[top] = tag >> 3
        elif tag & 7 == END_GROUP:
            if tag >> 3 != opened[top]:
                return NULL
            top -= 1
            if top < 0:
                return at
        else:
            at = skip_value(at, end, tag, depth)
            if at == NULL:
                return NULL
