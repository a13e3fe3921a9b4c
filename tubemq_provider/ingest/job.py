"""Build a window run from checked arguments: planner, store, sink and engine.

The framework-independent half of an operator or an asset: it can be read and tested without a Dag.
The source and the sink are passed in, opened by a caller that can read connections; the rules of
windows are in `windows`. This module must not know a kind of source, sink or store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tubemq_client.errors import ConfigError
from tubemq_provider.engines.function import FunctionEngine, PlannedWindow, ReportedEngine
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.columns import expected_columns
from tubemq_provider.ingest.dead_letters import DeadLetters
from tubemq_provider.ingest.engines import make_engine
from tubemq_provider.ingest.made_good import MakeGood
from tubemq_provider.ingest.progress import Log, ProgressLogger
from tubemq_provider.ingest.resolvers import make_resolver
from tubemq_provider.sinks.routed import RoutedSink
from tubemq_provider.sources.base import ConfigurableSource, LetterSource
from tubemq_provider.windows.canonical import in_utc
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.boundary_book import retired_brokers
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.read_limits import ByteBudget
from tubemq_provider.windows.planning.standalone_planner import (
    ExplicitPlanner,
    StandalonePlanner,
    TimePlanner,
)
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import IngestWatch, Step
from tubemq_provider.windows.run.epochs import StoredProgress, stored_epoch, stored_progress
from tubemq_provider.windows.run.kinds import window_run

if TYPE_CHECKING:
    from datetime import datetime

    from tubemq_provider.sources.base import RecordReader, Source
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
"""Instants of a run's interval, or None."""


_FINISHED: Final = 100
"""Limit of windows without entries that a task finishes; further ones are left to the next run."""


