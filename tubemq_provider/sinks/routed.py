"""Many tables from one read: routes, and the sink that publishes their windows as one.

A value of the record (its stream id, or the table that a change record names) decides about its
route. Each table is a separate sink, with its own marker of the window under its own id. The
window is done when the *home*, an ordinary sink of files, has its marker: it is published last,
after every table and after the sum over tables and quarantine has been compared with the records
read. Its marker names the tables with their counts. A try that finds a table's marker writes
nothing to that table and counts its records again. This module must not read or decode records.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.rows.routing import Division, Patterns, escaped, failure_of, shown
from tubemq_provider.sinks.factory import sink_word
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
    from tubemq_provider.files.columns import ColumnSet
    from tubemq_provider.rows.spec import DecodeSpec
    from tubemq_provider.windows.following import Following

__all__ = [
    "FAILED_TABLES",
    "Route",
    "RouteSet",
    "RoutedSink",
    "TableStaging",
    "failed_tables",
    "refuse_other_rows",
]

_AT_ONCE: Final = 8
"""Tables that are begun or published at a time, where their sinks are independent."""
FAILED_TABLES: Final = "_failed_tables"
"""Book of the home that names windows with tables which may have failed to take them."""
PUBLISHING: Final = "_publishing"
"""Book of the home that names the tables of windows which are being published."""
PLACES: Final = "_places"
"""Book of the home that names tables of values, under one key for all letters' cases."""
_LONGEST_NAME: Final = 200
_LONGEST_IN_DATABASES: Final = 63
_DATABASES: Final = ("postgresql", "mysql", "mariadb", "mssql", "oracle")
"""Databases that bound, or cut, the name of a table."""


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

    @property
    def treatment(self) -> tuple[Any, ...]:
        """All but pattern and sink; routes that lead to one sink have the same."""
        return self.decode, self.following, self.conn_id, dict(self.options)


