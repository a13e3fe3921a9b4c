"""Direct write: Spark tasks write Parquet themselves and report the files to the driver.

`format("tubemq_direct_write")` reads like the format of a source's kind, but a task writes its
records with pyarrow, straight from Arrow batches, to their final place, and yields a row per part
of a file instead of the records. Data does not pass through the JVM or the driver. A task attempt
that is retried or runs twice writes files with other names; only files in the collected manifest
are ever used. Internal to the session engine, which sets the option `direct_write` in addition to
those of the source.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tubemq_client.model import CorruptRecords
from tubemq_provider.files.footers import fact_to_json
from tubemq_provider.files.locations import Location, location_at
from tubemq_provider.files.partitioned import PartitionedWriter, staged_writer
from tubemq_provider.files.quarantine import QuarantineFile
from tubemq_provider.files.writer import ROW_GROUP_BYTES, FilePart, StagedWriter
from tubemq_provider.rows.changes.reduction import Reducer, reduced_schema
from tubemq_provider.rows.decoding import BadRecords, RowDecoder
from tubemq_provider.spark.attempts import attempt_name, quarantine_name
from tubemq_provider.spark.credentials_file import storage_from
from tubemq_provider.spark.formats import format_of
from tubemq_provider.spark.read_ahead import ReadAhead
from tubemq_provider.spark.reading import BatchReader, SplitPartition, decoder_of
from tubemq_provider.spark.task_metrics import report_read
from tubemq_provider.windows.field_ids import FieldIds
from tubemq_provider.windows.following import Following
from tubemq_provider.windows.partitioning import PartitionBy
from tubemq_provider.windows.spaces import FIRST_SOURCE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tubemq_provider.files.columns import ColumnSet
    from tubemq_provider.spark.splits import Split
    from tubemq_provider.windows.facts import FileFact

OPTION = "direct_write"
"""Name of the option that holds a `WriteTask` as JSON."""
SLICES: Final = "_slices"
"""Directory, in the place that tasks write to, of the slices of a table that follows changes."""


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Parameters of the tasks: a shared directory that exists, or a prefix of an object store (and
    the file on the driver's host with the options that open it); the size of files (bytes, None: a
    file per split), the number of tasks that share the splits, whether corrupt records are
    quarantined, the kind of the source, the partitioning of files (`PartitionBy`), the field ids of
    their columns (`FieldIds`), and how the table follows changes (`Following`; all three as JSON):
    a task then writes a slice for each split, the last change of each key in it, below `SLICES`."""

    directory: str
    storage_file: str | None = None
    target_bytes: int | None = None
    tasks: int | None = None
    quarantine: bool = False
    kind: str = FIRST_SOURCE
    partition_by: str | None = None
    field_ids: str | None = None
    following: str | None = None

    def to_json(self) -> str:
        """Return the option's value."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class TaskCommit(FilePart):
    """Part of a file, as reported by the task that wrote it; `path` is a name in the staging
    directory.

    `corrupt`, `gaps` (JSON, `[[start, end], …]`), `quarantined` (a file of corrupt records), `last`
    (JSON, the anchor of the last record), `read` (records, where rows are decoded from them) and
    `notices` (JSON, records without a row by kind) are in the last part of each split; `file`, the
    facts of the file (`files.footers.fact_to_json`), in the last part of each file.
    """

    corrupt: int = 0
    gaps: str = "[]"
    quarantined: str = ""
    last: str = "[]"
    file: str = ""
    read: int = 0
    notices: str = "{}"

    @classmethod
    def ddl(cls) -> str:
        """Return the schema of manifests as Spark SQL's DDL."""
        kinds = {"str": "string", "int": "bigint"}
        return ", ".join(f"`{item.name}` {kinds[str(item.type)]}" for item in fields(cls))


class DirectWritePartition(InputPartition):
    """Work of one task: one or several splits, one after the other."""

    def __init__(self, splits: tuple[SplitPartition, ...]) -> None:
        super().__init__(None)
        self.splits = splits


