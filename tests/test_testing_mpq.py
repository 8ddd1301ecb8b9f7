"""Archives that mpyq reads, and those that it cannot, read by rules written down here."""

from __future__ import annotations

import bz2
import hashlib
import io
import struct
import zlib
from itertools import pairwise
from pathlib import Path

import mpyq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sc2gym.testing import Member, write_archive
from sc2gym.testing.mpq import _encrypt, _hash

CONTENT = st.binary(max_size=300) | st.builds(
    bytes.__mul__, st.binary(min_size=1, max_size=30), st.integers(1, 3000)
)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz.()ABC", min_size=1, max_size=24).filter(
    lambda name: name.lower() != "(listfile)"
)


def opened(data: bytes, **options) -> mpyq.MPQArchive:
    return mpyq.MPQArchive(io.BytesIO(data), **options)


def block(archive: mpyq.MPQArchive, name: str) -> mpyq.MPQBlockTableEntry:
    return archive.block_table[archive.get_hash_table_entry(name).block_table_index]


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(NAMES, CONTENT, min_size=1, max_size=12).filter(
        lambda members: len({name.upper() for name in members}) == len(members)
    ),
    st.sampled_from(["bz2", "zlib", "stored"]),
    st.sampled_from([0, 1, 3]),
    st.none() | st.binary(max_size=200),
)
def test_mpyq_reads_what_was_written(members, compression, version, user_data) -> None:
    data = write_archive(
        {name: Member(content, compression) for name, content in members.items()},
        version=version,
        user_data=user_data,
    )
    archive = opened(data)
    assert set(archive.files or ()) == {name.encode() for name in members}
    for name, content in members.items():
        assert (archive.read_file(name) or b"") == content
    assert archive.header["archive_size"] == len(data) - archive.header["offset"]
    if user_data is None:
        assert data.startswith(b"MPQ\x1a")
    else:
        assert archive.header["user_data_header"]["content"] == user_data


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 60_000).filter(lambda size: size % 4096),
    st.sampled_from(["bz2", "zlib"]),
    st.booleans(),
    st.sampled_from([1, 3]),
)
def test_mpyq_reads_sectors(size, compression, crc, version) -> None:
    content = bytes(i * i >> 7 & 0xFF for i in range(size))
    member = Member(content, compression, sectors=True, crc=crc)
    archive = opened(write_archive({"replay.game.events": member}, version=version))
    assert (archive.read_file("replay.game.events") or b"") == content
    assert bool(block(archive, "replay.game.events").flags & mpyq.MPQ_FILE_SECTOR_CRC) == (
        crc and size > 0
    )


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 8192, 20_000])
@pytest.mark.parametrize("compression", ["bz2", "zlib", "stored"])
@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("encrypted", [False, True])
def test_sectors_lie_as_the_format_says(size, compression, crc, encrypted) -> None:
    """mpyq reads no encrypted member, and counts a sector too many in whole multiples."""
    content = bytes(i * i >> 9 & 0xFF for i in range(size))
    name = "replay.initData"
    written = write_archive(
        {name: Member(content, compression, sectors=True, crc=crc, encrypted=encrypted)}, version=1
    )
    archive = opened(written)
    entry = block(archive, name)
    start = entry.offset + archive.header["offset"]
    raw = written[start : start + entry.archived_size]
    key = archive._hash(name, "TABLE")

    def plain(piece: bytes, number: int) -> bytes:
        if not encrypted:
            return piece
        return archive._decrypt(piece, key + number & 0xFFFFFFFF) + piece[len(piece) & ~3 :]

    count = -(-size // 4096)
    if compression == "stored":
        pieces = [raw[4096 * n : 4096 * (n + 1)] for n in range(count)]
    else:
        words = count + 1 + crc
        offsets = struct.unpack(f"<{words}I", plain(raw[: 4 * words], -1))
        assert offsets[0] == 4 * words
        assert offsets[-1] == len(raw)
        pieces = [raw[a:b] for a, b in pairwise(offsets)]
        if crc:
            sums = pieces.pop()
            if len(sums) < 4 * count:
                sums = unpacked(sums)
            # Zezula: Adler-32, begun at 0, of each sector as stored but not yet encrypted.
            assert struct.unpack(f"<{count}I", sums) == tuple(
                zlib.adler32(plain(piece, n), 0) for n, piece in enumerate(pieces)
            )
    read = b""
    for number, piece in enumerate(pieces):
        piece, wanted = plain(piece, number), min(4096, size - len(read))
        read += piece if len(piece) == wanted else unpacked(piece)
    assert read == content


def unpacked(piece: bytes) -> bytes:
    return {2: zlib.decompress, 16: bz2.decompress}[piece[0]](piece[1:])


@given(st.binary(max_size=80), st.integers(0, 0xFFFFFFFF))
def test_the_cipher_is_the_inverse_of_mpyqs(data: bytes, key: int) -> None:
    whole = len(data) & ~3
    sealed = _encrypt(data, key)
    assert mpyq.MPQArchive._decrypt(mpyq.MPQArchive, sealed, key) == data[:whole]
    assert sealed[whole:] == data[whole:]


def test_the_tables_of_real_files_encrypt_to_what_is_there(real_replays: list[Path]) -> None:
    for path in real_replays:
        data = path.read_bytes()
        archive = mpyq.MPQArchive(io.BytesIO(path.read_bytes()), listfile=False)
        for table, form in ((archive.hash_table, "<2I2HI"), (archive.block_table, "<4I")):
            kind = "hash" if table is archive.hash_table else "block"
            start = archive.header[f"{kind}_table_offset"] + archive.header["offset"]
            sealed = _encrypt(
                b"".join(struct.pack(form, *entry) for entry in table), _hash(f"({kind} table)", 3)
            )
            assert data[start : start + len(sealed)] == sealed, (path.name, kind)


def test_a_version_3_header_is_laid_out_as_in_real_files() -> None:
    data = write_archive({"a": b"x" * 100}, user_data=b"header")
    assert data[:16] == struct.pack("<4s3I", b"MPQ\x1b", 512, 1024, 6)
    header = data[1024 : 1024 + 208]
    assert struct.unpack_from("<4s2I2H", header) == (b"MPQ\x1a", 208, len(data) - 1024, 3, 5)
    assert struct.unpack_from("<Q", header, 44) == (len(data) - 1024,)
    assert header[192:] == hashlib.md5(header[:192]).digest()


def test_without_a_listfile() -> None:
    archive = opened(write_archive({"a": b"content"}, listfile=False), listfile=False)
    assert archive.get_hash_table_entry("(listfile)") is None
    assert archive.read_file("a") == b"content"


def test_a_full_hash_table_still_finds_every_name() -> None:
    members = {f"m{i}": bytes((i,)) for i in range(7)}
    archive = opened(write_archive(members, listfile=False, hash_entries=8), listfile=False)
    assert {name: archive.read_file(name) for name in members} == members


def test_what_the_format_has_no_room_for() -> None:
    with pytest.raises(ValueError, match="no hash table of 8 entries holds 8 members"):
        write_archive({f"m{i}": b"" for i in range(7)}, hash_entries=8)
    with pytest.raises(ValueError, match="no hash table of 33 entries"):
        write_archive({}, hash_entries=33)
    with pytest.raises(ValueError, match="1009 bytes of user data; room for 1008"):
        write_archive({}, user_data=bytes(1009))
