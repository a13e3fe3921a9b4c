"""Environment of a scenario: a server's settings and the topics it may use there.

A genuine server is shared by the whole session and never reset, so a scenario for both starts at
the present end of the log (`Site.end`) and uses a separate group.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.system.behaviour.shells import BLOCKING
from tools.devkit.patience import PATIENCE
from tubemq_client import ClientSettings, MessageBatch, Partition, Record
from tubemq_client.embedded import TopicSpec

SHARED = "b_shared"
"""Three partitions in one store."""

WIDE = "b_wide"
"""Two stores of three partitions each."""

SINGLE = "b_single"
"""One partition, so that offsets of records are exactly known."""

GROUP = "b_group"
"""Twelve partitions in one store."""

LARGE = "b_large"
"""One partition, whose records stay in memory longer; only on the genuine server."""

EMBEDDED_TOPICS = [
    TopicSpec(SHARED, 1, 3),
    TopicSpec(WIDE, 2, 3),
    TopicSpec(SINGLE),
    TopicSpec(GROUP, 1, 12),
]

VISIBLE_WITHIN_S = 30.0

_numbers = itertools.count(1)


def new_group() -> str:
    return f"behaviour_{next(_numbers)}"


@dataclass
class Site:
    """One server. `brokers` are the ids of its brokers."""

    settings: ClientSettings
    brokers: list[int]

    def partition(self, topic: str = SHARED, number: int = 0) -> Partition:
        return Partition(self.brokers[0], topic, number)

    def end(self, partition: Partition) -> int:
        """Return the end in memory of the partition's store."""
        with BLOCKING.Metadata(self.settings) as metadata:
            ends = metadata.ends(partition.topic, "behaviour_ends", [partition], stable=False)
        return int(ends[partition].max_offset)

    def send(self, partition: Partition, *bodies: bytes, stream: str | None = None) -> list[int]:
        """Offsets of the records sent."""
        records = [Record(body, stream_id=stream, partition=partition) for body in bodies]
        with BLOCKING.Producer(self.settings) as producer:
            return [r.offset for r in producer.send_many(partition.topic, records)]


def bodies(batch: MessageBatch | None) -> list[bytes]:
    return [] if batch is None else [m.body for m in batch.messages()]


def whole(batch: MessageBatch | None, count: int) -> MessageBatch | None:
    """Return the batch if it has that many records. A server that is just writing records to disk
    delivers a part of them, and a batch that was not confirmed comes again."""
    return batch if len(bodies(batch)) >= count else None


def eventually(ask: Callable[[], Any]) -> Any:
    """Return the first answer that is not None. Servers show a record to consumers only after a
    while."""
    deadline = time.monotonic() + VISIBLE_WITHIN_S * PATIENCE
    while (answer := ask()) is None:
        assert time.monotonic() < deadline, f"nothing to see within {VISIBLE_WITHIN_S} s"
        time.sleep(0.1)
    return answer
