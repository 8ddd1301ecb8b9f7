# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""What replay archives are packed with, and the cipher that their tables are in.

Unpacking is most of what opening a replay costs, and most of that the bzip2 library spends on
Huffman codes, a bit at a time. Here one look into a table tells the code of the next bits, and
since the size is known beforehand, bytes go straight to where they stay: it takes half the time.

Checks are off: `Bits` never reads beyond its end, every table is as large as its index can be, and
what is written is bounded by the size that was promised. Whatever the data is, either every
checksum in it is right or it is refused.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memmove, memset

cdef enum:
    MAX_TABLES = 6
    MAX_SELECTORS = 18002       # as many as the largest block needs; more are read and not used
    MAX_SYMBOLS = 258           # 256 bytes, two digits of runs less one, the end of a block
    MAX_LENGTH = 20             # of a code, in bits
    LOOK = 10                   # bits that one look takes
    GROUP = 50                  # symbols of one table

cdef uint64_t BLOCK_MAGIC = 0x314159265359
cdef uint64_t END_MAGIC = 0x177245385090

# What is wrong, 0 for nothing.
cdef enum Fault:
    CUT_SHORT = 1
    NOT_BZIP2
    BAD_CODES
    BAD_BLOCK
    BAD_CHECKSUM
    TOO_LONG
    RANDOMISED

cdef dict FAULTS = {
    CUT_SHORT: "the data ends before it does", NOT_BZIP2: "it does not begin as bzip2 does",
    BAD_CODES: "it has an impossible code", BAD_BLOCK: "a block of it is damaged",
    BAD_CHECKSUM: "its checksum is wrong", TOO_LONG: "it is longer than it should be",
    RANDOMISED: "it is randomised, as bzip2 packs no more since 0.9.5",
}

cdef struct Bits:
    const uint8_t* data
    size_t size
    size_t next                 # the first byte not in the buffer; beyond the end there are zeros
    uint64_t buffer             # the bits to come, first the highest
    int count                   # how many of them there are

cdef struct Codes:
    uint16_t[1 << LOOK] look    # symbol << 5 | length for what begins with a short code, else 0
    int32_t[MAX_LENGTH + 2] limit   # the first code of a length that is too large for it
    int32_t[MAX_LENGTH + 2] first   # place of its first symbol less its first code
    uint16_t[MAX_SYMBOLS] symbols   # by code

cdef struct Block:
    Codes[MAX_TABLES] codes
    uint8_t[MAX_SELECTORS] selectors
    uint64_t[32] recent         # bytes, the latest first, lowest in a word first
    uint32_t[256] places
    uint32_t* links             # of each byte: the byte, and above it where the next one is
    uint32_t room               # how many it can hold
    uint32_t length

cdef struct Output:
    uint8_t* data
    size_t size
    size_t used

cdef uint32_t[256] CRC_TABLE


cdef void _make_crc_table() noexcept:
    cdef uint32_t crc
    cdef int byte, bit
    for byte in range(256):
        crc = <uint32_t>byte << 24
        for bit in range(8):
            crc = (crc << 1) ^ (<uint32_t>0x04C11DB7 if crc >> 31 else 0)
        CRC_TABLE[byte] = crc

_make_crc_table()


cdef inline void _refill(Bits* b) noexcept nogil:
    # At least 56 bits.
    cdef const uint8_t* p = b.data + b.next
    if b.next + 8 <= b.size:
        b.buffer |= (
            <uint64_t>p[0] << 56 | <uint64_t>p[1] << 48 | <uint64_t>p[2] << 40
            | <uint64_t>p[3] << 32 | <uint64_t>p[4] << 24 | <uint64_t>p[5] << 16
            | <uint64_t>p[6] << 8 | <uint64_t>p[7]
        ) >> b.count
        b.next += (63 - b.count) >> 3
        b.count |= 56
        return
    while b.count <= 56:
        if b.next < b.size:
            b.buffer |= <uint64_t>b.data[b.next] << (56 - b.count)
        b.next += 1
        b.count += 8


