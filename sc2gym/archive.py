"""The archive that a replay file is (MPQ), read within bounds.

mpyq reads the archive's tables; what it trusts the file about is bounded here: how large the tables
are, where members lie, and how much a member unpacks to.
"""

from __future__ import annotations

import io
import struct
import zlib
from functools import lru_cache
from itertools import pairwise

import mpyq
import numpy as np

from sc2gym._fast import mpq
from sc2gym.errors import CorruptReplayError, UnsupportedReplayError

MAX_TABLE_ENTRIES = 4096
"""Hash or block table entries allowed; real replays have 16 to 32."""

MAX_FILE_BYTES = 64 << 20
"""Bytes that a replay file may have; real ones stay below 5 MB."""

MAX_STREAM_BYTES = 32 << 20
"""Bytes that an event stream may unpack to; the largest seen in real replays is below 4 MB."""

MAX_MEMBER_BYTES = 2 << 20
"""Bytes that any other member may unpack to, which become objects; real ones stay below 64 KB."""

MAX_HEADER_BYTES = 1 << 16
"""Bytes of the replay's header, likewise; real ones have some 200."""

_CRYPT_TABLE = np.array([mpyq.MPQArchive.encryption_table[i] for i in range(1280)], np.uint32)
_MAGIC = (b"MPQ\x1a", b"MPQ\x1b")
_STREAMS = tuple(f"replay.{stream}.events" for stream in ("game", "tracker", "message"))


class Archive(mpyq.MPQArchive):  # type: ignore[misc]  # mpyq has no annotations
    """A replay's archive.

    Args:
        data: The whole file.

    Raises:
        UnsupportedReplayError: Not an archive at all.
        CorruptReplayError: An archive that is damaged or cut short.
    """

    def __init__(self, data: bytes):
        if data[:4] not in _MAGIC:
            raise UnsupportedReplayError(_not_a_replay(data))
        self._size = len(data)
        if self._size > MAX_FILE_BYTES:
            raise CorruptReplayError(MAX_FILE_BYTES, "larger than any replay")
        try:
            super().__init__(io.BytesIO(data), listfile=False)
        except struct.error as error:
            raise CorruptReplayError(len(data), "the archive's header is cut short") from error

    def _hash(self, string: str, hash_type: str) -> int:
        return _hash(string, hash_type)

    def _decrypt(self, data: bytes, key: int) -> bytes:
        return mpq.decipher(data, key, _CRYPT_TABLE)

    def read_table(self, table_type: str) -> list[tuple[int, ...]]:
        """The hash or block table, if the file can hold it."""
        offset = self.header["offset"] + self.header[f"{table_type}_table_offset"]
        entries = self.header[f"{table_type}_table_entries"]
        if entries > MAX_TABLE_ENTRIES:
            raise CorruptReplayError(offset, f"a {table_type} table of {entries} entries")
        if offset + 16 * entries > self._size:
            raise CorruptReplayError(offset, f"the {table_type} table lies beyond the end of file")
        self.file.seek(offset)
        data = self._decrypt(self.file.read(16 * entries), _hash(f"({table_type} table)", "TABLE"))
        entry = mpyq.MPQHashTableEntry if table_type == "hash" else mpyq.MPQBlockTableEntry
        return list(map(entry._make, struct.iter_unpack(entry.struct_format, data)))

    @property
    def user_data(self) -> bytes:
        """The block before the archive proper, which holds the replay's header."""
        block = self.header.get("user_data_header")
        if block is None:
            raise UnsupportedReplayError("an archive without a replay header, so not a replay")
        content: bytes = block["content"]
        return content[:MAX_HEADER_BYTES]

    def read_member(self, name: str) -> bytes | None:
        """A member, unpacked; None if the archive has no such member or it is empty.

        Raises:
            CorruptReplayError: with the offset in the file.
        """
        entry = self.get_hash_table_entry(name)
        if entry is None:
            return None
        if entry.block_table_index >= len(self.block_table):
            raise CorruptReplayError(0, "no such block in the block table", member=name)
        block = self.block_table[entry.block_table_index]
        offset = block.offset + self.header["offset"]
        if not block.flags & mpyq.MPQ_FILE_EXISTS or block.archived_size == 0:
            return None
        if block.flags & (mpyq.MPQ_FILE_ENCRYPTED | mpyq.MPQ_FILE_IMPLODE):
            raise UnsupportedReplayError(f"{name} is encrypted or imploded, as no replay's is")
        if offset + block.archived_size > self._size:
            raise CorruptReplayError(offset, "lies beyond the end of the file", member=name)
        if block.size > (MAX_STREAM_BYTES if name in _STREAMS else MAX_MEMBER_BYTES):
            raise CorruptReplayError(offset, f"claims {block.size} bytes", member=name)
        self.file.seek(offset)
        packed = self.file.read(block.archived_size)
        try:
            if block.flags & mpyq.MPQ_FILE_SINGLE_UNIT:
                data = self._unpack(packed, block.size, block.flags)
            else:
                data = b"".join(self._sectors(packed, block))
        except (OSError, ValueError, EOFError, zlib.error, struct.error) as error:
            raise CorruptReplayError(offset, f"cannot be unpacked: {error}", member=name) from error
        if len(data) != block.size:
            what = f"unpacks to {len(data)} bytes instead of {block.size}"
            raise CorruptReplayError(offset, what, member=name)
        return data

    def _sectors(self, packed: bytes, block: mpyq.MPQBlockTableEntry) -> list[bytes]:
        # Longer members are cut into sectors that are packed one by one, after a table of
        # where each begins; with checksums there is one sector more, which holds those.
        if not block.flags & mpyq.MPQ_FILE_COMPRESS:
            return [packed]  # there is no table then: every sector is where it must be
        sector_size = 512 << self.header["sector_size_shift"]
        count = -(-block.size // sector_size)
        starts = struct.unpack_from(f"<{count + 1}I", packed)
        sectors = []
        left = block.size
        for start, end in pairwise(starts):
            if not start <= end <= len(packed):
                raise ValueError("sectors out of order")
            size = min(left, sector_size)
            sectors.append(self._unpack(packed[start:end], size, block.flags))
            left -= size
        return sectors

    @staticmethod
    def _unpack(packed: bytes, size: int, flags: int) -> bytes:
        # What would not have shrunk is stored as it is.
        if not flags & mpyq.MPQ_FILE_COMPRESS or len(packed) >= size:
            return packed
        if not packed:
            raise ValueError("nothing where there should be something")
        kind, body = packed[0], packed[1:]
        if kind == 0:
            return body
        # One byte more than promised is enough to notice a longer one.
        if kind == 2:
            return zlib.decompressobj().decompress(body, size + 1)
        if kind == 16:
            return mpq.bunzip(body, size)
        raise ValueError(f"compression {kind} is not used in replays")


@lru_cache(maxsize=256)
def _hash(string: str, hash_type: str) -> int:
    # Every replay has the same few members, and mpyq hashes a name letter by letter.
    value: int = mpyq.MPQArchive._hash(mpyq.MPQArchive, string, hash_type)
    return value


def _not_a_replay(data: bytes) -> str:
    if not data:
        return "the file is empty"
    start = data[:64].lstrip().lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "a web page, not a replay: was the download link a page?"
    if data.startswith((b"\x89PNG", b"\xff\xd8\xff", b"GIF8")):
        return "a picture, not a replay"
    if data.startswith(b"PK\x03\x04"):
        return "a zip archive, not a replay: unpack it first"
    if data.startswith(b"ARROW1"):
        return "not a replay but a recording, or another file of Arrow's"
    return "not a replay: it does not begin as an MPQ archive"
