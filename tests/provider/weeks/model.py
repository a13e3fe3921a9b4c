"""Source of windows without sockets, with the answers of the topic's brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa

from tests.provider.weeks.topic import ENTRY, Topic
from tubemq_client.errors import ConnectError, DataLoss, LogTruncated
from tubemq_client.model import Anchor, OffsetRange, Partition, PartitionEnds, ReachableEnds
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows.planning.retention import away_of


@dataclass(frozen=True)
class _Gap:
    partition: Partition
    start: int
    end: int


@dataclass(frozen=True)
class _Batch:
    range: OffsetRange
    records: list[tuple[int, bytes]]

    def __len__(self) -> int:
        return len(self.records)

    @property
    def nbytes(self) -> int:
        return sum(len(body) for _, body in self.records)

    def messages(self) -> Iterator[Any]:
        yield from (body for _, body in self.records)

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        known: dict[str, list[Any]] = {
            "topic": [self.range.partition.topic] * len(self),
            "partition": [self.range.partition.key] * len(self),
            "offset": [at for at, _ in self.records],
            "batch_offset": [at for at, _ in self.records],
            "message_id": [int(body[1:]) for _, body in self.records],
            "value": [body for _, body in self.records],
        }
        columns = [
            pa.array(known.get(found.name, [None] * len(self)), type=found.type) for found in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass
class _Stats:
    corrupt: int = 0
    gaps: list[Any] = field(default_factory=list)
    last: dict[str, Anchor] = field(default_factory=dict)


class Source:
    """The topic as one group sees it."""

    space = SPACE
    identity = "test"

    def __init__(self, topic: Topic, group: str) -> None:
        self._log, self.topic, self.group = topic, topic.name, group
        self.mirrored: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: nothing is open."""

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def settings(self) -> Any:
        return None

    def partitions(self) -> Mapping[Partition, bool]:
        return {Partition.from_key(self.topic, key): True for key in self._log.places()}

    def ends(self, which: str = "stable") -> Mapping[Partition, PartitionEnds]:
        stable = which == "stable"
        found, away = {}, {}
        for key in self._log.places():
            place = Partition.from_key(self.topic, key)
            life = self._log.life(place.broker_id)
            if place.broker_id in self._log.away:
                away[place] = "ConnectError: away"
            else:
                end = life.stable if stable else life.end
                found[place] = PartitionEnds(place, life.low, end, stable)
        if not found:
            raise ConnectError("no broker answers")
        return ReachableEnds(found, away)

    def record_lookup(self) -> Source:
        return self

    def first_record(self, range_: OffsetRange) -> Anchor | None:
        return next(self._anchors(range_), None)

    def holds(self, partition: Partition, anchor: Anchor, upto: int) -> bool | None:
        if anchor.offset < self._life(partition).low:
            return None
        return anchor in self._anchors(OffsetRange(partition, anchor.offset, upto))

    def probe(self) -> Any:
        return lambda range_: iter(())

    def open_reader(
        self, plan: Any, policies: Any, *, quarantine: Any = None
    ) -> AbstractContextManager[Any]:
        return nullcontext(_Reader(self, policies.gap_policy.value == "skip"))

    def mirror(self, ends: Mapping[str, int]) -> None:
        self.mirrored.update(ends)

    def _life(self, partition: Partition) -> Any:
        if partition.broker_id in self._log.away:
            raise ConnectError("away")
        return self._log.life(partition.broker_id)

    def _anchors(self, range_: OffsetRange) -> Iterator[Anchor]:
        life = self._life(range_.partition)
        if range_.start < life.low:
            raise DataLoss("retention has been there", start=range_.start, available=life.low)
        for index, (key, body) in enumerate(life.entries):
            if key == range_.partition.key and range_.start <= index * ENTRY < range_.end:
                yield Anchor(index * ENTRY, int(body[1:]), 0)


class _Reader:
    def __init__(self, source: Source, skips: bool) -> None:
        self._source, self._skips, self.stats = source, skips, _Stats()

    def read(self, range_: OffsetRange) -> Iterator[_Batch]:
        place = range_.partition
        life = self._source._life(place)
        if range_.end > life.end:
            raise LogTruncated(f"the log ends at {life.end}, below {range_}")
        start = range_.start
        if start < life.low:
            if not self._skips:
                raise DataLoss(
                    f"{range_}: retention has removed records; see gap_policy",
                    start=range_.start,
                    available=life.low,
                )
            start = min(life.low, range_.end)
            self.stats.gaps.append(_Gap(place, range_.start, start))
        found = [
            (index * ENTRY, body)
            for index, (key, body) in enumerate(life.entries)
            if key == place.key and start <= index * ENTRY < range_.end
        ]
        if found:
            at, body = found[-1]
            self.stats.last[place.key] = Anchor(at, int(body[1:]), 0)
        for at in range(0, len(found), 2):
            yield _Batch(range_, found[at : at + 2])


class Hook:
    """The part of the connection's hook that tasks ask for."""

    admin_url = None
    config = type("Config", (), {"admin_url": None})()

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def expect_cluster(self, cluster: str) -> None:
        assert cluster == "test"

    def source(self, topic: str, group: str, filters: Any = ()) -> Source:
        return Source(self._topic, group)

    def get_connection(self, conn_id: str) -> Any:
        raise AssertionError(conn_id)

    def ends(self, topic: str, group: str, *, stable: bool) -> Any:
        found = Source(self._topic, group).ends("stable" if stable else "latest")
        if away_of(found):
            raise ConnectError("a broker is away")
        return found

    def reachable_ends(self, topic: str, group: str, *, stable: bool) -> Any:
        return Source(self._topic, group).ends("stable" if stable else "latest")
