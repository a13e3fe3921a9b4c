"""First readable record of a store.

A broker removes segments of data and of the index each by their own age and size, and skips index
entries whose data is gone without reporting it: the position moves on, the records do not arrive.
An unfiltered batch with as many records as entries proves that nothing is missing. In a store that
several partitions share, and with filters, a batch has fewer records than entries anyway. There the
broker is asked what it still has, by fetches of probe groups:

* Data is removed from its beginning, as the index is. So the unreadable entries are those before
  one offset, and a readable record proves that all records behind it are readable.
* A record shortly before an offset, usually of the same partition, proves it with one short probe.
* If there is none, the entry *at* the offset is searched in each partition of the store. If
  none has it, its data is gone, and bisection finds the first entry that has data.

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
    from tubemq_client._core.range_end import FoundRecord
    from tubemq_client.model import OffsetRange

    Find = Callable[[Partition, int, int], Conversation[FoundRecord | None]]
    """`range_end.find_record` in a free group, without a filter."""

__all__ = ["FinishedRange", "SharedRetentionChecks", "first_readable", "store_of"]

_LOOKS_BACK = 16_384 * INDEX_ENTRY_BYTES
"""Distance before an offset at which the search begins: more than a fetch of any broker scans, so
that a batch from there ends before the offset, unless the log begins later."""


@dataclass(frozen=True, slots=True)
class FinishedRange:
    """Range that was read to its end, with the number of its `records`.

    No batch has proved that nothing is missing in `[doubt, end)`.
    """

    range: OffsetRange
    doubt: int
    records: int


@dataclass(slots=True)
class SharedRetentionChecks:
    """Ranges of one reader whose stores are each asked once, after the last of them was read.

    A record that is there then was there while all of them were read. The broker need not be asked
    at all if the ranges cover the whole store and have, without a filter, one record per entry.
    """

    _left: dict[tuple[str, int, int], set[OffsetRange]] = field(default_factory=dict)
    _read: dict[tuple[str, int, int], dict[OffsetRange, FinishedRange]] = field(
        default_factory=dict
    )

    def expect(self, ranges: Iterable[OffsetRange]) -> None:
        """Register ranges that must be read before their stores are asked."""
        for range_ in ranges:
            if range_.entries:
                store = store_of(range_.partition)
                self._left.setdefault(store, set()).add(range_)
                self._read.setdefault(store, {})

    def expects_only(self, ranges: Iterable[OffsetRange]) -> bool:
        """Return whether `ranges`, all of one store, are what is expected of it, and none read."""
        expected = set(ranges)
        store = store_of(next(iter(expected)).partition)
        return self._left.get(store) == expected and not self._read[store]

    def proved(self, partition: Partition) -> None:
        """Forget what is expected of the partition's store: nothing of it is missing."""
        self._left.pop(store_of(partition), None)
        self._read.pop(store_of(partition), None)

    def to_prove(self, read: FinishedRange, *, filtered: bool) -> list[FinishedRange]:
        """Return the ranges to prove now that `read` was read: none while others are expected."""
        store = store_of(read.range.partition)
        if store not in self._left:
            return _unproven_ranges([read])
        left, all_read = self._left[store], self._read[store]
        left.discard(read.range)
        if (
            before := all_read.get(read.range)
        ) is not None:  # read twice: both reads must be complete
            doubt, records = min(before.doubt, read.doubt), min(before.records, read.records)
            read = FinishedRange(read.range, doubt, records)
        all_read[read.range] = read
        if left or (not filtered and _are_whole(list(all_read.values()))):
            return []
        return _unproven_ranges(all_read.values())

    def asked(self, partition: Partition) -> None:
        """Forget the reads of the partition's store, unless more of it is expected."""
        store = store_of(partition)
        if not self._left.get(store):
            self.proved(partition)


def store_of(partition: Partition) -> tuple[str, int, int]:
    """Return what names a store: a reader may read topics whose stores have the same numbers."""
    return (partition.topic, *partition.store_key)


def _unproven_ranges(all_read: Iterable[FinishedRange]) -> list[FinishedRange]:
    return [one for one in all_read if one.doubt < one.range.end]


def _are_whole(all_read: list[FinishedRange]) -> bool:
    """Return whether the ranges have a record for each entry of the store between their ends."""
    ends = {(one.range.start, one.range.end) for one in all_read}
    return len(ends) == 1 and all_read[0].range.entries == sum(one.records for one in all_read)


def first_readable(find: Find, partition: Partition, start: int, end: int) -> Conversation[int]:
    """Return the first offset in `[start, end)` of the store whose record is readable.

    Returns `start` if nothing is missing, `end` if nothing is left. Valid at some moment of the
    call: records are removed at any time. Raises the broker's errors.
    """
    while start < end:
        try:
            if (yield from _has_record_before(find, partition, start)):
                return start
            return (yield from _first_of_store(find, partition, start, end))
        except errors.DataLoss as error:  # the index begins later
            start = max(start, error.available)
    return end


def _has_record_before(find: Find, partition: Partition, start: int) -> Conversation[bool]:
    """Return whether a readable record of the store lies shortly before `start`.

    Usually one of the partition itself does.
    """
    low = max(0, start - _LOOKS_BACK)
    for sibling in _siblings(partition):
        while low < start:
            try:
                if (yield from _has_record(find, sibling, low, start)):
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


def _has_record(find: Find, partition: Partition, low: int, start: int) -> Conversation[bool]:
    """Return whether the partition has a record in `[low, start)`."""
    before = yield from find(partition, low, start)
    if before is None or before.upto <= start:
        return before is not None
    return (yield from _is_missed(find, partition, start, before)) and (
        yield from _is_first(find, partition, low, before)
    )


def _is_missed(
    find: Find, partition: Partition, offset: int, known_record: FoundRecord
) -> Conversation[bool]:
    """Return whether the known record is not the first at or after `offset`.

    Then it lies before `offset`, or was removed meanwhile.
    """
    current = yield from find(partition, offset, known_record.upto)
    return current is None or current.record != known_record.record


def _is_first(
    find: Find, partition: Partition, offset: int, known_record: FoundRecord
) -> Conversation[bool]:
    """Return whether the known record is still the first at or after `offset`.

    Asked after the other questions: a record that was removed in between would show here.
    """
    current = yield from find(partition, offset, known_record.upto)
    return current is not None and current.record == known_record.record


def _first_of_store(find: Find, partition: Partition, start: int, end: int) -> Conversation[int]:
    """Return the least offset in `[start, end)` at which a partition of the store has a record.

    First checks `start` itself, as where nothing is missing.
    """
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
    """Return the offset of the partition's first record in `[start, end)`, or `end`."""
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
    """Raise `error` unless it means that the store has no partition `sibling`."""
    if sibling == partition or "Wrong partition value" not in str(error):
        raise error


def _siblings(partition: Partition) -> Iterator[Partition]:
    """Yield the partition, then all other ids that its store may have."""
    yield partition
    first = partition.partition_id // PARTITIONS_PER_STORE * PARTITIONS_PER_STORE
    for number in count(first):
        if number != partition.partition_id:
            yield replace(partition, partition_id=number)
