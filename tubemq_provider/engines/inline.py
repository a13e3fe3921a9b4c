"""The inline engine: range reader → Arrow → Parquet files, in this process, without Spark.

For small windows, tests and drills; the same plan, sink and counts as the Spark engines. Reads one
partition after the other and holds one row group in memory. This module must not decide which
offsets to read, retry a window, or touch the sink beyond the staging directory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_client.model import CorruptRecords, GapPolicy
from tubemq_provider.engines.sampling import first_bodies
from tubemq_provider.files.columns import columns_of
from tubemq_provider.files.locations import Location, location_of
from tubemq_provider.files.partitioned import PartitionedWriter, staged_writer
from tubemq_provider.files.quarantine import CORRUPT_FILE, QuarantineFile
from tubemq_provider.files.writer import ROW_GROUP_BYTES, StagedWriter, with_file_parts
from tubemq_provider.rows.changes.reduction import Reducer, reduced_schema
from tubemq_provider.rows.decoding import BadRecords, RowDecoder, window_decoder
from tubemq_provider.rows.inference import infer
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sources.base import ExpectingReader, RecordReader, Source
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.following import Following
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import Engine, IngestCounts, IngestWatch, Staging
from tubemq_provider.windows.spaces import FIRST_SOURCE

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FILE_BYTES", "InlineEngine"]

FILE_BYTES: Final = 128 * 1024 * 1024
"""Size of data files, unless the user chooses another."""

OpenReader = Callable[[WindowPlan], AbstractContextManager[RecordReader]]


class InlineEngine(Engine):
    """Engine that executes plans with one reader per window; see `Engine`.

    `kind` is the source's kind; `columns` selects some of its columns and must include
    ``partition``, by which the sink verifies. A row group is written when about `row_group_bytes`
    of records have been collected. With `target_file_bytes` a file takes records of several ranges
    until it has that size. `corrupt` is the quarantine to which the reader adds records that fail
    their checksum, if they are kept. `open_sample` opens the reader for schema inference, which
    keeps no corrupt records.

    `decode` turns bodies into typed rows; `columns` of the decode spec then select what is kept of
    the record. Records that do not decode follow `corrupt_records`.

    With `following` the files have the last change of each key, under the partition that it came
    from; the rows of a window's keys are in memory until all of it is read.
    """

    name = "inline"

    def __init__(
        self,
        open_reader: OpenReader,
        *,
        kind: str = FIRST_SOURCE,
        columns: Sequence[str] | None = None,
        row_group_bytes: int = ROW_GROUP_BYTES,
        target_file_bytes: int | None = None,
        compression: str = "snappy",
        corrupt: QuarantineFile | None = None,
        decode: DecodeSpec | None = None,
        corrupt_records: CorruptRecords = CorruptRecords.FAIL,
        open_sample: OpenReader | None = None,
        following: Following | None = None,
    ) -> None:
        available = columns_of(kind)
        columns = available.names if columns is None else columns
        problems = [f"unknown column {name!r}" for name in columns if name not in available.names]
        if "partition" not in columns:
            problems.append("column 'partition' is needed to verify windows")
        if row_group_bytes < 1:
            problems.append(f"row_group_bytes {row_group_bytes} is not >= 1")
        if target_file_bytes is not None and target_file_bytes < 1:
            problems.append(f"target_file_bytes {target_file_bytes} is not >= 1")
        if problems:
            raise ConfigError(problems, subject="inline engine")
        self._open_reader = open_reader
        self._open_sample = open_reader if open_sample is None else open_sample
        self._available = available
        self._columns = tuple(columns)
        self._following = following
        self._decode = decode
        self._decoder: RowDecoder | None = None
        if decode is not None and not decode.infers:
            self._decoder = window_decoder(
                decode, available, following, subject="inline engine"
            )  # validate before reading
        self._corrupt_records = corrupt_records
        self._row_group_bytes = row_group_bytes
        self._target_file_bytes = target_file_bytes
        self._compression = compression
        self._corrupt = QuarantineFile() if corrupt is None else corrupt
        self._cancelled = threading.Event()

    @classmethod
    def for_source(cls, source: Source, *, policies: Policies, **options: Any) -> InlineEngine:
        """Create an engine that reads from `source` under `policies`."""
        corrupt = QuarantineFile()

        def open_reader(plan: WindowPlan) -> AbstractContextManager[RecordReader]:
            return source.open_reader(plan, policies, quarantine=corrupt.add)

        lenient = replace(policies, corrupt_records=CorruptRecords.DROP, gap_policy=GapPolicy.SKIP)
        return cls(
            open_reader,
            open_sample=lambda plan: source.open_reader(plan, lenient),
            kind=source.space.source,
            corrupt=corrupt,
            corrupt_records=policies.corrupt_records,
            **options,
        )

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
        """Write one file per range, or files of about `target_file_bytes`; none for a window
        without records. Raises `WindowError` after `cancel`."""
        self._stop_if_cancelled(f"window {plan.window_id}")
        counted = _Counted(dict.fromkeys(plan.ranges, 0), dict.fromkeys(plan.ranges, 0))
        bad_records = BadRecords(self._corrupt_records, self._corrupt.add)
        location = location_of(staging)
        if self._decode is not None and self._decoder is None:
            spec = infer(self._decode, lambda: self._sample(plan))
            self._decoder = window_decoder(
                spec, self._available, self._following, subject="inline engine"
            )
        if self._decoder is not None:
            self._decoder.notices.clear()
        reducer = None
        if self._following is not None and self._decoder is not None:
            reducer = Reducer(self._decoder.schema, self._following)
        with (
            self._corrupt.into(location, CORRUPT_FILE),
            self._open_reader(plan) as reader,
            self._writer(location, staging) as writer,
        ):
            if isinstance(reader, ExpectingReader):
                reader.expect(plan.reads())
            for range_ in plan.reads():
                known_gaps = len(reader.stats.gaps)
                output = _Output(writer, bad_records, counted, reducer)
                self._write(plan, reader, range_, output, watch)
                new_gaps = [[gap.start, gap.end] for gap in reader.stats.gaps[known_gaps:]]
                if new_gaps:
                    counted.gaps.setdefault(range_.partition.key, []).extend(new_gaps)
                watch.progress("range written")
            if reducer is not None:
                _write_reduced(plan, reducer, writer, counted, watch)
            corrupt, last = reader.stats.corrupt + bad_records.count, dict(reader.stats.last)
        return IngestCounts(
            counted.records,
            counted.bytes,
            counted.gaps,
            corrupt,
            pieces=counted.pieces,
            last=last,
            files=with_file_parts(writer.files, writer.pieces),
            quarantined=(CORRUPT_FILE,) if len(self._corrupt) else (),
            read=None if self._decoder is None else counted.read,
            notices={} if self._decoder is None else dict(self._decoder.notices),
        )

    def cancel(self) -> None:
        """Stop before the next batch, or before the first. A cancelled engine cannot be used
        again."""
        self._cancelled.set()

    def _stop_if_cancelled(self, what: str) -> None:
        if self._cancelled.is_set():
            raise WindowError(f"cancelled while reading {what}")

    def _sample(self, plan: WindowPlan) -> pa.BinaryArray:
        with self._open_sample(plan) as reader:
            return first_bodies(reader, plan)

    @property
    def _schema(self) -> pa.Schema:
        """Schema of the written files."""
        if self._decoder is not None:
            return reduced_schema(self._decoder.schema, self._following)
        return self._raw_schema

    @cached_property
    def _raw_schema(self) -> pa.Schema:
        """Schema of records that are not decoded: built once, and used for each range."""
        return self._available.arrow_schema(self._columns)

    def _writer(self, location: Location, staging: Staging) -> StagedWriter | PartitionedWriter:
        return staged_writer(
            location,
            "part",
            self._schema,
            staging.partition_by,
            staging.field_ids,
            target_bytes=self._target_file_bytes,
            row_group_bytes=self._row_group_bytes,
            compression=self._compression,
            columns=self._available,
        )

    def _write(
        self,
        plan: WindowPlan,
        reader: RecordReader,
        range_: Any,
        output: _Output,
        watch: IngestWatch,
    ) -> None:
        key, writer, counted = range_.partition.key, output.writer, output.counted
        if output.reducer is None:
            writer.begin_range(range_)
        for converted, read, nbytes in self._converted(self._read(reader, range_), output):
            counted.read[key] += read
            counted.total += read
            counted.bytes += nbytes
            watch.on_read(plan, key, counted.read[key], counted.total)
            if output.reducer is not None:
                output.reducer.add(converted)
                continue
            counted.records[key] += converted.num_rows
            if writer.add(converted, nbytes, range_.start):
                watch.progress("row group written")
        if output.reducer is None:
            writer.end_range()
        counted.pieces.setdefault(key, []).append([range_.start, range_.end])

    def _read(self, reader: RecordReader, range_: Any) -> Iterator[Any]:
        for batch in reader.read(range_):
            self._stop_if_cancelled(str(range_))
            yield batch

    def _converted(
        self, batches: Iterator[Any], output: _Output
    ) -> Iterator[tuple[pa.RecordBatch, int, int]]:
        """Yield rows, the number of records they are made of, and the bytes of their bodies."""
        if self._decoder is None:
            for batch in batches:
                converted = batch.to_arrow(self._schema)
                yield converted, converted.num_rows, batch.nbytes
            return
        for group in self._decoder.groups(batches):
            converted, read = self._decoder.rows_of(group, output.bad_records)
            yield converted, read, sum(batch.nbytes for batch in group)


@dataclass
class _Counted:
    """Counts of an ingest so far: `read` records and the rows made of them (`records`) per
    partition; `total` records of all partitions."""

    records: dict[str, int]
    read: dict[str, int]
    bytes: int = 0
    total: int = 0
    gaps: dict[str, list[list[int]]] = field(default_factory=dict)
    pieces: dict[str, list[list[int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Output:
    """Destination of records: data files or quarantine, and the counts."""

    writer: StagedWriter | PartitionedWriter
    bad_records: BadRecords
    counted: _Counted
    reducer: Reducer | None = None


def _write_reduced(
    plan: WindowPlan,
    reducer: Reducer,
    writer: StagedWriter | PartitionedWriter,
    counted: _Counted,
    watch: IngestWatch,
) -> None:
    """Write the last change of each key under the first range of its partition."""
    first: dict[str, Any] = {}
    for range_ in plan.reads():
        first.setdefault(range_.partition.key, range_)
    for key, batches in reducer.by_partition(first):
        counted.records[key] = sum(batch.num_rows for batch in batches)
        writer.begin_range(first[key])
        for batch in batches:
            writer.add(batch, batch.nbytes, first[key].start)
            watch.progress("row group written")
        writer.end_range()
