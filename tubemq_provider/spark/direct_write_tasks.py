"""Direct write: Spark tasks write Parquet themselves and tell the driver what they wrote.

`format("tubemq_direct_write")` reads like the format of a source's kind, but a task writes its
records with pyarrow, straight from Arrow batches, to where the files will stay, and yields a row
per piece of a file instead of the records. Nothing passes through the JVM or the driver. A task
that is tried again, or runs twice, writes files of another name; only files that come back in the
manifest are ever used. Internal to the session engine, which gives the option `direct_write` beside
those of the source.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tubemq_provider.files.footers import fact_to_json
from tubemq_provider.files.locations import Location, location_at
from tubemq_provider.files.partitioned import PartitionedWriter, staged_writer
from tubemq_provider.files.quarantine import QuarantineFile
from tubemq_provider.files.writer import ROW_GROUP_BYTES, FilePiece, StagedWriter
from tubemq_provider.rows.decoding import Rejects, RowDecoder
from tubemq_provider.spark.attempts import aside_name, attempt_name
from tubemq_provider.spark.credentials_file import storage_from
from tubemq_provider.spark.formats import format_of
from tubemq_provider.spark.read_ahead import ReadAhead
from tubemq_provider.spark.reading import BatchReader, SplitPartition, decoder_of
from tubemq_provider.spark.task_metrics import report_read
from tubemq_provider.windows.field_ids import FieldIds
from tubemq_provider.windows.partitioning import PartitionBy
from tubemq_provider.windows.spaces import FIRST_SOURCE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tubemq_provider.files.columns import ColumnSet
    from tubemq_provider.spark.splits import Split
    from tubemq_provider.windows.facts import FileFact

__all__ = ["OPTION", "DirectWriteSource", "TaskCommit", "WriteTask"]

OPTION = "direct_write"
"""The option that holds a `WriteTask` as JSON."""


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What tasks are told: a directory that exists and that all share, or a prefix of an object
    store (and the file on the driver's host that has what opens it); the size of files (bytes,
    None: a file per split), how many tasks may share the splits, whether corrupt records are
    set aside, the kind of source that is read, what files are apart by (`PartitionBy` as JSON),
    and the numbers of their columns (`FieldIds` as JSON)."""

    directory: str
    storage_file: str | None = None
    target_bytes: int | None = None
    tasks: int | None = None
    quarantine: bool = False
    kind: str = FIRST_SOURCE
    partition_by: str | None = None
    field_ids: str | None = None

    def to_json(self) -> str:
        """The option's value."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class TaskCommit(FilePiece):
    """A piece of a file, as the task that wrote it says; `path` is a name in the staging directory.

    `corrupt`, `gaps` (JSON, `[[start, end], …]`), `quarantined` (a file of corrupt records), `last`
    (JSON, the anchor of the last record) and `read` (records, where rows are decoded from them)
    stand in the last piece of each split; `file`, what is known of the file
    (`files.footers.fact_to_json`), in the last piece of each file.
    """

    corrupt: int = 0
    gaps: str = "[]"
    quarantined: str = ""
    last: str = "[]"
    file: str = ""
    read: int = 0

    @classmethod
    def ddl(cls) -> str:
        """The schema of manifests as Spark SQL writes it."""
        kinds = {"str": "string", "int": "bigint"}
        return ", ".join(f"`{item.name}` {kinds[str(item.type)]}" for item in fields(cls))


class DirectWritePartition(InputPartition):
    """What one task writes: one or several splits, one after the other."""

    def __init__(self, splits: tuple[SplitPartition, ...]) -> None:
        super().__init__(None)
        self.splits = splits


class DirectWriteSource(DataSource):
    """`format("tubemq_direct_write")`. Options: its kind's own, and `direct_write`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        given = dict(options)
        self._order = WriteTask(**json.loads(given.pop(OPTION)))
        self._given = given

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tubemq_direct_write"

    def schema(self) -> str:
        """Manifest rows."""
        return TaskCommit.ddl()

    def reader(self, schema: StructType) -> DirectWriteReader:
        """Plans and writes."""
        order = self._order
        opens = storage_from(order.storage_file)
        return DirectWriteReader(
            format_of(order.kind).batch_reader(self._given, schema), order, opens
        )


