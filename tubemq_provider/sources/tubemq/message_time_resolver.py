"""Resolver `message_time`: the time that producers wrote into their records (``$msgTime$``).

The attribute is a minute without a zone, set by any producer; brokers neither check it nor order by
it. A boundary is found by bisection, so it is exact where records are in order. Late records are
searched in a stretch after it, and the boundary moves behind the last one found; the number of
records of later minutes that end up below it is reported.

This module must not open connections or read a clock itself; it reads through callables.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from tubemq_client.errors import ConfigError
from tubemq_client.model import (
    INDEX_ENTRY_BYTES,
    Message,
    OffsetRange,
    Partition,
    PartitionEnds,
    message_minute,
)
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows.canonical import instant_after, rfc3339
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.planning.instants import Resolved
from tubemq_provider.windows.planning.retention import away_of, by_key
from tubemq_provider.windows.probing import ReadRange, crossing, first_in
from tubemq_provider.windows.spaces import Ends

__all__ = ["LOOK_AHEAD", "MessageTimeResolver", "message_minute"]

LOOK_AHEAD: Final = 2_000
"""Index entries after a boundary that are searched for late records."""


_OLDEST: Final = datetime(2000, 1, 1, tzinfo=UTC)
_AHEAD: Final = timedelta(days=1)
"""Limit of message times ahead of the clock, more than any zone explains.

