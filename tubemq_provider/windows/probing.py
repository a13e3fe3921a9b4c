"""Bisection of a log by single records, shared by the resolvers `history` and `message_time`.

A broker cannot look up a time, but can read from any offset. So a boundary is found by bisection:
about log2(index entries) reads, each closed after the first record with a time. Reads go through a
callable, so that tests need no broker. This module must not open connections.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any, TypeVar

from tubemq_provider.windows.spaces import Ends, OffsetSpace

__all__ = ["ReadRange", "crossing", "first_in"]

ReadRange = Callable[[Any], Iterator[Any]]
"""Reads every record of a range, in order; the iterator may be closed early."""

Found = TypeVar("Found")


def first_in(read: ReadRange, range_: Any, look: Callable[[Any], Found | None]) -> Found | None:
    """Return the first result of `look` over the records of `range_` that is not None."""
    if range_.start == range_.end:
        return None
    with closing(_generator(read(range_))) as records:
        return next((value for record in records if (value := look(record)) is not None), None)


def crossing(space: OffsetSpace, ends: Ends, passed: Callable[[Any], bool]) -> int:
    """Return the offset in `[min, max]` where `passed(range from there to the end)` becomes true.

    `passed` is called at most log2(entries) + 1 times. If it changes more than once (records out of
    order), the result is one of these offsets; for the same ends, a later instant never gets a
    lower offset.
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
