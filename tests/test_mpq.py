"""Archives are unpacked as the libraries unpack them, or refused."""

from __future__ import annotations

import bz2
import random

import mpyq
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sc2gym._fast.mpq import bunzip, decipher
from sc2gym.archive import Archive

# Runs around the lengths where a count begins and where one is full, few and many values.
pieces = st.one_of(
    st.binary(max_size=300),
    st.builds(
        lambda byte, times: bytes([byte]) * times,
        st.integers(0, 255),
        st.one_of(st.integers(0, 12), st.integers(250, 520)),
    ),
    st.lists(st.sampled_from(b"ab"), max_size=200).map(bytes),
)
contents = st.lists(pieces, max_size=30).map(b"".join)


@given(contents, st.integers(1, 9))
@settings(deadline=None)
def test_whatever_was_packed(content, level):
    packed = bz2.compress(content, level)
    assert bunzip(packed, len(content)) == content
    assert bunzip(packed + b"what follows", len(content)) == content


@pytest.mark.parametrize("level", [1, 9])
def test_several_blocks(level):
    chance = random.Random(level)
    content = b"".join(
        chance.randbytes(chance.randrange(200)) + bytes([chance.randrange(256)]) * 300
        for _ in range(3000)
    ) + bytes(1_100_000)  # fmt: skip
    assert len(content) > 900_000 * (level > 1)
    assert bunzip(bz2.compress(content, level), len(content)) == content


class Packed(Archive):
    """An archive that keeps what there is to unpack, and to what."""

    def __init__(self, data: bytes):
        self.pieces: list[tuple[bytes, int]] = []
        super().__init__(data)
        for member in ("details", "initData", "game.events", "tracker.events", "message.events"):
            self.read_member(f"replay.{member}")

    def _unpack(self, packed: bytes, size: int, flags: int) -> bytes:
        if len(packed) < size and packed[0] == 16:
            self.pieces.append((packed[1:], size))
        return Archive._unpack(packed, size, flags)


def test_real_members(real_replays):
    found = 0
    for file in real_replays:
        for packed, size in Packed(file.read_bytes()).pieces:
            assert bunzip(packed, size) == bz2.decompress(packed)
            found += 1
    assert found > 40


SMALL = b"abracadabra" * 7 + bytes(600) + random.Random(1).randbytes(400)


def test_every_truncation_is_refused():
    packed = bz2.compress(SMALL)
    for size in range(len(packed)):
        with pytest.raises(ValueError):
            bunzip(packed[:size], len(SMALL))


def judged(packed: bytes) -> bytes | None:
    try:
        return bz2.BZ2Decompressor().decompress(packed, len(SMALL) + 1)
    except OSError:
        return None


def test_every_flipped_bit_is_refused_or_does_not_matter():
    packed = bytearray(bz2.compress(SMALL))
    for bit in range(8 * len(packed)):
        packed[bit >> 3] ^= 1 << (bit & 7)
        try:
            found = bunzip(packed, len(SMALL))
        except ValueError as error:
            # The library alone still reads what bzip2 before 0.9.5 wrote.
            assert judged(bytes(packed)) != SMALL or "randomised" in str(error)
        else:
            assert found == SMALL
        packed[bit >> 3] ^= 1 << (bit & 7)


@given(st.data())
@settings(deadline=None, max_examples=300)
def test_noise_behind_a_sound_beginning(data):
    packed = bz2.compress(SMALL)
    kept = data.draw(st.integers(0, len(packed)))
    noise = packed[:kept] + data.draw(st.binary(max_size=400))
    try:
        found = bunzip(noise, len(SMALL))
    except ValueError:
        return
    assert found == bz2.BZ2Decompressor().decompress(noise, len(SMALL) + 1)


@pytest.mark.parametrize("size", [0, 1, len(SMALL) - 1, len(SMALL) + 1, 10 * len(SMALL)])
def test_another_size_than_promised(size):
    with pytest.raises(ValueError, match=r"longer than it should be|bytes instead of"):
        bunzip(bz2.compress(SMALL), size)


def test_what_is_not_bzip2():
    for data in (b"", b"BZ", b"PK\x03\x04" * 9, bytes(100)):
        with pytest.raises(ValueError, match=r"begin|ends"):
            bunzip(data, 10)
    with pytest.raises(ValueError, match="negative"):
        bunzip(bz2.compress(b""), -1)
    assert bunzip(bz2.compress(b""), 0) == b""


@given(st.binary(max_size=200), st.integers(0, 2**32 - 1))
def test_deciphered_as_mpyq_does(data, key):
    table = np.array([mpyq.MPQArchive.encryption_table[i] for i in range(1280)], np.uint32)
    assert decipher(data, key, table) == mpyq.MPQArchive._decrypt(mpyq.MPQArchive, data, key)
    with pytest.raises(ValueError, match="1,280"):
        decipher(data, key, table[1:])
