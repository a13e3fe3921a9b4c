"""Where the records of a store begin that can still be read.

A broker removes segments of data and of the index each by their own age and size, and passes over
index entries whose data is gone without a word: the position moves on, the records do not come. An
unfiltered batch with as many records as entries shows that nothing is missing. In a store that
several partitions share, and with filters, a batch has fewer records than entries anyway. There the
broker is asked what it still has, by fetches of probe groups:

* Data goes from its beginning, as the index does. So the entries that cannot be read are those
  before one offset, and a record that can be read shows that all behind it can be.
* A record shortly before an offset, mostly of the same partition, shows it with one short look.
* Where there is none, the entry *at* the offset is looked for in each partition of the store. If
  none has it, its data is gone, and the first that is there is found by bisection.

Source: `docs/protocol/exact-ranges.md#data-that-is-gone-before-its-index`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from tubemq_client import errors
from tubemq_client.model import INDEX_ENTRY_BYTES, PARTITIONS_PER_STORE, Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.range_end import Found

    Find = Callable[[Partition, int, int], Conversation[Found | None]]
    """`range_end.find_record` in a group that is free, without a filter."""

__all__ = ["first_readable"]

_LOOKS_BACK = 16_384 * INDEX_ENTRY_BYTES
"""How far before an offset a record is looked for: further than a fetch of any broker scans, so
that a batch from there ends before the offset, unless the log begins later."""


def first_readable(find: Find, partition: Partition, start: int, end: int) -> Conversation[int]:
    """The offset of the first entry in `[start, end)` of the partition's store whose record can be
    read; `start` if nothing is missing, `end` if nothing is left.

    True at some moment of the call: records are removed at any time. Raises what a broker answers.
    """
    while start < end:
        try:
            if (yield from _has_record_before(find, partition, start)):
                return start
            return (yield from _first_of_store(find, partition, start, end))
        except errors.DataLoss as error:  # the index does not reach back so far
            start = max(start, error.available)
    return end


def _has_record_before(find: Find, partition: Partition, start: int) -> Conversation[bool]:
    """Whether a record of the store lies shortly before `start` and can be read; one of the
    partition itself mostly does."""
    low = max(0, start - _LOOKS_BACK)
    for sibling in _siblings(partition):
        while low < start:
            try:
                if (yield from _shows(find, sibling, low, start)):
                    return True
            except errors.DataLoss as error:
                low = error.available
            except errors.ServerFailure as error:
                _raise_unless_absent(error, sibling, partition)
                return False
            else:
                break
        else:
            return False
    return False


def _shows(find: Find, partition: Partition, low: int, start: int) -> Conversation[bool]:
    """Whether the partition has a record in `[low, start)`."""
    before = yield from find(partition, low, start)
    if before is None or before.upto <= start:
        return before is not None
    return (yield from _is_missed(find, partition, start, before)) and (
        yield from _is_first(find, partition, low, before)
    )


def _is_missed(find: Find, partition: Partition, offset: int, known: Found) -> Conversation[bool]:
    """Whether the known record is not the first one at or after `offset`: it lies before it, or was
    removed meanwhile."""
    found = yield from find(partition, offset, known.upto)
    return found is None or found.record != known.record


def _is_first(find: Find, partition: Partition, offset: int, known: Found) -> Conversation[bool]:
    """Whether the known record is still the first one at or after `offset`. Asked after the others:
    what was missed behind it before lies in front of it."""
    found = yield from find(partition, offset, known.upto)
    return found is not None and found.record == known.record


def _first_of_store(find: Find, partition: Partition, start: int, end: int) -> Conversation[int]:
    """The least offset in `[start, end)` at which some partition of the store has a record that
    can be read."""
    for sibling in _siblings(partition):
        try:
            end = yield from _first_of(find, sibling, start, end)
        except errors.ServerFailure as error:
            _raise_unless_absent(error, sibling, partition)
            return end
        if end == start:
            return start
    return end


def _first_of(find: Find, partition: Partition, start: int, end: int) -> Conversation[int]:
    """The offset of the partition's first record in `[start, end)`, `end` if it has none there."""
    while True:
        first = yield from find(partition, start, end)
        if first is None:
            return end
        if end < first.upto and not (yield from _is_missed(find, partition, end, first)):
            return end
        low, high, next_ = start, min(end, first.upto), start + INDEX_ENTRY_BYTES
        while high - low > INDEX_ENTRY_BYTES:
            if (yield from _is_missed(find, partition, next_, first)):
                high = next_
            else:
                low = next_
            next_ = low + (high - low) // (2 * INDEX_ENTRY_BYTES) * INDEX_ENTRY_BYTES
        if (yield from _is_first(find, partition, start, first)):
            return low


def _raise_unless_absent(
    error: errors.ServerFailure, sibling: Partition, partition: Partition
) -> None:
    """Raise `error` unless it says that the store has no partition `sibling`."""
    if sibling == partition or "Wrong partition value" not in str(error):
        raise error


def _siblings(partition: Partition) -> Iterator[Partition]:
    """The partition, then all ids that its store may have."""
    yield partition
    first = partition.partition_id // PARTITIONS_PER_STORE * PARTITIONS_PER_STORE
    for number in count(first):
        if number != partition.partition_id:
            yield replace(partition, partition_id=number)