class DirectWriteSource(DataSource):
    """`format("tubemq_direct_write")`. Options: those of its kind, and `direct_write`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        source_options = dict(options)
        self._order = WriteTask(**json.loads(source_options.pop(OPTION)))
        self._source_options = source_options

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "tubemq_direct_write"

    def schema(self) -> str:
        """Return the schema of manifest rows."""
        return TaskCommit.ddl()

    def reader(self, schema: StructType) -> DirectWriteReader:
        """Return the reader whose tasks write the files."""
        order = self._order
        opens = storage_from(order.storage_file)
        return DirectWriteReader(
            format_of(order.kind).batch_reader(self._source_options, schema), order, opens
        )


class SplitsWriter(DataSourceReader):
    """Base of readers with the splits of a kind's reader, in a number of `tasks` (None: one for
    each split), which write files and yield documents about them."""

    def __init__(
        self,
        reader: BatchReader[Any],
        storage: Mapping[str, str],
        *,
        tasks: int | None,
        quarantine: bool,
    ) -> None:
        self._reader = reader
        self._options = reader.options
        self._storage = dict(storage)
        self._tasks = tasks
        self._quarantine = quarantine

    def partitions(self) -> list[InputPartition]:
        """Return one task per split, or the requested number, with splits assigned longest
        first."""
        planned = self._reader.partitions()
        splits = [item for item in planned if isinstance(item, SplitPartition)]
        count = min(len(splits), self._tasks or len(splits))
        loads: list[list[SplitPartition]] = [[] for _ in range(count)]
        sizes = [0] * count
        for item in splits:
            lightest = sizes.index(min(sizes))
            loads[lightest].append(item)
            sizes[lightest] += item.split.range.entries
        return [DirectWritePartition(tuple(load)) for load in loads] or planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write the files of one task; yield its manifest when all of them are closed."""
        if not isinstance(partition, DirectWritePartition):
            return iter(())
        return self._write_files(partition.splits)

    @abstractmethod
    def _write_files(self, splits: Sequence[SplitPartition]) -> Iterator[pa.RecordBatch]:
        """Write the files of one task; yield what the driver needs to know of them."""

    def _quarantining(
        self, item: SplitPartition, corrupt: QuarantineFile
    ) -> AbstractContextManager[Any]:
        if not self._quarantine:
            return self._reader.open_reader(item)
        return self._reader.open_reader(item, corrupt_records="quarantine", quarantine=corrupt.add)


