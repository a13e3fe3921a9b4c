"""From checked arguments to a window run: which planner, store, sink and engine they mean.

The other half of an operator or an asset, without its framework: it can be read, and tested,
without a Dag. The source and the sink are handed in, opened by a caller that can read connections;
the rules of windows are left to `windows`. This module must not know a kind of source, sink or
store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from tubemq_client.errors import ConfigError
from tubemq_provider.engines.function import FunctionEngine, PlannedWindow, ReportedEngine
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.columns import expected_columns
from tubemq_provider.ingest.engines import make_engine
from tubemq_provider.ingest.narrate import Log, Narrator, narrated
from tubemq_provider.ingest.resolvers import make_resolver
from tubemq_provider.windows.canonical import in_utc
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.boundary_book import retired_brokers
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.read_limits import ByteBudget
from tubemq_provider.windows.planning.standalone_planner import (
    ExplicitPlanner,
    StandalonePlanner,
    TimePlanner,
)
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import OwnedEngine, SuspendingEngine
from tubemq_provider.windows.run.epochs import stored_epoch
from tubemq_provider.windows.run.kinds import window_run

if TYPE_CHECKING:
    from datetime import datetime

    from tubemq_provider.sources.base import RecordReader, Source
    from tubemq_provider.windows.plan import WindowPlan
    from tubemq_provider.windows.protocols import (
        Document,
        Engine,
        Marker,
        OffsetStore,
        Sink,
        StepObserver,
    )
    from tubemq_provider.windows.run.result import WindowResult
    from tubemq_provider.windows.run.steps import WindowRun

__all__ = ["IngestJob", "Interval", "Planned", "needs_interval"]

Interval = tuple["datetime | None", "datetime | None"]
"""The instants that a run stands for, where it stands for any."""


_FINISHED: Final = 100
"""So many windows without entries a task finishes before it leaves others to the next run."""


class Planned(NamedTuple):
    """The window that comes next, if any, its marker if it is done, and what was finished before
    it. A `plan` without entries is among `finished`."""

    plan: WindowPlan | None
    marker: Marker | None
    finished: tuple[WindowResult, ...] = ()


class IngestJob:
    """One window's worth of work. Use it once; `cancel` may come from a signal handler.

    `interval` is the run's own, the default of a time window; `stack` closes the source and what
    the engine leaves open; `timeline` loads what the `timeline` resolver reads. Raises
    `errors.ConfigError` if the source is not the one that the arguments are for.
    """

    def __init__(
        self,
        arguments: IngestArguments,
        source: Source,
        sink: Sink,
        stack: ExitStack,
        *,
        interval: Interval = (None, None),
        timeline: Callable[[], Document | None] = lambda: None,
    ) -> None:
        _check_identity(arguments, source)
        self._arguments = arguments
        self._source = stack.enter_context(source)
        self._sink = sink
        self._interval = interval
        self._timeline = timeline
        self._cancelled = threading.Event()
        self._policies = Policies.of(
            gap_policy=arguments.gap_policy,
            on_offset_regression=arguments.on_offset_regression,
            new_partition_position=arguments.new_partition_position,
            corrupt_records=arguments.corrupt_records,
            on_clear=arguments.on_clear,
            on_other_scope=arguments.on_other_scope,
            on_missing_interval=arguments.on_missing_interval,
        )
        self._engine = make_engine(arguments, source, self._policies, stack)
        self._told_engine: Engine = self._engine

    def run(
        self,
        store: OffsetStore,
        *,
        attempt: str,
        serialised: bool,
        observer: StepObserver,
        cleared: bool = False,
        retried: bool = False,
    ) -> WindowResult:
        """All eight steps. `attempt` names this try; `serialised` says no other run overlaps,
        `cleared` that a user asked for a finished run to be done again, `retried` that an earlier
        try has begun the run and no user asked for another."""
        return self._window_run(
            store,
            attempt=attempt,
            serialised=serialised,
            observer=observer,
            cleared=cleared,
            retried=retried,
        ).run()

    def plan(
        self, store: OffsetStore, *, attempt: str, serialised: bool, observer: StepObserver
    ) -> Planned:
        """The steps that read nothing: the plan of the next window, frozen, and its marker if it is
        done. `run` of a later job goes on with it. Windows without entries, which say where a group
        goes on after a loss or a reset, are finished on the way: nobody would read them."""
        done: list[WindowResult] = []
        while True:
            run = self._window_run(
                store, attempt=attempt, serialised=serialised, observer=observer, cleared=False
            )
            plan, marker = run.planned()
            if run.finished is not None:
                done.append(run.finished)
            again = run.finished is not None and self._arguments.mode == "cursor"
            if not again or len(done) >= _FINISHED:
                return Planned(plan, marker, tuple(done))

    def hand_to(self, function: Callable[[PlannedWindow], object]) -> FunctionEngine:
        """Let `function` read the window instead of an engine; before `narrator` is asked for."""

        def open_reader(plan: WindowPlan) -> AbstractContextManager[RecordReader]:
            return self._source.open_reader(plan, self._policies)

        engine = FunctionEngine(function, open_reader)
        self._engine = self._told_engine = engine
        return engine

    def written(self, window_id: str) -> WindowPlan | None:
        """The plan of a window that the sink has, or None."""
        marker = self._sink.marker(window_id)
        return None if marker is None else marker.plan

    def take_counts(self, plan_hash: str, records: Mapping[str, int], size: int = 0) -> None:
        """The window of that hash was read elsewhere: take its counts instead of reading it."""
        self._engine = self._told_engine = ReportedEngine(plan_hash, records, size)

    def may_suspend(self) -> None:
        """Let `run` end with `Suspended` as soon as the engine's work needs no process that waits.
        Without effect on engines whose work ends with it."""
        if isinstance(self._engine, SuspendingEngine):
            self._engine.may_suspend()

    def expect(self, ticket: Document) -> None:
        """Go on where `Suspended` with this ticket has ended an earlier job of the task."""
        if isinstance(self._engine, SuspendingEngine):
            self._engine.expect(ticket)

    def _window_run(
        self,
        store: OffsetStore,
        *,
        attempt: str,
        serialised: bool,
        observer: StepObserver,
        cleared: bool,
        retried: bool = False,
    ) -> WindowRun:
        if self._cancelled.is_set():
            raise WindowError("the task was killed before it began")
        if isinstance(self._engine, OwnedEngine):
            self._engine.belong_to(store.writer)
        return window_run(
            self._planner(self._scope(store), serialised=serialised),
            store,
            self._sink,
            self._told_engine,
            attempt=attempt,
            observer=observer,
            cleared=cleared,
            retried=retried,
            mirror=self._source.mirror if self._arguments.commit_to_broker else None,
            columns=lambda: expected_columns(self._arguments, self._source.space.source),
        )

    def cancel(self) -> None:
        """End at the next point between two actions, or inside the engine. Returns soon."""
        self._cancelled.set()
        self._engine.cancel()

    def narrator(self, log: Log) -> Narrator:
        """Tells a task's log what is done, and ends a cancelled run."""
        found = Narrator(log, self._cancelled, self._arguments.destination or self._sink.identity)
        self._told_engine = narrated(self._engine, found)
        return found

    def _scope(self, store: OffsetStore) -> WindowScope:
        """What the window belongs to, in the group's present epoch unless the task names one."""
        arguments = self._arguments
        return WindowScope(
            self._source.identity,
            arguments.topic,
            arguments.group,
            self._sink.identity,
            arguments.filters,
            stored_epoch(store, chained=arguments.mode == "cursor")
            if arguments.epoch is None
            else arguments.epoch,
            self._source.space.source,
        )

    def _planner(
        self, scope: WindowScope, *, serialised: bool
    ) -> CursorPlanner | StandalonePlanner:
        arguments = self._arguments
        if arguments.mode == "cursor":
            return self._cursor_planner(scope, serialised=serialised)
        if arguments.by == "explicit":
            return ExplicitPlanner(
                scope,
                arguments.offsets("starting_offsets"),
                arguments.offsets("ending_offsets"),
                self._source.ends,
                self._policies,
                self._source.life(),
            )
        start, end = self._window()
        resolver = make_resolver(arguments, self._source, self._timeline)
        return TimePlanner(
            scope,
            start,
            end,
            resolver,
            self._source.ends,
            self._sink.boundaries,
            self._policies,
            self._source.life(),
        )

    def _cursor_planner(self, scope: WindowScope, *, serialised: bool) -> CursorPlanner:
        return CursorPlanner(
            scope,
            self._source.ends,
            self._initial_position(),
            self._arguments.max_records,
            self._policies,
            serialised,
            self._byte_budget(),
            self._arguments.max_duration,
            self._source.life(),
            lambda: retired_brokers(self._sink.boundaries, scope),
            self._arguments.epoch_seen or "",
        )

    def _byte_budget(self) -> ByteBudget | None:
        arguments = self._arguments
        if arguments.max_bytes is None:
            return None
        source = self._source
        return ByteBudget(source.topic, arguments.max_bytes, source.probe(), source.space)

    def _initial_position(self) -> str | Mapping[str, object] | None:
        given = self._arguments.initial_position
        if isinstance(given, dict):
            return {self._arguments.topic: self._arguments.offsets("initial_position")}
        return given

    def _window(self) -> tuple[datetime, datetime]:
        """The window of time: as given, or the run's own. Raises `errors.ConfigError`."""
        if self._arguments.start and self._arguments.end:
            return self._arguments.start, self._arguments.end
        start, end = self._interval
        if start is None or end is None or (start := in_utc(start)) >= (end := in_utc(end)):
            raise ConfigError(
                "the window has no interval: give start and end", subject="time window"
            )
        return start, end


def needs_interval(arguments: IngestArguments, interval: Interval) -> bool:
    """Whether a window of time is asked for, and neither the arguments nor the run say which."""
    if arguments.mode != "time" or arguments.by == "explicit" or arguments.start is not None:
        return False
    start, end = interval
    return start is None or end is None or start >= end


_IDENTITY = ("kind", "cluster", "topic", "group")


def _check_identity(arguments: IngestArguments, source: Source) -> None:
    """Progress must not end up under another cluster's, topic's or group's name."""
    asked = (arguments.source, arguments.cluster, arguments.topic, arguments.group)
    given = (source.space.source, source.identity, source.topic, source.group)
    problems = [
        f"{name}: the source is {theirs!r}, the arguments are for {mine!r}"
        for name, mine, theirs in zip(_IDENTITY, asked, given, strict=True)
        if mine != theirs
    ]
    if problems:
        raise ConfigError(problems, subject="source")
