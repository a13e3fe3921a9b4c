"""From checked arguments to a `WindowRun`: which planner, sink and engine they mean.

The operator's other half, without Airflow's base class: it can be read, and tested, without a Dag.
It opens what the run needs through the hook and leaves the rules of windows to `windows`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tubemq_provider.arguments import of_topic
from tubemq_provider.operators.arguments import IngestArguments
from tubemq_provider.operators.destination import open_sink
from tubemq_provider.operators.intervals import Interval, no_interval
from tubemq_provider.operators.narrate import Log, NarratedEngine, Narrator
from tubemq_provider.operators.resolvers import make_resolver
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.book import retired_brokers
from tubemq_provider.windows.planning.budgets import ByteBudget
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.resolve import (
    ExplicitPlanner,
    StandalonePlanner,
    TimePlanner,
)
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.run.epochs import stored_epoch
from tubemq_provider.windows.run.kinds import window_run

if TYPE_CHECKING:
    from datetime import datetime

    from tubemq_provider.hooks.tubemq import TubeMQHook
    from tubemq_provider.sources.base import Source
    from tubemq_provider.windows.protocols import (
        Document,
        Engine,
        OffsetStore,
        StepObserver,
    )
    from tubemq_provider.windows.run.result import WindowResult

__all__ = ["IngestJob"]

_LOCAL_SPARK = "local[2]"


class IngestJob:
    """One window's worth of work. Use it once; `cancel` may come from a signal handler.

    `interval` is the run's own, the default of a time window; `stack` closes what engine and
    resolver leave open; `timeline` loads what the `timeline` resolver reads.
    """

    def __init__(
        self,
        arguments: IngestArguments,
        hook: TubeMQHook,
        interval: Interval,
        stack: ExitStack,
        *,
        timeline: Callable[[], Document | None] = lambda: None,
    ) -> None:
        self._arguments = arguments
        self._interval = interval
        self._timeline = timeline
        self._source: Source = stack.enter_context(
            hook.source(arguments.topic, arguments.group, arguments.filters)
        )
        self._cancelled = threading.Event()
        self._sink = open_sink(
            arguments.destination,
            arguments.sink_conn_id,
            hook.get_connection,
            exactly_once=arguments.exactly_once,
            staging_root=arguments.staging_root,
        )
        self._policies = Policies.of(
            gap_policy=arguments.gap_policy,
            on_offset_regression=arguments.on_offset_regression,
            new_partition_position=arguments.new_partition_position,
            corrupt_records=arguments.corrupt_records,
            on_clear=arguments.on_clear,
            on_other_scope=arguments.on_other_scope,
        )
        self._engine = self._make_engine(stack)
        self._told_engine: Engine = self._engine

    def run(
        self,
        store: OffsetStore,
        *,
        attempt: str,
        serialised: bool,
        observer: StepObserver,
        cleared: bool = False,
    ) -> WindowResult:
        """All eight steps. `attempt` names this try; `serialised` says no other run overlaps,
        `cleared` that somebody asked for a run that was done to be done again."""
        if self._cancelled.is_set():
            raise WindowError("the task was killed before it began")
        return window_run(
            self._planner(self._scope(store), serialised=serialised),
            store,
            self._sink,
            self._told_engine,
            attempt=attempt,
            observer=observer,
            cleared=cleared,
            mirror=self._source.mirror if self._arguments.commit_to_broker else None,
        ).run()

    def cancel(self) -> None:
        """End at the next point between two actions, or inside the engine. Returns soon."""
        self._cancelled.set()
        self._engine.cancel()

    def narrator(self, log: Log) -> Narrator:
        """Tells a task's log what is done, and ends a cancelled run."""
        found = Narrator(log, self._cancelled, self._arguments.destination)
        self._told_engine = NarratedEngine(self._engine, found)
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
            stored_epoch(store) if arguments.epoch is None else arguments.epoch,
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
                of_topic(arguments.starting_offsets or {}, arguments.topic, "", words=True),
                of_topic(arguments.ending_offsets or {}, arguments.topic, "", words=True),
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
        )

    def _byte_budget(self) -> ByteBudget | None:
        arguments = self._arguments
        if arguments.max_bytes is None:
            return None
        source = self._source
        return ByteBudget(source.topic, arguments.max_bytes, source.probe(), source.space)

    def _initial_position(self) -> str | Mapping[str, object] | None:
        given, topic = self._arguments.initial_position, self._arguments.topic
        if isinstance(given, dict):
            return {topic: of_topic(given, topic, "initial_position", words=True)}
        return given

    def _window(self) -> tuple[datetime, datetime]:
        """The window of time: as given, or the run's own. Raises `errors.ConfigError`."""
        if self._arguments.start and self._arguments.end:
            return self._arguments.start, self._arguments.end
        start, end = self._interval
        if start is None or end is None or start >= end:
            raise no_interval()
        return start, end

    def _make_engine(self, stack: ExitStack) -> Engine:
        arguments = self._arguments
        if arguments.engine == "inline":
            from tubemq_provider.engines.inline import InlineEngine

            return InlineEngine.for_source(
                self._source,
                policies=self._policies,
                target_file_bytes=arguments.target_file_bytes,
            )
        from tubemq_provider.engines.session import SessionEngine

        # A progress bar in a task's log is a page of carriage returns.
        conf = {"spark.ui.showConsoleProgress": "false", **arguments.spark_conf}
        engine = SessionEngine(
            self._source.settings(),
            master=conf.pop("spark.master", _LOCAL_SPARK),
            conf=conf,
            gap_policy=arguments.gap_policy,
            corrupt_records=arguments.corrupt_records,
            landing=arguments.landing,
            target_file_bytes=arguments.target_file_bytes,
        )
        stack.callback(engine.stop)
        return engine
