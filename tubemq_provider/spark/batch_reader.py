"""Reader for batches and micro-batches of TubeMQ: reads one split of exact ranges in a task.

Created on the driver and pickled for tasks, so it holds no connection. This module must not plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubemq_provider.sources.tubemq.brokers import broker_of, by_number
from tubemq_provider.sources.tubemq.columns import RECORDS
from tubemq_provider.spark.options import ReadOptions
from tubemq_provider.spark.reading import BatchReader, SplitPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tubemq_client import MessageBatch
    from tubemq_client.model import BrokerNode, OffsetRange
    from tubemq_client.sync import RangeReader
    from tubemq_provider.spark.range_planner import PlannedRead


class TubeMQBatchReader(BatchReader[ReadOptions]):
    """Reader that plans splits on the driver and reads them in tasks."""

    COLUMNS = RECORDS
    _planned: PlannedRead

    def broker_of(self, range_: OffsetRange) -> BrokerNode:
        """Return the broker that serves the range's partition."""
        return broker_of(self._planned.brokers, range_.partition)

    def open_reader(self, item: SplitPartition, **policy: Any) -> RangeReader:
        """Open the reader of one split; `policy` overrides the options. Close it."""
        from tubemq_client.sync import RangeReader

        options = self._options
        policies: dict[str, Any] = {
            "corrupt_records": "fail" if options.corrupt_records == "fail" else "drop",
            **policy,
        }
        return RangeReader(
            self._planned.settings,
            group=options.group,
            filters=options.filters,
            brokers=by_number(item.broker),
            pool_size=options.pool_size,
            slot_seed=f"{self._planned.seed}/{item.split.index}",
            gap_policy=options.gap_policy,
            deadline_ms=options.read_timeout_ms,
            **policies,
        )

    def batches_of(self, reader: RangeReader, range_: OffsetRange) -> Iterator[MessageBatch]:
        """Return the batches of a range, read over `connectionsPerTask` connections."""
        return reader.read(range_, parallel=self._options.connections)
