"""Readers of ranges, and the look-up that tells one life of a topic from the next.

A topic is known by its id, which differs for each topic that is created: an anchor has the id where
other sources have a record, since compaction may remove any record.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Message,
    TopicPartition,
)

from tubemq_client import errors
from tubemq_client.model import Anchor
from tubemq_provider_kafka.cluster import Cluster, KafkaSettings
from tubemq_provider_kafka.space import KafkaPartition, KafkaRange

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Batch", "KafkaReader", "TopicLookup"]

_BATCH: Final = 5000
_LATEST_MS: Final = (1 << 63) // 1000
"""Milliseconds that a timestamp in microseconds cannot hold."""
_TIME_TYPES: Final = {
    TIMESTAMP_CREATE_TIME: "CreateTime",
    TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
}
_BEYOND: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)  # noqa: SLF001
_BROKEN: Final = (KafkaError._BAD_MSG, KafkaError.INVALID_MSG)  # noqa: SLF001


class Record(NamedTuple):
    """One record, with the names that budgets and resolvers read."""

    offset: int
    body: bytes
    milliseconds: int | None


class Gap(NamedTuple):
    """Offsets that retention removed."""

    start: int
    end: int


@dataclass(frozen=True)
class Batch:
    """Messages of one partition, in the order of their offsets."""

    partition: KafkaPartition
    items: list[Message]

    def __len__(self) -> int:
        return len(self.items)

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return sum(len(each.value() or b"") for each in self.items)

    def messages(self) -> Iterator[Record]:
        """Yield the records; the value of a tombstone is empty."""
        for each in self.items:
            yield Record(each.offset(), each.value() or b"", _time_of(each)[1])

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the records with exactly `schema`."""
        import pyarrow as pa

        arrays = [pa.array(self._column(each.name), each.type) for each in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, name: str) -> list[Any]:
        match name:
            case "topic":
                return [self.partition.topic] * len(self.items)
            case "partition":
                return [self.partition.key] * len(self.items)
            case "timestamp":
                times = (_time_of(each)[1] for each in self.items)
                return [None if each is None else each * 1000 for each in times]
            case "timestamp_type":
                return [_time_of(each)[0] for each in self.items]
            case "headers":
                return [_headers(each) for each in self.items]
            case _:
                return [getattr(each, name)() for each in self.items]


def _time_of(message: Message) -> tuple[str | None, int | None]:
    kind, milliseconds = message.timestamp()
    word = _TIME_TYPES.get(kind)
    if word is None or not -_LATEST_MS < milliseconds < _LATEST_MS:
        return None, None
    return word, milliseconds


def _headers(message: Message) -> list[dict[str, Any]]:
    return [{"key": name, "value": value} for name, value in message.headers() or ()]


@dataclass
class Stats:
    """Counters of a reader: none is ever corrupt, since a broken batch ends the read."""

    corrupt: int = 0
    gaps: list[Gap] = field(default_factory=list)
    last: dict[str, Anchor] = field(default_factory=dict)


