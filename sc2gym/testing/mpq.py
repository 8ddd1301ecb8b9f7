"""Bytes to an MPQ archive, in the shapes that replays come in.

The format is Blizzard's; the layout is as described in Ladislav Zezula's "The MoPaQ archive
format" and as seen in replays from 1.0 to 5.0: a user-data block that holds the replay header, an
archive header, the members, then a hash table and a block table, both encrypted.
"""

from __future__ import annotations

import bz2
import hashlib
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["Member", "write_archive"]

USER_DATA_SIZE = 512
ARCHIVE_OFFSET = 1024  # of the archive in the file; the user data lies before it
SECTOR_SHIFT = {0: 3, 1: 3, 3: 5}  # by header version: sectors of 512 << 3 or 512 << 5 bytes

COMPRESSED, ENCRYPTED, SINGLE_UNIT = 0x00000200, 0x00010000, 0x01000000
SECTOR_CRC, EXISTS = 0x04000000, 0x80000000
ZLIB, BZIP2 = 0x02, 0x10

Compression = Literal["bz2", "zlib", "stored"]


@dataclass(frozen=True)
class Member:
    """One member of an archive.

    Attributes:
        data: The bytes.
        compression: "bz2" (what the game writes), "zlib", or "stored". As in the game's files,
            what does not shrink is stored.
        sectors: Cut into sectors (4096 or, in a version 3 archive, 16384 bytes), each compressed
            on its own behind a table of offsets, instead of in one piece. Some replays of before
            2.0 have such members.
        crc: With `sectors`, a last sector of checksums.
        encrypted: With a key made from the member's name.
    """

    data: bytes
    compression: Compression = "bz2"
    sectors: bool = False
    crc: bool = False
    encrypted: bool = False


def write_archive(
    members: Mapping[str, bytes | Member],
    *,
    user_data: bytes | None = b"",
    listfile: bool = True,
    hash_entries: int | None = None,
    version: Literal[0, 1, 3] = 3,
) -> bytes:
    """An archive of these members.

    Args:
        members: Name to bytes, or to a `Member` that says how they are stored.
        user_data: The content of the user-data block (of a replay: its header, encoded);
            None leaves the block out, and the file starts with the archive header.
        listfile: Add the member "(listfile)" with the names of the others.
        hash_entries: Size of the hash table, a power of two that is larger than the number of
            members; by default as the game chooses it, at least 32.
        version: 3 writes the 208-byte header of replays since 2.0, 1 the 44-byte one of those
            before, 0 the 32-byte one that no replay has.

    Raises:
        ValueError: A size that the format has no room for.
    """
    stored = {
        name: member if isinstance(member, Member) else Member(member)
        for name, member in members.items()
    }
    if listfile:
        stored["(listfile)"] = Member("".join(f"{name}\r\n" for name in members).encode())
    if hash_entries is None:
        hash_entries = max(32, 1 << (2 * len(stored) - 1).bit_length())
    if hash_entries & (hash_entries - 1) or hash_entries <= len(stored):
        raise ValueError(f"no hash table of {hash_entries} entries holds {len(stored)} members")
    head = b""
    if user_data is not None:
        if len(user_data) > ARCHIVE_OFFSET - 16:
            raise ValueError(f"{len(user_data)} bytes of user data; room for {ARCHIVE_OFFSET - 16}")
        fields = struct.pack("<4s3I", b"MPQ\x1b", USER_DATA_SIZE, ARCHIVE_OFFSET, len(user_data))
        head = (fields + user_data).ljust(ARCHIVE_OFFSET, b"\0")

    header_size = {0: 32, 1: 44, 3: 208}[version]
    body = bytearray()
    blocks: list[tuple[int, int, int, int]] = []
    for name, member in stored.items():
        offset = header_size + len(body)
        packed, flags = _pack(name, member, 512 << SECTOR_SHIFT[version])
        blocks.append((offset if packed else 0, len(packed), len(member.data), flags))
        body += packed

    hash_table = _encrypt(_hash_table(list(stored), hash_entries), _hash("(hash table)", 3))
    block_table = _encrypt(
        b"".join(struct.pack("<4I", *block) for block in blocks), _hash("(block table)", 3)
    )
    hash_offset = header_size + len(body)
    block_offset = hash_offset + len(hash_table)
    size = block_offset + len(block_table)
    header = struct.pack(
        "<4s2I2H4I", b"MPQ\x1a", header_size, size, version, SECTOR_SHIFT[version],
        hash_offset, block_offset, hash_entries, len(blocks),
    )  # fmt: skip
    if version:
        header += struct.pack("<q2H", 0, 0, 0)
    if version == 3:
        # The archive's size; where the two newer tables are, and how long (there are none); sizes
        # of all tables, the high words of offsets among them; no checksums behind the members.
        # Then the MD5 of the block table, the hash table, the absent ones, and of this header.
        header += struct.pack("<3Q", size, 0, 0)
        header += struct.pack("<5QI", len(hash_table), len(block_table), 0, 0, 0, 0)
        header += hashlib.md5(block_table).digest() + hashlib.md5(hash_table).digest() + bytes(48)
        header += hashlib.md5(header).digest()
    return b"".join((head, header, body, hash_table, block_table))


