"""Choice of a partition for a record, and brokers and partitions that are avoided for a while.

Its circuit breaker (that of members of groups is in `breaker`) never blocks sending: if everything
is avoided, everything is tried again, because a refused send costs less than a stopped producer.
Pure state; time (monotonic ms) is an argument. `sending` decides what counts as a failure; the
periods are options of `model.ProducerSettings`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tubemq_client.model import Partition, ProducerSettings

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Router", "SendBreaker", "partition_for_key"]

Router = Callable[[str, Any, Sequence[Partition]], Partition]
"""Function that chooses for `(topic, record, partitions)`; partitions are sorted, without those
that are avoided. It runs in the thread or task that sends."""

QUALITY_PERIOD_MS = 30_000
T = TypeVar("T")

_LEAST_FAILED = 20
"""Minimum of failures in a period before a broker is judged."""


def partition_for_key(key: bytes | str, partitions: Sequence[Partition]) -> Partition:
    """Return the partition of a key: CRC-32 of its UTF-8 bytes, modulo the number of partitions.

    The same in every process and version, for as long as the topic's partitions stay the same.
    """
    raw = key.encode() if isinstance(key, str) else key
    return partitions[zlib.crc32(raw) % len(partitions)]


@dataclass(slots=True)
class _Failures:
    count: int = 0
    since: int = 0


@dataclass(slots=True)
class _Quality:
    """Sends and successes of one broker in the running period."""

    sent: int = 0
    stored: int = 0


@dataclass(slots=True)
class SendBreaker:
    """Brokers and partitions avoided until a time, and their failures.

    Sending threads share it without a lock, so no code here relies on two reads being equal.
    """

    settings: ProducerSettings = field(default_factory=ProducerSettings)
    brokers: dict[int, int] = field(default_factory=dict)
    """Time until which each broker is avoided."""
    partitions: dict[Partition, int] = field(default_factory=dict)
    """Time until which each partition is avoided."""
    _cut_off: set[int] = field(default_factory=set)
    _full: dict[int, tuple[int, int]] = field(default_factory=dict)
    _links: dict[int, _Failures] = field(default_factory=dict)
    _failed: dict[Partition, int] = field(default_factory=dict)
    _quality: dict[int, _Quality] = field(default_factory=dict)
    _judged_at: int = 0

    @property
    def any(self) -> bool:
        """True if anything is avoided, so that the current time matters to a choice."""
        return bool(self.brokers or self.partitions)

    def open(
        self, partitions: Sequence[Partition], now: int, tried: Collection[int] = ()
    ) -> Sequence[Partition]:
        """Return the partitions that may be used; `tried` has the ids of brokers that just refused.

        If all others are avoided, returns all that were not tried; empty if all were tried.
        """
        _drop_expired(self.brokers, now)
        _drop_expired(self.partitions, now)
        left = [p for p in partitions if p.broker_id not in tried]
        good = [p for p in left if p.broker_id not in self.brokers and p not in self.partitions]
        return good or left

    # -- what happened ------------------------------------------------------------------------

    def stored(self, partition: Partition) -> None:
        """Forget earlier failures, as a record was stored.

        A broker that is avoided for its connections is used again.
        """
        if self._failed:
            self._failed.pop(partition, None)
        if self._links:
            self._links.pop(partition.broker_id, None)
        if self._full:
            self._full.pop(partition.broker_id, None)
        if partition.broker_id in self._cut_off:
            self._cut_off.discard(partition.broker_id)
            self.brokers.pop(partition.broker_id, None)
        quality = self._quality.get(partition.broker_id)
        if quality is None:
            quality = self._quality[partition.broker_id] = _Quality()
        quality.sent += 1
        quality.stored += 1

    def unavailable(self, partition: Partition, now: int) -> None:
        """Avoid a broker after 503: it starts, stops, or cannot write."""
        self.brokers[partition.broker_id] = now + self.settings.unavailable_quarantine_ms
        self._note(partition)

    def failed(self, partition: Partition, now: int) -> None:
        """Count a missing answer, or an answer that a record was not stored."""
        self._note(partition)
        count = self._failed[partition] = self._failed.get(partition, 0) + 1
        if count > self.settings.partition_max_failures:
            self._failed.pop(partition, None)  # another thread may have removed it
            self.partitions[partition] = now + self.settings.partition_quarantine_ms

    def is_full(self, partition: Partition, now: int) -> bool:
        """Note 419; return whether the broker has had no room for longer than two records wait.

        Later records are then sent again once and do not wait.
        """
        patience = 2 * self.settings.overflow_retries * self.settings.overflow_pause_ms
        since, last = self._full.get(partition.broker_id, (now, now))
        if now - last > patience:
            since = now  # nothing was sent meanwhile: start a new period
        self._full[partition.broker_id] = (since, now)
        return now - since > patience

    def unreachable(self, partition: Partition, now: int, known_brokers: int) -> None:
        """Count a connection that could not be opened or broke before the record was sent."""
        settings, broker = self.settings, partition.broker_id
        link = self._links.setdefault(broker, _Failures(0, now))
        if now - link.since > settings.link_window_ms:
            link.count, link.since = 0, now
        link.count += 1
        room = round(known_brokers * settings.link_max_quarantined_share)
        if link.count > settings.link_max_failures and len(self.brokers) < room:
            self._links.pop(broker, None)
            self._cut_off.add(broker)
            self.brokers[broker] = now + settings.link_quarantine_ms

    def judge(self, now: int) -> None:
        """Avoid brokers that store much less than the others, for one period.

        Call it periodically: with every heartbeat.
        """
        if now - self._judged_at < QUALITY_PERIOD_MS:
            return
        self._judged_at = now
        period, self._quality = self._quality, {}
        if len(period) < 2:
            return
        by_stored = sorted(period.items(), key=lambda item: item[1].stored)
        best = by_stored[len(by_stored) // 2 :]
        usual = sum(quality.stored for _, quality in best) / len(best)
        for broker, quality in by_stored[: max(1, round(len(period) * 0.15))]:
            failed = quality.sent - quality.stored
            poor = quality.stored < usual * 0.2 and quality.stored < quality.sent * 0.1
            if poor and failed >= _LEAST_FAILED:
                until = now + QUALITY_PERIOD_MS
                self.brokers[broker] = max(self.brokers.get(broker, 0), until)

    def _note(self, partition: Partition) -> None:
        self._quality.setdefault(partition.broker_id, _Quality()).sent += 1


def _drop_expired(until_by_place: dict[T, int], now: int) -> None:
    """Remove entries whose time is over.

    Other threads may change the dictionary meanwhile: hence the copy, and the dictionary itself.
    """
    for key, until in until_by_place.copy().items():
        if until <= now and until_by_place.get(key) == until:
            until_by_place.pop(key, None)
