"""Inline engine for routes: one read of a window, and the files of every table.

Records are divided where they are read, decoded as their route says, and staged in the sink of
their table. A table that has the window already gets no files; its records are decoded and counted
all the same, so that the sum is that of the whole window. This module must not publish anything.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_client.model import CorruptRecords
from tubemq_provider.files.arrays import texts
from tubemq_provider.files.columns import columns_of
from tubemq_provider.files.locations import location_of
from tubemq_provider.files.partitioned import staged_writer
from tubemq_provider.files.quarantine import CORRUPT_FILE, QuarantineFile
from tubemq_provider.files.writer import rows_by_key, with_file_parts
from tubemq_provider.rows.changes.envelopes import Notice, parse_body
from tubemq_provider.rows.changes.reduction import Reducer, reduced_schema
from tubemq_provider.rows.decoding import (
    BadRecord,
    BadRecords,
    RowDecoder,
    partition_of,
    window_decoder,
)
from tubemq_provider.sinks.routed import Route, RoutedSink, TableStaging, refuse_other_rows
from tubemq_provider.sources.base import ExpectingReader, RecordReader, Source
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import Engine, IngestCounts, IngestWatch, Staging
from tubemq_provider.windows.spaces import FIRST_SOURCE

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.files.columns import ColumnSet
    from tubemq_provider.windows.following import Following

__all__ = ["RoutedEngine"]

_ROW_GROUP_BYTES: Final = 4 * 1024 * 1024
"""Pending rows of one table; all tables of a window have theirs in memory."""
_FILE_BYTES: Final = 128 * 1024 * 1024
_GROUP_BYTES: Final = 16 * 1024 * 1024
"""Bodies that are read before they are divided, so that a table gets few and large batches."""
_CLOSING: Final = 4
"""Files that are finished at a time."""
_NOWHERE: Final = "\0"
"""Value of change records that are of no table, such as heartbeats."""


class RoutedEngine(Engine):
    """Engine that reads a window once for all tables of `sink`; see `Engine`."""

    name = "inline"

    def __init__(
        self,
        open_reader: Callable[[WindowPlan], AbstractContextManager[RecordReader]],
        sink: RoutedSink,
        *,
        kind: str = FIRST_SOURCE,
        corrupt: QuarantineFile | None = None,
        corrupt_records: CorruptRecords = CorruptRecords.FAIL,
        target_file_bytes: int | None = None,
        compression: str = "snappy",
    ) -> None:
        self._open_reader = open_reader
        self._sink = sink
        self._columns = columns_of(kind)
        self._corrupt = QuarantineFile() if corrupt is None else corrupt
        self._corrupt_records = corrupt_records
        self._target_file_bytes = target_file_bytes or _FILE_BYTES
        self._compression = compression
        self._cancelled = threading.Event()
        by = sink.routes.by
        if sink.routes.format is None and by not in self._columns.names:
            raise ConfigError(
                f"by: {by!r} is none of {', '.join(self._columns.names)}, and for _table or "
                "_database of change records 'format' is needed",
                subject="routes",
            )
        for route in sink.routes.routes:
            _decoder(route, self._columns)  # validate before reading

    @classmethod
    def for_source(
        cls, source: Source, sink: RoutedSink, *, policies: Policies, **options: Any
    ) -> RoutedEngine:
        """Create an engine that reads from `source` under `policies`."""
        corrupt = QuarantineFile()

        def open_reader(plan: WindowPlan) -> AbstractContextManager[RecordReader]:
            return source.open_reader(plan, policies, quarantine=corrupt.add)

        return cls(
            open_reader,
            sink,
            kind=source.space.source,
            corrupt=corrupt,
            corrupt_records=policies.corrupt_records,
            **options,
        )

    def into(self, sink: RoutedSink) -> RoutedEngine:
        """Return the same engine for other tables of the routes."""
        other = copy(self)
        other._sink = sink  # noqa: SLF001
        return other

    def cancel(self) -> None:
        """Stop before the next batch. A cancelled engine cannot be used again."""
        self._cancelled.set()

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
        """Stage the files of every table, and what is quarantined in the home's place."""
        bad_records = BadRecords(self._corrupt_records, self._corrupt.add)
        with (
            self._corrupt.into(location_of(staging), CORRUPT_FILE),
            self._open_reader(plan) as reader,
            ExitStack() as open_files,
        ):
            division = _Division(plan, staging, bad_records, open_files)
            self._open_tables(self._sink.expected, division)
            self._sink.refuse_if_all_failed(staging)
            if isinstance(reader, ExpectingReader):
                reader.expect(plan.reads())
            for records in self._groups(plan, reader, division, watch):
                self._divide(records, division)
            writers = list(division.writers.values())
            with ThreadPoolExecutor(_CLOSING, "tubemq-routes") as pool:
                list(pool.map(_TableWriter.finish, writers))
            set_aside = len(self._corrupt)
            corrupt, last = reader.stats.corrupt + bad_records.count, dict(reader.stats.last)
        notices: Counter[str] = Counter()
        for kind, count in (("heartbeat", division.nowhere), ("unrouted", division.ignored)):
            notices.update({kind: count} if count else {})
        for writer in writers:
            writer.table.counts = counts = writer.counts()
            notices.update(counts.notices)
        return IngestCounts(
            dict.fromkeys(plan.ranges, 0),
            division.size,
            division.gaps,
            corrupt + sum(division.unrouted.values()) - division.nowhere - division.ignored,
            last=last,
            files=(),
            quarantined=(CORRUPT_FILE,) if set_aside else (),
            read=division.read,
            notices=dict(notices),
            unrouted=dict(division.unrouted),
        )

    def _groups(
        self, plan: WindowPlan, reader: RecordReader, division: _Division, watch: IngestWatch
    ) -> Iterator[pa.RecordBatch]:
        """Read the window, and yield its records in batches of about `_GROUP_BYTES`, which may be
        of several partitions."""
        schema = self._columns.arrow_schema(self._columns.names)
        pending: list[pa.RecordBatch] = []
        waiting, read = 0, division.read
        for range_ in plan.reads():
            key, known_gaps = range_.partition.key, len(reader.stats.gaps)
            for batch in reader.read(range_):
                if self._cancelled.is_set():
                    raise WindowError(f"cancelled while reading {range_}")
                records = batch.to_arrow(schema)
                division.size += batch.nbytes
                read[key] += records.num_rows
                watch.on_read(plan, key, read[key], sum(read.values()))
                pending.append(records)
                waiting += batch.nbytes
                if waiting >= _GROUP_BYTES:
                    yield _combined(pending)
                    pending, waiting = [], 0
            if found := [[gap.start, gap.end] for gap in reader.stats.gaps[known_gaps:]]:
                division.gaps.setdefault(key, []).extend(found)
            watch.progress("range written")
        if pending:
            yield _combined(pending)

    def _divide(self, records: pa.RecordBatch, division: _Division) -> None:
        """Give each table its records."""
        parts = self._parts(records)
        self._open_tables([value for value, _ in parts if value is not None], division)
        for value, part in parts:
            writer = None if value is None else division.by_value.get(value)
            if writer is not None:
                writer.add(part, division.bad_records)
                continue
            division.unrouted.update(dict(rows_by_key(part)))
            if value == _NOWHERE:
                division.nowhere += part.num_rows
            elif self._sink.routes.unrouted == "ignore" or not self._sink.takes(value or ""):
                division.ignored += part.num_rows
            else:
                self._set_aside(part, value)

    def _open_tables(self, values: Iterable[str], division: _Division) -> None:
        """Open the tables of values that have none yet and that a route takes."""
        plan, routed = division.plan, []
        for value in values:
            if value not in division.by_value and value != _NOWHERE and self._sink.takes(value):
                route = self._sink.routes.route_of(value)
                routed += [] if route is None else [(route, value)]
        tables = self._sink.open_tables(division.staging, plan, routed)
        for (route, value), table in zip(routed, tables, strict=True):
            if table.address not in division.writers:
                writer = _TableWriter(
                    table,
                    _decoder(route, self._columns),
                    route.following,
                    self._columns,
                    self._sink.guard,
                    plan,
                )
                writer.open(division.open_files, self._target_file_bytes, self._compression)
                division.writers[table.address] = writer
            division.by_value[value] = division.writers[table.address]

    def _parts(self, records: pa.RecordBatch) -> list[tuple[str | None, pa.RecordBatch]]:
        """Return the records by their value, in the order of reading within each."""
        import pyarrow.compute as pc

        if self._sink.routes.format is None:
            values = records.column(self._sink.routes.by)
        else:
            values = texts([self._table_of(body) for body in records.column("value").to_pylist()])
        encoded = values.dictionary_encode(null_encoding="encode")
        distinct = encoded.dictionary.to_pylist()
        if len(distinct) == 1:
            return [(distinct[0], records)]
        order = pc.sort_indices(encoded.indices)  # stable
        counts = {
            item["values"]: item["counts"] for item in encoded.indices.value_counts().to_pylist()
        }
        parts, start = [], 0
        for code, value in enumerate(distinct):
            # A copy: a pending slice would keep all records in memory.
            parts.append((value, records.take(order.slice(start, counts[code]))))
            start += counts[code]
        return parts

    def _table_of(self, body: bytes | None) -> str | None:
        """Return the table, or database, that a change record names; None if it does not decode."""
        routes = self._sink.routes
        try:
            parsed = parse_body(routes.format or "", body or b"")
        except ValueError:
            return None
        if isinstance(parsed, Notice):
            if parsed.table is None:
                return _NOWHERE
            database, _, table = parsed.table.partition(".")
            return database if routes.by == "_database" else table or database
        change = parsed[0]
        return change.database if routes.by == "_database" else change.table

    def _set_aside(self, records: pa.RecordBatch, value: str | None) -> None:
        """Apply the policy for records that no route takes. Raises `ConfigError`."""
        routes = self._sink.routes
        if routes.unrouted == "fail":
            raise ConfigError(
                f"no route takes records with {routes.by} {value!r}; add one, or '*', or set "
                "unrouted='quarantine'",
                subject="routes",
            )
        offset, number = self._columns.place
        columns = ("partition", offset, number, "value")
        cells = zip(*(records.column(name).to_pylist() for name in columns), strict=True)
        for at, (key, first, message, body) in enumerate(cells):
            reason = f"no route takes {routes.by} {value!r}"
            entry = BadRecord(
                partition_of(str(key)), int(first), at, int(message), body or b"", reason
            )
            self._corrupt.add(entry)


