"""Reading of every version: the rules of one call, and a cursor that cannot leave its bytes.

A length is compared with the remaining bytes before anything is sliced or allocated for it. The
rules carry the caller's choices and the rest of the caller's limit on decompressed bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NoReturn

from tubemq_client.tdmsg import _snappy
from tubemq_client.tdmsg._walk import Span, fail

__all__ = ["TRAILER_BYTES", "Cursor", "Rules"]

TRAILER_BYTES: Final = 2

_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


@dataclass(slots=True)
class Rules:
    """Rules for one message. `bytes_left` shrinks with every payload."""

    strict: bool
    keep_encrypted: bool
    bytes_left: int


class Cursor:
    """Reads big-endian fields between the magics of `message` and fails at the offending byte."""

    __slots__ = ("_span", "position")

    def __init__(self, message: bytes) -> None:
        self._span = Span(message, TRAILER_BYTES, len(message) - TRAILER_BYTES)
        self.position = self._span.start

    @property
    def remaining(self) -> int:
        return self._span.end - self.position

    def fail(self, what: str, *, at: int | None = None) -> NoReturn:
        fail(self._span, self.position if at is None else at, what)

    def uint16(self, what: str) -> int:
        return self._number(_UINT16, what)

    def int32(self, what: str) -> int:
        return self._number(_INT32, what)

    def int64(self, what: str) -> int:
        return self._number(_INT64, what)

    def _number(self, form: struct.Struct, what: str) -> int:
        start = self.advance(form.size, what)
        value: int = form.unpack_from(self._span.data, start)[0]
        return value

    def fields(self, form: struct.Struct, what: str) -> tuple[int, ...]:
        return form.unpack_from(self._span.data, self.advance(form.size, what))

    def advance(self, size: int, what: str) -> int:
        """Skip `size` bytes and return their start."""
        start = self.position
        if size < 0 or size > self.remaining:
            self.fail(f"{what} of {size} bytes where {self.remaining} are left")
        self.position += size
        return start

    def take(self, size: int, what: str) -> bytes:
        start = self.advance(size, what)
        return self._span.data[start : start + size]

    def payload(self, size: int, rules: Rules, *, compressed: bool) -> Span:
        """Return the next `size` bytes, decompressed if they are `compressed`, within the limit."""
        start = self.advance(size, "payload")
        if not compressed:
            self._spend(size, start, rules)
            return Span(self._span.data, start, start + size)
        block = memoryview(self._span.data)[start : start + size]
        try:
            plain_size = _snappy.claimed_size(block)
            self._spend(plain_size, start, rules)
            plain = _snappy.decompress(block, plain_size)
        except ValueError as error:
            self.fail(str(error), at=start)
        return Span(plain, 0, plain_size, origin=start)

    def _spend(self, size: int, start: int, rules: Rules) -> None:
        if size > rules.bytes_left:
            self.fail(f"payload of {size} bytes exceeds the {rules.bytes_left} allowed", at=start)
        rules.bytes_left -= size
