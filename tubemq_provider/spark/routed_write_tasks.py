"""Direct write for many tables: tasks divide what they read, and write the files of every table.

`format("tubemq_routed_write")` reads like the format of a source's kind. A task decodes each record
as its route says and writes it where its table's files are, or below the place of the whole window
if the driver did not know the table before; it yields one document with counts and files. Tables
that follow changes get a slice for each split: its last change of each key, which the driver
reduces once more. No task knows the address of a sink. Internal to the engines on Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource

from tubemq_client.model import CorruptRecords
from tubemq_provider.files.footers import fact_to_json
from tubemq_provider.files.locations import location_at
from tubemq_provider.files.partitioned import staged_writer
from tubemq_provider.files.quarantine import QuarantineFile
from tubemq_provider.rows.decoding import BadRecords, RowDecoder, window_decoder
from tubemq_provider.rows.routing import (
    GROUP_BYTES,
    NOWHERE,
    ROW_GROUP_BYTES,
    Division,
    Patterns,
    TableRows,
    Unrouted,
    combined,
    failure_of,
)
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.spark.attempts import attempt_name, quarantine_name
from tubemq_provider.spark.credentials_file import storage_from
from tubemq_provider.spark.direct_write_tasks import SplitsWriter
from tubemq_provider.spark.formats import format_of
from tubemq_provider.spark.read_ahead import ReadAhead
from tubemq_provider.spark.task_metrics import report_read
from tubemq_provider.windows.field_ids import FieldIds
from tubemq_provider.windows.following import Following
from tubemq_provider.windows.partitioning import PartitionBy
from tubemq_provider.windows.spaces import FIRST_SOURCE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tubemq_provider.files.columns import ColumnSet
    from tubemq_provider.files.writer import FilePart
    from tubemq_provider.spark.reading import BatchReader, SplitPartition
    from tubemq_provider.windows.facts import FileFact

OPTION: Final = "routed_write"
"""Name of the option that holds a `RoutedWriteTask` as JSON."""
NEW_TABLES: Final = "_routes"
"""Directory, in the place of the whole window, of files whose table the driver did not know."""


@dataclass(frozen=True, slots=True)
class TaskRoute:
    """Route as tasks know it: its pattern, how records are decoded and followed, how long a value
    may be in the address of its table (see `Patterns`), and the partitioning of new tables. Objects
    are as JSON."""

    pattern: str
    decode: str | None = None
    following: str | None = None
    longest: int | None = None
    partition_by: str | None = None

    @property
    def shared(self) -> bool:
        """True if all values have one table."""
        return self.longest is None

    def follows(self) -> Following | None:
        """Return how the tables follow changes, or None."""
        return None if self.following is None else Following.from_json(self.following)


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Place of a table's files (None: the records are only counted), their partitioning and field
    ids (as JSON)."""

    path: str | None
    partition_by: str | None = None
    field_ids: str | None = None


@dataclass(frozen=True)
class RoutedWriteTask:
    """Parameters of the tasks: the place of the whole window, what records are divided by, the
    routes, the places of known tables by `key_of`, why known values have none (`refused`), the only
    values that are read for (None: all), the policy for other records, and the size of files. With
    `isolates` a table that fails in a task is reported, and the others continue. `storage_file` is
    on the driver's host; it has the options of each place, as JSON by path."""

    directory: str
    by: str
    routes: tuple[TaskRoute, ...]
    places: Mapping[str, TablePlace]
    target_bytes: int
    format: str | None = None
    unrouted: str = "fail"
    only: tuple[str, ...] | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    isolates: bool = False
    tasks: int | None = None
    quarantine: bool = False
    kind: str = FIRST_SOURCE
    storage_file: str | None = None

    def to_json(self) -> str:
        """Return the option's value."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RoutedWriteTask:
        """Parse the result of `to_json`."""
        document = json.loads(text)
        document["routes"] = tuple(TaskRoute(**route) for route in document["routes"])
        document["places"] = {key: TablePlace(**p) for key, p in document["places"].items()}
        return cls(**document)

    @cached_property
    def patterns(self) -> Patterns:
        """Patterns of the routes."""
        routes = self.routes
        return Patterns(self.by, [r.pattern for r in routes], [r.longest for r in routes])

    def route_of(self, value: str | None) -> int | None:
        """Return the index of a value's route; None if no table is read for it."""
        if value is None or value == NOWHERE or not self.takes(value) or value in self.refused:
            return None
        return self.patterns.route_of(value)

    def refusal(self, value: str | None) -> str:
        """Return why no table takes a value."""
        return self.refused.get(value or "") or self.patterns.refusal(value)

    def takes(self, value: str) -> bool:
        """Return False for a value that is not read for."""
        return self.only is None or value in self.only

    def key_of(self, route: int, value: str) -> str:
        """Return the key of a value's table."""
        return f"{route}" if self.routes[route].shared else f"{route}:{value}"


