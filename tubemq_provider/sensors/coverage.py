"""`TubeMQCoverageSensor`: wait until a sink has all windows of an interval, from any writer.

For tasks that need complete windows of time: a day's report that must not run before the day's 24
windows are published. Reads the markers in the sink, so it needs no cluster, no run history and no
particular Dag, and covers backfills and repairs as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from tubemq_client import errors
from tubemq_provider.hooks.failures import explained, fatal_errors_fail_the_task
from tubemq_provider.hooks.sink_connection import open_sink
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.rendered import RefusesEmptyRendering
from tubemq_provider.sinks.factory import needless_connection, spec_problems
from tubemq_provider.sinks.read import published_windows
from tubemq_provider.task_arguments import (
    TaskArguments,
    blank_is_none,
    check_literals,
    is_template,
    parse,
    with_zone,
)
from tubemq_provider.windows.canonical import in_utc, rfc3339
from tubemq_provider.windows.coverage import Coverage, Interval, coverage, interval_set_of
from tubemq_provider.windows.errors import is_final

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["TubeMQCoverageSensor"]


_Name = Annotated[
    Annotated[str, Field(min_length=1)] | None,
    BeforeValidator(blank_is_none),
]
"""Optional name; "None", as a template renders it, means that it is not set."""


class CoverageArguments(TaskArguments):
    """Arguments of `TubeMQCoverageSensor`."""

    sink: Annotated[str, Field(min_length=1)]
    sink_conn_id: _Name = None
    start: Annotated[AwareDatetime, BeforeValidator(with_zone), AfterValidator(in_utc)]
    end: Annotated[AwareDatetime, BeforeValidator(with_zone), AfterValidator(in_utc)]
    topic: _Name = None
    group: _Name = None

    def cross_field_problems(self, unknown: frozenset[str]) -> list[str]:
        """Check the interval and the sink."""
        problems = []
        if not unknown & {"start", "end"} and self.start >= self.end:
            problems.append(f"start {self.start.isoformat()} is not before end")
        if "sink" not in unknown and not is_template(self.sink):
            append = self.sink.startswith("append:")
            problems += [
                f"sink: {bad}" for bad in spec_problems(self.sink, exactly_once=not append)
            ]
            if append:
                problems.append("sink: append:… has no markers of published windows")
            if self.sink_conn_id and not problems and (bad := needless_connection(self.sink)):
                problems.append(bad)
        return problems


class TubeMQCoverageSensor(RefusesEmptyRendering, BaseSensorOperator):
    """Succeed when `sink` has every instant of `[start, end)` in windows of time, none twice.

    Each topic and group with windows in the sink must have them all. Windows of all epochs and
    filters of a group are combined: a day on which one of them changed is complete when the
    windows before and after the change are there. Only windows of the same epoch and filters
    count as duplicates.

    :param sink: as the ingest operator's `sink` or `path`.
    :param sink_conn_id: connection with the sink's credentials.
    :param start: begin of the interval, RFC 3339 or datetime; templates allowed.
    :param end: end of the interval, exclusive.
    :param topic: only windows of this topic; needed where the sink has several.
    :param group: only windows of this group.

    A store or database that does not answer is waited for, with a warning each time.

    Each poke lists the sink's markers, so use a long `poke_interval`. The default `mode` is
    ``reschedule``: between pokes it holds no worker slot.

    XCom: ``{"windows", "scopes", "missing": [["2026-01-01T03:00:00Z", "2026-01-01T04:00:00Z"]]}``.
    """

    template_fields: Sequence[str] = ("sink", "sink_conn_id", "start", "end", "topic", "group")
    ui_color = "#d6eef2"

    def __init__(
        self,
        *,
        sink: str,
        start: datetime | str,
        end: datetime | str,
        sink_conn_id: str | None = None,
        topic: str | None = None,
        group: str | None = None,
        mode: str = "reschedule",
        **kwargs: Any,
    ) -> None:
        super().__init__(mode=mode, **kwargs)
        self.sink = sink
        self.sink_conn_id = sink_conn_id
        self.start = start
        self.end = end
        self.topic = topic
        self.group = group
        check_literals(CoverageArguments, self._arguments(), static={}, task=self)

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - only the sink is read
        """Check the markers once."""
        with fatal_errors_fail_the_task(self.log):
            arguments = parse(CoverageArguments, self._arguments())
            try:
                scopes = _coverage(arguments)
            except (errors.TubeMQError, OSError) as exc:
                if not _may_pass(exc):
                    raise
                self.log.warning("not yet: %s", explained(exc))
                return PokeReturnValue(is_done=False)
        missing = [
            [rfc3339(low), rfc3339(high)]
            for low, high in _missing(scopes, arguments.start, arguments.end)
        ]
        duplicates = [interval for scope in scopes for interval in scope.intervals.overlapping]
        if not scopes:
            self.log.info("not yet: %s has no such window", arguments.sink)
        elif missing or duplicates:
            self.log.info("not yet: missing %s, published twice %s", missing, duplicates)
        report = {
            "windows": sum(scope.windows for scope in scopes),
            "scopes": len(scopes),
            "missing": missing,
        }
        return PokeReturnValue(
            is_done=bool(scopes) and not missing and not duplicates, xcom_value=report
        )

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in CoverageArguments.model_fields}


def _coverage(arguments: CoverageArguments) -> list[Coverage]:
    """Return the coverage of each scope that has windows of time in the sink."""
    sink = open_sink(arguments.sink, arguments.sink_conn_id, TubeMQHook.get_connection)
    markers = [
        marker
        for marker in published_windows(sink)
        if arguments.topic in (None, marker.plan.topic)
        and arguments.group in (None, marker.plan.group)
        and marker.plan.time is not None
    ]
    return coverage(markers, start=arguments.start, end=arguments.end)


def _may_pass(error: errors.TubeMQError | OSError) -> bool:
    """Return True if a store that failed may answer the next time."""
    if isinstance(error, errors.TubeMQError):
        return not is_final(error)
    return not isinstance(error, PermissionError | FileNotFoundError | NotADirectoryError)


def _missing(scopes: list[Coverage], start: datetime, end: datetime) -> Iterator[Interval]:
    """Yield the intervals that no scope of a cluster's topic and group has, in order."""
    together: dict[tuple[str, ...], list[Interval]] = {}
    for scope in scopes:
        key = (scope.cluster, scope.topic, scope.group)
        together.setdefault(key, []).extend(scope.intervals.done)
    for intervals in together.values():
        yield from interval_set_of(intervals, start, end).missing
