"""Direct write of a frame: tasks write the rows of a transform, and report the files.

`format("tubemq_reported_read")` reads like the format of a kind; its tasks leave their reports in
the window's staging place. `frame.write.format("tubemq_rows_write")` writes rows as
`direct_write_tasks` writes records: with pyarrow, to their final place. Only files of tasks that
Spark has committed are reported, so those of other attempts are never used. Internal to the session
engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from tubemq_provider.files.footers import fact_to_json
from tubemq_provider.files.locations import location_at
from tubemq_provider.files.partitioned import staged_writer
from tubemq_provider.files.writer import with_file_parts
from tubemq_provider.spark.attempts import QuarantineLocation, attempt_name
from tubemq_provider.spark.credentials_file import storage_from
from tubemq_provider.spark.formats import format_of
from tubemq_provider.spark.reading import schema_of
from tubemq_provider.spark.task_metrics import ReportDirectory
from tubemq_provider.windows.field_ids import FieldIds
from tubemq_provider.windows.partitioning import PartitionBy

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tubemq_provider.spark.reading import BatchReader

OPTION: Final = "order"

COMMITS: Final = "files.json"
"""Name of the document with the written files, in the place of the reports: of each file its fact
as JSON (`files.footers.fact_to_json`), and its rows by partition key."""


@dataclass(frozen=True, slots=True)
class ReportedRead:
    """Parameters of a read: the kind of source, the place of the tasks' reports, the file on the
    driver's host with the options that open it, and the place of quarantine files, if corrupt
    records are kept."""

    kind: str
    directory: str
    storage_file: str | None = None
    aside: str | None = None

    def option(self) -> dict[str, str]:
        """Return the parameters as options of the frame."""
        return {OPTION: json.dumps(asdict(self))}


class ReportedReadSource(DataSource):
    """`format("tubemq_reported_read")`, with the schema of the kind's own format."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        source_options = dict(options)
        self._order = ReportedRead(**json.loads(source_options.pop(OPTION)))
        self._source_options = source_options

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "tubemq_reported_read"

    def schema(self) -> str:
        """Return the columns of records, or of the rows that are decoded from them."""
        reader = format_of(self._order.kind).batch_reader(self._source_options, None)
        return schema_of(reader.options, reader.COLUMNS)

    def reader(self, schema: StructType) -> BatchReader[Any]:
        """Return the kind's reader, configured with the places of reports and quarantine files."""
        order = self._order
        opens = storage_from(order.storage_file)
        reader = format_of(order.kind).batch_reader(self._source_options, schema)
        reader.reports = ReportDirectory(order.directory, opens)
        reader.aside = None if order.aside is None else QuarantineLocation(order.aside, opens)
        return reader


@dataclass(frozen=True, slots=True)
class FrameWriteTask:
    """Parameters of a write: the place of the files, the place of the reports, the file on the
    driver's host with the options that open both places, the size of files (bytes; None: one for
    each task), their partitioning (`PartitionBy` as JSON), and the field ids of their columns
    (`FieldIds` as JSON)."""

    directory: str
    reports: str
    storage_file: str | None = None
    target_bytes: int | None = None
    partition_by: str | None = None
    field_ids: str | None = None

    def option(self) -> dict[str, str]:
        """Return the parameters as options of the write."""
        return {OPTION: json.dumps(asdict(self))}


class RowsWriteSource(DataSource):
    """`frame.write.format("tubemq_rows_write")`: rows with the column ``partition``."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "tubemq_rows_write"

    def writer(self, schema: StructType, overwrite: bool) -> RowsWriter:  # noqa: ARG002, FBT001
        """Create the writer on the driver; tasks get it pickled."""
        order = FrameWriteTask(**json.loads(self.options[OPTION]))
        opens = storage_from(order.storage_file)
        return RowsWriter(order, opens)


@dataclass(frozen=True)
class Files(WriterCommitMessage):
    """Commit message of one task: a fact of each file as JSON, and its rows by partition key."""

    found: tuple[tuple[str, dict[str, int]], ...] = ()


class RowsWriter(DataSourceArrowWriter):
    """Writer of the rows of tasks, which reports their files.

    Columns are those that Spark's own writer makes: instants are UTC. Raises errors of the storage,
    and `ConfigError` for values that files cannot be partitioned by.
    """

    def __init__(self, order: FrameWriteTask, storage: Mapping[str, str]) -> None:
        self._order = order
        self._storage = dict(storage)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        import pyarrow as pa

        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        if first is None:
            return Files()
        schema = pa.schema([_in_utc(field) for field in first.schema])
        order = self._order
        with staged_writer(
            location_at(order.directory, self._storage),
            f"part-{attempt_name()}",
            schema,
            PartitionBy.from_json(order.partition_by) if order.partition_by else None,
            FieldIds.from_json(order.field_ids) if order.field_ids else None,
            target_bytes=order.target_bytes,
        ) as writer:
            for batch in chain((first,), batches):
                writer.add(batch.cast(schema), 0)
        facts = with_file_parts(writer.files, writer.pieces)
        return Files(tuple((fact_to_json(fact), dict(fact.partitions or {})) for fact in facts))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report the files of all tasks to the driver's half, in the place of the reports."""
        files = [file for each in messages if isinstance(each, Files) for file in each.found]
        ReportDirectory(self._order.reports, self._storage).put(COMMITS, files)


def _in_utc(field: pa.Field) -> pa.Field:
    """Return the column with instants in UTC: Spark passes them in the session's zone."""
    return field.with_type(_type_in_utc(field.type))


def _type_in_utc(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([_in_utc(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_type_in_utc(kind.key_type), _in_utc(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_in_utc(kind.value_field))
    return kind