class RoutedWriteSource(DataSource):
    """`format("tubemq_routed_write")`. Options: those of its kind, and `routed_write`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        source_options = dict(options)
        self._order = RoutedWriteTask.from_json(source_options.pop(OPTION))
        self._source_options = source_options

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "tubemq_routed_write"

    def schema(self) -> str:
        """Return the schema of the documents."""
        return "document string"

    def reader(self, schema: StructType) -> RoutedWriteReader:
        """Return the reader whose tasks write the files."""
        order = self._order
        opens = storage_from(order.storage_file)
        return RoutedWriteReader(
            format_of(order.kind).batch_reader(self._source_options, schema), order, opens
        )


class RoutedWriteReader(SplitsWriter):
    """Reader with the splits of the kind's reader; a task writes the files of all tables."""

    def __init__(
        self, reader: BatchReader[Any], order: RoutedWriteTask, storage: Mapping[str, str]
    ) -> None:
        super().__init__(reader, storage, tasks=order.tasks, quarantine=order.quarantine)
        self._order = order

    def _write_files(self, splits: Sequence[SplitPartition]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        attempt = attempt_name()
        tables = _Tables(self._order, self._reader.COLUMNS, attempt, self._storage)
        with ExitStack() as open_files:
            reads = [self._divide(item, tables, open_files, attempt) for item in splits]
            tables.finish()
        document = {"reads": reads, "tables": tables.documents()}
        yield pa.RecordBatch.from_pylist(
            [{"document": json.dumps(document)}], pa.schema([("document", pa.string())])
        )

    def _divide(
        self, item: SplitPartition, tables: _Tables, open_files: ExitStack, attempt: str
    ) -> dict[str, Any]:
        """Write the records of one split into the files of their tables; return its counts."""
        order, range_, columns = self._order, item.split.range, self._reader.COLUMNS
        corrupt, name = QuarantineFile(), quarantine_name(attempt, item.split)
        policy = "quarantine" if order.quarantine else self._options.corrupt_records
        bad_records = BadRecords(CorruptRecords(policy), corrupt.add)
        unrouted = Unrouted(order.unrouted, columns, corrupt.add)
        division, read, size = Division(order.by, order.format), 0, 0
        with ExitStack() as stack:
            stack.enter_context(corrupt.into(tables.home(), name))
            reader = stack.enter_context(self._quarantining(item, corrupt))
            groups = _groups(self._reader.batches_of(reader, range_), columns)
            for records, body_bytes in stack.enter_context(ReadAhead(groups, GROUP_BYTES)):
                read += records.num_rows
                size += body_bytes
                for value, part in division.parts(records):
                    route = order.route_of(value)
                    if route is None or value is None:
                        wanted = order.takes(value or "")
                        unrouted.add(part, value, order.refusal(value), wanted=wanted)
                        continue
                    tables.rows(route, value, item, open_files).add(part, bad_records)
                unrouted.check()
            tables.end_split()
        report_read(item.split, reader.stats, None, bad=bad_records.count)
        return {
            "partition": range_.partition.key,
            "start": range_.start,
            "end": range_.end,
            "read": read,
            "bytes": size,
            "gaps": [[gap.start, gap.end] for gap in reader.stats.gaps],
            "corrupt": reader.stats.corrupt + bad_records.count + unrouted.set_aside,
            "last": list(reader.stats.last.get(range_.partition.key, ())),
            "unrouted": dict(unrouted.counts),
            "notices": unrouted.notices,
            "quarantined": name if len(corrupt) else "",
        }


def _groups(
    batches: Any, columns: ColumnSet
) -> Generator[tuple[tuple[pa.RecordBatch, int], int], None, None]:
    """Yield records in batches of about `GROUP_BYTES`, with the bytes of their bodies and their
    size in memory."""
    schema = columns.arrow_schema(columns.names)
    with closing(batches):
        pending: list[pa.RecordBatch] = []
        waiting = 0
        for batch in batches:
            pending.append(batch.to_arrow(schema))
            waiting += batch.nbytes
            if waiting >= GROUP_BYTES:
                records = combined(pending)
                yield (records, waiting), records.nbytes
                pending, waiting = [], 0
        if any(batch.num_rows for batch in pending):
            records = combined(pending)
            yield (records, waiting), records.nbytes


class _TaskRows(TableRows):
    """Rows of one table in one task, or in one split of a table that follows changes. Its file
    begins with its first row."""

    def __init__(
        self,
        decoder: RowDecoder | None,
        following: Following | None,
        columns: ColumnSet,
        open_output: Callable[[pa.Schema], Any] | None,
        *,
        isolates: bool,
    ) -> None:
        super().__init__(decoder, following, columns, ())
        self._open_output = open_output
        self._isolates = isolates
        self.values: set[str] = set()
        self.failed: str | None = None

    def _put(self, rows: pa.RecordBatch) -> None:
        if self._open_output is None:
            return
        if self._output is None:
            self._output = self._open_output(self.schema)
        self._output.add(rows, rows.nbytes)

    def _guarded(self, action: Callable[[], None]) -> None:
        if self.failed is not None:
            return
        try:
            action()
        except Exception as error:
            if not self._isolates:
                raise
            self.failed = failure_of(error)
            self._give_up()

    def document(self) -> dict[str, Any]:
        """Return counts, facts of the files, which are closed, and why the table has failed."""
        output = self._output
        files: list[FileFact] = [] if output is None else output.files
        pieces: list[FilePart] = [] if output is None else output.pieces
        return {
            "values": sorted(self.values),
            "read": self.read,
            "rows": self.rows,
            "bytes": self.bytes,
            "notices": self.notices,
            "failed": self.failed,
            "files": [fact_to_json(fact) for fact in files],
            "pieces": [asdict(piece) for piece in pieces],
        }


@dataclass(slots=True)
class _Tables:
    """Tables of one task so far."""

    order: RoutedWriteTask
    columns: ColumnSet
    attempt: str
    storage: Mapping[str, str]
    _open: dict[str, tuple[dict[str, Any], _TaskRows]] = field(default_factory=dict)
    _slices: dict[str, tuple[dict[str, Any], _TaskRows]] = field(default_factory=dict)
    _done: list[dict[str, Any]] = field(default_factory=list)
    _decoders: dict[str, RowDecoder | None] = field(default_factory=dict)

    def home(self, below: str = "") -> Any:
        """Return the place of the whole window, or one below it."""
        place = self.order.directory
        options = json.loads(self.storage.get(place, "{}"))
        return location_at(f"{place}/{below}" if below else place, options)

    def rows(
        self, route: int, value: str, item: SplitPartition, open_files: ExitStack
    ) -> _TaskRows:
        """Return the rows of the table of a value."""
        key, chosen = self.order.key_of(route, value), self.order.routes[route]
        known = self._open if chosen.following is None else self._slices
        if key not in known:
            head: dict[str, Any] = {"route": route, "key": key}
            following = chosen.follows()
            if following is not None:
                head |= {"partition": item.split.range.partition.key}
                head |= {"start": item.split.range.start}
            opener = self._opener(route, key, open_files)
            decoder = self._decoder(route, key, fresh=following is not None)
            known[key] = (
                head,
                _TaskRows(decoder, following, self.columns, opener, isolates=self.order.isolates),
            )
        rows = known[key][1]
        rows.values.add(value)
        return rows

    def end_split(self) -> None:
        """Write the slices of the split; keep only their documents, as rows are in memory."""
        for head, rows in self._slices.values():
            rows.finish()
            self._done.append({**head, **rows.document()})
        self._slices.clear()

    def finish(self) -> None:
        """Close the files."""
        for _, rows in self._open.values():
            rows.finish()

    def documents(self) -> list[dict[str, Any]]:
        """Return a document for each table, or slice of one, whose files are closed."""
        tables = [{**head, **rows.document()} for head, rows in self._open.values()]
        return [*tables, *self._done]

    def _decoder(self, route: int, key: str, *, fresh: bool) -> RowDecoder | None:
        text = self.order.routes[route].decode
        if text is None:
            return None
        if fresh or key not in self._decoders:  # each counts its own notices
            spec = DecodeSpec.parse(text)
            self._decoders[key] = window_decoder(
                spec, self.columns, self.order.routes[route].follows(), subject="routes"
            )
        return self._decoders[key]

    def _opener(
        self, route: int, key: str, open_files: ExitStack
    ) -> Callable[[pa.Schema], Any] | None:
        place = self.order.places.get(key)
        if place is not None and place.path is None:
            return None
        if place is None or place.path is None:
            location, by, ids = self.home(NEW_TABLES), self.order.routes[route].partition_by, None
        else:
            location = location_at(place.path, json.loads(self.storage.get(place.path, "{}")))
            by, ids = place.partition_by, place.field_ids
        number = len(self._open) + len(self._slices) + len(self._done)

        def open_output(schema: pa.Schema) -> Any:
            return open_files.enter_context(
                staged_writer(
                    location,
                    f"part-{self.attempt}-{number}",
                    schema,
                    PartitionBy.from_json(by) if by else None,
                    FieldIds.from_json(ids) if ids else None,
                    target_bytes=self.order.target_bytes,
                    row_group_bytes=ROW_GROUP_BYTES,
                    columns=self.columns,
                )
            )

        return open_output
