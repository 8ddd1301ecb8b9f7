"""The file format of recordings: what goes in comes out, and damage is always noticed."""

from __future__ import annotations

import json
import pickle
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sc2gym.errors import RecordingError
from sc2gym.recording import (
    SUFFIX,
    Recording,
    RecordingInfo,
    RecordingWriter,
    encode_varint,
    find,
    summarize,
    wire_fields,
)

pa = pytest.importorskip("pyarrow", reason="needs the recordings extra")

INFO = RecordingInfo(
    replay="game.SC2Replay",
    content_hash="0123456789abcdef0123456789abcdef",
    player=2,
    game_version="4.10.0.75689",
    base_build=75689,
    data_version="B89B5D6FA7CBF6452E721311BFBC6CB2",
    map_name="Kairos Junction LE",
    players=({"player_id": 1, "name": "김유진"}, {"player_id": 2, "name": "Ann"}),
    loops_per_second=22.4,
    step_mul=8,
    actions=None,
    disable_fog=False,
    interface=b"\x08\x01",
    game_info=bytes(range(256)),
    replay_info=b"",
    recorder="0.1.0",
)


def frame(loop: int, size: int = 200) -> bytes:
    """A `ResponseObservation` of game loop, raw data of some size, and an unknown field."""
    raw = np.random.default_rng(loop).integers(0, 4, size, np.uint8).tobytes()
    inner = b"\x48" + encode_varint(loop) + b"\x2a" + encode_varint(len(raw)) + raw
    return b"\xfa\x3f\x03new\x1a" + encode_varint(len(inner)) + inner


def write(path: Path, frames: list[bytes], block_bytes: int = 1000) -> Path:
    with RecordingWriter(path, INFO, block_bytes) as writer:
        for observation in frames:
            writer.append(observation)
    return path


@pytest.fixture(scope="module")
def frames() -> list[bytes]:
    return [frame(8 * i, 100 + 10 * i) for i in range(30)]


@pytest.fixture(scope="module")
def path(frames: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("recording") / ("game" + SUFFIX), frames)


def test_everything_comes_back(path: Path, frames: list[bytes]) -> None:
    recording = Recording(path)
    assert recording.info == INFO
    assert recording.num_blocks > 3
    assert len(recording) == 30
    assert recording.game_loops.tolist() == list(range(0, 240, 8))
    assert [bytes(recording.observation(i)) for i in range(30)] == frames
    assert [bytes(recording.observation(i)) for i in (29, 0, 17, 16)] == [
        frames[i] for i in (29, 0, 17, 16)
    ]
    sizes = recording.sizes
    assert (sizes.frames, sizes.raw, sizes.stored) == (
        30,
        sum(map(len, frames)),
        path.stat().st_size,
    )
    assert not path.with_name(path.name + ".partial").exists()


def test_frames_are_read_only_views(path: Path) -> None:
    recording = Recording(path)
    assert recording.observation(3).readonly
    assert recording.observation(3).obj is recording.observation(4).obj
    with pytest.raises(ValueError, match="read-only"):
        recording.game_loops[0] = 1


def test_pyarrow_alone_reads_it(path: Path, frames: list[bytes]) -> None:
    table = pa.ipc.open_file(path).read_all()
    assert table["observation"].to_pylist() == frames
    assert table["game_loop"].to_pylist() == list(range(0, 240, 8))
    metadata = json.loads(table.schema.metadata[b"sc2gym.recording"])
    assert (metadata["player"], metadata["map_name"]) == (2, "Kairos Junction LE")


@pytest.mark.parametrize("document", ["README.md", "docs/recordings.md"])
def test_what_the_documents_say_about_reading_them_is_so(
    document: str, path: Path, frames: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "game-3f2a90c1-p1.SC2Recording").write_bytes(path.read_bytes())
    text = (Path(__file__).parents[1] / document).read_text(encoding="utf-8")
    block = next(
        b for b in re.findall(r"^```py.*?\n(.*?)^```", text, re.M | re.S) if "open_file" in b
    )
    names: dict[str, object] = {}
    exec(block, names)
    assert names["wire"] == frames[0]


def test_summaries_lack_the_large_parts_only(path: Path, frames: list[bytes]) -> None:
    for summary, whole in zip(Recording(path).summaries(), frames, strict=True):
        numbers = [number for number, *_ in wire_fields(summary)]
        assert numbers == [1023, 3]
        inner = next(bytes(summary[v:e]) for n, _, v, e in wire_fields(summary) if n == 3)
        assert [number for number, *_ in wire_fields(inner)] == [9]
        assert len(summary) < 20 < len(whole)


