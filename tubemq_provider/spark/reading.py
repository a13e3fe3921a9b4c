"""Base of the batch readers of every kind of source: splits on the driver, Arrow in tasks.

A kind's reader defines its ranges, their brokers and how one is read; cutting, decoding, joining
batches and reporting are here. Spark pickles readers, so nothing holds a connection, and pyarrow is
imported where it is used. This module must not name a kind of source.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tubemq_client.errors import ConfigError
from tubemq_client.model import CorruptRecords
from tubemq_provider.files.columns import ColumnSet
from tubemq_provider.files.quarantine import QuarantineFile
from tubemq_provider.rows.ddl import ddl_of
from tubemq_provider.rows.decoding import BadRecords, RowDecoder
from tubemq_provider.rows.spec import SUBJECT
from tubemq_provider.spark.attempts import QuarantineLocation, attempt_name, quarantine_name
from tubemq_provider.spark.splits import Split, split_ranges

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tubemq_provider.spark.option_parser import ReadShape
    from tubemq_provider.spark.task_metrics import ReportDirectory

_INSTANTS: Final = "timestamp_ltz"


OptionsT = TypeVar("OptionsT", bound="ReadShape")


@dataclass(frozen=True)
class SplitPartition(InputPartition):
    """Input of one task: a sub-range, the broker that has it, and its number in the read."""

    split: Split
    broker: Any


class EmptyPartition(InputPartition):
    """Placeholder for a window without offsets: Spark calls `read` even when nothing is to be
    read."""

    def __init__(self) -> None:
        super().__init__(None)


def decoder_of(
    options: ReadShape, records: ColumnSet, *, key: Sequence[str] = ()
) -> RowDecoder | None:
    """Return the decoder to typed rows, if the options have one."""
    return None if options.decode is None else RowDecoder(options.decode, records, key=key)


def check_columns(options: ReadShape, records: ColumnSet, schema: StructType, name: str) -> None:
    """Raise `ConfigError` for columns of `schema` that the format `name` does not have."""
    from tubemq_provider.spark.rows import check_schema

    decoder = decoder_of(options, records)
    check_schema(schema, records.ddl() if decoder is None else decoder.ddl, name)


def schema_of(options: ReadShape, records: ColumnSet) -> str:
    """Return a format's schema for Spark: the selected columns of records, or those of the rows
    decoded from them. Instants are written explicitly, because a session setting decides what
    ``timestamp`` means."""
    decoder = decoder_of(options, records)
    if decoder is None:
        return records.ddl(options.columns, instants=_INSTANTS)
    if times := [item.name for item in decoder.schema if "time64" in str(item.type)]:
        raise ConfigError(
            f"schema: column {times[0]!r} has a time of day, which Spark does not hold; decode it "
            "as a string, from Avro with time_of_day='number', or use engine='inline'",
            subject=SUBJECT,
        )
    return ddl_of(decoder.schema, instants=_INSTANTS)


class BatchReader(DataSourceReader, Generic[OptionsT]):
    """Reader that plans splits on the driver and reads them in tasks.

    Created on the driver from a frozen read: its ranges, brokers, and settings. Tasks get it
    pickled. A kind derives from it.
    """

    COLUMNS: ColumnSet

    def __init__(self, options: OptionsT, planned: Any, schema: StructType) -> None:
        self._options = options
        self._planned = planned
        self._schema = schema
        self.reports: ReportDirectory | None = None
        self.aside: QuarantineLocation | None = None

    @property
    def options(self) -> OptionsT:
        """Validated options."""
        return self._options

    @property
    def planned_ranges(self) -> Sequence[Any]:
        """Ranges that every action on the frame reads."""
        ranges: Sequence[Any] = self._planned.ranges
        return ranges

    @abstractmethod
    def broker_of(self, range_: Any) -> Any:
        """Return the broker that serves a range. Driver only."""

    @abstractmethod
    def open_reader(self, item: SplitPartition, **policy: Any) -> AbstractContextManager[Any]:
        """Open the reader of one split; `policy` overrides the options. Close it."""

    def batches_of(self, reader: Any, range_: Any) -> Any:
        """Return the batches of a range, in its order, by an open reader. Close them."""
        return reader.read(range_)

    def partitions(self) -> list[InputPartition]:
        """Return one partition per split, longest first; an `EmptyPartition` if there is
        nothing."""
        splits = split_ranges(
            self.planned_ranges,
            max_records=self._options.max_records,
            min_partitions=self._options.min_partitions,
        )
        partitions = [SplitPartition(split, self.broker_of(split.range)) for split in splits]
        return list(partitions) or [EmptyPartition()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of one split. Spark's own placeholder for "no partitions" reads as
        empty."""
        if not isinstance(partition, SplitPartition):
            return iter(())
        return self._read(partition)

    def _read(self, partition: SplitPartition) -> Iterator[pa.RecordBatch]:
        from tubemq_provider.spark.rows import arrow_batches, arrow_schema, typed_batches
        from tubemq_provider.spark.task_metrics import report_read

        options, split = self._options, partition.split
        schema, decoder = arrow_schema(self._schema), decoder_of(options, self.COLUMNS)
        bad_records, rows = BadRecords(CorruptRecords(options.corrupt_records)), 0
        corrupt, name = QuarantineFile(), ""
        with ExitStack() as stack:
            if self.aside is None:
                reader = stack.enter_context(self.open_reader(partition))
            else:
                name = quarantine_name(attempt_name(), split)
                stack.enter_context(corrupt.into(self.aside.location(), name))
                bad_records = BadRecords(CorruptRecords.QUARANTINE, corrupt.add)
                reader = stack.enter_context(
                    self.open_reader(
                        partition, corrupt_records="quarantine", quarantine=corrupt.add
                    )
                )
            # Early closing (`limit`, a failed task) must reach the reader, to release its lease.
            batches = stack.enter_context(closing(self.batches_of(reader, split.range)))
            typed = typed_batches(batches, schema, decoder, bad_records)
            for batch in arrow_batches(typed, options.batch_bytes):
                rows += batch.num_rows
                yield batch
        # Only now is the quarantine file complete.
        quarantine_file = name if len(corrupt) else ""
        place = self.reports or options.report_dir
        report_read(
            split, reader.stats, place, rows=rows, bad=bad_records.count, aside=quarantine_file
        )
