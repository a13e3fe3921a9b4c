"""Many tables from one read: routes, and the sink that publishes their windows as one.

A value of the record (its stream id, or the table that a change record names) decides about its
route. Each table is a separate sink, with its own marker of the window under its own id. The
window is done when the *home*, an ordinary sink of files, has its marker: it is published last,
after every table and after the sum over tables and quarantine has been compared with the records
read. Its marker names the tables with their counts. A try that finds a table's marker writes
nothing to that table and counts its records again. This module must not read or decode records.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.windows.errors import CountMismatch
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import (
    BoundaryBook,
    IngestCounts,
    Marker,
    Progress,
    Publication,
    Sink,
    Staging,
)

if TYPE_CHECKING:
    from tubemq_provider.rows.spec import DecodeSpec
    from tubemq_provider.windows.following import Following

__all__ = ["Route", "RouteSet", "RoutedSink", "TableStaging", "refuse_other_rows"]

_AT_ONCE: Final = 8
"""Tables that are begun or published at a time, where their sinks are independent."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]")
_ESCAPED: Final = re.compile(r"_x[0-9a-f]+_")


@dataclass(frozen=True, slots=True)
class Route:
    """Route of the values that `pattern` matches (``*`` and ``?``; exact ones come first).

    `sink` is an address, in which the value may stand as ``{stream_id}`` (`RouteSet.by`). `options`
    are the other options of `sink_for`, `conn_id` names the sink's connection.
    """

    pattern: str
    sink: str
    decode: DecodeSpec | None = None
    following: Following | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    conn_id: str | None = None


@dataclass(frozen=True, slots=True)
class RouteSet:
    """Routes under a `name`, by which their windows go whatever tables there are.

    `by` is a column of records, or ``_table`` or ``_database`` of change records in `format`.
    `unrouted` is ``fail`` or ``quarantine``.
    """

    name: str
    routes: tuple[Route, ...]
    by: str = "stream_id"
    format: str | None = None
    unrouted: str = "fail"

    def route_of(self, value: str) -> Route | None:
        """Return the route of a value: the one that names it, else the first that matches."""
        for route in self.routes:
            if route.pattern == value:
                return route
        return next((route for route in self.routes if fnmatchcase(value, route.pattern)), None)

    def address_of(self, route: Route, value: str) -> str:
        """Return the address of a value's table. Raises `ConfigError` for a value that cannot be
        told from an escaped one."""
        word = "{" + self.by + "}"
        if word not in route.sink:
            return route.sink
        if not value or _ESCAPED.search(value):
            raise ConfigError(
                f"{route.pattern!r}: the value {value!r} cannot stand in an address; give it a "
                "route of its own, with a sink that names its place",
                subject="routes",
            )
        return route.sink.replace(word, "".join(_escaped(sign) for sign in value))


def _escaped(sign: str) -> str:
    """Return a sign of a value as it stands in a path and in the name of a table."""
    return sign if _PLAIN.fullmatch(sign) else f"_x{ord(sign):x}_"


@dataclass(slots=True)
class TableStaging:
    """One table's part of a window: where a try has staged it, or the marker of an earlier try."""

    plan: WindowPlan
    address: str
    values: list[str]
    sink: Sink
    staging: Staging | None = None
    marker: Marker | None = None
    counts: IngestCounts | None = None

    def begin(self, attempt: str) -> None:
        """Look for the window in the table, and begin a try if it is not there."""
        self.marker = self.sink.marker(self.plan.window_id)
        if self.marker is None:
            self.staging = self.sink.begin(self.plan, attempt)


