"""A range reader without a broker: the same offsets always give the same records.

Entry *i* of a store belongs to partition ``i % 2`` of it; its body names partition and offset, so
that "each record once" can be read off the sink.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from tubemq_client import Gap
from tubemq_client.model import INDEX_ENTRY_BYTES, Anchor, OffsetRange, Partition, PartitionEnds
from tubemq_provider.windows.plan import WindowPlan

TOPIC = "orders"
KEYS = ("1:0", "1:1", "2:0", "2:1")


def owns(partition: Partition, offset: int) -> bool:
    return offset // INDEX_ENTRY_BYTES % 2 == partition.partition_id % 10_000


def body(key: str, offset: int) -> bytes:
    return f"{key}@{offset}".encode()


def expected(ends: dict[str, int]) -> list[bytes]:
    """All bodies up to `ends`, sorted."""
    return sorted(
        body(key, offset)
        for key, end in ends.items()
        for offset in range(0, end, INDEX_ENTRY_BYTES)
        if owns(Partition.from_key(TOPIC, key), offset)
    )


def ends_of(ends: dict[str, int]) -> dict[Partition, PartitionEnds]:
    found = {}
    for key, end in ends.items():
        partition = Partition.from_key(TOPIC, key)
        found[partition] = PartitionEnds(partition, 0, end, stable=True)
    return found


@dataclass
class FakeStats:
    corrupt: int = 0
    gaps: list[Gap] = field(default_factory=list)
    last: dict[str, Anchor] = field(default_factory=dict)


@dataclass
class FakeBatch:
    partition: Partition
    offsets: list[int]

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def nbytes(self) -> int:
        return sum(len(body(self.partition.key, offset)) for offset in self.offsets)

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        count = len(self.offsets)
        columns = {
            "topic": [self.partition.topic] * count,
            "partition": [self.partition.key] * count,
            "offset": self.offsets,
            "batch_offset": [self.offsets[0]] * count if count else [],
            "message_id": self.offsets,
            "msg_time": [None] * count,
            "stream_id": [None] * count,
            "attributes": [[]] * count,
            "value": [body(self.partition.key, offset) for offset in self.offsets],
        }
        arrays = [pa.array(columns[item.name], item.type) for item in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass
class FakeReader:
    """Yields batches of at most five entries; some hold no record of the partition."""

    stats: FakeStats = field(default_factory=FakeStats)

    def read(self, range_: OffsetRange) -> Iterator[FakeBatch]:
        step = 5 * INDEX_ENTRY_BYTES
        for start in range(range_.start, range_.end, step):
            stop = min(start + step, range_.end)
            offsets = [
                offset
                for offset in range(start, stop, INDEX_ENTRY_BYTES)
                if owns(range_.partition, offset)
            ]
            yield FakeBatch(range_.partition, offsets)


@contextmanager
def open_fake(plan: WindowPlan) -> Iterator[FakeReader]:
    yield FakeReader()
