"""Cluster in memory, on a clock that only tests advance, and the parts of a range read."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.servers import memory_tubemq
from tubemq_client import MessageBatch, OffsetRange, Partition, Record
from tubemq_client._core.batch import DecodePolicy
from tubemq_client._core.identity import ClientIds, ReaderPool
from tubemq_client._core.master import MasterSession
from tubemq_client._core.range_read import RangeRead
from tubemq_client._core.read_stats import ReadPolicy, ReadStats
from tubemq_client._core.sending import ProducerSession
from tubemq_client.embedded import ReadLimits, Switches, TopicSpec
from tubemq_client.testing.memory import MemoryTubeMQ

TOPIC = "orders"
PARTITION = Partition(1, TOPIC, 0)
BESIDE = Partition(1, TOPIC, 1)
"""Another partition of the same store, so that their offsets interleave."""

SMALL_READS = ReadLimits(first_fetch_bytes=800, fetch_bytes=800, memory_scan=(10, 20))


flat = itertools.chain.from_iterable
"""Delivered groups, flattened."""


# Leases of 30 s; everything sent is stable at once unless a test delays it.
memory = memory_tubemq(
    [TopicSpec(TOPIC, 1, 2), TopicSpec("other")],
    brokers=2,
    switches=Switches(reads=SMALL_READS, flush_interval_ms=None, unflushed_records=1),
)


@pytest.fixture
def ids() -> ClientIds:
    return ClientIds("127.0.0.1", 1, 1_700_000_000_000, itertools.count(1))


@pytest.fixture
def session(memory: MemoryTubeMQ) -> MasterSession:
    return MasterSession((memory.master_address,))


@pytest.fixture
def send(memory: MemoryTubeMQ, session: MasterSession, ids: ClientIds) -> Callable[..., list[int]]:
    """Return a function that sends bodies to a partition and returns their offsets."""
    producer = ProducerSession(session, ids.producer())
    producer.topics.add(TOPIC)
    driver = memory.driver()
    driver.run(producer.register())
    driver.run(producer.heartbeat())

    def send(*bodies: bytes, to: Partition = PARTITION) -> list[int]:
        records = [Record(body, partition=to) for body in bodies]
        receipts = flat(driver.stream(producer.send_all(TOPIC, records, 0, 8)))
        return [receipt.offset for receipt in receipts]

    return send


Reader = Callable[..., RangeRead]


@pytest.fixture
def reader(memory: MemoryTubeMQ, ids: ClientIds) -> Reader:
    """Return a function that makes reads of `[start, end)`.

    Keywords are those of `ReadPolicy`, and `pool`.
    """

    def make(start: int, end: int, *, pool: int = 4, **policy: Any) -> RangeRead:
        return RangeRead(
            OffsetRange(PARTITION, start, end),
            memory.node(1),
            pool=ReaderPool("group", pool),
            ids=ids,
            decode=DecodePolicy(),
            policy=ReadPolicy(**policy),
            stats=ReadStats(),
        )

    return make


def bodies(batches: list[MessageBatch]) -> list[bytes]:
    return [message.body for batch in batches for message in batch.messages()]
