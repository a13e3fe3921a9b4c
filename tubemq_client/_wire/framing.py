"""Frames: the outermost layer of every byte that crosses a TubeMQ connection.

A frame is ``token, serial, block count`` and then that many ``length, bytes`` blocks, all integers
big-endian and four bytes wide. The payload is the concatenation of the blocks; their borders mean
nothing. Writers split at 8 KiB, so a fetch of 1 MiB arrives as 128 blocks: this is the hot path of
a reader, and the decoder does no work per byte.

Feed `FrameDecoder` the data of the transport, in chunks of any size, and take frames out. The
module never reads from a socket, waits, or parses a payload; `envelope` does the latter.

Source: `docs/protocol/wire.md#frame-framing`.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final, NamedTuple

from tubemq_client import errors

__all__ = [
    "BLOCK_BYTES",
    "DEFAULT_MAX_FRAME_BYTES",
    "FRAME_TOKEN",
    "MAX_BLOCKS",
    "MAX_PAYLOAD_BYTES",
    "Frame",
    "FrameDecoder",
    "encode_frame",
]

FRAME_TOKEN: Final = 0xFF7FF4FE
"""First four bytes of every frame."""

BLOCK_BYTES: Final = 8192
"""Size of the largest written block. Some peers refuse larger ones; readers here accept any
size."""

MAX_BLOCKS: Final = 3584
"""Upper bound of blocks that a peer accepts in one frame (28 MiB in full blocks)."""

MAX_PAYLOAD_BYTES: Final = BLOCK_BYTES * MAX_BLOCKS
"""Largest payload that can be written, in bytes."""

DEFAULT_MAX_FRAME_BYTES: Final = 32 * 1024 * 1024
"""Default limit of a payload that is read, in bytes."""

_HEADER = struct.Struct(">Iii")
_LENGTH = struct.Struct(">i")
_SINGLE = struct.Struct(">Iiii")
"""Header of a frame of one block, and the length of that block."""

# Parts below this size are copied together at once. A view would cost more than its bytes and would
# keep its whole chunk alive, so a stream of tiny chunks could multiply memory.
_SMALL_PIECE_BYTES: Final = 1024


class Frame(NamedTuple):
    """Complete frame; `serial` (signed int32) pairs a reply with its request."""

    serial: int
    payload: bytes


def encode_frame(serial: int, payload: bytes) -> bytes:
    """Return the frame that carries `payload`, split into 8 KiB blocks.

    Raises `ValueError` for a serial outside int32 and for a payload that is empty (peers hang on
    or refuse empty frames) or larger than `MAX_PAYLOAD_BYTES`.
    """
    size = len(payload)
    if not 0 < size <= MAX_PAYLOAD_BYTES:
        raise ValueError(f"a frame carries 1 to {MAX_PAYLOAD_BYTES} bytes, not {size}")
    if not -(1 << 31) <= serial < 1 << 31:
        raise ValueError(f"serial {serial} is not an int32")
    blocks = -(-size // BLOCK_BYTES)
    header = _HEADER.pack(FRAME_TOKEN, serial, blocks)
    if blocks == 1:
        return header + _LENGTH.pack(size) + payload
    full = _LENGTH.pack(BLOCK_BYTES)
    view = memoryview(payload)
    parts: list[bytes | memoryview] = [header]
    last = (blocks - 1) * BLOCK_BYTES
    for start in range(0, last, BLOCK_BYTES):
        parts += (full, view[start : start + BLOCK_BYTES])
    parts += (_LENGTH.pack(size - last), view[last:])
    return b"".join(parts)


class FrameDecoder:
    """Decoder that assembles frames from chunks of any size.

    Call `receive_data` with each chunk, then `next_frame` until it returns None. Only `next_frame`
    raises: frames completed before a violation are still returned, then it raises on every call,
    because the borders of the stream are lost.

    A payload is copied once, when its last byte arrives; until then `bytes` chunks are kept by
    reference and other buffers are copied on arrival, as their owner may reuse them. Memory is
    bounded by the frames not yet taken, `max_frame_bytes`, and one chunk.
    """

    __slots__ = (
        "_block_left",
        "_failure",
        "_frames",
        "_lengths_due",
        "_max_frame_bytes",
        "_partial",
        "_pieces",
        "_serial",
        "_total",
    )

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._frames: deque[Frame] = deque()
        self._failure: str | None = None
        self._partial = bytearray()  # an integer or header split by the end of a chunk
        self._serial = 0
        self._lengths_due = 0  # blocks of the current frame whose length has not been read
        self._block_left = 0  # bytes missing of the current block
        self._total = 0  # payload bytes announced so far
        self._pieces: list[memoryview | bytearray] = []

    def __repr__(self) -> str:
        if self._failure is not None:
            return f"<FrameDecoder failed: {self._failure}>"
        return (
            f"<FrameDecoder ready={len(self._frames)} blocks_due={self._lengths_due} "
            f"block_left={self._block_left}>"
        )

    @property
    def mid_frame(self) -> bool:
        """True if bytes of an unfinished frame have arrived: closing now truncates a reply."""
        return bool(self._partial or self._lengths_due or self._block_left)

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next chunk of the stream; ignored once the stream is known to be broken."""
        if self._failure is not None:
            return
        data = data if isinstance(data, bytes) else bytes(data)
        try:
            self._parse(data)
        except errors.ProtocolViolation as violation:
            self._failure = str(violation)
            self._pieces.clear()
            self._partial.clear()

    def next_frame(self) -> Frame | None:
        """Return the next complete frame, or None when more data is needed.

        Raises `ProtocolViolation` when the stream is broken; the connection must be closed.
        """
        if self._frames:
            return self._frames.popleft()
        if self._failure is not None:
            raise errors.ProtocolViolation(self._failure)
        return None

    def _parse(self, data: bytes) -> None:
        view = memoryview(data)
        pos, end = 0, len(data)
        while pos < end:
            if self._block_left:
                pos = self._read_block(view, pos, end)
            elif not self._lengths_due:
                if not self._partial:
                    pos = self._read_single_blocks(data, pos, end)
                if pos < end:
                    pos = self._read_header(view, pos, end)
            elif self._partial or end - pos < _LENGTH.size:
                pos = self._read_cut_length(view, pos, end)
            else:
                pos = self._read_whole_blocks(view, pos, end)

    def _read_single_blocks(self, data: bytes, pos: int, end: int) -> int:
        """Read frames of one block that are completely in this chunk: a producer's receipts.

        Anything else, a broken frame too, is left unread.
        """
        frames, unpack_from, width = self._frames, _SINGLE.unpack_from, _SINGLE.size
        while end - pos > width:
            token, serial, blocks, length = unpack_from(data, pos)
            stop = pos + width + length
            if token != FRAME_TOKEN or blocks != 1 or stop > end:
                break
            if not 0 < length <= self._max_frame_bytes:
                break
            frames.append(Frame(serial, data[pos + width : stop]))
            pos = stop
        return pos

    def _read_header(self, view: memoryview, pos: int, end: int) -> int:
        stop = min(end, pos + _HEADER.size - len(self._partial))
        self._partial += view[pos:stop]
        self._check_token()
        if len(self._partial) == _HEADER.size:
            _, serial, blocks = _HEADER.unpack(self._partial)
            if not 0 < blocks <= MAX_BLOCKS:
                raise errors.ProtocolViolation(f"frame announces {blocks} blocks")
            self._partial.clear()
            self._serial, self._lengths_due, self._total = serial, blocks, 0
        return stop

    def _check_token(self) -> None:
        # Checked as early as possible: a peer that speaks another protocol (TLS, HTTP) may send
        # less than a header and then wait for us.
        seen = bytes(self._partial[:4])
        if not FRAME_TOKEN.to_bytes(4, "big").startswith(seen):
            hint = "is this a TubeMQ port, and is it TLS or plain as configured?"
            if seen and b"HTTP".startswith(seen):
                hint = "this is an HTTP port; masters speak TubeMQ at 8715, by default"
            raise errors.ProtocolViolation(
                f"frame starts with {seen.hex()} instead of {FRAME_TOKEN:08x}; {hint}"
            )

    def _read_cut_length(self, view: memoryview, pos: int, end: int) -> int:
        stop = min(end, pos + _LENGTH.size - len(self._partial))
        self._partial += view[pos:stop]
        if len(self._partial) == _LENGTH.size:
            (length,) = _LENGTH.unpack(self._partial)
            self._partial.clear()
            self._start_block(length)
        return stop

    def _read_whole_blocks(self, view: memoryview, pos: int, end: int) -> int:
        """Read blocks that are completely in this chunk; the hot loop of a large reply."""
        pieces, unpack_from, width = self._pieces, _LENGTH.unpack_from, _LENGTH.size
        due, room = self._lengths_due, self._max_frame_bytes - self._total
        while due and end - pos >= width:
            (length,) = unpack_from(view, pos)
            stop = pos + width + length
            if length < _SMALL_PIECE_BYTES or length > room or stop > end:
                break
            pieces.append(view[pos + width : stop])
            pos = stop
            room -= length
            due -= 1
        self._lengths_due, self._total = due, self._max_frame_bytes - room
        if not due:
            self._finish_frame()
        elif end - pos >= width:
            self._start_block(unpack_from(view, pos)[0])
            pos += width
        return pos

    def _start_block(self, length: int) -> None:
        self._total += length
        if length < 0:
            raise errors.ProtocolViolation(f"frame announces a block of {length} bytes")
        if self._total > self._max_frame_bytes:
            raise errors.ProtocolViolation(
                f"frame carries at least {self._total} bytes; at most "
                f"{self._max_frame_bytes} are accepted"
            )
        self._lengths_due -= 1
        self._block_left = length
        if not (length or self._lengths_due):
            self._finish_frame()

    def _read_block(self, view: memoryview, pos: int, end: int) -> int:
        stop = min(end, pos + self._block_left)
        self._keep(view[pos:stop])
        self._block_left -= stop - pos
        if not (self._block_left or self._lengths_due):
            self._finish_frame()
        return stop

    def _keep(self, piece: memoryview) -> None:
        pieces = self._pieces
        if len(piece) >= _SMALL_PIECE_BYTES:
            pieces.append(piece)
        elif pieces and isinstance(pieces[-1], bytearray):
            pieces[-1] += piece
        else:
            pieces.append(bytearray(piece))

    def _finish_frame(self) -> None:
        self._frames.append(Frame(self._serial, b"".join(self._pieces)))
        self._pieces.clear()
