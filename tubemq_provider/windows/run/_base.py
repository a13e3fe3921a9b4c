"""Base of `WindowRun`: its collaborators, and reading of stored plans.

Separate from the steps, so that those stay a list of actions. Each method is at most one action on
the store, and none writes. This module must not decide which window is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from tubemq_client.errors import ConfigError
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.plan import WindowKind, WindowPlan, WindowScope
from tubemq_provider.windows.policies import OnClear, Policies
from tubemq_provider.windows.protocols import (
    Document,
    Engine,
    IngestWatch,
    Marker,
    OffsetStore,
    Sink,
    Step,
    StepObserver,
    cannot_replace,
)
from tubemq_provider.windows.run._progress import RunProgress
from tubemq_provider.windows.run.epochs import StoredProgress
from tubemq_provider.windows.run.result import WindowResult

__all__ = ["Mirror", "Planner", "RunBase"]

Mirror = Callable[[Mapping[str, int]], Mapping[str, str] | None]
"""Receives next offsets by partition key, to show them as the group's offsets at the brokers.

Returns keys that it left out, each with the reason."""


class Planner(Protocol):
    """Part of every planner that the shared steps use."""

    scope: WindowScope
    policies: Policies

    @property
    def kind(self) -> WindowKind:
        """Kind of windows it plans; selects the class of the run."""

    def recognise(self, plan: WindowPlan, *, again: bool = False) -> None:
        """Raise `LogReplaced` unless the logs are those that the plan was made for. `again`: ask
        the brokers, use no cached answer."""


_UNWATCHED: Final = IngestWatch()


class RunBase:
    """Planner, store, sink and engine of one run, and its progress."""

    def __init__(
        self,
        planner: Planner,
        store: OffsetStore,
        sink: Sink,
        engine: Engine,
        *,
        attempt: str,
        observer: StepObserver | None = None,
        watch: IngestWatch = _UNWATCHED,
        mirror: Mirror | None = None,
        cleared: bool = False,
        retried: bool = False,
        columns: Callable[[], Any] = lambda: None,
        deliver: Callable[[Marker], None] | None = None,
        progress: StoredProgress | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        rewrites = planner.policies.on_clear is OnClear.REWRITE
        if rewrites and not sink.can_replace:
            raise cannot_replace(sink.kind)
        if planner.scope.sink != sink.identity:
            raise ConfigError(
                f"the plan is for sink {planner.scope.sink!r}, not {sink.identity!r}",
                subject="window run",
            )
        self._planner = planner
        self._scope = planner.scope
        self._store = store
        self._sink = sink
        self._engine = engine
        self._attempt = attempt
        self._observer = observer
        self._watch = replace(watch, progress=lambda point: self._observe(Step.INGEST, point))
        self._mirror_to = mirror
        self._cleared = cleared
        self._retried = retried
        self._rewrites = rewrites and cleared
        self._columns = columns
        self._deliver = deliver
        self._stored_progress = progress
        self._clock = clock
        self._now = RunProgress()
        self._result: WindowResult | None = None

    def _read_plan(self, document: Document | None, where: str) -> WindowPlan | None:
        return None if document is None else WindowPlan.from_document(document, where=where)

    def _stored_plan(self, window_id: str) -> WindowPlan | None:
        where = f"stored plan {window_id}"
        plan = self._read_plan(self._store.load_plan(window_id), where)
        if plan is not None and plan.window_id != window_id:
            raise DocumentError(where, [f"it is the plan of window {plan.window_id}"])
        return plan

    def _observe(self, step: Step, point: str) -> None:
        if self._observer is not None:
            self._observer.at(step, point)