def _pack(name: str, member: Member, size: int) -> tuple[bytes, int]:
    """One member as it lies in the archive, in sectors of `size` if in any, and its flags."""
    flags = EXISTS | (COMPRESSED if member.compression != "stored" else 0)
    if not member.data:
        return b"", flags
    key = _hash(name.rpartition("\\")[2], 3) if member.encrypted else None
    flags |= ENCRYPTED if member.encrypted else 0
    if not member.sectors:
        packed = _compress(member.data, member.compression)
        return packed if key is None else _encrypt(packed, key), flags | SINGLE_UNIT
    pieces = [
        _compress(member.data[start : start + size], member.compression)
        for start in range(0, len(member.data), size)
    ]
    if member.compression == "stored":
        # No table of offsets: every sector is where it must be.
        if key is not None:
            pieces = [_encrypt(piece, key + n) for n, piece in enumerate(pieces)]
        return b"".join(pieces), flags
    if member.crc:
        flags |= SECTOR_CRC
        sums = struct.pack(f"<{len(pieces)}I", *(zlib.adler32(piece, 0) for piece in pieces))
        pieces.append(_compress(sums, member.compression))
    position = 4 * (len(pieces) + 1)
    offsets = [position]
    for piece in pieces:
        position += len(piece)
        offsets.append(position)
    table = struct.pack(f"<{len(offsets)}I", *offsets)
    if key is not None:
        table = _encrypt(table, key - 1)
        last = len(pieces) - member.crc  # the checksums are not encrypted
        pieces[:last] = [_encrypt(piece, key + n) for n, piece in enumerate(pieces[:last])]
    return table + b"".join(pieces), flags


def _compress(data: bytes, compression: Compression) -> bytes:
    if compression == "bz2":
        packed = bytes((BZIP2,)) + bz2.compress(data)
    elif compression == "zlib":
        packed = bytes((ZLIB,)) + zlib.compress(data, 9)
    else:
        return data
    return packed if len(packed) < len(data) else data


def _hash_table(names: list[str], entries: int) -> bytes:
    """Open addressing: a name lies at its hash, or at the first free place after it."""
    table: list[bytes] = [struct.pack("<2I2HI", *[0xFFFFFFFF] * 2, *[0xFFFF] * 2, 0xFFFFFFFF)]
    table *= entries
    free = [True] * entries
    for block, name in enumerate(names):
        place = _hash(name, 0) % entries
        while not free[place]:
            place = (place + 1) % entries
        free[place] = False
        table[place] = struct.pack("<2I2HI", _hash(name, 1), _hash(name, 2), 0, 0, block)
    return b"".join(table)


def _crypt_table() -> list[int]:
    """1280 numbers from a linear congruential generator: four hash functions and the cipher."""
    table = [0] * 0x500
    seed = 0x00100001
    for low in range(0x100):
        for index in range(low, 0x500, 0x100):
            seed = (seed * 125 + 3) % 0x2AAAAB
            high = (seed & 0xFFFF) << 16
            seed = (seed * 125 + 3) % 0x2AAAAB
            table[index] = high | seed & 0xFFFF
    return table


_CRYPT = _crypt_table()
_WORD = 0xFFFFFFFF


def _hash(name: str, kind: int) -> int:
    """A name's hash: of kind 0 its place in the table, 1 and 2 its identity, 3 a cipher key."""
    one, two = 0x7FED7FED, 0xEEEEEEEE
    for character in name.upper().encode():
        one = (_CRYPT[kind << 8 | character] ^ (one + two)) & _WORD
        two = (character + one + two * 33 + 3) & _WORD
    return one


def _encrypt(data: bytes, key: int) -> bytes:
    """Encrypt the whole 32-bit words of `data`; up to three bytes after them stay as they are."""
    key &= _WORD
    seed = 0xEEEEEEEE
    count = len(data) // 4
    words = []
    for plain in struct.unpack_from(f"<{count}I", data):
        seed = (seed + _CRYPT[0x400 + (key & 0xFF)]) & _WORD
        words.append(plain ^ (key + seed) & _WORD)
        key = (~key << 21) + 0x11111111 & _WORD | key >> 11
        seed = (plain + seed * 33 + 3) & _WORD
    return struct.pack(f"<{count}I", *words) + data[4 * count :]
