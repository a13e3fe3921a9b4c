"""Driver's half of the direct write for many tables: places before, files and counts afterwards.

Tables that routes name are begun before the read, and tasks write their files in place. Files of
values that only a pattern takes are moved from the window's place to that of their table, which is
begun when the tasks have reported it. If the address of such a value turns out to be that of
something else, the tasks run again and treat its records as `unrouted` says. Slices of tables that
follow changes are reduced here once more: the keys of one table's window are in memory, `MOST_KEYS`
at most. This module must not read the source, or publish anything.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from tubemq_provider.engines.direct_write_job import (
    make_directory,
    move_into_place,
    staging_directory,
    write_reduced,
)
from tubemq_provider.engines.inline import FILE_BYTES
from tubemq_provider.engines.routed import decoder_of
from tubemq_provider.files.columns import columns_of
from tubemq_provider.files.footers import fact_from_json
from tubemq_provider.files.locations import LocalLocation, Location, location_at, location_of
from tubemq_provider.files.writer import FilePart, with_file_parts
from tubemq_provider.rows.changes.reduction import reduced_schema
from tubemq_provider.rows.routing import is_wild, refuse_unrouted
from tubemq_provider.sinks.factory import sink_word
from tubemq_provider.sinks.routed import Route, RoutedSink, TableStaging, refuse_other_rows
from tubemq_provider.spark.routed_write_tasks import (
    NEW_TABLES,
    RoutedWriteTask,
    TablePlace,
    TaskRoute,
)
from tubemq_provider.spark.task_metrics import last_records
from tubemq_provider.windows.partitioning import Layout, PartitionBy
from tubemq_provider.windows.protocols import IngestCounts

if TYPE_CHECKING:
    from tubemq_provider.windows.facts import FileFact
    from tubemq_provider.windows.following import Following
    from tubemq_provider.windows.plan import WindowPlan
    from tubemq_provider.windows.protocols import Staging

__all__ = ["RoutedWrite"]

log = logging.getLogger(__name__)

_PIECE_BYTES: Final = 1024 * 1024
_MOST_SHOWN: Final = 5
_LAYOUTS: Final[Mapping[str, Layout]] = {"delta": "values", "iceberg": "columns"}
"""Layouts of partitioned tables by kind of sink; those of others are folders."""


@dataclass(slots=True)
class _Report:
    """Reports of tasks on one table: their documents, and the values that went to it."""

    documents: list[Mapping[str, Any]] = field(default_factory=list)
    values: set[str] = field(default_factory=set)


class RoutedWrite:
    """One window into the tables of `sink`, in the try at `staging`."""

    def __init__(
        self,
        sink: RoutedSink,
        plan: WindowPlan,
        staging: Staging,
        *,
        kind: str,
        quarantine: bool,
        target_bytes: int | None,
    ) -> None:
        self._sink, self._plan, self._staging = sink, plan, staging
        self._columns = columns_of(kind)
        self._kind = kind
        self._quarantine = quarantine
        self._target_bytes = target_bytes or FILE_BYTES
        self._routes = sink.routes.routes
        self._task: RoutedWriteTask | None = None
        self._in_place: set[str] = set()
        self.storage: dict[str, str] = {}

    def run(
        self, collect: Callable[[RoutedWriteTask], Iterable[Mapping[str, Any]]]
    ) -> IngestCounts:
        """Begin the tables, have tasks write their files, and accept these; return the counts of
        the window. `collect` runs the tasks and returns what they report; a second time if they
        met values whose address is that of something else, which only the driver sees."""
        self._task = self._begun()
        documents = list(collect(self._task))
        while refused := self._refused(documents):
            log.warning(
                "window %s is read again to set records aside: %s; give such a value a route of "
                "its own, so that windows are read once",
                self._plan.window_id,
                "; ".join(sorted(refused.values())[:_MOST_SHOWN]),
            )
            with suppress(OSError):
                self._new_files().clear()
            make_directory(f"{self._begun_task.directory}/{NEW_TABLES}")
            self._task = replace(self._task, refused={**self._task.refused, **refused})
            documents = list(collect(self._task))
        return self._accept(documents)

    def _begun(self) -> RoutedWriteTask:
        """Begin the tables that are known before the read; return the parameters of the tasks.
        `storage` then has the options of each place."""
        only = tuple(self._sink.expected) or None
        places: dict[str, TablePlace] = {}
        refused: dict[str, str] = {}
        task = RoutedWriteTask(
            self._directory(self._staging),
            self._sink.routes.by,
            tuple(map(self._task_route, self._routes)),
            places,
            self._target_bytes,
            self._sink.routes.format,
            self._sink.routes.unrouted,
            only,
            refused,
            isolates=self._sink.routes.isolates,
            quarantine=self._quarantine,
            kind=self._kind,
        )
        known = list(self._known(only))
        tables = self._sink.open_tables(
            self._staging, self._plan, [(self._routes[route], value) for route, value in known]
        )
        for (route, value), table in zip(known, tables, strict=True):
            if isinstance(table, str):
                refused[value] = table
                continue
            self._check_columns(table, self._routes[route])
            if self._routes[route].following is None or table.failed is not None:
                places[task.key_of(route, value)] = place = self._place_of(table)
                self._in_place |= set() if place.path is None else {table.address}
        self._sink.refuse_if_all_failed(self._staging)
        make_directory(f"{task.directory}/{NEW_TABLES}")
        return task

    @property
    def _begun_task(self) -> RoutedWriteTask:
        assert self._task is not None
        return self._task

    def _directory(self, staging: Staging) -> str:
        """Return the place that tasks write to, and note the options that open it."""
        place = staging_directory(staging)
        if staging.options:
            self.storage[place] = json.dumps(dict(staging.options))
        return place

    def _known(self, only: Iterable[str] | None) -> Iterator[tuple[int, str]]:
        """Yield route and value of tables that can be begun before the read."""
        if only is not None:
            for value in only:
                route = self._sink.routes.route_of(value)
                if route is not None:
                    yield self._routes.index(route), value
            return
        patterns = self._sink.routes.patterns
        for index, (route, longest) in enumerate(zip(self._routes, patterns.longest, strict=True)):
            named = not is_wild(route.pattern) and patterns.route_of(route.pattern) == index
            if longest is None or named:
                yield index, route.pattern

    def _task_route(self, route: Route) -> TaskRoute:
        by = PartitionBy.of(
            route.options.get("partition_by", ()),
            _LAYOUTS.get(sink_word(route.sink), "folders"),
            route.options.get("max_partitions"),
        )
        return TaskRoute(
            route.pattern,
            None if route.decode is None else route.decode.to_json(),
            None if route.following is None else route.following.to_json(),
            self._sink.routes.longest(route),
            None if by is None else by.to_json(),
        )

    def _check_columns(self, table: TableStaging, route: Route) -> None:
        decoder = decoder_of(route, self._columns)
        schema = self._columns.arrow_schema(self._columns.names)
        schema = reduced_schema(schema if decoder is None else decoder.schema, route.following)
        if table.failed is None:
            self._sink.guard(table, lambda: table.sink.check_columns(schema))

    def _place_of(self, table: TableStaging) -> TablePlace:
        staging = table.staging
        if staging is None:  # it has the window, or has failed
            return TablePlace(None)
        by, ids = staging.partition_by, staging.field_ids
        return TablePlace(
            self._directory(staging),
            None if by is None else by.to_json(),
            None if ids is None else ids.to_json(),
        )

    # -- after the read -----------------------------------------------------------------------

    def _refused(self, documents: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        """Begin the tables that tasks report and the driver did not know. Return, by value, why
        others get none. Raises `ConfigError` with these if records may not be set aside."""
        refused: dict[str, str] = {}
        counts = Counter[str]()
        known = {table.address for table in self._sink.tables(self._staging)}
        for document in (each for one in documents for each in one["tables"]):
            route = self._routes[document["route"]]
            routed = [(route, value) for value in document["values"]]
            for value, table in zip(
                document["values"],
                self._sink.open_tables(self._staging, self._plan, routed),
                strict=True,
            ):
                if isinstance(table, str):
                    refused[value] = table
                    counts[table] += sum(document["read"].values())
                elif table.address not in known:
                    known.add(table.address)
                    self._check_columns(table, route)
        if self._sink.routes.unrouted == "fail":
            refuse_unrouted(counts)
        return refused

    def _accept(self, documents: Iterable[Mapping[str, Any]]) -> IngestCounts:
        """Bring the files of all tables to where their sinks look; return the counts of the window,
        and note those of each table."""
        reads: list[Mapping[str, Any]] = []
        reports: dict[str, _Report] = {}
        for document in documents:
            reads += document["reads"]
            for each in document["tables"]:
                self._add(each, reports)
        notices = Counter[str]()
        for table in self._sink.tables(self._staging):
            report = reports.get(table.address) or _Report()
            if self._begun_task.only is None:
                if not report.documents:
                    self._sink.forget(self._staging, table)
                    continue
                table.values = sorted(report.values)
            table.counts = counts = self._counts_of(table, report)
            notices.update(counts.notices)
        quarantined = tuple(sorted(read["quarantined"] for read in reads if read["quarantined"]))
        with suppress(OSError):
            self._new_files().clear()
        move_into_place(self._staging, quarantined)
        return self._total(reads, notices, quarantined)

    def _add(self, document: Mapping[str, Any], reports: dict[str, _Report]) -> None:
        """Note what a task reports of a table."""
        route = self._routes[document["route"]]
        for value in document["values"]:
            address = self._sink.routes.address_of(route, value)
            report = reports.setdefault(address, _Report())
        report.documents.append(document)
        report.values.update(document["values"])

    def _counts_of(self, table: TableStaging, report: _Report) -> IngestCounts:
        keys, following = self._plan.ranges, self._sink.route_to(table).following
        read, rows, notices = (Counter(dict.fromkeys(keys, 0)) for _ in range(3))
        notices.clear()
        for document in report.documents:
            read.update(document["read"])
            rows.update(document["rows"])
            notices.update(document["notices"])
            if document["failed"] and (table.marker is None or following is not None):
                table.fail(document["failed"])
        files: tuple[FileFact, ...] = ()
        accepted: list[tuple[tuple[FileFact, ...], Mapping[str, int]]] = []
        if table.failed is None:
            self._sink.guard(
                table, lambda: accepted.append(self._accepted(table, report, following))
            )
        if accepted:
            files, reduced = accepted[0]
            rows = Counter(reduced) if following is not None else rows
        if table.marker is not None and table.failed is None:
            refuse_other_rows(table.sink.identity, table.marker, rows)
        return IngestCounts(
            dict(rows),
            sum(document["bytes"] for document in report.documents),
            files=files,
            read=dict(read),
            notices=dict(notices),
        )

    def _accepted(
        self, table: TableStaging, report: _Report, following: Following | None
    ) -> tuple[tuple[FileFact, ...], Mapping[str, int]]:
        """Bring the files into the table's place; return their facts, and the rows by partition of
        a table that follows changes."""
        if following is not None:
            return self._reduced(table, report, following)
        if table.staging is None:
            return (), {}
        facts, pieces, in_place = [], [], []
        for document in report.documents:
            found = list(map(fact_from_json, document["files"]))
            place = self._begun_task.places.get(document["key"])
            if place is None:
                found = [self._moved(fact, table.staging) for fact in found]
            else:
                in_place += [fact.path for fact in found]
            facts += found
            pieces += [FilePart(**piece) for piece in document["pieces"]]
        if table.address in self._in_place:
            move_into_place(table.staging, in_place)
        return with_file_parts(facts, pieces), {}

    def _new_files(self) -> Location:
        place = f"{self._begun_task.directory}/{NEW_TABLES}"
        return location_at(place, self._staging.options)

    def _moved(self, fact: FileFact, staging: Staging) -> FileFact:
        """Move a file from the window's place into that of its table; return its facts."""
        source, target = self._new_files(), location_of(staging)
        if isinstance(source, LocalLocation) and isinstance(target, LocalLocation):
            path = target.root / fact.path
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(source.root / fact.path, path)
            return fact
        output = target.create(fact.path)
        try:
            with source.open(fact.path) as stream:
                while piece := stream.read(_PIECE_BYTES):
                    output.stream.write(piece)
        except BaseException:
            output.abandon()
            raise
        return replace(fact, tag=output.finish().tag)

    def _reduced(
        self, table: TableStaging, report: _Report, following: Following
    ) -> tuple[tuple[FileFact, ...], Mapping[str, int]]:
        """Write the last change of each key from the slices of all splits, in the order of reading.
        A table that has the window gets no files."""
        documents = sorted(report.documents, key=lambda each: (each["partition"], each["start"]))
        return write_reduced(
            self._new_files(),
            (fact_from_json(text).path for each in documents for text in each["files"]),
            following,
            table.staging,
            self._plan.ranges,
            target_bytes=self._target_bytes,
        )

    def _total(
        self,
        reads: Iterable[Mapping[str, Any]],
        notices: Counter[str],
        quarantined: tuple[str, ...],
    ) -> IngestCounts:
        keys = self._plan.ranges
        read, unrouted = Counter(dict.fromkeys(keys, 0)), Counter[str]()
        gaps: dict[str, list[list[int]]] = {}
        pieces: dict[str, list[list[int]]] = {}
        size = corrupt = 0
        reads = list(reads)
        for each in reads:
            key = each["partition"]
            read[key] += each["read"]
            unrouted.update(each["unrouted"])
            notices.update(each["notices"])
            size += each["bytes"]
            corrupt += each["corrupt"]
            pieces.setdefault(key, []).append([each["start"], each["end"]])
            if each["gaps"]:
                gaps.setdefault(key, []).extend(each["gaps"])
        return IngestCounts(
            dict.fromkeys(keys, 0),
            size,
            {key: sorted(found) for key, found in gaps.items()},
            corrupt,
            pieces={key: sorted(found) for key, found in pieces.items()},
            last=last_records((each["partition"], each["start"], each["last"]) for each in reads),
            files=(),
            quarantined=quarantined,
            read=dict(read),
            notices=dict(notices),
            unrouted=dict(unrouted),
        )
