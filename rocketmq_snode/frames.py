"""Frames as a node forwards them: whole, with parsed headers, only their number rewritten.

Bodies are never parsed. A header is forwarded byte for byte except for its `opaque`, and only if a
broker must read it the same way: plain JSON, only the seven members that clients write, one
`opaque`, no escaped keys. `rocketmq_client._wire.commands` decodes and re-encodes all others,
binary headers among them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from json import JSONDecoder
from json.scanner import make_scanner
from typing import Any, Final, NamedTuple

from rocketmq_client import errors
from rocketmq_client._wire.commands import BINARY, Command, decode_command
from rocketmq_client._wire.framing import Reply

__all__ = [
    "MOST_DIGITS",
    "SMALL_FRAME_BYTES",
    "Answer",
    "FrameCutter",
    "Head",
    "command_of",
    "read_answer",
    "read_head",
    "renumbered",
]

SMALL_FRAME_BYTES: Final = 64 * 1024
"""Limit of frames without a verified user, on nodes with users."""

MOST_DIGITS: Final = 10
"""Most digits of a number: an upper bound of a frame's growth when it is renumbered."""

_KNOWN: Final = frozenset(
    {"code", "extFields", "flag", "language", "opaque", "serializeTypeCurrentRPC", "version"}
)
_scan: Any = make_scanner(JSONDecoder())  # type: ignore[arg-type]
_KEY: Final = b'"opaque"'
_NUMBER: Final = re.compile(rb":(-?[0-9]{1,10})(?=[,}])")
_DISGUISE: Final = re.compile(rb"\\u(?!00[01])")


class FrameCutter:
    """Cuts a stream into whole frames, their lengths included. It holds at most one unfinished
    frame of `max_frame_bytes`, and one chunk. A broken stream stays broken.

    While `admits` is set, a frame over `SMALL_FRAME_BYTES` is accepted only if `admits` returns
    True for its mark and header.
    """

    __slots__ = ("_buffer", "_max_frame_bytes", "_wanted", "admits", "failure")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self.admits: Callable[[bytes], bool] | None = None
        self._buffer = bytearray()
        self._wanted = 0
        self.failure: errors.ProtocolViolation | None = None

    def cut(self, data: bytes) -> list[bytes]:
        """Return the frames that are whole now. If `failure` is set, there will be no more."""
        if self.failure is not None:
            return []
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._wanted:
                self._judge_large()
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        frames: list[bytes] = []
        pos, end = 0, len(data)
        while end - pos >= 4:
            size = int.from_bytes(data[pos : pos + 4], "big", signed=True)
            if not 4 <= size <= self._max_frame_bytes or (end - pos > 4 and data[pos + 4] > BINARY):
                self.failure = errors.ProtocolViolation(
                    f"no frame: {data[pos : pos + 5]!r}; is it TLS or plain as configured?"
                )
                return frames
            stop = pos + 4 + size
            if stop > end:
                self._wanted = 4 + size
                break
            frames.append(data[pos:stop])
            pos = stop
        else:
            self._wanted = 4
        self._buffer += data[pos:]
        self._judge_large()
        return frames

    def end(self) -> None:
        """Drop buffered bytes and accept no more frames."""
        self._buffer = bytearray()
        self.failure = self.failure or errors.ProtocolViolation("the connection was cut off")

    @property
    def pending(self) -> int:
        """Bytes of the unfinished frame."""
        return len(self._buffer)

    def _judge_large(self) -> None:
        if self.admits is None or self._wanted <= SMALL_FRAME_BYTES or len(self._buffer) < 8:
            return
        stop = 8 + int.from_bytes(self._buffer[5:8], "big")
        if stop > len(self._buffer) and len(self._buffer) <= SMALL_FRAME_BYTES:
            return  # the header is not whole
        if stop > len(self._buffer) or not self.admits(bytes(self._buffer[4:stop])):
            self._buffer.clear()
            self.failure = errors.ProtocolViolation(
                f"a frame of {self._wanted} bytes before a request with a user's signature"
            )

    # Decoder interface of `tubemq_client._io`, unused: `lines` reads frames itself.

    def receive_data(self, data: bytes) -> None:
        """Raise `NotImplementedError`."""
        raise NotImplementedError

    def next_frame(self) -> Reply | None:
        """Raise `NotImplementedError`."""
        raise NotImplementedError


class Head(NamedTuple):
    """Header of a request that can be forwarded unchanged; `at` and `to` are the bounds of the
    digits of `opaque` in the frame. Values of `fields` have any JSON type."""

    code: int
    opaque: int
    flag: int
    fields: dict[str, Any]
    at: int
    to: int


class Answer(NamedTuple):
    """Fields that pair an answer with its request."""

    code: int
    opaque: int
    at: int
    to: int


def read_head(raw: bytes) -> Head | None:
    """Return the header, or None for one that must be decoded and re-encoded."""
    stop = 8 + int.from_bytes(raw[5:8], "big")
    if raw[4] or stop > len(raw):
        return None
    header = _header(raw, stop)
    if header is None:
        return None
    code, opaque, flag = header.get("code"), header.get("opaque"), header.get("flag", 0)
    fields = header.get("extFields") or {}
    if type(code) is not int or type(flag) is not int or type(fields) is not dict:
        return None
    key = raw.find(_KEY, 8, stop)
    number = _NUMBER.match(raw, key + 8, stop) if key > 0 else None
    if number is None or int(number[1]) != opaque or not -(1 << 31) <= opaque < 1 << 31:
        return None
    if raw.find(_KEY, key + 8, stop) > 0 or _DISGUISE.search(raw, 8, stop):
        return None
    return Head(code, opaque, flag, fields, *number.span(1))


def _header(raw: bytes, stop: int) -> dict[str, Any] | None:
    try:
        text = raw[8:stop].decode()
        header, end = _scan(text, 0)
    except (StopIteration, ValueError, RecursionError):
        return None
    if type(header) is not dict or end != len(text) or not header.keys() <= _KNOWN:
        return None
    return header


def read_answer(raw: bytes) -> Answer | None:
    """Return the fields that pair an answer with its request, or None for a frame that must be
    decoded: a request of the server, or another form of header. Servers are trusted to write one
    `opaque`."""
    if raw[4]:
        return None
    stop = min(8 + int.from_bytes(raw[5:8], "big"), len(raw))
    code = _NUMBER.match(raw, raw.find(b'"code"', 8, stop) + 6, stop)
    flag = _NUMBER.match(raw, raw.find(b'"flag"', 8, stop) + 6, stop)
    opaque = _NUMBER.match(raw, raw.find(_KEY, 8, stop) + 8, stop)
    if code is None or flag is None or opaque is None or not int(flag[1]) & 1:
        return None
    return Answer(int(code[1]), int(opaque[1]), *opaque.span(1))


def renumbered(raw: bytes, at: int, to: int, opaque: int) -> bytes:
    """Return the frame with another number."""
    digits = b"%d" % opaque
    more = len(digits) - (to - at)
    if not more:
        return b"".join((raw[:at], digits, raw[to:]))
    size = int.from_bytes(raw[:4], "big") + more
    header = int.from_bytes(raw[5:8], "big") + more
    return b"".join(
        (size.to_bytes(4, "big"), header.to_bytes(4, "big"), raw[8:at], digits, raw[to:])
    )


def command_of(raw: bytes) -> Command:
    """Decode the whole command. Raises `errors.ProtocolViolation`."""
    return decode_command(raw[4:])