cdef inline uint32_t _take(Bits* b, int bits) noexcept nogil:
    # 1 to 32 bits.
    cdef uint32_t value
    if b.count < bits:
        _refill(b)
    value = <uint32_t>(b.buffer >> (64 - bits))
    b.buffer <<= bits
    b.count -= bits
    return value


cdef inline bint _is_past_end(const Bits* b) noexcept nogil:
    return b.next > b.size and 8 * (b.next - b.size) > <size_t>b.count


cdef int _read_codes(Bits* b, Codes* codes, int symbols) noexcept nogil:
    cdef uint8_t[MAX_SYMBOLS] lengths
    cdef int32_t[MAX_LENGTH + 2] counts
    cdef int length = <int>_take(b, 5)
    cdef int i, place = 0
    cdef int32_t code = 0, at, end
    memset(counts, 0, sizeof(counts))
    for i in range(symbols):
        while True:
            if not 1 <= length <= MAX_LENGTH:
                return BAD_CODES
            if not _take(b, 1):
                break
            length += -1 if _take(b, 1) else 1
        lengths[i] = <uint8_t>length
        counts[length] += 1
    # Codes ascend with their length and, among equals, with their symbol.
    memset(codes.look, 0, sizeof(codes.look))
    for length in range(1, MAX_LENGTH + 1):
        codes.first[length] = place - code
        for i in range(symbols if counts[length] else 0):
            if lengths[i] != length:
                continue
            if code >> length:
                return BAD_CODES    # more codes than there are
            codes.symbols[place] = <uint16_t>i
            place += 1
            if length <= LOOK:
                at, end = code << (LOOK - length), (code + 1) << (LOOK - length)
                while at < end:
                    codes.look[at] = <uint16_t>(i << 5 | length)
                    at += 1
            code += 1
        codes.limit[length] = code
        code <<= 1
    return 0


cdef inline int _symbol(Bits* b, const Codes* codes) noexcept nogil:
    # The next symbol, -1 for a code that there is not.
    cdef uint16_t found
    cdef int32_t code
    cdef int length
    if b.count < MAX_LENGTH:
        _refill(b)
    found = codes.look[b.buffer >> (64 - LOOK)]
    if found:
        b.buffer <<= found & 31
        b.count -= found & 31
        return found >> 5
    for length in range(LOOK + 1, MAX_LENGTH + 1):
        code = <int32_t>(b.buffer >> (64 - length))
        if code < codes.limit[length]:
            b.buffer <<= length
            b.count -= length
            return codes.symbols[codes.first[length] + code]
    return -1


cdef int _read_tables(Bits* b, Block* block, int* symbols, int* selectors) noexcept nogil:
    # Which bytes occur, which table each group of symbols has, and the tables.
    cdef uint32_t rows = _take(b, 16), row
    cdef uint8_t[MAX_TABLES] order
    cdef uint8_t chosen
    cdef int used = 0, i, j, tables, fault
    memset(block.recent, 0, sizeof(block.recent))
    for i in range(16):
        if rows >> (15 - i) & 1:
            row = _take(b, 16)
            for j in range(16):
                if row >> (15 - j) & 1:
                    block.recent[used >> 3] |= <uint64_t>(16 * i + j) << 8 * (used & 7)
                    used += 1
    tables = <int>_take(b, 3)
    selectors[0] = <int>_take(b, 15)
    if not used or not 2 <= tables <= MAX_TABLES or not selectors[0]:
        return BAD_BLOCK
    for i in range(tables):
        order[i] = <uint8_t>i
    for i in range(selectors[0]):
        j = 0
        while _take(b, 1):
            j += 1
            if j == tables:
                return BAD_BLOCK
        chosen = order[j]
        memmove(order + 1, order, j)
        order[0] = chosen
        if i < MAX_SELECTORS:
            block.selectors[i] = chosen
        if _is_past_end(b):
            return CUT_SHORT
    selectors[0] = min(selectors[0], <int>MAX_SELECTORS)
    symbols[0] = used + 2
    for i in range(tables):
        fault = _read_codes(b, &block.codes[i], symbols[0])
        if fault:
            return fault
    return 0


