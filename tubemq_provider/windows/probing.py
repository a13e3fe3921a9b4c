"""Finding a place in a log by looking at few records: what `history` and `message_time` share.

A broker cannot look up a time, but any offset can be read from. So a boundary is found by
bisection: about log2(index entries) reads, each ended after the first record that tells a time.
Reads go through a callable, so that tests need no broker. This module must not open connections.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any, TypeVar

from tubemq_provider.windows.spaces import Ends, OffsetSpace

__all__ = ["ReadRange", "crossing", "first_in"]

ReadRange = Callable[[Any], Iterator[Any]]
"""Every record of a range, in order; it may be closed early."""

Found = TypeVar("Found")


def first_in(read: ReadRange, range_: Any, look: Callable[[Any], Found | None]) -> Found | None:
    """What `look` makes of the first record of `range_` that means something to it."""
    if range_.start == range_.end:
        return None
    with closing(_generator(read(range_))) as records:
        return next((found for record in records if (found := look(record)) is not None), None)


def crossing(space: OffsetSpace, ends: Ends, passed: Callable[[Any], bool]) -> int:
    """The offset in `[min, max]` where `passed(from there to the end)` turns true.

    `passed` is asked at most log2(entries) + 1 times. If it turns more than once (records out of
    order), the answer is one of these places; a later instant never gets a lower one from the same
    ends.
    """
    offsets = range(ends.min_offset, ends.max_offset, space.step)
    index = bisect_left(
        offsets,
        x=True,
        key=lambda offset: passed(space.range(ends.partition, offset, ends.max_offset)),
    )
    return offsets[index] if index < len(offsets) else ends.max_offset


def _generator(records: Iterator[Any]) -> Generator[Any, None, None]:
    yield from records