class DirectWriteReader(SplitsWriter):
    """Reader with the splits of the kind's reader; tasks write files and yield manifest rows."""

    def __init__(
        self, reader: BatchReader[Any], order: WriteTask, storage: Mapping[str, str]
    ) -> None:
        super().__init__(reader, storage, tasks=order.tasks, quarantine=order.quarantine)
        self._order = order

    def _write_files(self, splits: Sequence[SplitPartition]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        location, attempt = location_at(self._order.directory, self._storage), attempt_name()
        columns = self._reader.COLUMNS
        data, text = location, self._order.following
        following = None if text is None else Following.from_json(text)
        key = () if following is None else following.key
        decoder = decoder_of(self._options, columns, key=key)
        schema = columns.arrow_schema(self._options.columns) if decoder is None else decoder.schema
        schema = reduced_schema(schema, following)
        if following is not None:
            data = location_at(f"{self._order.directory}/{SLICES}", self._storage)
        rows: list[TaskCommit] = []
        by, ids = self._order.partition_by, self._order.field_ids
        with staged_writer(
            data,
            f"part-{attempt}",
            schema,
            PartitionBy.from_json(by) if by else None,
            FieldIds.from_json(ids) if ids else None,
            target_bytes=self._order.target_bytes,
            columns=columns,
        ) as writer:
            for item in splits:
                quarantine_file = quarantine_name(attempt, item.split)
                output = _Output(writer, decoder, following)
                rows += self._write(item, output, location, quarantine_file)
        if rows:
            manifest = [asdict(row) for row in _with_files(rows, writer.files)]
            yield pa.RecordBatch.from_pylist(manifest, _arrow_manifest())

    def _write(
        self,
        item: SplitPartition,
        output: _Output,
        location: Location,
        quarantine_file: str,
    ) -> list[TaskCommit]:
        """Write the records of one split into files; return its rows of the manifest."""
        writer, decoder = output.writer, output.decoder
        reducer = output.reducer()
        corrupt, parts_before, range_ = QuarantineFile(), len(writer.pieces), item.split.range
        policy = "quarantine" if self._order.quarantine else self._options.corrupt_records
        bad_records = BadRecords(CorruptRecords(policy), corrupt.add)
        converter = RowsOfRange(decoder, bad_records, self._reader.COLUMNS, self._options.columns)
        with ExitStack() as stack:
            stack.enter_context(corrupt.into(location, quarantine_file))
            reader = stack.enter_context(self._quarantining(item, corrupt))
            writer.begin_range(range_)
            # Read about one row group ahead while another is written.
            batches = self._reader.batches_of(reader, range_)
            ahead = ReadAhead(_sized(batches, converter, range_.start), ROW_GROUP_BYTES)
            for rows, body_bytes, start in stack.enter_context(ahead):
                if reducer is None:
                    writer.add(rows, body_bytes, start)
                else:
                    reducer.add(rows)
            if reducer is not None:
                for _, batches in reducer.by_partition([range_.partition.key]):
                    for batch in batches:
                        writer.add(batch, batch.nbytes, range_.start)
            writer.end_range()
        report_read(item.split, reader.stats, None, bad=bad_records.count)
        decoding = _DecodeResult(
            converter.read,
            bad_records.count,
            quarantine_file if len(corrupt) else "",
            {} if decoder is None else dict(decoder.notices),
        )
        if decoder is not None:
            decoder.notices.clear()
        return _rows(writer.pieces[parts_before:], item.split, reader, decoding)


@dataclass(frozen=True, slots=True)
class _Output:
    """Destination of records: data files, of rows or of the last change of each key."""

    writer: StagedWriter | PartitionedWriter
    decoder: RowDecoder | None
    following: Following | None

    def reducer(self) -> Reducer | None:
        """Return a reducer for one split of a table that follows changes."""
        if self.following is None or self.decoder is None:
            return None
        return Reducer(self.decoder.schema, self.following)


@dataclass(frozen=True, slots=True)
class _DecodeResult:
    """Result of decoding a split: records read, bad records, their quarantine file, and records
    without a row."""

    read: int
    bad: int
    aside: str
    notices: Mapping[str, int]


class RowsOfRange:
    """Converter of fetched batches to Arrow rows, which counts the records. It groups batches that
    are decoded together."""

    def __init__(
        self,
        decoder: RowDecoder | None,
        bad_records: BadRecords,
        records: ColumnSet,
        columns: Sequence[str],
    ) -> None:
        self.read = 0
        self._decoder = decoder
        self._rejects = bad_records
        self._schema = records.arrow_schema(columns) if decoder is None else decoder.read_schema

    def groups(self, batches: Iterable[Any]) -> Iterator[list[Any]]:
        """Group `batches` for `of`."""
        return (
            ([one] for one in batches) if self._decoder is None else self._decoder.groups(batches)
        )

    def of(self, group: Sequence[Any]) -> pa.RecordBatch:
        """Return the rows of the batches of a group."""
        if self._decoder is None:
            rows = group[0].to_arrow(self._schema)
            self.read += rows.num_rows
            return rows
        rows, read = self._decoder.rows_of(group, self._rejects)
        self.read += read
        return rows


def _sized(
    batches: Any, converter: RowsOfRange, start: int
) -> Generator[tuple[tuple[pa.RecordBatch, int, int], int], None, None]:
    """Yield the rows of `batches` with the bytes of their bodies and the offset they begin at, and
    their size in memory. Batches that do not say their offset have that of the range, `start`."""
    with closing(batches):
        for group in converter.groups(batches):
            rows = converter.of(group)
            begin = getattr(group[0], "start", start)
            yield (rows, sum(one.nbytes for one in group), begin), rows.nbytes


def _rows(
    pieces: Sequence[FilePart], split: Split, reader: Any, decoding: _DecodeResult
) -> list[TaskCommit]:
    gaps = json.dumps([[gap.start, gap.end] for gap in reader.stats.gaps])
    commits = [TaskCommit(**asdict(piece)) for piece in pieces]
    anchor = json.dumps(reader.stats.last.get(split.range.partition.key, ()))
    last = replace(
        commits[-1],
        corrupt=reader.stats.corrupt + decoding.bad,
        gaps=gaps,
        quarantined=decoding.aside,
        last=anchor,
        read=decoding.read,
        notices=json.dumps(decoding.notices),
    )
    return [*commits[:-1], last]


def _with_files(rows: Sequence[TaskCommit], files: Sequence[FileFact]) -> list[TaskCommit]:
    """Add the facts of each file to its last part in `rows`."""
    last = {row.path: index for index, row in enumerate(rows)}
    commits = list(rows)
    for fact in files:
        index = last[fact.path]
        commits[index] = replace(commits[index], file=fact_to_json(fact))
    return commits


def _arrow_manifest() -> pa.Schema:
    import pyarrow as pa

    kinds = {"str": pa.string(), "int": pa.int64()}
    return pa.schema([(item.name, kinds[str(item.type)]) for item in fields(TaskCommit)])
