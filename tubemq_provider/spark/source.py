"""The `tubemq` batch data source as Spark sees it: options in, Arrow batches out.

Spark runs the pieces in different processes (constructor, planner, tasks) and pickles them in
between, so nothing here holds a connection, and anything heavy is imported where it is used. Spark
also imports this module when it looks for formats: it must stay light. `pushFilters` is left out
on purpose; Spark 4.3 lets a pushed filter leak into other scans of the same frame and lose rows.

Delivery: every action on a loaded frame reads the same ranges, each record once. Offsets are never
confirmed to the broker from here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tubemq_client.errors import ConfigError, DataLoss
from tubemq_provider.rows.decoding import Rejects, RowDecoder
from tubemq_provider.sources.tubemq.brokers import broker_of, by_number
from tubemq_provider.sources.tubemq.columns import RECORDS
from tubemq_provider.spark.options import parse_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from tubemq_client.model import BrokerNode, OffsetRange
    from tubemq_client.sync import RangeReader
    from tubemq_provider.spark.options import ReadOptions
    from tubemq_provider.spark.planning import PlannedRead
    from tubemq_provider.spark.splits import Split

log = logging.getLogger(__name__)

__all__ = [
    "EmptyPartition",
    "SplitPartition",
    "TubeMQBatchReader",
    "TubeMQDataSource",
    "decoder_of",
]


def decoder_of(options: ReadOptions) -> RowDecoder | None:
    """What makes typed rows, if the options say so."""
    return None if options.decode is None else RowDecoder(options.decode, RECORDS)


@dataclass(frozen=True)
class SplitPartition(InputPartition):
    """What one task reads: a sub-range, the broker that has it, and its place in the read."""

    split: Split
    broker: BrokerNode


class EmptyPartition(InputPartition):
    """Stands for a window without offsets: Spark calls `read` even when nothing is to be read."""

    def __init__(self) -> None:
        super().__init__(None)


class TubeMQDataSource(DataSource):
    """`spark.read.format("tubemq")`: bounded reads of a TubeMQ topic. Options: `docs/spark.md`.

    Options are checked when the frame is loaded. The ranges are resolved at that moment too, or at
    the first action if the user gave a schema, and never again.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._read_options, self._refusal = _read_options(options)
        self._planned: PlannedRead | None = None

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tubemq"

    def schema(self) -> str:
        """The selected columns; freezes the ranges. Spark skips it when the user gave a schema."""
        options = self._read_options
        if options is None:
            raise self._refused()
        if self._refusal is None:
            self._freeze(options)
        decoder = decoder_of(options)
        return RECORDS.ddl(options.columns) if decoder is None else decoder.ddl

    def reader(self, schema: StructType) -> TubeMQBatchReader:
        """A reader of `schema`, which may be any subset of the columns in any order."""
        from tubemq_provider.spark.rows import check_schema

        options = self._read_options
        if options is None or self._refusal is not None:
            raise self._refused()
        if options.max_per_trigger is not None:
            log.warning("maxOffsetsPerTrigger is for streams; this batch read ignores it")
        decoder = decoder_of(options)
        check_schema(schema, None if decoder is None else decoder.ddl)
        return TubeMQBatchReader(options, self.planned(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of micro-batches; see `stream`. Needs PySpark 4.2."""
        from tubemq_provider.spark.rows import check_schema

        try:
            from tubemq_provider.spark.stream import TubeMQStreamReader
        except ImportError as error:
            raise ConfigError(
                "readStream needs PySpark 4.2 or newer, for limits of batches", subject="Spark"
            ) from error
        options = parse_options(self.options, streaming=True)
        decoder = decoder_of(options)
        check_schema(schema, None if decoder is None else decoder.ddl)
        return TubeMQStreamReader(options, options.settings(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Sends rows as records; see `writing`."""
        from tubemq_provider.spark.writing import TubeMQWriter, order_of

        return TubeMQWriter(order_of(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The same for each micro-batch."""
        from tubemq_provider.spark.writing import TubeMQStreamWriter, order_of

        return TubeMQStreamWriter(order_of(self.options, schema, overwrite=overwrite))

    def _refused(self) -> ConfigError:
        return self._refusal or ConfigError("nothing is read", subject="tubemq")

    def _freeze(self, options: ReadOptions) -> None:
        """Resolve the ranges. A start that is spelled out may be that of a stream which has long
        left it behind, and goes on from its checkpoint: then the first action of a batch read says
        what is wrong with it."""
        try:
            self.planned()
        except (ConfigError, DataLoss):
            if isinstance(options.start, str):
                raise

    def planned(self) -> PlannedRead:
        """The frozen ranges, resolved against the cluster on first use. Only here `configFile` is
        read: what it says travels with the ranges."""
        if self._planned is None:
            from tubemq_provider.spark.planning import plan_read

            options = self._read_options
            if options is None:
                raise self._refused()
            self._planned = plan_read(options, options.settings())
        return self._planned


def _read_options(given: Mapping[str, str]) -> tuple[ReadOptions | None, ConfigError | None]:
    """Spark makes a source before it says what for. So only what can be neither a batch read, nor a
    stream, nor a write is refused at once: with the words for the batch read, or for the write if
    there is an option that only writes have."""
    try:
        return parse_options(given), None
    except ConfigError as error:
        refusal = error
    try:
        return parse_options(given, streaming=True), refusal
    except ConfigError:
        from tubemq_provider.spark.write_options import for_writing, parse_write_options

    try:
        parse_write_options(given)
    except ConfigError as error:
        raise (error if for_writing(given) else refusal) from None
    return None, refusal


class TubeMQBatchReader(DataSourceReader):
    """Plans splits on the driver and reads them in tasks.

    Made on the driver; tasks get it pickled, with the settings as they were there.
    """

    def __init__(self, options: ReadOptions, planned: PlannedRead, schema: StructType) -> None:
        self._options = options
        self._settings = planned.settings
        self._planned = planned
        self._schema = schema

    @property
    def planned_ranges(self) -> tuple[OffsetRange, ...]:
        """The ranges that every action on the frame reads."""
        return self._planned.ranges

    def partitions(self) -> list[InputPartition]:
        """One partition per split, longest first; an `EmptyPartition` if there is nothing."""
        from tubemq_provider.spark.splits import split_ranges

        splits = split_ranges(
            self._planned.ranges,
            max_entries=self._options.max_entries,
            min_partitions=self._options.min_partitions,
        )
        brokers = self._planned.brokers
        found = [SplitPartition(s, broker_of(brokers, s.range.partition)) for s in splits]
        return list(found) or [EmptyPartition()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one split. Spark's own placeholder for "no partitions" reads as empty."""
        if not isinstance(partition, SplitPartition):
            return iter(())
        return self._read(partition)

    def _read(self, partition: SplitPartition) -> Iterator[pa.RecordBatch]:
        from tubemq_provider.spark.reports import report_read
        from tubemq_provider.spark.rows import arrow_batches, arrow_schema, typed_batches

        options, split = self._options, partition.split
        schema, decoder = arrow_schema(self._schema), decoder_of(options)
        rejects, rows = Rejects(options.corrupt_records), 0
        with self.open_reader(partition) as reader:
            # Closing early (`limit`, a failed task) must reach the reader: it gives up its lease.
            with closing(reader.read(split.range)) as batches:  # type: ignore[type-var]
                typed = typed_batches(batches, schema, decoder, rejects)
                for batch in arrow_batches(typed, options.batch_bytes):
                    rows += batch.num_rows
                    yield batch
            report_read(split, reader.stats, options.report_dir, rows=rows, bad=rejects.count)

    def open_reader(self, partition: SplitPartition, **policy: Any) -> RangeReader:
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
            brokers=by_number(partition.broker),
            pool_size=options.pool_size,
            slot_seed=f"{self._planned.seed}/{partition.split.index}",
            gap_policy=options.gap_policy,
            deadline_ms=options.read_timeout_ms,
            **given,
        )
