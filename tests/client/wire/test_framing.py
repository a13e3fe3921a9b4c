"""Frames survive every split of the stream; garbage ends in a violation only."""

from __future__ import annotations

import struct
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tubemq_client import errors
from tubemq_client._wire.framing import (
    BLOCK_BYTES,
    MAX_BLOCKS,
    MAX_PAYLOAD_BYTES,
    Frame,
    FrameDecoder,
    encode_frame,
)

pytestmark = pytest.mark.timeout(120)

TOKEN = bytes.fromhex("ff7ff4fe")


def head(blocks: int, serial: int = 1) -> bytes:
    return TOKEN + struct.pack(">ii", serial, blocks)


def block(data: bytes, length: int | None = None) -> bytes:
    return struct.pack(">i", len(data) if length is None else length) + data


def drain(decoder: FrameDecoder) -> tuple[list[Frame], str | None]:
    """Return the decoder's frames until it needs data or fails."""
    frames: list[Frame] = []
    for _ in range(10_000):
        try:
            frame = decoder.next_frame()
        except errors.ProtocolViolation as violation:
            return frames, str(violation)
        if frame is None:
            return frames, None
        frames.append(frame)
    raise AssertionError("the decoder never comes to an end")


def feed(chunks, **options) -> tuple[list[Frame], str | None]:
    decoder = FrameDecoder(**options)
    frames: list[Frame] = []
    for chunk in chunks:
        decoder.receive_data(chunk)
        more, violation = drain(decoder)
        frames += more
        if violation is not None:
            return frames, violation
    return frames, None


def outcome(chunks, **options) -> tuple[list[Frame], bool]:
    """Feed like `feed`, but drop the text of a violation, which quotes the bytes of one chunk."""
    frames, violation = feed(chunks, **options)
    return frames, violation is not None


def cut(stream: bytes, borders: list[int]) -> list[bytes]:
    points = sorted({0, len(stream), *(border % (len(stream) + 1) for border in borders)})
    return [stream[a:b] for a, b in pairwise(points)]


# Payload sizes around the relevant borders: views or copies, one block or several.
sizes = st.one_of(
    st.integers(1, 40),
    st.sampled_from([1023, 1024, 1025, 8191, 8192, 8193, 16384, 16385, 40_000]),
)
frames_of_any_size = st.lists(
    st.builds(
        lambda serial, size, byte: Frame(serial, bytes([byte]) * (size - 1) + b"."),
        st.integers(-(2**31), 2**31 - 1),
        sizes,
        st.integers(0, 255),
    ),
    max_size=5,
)


@given(frames_of_any_size, st.lists(st.integers(0, 1 << 20), max_size=40))
def test_any_cut_gives_the_same_frames(frames, borders):
    stream = b"".join(encode_frame(*frame) for frame in frames)
    assert feed([stream]) == (frames, None)
    assert feed(cut(stream, borders)) == (frames, None)


@settings(max_examples=25, deadline=None)
@given(frames_of_any_size)
def test_byte_by_byte_gives_the_same_frames(frames):
    stream = b"".join(encode_frame(*frame) for frame in frames)[:50_000]
    whole, _ = feed([stream])
    assert feed(stream[i : i + 1] for i in range(len(stream))) == (whole, None)


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=30), st.lists(st.integers(0, 1 << 17)))
def test_blocks_of_any_length_are_accepted(lengths, borders):
    blocks = [bytes([index % 251]) * length for index, length in enumerate(lengths)]
    stream = head(len(blocks)) + b"".join(map(block, blocks))
    follower = encode_frame(2, b"next")
    expected = [Frame(1, b"".join(blocks)), Frame(2, b"next")]
    assert feed(cut(stream + follower, borders)) == (expected, None)


@given(st.binary(max_size=400), st.lists(st.integers(0, 500), max_size=10))
def test_garbage_is_a_violation_in_any_split(garbage, borders):
    stream = encode_frame(7, b"good") + garbage
    whole = outcome([stream])
    assert outcome(cut(stream, borders)) == whole
    assert whole[0][:1] == [Frame(7, b"good")]


