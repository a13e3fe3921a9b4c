"""The eight steps that publish one window exactly once.

`WindowRun` takes a window from position to commit event. All I/O goes through an `OffsetStore`, a
`Sink` and an `Engine`. Standalone, cursor and claimed windows differ in `standalone_run`,
`cursor_run` and `claimed_run`. A run may be killed at any moment and repeated: by another try, in
another process, concurrently with other runs of the same group. Every record of the window still
ends up in the sink exactly once.

Four facts decide, in this order of authority: the *marker* in the sink proves that the window is
published; the *commit event* that it was accepted; the *plan* fixes its offsets; the *cursor*
only caches the position.

The run yields between any two actions (`steps`), so that tests can stop, interleave or kill it at
each of them without a flag in the code. This module must not import airflow, pyspark or pyarrow,
and must not decide anything by other facts than these four. See docs/guarantees.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import ClassVar, NamedTuple

from tubemq_client.errors import ConfigError, LogRegression, TubeMQError, UnknownTopic
from tubemq_provider.windows.errors import SinkHistoryLost
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.planning.other_scopes import refuse_other_scopes, scope_in
from tubemq_provider.windows.planning.read_limits import Throughput
from tubemq_provider.windows.policies import OnOtherScope
from tubemq_provider.windows.protocols import (
    IngestCounts,
    Marker,
    Sink,
    Staging,
    Step,
)
from tubemq_provider.windows.run._base import RunBase
from tubemq_provider.windows.run._outcome import outcome
from tubemq_provider.windows.run._progress import (
    refuse_edited,
    same_window,
    taken_back,
    topic_unavailable,
)
from tubemq_provider.windows.run.result import WindowResult, event_document
from tubemq_provider.windows.verify import check_counts, check_marker, counts_of_another

__all__ = ["StepPoint", "WindowRun"]


class StepPoint(NamedTuple):
    """Point between two actions: ``begin``, ``end``, or the action just completed."""

    step: Step
    point: str


class WindowRun(RunBase, ABC):
    """One try to publish one window in a sink. Single use; created by `window_run`.

    - `attempt`: unique per try (a task-instance id); names the staging place.
    - `observer`: receives every point, also those inside long steps.
    - `watch`: receives what the engine reports; points of the engine go to the observer.
    - `mirror`: optional; its failure is a warning, never an error.
    - `cleared`: a user cleared the finished task to have it done again; see `OnClear`.
    - `deliver`: receives the marker before the position moves; sends dead letters.
    - `progress`: what was read of the group's progress just before, so that it is not read twice.
    - `columns`: returns the `pyarrow.Schema` that the engine will write, None while it is unknown.
    """

    _chained: ClassVar[bool]
    """True if each window begins where the one before it ended."""
    _plans_only: bool = False
    """True if this run only plans, and another task reads the window."""

    def run(self) -> WindowResult:
        """Take all eight steps. Raises `WindowError` and what engine, store and sink raise."""
        steps = self.steps()
        while True:
            try:
                step, point = next(steps)
            except StopIteration as done:
                result: WindowResult = done.value
                return result
            self._observe(step, point)

    def planned(self) -> tuple[WindowPlan | None, Marker | None]:
        """Take the steps before ingest; return the frozen plan, and the marker if it is published.

        Another run, or a retry of this task, gets the same plan. The plan is None if there is
        nothing to read. A window without entries goes through all steps here, since no other task
        has to read it; its result is `finished`.
        """
        self._plans_only = True
        for step, point in self.steps():
            if step is Step.INGEST and (self._now.plan is None or self._now.plan.entries):
                break
            self._observe(step, point)
        return self._now.plan, self._now.marker

    @property
    def finished(self) -> WindowResult | None:
        """Result of the window after all steps; None before."""
        return self._result

    def steps(self) -> Generator[StepPoint, None, WindowResult]:
        """Run as a generator with at most one action on store, sink or engine between two points.

        Dropping the generator at a point has the effect of a kill there.
        """
        bodies: dict[Step, Callable[[], Iterator[str]]] = {
            Step.LOAD: self._load,
            Step.PLAN: self._plan,
            Step.CHECK: self._check,
            Step.INGEST: self._ingest,
            Step.PUBLISH: self._publish,
            Step.ADVANCE: self._advance,
            Step.COMMIT: self._commit,
            Step.MIRROR: self._mirror,
        }
        for step, body in bodies.items():
            yield StepPoint(step, "begin")
            try:
                for point in body():
                    yield StepPoint(step, point)
            except UnknownTopic as error:
                if self._scope.space.forgets_brokers and self._begun():
                    raise topic_unavailable(self._scope) from error
                raise
            yield StepPoint(step, "end")
        return replace(self._made_result(), warnings=tuple(self._now.warnings))

    def _begun(self) -> bool:
        """Return True if the group has a position, a plan or a window: it has read the topic."""
        now, own = self._now, self._scope.scope_hash
        return (
            bool(now.plan or now.position or now.past)
            or self._store.load_task_plan() is not None
            or any(scope_in(window_id) == own for window_id in self._sink.window_ids())
        )

    # -- 1 load -------------------------------------------------------------------------------

    @abstractmethod
    def _load(self) -> Iterator[str]:
        """Find the position, if windows of this kind have one."""

    def _refuse_other_scopes(self) -> Iterator[str]:
        """Refuse, as `on_other_scope` says, a new scope in a sink that has windows of another."""
        if self._planner.policies.on_other_scope is OnOtherScope.FAIL:
            yield from refuse_other_scopes(self._sink, self._scope, cursor=self._chained)

    # -- 2 plan -------------------------------------------------------------------------------

    def _plan(self) -> Iterator[str]:
        """Use the task plan, else the stored plan, else the marker's, else a new plan.

        The result becomes the task plan."""
        now = self._now
        task_plan = self._task_plan()
        yield "task plan read"
        if self._engine.plan_hash is not None:
            yield from self._plan_counted(task_plan, self._engine.plan_hash)
            return
        if task_plan is not None and self._ours(task_plan):
            yield from self._consider(task_plan)
            if now.plan is not None:
                return
        window_id = self._window_id()
        if window_id is not None:
            yield from self._find_plan(window_id)
        if now.plan is None:
            yield from self._create_plan()
        if now.plan is not None:
            self._store.store_task_plan(now.plan.to_document())
            yield "task plan stored"

    def _task_plan(self) -> WindowPlan | None:
        """Return the plan of an earlier try of this task. A task that plans for other tasks ignores
        one without entries: it has published that window itself, or finds its marker."""
        plan = self._read_plan(self._store.load_task_plan(), "task plan")
        self._refuse_edited(plan)
        behind = self._plans_only and self._chained and plan is not None and not plan.entries
        return None if behind else plan

    def _refuse_edited(self, plan: WindowPlan | None) -> None:
        """Raise `IdentityMismatch` for the plan of an earlier try with other arguments, unless the
        task was cleared after its window was accepted."""
        if plan is not None and not (self._cleared and self._accepted_before()):
            refuse_edited(plan, self._scope, chained=self._chained)

    def _accepted_before(self) -> bool:
        """Return True if the window of a cleared task's earlier try may have been accepted; its
        options may then have changed."""
        return True

    def _plan_counted(self, task_plan: WindowPlan | None, plan_hash: str) -> Iterator[str]:
        """Use the plan of the window that was read before this run began, or raise. Planning
        another window here would fix or claim ranges that no task reads."""
        now = self._now
        other_plan = self._kept(plan_hash)
        yield "kept plan read"
        for plan in (task_plan, other_plan):
            if now.plan is None and plan and plan.hash == plan_hash and self._ours(plan):
                yield from self._use_reported_counts(plan)
        if now.plan is None:
            raise counts_of_another()
        self._store.store_task_plan(now.plan.to_document())
        yield "task plan stored"

    def _kept(self, plan_hash: str) -> WindowPlan | None:  # noqa: ARG002 - used with claims
        """Return the stored plan of the next window; `plan_hash` selects one among claims."""
        window_id = self._window_id()
        return None if window_id is None else self._stored_plan(window_id)

    def _use_reported_counts(self, plan: WindowPlan) -> Iterator[str]:
        """Use the plan of a window that was read already, if it is the next or published."""
        yield from self._consider(plan)

    @abstractmethod
    def _window_id(self) -> str | None:
        """Return the id of the requested window, if it is known before planning."""

    @abstractmethod
    def _ours(self, plan: WindowPlan) -> bool:
        """Return True if a task plan matches the present arguments (clearing may change them)."""

    @abstractmethod
    def _still_there(self, plan: WindowPlan) -> bool:
        """Return False if an unpublished plan must be replaced because its ranges cannot be read
        any more and a policy allows more than an error."""

    @abstractmethod
    def _created(self) -> Generator[str, None, WindowPlan | None]:
        """Create a plan; None if there is nothing to read, or if another run's plan was found."""

    def _consider(self, plan: WindowPlan) -> Iterator[str]:
        """Use a stored plan if it begins at the position or its window is in the sink. Otherwise
        leave `plan` unset, so that a new one replaces it."""
        error: LogRegression | None = None
        try:
            if self._now.usable(plan) and self._still_there(plan):
                self._now.plan = plan
                return
        except LogRegression as exc:
            error = exc
        marker = self._sink.marker(plan.window_id)
        yield "marker of stored plan read"
        if marker is not None:
            # Even if the log was replaced since: another run has published the window. Its plan
            # must continue the chain; without one it is the window, whatever was planned here.
            self._now.plan = plan if self._chained else marker.plan
        elif error is not None:
            raise error

    def _find_plan(self, window_id: str) -> Iterator[str]:
        stored = self._stored_plan(window_id)
        yield "stored plan read"
        if stored is not None:
            yield from self._consider(stored)
        # Skip the query if the load step saw no marker a moment ago. The check before ingest asks
        # again, and uses the plan of a faster run.
        if self._now.plan is None and self._now.unwritten != window_id:
            marker = self._sink.marker(window_id)
            yield "marker asked for plan"
            if marker is not None:
                self._now.plan = marker.plan

    def _create_plan(self) -> Iterator[str]:
        now = self._now
        created = yield from self._created()
        if created is None:
            return
        self._store.store_plan(created.window_id, created.to_document())
        yield "plan stored"
        now.plan = created
        if self._plans_only:
            # Other tasks find the plan by its window, and another run may have stored one since.
            # Runs that read themselves need not agree: the marker decides between them.
            stored = self._stored_plan(created.window_id)
            yield "plan read back"
            now.plan = stored if stored is not None and now.usable(stored) else created

    # -- 3 check marker -----------------------------------------------------------------------

    def _check(self) -> Iterator[str]:
        """Use the marker of a window that is in the sink already, instead of writing it again."""
        now = self._now
        if now.plan is None:
            return
        marker = self._sink.marker(now.plan.window_id)
        yield "marker read"
        if marker is not None and self._rewrites:
            now.plan = same_window(now.plan, marker)
            now.replacing = marker
            yield "to be replaced"
        elif marker is not None:
            yield from self._adopt(now.plan, marker)
            # A marker proves the counts at publish time, not that the files still exist. Recount
            # on every replay: rare (a kill, a clear), cheap (footers or one query), and a retry
            # cannot be told from a clear, which promises the count.
            rows = self._sink.recount(marker)
            if rows is not None:
                check_marker(marker, rows)
                yield "rows counted again"
            # Files stay where a table was restored to a state without them.
            if self._sink.holds(marker) is False:
                raise taken_back(marker.plan, self._sink.identity)
        else:
            self._refuse_unmarked(now.plan)

    @abstractmethod
    def _refuse_unmarked(self, plan: WindowPlan) -> None:
        """Raise `SinkHistoryLost` if a window without a marker may have been published before."""

    def _adopt(self, plan: WindowPlan, marker: Marker) -> Iterator[str]:
        """Take plan and counts from the marker, which overrides this run's own plan."""
        now = self._now
        now.plan = same_window(plan, marker)
        now.marker = marker
        now.replayed = True
        if now.plan.hash != plan.hash:
            self._store.store_task_plan(now.plan.to_document())
            yield "task plan replaced"

    # -- 4 ingest, 5 publish ------------------------------------------------------------------

    def _ingest(self) -> Iterator[str]:
        """Write exactly the planned ranges into this try's staging place, and check the counts."""
        now = self._now
        if now.plan is None or now.marker is not None:
            return
        self._refuse_lost_place(now.plan)
        if now.plan.entries:
            self._check_columns()
        now.staging = self._sink.begin(now.plan, self._attempt)
        yield "staging ready"
        yield from self._resume_earlier_try(now.plan, now.staging)
        now.began = self._clock()
        try:
            if now.plan.entries:
                self._planner.recognise(now.plan)
                self._watch.on_begin(now.plan)
                now.counts = self._engine.ingest(now.plan, now.staging, self._watch)
                self._watch.on_end(now.plan, now.counts)
                yield "records written"
                # After the read: a log that matches now has matched during the whole read.
                self._planner.recognise(now.plan, again=True)
            else:
                now.counts = IngestCounts(dict.fromkeys(now.plan.ranges, 0))
            check_counts(now.plan, now.counts, replaces=now.replacing)
            self._refuse_many_files(now.plan, now.counts)
            now.plan = replace(now.plan, upto=now.counts.last)
        except Exception as exc:  # noqa: BLE001 (raised again unless the window is written)
            self._drop(now.staging)
            yield from self._accept_foreign_publication(now.plan, exc)
        yield "ingested"

    def _refuse_many_files(self, plan: WindowPlan, counts: IngestCounts) -> None:
        """Raise `ConfigError` if the window has more data files than `Policies.max_files`."""
        most = self._planner.policies.max_files
        if most is None or not counts.total:
            return
        if counts.files is None:
            raise ConfigError(
                f"engine {self._engine.name} does not tell which files it writes, so max_files "
                f"cannot be checked: leave it out",
                subject="max_files",
            )
        written = len({fact.path for fact in counts.files}.difference(counts.quarantined))
        if written > most:
            raise ConfigError(
                f"window {plan.window_id} has {written} data files, and max_files={most} permits "
                f"no more; nothing is published. Partition by coarser columns (partition_by), "
                f"write larger files (target_file_bytes), or raise max_files",
                subject="max_files",
            )

    def _check_columns(self) -> None:
        """Raise `ConfigError` for rows that the sink would refuse after they were read."""
        if type(self._sink).check_columns is Sink.check_columns:
            return  # Any columns fit. To find them out takes a decoder and pyarrow.
        expected = self._columns()
        if expected is not None:
            self._sink.check_columns(expected)

    def _resume_earlier_try(self, plan: WindowPlan, fresh: Staging) -> Iterator[str]:
        """Use the staging place of an earlier try whose engine is still running, if there is one.
        A replacement is always written from scratch: the sink has recorded its staging place."""
        if self._now.replacing:
            return
        place = self._engine.place(plan, fresh)
        if place != fresh:
            self._sink.discard(fresh)
            self._now.staging = place
            yield "earlier try taken up"

    def _drop(self, staging: Staging) -> None:
        """Discard the staging place of this try, unless a later try may resume it."""
        if not self._engine.resumes:
            self._sink.discard(staging)

    def _refuse_lost_place(self, plan: WindowPlan) -> None:
        """Raise `SinkHistoryLost` if earlier windows were written to a place that is missing now,
        e.g. to a mount that is not there: the window would go onto the disk below it."""
        self._refuse_absent_place(self._written_before(plan))

    def _refuse_absent_place(self, before: int) -> None:
        """Raise `SinkHistoryLost` if `before` windows were written and their place is missing."""
        lost = self._sink.missing() if before else None
        if lost:
            raise SinkHistoryLost(f"{before} windows were written before, but {lost}")

    def _written_before(self, plan: WindowPlan) -> int:
        """Return the number of windows of the group that are in the sink for certain."""
        return (plan.seq or 1) - 1

    def _accept_foreign_publication(self, plan: WindowPlan, error: Exception) -> Iterator[str]:
        """Use the window that another run published meanwhile (which may have removed this try's
        staging place and so caused the failure); otherwise raise `error`."""
        marker = None if self._now.replacing else self._sink.marker(plan.window_id)
        if marker is None:
            raise error
        self._now.warnings.append(f"another run wrote the window; the ingest here failed: {error}")
        self._now.staging = None
        yield from self._adopt(plan, marker)

    def _publish(self) -> Iterator[str]:
        """Make data and marker visible in one atomic step. The loser adopts the winner's marker."""
        now = self._now
        if now.plan is None:
            return
        if now.staging is not None and now.counts is not None:
            yield from self._refuse_if_overtaken(now.plan)
            publish = self._sink.replace if now.replacing else self._sink.publish
            won = publish(
                now.staging, now.plan, now.counts, lambda p: self._observe(Step.PUBLISH, p)
            )
            yield "published"
            if won.won:
                now.marker = won.marker
                now.ended = self._clock()
            else:
                self._drop(now.staging)
                yield "staging discarded"
                yield from self._adopt(now.plan, won.marker)
        if self._deliver is not None and now.marker is not None:
            self._deliver(now.marker)
            yield "dead letters delivered"
        yield from self._arrive(now.plan)
        self._end_abandoned(now.plan)
        try:
            self._sink.tidy(now.plan.window_id)
        except (OSError, TubeMQError) as exc:  # Leftovers do no harm: the window is published.
            self._now.warnings.append(f"what other tries have left was not removed: {exc}")
        yield "tidied"

    def _end_abandoned(self, plan: WindowPlan) -> None:
        """Stop engines of earlier tries whose windows another machine has published, and remove
        the files that they wrote. Best effort."""
        try:
            for window_id in self._engine.abandoned(plan):
                if self._sink.marker(window_id) is not None:
                    self._engine.end_abandoned(window_id)
                    self._sink.tidy(window_id)
        except Exception as exc:  # noqa: BLE001 (leftovers do no harm: the window is published)
            self._now.warnings.append(f"what earlier tries have left was not removed: {exc}")

    @abstractmethod
    def _refuse_if_overtaken(self, plan: WindowPlan) -> Iterator[str]:
        """Check again, right before publishing, that no other run has published over the plan
        while this try was suspended."""

    def _arrive(self, plan: WindowPlan) -> Iterator[str]:  # noqa: ARG002 - used in chains
        """Move the position, now that the window is in the sink."""
        yield from ()

    # -- 6 advance ----------------------------------------------------------------------------

    @abstractmethod
    def _advance(self) -> Iterator[str]:
        """Store that the window is published, where later runs look first."""

    # -- 7 commit event, 8 mirror -------------------------------------------------------------

    def _commit(self) -> Iterator[str]:
        """Emit the commit event, which becomes visible with the task's success."""
        pace = self._look_back()
        self._result = outcome(self._planner, self._sink, self._engine, self._now, pace)
        self._store.emit(event_document(self._scope, self._result, self._now.past))
        yield "event emitted"

    def _look_back(self) -> Throughput | None:
        """Note partitions that are left to later runs; return the throughput of earlier windows."""
        return None

    def _mirror(self) -> Iterator[str]:
        """Show the position as the group's offsets at the brokers, if configured. Best effort."""
        ends = self._now.ends()
        if self._mirror_to is None or ends is None:
            return
        try:
            if left_out := self._mirror_to(ends):
                key, reason = next(iter(left_out.items()))
                others = f" and {len(left_out) - 1} more" if len(left_out) > 1 else ""
                self._now.warnings.append(
                    f"group offsets at the brokers leave out {key}{others}: {reason}"
                )
        except Exception as exc:  # noqa: BLE001 (nothing depends on it, and any client may raise)
            self._now.warnings.append(f"group offsets at the brokers were not updated: {exc}")
        yield "mirrored"

    def _made_result(self) -> WindowResult:
        if self._result is None:
            raise RuntimeError("the run has not reached its commit event")
        return self._result