class KafkaReader(AbstractContextManager["KafkaReader"]):
    """Reader of ranges of `topic`, as `read_committed` reads them; joins and commits nothing."""

    def __init__(
        self, settings: KafkaSettings, topic: str, group: str, *, skip_gaps: bool = False
    ) -> None:
        self.stats = Stats()
        self._settings, self._topic, self._group = settings, topic, group
        self._skip_gaps = skip_gaps
        self._cluster = Cluster(settings)
        self._consumer: Consumer | None = None
        self._anchor: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._cluster.close()

    def read(self, range_: KafkaRange) -> Iterator[Batch]:
        """Yield the committed records of the range, in the order of their offsets.

        The range is done once the log is seen to continue, or to end, at its end or beyond.
        """
        if range_.start >= range_.end:
            return
        if self._consumer is None:
            self._consumer = self._cluster.consumer(self._group)
            self._anchor = _words(self._cluster.topic(self._topic).identity)
        for items in self._until_end(self._consumer, range_):
            yield Batch(range_.partition, items)
        if self._anchor is not None:
            self.stats.last[range_.partition.key] = Anchor(range_.end - 1, *self._anchor)

    def _until_end(self, consumer: Consumer, range_: KafkaRange) -> Iterator[list[Message]]:
        position = self._seek(consumer, range_.partition, range_.start)
        deadline = time.monotonic() + self._settings.deadline_s
        while position < range_.end:
            first = consumer.poll(1.0)
            fetched = [] if first is None else [first, *consumer.consume(_BATCH, 0)]
            items: list[Message] = []
            at = position
            for message in fetched:
                error = message.error()
                if error is None:
                    if message.offset() < range_.end:
                        items.append(message)
                    position = max(position, message.offset() + 1)
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    position = max(position, message.offset())
                elif error.code() in _BEYOND:
                    position = self._seek(
                        consumer, range_.partition, self._skipped(range_, position)
                    )
                    break
                else:
                    raise self._failure(error, range_, position)
                if position >= range_.end:
                    break
            if items:
                yield items
            if position > at or items:
                deadline = time.monotonic() + self._settings.deadline_s
            elif time.monotonic() > deadline:
                raise self._stalled(range_, position)

    def _seek(self, consumer: Consumer, partition: KafkaPartition, offset: int) -> int:
        consumer.assign([TopicPartition(*partition, offset)])
        return offset

    def _skipped(self, range_: KafkaRange, position: int) -> int:
        """Return where the log begins now. Raises `DataLoss`, `LogTruncated`."""
        partition = range_.partition
        start = self._cluster.earliest([partition])[partition]
        if start <= position:
            raise errors.LogTruncated(self._short(range_, position))
        if not self._skip_gaps:
            raise errors.DataLoss(
                f"partition {partition.key} of topic {partition.topic!r}: retention has removed "
                f"the offsets {position} to {start} before they were read",
                start=position,
                available=start,
            )
        self.stats.gaps.append(Gap(position, min(start, range_.end)))
        return start

    def _stalled(self, range_: KafkaRange, position: int) -> errors.TubeMQError:
        """Return the error of a read without progress: the log ends early, or no broker answers."""
        partition = range_.partition
        if self._cluster.latest([partition], committed=True)[partition] < range_.end:
            return errors.LogTruncated(self._short(range_, position))
        return errors.RangeStalled(
            f"partition {partition.key} of topic {partition.topic!r}: no progress at {position} "
            f"for {self._settings.deadline_s:g} s (deadline_ms of the task or connection)"
        )

    def _short(self, range_: KafkaRange, position: int) -> str:
        return (
            f"partition {range_.partition.key} of topic {range_.partition.topic!r}: the log ends "
            f"before {range_.end}, after {position}: records were lost, or the topic was recreated"
        )

    def _failure(self, error: KafkaError, range_: KafkaRange, at: int) -> errors.TubeMQError:
        if error.code() in _BROKEN:
            return errors.CorruptRecord(
                f"partition {range_.partition.key} of topic {range_.partition.topic!r} has a "
                f"broken batch at {at} or after: {error.str()}"
            )
        return self._cluster.failure(error, f"partition {range_.partition.key}")


class TopicLookup:
    """Look-up of topic ids: `planning.log_identity.RecordLookup`."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._cluster = Cluster(settings)

    def close(self) -> None:
        """Close its connection."""
        self._cluster.close()

    def first_record(self, range_: KafkaRange) -> Anchor | None:
        """Return an anchor at the start of the range, with the topic's id."""
        if range_.start >= range_.end:
            return None
        return Anchor(range_.start, *self._now(range_.partition.topic))

    def holds(self, partition: KafkaPartition, anchor: Anchor, upto: int) -> bool:
        """Return True if the topic still has the id of the anchor."""
        return self.holds_each([(partition, anchor, upto)])[0]

    def holds_each(self, anchors: Iterable[tuple[KafkaPartition, Anchor, int]]) -> list[bool]:
        """Return the answer of `holds` for each, from one look-up."""
        asked = list(anchors)
        now: Mapping[str, tuple[int, int]] = {
            topic: self._now(topic) for topic in {partition.topic for partition, _, _ in asked}
        }
        return [anchor[1:] == now[partition.topic] for partition, anchor, _ in asked]

    def _now(self, topic: str) -> tuple[int, int]:
        return _words(self._cluster.topic(topic).identity)


def _words(identity: tuple[int, int]) -> tuple[int, int]:
    """Return a topic id as the two numbers of an anchor: 64 bits, and a checksum of the rest."""
    mask = (1 << 64) - 1
    high, low = identity
    return high & mask, zlib.crc32((low & mask).to_bytes(8, "big"))