class DirectWriteReader(DataSourceReader):
    """Splits as the kind's own reader plans them; tasks write files and yield manifest rows."""

    def __init__(
        self, reader: BatchReader[Any], order: WriteTask, storage: Mapping[str, str]
    ) -> None:
        self._reader = reader
        self._options = reader.options
        self._order = order
        self._storage = dict(storage)

    def partitions(self) -> list[InputPartition]:
        """A task per split, or as many as ordered, with splits dealt out longest first."""
        planned = self._reader.partitions()
        splits = [item for item in planned if isinstance(item, SplitPartition)]
        count = min(len(splits), self._order.tasks or len(splits))
        loads: list[list[SplitPartition]] = [[] for _ in range(count)]
        sizes = [0] * count
        for item in splits:
            lightest = sizes.index(min(sizes))
            loads[lightest].append(item)
            sizes[lightest] += item.split.range.entries
        return [DirectWritePartition(tuple(load)) for load in loads] or planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write the files of one task; yields its manifest when all of them are closed."""
        if not isinstance(partition, DirectWritePartition):
            return iter(())
        return self._land(partition.splits)

    def _land(self, splits: Sequence[SplitPartition]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        location, attempt = location_at(self._order.directory, self._storage), attempt_name()
        columns = self._reader.COLUMNS
        decoder = decoder_of(self._options, columns)
        schema = columns.arrow_schema(self._options.columns) if decoder is None else decoder.schema
        rows: list[TaskCommit] = []
        by, ids = self._order.partition_by, self._order.field_ids
        with staged_writer(
            location,
            f"part-{attempt}",
            schema,
            PartitionBy.from_json(by) if by else None,
            FieldIds.from_json(ids) if ids else None,
            target_bytes=self._order.target_bytes,
            columns=columns,
        ) as writer:
            for item in splits:
                aside = aside_name(attempt, item.split)
                rows += self._write(item, writer, decoder, location, aside)
        if rows:
            told = [asdict(row) for row in _with_files(rows, writer.files)]
            yield pa.RecordBatch.from_pylist(told, _arrow_manifest())

    def _write(
        self,
        item: SplitPartition,
        writer: StagedWriter | PartitionedWriter,
        decoder: RowDecoder | None,
        location: Location,
        aside: str,
    ) -> list[TaskCommit]:
        """One split: its records into files, and its rows of the manifest."""
        corrupt, known, range_ = QuarantineFile(), len(writer.pieces), item.split.range
        policy = "quarantine" if self._order.quarantine else self._options.corrupt_records
        rejects = Rejects(policy, corrupt.add)
        made = RowsOfRange(decoder, rejects, self._reader.COLUMNS, self._options.columns)
        with ExitStack() as stack:
            stack.enter_context(corrupt.into(location, aside))
            reader = stack.enter_context(self._quarantining(item, corrupt))
            writer.begin_range(range_)
            # While a row group is written, about one more is read.
            batches = self._reader.batches_of(reader, range_)
            ahead = ReadAhead(_sized(batches, made), ROW_GROUP_BYTES)
            for rows, body_bytes, start in stack.enter_context(ahead):
                writer.add(rows, body_bytes, start)
            writer.end_range()
        report_read(item.split, reader.stats, None, bad=rejects.count)
        told = _Told(made.read, rejects.count, aside if len(corrupt) else "")
        return _rows(writer.pieces[known:], item.split, reader, told)

    def _quarantining(
        self, item: SplitPartition, corrupt: QuarantineFile
    ) -> AbstractContextManager[Any]:
        if not self._order.quarantine:
            return self._reader.open_reader(item)
        return self._reader.open_reader(item, corrupt_records="quarantine", quarantine=corrupt.add)


@dataclass(frozen=True, slots=True)
class _Told:
    """What decoding says of a split: records read, those that are bad, and the file they are in."""

    read: int
    bad: int
    aside: str


class RowsOfRange:
    """Arrow rows of fetched batches, and how many records they were made of."""

    def __init__(
        self,
        decoder: RowDecoder | None,
        rejects: Rejects,
        records: ColumnSet,
        columns: Sequence[str],
    ) -> None:
        self.read = 0
        self._decoder = decoder
        self._rejects = rejects
        self._schema = records.arrow_schema(columns) if decoder is None else decoder.read_schema

    def of(self, batch: Any) -> pa.RecordBatch:
        """The rows of `batch`."""
        records = batch.to_arrow(self._schema)
        self.read += records.num_rows
        return records if self._decoder is None else self._decoder.rows(records, self._rejects)


def _sized(
    batches: Any, made: RowsOfRange
) -> Generator[tuple[tuple[pa.RecordBatch, int, int], int], None, None]:
    """Rows of `batches` with the bytes of their bodies and the offset they begin at, and
    what they take in memory."""
    with closing(batches):
        for batch in batches:
            rows = made.of(batch)
            yield (rows, batch.nbytes, batch.start), rows.nbytes


def _rows(pieces: Sequence[FilePiece], split: Split, reader: Any, told: _Told) -> list[TaskCommit]:
    gaps = json.dumps([[gap.start, gap.end] for gap in reader.stats.gaps])
    found = [TaskCommit(**asdict(piece)) for piece in pieces]
    anchor = json.dumps(reader.stats.last.get(split.range.partition.key, ()))
    last = replace(
        found[-1],
        corrupt=reader.stats.corrupt + told.bad,
        gaps=gaps,
        quarantined=told.aside,
        last=anchor,
        read=told.read,
    )
    return [*found[:-1], last]


def _with_files(rows: Sequence[TaskCommit], files: Sequence[FileFact]) -> list[TaskCommit]:
    """`rows` with the facts of each file in its last piece."""
    last = {row.path: index for index, row in enumerate(rows)}
    told = list(rows)
    for fact in files:
        index = last[fact.path]
        told[index] = replace(told[index], file=fact_to_json(fact))
    return told


def _arrow_manifest() -> pa.Schema:
    import pyarrow as pa

    kinds = {"str": pa.string(), "int": pa.int64()}
    return pa.schema([(item.name, kinds[str(item.type)]) for item in fields(TaskCommit)])
