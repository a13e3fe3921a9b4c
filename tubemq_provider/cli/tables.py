"""``airflow tubemq windows tables`` and ``missed``: tables of routed windows.

The markers in the sink of a route set name each window's tables and the routes that there were.
Nothing here changes anything, or opens a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tubemq_client import errors
from tubemq_client.terminal import visible
from tubemq_provider.cli._show import command, people, say
from tubemq_provider.cli._sinks import sink_of
from tubemq_provider.ingest.routes import parse_routes
from tubemq_provider.sinks.read import published_windows
from tubemq_provider.sinks.routed import Route, RouteSet, failed_tables
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import Marker, Sink
from tubemq_provider.windows.spaces import FIRST_SOURCE


@command
def show_tables(args: Any) -> int:
    """Print a row for each table. Status 1 if a table still lacks a window."""
    sink = _sink(args)
    missing = failed_tables(sink)
    rows: dict[str, dict[str, Any]] = {}
    for marker in _routed(sink):
        for address, entry in marker.counts.tables.items():
            row = rows.setdefault(
                address,
                {
                    "table": address,
                    "values": [],
                    "windows": 0,
                    "rows": 0,
                    "failed": [],
                    "newest": "",
                },
            )
            row["values"] = sorted({*row["values"], *entry["values"]})
            window_id = marker.plan.window_id
            if address in missing.get(window_id, {}):
                row["failed"].append(window_id)
                continue
            row["windows"] += 1
            # A table that was made good has the rows, and the marker does not count them.
            row["rows"] += entry["rows"]
            row["newest"] = window_id
    lines = [
        {
            **row,
            "values": _few(row["values"]),
            "failed": _few(row["failed"]) if people(args) else row["failed"],
        }
        for _, row in sorted(rows.items())
    ]
    say(args, lines, [row for _, row in sorted(rows.items())])
    return 1 if missing else 0


def _few(texts: list[str]) -> str:
    more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
    return ", ".join(texts[:3]) + more


@command
def show_missed(args: Any) -> int:
    """Print the windows that routes missed, as ranges of explicit windows. Status 1 if any did."""
    routes = parse_routes(args.routes)
    chosen = [route for route in routes.routes if args.route in (None, route.pattern)]
    if not chosen:
        raise errors.ConfigError(f"no route {args.route!r} in --routes", subject="routes")
    markers = _routed(_sink(args))
    spans = [span for route in chosen for span in _spans(route, routes, markers)]
    documents = [span.to_document() for span in spans]
    rows = [
        {
            "route": span.route.pattern,
            "windows": len(span.plans),
            "first": span.plans[0].window_id,
            "last": span.plans[-1].window_id,
            "elsewhere": _few(sorted(span.elsewhere)),
        }
        for span in spans
    ]
    say(args, rows, documents)
    if people(args):
        for span in spans:
            print(visible(_advice(span, routes, args.sink), lines=True))
    return 1 if spans else 0


@dataclass(frozen=True, slots=True)
class _Span:
    """Windows in a row that a route missed; `elsewhere` are tables that took its records. It
    matches `others`, too: values that another route takes."""

    route: Route
    plans: list[WindowPlan]
    elsewhere: set[str]
    others: set[str]

    @property
    def ranges(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """First offset and end of each partition."""
        starts: dict[str, int] = {}
        ends: dict[str, int] = {}
        for plan in self.plans:
            for key, (start, end) in plan.ranges.items():
                starts[key] = min(start, starts.get(key, start))
                ends[key] = max(end, ends.get(key, end))
        return starts, ends

    def to_document(self) -> dict[str, Any]:
        starts, ends = self.ranges
        return {
            "route": self.route.pattern,
            "windows": [plan.window_id for plan in self.plans],
            "starting_offsets": starts,
            "ending_offsets": ends,
            "elsewhere": sorted(self.elsewhere),
        }


def _spans(route: Route, routes: RouteSet, markers: Iterable[Marker]) -> Iterator[_Span]:
    """Yield the windows that a route missed, those of one scope in a row as one span."""
    span: _Span | None = None
    for marker in markers:
        took = {
            address: {v for v in entry["values"] if fnmatchcase(v, route.pattern)}
            for address, entry in marker.counts.tables.items()
        }
        elsewhere = {address for address, values in took.items() if values}
        plan = marker.plan
        if route.pattern in marker.counts.patterns or not plan.entries:
            continue
        if not marker.counts.patterns and elsewhere:
            continue  # of an earlier release, which did not note its routes
        last = None if span is None else span.plans[-1]
        if span is None or last is None or not _follows(last, plan):
            if span is not None:
                yield span
            span = _Span(route, [], set(), set())
        span.plans.append(plan)
        span.elsewhere.update(elsewhere)
        span.others.update(
            value
            for values in took.values()
            for value in values
            if routes.route_of(value) not in (None, route)
        )
    if span is not None:
        yield span


def _follows(last: WindowPlan, plan: WindowPlan) -> bool:
    same = plan.scope_hash == last.scope_hash and plan.seq is not None and last.seq is not None
    return same and plan.continues(last.ends)


def _advice(span: _Span, routes: RouteSet, sink: str) -> str:
    plan, pattern = span.plans[0], span.route.pattern
    starts, ends = span.ranges
    operator = "TubeMQWindowIngestOperator"
    if plan.source != FIRST_SOURCE:
        operator = f"# the operator for windows of offsets of {plan.source}\n…WindowIngestOperator"
    filters = f" filters={list(plan.filters)!r}," if plan.filters else ""
    members = {"name": "fill", "by": routes.by, "format": routes.format, "unrouted": "ignore"}
    given = ", ".join(f'"{name}": {json.dumps(text)}' for name, text in members.items() if text)
    other = ""
    if span.others:
        other = (
            f"\nNot so: {pattern!r} matches {_few(sorted(span.others))}, which another route "
            "takes; the\ntask would write their records a second time. Name the values that "
            f"{pattern!r} is for instead of it.\n"
        )
    return f"""
To fill them, run once, with the member {pattern!r} of your routes in 'tables':
{other}
{operator}(
    task_id="fill", topic={plan.topic!r}, group={plan.group + "_fill"!r},
    cluster={plan.cluster!r}, sink={sink.rstrip("/") + "_fill"!r}, engine="inline",{filters}
    starting_offsets={json.dumps({plan.topic: starts})},
    ending_offsets={json.dumps({plan.topic: ends})},
    routes={{{given}, "tables": {{{pattern!r}: …}}}},
)"""


def _routed(sink: Sink) -> list[Marker]:
    """Return the markers of routed windows. Raises `ConfigError` if there are none."""
    markers = [m for m in published_windows(sink) if m.counts.tables or m.counts.patterns]
    if not markers:
        raise errors.ConfigError(
            "it has no windows of routes: give the sink of the operator, and not of a table",
            subject="sink",
        )
    return markers


def _sink(args: Any) -> Sink:
    sink = sink_of(args)
    if sink is None:
        raise errors.ConfigError("name the sink with --sink", subject="sink")
    return sink
