"""`spark.readStream.format("tubemq")`: micro-batches of exact ranges up to stable ends.

Spark keeps the offsets in its checkpoint; a retried batch reads the same ranges, so a sink that
applies a batch once has each record once. Nothing is confirmed to brokers. The reader lives in a
Python process of the driver and is pickled for tasks, so it holds no connection. Needs PySpark 4.2,
for read limits and `Trigger.AvailableNow`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tubemq_client.model import OffsetRange, Partition
from tubemq_provider.spark.batch_reader import TubeMQBatchReader
from tubemq_provider.spark.range_planner import PlannedRead, plan_start, stream_reach
from tubemq_provider.spark.reading import SplitPartition
from tubemq_provider.spark.stream_offsets import (
    advance,
    batch_start,
    offsets_document,
    partition_gone,
    ranges_between,
    read_document,
    without_advice,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tubemq_client.model import BrokerNode, ClientSettings
    from tubemq_provider.spark.options import ReadOptions
    from tubemq_provider.windows.spaces import Ends

log = logging.getLogger(__name__)


class TubeMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Planner of micro-batches on the driver; tasks read splits as batch reads do.

    New partitions of a topic are added by the first batch that sees them, and read from their first
    offset by the next. `maxOffsetsPerTrigger` counts index entries, an upper bound of records.
    """

    def __init__(self, options: ReadOptions, settings: ClientSettings, schema: StructType) -> None:
        self._options = options
        self._settings = settings
        self._schema = schema
        self._begin: dict[str, Any] | None = None
        self._cap: Mapping[Partition, int] | None = None
        self._known_ends: dict[Partition, int] = {}
        self._brokers: dict[int, BrokerNode] = {}

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a stream without a checkpoint; the same on every call."""
        if self._begin is None:
            self._begin = offsets_document(plan_start(self._options, self._settings))
        return self._begin

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of `maxOffsetsPerTrigger`."""
        limit = self._options.max_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch: stable ends, within the limit. The end of the first
        batch includes the start of the stream: Spark keeps ends only, and a retried first batch
        must not resolve the starting options again."""
        begun = read_document(start)
        next_end = advance(
            begun,
            self._current_ends(begun),
            limit=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            cap=self._cap,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        for warning in next_end.warnings:
            log.warning("tubemq stream continues: %s", warning)
        if next_end.offsets == begun:
            return start  # byte for byte, or Spark would start a batch
        return offsets_document(next_end.offsets, begin=begun if start == self._begin else None)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the latest known stable ends, from which Spark's progress computes the lag."""
        return offsets_document(self._known_ends) if self._known_ends else None

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to the ends of this moment."""
        self._cap = {
            partition: ends.max_offset for partition, ends in self._current_ends(None).items()
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the splits of one micro-batch."""
        ranges = ranges_between(batch_start(end, start), read_document(end))
        if not all(
            range_.partition in self._known_ends for range_ in ranges
        ):  # planned by an earlier process
            ranges = self._existing(ranges)
        return self._batch(ranges, self._brokers).partitions() if ranges else []

    def _existing(self, ranges: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
        """Return the ranges whose partitions the topics still have. Raises `DataLoss` for others,
        unless data loss is tolerated."""
        ends = self._current_ends([range_.partition for range_ in ranges])
        gone = [partition_gone(r.partition, r.start) for r in ranges if r.partition not in ends]
        if gone and self._options.fail_on_data_loss:
            raise gone[0]
        for loss in gone:
            log.warning("tubemq stream continues: %s", without_advice(loss))
        return tuple(range_ for range_ in ranges if range_.partition in ends)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of one split, in a task."""
        if not isinstance(partition, SplitPartition):
            return iter(())
        return self._batch((partition.split.range,), {}).read(partition)

    def _batch(
        self, ranges: tuple[OffsetRange, ...], brokers: Mapping[int, BrokerNode]
    ) -> TubeMQBatchReader:
        """Return a batch reader for the ranges of a micro-batch."""
        text = "\n".join(map(str, ranges))
        seed = f"s-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
        planned = PlannedRead((), seed, ranges, brokers, self._settings)
        options = self._options
        if options.report_dir is not None:
            # Splits are numbered from 0 in every batch.
            options = replace(options, report_dir=f"{options.report_dir}/{seed}")
        return TubeMQBatchReader(options, planned, self._schema)

    def _current_ends(self, needed: Collection[Partition] | None) -> Mapping[Partition, Ends]:
        """Ask for the current ends. Brokers of `needed` partitions (None: all) must answer; others
        are left to a later batch."""
        reach = stream_reach(self._options, self._settings, needed)
        self._known_ends = {partition: ends.max_offset for partition, ends in reach.ends.items()}
        self._brokers = dict(reach.brokers)
        return reach.ends

    def __getstate__(self) -> dict[str, Any]:
        """Drop state that tasks do not need."""
        return {**vars(self), "_begin": None, "_cap": None, "_known_ends": {}, "_brokers": {}}