Times after it, or before `_OLDEST`, are mistakes: such a record counts as one without a time.
"""

_FIRST: Final = 100
"""Number of first records whose minimum time is the begin of a log in time."""


@dataclass(frozen=True, slots=True)
class _Boundary:
    """Boundary in one partition. `first` is the minimum minute of its first timed records."""

    offset: int
    first: datetime | None
    late: int = 0
    early: int = 0


class MessageTimeResolver:
    """Resolver by producers' time.

    `late_allowance` is the time that records of a minute may take to arrive: an instant is resolved
    once that time has passed, and records that arrive even later lie after the boundary, in a
    later window.

    `zone` is the zone of the producers' minutes. `ends` are stable ends; every partition costs
    about
    log2(index entries) small reads, and up to log2(`look_ahead`) more if records are late.
    """

    name = "message_time"
    exact = False

    def __init__(
        self,
        topic: str,
        read: ReadRange,
        ends: Callable[[], Mapping[Partition, Ends]],
        clock: Callable[[], datetime],
        *,
        late_allowance: timedelta = timedelta(0),
        zone: tzinfo = UTC,
        look_ahead: int = LOOK_AHEAD,
    ) -> None:
        self._topic = topic
        self._read = read
        self._ends = ends
        self._clock = clock
        self._late_allowance = late_allowance
        self._zone = zone
        self._stretch = look_ahead * INDEX_ENTRY_BYTES
        self._believed = (_OLDEST, clock() + _AHEAD)
        self._subject = f"message time of topic {topic!r}"

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """Return `resolve` as offsets."""
        return self.resolve(instant).certain()

    def resolve(self, instant: datetime) -> Resolved:
        """Return the boundary at `instant`.

        Raises `WindowNotReady` until `late_allowance` after it, and `ConfigError` if records carry
        no time.
        """
        due = instant_after(instant, self._late_allowance)
        if self._clock() < due:
            raise WindowNotReady(
                f"{self._subject}: records before {rfc3339(instant)} may come until {rfc3339(due)}"
            )
        reachable = self._ends()
        ends = by_key(self._topic, SPACE, reachable)
        self._believed = (_OLDEST, self._clock() + _AHEAD)
        boundaries = {
            key: self._boundary(partition_ends, instant) for key, partition_ends in ends.items()
        }
        lost = self._lost_to_retention(ends, boundaries, instant)
        overlap = {
            key: {"late": boundary.late, "early": boundary.early}
            for key, boundary in boundaries.items()
            if boundary.late
        }
        return Resolved(
            {key: boundary.offset for key, boundary in boundaries.items()},
            {
                "late_allowance_s": int(self._late_allowance.total_seconds()),
                "looked_entries": self._stretch // INDEX_ENTRY_BYTES,
                "overlap": overlap,
            },
            away_of(reachable),
            lost_to_retention=dict.fromkeys(lost, 0),
            held={key: ends[key].min_offset for key in lost},
        )

    def _boundary(self, ends: Ends, instant: datetime) -> _Boundary:
        partition = ends.partition
        whole = OffsetRange(partition, ends.min_offset, ends.max_offset)
        first = self._first_minutes_minimum(whole)
        if first is None:
            self._refuse_records_without_time(whole)
            # No timed record could belong after the end, and retention cannot pass it.
            return _Boundary(ends.max_offset, None)

        def passed(rest: OffsetRange) -> bool:
            minute = self._first_time(rest)
            return minute is None or minute >= instant

        offset = crossing(SPACE, ends, passed)
        if offset == ends.min_offset > 0:
            offset = self._first_offset(whole)
        late_until = self._after_the_last_late(partition, offset, ends.max_offset, instant)
        if late_until == offset:
            return _Boundary(offset, first)
        minutes = [
            minute
            for record in self._read(OffsetRange(partition, offset, late_until))
            if (minute := self._minute(record)) is not None
        ]
        late = sum(minute < instant for minute in minutes)
        return _Boundary(late_until, first, late, len(minutes) - late)

    def _after_the_last_late(
        self, partition: Partition, start: int, end: int, instant: datetime
    ) -> int:
        """Return the offset in the stretch from `start` on after which no record is late."""
        stretch = PartitionEnds(partition, start, min(end, start + self._stretch), stable=True)

        def late(message: Message) -> bool | None:
            minute = self._minute(message)
            return True if minute is not None and minute < instant else None

        return crossing(SPACE, stretch, lambda rest: first_in(self._read, rest, late) is None)

    def _first_time(self, range_: OffsetRange) -> datetime | None:
        return first_in(self._read, range_, self._minute)

    def _minute(self, message: Message) -> datetime | None:
        """Return the record's time in UTC, if it is plausible."""
        minute = message_minute(message.msg_time, self._zone)
        try:
            moment = None if minute is None else minute.astimezone(UTC)
        except OverflowError:
            return None  # the limits of datetime, in a zone other than UTC
        oldest, latest = self._believed
        return moment if moment is not None and oldest <= moment <= latest else None

    def _first_minutes_minimum(self, range_: OffsetRange) -> datetime | None:
        """Return the minimum time of the first timed records: the very first may be late or
        wrong."""
        times: list[datetime] = []

        def look(message: Message) -> bool | None:
            minute = self._minute(message)
            times.extend([] if minute is None else [minute])
            return True if len(times) >= _FIRST else None

        first_in(self._read, range_, look)
        return min(times, default=None)

    def _first_offset(self, range_: OffsetRange) -> int:
        """Return the offset of the first record.

        Entries before it belong to other partitions of the store, and retention may remove them at
        any time.
        """
        offsets = range(range_.start, range_.end, INDEX_ENTRY_BYTES)

        def reached(offset: int) -> bool:
            before = OffsetRange(range_.partition, range_.start, offset + INDEX_ENTRY_BYTES)
            return first_in(self._read, before, lambda _: True) is not None

        index = bisect_left(offsets, x=True, key=reached)
        return offsets[index] if index < len(offsets) else range_.end

    def _refuse_records_without_time(self, range_: OffsetRange) -> None:
        """Raise `ConfigError` for a partition without any time.

        Implausible times are accepted: their records belong to the window that reads them.
        """

        def has_time(message: Message) -> bool | None:
            return message_minute(message.msg_time, self._zone) is not None or None

        if first_in(self._read, range_, has_time):
            return
        if first_in(self._read, range_, lambda message: message.message_id) is not None:
            raise ConfigError(
                f"records of partition {range_.partition.key} carry no $msgTime$ (or none that "
                f"reads yyyyMMddHHmm); producers set it, or choose another resolver",
                subject=self._subject,
            )

    def _lost_to_retention(
        self,
        ends: Mapping[str, Ends],
        boundaries: Mapping[str, _Boundary],
        instant: datetime,
    ) -> list[str]:
        """Return partitions whose boundary is unknown because of retention.

        They are those of stores that have lost records and hold none from before the instant, or
        none with a time.
        """
        oldest: dict[str, datetime] = {}
        cut: set[str] = set()
        for key, boundary in boundaries.items():
            store = SPACE.log_of(key)
            if boundary.first is not None:
                oldest[store] = min(oldest.get(store, boundary.first), boundary.first)
            if ends[key].min_offset:
                cut.add(store)
        open_ = {store for store in cut if store not in oldest or oldest[store] >= instant}
        return [key for key in SPACE.ordered(boundaries) if SPACE.log_of(key) in open_]
