"""What a decoder is made of, for those who use its tables without going through Python."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from sc2gym._fast.proto cimport Bytes

cdef struct Field:
    uint64_t bit            # in the record's `has`
    uint64_t others         # bits of the other members of its oneof
    int32_t kind
    uint32_t wire
    int32_t offset          # in the record
    int32_t size            # of the value in the record
    int32_t message         # what a message field holds
    int32_t table           # where a repeated or optional field's rows go

cdef struct Table:
    char* data
    int64_t count           # rows written
    int64_t capacity
    int64_t row             # bytes in a row
    const char* blank       # a row in which nothing is set

cdef enum Error:
    NO_ERROR, BAD_TAG, BAD_VALUE, STRAY_END, TOO_DEEP, TOO_MANY

cdef struct State:
    # One read: all that the functions below need, none of it a Python object.
    const Field* fields     # (messages, FIELDS)
    Table* tables
    Bytes begin
    Bytes end
    int32_t unit            # the message that has a fast lane, -1 if none
    void* decoder
    Error error             # the first thing wrong, and where, in which message and field
    Bytes error_at
    int32_t error_message
    uint32_t error_field


cdef class Decoder:
    cdef readonly object schema
    cdef object _fields         # keep alive what the pointers point to
    cdef list _blanks
    cdef list _storage
    cdef set _bound
    cdef State state
    cdef Table* tables
    cdef int num_tables
    cdef bint _reading

    cdef _store(self, int index, array)
    cdef int _grow(self, int index) noexcept
    cdef int decode(self, Bytes data, int64_t size) noexcept nogil
    cdef error(self)