def test_real_messages(data_dir: Path, tmp_path: Path) -> None:
    """The summary of a real message is that message, three parts cleared."""
    pytest.importorskip("google.protobuf", reason="needs the game extra")
    from sc2gym.game import load_schemas

    sc2api = load_schemas()
    files = sorted((data_dir / "observations").rglob("*.ResponseObservation.pb"))
    assert len(files) == 9
    for file in files:
        wire = file.read_bytes()
        loop, summary = summarize(wire)
        expected = sc2api.ResponseObservation.FromString(wire)
        assert loop == expected.observation.game_loop
        for part in ("raw_data", "feature_layer_data", "render_data"):
            expected.observation.ClearField(part)
        assert sc2api.ResponseObservation.FromString(summary) == expected
    wires = sorted((f.read_bytes() for f in files), key=lambda w: summarize(w)[0])
    recording = Recording(write(tmp_path / "real", wires, 100_000))
    assert [bytes(recording.observation(i)) for i in range(9)] == wires


@settings(deadline=None, max_examples=30)
@given(
    sizes=st.lists(st.integers(0, 5000), max_size=40),
    block_bytes=st.integers(1, 20_000),
)
def test_any_sizes_and_blocks(
    sizes: list[int], block_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    frames = [frame(i, size) for i, size in enumerate(sizes)]
    path = write(tmp_path_factory.mktemp("any") / "r", frames, block_bytes)
    recording = Recording(path)
    assert [bytes(recording.observation(i)) for i in range(len(recording))] == frames
    first = recording.first_frames
    assert first[0] == 0 and first[-1] == len(frames)
    for i in range(len(frames)):
        block = recording.block_of(i)
        assert first[block] <= i < first[block + 1]


def test_no_frames_at_all(tmp_path: Path) -> None:
    recording = Recording(write(tmp_path / "none", []))
    assert len(recording) == 0 and list(recording.summaries()) == []
    with pytest.raises(IndexError):
        recording.observation(0)


def test_pickles_as_its_path(path: Path, frames: list[bytes]) -> None:
    assert bytes(pickle.loads(pickle.dumps(Recording(path))).observation(5)) == frames[5]


def test_threads_share_a_recording(path: Path, frames: list[bytes]) -> None:
    recording, wrong = Recording(path), []

    def read(seed: int) -> None:
        for i in np.random.default_rng(seed).integers(0, 30, 200):
            if bytes(recording.observation(int(i))) != frames[i]:
                wrong.append(i)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_interrupted_writer_leaves_nothing(tmp_path: Path, frames: list[bytes]) -> None:
    target = tmp_path / "game"
    with pytest.raises(KeyboardInterrupt), RecordingWriter(target, INFO, 1000) as writer:
        for observation in frames:
            writer.append(observation)
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_recording_is_replaced_only_when_the_new_one_is_whole(
    path: Path, frames: list[bytes], tmp_path: Path
) -> None:
    target = tmp_path / "game"
    target.write_bytes(path.read_bytes())
    with RecordingWriter(target, INFO) as writer:
        writer.append(frames[0])
        assert len(Recording(target)) == 30
    assert len(Recording(target)) == 1


@pytest.mark.parametrize(
    "message",
    [
        b"\x1a\x05",  # longer than what is there
        b"\x1a\x02\x4a\x00",  # a game loop that is a string
        b"\x0b",  # a group
        b"\xff" * 11,  # a tag without end
        b"\x1a\x06\x48" + b"\xff" * 4 + b"\x0f",  # a stub's game loop, 2^32 - 1
    ],
)
def test_what_is_not_an_observation_is_refused(tmp_path: Path, message: bytes) -> None:
    with RecordingWriter(tmp_path / "r", INFO) as writer, pytest.raises(ValueError):
        writer.append(message)


def test_game_loops_cannot_fall(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", INFO) as writer:
        writer.append(frame(5))
        writer.append(frame(5))
        with pytest.raises(ValueError, match="game loop 4 after 5"):
            writer.append(frame(4))


def read_all(path: Path) -> list[bytes]:
    recording = Recording(path)
    list(recording.summaries())
    return [bytes(recording.observation(i)) for i in range(len(recording))]


def test_cut_off_anywhere(path: Path, tmp_path: Path) -> None:
    whole, cut = path.read_bytes(), tmp_path / "cut"
    for length in (*range(0, len(whole), 97), len(whole) - 1):
        cut.write_bytes(whole[:length])
        with pytest.raises(RecordingError, match="cut"):
            Recording(cut)


def test_every_changed_byte_is_noticed_or_harmless(
    path: Path, frames: list[bytes], tmp_path: Path
) -> None:
    whole, changed = bytearray(path.read_bytes()), tmp_path / "changed"
    info, noticed, tried = Recording(path).info, 0, 0
    for position in range(0, len(whole), 11):
        for mask in (0xFF, 1 << position % 8):
            tried += 1
            whole[position] ^= mask
            changed.write_bytes(whole)
            whole[position] ^= mask
            try:
                assert read_all(changed) == frames
                assert Recording(changed).info == info
            except RecordingError as error:
                noticed += 1
                assert str(changed) in str(error)
    assert noticed > tried // 2


def test_damage_names_file_block_and_byte(path: Path, tmp_path: Path) -> None:
    offset = Recording(path)._offsets[2]
    whole, damaged = bytearray(path.read_bytes()), tmp_path / "damaged"
    following = Recording(path)._offsets[3]
    whole[following - 40] ^= 0x55  # the end of block 2 is the end of its observations
    damaged.write_bytes(whole)
    recording = Recording(damaged)
    first = int(recording.first_frames[2])
    recording.observation(first - 1)
    with pytest.raises(RecordingError, match=f"damaged: block 2 at byte {offset}: "):
        recording.observation(first)
    recording.observation(int(recording.first_frames[3]))


def test_blocks_left_out_or_exchanged(path: Path, tmp_path: Path) -> None:
    """A file that Arrow itself finds nothing wrong with, as a tool that edits it would make."""
    reader, edited = pa.ipc.open_file(path), tmp_path / "edited"
    blocks = [reader.get_batch_with_custom_metadata(i) for i in range(reader.num_record_batches)]
    for order in ([1, 0, *range(2, len(blocks))], range(len(blocks) - 1), range(1, len(blocks))):
        with pa.ipc.new_file(edited, reader.schema) as writer:
            for i in order:
                writer.write_batch(blocks[i].batch, custom_metadata=blocks[i].custom_metadata)
        with pytest.raises(RecordingError, match="missing or out of order"):
            Recording(edited)
    with pa.ipc.new_file(edited, reader.schema) as writer:
        pass
    with pytest.raises(RecordingError, match="blocks are missing"):
        Recording(edited)


@pytest.mark.parametrize(("version", "advice"), [(2, "upgrade"), (0, "record again")])
def test_another_format_version(path: Path, tmp_path: Path, version: int, advice: str) -> None:
    import zlib

    reader, other = pa.ipc.open_file(path), tmp_path / "other"
    text = json.dumps({"format": version, "what": "a later release knows"}).encode()
    metadata = {
        "sc2gym.recording": text,
        "sc2gym.recording.crc32": str(zlib.crc32(text)),
    }
    with pa.ipc.new_file(other, reader.schema.with_metadata(metadata)) as writer:
        writer.write_batch(reader.get_batch(0))
    with pytest.raises(RecordingError, match=f"format {version}, .* reads format 1: {advice}"):
        Recording(other)


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot be opened"):
        Recording(tmp_path / "absent")
    for content in (b"", b"ARROW1", b"<html>" * 100, b"ARROW1" + b"\xff" * 100 + b"ARROW1"):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(RecordingError, match="other"):
            Recording(tmp_path / "other")
    with pa.ipc.new_file(tmp_path / "table", pa.schema([("x", pa.int32())])) as writer:
        writer.write_batch(pa.record_batch([pa.array([1], pa.int32())], names=["x"]))
    with pytest.raises(RecordingError, match="table"):
        Recording(tmp_path / "table")


def test_find(tmp_path: Path, path: Path) -> None:
    for name in ("b/x", "a/y"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / (name + SUFFIX)).touch()
    (tmp_path / "a" / ("z" + SUFFIX + ".partial")).touch()
    assert find([tmp_path, path]) == sorted(
        [path, tmp_path / ("a/y" + SUFFIX), tmp_path / ("b/x" + SUFFIX)]
    )
