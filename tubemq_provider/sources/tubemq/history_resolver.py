"""The `history` resolver: arrival time from the record that brokers keep of themselves.

Every minute (`groupOffsetScanDurMs`) a broker writes, into its own topic ``__offset_history__``,
one record for each group that has a position with it: the time, and where each store of each of the
group's topics began and ended. Read as an ordinary topic, these are samples; `samples` says what
they mean. Nothing has to run beforehand, and one look-up of ends by the group makes it known.

The reader is itself a group and is recorded from then on, so it is always the same one
(`HISTORY_GROUP`), with one slot. This module must not open connections: it is given what reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tubemq_client.errors import ConfigError
from tubemq_client.model import INDEX_ENTRY_BYTES, Message, OffsetRange, Partition
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows.canonical import rfc3339, so_much_later
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.planning.instants import Resolved
from tubemq_provider.windows.planning.retention import away_of
from tubemq_provider.windows.probing import ReadRange, crossing, first_in
from tubemq_provider.windows.spaces import Ends
from tubemq_provider.windows.time_resolvers.samples import (
    Sample,
    by_partition,
    cover,
    instant_of,
    ms_of,
)

__all__ = [
    "HISTORY_GROUP",
    "HISTORY_TOPIC",
    "HistoryResolver",
    "history_partition",
    "history_sample",
]

HISTORY_TOPIC: Final = "__offset_history__"
HISTORY_GROUP: Final = "tubemq_history"
"""The one group that reads the history."""

_PARTITIONS = 10
_VERSION = 3


def history_partition(group: str) -> int:
    """The partition of the history, on every broker, that has the records of `group`: its Java
    string hash modulo 10."""
    units = group.encode("utf-16-be")
    hashed = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + high * 256 + low) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
    return abs(signed) % _PARTITIONS


def history_sample(body: bytes, group: str, topic: str) -> Sample | None:
    """The sample of `topic` in one record of the history, or None if the record is another group's
    or has nothing of the topic. Raises `DocumentError` for what is no version-3 record."""
    try:
        document = json.loads(body)
        version = document["ver"]
        if version != _VERSION:
            raise DocumentError(
                "record of the offset history", [f"version {version!r}; this release reads 3"]
            )
        if document["group"] != group:
            return None
        broker = int(document["bId"])
        ends = {
            f"{broker}/{int(store['storeId'])}": int(store["iMax"])
            for record in document["records"]
            if record["topic"] == topic
            for store in record["offsets"]
        }
        at_ms = ms_of(instant_of(int(document["dt"])))
        return Sample(at_ms, ends) if ends else None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as exc:
        if isinstance(exc, DocumentError):
            raise
        raise DocumentError(
            "record of the offset history", [f"{type(exc).__name__}: {exc}"]
        ) from exc


@dataclass(frozen=True, slots=True)
class _Around:
    """The last sample before an instant and the first at or after it, on one broker."""

    before: Sample | None
    after: Sample | None


class HistoryResolver:
    """Arrival time by the brokers' clocks, as dense as their history (60 s by default).

    `group` is any group that has had a position on `topic`; only what it has is known. `ends` are
    the ends of the history's own partitions. `late_allowance` moves every boundary that much later.
    """

    name = "history"
    exact = False

    def __init__(
        self,
        topic: str,
        group: str,
        read: ReadRange,
        ends: Callable[[], Mapping[Partition, Ends]],
        partitions: Callable[[], Iterable[Partition]],
        late_allowance: timedelta = timedelta(0),
    ) -> None:
        self._topic = topic
        self._group = group
        self._read = read
        self._ends = ends
        self._partitions = partitions
        self._late_allowance = late_allowance
        self._subject = f"history of group {group!r} on topic {topic!r}"

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """See `resolve`."""
        return self.resolve(instant).certain()

    def resolve(self, instant: datetime) -> Resolved:
        """The boundary at `instant`. Raises `ConfigError` for an instant before the history or a
        group that is not in it, `WindowNotReady` for one that no scan has passed yet."""
        at = so_much_later(instant, self._late_allowance)
        number = history_partition(self._group)
        looked = self._ends()
        around = {
            partition: self._around(partition, ends, ms_of(at))
            for partition, ends in sorted(looked.items())
            if partition.partition_id == number
        }
        self._check(around, at)
        ends: dict[str, int] = {}
        unknown: dict[str, str] = {}
        later: dict[str, int] = {}
        since, until = [], []
        for before, after in ((item.before, item.after) for item in around.values()):
            if before is None:
                later |= {} if after is None else after.ends
                continue
            found = cover(
                [before] if after is None else [before, _credible(before, after)],
                at,
                first_seen=dict.fromkeys(before.ends, before.at_ms),
                subject=self._subject,
            )
            ends |= found.ends
            unknown |= found.unknown
            later |= found.later
            since.append(found.since_ms)
            until.append(found.until_ms)
        # Zeros may be those of a topic that its broker was not publishing.
        later = {store: end for store, end in later.items() if end}
        partitions = list(self._partitions())
        offsets, gone = by_partition(SPACE, ends, partitions)
        return Resolved(
            offsets,
            {"since": rfc3339(instant_of(min(since))), "until": rfc3339(instant_of(max(until)))},
            {**gone, **unknown, **_silent(partitions, looked)},
            later=by_partition(SPACE, later, partitions)[0],
        )

    def _around(self, partition: Partition, ends: Ends, at_ms: int) -> _Around:
        def passed(rest: OffsetRange) -> bool:
            sample = self._first(rest)
            return sample is None or sample.at_ms >= at_ms

        place = crossing(SPACE, ends, passed)
        after = self._first(OffsetRange(partition, place, ends.max_offset))
        if after is not None and after.at_ms == at_ms:
            return _Around(after, after)
        if place > ends.min_offset:
            # The entry below the crossing is what did not pass: the last sample before.
            last = OffsetRange(partition, place - INDEX_ENTRY_BYTES, place)
            return _Around(self._first(last), after)
        if after is not None and ends.min_offset:
            # Whether the group was recorded earlier cannot be known any more; a store taken for a
            # new one would be read from its start, again.
            raise ConfigError(
                f"the history of broker {partition.broker_id} begins at "
                f"{rfc3339(instant_of(after.at_ms))}; what was before has been removed",
                subject=self._subject,
            )
        return _Around(None, after)

    def _first(self, range_: OffsetRange) -> Sample | None:
        def look(message: Message) -> Sample | None:
            return history_sample(message.body, self._group, self._topic)

        return first_in(self._read, range_, look)

    def _check(self, around: Mapping[Partition, _Around], at: datetime) -> None:
        """Refuse instants that no broker knows; which of them is early, late or not recorded."""
        if any(item.before is not None for item in around.values()):
            return
        first = [item.after.at_ms for item in around.values() if item.after is not None]
        if first:
            raise ConfigError(
                f"{rfc3339(at)} is before its first record, {rfc3339(instant_of(min(first)))}",
                subject=self._subject,
            )
        raise ConfigError(
            "there is none: a broker records groups that have a position with it, once per scan "
            "period; name one with history_group, or look the topic's ends up once and wait",
            subject=self._subject,
        )


def _silent(partitions: Iterable[Partition], looked: Mapping[Partition, Ends]) -> dict[str, str]:
    """Partitions of brokers whose history cannot be read now."""
    away = {int(key.partition(":")[0]): reason for key, reason in away_of(looked).items()}
    return {
        partition.key: f"the history of its broker cannot be read: {away[partition.broker_id]}"
        for partition in partitions
        if partition.broker_id in away
    }


def _credible(before: Sample, after: Sample) -> Sample:
    """`after` without the stores that it says are empty and `before` says are not: a broker shows
    zeros for a topic that it is not publishing at that moment."""
    if before is after:
        return after
    ends = {store: end for store, end in after.ends.items() if end or not before.ends.get(store)}
    return Sample(after.at_ms, ends)