@dataclass(frozen=True)
class RouteSet:
    """Routes under a `name`, by which their windows go whatever tables there are.

    `by` is a column of records, or ``_table`` or ``_database`` of change records in `format`.
    `unrouted` is ``fail``, ``quarantine`` or ``ignore``, `on_route_failure` ``fail`` or
    ``isolate``: tables that fail to take a window are left to be made good.
    """

    name: str
    routes: tuple[Route, ...]
    by: str = "stream_id"
    format: str | None = None
    unrouted: str = "fail"
    on_route_failure: str = "fail"

    @property
    def isolates(self) -> bool:
        """True if a table that fails leaves the others alone."""
        return self.on_route_failure == "isolate"

    @cached_property
    def patterns(self) -> Patterns:
        """Patterns of the routes."""
        routes = self.routes
        return Patterns(self.by, [r.pattern for r in routes], [self.longest(r) for r in routes])

    def longest(self, route: Route) -> int | None:
        """Return how long a value may be in the address of its table; None if it has no place
        there, so that all values of the route have one table."""
        word = "{" + self.by + "}"
        name = next((part for part in re.split("[/=&?]", route.sink) if word in part), None)
        if name is None:
            return None
        limit = _LONGEST_IN_DATABASES if sink_word(route.sink) in _DATABASES else _LONGEST_NAME
        return (limit - len(name.replace(word, ""))) // name.count(word)

    def route_of(self, value: str) -> Route | None:
        """Return the route that takes a value; see `Patterns.route_of`."""
        index = self.patterns.route_of(value)
        return None if index is None else self.routes[index]

    @property
    def division(self) -> Division:
        """Division of records that the routes go by."""
        return Division(self.by, self.format)

    def check_columns(self, columns: ColumnSet) -> None:
        """Raise `ConfigError` if records with `columns` cannot be divided."""
        schema = columns.arrow_schema(columns.names)
        texts = [item.name for item in schema if str(item.type) == "string"]
        if self.format is None and self.by not in texts:
            raise ConfigError(
                f"by: {self.by!r} is none of {', '.join(texts)}, and for _table or "
                "_database of change records 'format' is needed",
                subject="routes",
            )

    def address_of(self, route: Route, value: str) -> str:
        """Return the address of a value's table."""
        return route.sink.replace("{" + self.by + "}", escaped(value))


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
    failed: str | None = None

    def begin(self, attempt: str) -> None:
        """Look for the window in the table, and begin a try if it is not there."""
        self.marker = self.sink.marker(self.plan.window_id)
        if self.marker is None:
            self.staging = self.sink.begin(self.plan, attempt)

    def fail(self, error: Exception | str) -> None:
        """Note why the table does not take the window (a text comes from a task of Spark), and give
        up its try."""
        self.failed = error if isinstance(error, str) else failure_of(error)
        self.discard()

    def discard(self) -> None:
        """Remove what the try staged."""
        staging, self.staging = self.staging, None
        if staging is not None:
            self.sink.discard(staging)


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
        self._only: frozenset[str] | None = None
        self._places: dict[str, str] = {}
        self._made_good: dict[str, list[str]] = {}
        if routes.isolates and home.book(FAILED_TABLES) is None:
            raise ConfigError(
                f"on_route_failure='isolate' needs a directory or an object store as the sink of "
                f"the windows, which notes failed tables; {home.kind} notes none",
                subject="routes",
            )

    def __repr__(self) -> str:
        return f"RoutedSink({self.routes.name!r}, {self.home!r})"

    @property
    def boundaries(self) -> BoundaryBook | None:
        """Boundaries fixed in the home."""
        return self.home.boundaries

    def book(self, name: str) -> BoundaryBook | None:
        """Return a book of the home."""
        return self.home.book(name)

    def quarantined(self, marker: Marker) -> Iterator[Any]:
        """Yield records that no route took, and those of all tables that did not decode."""
        return self.home.quarantined(marker)

    def marker(self, window_id: str) -> Marker | None:
        """Return the marker of a window that all of its tables have, or None."""
        return self.home.marker(window_id)

    def window_ids(self) -> Iterable[str]:
        """Return windows that all of their tables have."""
        return self.home.window_ids()

    def later_window_ids(self, low: str) -> Iterable[str]:
        """See `Sink.later_window_ids`."""
        return self.home.later_window_ids(low)

    def missing(self) -> str | None:
        """See `Sink.missing`."""
        return self.home.missing()

    def holds(self, marker: Marker) -> bool | None:
        """See `Sink.holds`: False if the home or one of the window's tables has it no more. A table
        to which no route leads any more is not asked."""
        answers = [self.home.holds(marker)]
        for name, entry in (marker.counts.tables or {}).items():
            sink = None if entry.get("failed") else self._sink_of(name, entry)
            if sink is None:
                continue
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
    ) -> list[TableStaging | str]:
        """Return the table of each value in the try at `staging`, or why it gets none: its address
        is that of something else. Those that the try meets for the first time are begun, several at
        a time.

        Raises `ConfigError` if another route leads to the same place and treats records otherwise.
        """
        known = self._tables.setdefault(staging.path, {})
        routed = list(values)
        new = {self.routes.address_of(route, value): route for route, value in routed}
        self._read_places(a for a, route in new.items() if a not in known and self._named(route))
        begun = set(known)
        tables = [self._table(staging, plan, route, value) for route, value in routed]
        self._each(
            [table for address, table in known.items() if address not in begun],
            lambda table: self.guard(table, lambda: table.begin(staging.attempt)),
        )
        return tables

    def _named(self, route: Route) -> bool:
        """Return True if values stand in the address of a route."""
        return self.routes.longest(route) is not None

    def _read_places(self, addresses: Iterable[str]) -> None:
        """Look up which addresses earlier windows have given to values; a found one is kept."""
        book = self.home.book(PLACES)
        unknown = sorted({*map(_place_key, addresses)} - self._places.keys())
        if book is None or not unknown:
            return
        with ThreadPoolExecutor(self._at_once, "tubemq-routes") as pool:
            for key, document in zip(unknown, pool.map(book.read, unknown), strict=True):
                if document is not None:
                    self._places[key] = document["address"]

    def guard(self, table: TableStaging, action: Callable[[], None]) -> None:
        """Do something for a table. Under ``isolate`` an error is noted as the table's failure."""
        if not self.routes.isolates:
            action()
            return
        try:
            action()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other tables continue
            table.fail(error)

    def _each(self, tables: Sequence[TableStaging], action: Callable[[TableStaging], None]) -> None:
        """Do something for each table: for independent sinks several at a time, then in turn."""
        beside = [table for table in tables if table.sink.independent]
        with _pool(min(self._at_once, len(beside))) as pool:
            list(map(action, beside) if pool is None else pool.map(action, beside))
        for table in tables:
            if not table.sink.independent:
                action(table)

    def _table(
        self, staging: Staging, plan: WindowPlan, route: Route, value: str
    ) -> TableStaging | str:
        address = self.routes.address_of(route, value)
        tables = self._tables[staging.path]
        taken = self._taken(tables, route, address) if self._named(route) else None
        if taken is not None:
            return (
                f"{self.routes.by} {shown(value)} cannot stand in an address of route "
                f"{route.pattern!r}: {_shown(address)} {taken}"
            )
        if (there := tables.get(address)) is not None:
            return self._joined(there, route, value)
        sink = self._sink(route, address)
        own = plan.for_sink(f"{self.identity}>{sink.identity}")
        for other in tables.values():
            if other.plan.window_id == own.window_id:  # the second would find the window there
                raise ConfigError(
                    f"{_shown(address)} and {_shown(other.address)} are one sink in two spellings; "
                    "write its address alike in all routes",
                    subject="routes",
                )
        self._windows.setdefault(plan.window_id, {})[own.window_id] = sink
        tables[address] = table = TableStaging(own, address, [value], sink)
        return table

    def _taken(self, tables: Iterable[str], route: Route, address: str) -> str | None:
        """Return what has the place of an address in which a value stands, or None."""
        for other in self.routes.routes:
            if not self._named(other) and other.sink.casefold() == address.casefold():
                if other.sink == address and other.treatment == route.treatment:
                    return None
                return f"is the table of route {other.pattern!r}"
        if self._open(route, address).identity.casefold() == self.home.identity.casefold():
            return "is the sink of the whole window"
        earlier = self._places.get(_place_key(address))
        names = [*tables, *([] if earlier is None else [earlier])]
        for name in map(_shown, names):
            if name.casefold() == _shown(address).casefold() and name != _shown(address):
                return (
                    f"is {name} in other letters, which some file systems and databases do not "
                    "tell apart"
                )
        return None

    def _joined(self, table: TableStaging, route: Route, value: str) -> TableStaging:
        first, _ = self._sinks[table.address]
        if first.treatment != route.treatment:
            raise ConfigError(
                f"routes {first.pattern!r} and {route.pattern!r} lead to one sink, "
                f"{_shown(table.address)}, and their other members differ",
                subject="routes",
            )
        if value not in table.values:
            table.values.append(value)
        return table

    def _open(self, route: Route, address: str) -> Sink:
        if address not in self._sinks:
            self._sinks[address] = route, self._open_table(route, address)
        return self._sinks[address][1]

    def _sink(self, route: Route, address: str) -> Sink:
        sink = self._open(route, address)
        if sink.identity == self.home.identity:
            raise ConfigError(
                f"{route.pattern!r}: the sink of a route is the one of the whole window, which "
                "keeps its markers; choose another place",
                subject="routes",
            )
        return sink

    def _sink_of(self, name: str, entry: Mapping[str, Any]) -> Sink | None:
        """Return the sink of a table in a manifest; None if no route leads to it any more."""
        value = str(entry["values"][0])
        route = self.routes.route_of(value)
        if route is None or _shown(address := self.routes.address_of(route, value)) != name:
            return None
        return self._sink(route, address)

    # -- tables that failed ---------------------------------------------------------------------

    def failures(self) -> dict[str, dict[str, Mapping[str, Any]]]:
        """Return the failed tables by window, with their entries in its manifest, oldest first.
        Those that have the window by now are left out."""
        book = self.home.book(FAILED_TABLES)
        found = {}
        for window_id, tables in failed_tables(self.home).items():
            missing = {name: e for name, e in tables.items() if not self._has(name, e)}
            if missing:
                found[window_id] = missing
            elif book is not None:
                book.withdraw(window_id)
        return found

    def _has(self, name: str, entry: Mapping[str, Any]) -> bool:
        """Return True if a table has its window; False if it cannot be asked."""
        try:
            sink = self._sink_of(name, entry)
            return sink is not None and sink.marker(str(entry["window_id"])) is not None
        except Exception:  # noqa: BLE001 - it failed before, and may fail again
            return False

    def narrowed(self, entries: Mapping[str, Mapping[str, Any]]) -> RoutedSink:
        """Return a sink of the same routes that takes records only for these tables."""
        narrow = RoutedSink(self.home, self.routes, self._open_table, at_once=self._at_once)
        narrow._only = frozenset(v for entry in entries.values() for v in entry["values"])
        narrow._sinks = self._sinks
        narrow._places = self._places
        return narrow

    def takes(self, value: str) -> bool:
        """Return False if records of `value` are not for this sink."""
        return self._only is None or value in self._only

    @property
    def expected(self) -> Iterable[str]:
        """Values whose tables are opened before the read; all of them in a narrowed sink."""
        return sorted(self._only or ())

    def refuse_if_all_failed(self, staging: Staging) -> None:
        """Raise `CountMismatch` if no table of a narrowed sink would take what is read."""
        tables = self._tables.get(staging.path, {}).values()
        if self._only is not None and all(table.failed for table in tables):
            reasons = "; ".join(str(table.failed) for table in tables)
            raise CountMismatch(reasons or "no route leads to it any more")

    def tables_by_name(self, staging: Staging) -> dict[str, TableStaging]:
        """Return the tables of a try by the names that they have in a manifest."""
        return {_shown(table.address): table for table in self.tables(staging)}

    @property
    def made_good(self) -> Mapping[str, list[str]]:
        """See `Sink.made_good`."""
        return self._made_good

    def note_made_good(self, window_id: str, addresses: Iterable[str]) -> None:
        """Note that these tables have the window now."""
        self._made_good.setdefault(window_id, []).extend(addresses)

    def tables(self, staging: Staging) -> list[TableStaging]:
        """Return the tables of a try in the order of their addresses."""
        return [table for _, table in sorted(self._tables.get(staging.path, {}).items())]

    def route_to(self, table: TableStaging) -> Route:
        """Return the route that has opened a table."""
        return self._sinks[table.address][0]

    def forget(self, staging: Staging, table: TableStaging) -> None:
        """Give up a table that was begun before the read and has met no record."""
        del self._tables[staging.path][table.address]
        table.discard()

    def publish(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        """Publish every table that has not the window yet, then the window. See `Sink.publish`.

        Raises `CountMismatch` before anything becomes visible if the tables and the quarantine have
        not all records that were read.
        """
        tables = self.tables(staging)
        _check_sum(plan, counts, tables)
        if (publishing := self.home.book(PUBLISHING)) is not None:
            self._note_publishing(publishing, plan, tables)
            progress("tables noted")
        self._note_places(tables)
        self.publish_tables(staging, plan, counts, progress)
        routed: Counter[str] = Counter(dict.fromkeys(plan.ranges, 0))
        for table in tables:
            if table.counts is not None and table.failed is None:
                routed.update(table.counts.records)
        if any(table.failed for table in tables) and (book := self.home.book(FAILED_TABLES)):
            # Before the window is published: a window without its note would not be made good.
            book.fix(plan.window_id, {"window_id": plan.window_id})
            progress("failed tables noted")
        own = replace(
            counts,
            records=dict.fromkeys(plan.ranges, 0),
            read=None,
            tables={_shown(table.address): _entry_of(table) for table in tables},
            routed=dict(routed),
            patterns=tuple(route.pattern for route in self.routes.routes),
            pieces=None,
        )
        return self.home.publish(staging, plan, own, progress)

    def publish_tables(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> None:
        """Publish every table of a try that has not the window yet, after comparing the sum."""
        tables = self.tables(staging)
        _check_sum(plan, counts, tables)
        turn = threading.Lock()

        def publish(table: TableStaging) -> None:
            interrupted: list[Exception] = []

            def report(point: str) -> None:
                try:
                    with turn:
                        progress(f"{_shown(table.address)}: {point}")
                except Exception as error:  # the run's, and no failure of the table
                    interrupted.append(error)
                    raise

            self.guard(table, lambda: _publish(table, report))
            if interrupted:
                raise interrupted[0]
            with suppress(Exception):  # it may have published, and failed after that
                if table.failed and (marker := table.sink.marker(table.plan.window_id)):
                    table.failed, table.marker = None, marker
            if table.failed is None:
                _refuse_other_publication(table)
                report("published")

        for table in tables:
            if table.counts is None:
                raise CountMismatch(f"{_shown(table.address)} was begun and not counted")
        self._each([table for table in tables if table.staging is not None], publish)

    def _note_publishing(
        self, book: BoundaryBook, plan: WindowPlan, tables: Iterable[TableStaging]
    ) -> None:
        """Note which tables are about to get which rows, before the first of them does.

        Raises `CountMismatch` if an earlier try, under other routes, has published in a table that
        would not get the same now: records would be in two tables."""
        mine = {
            "tables": {
                _shown(table.address): {
                    "window_id": table.plan.window_id,
                    "values": sorted(table.values),
                    "rows": 0 if table.counts is None else table.counts.total,
                    "conn_id": self._sinks[table.address][0].conn_id,
                }
                for table in tables
            }
        }
        earlier = book.read(plan.window_id)
        if earlier is not None and earlier != mine:
            for address, entry in earlier["tables"].items():
                if mine["tables"].get(address) != entry:
                    self._refuse_published(address, entry)
            book.withdraw(plan.window_id)
        if book.fix(plan.window_id, mine) != mine:
            raise CountMismatch(
                f"window {plan.window_id}: another try is publishing it under other routes"
            )

    def _note_places(self, tables: Iterable[TableStaging]) -> None:
        """Note which new addresses values have got, before a table is published there.

        Raises `CountMismatch` if another run has just given one to a value in other letters."""
        book = self.home.book(PLACES)
        if book is None:
            return
        named = [table.address for table in tables if self._named(self.route_to(table))]
        new = {_place_key(each): _shown(each) for each in named}
        new = {key: address for key, address in new.items() if key not in self._places}
        if not new:
            return
        with ThreadPoolExecutor(self._at_once, "tubemq-routes") as pool:
            fixed = pool.map(lambda key: book.fix(key, {"address": new[key]}), new)
            self._places.update(zip(new, (each["address"] for each in fixed), strict=True))
        for key, address in new.items():
            if self._places[key] != address:
                raise CountMismatch(
                    f"{address}: another run has just written {self._places[key]}, the same in "
                    "other letters; the next try goes by that"
                )

    def _refuse_published(self, address: str, entry: Mapping[str, Any]) -> None:
        """Raise `CountMismatch` if a table of an earlier try has its window, or cannot be asked."""
        try:
            route = Route(entry["values"][0], address, conn_id=entry["conn_id"])
            published = self._open_table(route, address).marker(entry["window_id"]) is not None
            why = "has published it"
        except Exception as error:  # noqa: BLE001 - whether it has is not known
            published, why = True, f"may have published it ({error})"
        if published:
            raise CountMismatch(
                f"{address} would get other records of the window than an earlier try, which {why}"
                ": a route was changed between two tries; set it back until the window is done"
            )

    def discard(self, staging: Staging) -> None:
        """Remove what the try staged, in its tables and in the home."""
        for table in self._tables.pop(staging.path, {}).values():
            table.discard()
        self.home.discard(staging)

    def tidy(self, window_id: str) -> None:
        """Remove staging places that dead tries of a published window left."""
        for own, sink in self._windows.get(window_id, {}).items():
            sink.tidy(own)
        if (publishing := self.home.book(PUBLISHING)) is not None:
            publishing.withdraw(window_id)
        self.home.tidy(window_id)


def failed_tables(home: Sink) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return by window the tables that its manifest in `home` names as failed, and that no run has
    found to have the window since. Opens no table."""
    book = home.book(FAILED_TABLES)
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for window_id in [] if book is None else sorted(book.listing()):
        marker = home.marker(window_id)
        if marker is not None:  # else of a try that died before it published
            tables = marker.counts.tables
            found[window_id] = {
                name: entry for name, entry in tables.items() if entry.get("failed")
            }
    return found


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
    assert table.staging is not None
    assert table.counts is not None
    publication = table.sink.publish(table.staging, table.plan, table.counts, progress)
    if not publication.won:
        table.marker = publication.marker


def _refuse_other_publication(table: TableStaging) -> None:
    """Raise `CountMismatch` if another try has published other rows in the table."""
    if table.marker is not None and table.counts is not None:
        refuse_other_rows(_shown(table.address), table.marker, table.counts.records)


def _shown(address: str) -> str:
    """Return an address without login and query, but with the table of a database."""
    place, _, query = address.partition("?")
    head, separator, rest = place.partition("://")
    rest = rest.rpartition("@")[2] if separator else rest
    table = re.search(r"(?:^|&)table=([^&]*)", query)
    return f"{head}{separator}{rest}" + (f"?table={table[1]}" if table else "")


def _place_key(address: str) -> str:
    """Return the key of an address among `PLACES`, the same for all letters' cases."""
    return hashlib.sha256(_shown(address).casefold().encode()).hexdigest()[:32]


def _entry_of(table: TableStaging) -> dict[str, Any]:
    counts = table.counts
    assert counts is not None
    read = counts.records if counts.read is None else counts.read
    return {
        "window_id": table.plan.window_id,
        "values": sorted(table.values),
        "read": sum(read.values()),
        "rows": counts.total if table.failed is None else 0,
        **({} if table.failed is None else {"failed": table.failed}),
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
