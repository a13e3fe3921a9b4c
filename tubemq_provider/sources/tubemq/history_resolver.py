"""Resolver `history`: arrival time from the offset history that brokers record.

Every minute (`groupOffsetScanDurMs`) a broker writes, into its own topic ``__offset_history__``,
one record for each group that has an offset at it: the time, and the begin and end of each store of
each of the group's topics. Read as an ordinary topic, these are samples; `samples` defines their
meaning. Nothing has to run beforehand, and one look-up of ends by the group starts its recording.

The reader is itself a group and is recorded from then on, so it is always the same one
(`HISTORY_GROUP`), with one slot. This module must not open connections: it receives a reader.
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
from tubemq_provider.windows.canonical import instant_after, rfc3339
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
"""Only group that reads the history."""

_PARTITIONS = 10
_VERSION = 3


def history_partition(group: str) -> int:
    """Return the history partition, on every broker, with the records of `group`.

    It is the group's Java string hash modulo 10.
    """
    units = group.encode("utf-16-be")
    hashed = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + high * 256 + low) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
    return abs(signed) % _PARTITIONS


def history_sample(body: bytes, group: str, topic: str) -> Sample | None:
    """Return the sample of `topic` in one record of the history.

    None if the record is of another group or has no store of the topic. Raises `DocumentError` for
    a record that is not of version 3.
    """
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
    """Last sample before an instant and first one at or after it, on one broker."""

    before: Sample | None
    after: Sample | None


class HistoryResolver:
    """Resolver by arrival time on the brokers' clocks, as dense as their history (60 s by default).

    `group` is any group that has had an offset on `topic`; only its stores are recorded. `ends` are
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
        """Return `resolve` as offsets."""
        return self.resolve(instant).certain()

    def resolve(self, instant: datetime) -> Resolved:
        """Return the boundary at `instant`.

        Raises `ConfigError` for an instant before the history or a group that is not in it,
        `WindowNotReady` for one that no scan has passed yet.
        """
        at = instant_after(instant, self._late_allowance)
        number = history_partition(self._group)
        history_ends = self._ends()
        around = {
            partition: self._around(partition, ends, ms_of(at))
            for partition, ends in sorted(history_ends.items())
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
            covered = cover(
                [before] if after is None else [before, _credible(before, after)],
                at,
                first_seen=dict.fromkeys(before.ends, before.at_ms),
                subject=self._subject,
            )
            ends |= covered.ends
            unknown |= covered.unknown
            later |= covered.later
            since.append(covered.since_ms)
            until.append(covered.until_ms)
        # Zeros may come from a topic that its broker was not publishing.
        later = {store: end for store, end in later.items() if end}
        partitions = list(self._partitions())
        offsets, gone = by_partition(SPACE, ends, partitions)
        return Resolved(
            offsets,
            {"since": rfc3339(instant_of(min(since))), "until": rfc3339(instant_of(max(until)))},
            {**gone, **unknown, **_silent(partitions, history_ends)},
            later=by_partition(SPACE, later, partitions)[0],
        )

    def _around(self, partition: Partition, ends: Ends, at_ms: int) -> _Around:
        def passed(rest: OffsetRange) -> bool:
            sample = self._first(rest)
            return sample is None or sample.at_ms >= at_ms

        crossing_offset = crossing(SPACE, ends, passed)
        after = self._first(OffsetRange(partition, crossing_offset, ends.max_offset))
        if after is not None and after.at_ms == at_ms:
            return _Around(after, after)
        if crossing_offset > ends.min_offset:
            # The entry below the crossing did not pass: it is the last sample before.
            last = OffsetRange(partition, crossing_offset - INDEX_ENTRY_BYTES, crossing_offset)
            return _Around(self._first(last), after)
        if after is not None and ends.min_offset:
            # The group may have been recorded earlier; treating an old store as a new one would
            # read it from its start again.
            raise ConfigError(
                f"the history of broker {partition.broker_id} begins at "
                f"{rfc3339(instant_of(after.at_ms))}; its earlier part has been removed",
                subject=self._subject,
            )
        return _Around(None, after)

    def _first(self, range_: OffsetRange) -> Sample | None:
        def look(message: Message) -> Sample | None:
            return history_sample(message.body, self._group, self._topic)

        return first_in(self._read, range_, look)

    def _check(self, around: Mapping[Partition, _Around], at: datetime) -> None:
        """Raise `ConfigError` for an instant that no broker has recorded, with the reason."""
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


def _silent(
    partitions: Iterable[Partition], history_ends: Mapping[Partition, Ends]
) -> dict[str, str]:
    """Return partitions of brokers whose history cannot be read now."""
    down = {int(key.partition(":")[0]): reason for key, reason in away_of(history_ends).items()}
    return {
        partition.key: f"the history of its broker cannot be read: {down[partition.broker_id]}"
        for partition in partitions
        if partition.broker_id in down
    }


def _credible(before: Sample, after: Sample) -> Sample:
    """Return `after` without stores that are empty there but not in `before`.

    A broker reports zeros for a topic that it is not publishing at that moment.
    """
    if before is after:
        return after
    ends = {store: end for store, end in after.ends.items() if end or not before.ends.get(store)}
    return Sample(after.at_ms, ends)
