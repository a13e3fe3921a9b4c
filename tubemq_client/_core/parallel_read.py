"""Reading one range over several connections: how it is split, and the order of delivery.

A broker serves a connection on one thread, so one connection does not use all of a broker. The
range reader is exact at any boundary, therefore sub-ranges can be read at the same time and
delivered in order. A sub-range has as many entries as gave about `_BATCHES` batches before, so the
number of batches read ahead is bounded, whatever the size of records.

This module decides; `sync._parallel` and `aio._parallel` have the threads and tasks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tubemq_client import errors
from tubemq_client._core.batch import DecodePolicy, MessageBatch
from tubemq_client._core.read_stats import ReadStats
from tubemq_client.model import INDEX_ENTRY_BYTES, CorruptRecords, OffsetRange

if TYPE_CHECKING:
    from tubemq_client._core.batch import CorruptEntry

__all__ = ["STOP_S", "ParallelBatch", "Subrange", "Subranges", "check_parallel"]

_BATCHES: Final = 24
"""Approximate number of batches of a sub-range; also the limit of read-ahead of each."""

STOP_S: Final = 5.0
"""Seconds that a read which is stopped early waits for requests in flight."""

_FIRST, _MOST = 4_096, 1 << 20
"""Entries of the first sub-range, and upper bound of any."""


def check_parallel(parallel: int, pool_size: int) -> None:
    """Raise `errors.ConfigError` for an invalid number of connections."""
    if not 1 <= parallel <= pool_size:
        raise errors.ConfigError(
            f"parallel={parallel} is not between 1 and pool_size={pool_size}: every connection "
            f"reads under a separate group",
            subject="range reader",
        )


@dataclass(frozen=True, slots=True)
class ParallelBatch:
    """Batch, with the corrupt records found while it was decoded."""

    batch: MessageBatch
    corrupt_entries: list[CorruptEntry]

    def add_to(self, stats: ReadStats, policy: DecodePolicy) -> None:
        """Treat the corrupt records by the reader's `policy`, and count the batch."""
        for entry in self.corrupt_entries:
            policy.reject(entry)
        stats.count(self.batch, policy)


@dataclass(slots=True)
class Subrange:
    """Sub-range while it is read.

    Its `policy` and `stats` are separate, because other sub-ranges are read at the same time;
    corrupt records are kept until its turn.
    """

    range: OffsetRange
    policy: DecodePolicy
    stats: ReadStats = field(default_factory=ReadStats)
    ready: deque[ParallelBatch] = field(default_factory=deque)
    over: bool = False
    error: BaseException | None = None
    _corrupt_entries: list[CorruptEntry] = field(default_factory=list)

    @classmethod
    def of(cls, range_: OffsetRange, wanted: DecodePolicy) -> Subrange:
        """Create a sub-range that decodes like `wanted`, but keeps corrupt records back.

        Under the policy "fail" a corrupt record still fails the read.
        """
        fails = wanted.corrupt_records == CorruptRecords.FAIL
        subrange = cls(range_, DecodePolicy(CorruptRecords.FAIL, None, wanted.filters))
        if not fails:
            subrange.policy = DecodePolicy(
                CorruptRecords.QUARANTINE, subrange._corrupt_entries.append, wanted.filters
            )
        return subrange

    @property
    def full(self) -> bool:
        """True if reading must wait until a batch was taken."""
        return len(self.ready) >= _BATCHES

    def add(self, batch: MessageBatch) -> None:
        """Keep a decoded batch for its turn."""
        self.ready.append(ParallelBatch(batch, self._corrupt_entries.copy()))
        self._corrupt_entries.clear()


class Subranges:
    """Splits `range_` for `parallel` connections, and has the sub-ranges under way."""

    def __init__(self, range_: OffsetRange, policy: DecodePolicy, parallel: int) -> None:
        self._range = range_
        self._policy = policy
        self._parallel = parallel
        self._next = range_.start
        self._entries = _FIRST
        self.under_way: deque[Subrange] = deque()
        """Sub-ranges in order; the first is the one being delivered."""

    @property
    def workers(self) -> int:
        """Number of connections worth opening."""
        return max(1, min(self._parallel, -(-self._range.entries // _FIRST)))

    @property
    def all_begun(self) -> bool:
        """True once the whole range was split."""
        return self._next >= self._range.end

    @property
    def may_begin(self) -> bool:
        """True if another sub-range may begin.

        At most one more than there are connections is under way, so that none idles when it is done
        before its turn.
        """
        return not self.all_begun and len(self.under_way) <= self._parallel

    def is_over(self, *, stopped: bool) -> bool:
        """Return whether everything has been taken.

        Raises `errors.ClosedError` if reading was `stopped` before: the missing rest must not look
        like the end of the range.
        """
        over = self.all_begun and not self.under_way
        if stopped and not over:
            raise errors.ClosedError("the reader was closed before all of the range was delivered")
        return over

    def take(self) -> ParallelBatch | Subrange | None:
        """Return the next batch in order, or the sub-range whose last batch was taken.

        None while that is still being read.
        """
        if self.under_way and self.under_way[0].ready:
            return self.under_way[0].ready.popleft()
        if self.under_way and self.under_way[0].over:
            return self.under_way.popleft()
        return None

    def begin(self) -> Subrange:
        """Split off the next sub-range.

        They get smaller towards the end, to end at the same time.
        """
        left = (self._range.end - self._next) // INDEX_ENTRY_BYTES
        entries = min(self._entries, max(_FIRST, -(-left // self._parallel)), left)
        end = self._next + INDEX_ENTRY_BYTES * entries
        subrange = Subrange.of(OffsetRange(self._range.partition, self._next, end), self._policy)
        self._next = end
        self.under_way.append(subrange)
        return subrange

    def end(self, subrange: Subrange, error: BaseException | None) -> None:
        """Record that `subrange` has no further batches."""
        subrange.over, subrange.error = True, error
        batches, entries = subrange.stats.batches, subrange.range.entries
        next_entries = entries * _BATCHES // batches if batches else 2 * entries
        self._entries = min(max(next_entries, _FIRST), _MOST)
