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

from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from tubemq_client import errors
from tubemq_client.model import INDEX_ENTRY_BYTES, PARTITIONS_PER_STORE, Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.range_end import Found
    from tubemq_client.model import OffsetRange

    Find = Callable[[Partition, int, int], Conversation[Found | None]]
    """`range_end.find_record` in a group that is free, without a filter."""

__all__ = ["SharedProofs", "WasRead", "first_readable"]

_LOOKS_BACK = 16_384 * INDEX_ENTRY_BYTES
"""How far before an offset a record is looked for: further than a fetch of any broker scans, so
that a batch from there ends before the offset, unless the log begins later."""


@dataclass(frozen=True, slots=True)
class WasRead:
    """A range that was read to its end: `records` in it, and `[doubt, end)` of which no batch has
    shown that nothing is missing."""

    range: OffsetRange
    doubt: int
    records: int


@dataclass(slots=True)
class SharedProofs:
    """Ranges that one reader reads, of which each store is asked once, after the last of them.

    A record that is there then was there while all of them were read. The broker need not be asked
    at all if the ranges are the whole store's and have, without a filter, a record for each entry.
    """

    _left: dict[tuple[int, int], set[OffsetRange]] = field(default_factory=dict)
    _read: dict[tuple[int, int], dict[OffsetRange, WasRead]] = field(default_factory=dict)

    def expect(self, ranges: Iterable[OffsetRange]) -> None:
        """Wait for these ranges before their stores are asked."""
        for range_ in ranges:
            if range_.entries:
                store = range_.partition.store_key
                self._left.setdefault(store, set()).add(range_)
                self._read.setdefault(store, {})

    def to_prove(self, read: WasRead, *, filtered: bool) -> list[WasRead]:
        """The ranges that the store is to be asked for now that `read` was read: none while others
        are expected."""
        store = read.range.partition.store_key
        if store not in self._left:
            return _doubted([read])
        left, all_read = self._left[store], self._read[store]
        left.discard(read.range)
        if (before := all_read.get(read.range)) is not None:  # read twice: both have to be whole
            doubt, records = min(before.doubt, read.doubt), min(before.records, read.records)
            read = WasRead(read.range, doubt, records)
        all_read[read.range] = read
        if left or (not filtered and _are_whole(list(all_read.values()))):
            return []
        return _doubted(all_read.values())

    def asked(self, partition: Partition) -> None:
        """Forget what was read of the partition's store, unless more of it is expected."""
        store = partition.store_key
        if not self._left.get(store):
            self._left.pop(store, None)
            self._read.pop(store, None)


def _doubted(all_read: Iterable[WasRead]) -> list[WasRead]:
    return [one for one in all_read if one.doubt < one.range.end]


def _are_whole(all_read: list[WasRead]) -> bool:
    """Whether the ranges have a record for each entry of the store between their ends."""
    ends = {(one.range.start, one.range.end) for one in all_read}
    return len(ends) == 1 and all_read[0].range.entries == sum(one.records for one in all_read)


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
    can be read. First whether one has it at `start`, as where nothing is missing."""
    siblings = []
    for sibling in _siblings(partition):
        try:
            first = yield from _first_of(find, sibling, start, start + INDEX_ENTRY_BYTES)
        except errors.ServerFailure as error:
            _raise_unless_absent(error, sibling, partition)
            break
        if first == start:
            return start
        siblings.append(sibling)
    for sibling in siblings:
        end = yield from _first_of(find, sibling, start, end)
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
