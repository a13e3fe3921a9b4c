"""Inline engine for routes: one read of a window, and the files of every table.

Records are divided where they are read, decoded as their route says, and staged in the sink of
their table. A table that has the window already gets no files; its records are decoded and counted
all the same, so that the sum is that of the whole window. This module must not publish anything.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.model import CorruptRecords
from tubemq_provider.engines.inline import FILE_BYTES
from tubemq_provider.files.columns import columns_of
from tubemq_provider.files.locations import location_of
from tubemq_provider.files.partitioned import staged_writer
from tubemq_provider.files.quarantine import CORRUPT_FILE, QuarantineFile
from tubemq_provider.files.writer import with_file_parts
from tubemq_provider.rows.decoding import BadRecords, RowDecoder, window_decoder
from tubemq_provider.rows.routing import (
    GROUP_BYTES,
    NOWHERE,
    ROW_GROUP_BYTES,
    TableRows,
    Unrouted,
    combined,
)
from tubemq_provider.sinks.routed import Route, RoutedSink, TableStaging, refuse_other_rows
from tubemq_provider.sources.base import ExpectingReader, RecordReader, Source
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import Engine, IngestCounts, IngestWatch, Sink, Staging
from tubemq_provider.windows.spaces import FIRST_SOURCE

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.files.columns import ColumnSet
    from tubemq_provider.windows.following import Following

__all__ = ["RoutedEngine", "decoder_of"]

_CLOSING: Final = 4
"""Files that are finished at a time."""


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
        self._target_file_bytes = target_file_bytes or FILE_BYTES
        self._compression = compression
        self._cancelled = threading.Event()
        sink.routes.check_columns(self._columns)
        for route in sink.routes.routes:
            decoder_of(route, self._columns)  # validate before reading

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

    def into(self, sink: Sink) -> RoutedEngine:
        """Return the same engine for other tables of the routes."""
        assert isinstance(sink, RoutedSink)
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
            unrouted = Unrouted(self._sink.routes.unrouted, self._columns, self._corrupt.add)
            division = _Division(plan, staging, bad_records, open_files, unrouted)
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
        notices = Counter(division.unrouted.notices)
        for writer in writers:
            writer.table.counts = counts = writer.counts()
            notices.update(counts.notices)
        return IngestCounts(
            dict.fromkeys(plan.ranges, 0),
            division.size,
            division.gaps,
            corrupt + division.unrouted.set_aside,
            last=last,
            files=(),
            quarantined=(CORRUPT_FILE,) if set_aside else (),
            read=division.read,
            notices=dict(notices),
            unrouted=dict(division.unrouted.counts),
        )

    def _groups(
        self, plan: WindowPlan, reader: RecordReader, division: _Division, watch: IngestWatch
    ) -> Iterator[pa.RecordBatch]:
        """Read the window, and yield its records in batches of about `GROUP_BYTES`, which may be
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
                if waiting >= GROUP_BYTES:
                    yield combined(pending)
                    pending, waiting = [], 0
            if found := [[gap.start, gap.end] for gap in reader.stats.gaps[known_gaps:]]:
                division.gaps.setdefault(key, []).extend(found)
            watch.progress("range written")
        if pending:
            yield combined(pending)

    def _divide(self, records: pa.RecordBatch, division: _Division) -> None:
        """Give each table its records."""
        parts = self._sink.routes.division.parts(records)
        self._open_tables([value for value, _ in parts if value is not None], division)
        for value, part in parts:
            writer = None if value is None else division.by_value.get(value)
            if writer is not None:
                writer.add(part, division.bad_records)
            else:
                why = division.refused.get(value or "") or self._sink.routes.patterns.refusal(value)
                division.unrouted.add(part, value, why, wanted=self._sink.takes(value or ""))
        division.unrouted.check()

    def _open_tables(self, values: Iterable[str], division: _Division) -> None:
        """Open the tables of values that have none yet and that a route takes."""
        plan, routed = division.plan, []
        known = division.by_value.keys() | division.refused.keys() | {NOWHERE}
        for value in values:
            if value not in known and self._sink.takes(value):
                route = self._sink.routes.route_of(value)
                routed += [] if route is None else [(route, value)]
        tables = self._sink.open_tables(division.staging, plan, routed)
        for (route, value), table in zip(routed, tables, strict=True):
            if isinstance(table, str):
                division.refused[value] = table
                continue
            if table.address not in division.writers:
                writer = _TableWriter(
                    table,
                    decoder_of(route, self._columns),
                    route.following,
                    self._columns,
                    self._sink.guard,
                    plan,
                )
                writer.open(division.open_files, self._target_file_bytes, self._compression)
                division.writers[table.address] = writer
            division.by_value[value] = division.writers[table.address]


@dataclass(slots=True)
class _Division:
    """One ingest: its tables so far, why values have none (`refused`), and what was read."""

    plan: WindowPlan
    staging: Staging
    bad_records: BadRecords
    open_files: ExitStack
    unrouted: Unrouted
    writers: dict[str, _TableWriter] = field(default_factory=dict)
    by_value: dict[str, _TableWriter] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    read: dict[str, int] = field(init=False)
    size: int = 0
    gaps: dict[str, list[list[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.read = dict.fromkeys(self.plan.ranges, 0)


class _TableWriter(TableRows):
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
        super().__init__(decoder, following, columns, plan.ranges)
        self.table = table
        self._columns = columns
        self._guard = guard

    def open(self, open_files: ExitStack, target_bytes: int, compression: str) -> None:
        """Open the files of the table's try."""
        if self.table.staging is not None:
            self._guarded(lambda: self.table.sink.check_columns(self.schema))
        staging = self.table.staging
        if staging is None:
            return

        def open_output() -> None:
            self._output = open_files.enter_context(
                staged_writer(
                    location_of(staging),
                    "part",
                    self.schema,
                    staging.partition_by,
                    staging.field_ids,
                    target_bytes=target_bytes,
                    row_group_bytes=ROW_GROUP_BYTES,
                    compression=compression,
                    columns=self._columns,
                )
            )

        self._guarded(open_output)

    def _put(self, rows: pa.RecordBatch) -> None:
        if self._output is not None:
            self._output.add(rows, rows.nbytes)

    def _guarded(self, action: Callable[[], None]) -> None:
        if self.table.failed is None:
            self._guard(self.table, action)
            if self.table.failed is not None:
                self._give_up()

    def counts(self) -> IngestCounts:
        """Return the counts, after the files were closed. Raises `CountMismatch` if an earlier try
        has published other rows."""
        published = self.table.marker
        if published is not None and self.table.failed is None:
            refuse_other_rows(self.table.sink.identity, published, self.rows)
        output = self._output
        return IngestCounts(
            self.rows,
            self.bytes,
            files=() if output is None else with_file_parts(output.files, output.pieces),
            read=self.read,
            notices=self.notices,
        )


def decoder_of(route: Route, columns: ColumnSet) -> RowDecoder | None:
    """Return the decoder of a route's records, None for those that stay as they are."""
    if route.decode is None:
        return None
    where = f"{route.pattern!r}: "
    return window_decoder(route.decode, columns, route.following, subject="routes", where=where)
