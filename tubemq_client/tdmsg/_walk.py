"""Steps through the items or records of one payload, checking each length before using it.

One walk serves twice: parsing runs it to the end, so that nothing malformed is left, and iterating
runs it again, so that a message costs no memory per record. Nothing is copied here; it yields
positions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn

from tubemq_client import errors

__all__ = ["Bounds", "Span", "fail", "item_bounds", "record_bounds"]

_INT32 = struct.Struct(">i")
_UNPACK: Final = _INT32.unpack_from


class Span(NamedTuple):
    """Bytes `[start, end)` of `data`.

    `origin` is None if `data` is the message itself, else the position in the message of the
    compressed block that `data` was decompressed from.
    """

    data: bytes
    start: int
    end: int
    origin: int | None = None


class Bounds(NamedTuple):
    """Bounds of one record's body and of its attributes (empty if it has none) in the data."""

    body_start: int
    body_end: int
    attributes_start: int
    attributes_end: int


def fail(span: Span, position: int, what: str) -> NoReturn:
    """Raise `errors.UnreadableTDMsg` for the byte at `position` of the span's data."""
    if span.origin is None:
        raise errors.UnreadableTDMsg(what, offset=position)
    raise errors.UnreadableTDMsg(
        f"{what}, {position} bytes into the decompressed block", offset=span.origin
    )


def item_bounds(span: Span) -> Iterator[Bounds]:
    """Yield items of ``int32 length, body`` that fill the span exactly."""
    position = span.start
    while position < span.end:
        start, position = _field(span, position, span.end, "item")
        yield Bounds(start, position, position, position)


def record_bounds(span: Span, *, framed: bool) -> Iterator[Bounds]:
    """Yield records of ``int32 length, body, int32 length, attributes`` that fill the span exactly.

    `framed`: they come in runs, each behind an int32 with the bytes of the run (version 3).
    """
    position = span.start
    end = position if framed else span.end
    while position < span.end:
        if position == end:
            position, end = _field(span, position, span.end, "run of records")
            continue
        body_start, body_end = _field(span, position, end, "body")
        attributes_start, position = _field(span, body_end, end, "record's attributes")
        yield Bounds(body_start, body_end, attributes_start, position)


def _field(span: Span, position: int, end: int, what: str) -> tuple[int, int]:
    """Return start and end of the field behind the length at `position`."""
    start = position + _INT32.size
    if start > end:
        fail(span, position, f"{what}: the length is cut off")
    (size,) = _UNPACK(span.data, position)
    if size < 0 or size > end - start:
        fail(span, position, f"{what} of {size} bytes where {end - start} are left")
    return start, start + size
