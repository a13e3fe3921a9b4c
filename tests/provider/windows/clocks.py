"""Times, samples and logs in memory for the tests of time: no clock, no broker.

Instants are minutes after one noon. Logs hold records with times; nothing here decides anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.provider.windows.world import ENTRY, TOPIC
from tubemq_client.model import Message, OffsetRange, Partition, PartitionEnds
from tubemq_provider.windows.protocols import Document
from tubemq_provider.windows.time_resolvers.samples import Sample
from tubemq_provider.windows.time_resolvers.timeline import Timeline, TimelineResolver

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
MINUTE = timedelta(minutes=1)
PARTITIONS = [Partition.from_key(TOPIC, key) for key in ("1:0", "1:1", "2:0")]


def at(minutes: float) -> datetime:
    return NOON + minutes * MINUTE


def ms(minutes: float) -> int:
    return NOON_MS + int(minutes * 60_000)


@dataclass
class Shelf:
    """Store of a timeline in these tests."""

    document: Document | None = None

    def load_timeline(self) -> Document | None:
        return json.loads(json.dumps(self.document)) if self.document else None

    def store_timeline(self, document: Document) -> None:
        self.document = document


def timeline_of(*samples: Sample) -> TimelineResolver:
    timeline = Timeline(TOPIC)
    for sample in samples:
        timeline = timeline.with_sample(sample)
    return TimelineResolver(TOPIC, timeline.to_document, lambda: PARTITIONS)


@dataclass
class Shelved:
    """Records of one topic at their offsets, read as a range reader would; counts the reads."""

    records: dict[Partition, list[tuple[int, bytes, str | None]]] = field(default_factory=dict)
    low: int = 0
    high: int = 0
    reads: int = 0

    def put(
        self, partition: Partition, body: bytes = b"", minute: str | None = None, *, skip: int = 0
    ) -> int:
        offset = self.high + skip * ENTRY
        self.records.setdefault(partition, []).append((offset, body, minute))
        self.high = offset + ENTRY
        return offset

    def read(self, range_: OffsetRange) -> Iterator[Message]:
        self.reads += 1
        for offset, body, minute in self.records.get(range_.partition, []):
            if range_.start <= offset < range_.end:
                yield Message(body, {}, None, minute, offset, None)

    def ends_of(self, *partitions: Partition) -> dict[Partition, PartitionEnds]:
        return {p: PartitionEnds(p, self.low, self.high, stable=True) for p in partitions}


def history_body(at_ms: int, ends: Mapping[int, int], group: str = "g", **changes: object) -> bytes:
    offsets = [
        {"storeId": store, "iMin": 0, "iMax": end, "dMin": 0, "dMax": 9, "parts": []}
        for store, end in ends.items()
    ]
    records = [{"topic": "other", "offsets": []}, {"topic": TOPIC, "offsets": offsets}]
    document = {"dt": at_ms, "bId": 1, "ver": 3, "group": group, "on": 1, "flt": 0, "clients": []}
    return json.dumps(document | {"records": records} | changes).encode()