class RoutedSink(Sink):
    """Sink of a route set: `home` keeps the windows' markers and the quarantine, and `open_table`
    opens the sink of a route at an address. `at_once`: tables that are begun or published at a
    time, if their sinks are independent. See `Sink`."""

    kind = "routed"

    def __init__(
        self,
        home: Sink,
        routes: RouteSet,
        open_table: Callable[[Route, str], Sink],
        *,
        at_once: int = _AT_ONCE,
    ) -> None:
        self.home = home
        self.routes = routes
        self.identity = f"routes:{routes.name}"
        self._open_table = open_table
        self._at_once = at_once
        self._sinks: dict[str, tuple[Route, Sink]] = {}
        self._tables: dict[str, dict[str, TableStaging]] = {}
        self._windows: dict[str, dict[str, Sink]] = {}

    def __repr__(self) -> str:
        return f"RoutedSink({self.routes.name!r}, {self.home!r})"

    @property
    def boundaries(self) -> BoundaryBook | None:
        """Boundaries fixed in the home."""
        return self.home.boundaries

    def marker(self, window_id: str) -> Marker | None:
        """Return the marker of a window that all of its tables have, or None."""
        return self.home.marker(window_id)

    def window_ids(self) -> Iterable[str]:
        """Return windows that all of their tables have."""
        return self.home.window_ids()

    def missing(self) -> str | None:
        """See `Sink.missing`."""
        return self.home.missing()

    def holds(self, marker: Marker) -> bool | None:
        """See `Sink.holds`: False if the home or one of the window's tables has it no more. A table
        to which no route leads any more is not asked."""
        answers = [self.home.holds(marker)]
        for entry in (marker.counts.tables or {}).values():
            value = entry["values"][0]
            route = self.routes.route_of(value)
            if route is None:
                continue
            sink = self._sink(route, self.routes.address_of(route, value))
            own = sink.marker(entry["window_id"])
            answers.append(False if own is None else sink.holds(own))
        if False in answers:
            return False
        return True if True in answers else None

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        """Begin a try in the home; tables begin theirs when they meet a record."""
        staging = self.home.begin(plan, attempt)
        self._tables[staging.path] = {}
        return staging

    def open_tables(
        self, staging: Staging, plan: WindowPlan, values: Iterable[tuple[Route, str]]
    ) -> list[TableStaging]:
        """Return the table of each value in the try at `staging`. Those that the try meets for the
        first time are begun, several at a time.

        Raises `ConfigError` if another route, or another value, leads to the same place.
        """
        known = set(self._tables.setdefault(staging.path, {}))
        tables = [self._table(staging, plan, route, value) for route, value in values]
        new = {table.address: table for table in tables if table.address not in known}
        self._each(list(new.values()), lambda table: table.begin(staging.attempt))
        return tables

    def _each(self, tables: Sequence[TableStaging], action: Callable[[TableStaging], None]) -> None:
        """Do something for each table: for independent sinks several at a time, then in turn."""
        beside = [table for table in tables if table.sink.independent]
        with _pool(min(self._at_once, len(beside))) as pool:
            list(map(action, beside) if pool is None else pool.map(action, beside))
        for table in tables:
            if not table.sink.independent:
                action(table)

    def _table(self, staging: Staging, plan: WindowPlan, route: Route, value: str) -> TableStaging:
        address = self.routes.address_of(route, value)
        tables = self._tables[staging.path]
        if (there := tables.get(address)) is not None:
            return self._joined(there, route, value)
        for other in tables:
            if other.casefold() == address.casefold():
                raise ConfigError(
                    f"{self.routes.by} {value!r} leads to {_shown(address)}, and "
                    f"{tables[other].values[0]!r} to the same in other letters, which some file "
                    "systems and databases do not tell apart; give one a route of its own",
                    subject="routes",
                )
        sink = self._sink(route, address)
        own = plan.for_sink(f"{self.identity}>{sink.identity}")
        self._windows.setdefault(plan.window_id, {})[own.window_id] = sink
        tables[address] = table = TableStaging(own, address, [value], sink)
        return table

    def _joined(self, table: TableStaging, route: Route, value: str) -> TableStaging:
        first, _ = self._sinks[table.address]
        if (first.decode, first.following) != (route.decode, route.following):
            raise ConfigError(
                f"routes {first.pattern!r} and {route.pattern!r} lead to one sink, "
                f"{_shown(table.address)}, and decode or apply records differently",
                subject="routes",
            )
        if value not in table.values:
            table.values.append(value)
        return table

    def _sink(self, route: Route, address: str) -> Sink:
        if address not in self._sinks:
            sink = self._open_table(route, address)
            if sink.identity == self.home.identity:
                raise ConfigError(
                    f"{route.pattern!r}: the sink of a route is the one of the whole window, which "
                    "keeps its markers; choose another place",
                    subject="routes",
                )
            self._sinks[address] = route, sink
        return self._sinks[address][1]

    def tables(self, staging: Staging) -> list[TableStaging]:
        """Return the tables of a try in the order of their addresses."""
        return [table for _, table in sorted(self._tables.get(staging.path, {}).items())]

    def publish(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        """Publish every table that has not the window yet, then the window. See `Sink.publish`.

        Raises `CountMismatch` before anything becomes visible if the tables and the quarantine have
        not all records that were read.
        """
        tables = self.tables(staging)
        manifest = {
            _shown(table.address): _entry_of(table, table.counts)
            for table in tables
            if table.counts is not None
        }
        _check_sum(plan, counts, tables)
        turn = threading.Lock()

        def report(table: TableStaging, point: str) -> None:
            with turn:
                progress(f"{_shown(table.address)}: {point}")

        for table in tables:
            if table.counts is None:
                raise CountMismatch(f"{_shown(table.address)} was begun and not counted")
        self._each(
            [table for table in tables if table.staging is not None],
            lambda table: _publish(table, lambda point: report(table, point)),
        )
        own = replace(
            counts, records=dict.fromkeys(plan.ranges, 0), read=None, tables=manifest, pieces=None
        )
        return self.home.publish(staging, plan, own, progress)

    def discard(self, staging: Staging) -> None:
        """Remove what the try staged, in its tables and in the home."""
        for table in self._tables.pop(staging.path, {}).values():
            if table.staging is not None:
                table.sink.discard(table.staging)
        self.home.discard(staging)

    def tidy(self, window_id: str) -> None:
        """Remove staging places that dead tries of a published window left."""
        for own, sink in self._windows.get(window_id, {}).items():
            sink.tidy(own)
        self.home.tidy(window_id)


@contextmanager
def _pool(threads: int) -> Iterator[ThreadPoolExecutor | None]:
    """Provide a pool whose waiting work is dropped if the body fails; None for one thread."""
    if threads < 2:
        yield None
        return
    with ThreadPoolExecutor(threads, "tubemq-routes") as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _publish(table: TableStaging, progress: Progress) -> None:
    """Publish the window in a table. Raises `CountMismatch` if another try has published other rows
    there."""
    assert table.staging is not None
    assert table.counts is not None
    publication = table.sink.publish(table.staging, table.plan, table.counts, progress)
    if not publication.won:
        refuse_other_rows(_shown(table.address), publication.marker, table.counts.records)
    progress("published")


def _shown(address: str) -> str:
    """Return an address without login and query, but with the table of a database."""
    place, _, query = address.partition("?")
    head, separator, rest = place.partition("://")
    rest = rest.rpartition("@")[2] if separator else rest
    table = re.search(r"(?:^|&)table=([^&]*)", query)
    return f"{head}{separator}{rest}" + (f"?table={table[1]}" if table else "")


def _entry_of(table: TableStaging, counts: IngestCounts) -> dict[str, Any]:
    read = counts.records if counts.read is None else counts.read
    return {
        "window_id": table.plan.window_id,
        "values": sorted(table.values),
        "read": sum(read.values()),
        "rows": counts.total,
    }


def _check_sum(plan: WindowPlan, counts: IngestCounts, tables: Iterable[TableStaging]) -> None:
    """Raise `CountMismatch` unless each record read is in one table, or counted as corrupt."""
    read = Counter(counts.records if counts.read is None else counts.read)
    routed: Counter[str] = Counter()
    for table in tables:
        if table.counts is not None:
            routed.update(table.counts.records if table.counts.read is None else table.counts.read)
    routed.update(counts.unrouted)
    problems = [
        f"{key}: {read[key]} records were read, {routed[key]} are in tables or quarantine"
        for key in sorted(read.keys() | routed.keys())
        if read[key] != routed[key]
    ]
    if problems:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        raise CountMismatch(f"window {plan.window_id} of topic {plan.topic!r}:{lines}")


def refuse_other_rows(where: str, marker: Marker, rows: Mapping[str, int]) -> None:
    """Raise `CountMismatch` if another try has published other `rows`, by partition, under the
    window's id; `where` names the table."""
    if dict(rows) != dict(marker.counts.records):
        raise CountMismatch(
            f"{where} has window {marker.plan.window_id} with "
            f"{marker.counts.total} rows, and this try made {sum(rows.values())} of the same "
            "records: a route was changed between two tries; set it back until the window is done"
        )