@given(
    st.lists(
        st.one_of(
            st.just(TOKEN),
            st.sampled_from([head(1), head(2), head(3584), head(0), head(3585), head(-1)]),
            st.binary(max_size=20).map(block),
            st.integers(-(2**31), 2**31 - 1).map(lambda n: struct.pack(">i", n)),
            st.binary(max_size=8),
        ),
        max_size=12,
    ),
    st.lists(st.integers(0, 400), max_size=10),
)
def test_almost_valid_streams_give_the_same_events_in_any_split(parts, borders):
    stream = b"".join(parts)
    whole = outcome([stream], max_frame_bytes=64)
    assert outcome(cut(stream, borders), max_frame_bytes=64) == whole


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"HTTP/1.1 400 Bad", "instead of ff7ff4fe"),
        (b"\x15\x03\x01", "is it TLS or plain"),
        (head(0), "announces 0 blocks"),
        (head(-1), "announces -1 blocks"),
        (head(MAX_BLOCKS + 1), "announces 3585 blocks"),
        (head(1) + block(b"", -1), "a block of -1 bytes"),
        (head(1) + block(b"", 101), "at most 100 are accepted"),
        (head(2) + block(b"x" * 60) + block(b"y" * 41), "at most 100 are accepted"),
        (head(1) + block(b"", 2**31 - 1), "at most 100 are accepted"),
    ],
)
def test_a_broken_stream_stays_broken(stream, reason):
    decoder = FrameDecoder(max_frame_bytes=100)
    decoder.receive_data(encode_frame(1, b"before") + stream)
    assert decoder.next_frame() == Frame(1, b"before")
    for _ in range(2):
        with pytest.raises(errors.ProtocolViolation, match=reason):
            decoder.next_frame()
        decoder.receive_data(encode_frame(2, b"after"))
    assert "failed" in repr(decoder)


def test_a_foreign_protocol_is_noticed_before_a_header_is_complete():
    assert feed([b"S"])[1] is not None


def test_the_largest_frames():
    decoder = FrameDecoder()
    payload = bytes(MAX_PAYLOAD_BYTES)
    decoder.receive_data(encode_frame(1, payload))
    assert decoder.next_frame() == Frame(1, payload)
    limit = 1 << 20
    assert feed([head(1) + block(bytes(limit))], max_frame_bytes=limit)[1] is None
    assert feed([head(1) + block(bytes(limit + 1))], max_frame_bytes=limit)[1] is not None


def test_what_is_written_never_has_a_block_above_8_kib():
    stream = encode_frame(1, b"x" * (2 * BLOCK_BYTES + 1))
    assert stream == head(3) + block(b"x" * 8192) * 2 + block(b"x")


@pytest.mark.parametrize(
    ("serial", "payload"),
    [(1, b""), (1, bytes(MAX_PAYLOAD_BYTES + 1)), (2**31, b"x"), (-(2**31) - 1, b"x")],
)
def test_frames_that_no_peer_would_accept_are_not_written(serial, payload):
    with pytest.raises(ValueError, match="not"):
        encode_frame(serial, payload)


def test_a_buffer_may_be_reused_at_once():
    stream = encode_frame(3, bytes(range(256)) * 100)
    decoder = FrameDecoder()
    buffer = bytearray(4096)
    for start in range(0, len(stream), len(buffer)):
        size = len(stream[start : start + len(buffer)])
        buffer[:size] = stream[start : start + size]
        decoder.receive_data(memoryview(buffer)[:size])
        buffer[:] = bytes(len(buffer))
    assert decoder.next_frame() == Frame(3, bytes(range(256)) * 100)


def test_mid_frame_tells_a_clean_close_from_a_cut_reply():
    stream = encode_frame(1, b"abc")
    for taken in range(len(stream) + 1):
        decoder = FrameDecoder()
        decoder.receive_data(stream[:taken])
        assert decoder.mid_frame == (0 < taken < len(stream))


def test_tiny_chunks_do_not_multiply_memory():
    size = 200_000
    stream = encode_frame(1, bytes(size))[:-1]
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        for start in range(0, len(stream), 7):
            decoder.receive_data(stream[start : start + 7])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * size
