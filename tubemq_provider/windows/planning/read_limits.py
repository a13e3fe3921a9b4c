"""Limits of a cursor window in bytes and time, converted to index entries.

Both are estimates, since neither is known before reading: bytes from a sample of records at the
window's start, time from the throughput of the last window. The resulting limit on entries is
exact, and so is the result's `has_more`. This module must not open connections or read a clock;
records come through a callable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from tubemq_provider.windows.probing import ReadRange
from tubemq_provider.windows.spaces import OffsetSpace

__all__ = ["ASSUMED_PER_S", "Budget", "ByteBudget", "Throughput", "entries_by_log"]

Range = tuple[int, int]

Budget = Callable[[Mapping[str, Range]], int | None]
"""Returns the most index entries that a window may have of the readable ranges (by partition key);
None without a limit."""

ASSUMED_PER_S: Final = 10_000
"""Index entries per second before a window was measured: a modest rate of one reader."""

_LEAST: Final = 1_000
"""Fewest entries to which a time limit reduces a window. Otherwise the fixed cost of a run would
shrink windows to nothing."""

_SAMPLED_ENTRIES: Final = 64
_SAMPLED_STORES: Final = 16


def entries_by_log(space: OffsetSpace, ranges: Mapping[str, Range]) -> dict[str, int]:
    """Return the index entries between the lowest start and the highest end of each log. Empty
    ranges do not count, nor do logs without others."""
    bounds: dict[str, Range] = {}
    for key, (start, end) in ranges.items():
        if start < end:
            log = space.log_of(key)
            low, high = bounds.get(log, (start, end))
            bounds[log] = (min(low, start), max(high, end))
    return {name: space.entries(low, high) for name, (low, high) in bounds.items()}


@dataclass(frozen=True, slots=True)
class ByteBudget:
    """Limit of about `max_bytes` of record bodies, after filters.

    Reads the records of the first 64 entries of up to 16 stores, those with the most entries. An
    estimate: if later records are larger than the first ones, so is the window.
    """

    topic: str
    max_bytes: int
    read: ReadRange
    space: OffsetSpace

    def __call__(self, ranges: Mapping[str, Range]) -> int | None:
        """Return the entries for `max_bytes`, at least one; None if the samples have no record."""
        available = entries_by_log(self.space, ranges)
        largest = sorted(available, key=lambda name: (-available[name], name))[:_SAMPLED_STORES]
        entries = size = 0
        for name in largest:
            sampled = min(available[name], _SAMPLED_ENTRIES)
            entries += sampled
            size += self._bytes_of(ranges, name, sampled)
        return max(1, self.max_bytes * entries // size) if size else None

    def _bytes_of(self, ranges: Mapping[str, Range], store: str, entries: int) -> int:
        log_of = self.space.log_of
        mine = {key: r for key, r in ranges.items() if log_of(key) == store and r[0] < r[1]}
        low = min(start for start, _ in mine.values())
        high = low + entries * self.space.step
        size = 0
        for key, (start, end) in mine.items():
            if start < min(end, high):
                sample = self.space.ranges(self.topic, key, start, min(end, high))
                size += sum(len(record.body) for record in self.read(sample))
        return size


@dataclass(frozen=True, slots=True)
class Throughput:
    """Throughput of an earlier window: index entries, and milliseconds from its first to its last
    action on records. Commit events of empty runs repeat it."""

    entries: int
    took_ms: int

    @classmethod
    def of_event(cls, event: Mapping[str, Any] | None) -> Throughput | None:
        """Return the throughput in a commit event; None if it has none or an invalid one, since it
        is only a hint."""
        pair = (event or {}).get("pace")
        if (
            isinstance(pair, list)
            and len(pair) == 2
            and all(type(n) is int and n > 0 for n in pair)
        ):
            return cls(*pair)
        return None

    def entries_in(self, duration: timedelta) -> int:
        """Return the entries for `duration` at this throughput, at least a thousand."""
        ms = int(duration.total_seconds() * 1000)
        return max(_LEAST, ms * self.entries // self.took_ms)