cdef inline uint8_t _to_front(uint64_t* recent, int place) noexcept nogil:
    # Whole words at a time, since where in a word a byte stands cannot be foretold.
    cdef int word = place >> 3, i
    cdef uint64_t byte = recent[word] >> 8 * (place & 7) & 0xFF, carried = byte, after
    cdef uint64_t moved = ~<uint64_t>0 >> 8 * (7 - (place & 7))
    for i in range(word):
        after = recent[i] >> 56
        recent[i] = recent[i] << 8 | carried
        carried = after
    recent[word] = ((recent[word] << 8 | carried) & moved) | (recent[word] & ~moved)
    return <uint8_t>byte


cdef int _read_block(Bits* b, Block* block) noexcept nogil:
    # Symbols to bytes: the place of a byte among the recent ones, or a digit of how often the
    # latest one comes again.
    cdef int symbols = 0, selectors = 0, symbol = 0, group, i, end
    cdef uint32_t n = 0, run = 0, digit = 1
    cdef uint8_t byte
    cdef const Codes* codes
    cdef int fault = _read_tables(b, block, &symbols, &selectors)
    if fault:
        return fault
    end = symbols - 1
    memset(block.places, 0, sizeof(block.places))
    for group in range(selectors):
        codes = &block.codes[block.selectors[group]]
        for i in range(GROUP):
            symbol = _symbol(b, codes)
            if symbol < 0:
                return BAD_CODES
            if symbol <= 1:
                if digit > block.room:
                    return BAD_BLOCK
                run += digit << symbol
                digit <<= 1
                continue
            if run:
                if run > block.room - n:
                    return TOO_LONG
                byte = <uint8_t>block.recent[0]
                block.places[byte] += run
                while run:
                    block.links[n] = byte
                    n += 1
                    run -= 1
                digit = 1
            if symbol == end:
                break
            if n == block.room:
                return TOO_LONG
            byte = _to_front(block.recent, symbol - 1)
            block.places[byte] += 1
            block.links[n] = byte
            n += 1
        if _is_past_end(b):
            return CUT_SHORT
        if symbol == end:
            block.length = n
            return 0
    return BAD_BLOCK


cdef void _link(Block* block) noexcept nogil:
    # Undoes the sorting: the i-th byte is followed by the one whose place i is in sorted order.
    cdef uint32_t i, before = 0, count
    for i in range(256):
        count = block.places[i]
        block.places[i] = before
        before += count
    for i in range(block.length):
        count = block.links[i] & 0xFF
        block.links[block.places[count]] |= i << 8
        block.places[count] += 1


cdef int _write(const Block* block, uint32_t start, Output* out, uint32_t* checksum) noexcept nogil:
    # The bytes in their order; after four equal ones a count of more.
    cdef uint32_t link = block.links[start], crc = 0xFFFFFFFF, i
    cdef uint8_t byte
    cdef int last = -1, equal = 0, more
    cdef uint8_t* to = out.data + out.used
    cdef uint8_t* end = out.data + out.size
    for i in range(block.length):
        link = block.links[link >> 8]
        byte = <uint8_t>link
        if equal == 4:
            if byte > end - to:
                return TOO_LONG
            more = byte
            while more:
                to[0] = <uint8_t>last
                to += 1
                crc = (crc << 8) ^ CRC_TABLE[(crc >> 24) ^ <uint8_t>last]
                more -= 1
            equal, last = 0, -1
            continue
        if to == end:
            return TOO_LONG
        equal = equal + 1 if byte == last else 1
        last = byte
        to[0] = byte
        to += 1
        crc = (crc << 8) ^ CRC_TABLE[(crc >> 24) ^ byte]
    out.used = to - out.data
    checksum[0] = ~crc
    return 0


