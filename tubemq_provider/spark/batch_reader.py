"""Batches and micro-batches of TubeMQ: how one split of exact ranges is read in a task.

Made on the driver and pickled for tasks, so it holds no connection. This module must not plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubemq_provider.sources.tubemq.brokers import broker_of, by_number
from tubemq_provider.sources.tubemq.columns import RECORDS
from tubemq_provider.spark.reading import BatchReader, SplitPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from tubemq_client import MessageBatch
    from tubemq_client.model import BrokerNode, OffsetRange
    from tubemq_client.sync import RangeReader
    from tubemq_provider.spark.options import ReadOptions
    from tubemq_provider.spark.range_planner import PlannedRead

__all__ = ["TubeMQBatchReader"]


class TubeMQBatchReader(BatchReader["ReadOptions"]):
    """Plans splits on the driver and reads them in tasks.

    Made on the driver; tasks get it pickled, with the settings as they were there.
    """

    COLUMNS = RECORDS

    def __init__(self, options: ReadOptions, planned: PlannedRead, schema: StructType) -> None:
        super().__init__(options, schema)
        self._settings = planned.settings
        self._planned = planned

    @property
    def planned_ranges(self) -> tuple[OffsetRange, ...]:
        """The ranges that every action on the frame reads."""
        return self._planned.ranges

    def broker_of(self, range_: OffsetRange) -> BrokerNode:
        """Where the range's partition is served."""
        return broker_of(self._planned.brokers, range_.partition)

    def open_reader(self, item: SplitPartition, **policy: Any) -> RangeReader:
        """The reader of one split; `policy` replaces what the options say. Close it."""
        from tubemq_client.sync import RangeReader

        options = self._options
        given: dict[str, Any] = {
            "corrupt_records": "fail" if options.corrupt_records == "fail" else "drop",
            **policy,
        }
        return RangeReader(
            self._settings,
            group=options.group,
            filters=options.filters,
            brokers=by_number(item.broker),
            pool_size=options.pool_size,
            slot_seed=f"{self._planned.seed}/{item.split.index}",
            gap_policy=options.gap_policy,
            deadline_ms=options.read_timeout_ms,
            **given,
        )

    def batches_of(self, reader: RangeReader, range_: OffsetRange) -> Iterator[MessageBatch]:
        """The batches of a range, over as many connections as were asked for."""
        return reader.read(range_, parallel=self._options.connections)
