"""Caps of a cursor window that are no number of offsets: bytes, and time.

Neither can be known before reading, so both are estimates turned into index entries: bytes from a
sample of records at the window's start, time from how fast the last window went. The cap on
entries itself is exact, and so is the result's `has_more`. This module must not open connections
or read a clock; records come through a callable.
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
"""How many index entries of the readable ranges (by partition key) a window may have; None if
nothing limits them."""

ASSUMED_PER_S: Final = 10_000
"""Index entries per second until a window has been observed: a modest rate of one reader."""

_LEAST: Final = 1_000
"""A window is never cut below this many entries for lack of time: what every run costs before its
first record would otherwise shrink windows to nothing."""

_SAMPLED_ENTRIES: Final = 64
_SAMPLED_STORES: Final = 16


def entries_by_log(space: OffsetSpace, ranges: Mapping[str, Range]) -> dict[str, int]:
    """Index entries between the least start and the highest end of each log; empty ranges, and
    logs with nothing else, are left out."""
    bounds: dict[str, Range] = {}
    for key, (start, end) in ranges.items():
        if start < end:
            log = space.log_of(key)
            low, high = bounds.get(log, (start, end))
            bounds[log] = (min(low, start), max(high, end))
    return {name: space.entries(low, high) for name, (low, high) in bounds.items()}


@dataclass(frozen=True, slots=True)
class ByteBudget:
    """At most about `max_bytes` of record bodies, after filters.

    Reads the records of the first 64 entries of up to 16 stores, those with the most to read. An
    estimate: if later records are larger than the first, the window is larger too.
    """

    topic: str
    max_bytes: int
    read: ReadRange
    space: OffsetSpace

    def __call__(self, ranges: Mapping[str, Range]) -> int | None:
        """Entries for `max_bytes`, at least one; None if the samples have no record."""
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
                wanted = self.space.ranges(self.topic, key, start, min(end, high))
                size += sum(len(record.body) for record in self.read(wanted))
        return size


@dataclass(frozen=True, slots=True)
class Throughput:
    """What an earlier window took: index entries, and milliseconds from its first to its last
    action on records. Commit events carry it on, so that an empty run forgets nothing."""

    entries: int
    took_ms: int

    @classmethod
    def of_event(cls, event: Mapping[str, Any] | None) -> Throughput | None:
        """The pace in a commit event; None if it has none, or a damaged one: a pace is advice."""
        found = (event or {}).get("pace")
        if (
            isinstance(found, list)
            and len(found) == 2
            and all(type(n) is int and n > 0 for n in found)
        ):
            return cls(*found)
        return None

    def entries_in(self, duration: timedelta) -> int:
        """What fits `duration` at this pace, at least a thousand."""
        ms = int(duration.total_seconds() * 1000)
        return max(_LEAST, ms * self.entries // self.took_ms)