@dataclass(slots=True)
class _Division:
    """One ingest: its tables so far, and what was read."""

    plan: WindowPlan
    staging: Staging
    bad_records: BadRecords
    open_files: ExitStack
    writers: dict[str, _TableWriter] = field(default_factory=dict)
    by_value: dict[str, _TableWriter] = field(default_factory=dict)
    read: dict[str, int] = field(init=False)
    size: int = 0
    gaps: dict[str, list[list[int]]] = field(default_factory=dict)
    unrouted: Counter[str] = field(default_factory=Counter)
    nowhere: int = 0
    ignored: int = 0

    def __post_init__(self) -> None:
        self.read = dict.fromkeys(self.plan.ranges, 0)


def _combined(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    (combined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return combined


class _TableWriter:
    """Writer of one table's rows, and its counts. Without a try, because the table has the window
    or has failed, rows are only counted, and bad records quarantined. `guard` does what may fail
    because of the table."""

    def __init__(
        self,
        table: TableStaging,
        decoder: RowDecoder | None,
        following: Following | None,
        columns: ColumnSet,
        guard: Callable[[TableStaging, Callable[[], None]], None],
        plan: WindowPlan,
    ) -> None:
        self.table = table
        self._decoder = decoder
        self._columns = columns
        self._guard = guard
        self._schema = columns.arrow_schema(columns.names) if decoder is None else decoder.schema
        self._reducer = None
        if following is not None:
            self._reducer = Reducer(self._schema, following)
            self._schema = reduced_schema(self._schema, following)
        self._output: Any = None
        self._read = dict.fromkeys(plan.ranges, 0)
        self._rows = dict.fromkeys(plan.ranges, 0)
        self._bytes = 0

    def open(self, open_files: ExitStack, target_bytes: int, compression: str) -> None:
        """Open the files of the table's try."""
        if self.table.failed is None:
            self._guard(self.table, lambda: self.table.sink.check_columns(self._schema))
        staging = self.table.staging
        if staging is None:
            return

        def open_output() -> None:
            self._output = open_files.enter_context(
                staged_writer(
                    location_of(staging),
                    "part",
                    self._schema,
                    staging.partition_by,
                    staging.field_ids,
                    target_bytes=target_bytes,
                    row_group_bytes=_ROW_GROUP_BYTES,
                    compression=compression,
                    columns=self._columns,
                )
            )

        self._guard(self.table, open_output)

    def add(self, records: pa.RecordBatch, bad_records: BadRecords) -> None:
        for key, count in rows_by_key(records):
            self._read[key] += count
        self._bytes += int(records.column("value").nbytes)
        rows = records
        if self._decoder is not None:
            rows = self._decoder.rows(records.select(self._decoder.read_schema.names), bad_records)
        if self._reducer is not None:
            self._reducer.add(rows)
        else:
            self._write(rows)

    def finish(self) -> None:
        """Write what was reduced, and finish the files."""
        if self._reducer is not None:
            for _, batches in self._reducer.by_partition(self._rows):
                for batch in batches:
                    self._write(batch)
        if self._output is not None and self.table.failed is None:
            self._guard(self.table, lambda: self._output.__exit__(None, None, None))

    def _write(self, rows: pa.RecordBatch) -> None:
        for key, count in rows_by_key(rows):
            self._rows[key] += count
        if self._output is not None and self.table.failed is None:
            self._guard(self.table, lambda: self._output.add(rows, rows.nbytes))

    def counts(self) -> IngestCounts:
        """Return the counts, after the files were closed. Raises `CountMismatch` if an earlier try
        has published other rows."""
        published = self.table.marker
        if published is not None:
            refuse_other_rows(self.table.sink.identity, published, self._rows)
        output = None if self.table.failed is not None else self._output
        notices: Mapping[str, int] = {} if self._decoder is None else dict(self._decoder.notices)
        return IngestCounts(
            self._rows,
            self._bytes,
            files=() if output is None else with_file_parts(output.files, output.pieces),
            read=self._read,
            notices=notices,
        )


def _decoder(route: Route, columns: Any) -> RowDecoder | None:
    if route.decode is None:
        return None
    where = f"{route.pattern!r}: "
    return window_decoder(route.decode, columns, subject="routes", where=where)