cdef int _read_stream(Bits* b, Block* block, Output* out) noexcept nogil:
    cdef uint64_t magic
    cdef uint32_t expected, found = 0, combined = 0, start
    cdef int fault
    if _take(b, 24) != 0x425A68 or not ord("1") <= _take(b, 8) <= ord("9"):
        return NOT_BZIP2
    while True:
        magic = <uint64_t>_take(b, 24) << 24
        magic |= _take(b, 24)
        expected = _take(b, 32)
        if _is_past_end(b):
            return CUT_SHORT
        if magic == END_MAGIC:
            return BAD_CHECKSUM if expected != combined else 0
        if magic != BLOCK_MAGIC:
            return BAD_BLOCK
        if _take(b, 1):
            return RANDOMISED
        start = _take(b, 24)
        fault = _read_block(b, block)
        if fault:
            return fault
        if start >= block.length:
            return BAD_BLOCK
        _link(block)
        fault = _write(block, start, out, &found)
        if fault:
            return fault
        if found != expected:
            return BAD_CHECKSUM
        combined = (combined << 1 | combined >> 31) ^ found


def bunzip(const uint8_t[::1] data, Py_ssize_t size):
    """Unpacks one bzip2 stream; what follows it is left alone.

    Args:
        data: The stream.
        size: How many bytes there are in it.

    Returns:
        bytes of that size.

    Raises:
        ValueError: It is damaged, or not of that size.
    """
    cdef Bits bits
    cdef Output out
    cdef Block* block
    cdef int fault
    if size < 0:
        raise ValueError("sizes are not negative")
    unpacked = PyBytes_FromStringAndSize(NULL, size)
    out.data, out.size, out.used = <uint8_t*>PyBytes_AS_STRING(unpacked), size, 0
    bits.data, bits.size = &data[0] if data.shape[0] else NULL, data.shape[0]
    bits.next, bits.buffer, bits.count = 0, 0, 0
    block = <Block*>malloc(sizeof(Block))
    if block == NULL:
        raise MemoryError
    # Four equal bytes are packed as five, which is the most that a block is longer than what it
    # unpacks to.
    block.room = <uint32_t>min(<size_t>900_000, out.size + out.size // 4 + 1)
    block.links = <uint32_t*>malloc(block.room * sizeof(uint32_t))
    try:
        if block.links == NULL:
            raise MemoryError
        with nogil:
            fault = _read_stream(&bits, block, &out)
    finally:
        free(block.links)
        free(block)
    if fault:
        raise ValueError(FAULTS[fault])
    if out.used != out.size:
        raise ValueError(f"unpacks to {out.used} bytes instead of {size}")
    return unpacked


def decipher(const uint8_t[::1] data, uint32_t key, const uint32_t[::1] crypt_table):
    """Deciphers a table of an archive.

    Args:
        data: The table; what is left over behind its last 32-bit word is dropped.
        key: The hash of the table's name.
        crypt_table: uint32 (1280,), the format's own numbers.

    Returns:
        bytes of as many whole words.
    """
    cdef Py_ssize_t words = data.shape[0] // 4, i
    cdef uint32_t chained = 0xEEEEEEEE, word
    if crypt_table.shape[0] != 1280:
        raise ValueError("the cipher has 1,280 numbers")
    plain = PyBytes_FromStringAndSize(NULL, 4 * words)
    cdef uint8_t* to = <uint8_t*>PyBytes_AS_STRING(plain)
    for i in range(words):
        chained += crypt_table[0x400 + (key & 0xFF)]
        word = (data[4 * i] | <uint32_t>data[4 * i + 1] << 8 | <uint32_t>data[4 * i + 2] << 16
                | <uint32_t>data[4 * i + 3] << 24)
        word ^= key + chained
        key = ((~key << 21) + 0x11111111) | key >> 11
        chained += word + (chained << 5) + 3
        to[4 * i], to[4 * i + 1] = <uint8_t>word, <uint8_t>(word >> 8)
        to[4 * i + 2], to[4 * i + 3] = <uint8_t>(word >> 16), <uint8_t>(word >> 24)
    return plain