class Planned(NamedTuple):
    """Next window, if any, its marker if it is done, and the windows finished before it.

    A `plan` without entries is among `finished`.
    """

    plan: WindowPlan | None
    marker: Marker | None
    finished: tuple[WindowResult, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return identity and ranges of the window, for what reads it and for its commit."""
        plan = self.plan
        if plan is None:
            return {"window_id": None, "hash": None, "entries": 0, "partitions": 0, "ranges": {}}
        start, end = plan.time or (None, None)
        return {
            "window_id": plan.window_id,
            "hash": plan.hash,
            "topic": plan.topic,
            "group": plan.group,
            "start": start,
            "end": end,
            "entries": plan.entries,
            "partitions": len(plan.ranges),
            "ranges": {key: list(range_) for key, range_ in plan.ranges.items()},
            "starting_offsets": {plan.topic: {key: at for key, (at, _) in plan.ranges.items()}},
            "ending_offsets": {plan.topic: {key: at for key, (_, at) in plan.ranges.items()}},
        }


class IngestJob:
    """Work of one window. Use it once; `cancel` may be called by a signal handler.

    `interval` is the run's, the default of a time window; `stack` closes the source and the engine;
    `timeline` loads the samples of the `timeline` resolver. Raises `errors.ConfigError` if the
    source does not match the arguments.
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
        _configure(source, arguments)
        self._arguments = arguments
        self._source = stack.enter_context(source)
        self._sink = sink
        self._interval = interval
        self._timeline = timeline
        self._cancelled = threading.Event()
        self._policies = Policies.from_options(arguments)
        self._engine: Engine = make_engine(arguments, source, self._policies, stack, sink)
        self._watch = IngestWatch()

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
        """Run all eight steps.

        `attempt` names this try. `serialised`: no other run overlaps. `cleared`: a user asked to
        repeat a finished run. `retried`: an earlier try began this run, and no user asked for
        another.
        """
        warnings = self._make_good(store, attempt, observer, serialised=serialised)
        result = self._window_run(
            store,
            attempt=attempt,
            serialised=serialised,
            observer=observer,
            cleared=cleared,
            retried=retried,
        ).run()
        delivery = self._delivery(observer) if result.recovered else None
        for window_id in result.recovered:
            marker = self._sink.marker(window_id)
            if delivery is not None and marker is not None:
                delivery(marker)
        warnings += [
            f"{address} did not take window {result.window_id}, and the next run tries again: "
            f"{entry['failed']}"
            for address, entry in result.tables.items()
            if entry.get("failed") and not result.replayed
        ]
        return replace(result, warnings=(*result.warnings, *warnings)) if warnings else result

    def _make_good(
        self, store: OffsetStore, attempt: str, observer: StepObserver, *, serialised: bool
    ) -> list[str]:
        """Publish windows in tables that failed to take them; return what still fails."""
        sink = self._sink
        if not isinstance(sink, RoutedSink) or not sink.routes.isolates:
            return []
        if not (failures := sink.failures()):
            return []
        scope, _ = self._scope(store)
        planner = self._planner(scope, serialised=serialised)
        return MakeGood(
            sink,
            self._engine,
            planner.recognise,
            attempt=f"{attempt}-again",
            progress=lambda point: observer.at(Step.LOAD, point),
        ).run(failures)

    def plan(
        self, store: OffsetStore, *, attempt: str, serialised: bool, observer: StepObserver
    ) -> Planned:
        """Run the steps that read nothing; return the frozen plan, and its marker if it is done.

        `run` of a later job continues with the plan. Windows without entries, which record the next
        position after a loss or a reset, are finished here, since no task would read them.
        """
        done: list[WindowResult] = []
        while True:
            run = self._window_run(
                store, attempt=attempt, serialised=serialised, observer=observer, cleared=False
            )
            plan, marker = run.planned()
            if run.finished is not None:
                done.append(run.finished)
            next_one = run.finished is not None and self._arguments.mode == "cursor"
            if not next_one or len(done) >= _FINISHED:
                return Planned(plan, marker, tuple(done))

    def read_with(self, function: Callable[[PlannedWindow], object]) -> FunctionEngine:
        """Let `function` read the window instead of an engine."""

        def open_reader(plan: WindowPlan) -> AbstractContextManager[RecordReader]:
            return self._source.open_reader(plan, self._policies)

        self._engine = engine = FunctionEngine(function, open_reader)
        return engine

    def use_counts(
        self,
        store: OffsetStore,
        planned: Mapping[str, Any],
        records: Mapping[str, int],
        size: int = 0,
    ) -> None:
        """Use counts of the `planned` window (see `Planned.document`), which was read elsewhere,
        instead of reading; the run continues as if an earlier try of its task had planned it."""
        plan_hash = str(planned["hash"])
        plan = self._stored_plan(store, str(planned["window_id"]), plan_hash)
        if plan is not None:
            store.store_task_plan(plan.to_document())
        self._engine = ReportedEngine(plan_hash, records, size)

    def _stored_plan(self, store: OffsetStore, window_id: str, plan_hash: str) -> WindowPlan | None:
        """Return the plan of that hash from an earlier try, the planning task or the sink.

        None for a claim: the run knows those.
        """
        for load in (store.load_task_plan, lambda: store.load_plan(window_id)):
            document = load()
            if document is not None:
                plan = WindowPlan.from_document(document, where="plan")
                if plan.hash == plan_hash:
                    return plan
        marker = self._sink.marker(window_id)
        return marker.plan if marker is not None and marker.plan.hash == plan_hash else None

    def may_suspend(self) -> None:
        """Let `run` raise `Suspended` as soon as the engine's work needs no waiting process.

        Without effect on engines whose work ends with the process.
        """
        self._engine.may_suspend()

    def expect(self, ticket: Document) -> None:
        """Resume the work that an earlier job of the task left with `Suspended` and this ticket."""
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
        self._engine.belong_to(store.writer)
        scope, progress = self._scope(store)
        return window_run(
            self._planner(scope, serialised=serialised),
            store,
            self._sink,
            self._engine,
            attempt=attempt,
            observer=observer,
            watch=self._watch,
            cleared=cleared,
            retried=retried,
            deliver=self._delivery(observer),
            mirror=self._source.mirror if self._arguments.commit_to_broker else None,
            columns=lambda: expected_columns(self._arguments, self._source.space.source),
            progress=progress,
        )

    def _delivery(self, observer: StepObserver) -> Callable[[Marker], None] | None:
        """Return what sends quarantined records to their topic, or None."""
        name = self._arguments.quarantine_topic
        if name is None:
            return None
        if not isinstance(self._source, LetterSource):
            raise ConfigError(
                f"quarantine_topic is not available for {self._source.space.source}",
                subject="arguments",
            )
        topic = self._source.dead_letters(name)
        letters = DeadLetters(self._sink, topic, lambda point: observer.at(Step.PUBLISH, point))
        return letters.deliver

    def cancel(self) -> None:
        """End between two actions, or inside the engine. Returns soon."""
        self._cancelled.set()
        self._engine.cancel()

    def progress_logger(self, log: Log) -> ProgressLogger:
        """Return the observer that logs progress to a task's log, and ends a cancelled run."""
        progress_logger = ProgressLogger(
            log,
            self._cancelled,
            self._arguments.destination or self._sink.identity,
            "quarantined" if self._arguments.corrupt_records == "quarantine" else "dropped",
        )
        self._watch = progress_logger.watch()
        return progress_logger

    def _scope(self, store: OffsetStore) -> tuple[WindowScope, StoredProgress | None]:
        """Return the scope of the window, in the group's current epoch unless the task names one,
        and the progress of a chain as far as it was read for that."""
        arguments, progress = self._arguments, None
        if arguments.epoch is not None:
            epoch = arguments.epoch
        elif arguments.mode == "cursor":
            epoch, progress = stored_progress(store)
        else:
            epoch = stored_epoch(store, chained=False)
        scope = WindowScope(
            self._source.identity,
            arguments.topic,
            arguments.group,
            self._sink.identity,
            arguments.filters,
            epoch,
            self._source.space.source,
        )
        return scope, progress

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
                self._source.record_lookup(),
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
            self._source.record_lookup(),
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
            self._source.record_lookup(),
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
        position = self._arguments.initial_position
        if isinstance(position, dict):
            return {self._arguments.topic: self._arguments.offsets("initial_position")}
        return position

    def _window(self) -> tuple[datetime, datetime]:
        """Return the window of time, from the arguments or the run. Raises `errors.ConfigError`."""
        if self._arguments.start and self._arguments.end:
            return self._arguments.start, self._arguments.end
        start, end = self._interval
        if start is None or end is None or (start := in_utc(start)) >= (end := in_utc(end)):
            raise ConfigError(
                "the window has no interval: give start and end", subject="time window"
            )
        return start, end


def needs_interval(arguments: IngestArguments, interval: Interval) -> bool:
    """Return True for a window of time that neither the arguments nor the run define."""
    if arguments.mode != "time" or arguments.by == "explicit" or arguments.start is not None:
        return False
    start, end = interval
    return start is None or end is None or start >= end


def _configure(source: Source, arguments: IngestArguments) -> None:
    """Give the source the task's `consumer_config`. Raises `ConfigError` with every problem."""
    if not arguments.consumer_config:
        return
    if not isinstance(source, ConfigurableSource):
        raise ConfigError(
            f"consumer_config is not available for {arguments.source}; its connection has all "
            f"options",
            subject="arguments",
        )
    source.configure(arguments.consumer_config)


_IDENTITY = ("kind", "cluster", "topic", "group")


def _check_identity(arguments: IngestArguments, source: Source) -> None:
    """Raise `ConfigError` if progress would be stored under another name."""
    expected = (arguments.source, arguments.cluster, arguments.topic, arguments.group)
    actual = (source.space.source, source.identity, source.topic, source.group)
    problems = [
        f"{name}: the source is {actual_value!r}, the arguments are for {argument!r}"
        for name, argument, actual_value in zip(_IDENTITY, expected, actual, strict=True)
        if argument != actual_value
    ]
    if problems:
        raise ConfigError(problems, subject="source")
