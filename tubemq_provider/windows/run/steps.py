"""One window, exactly once: the eight steps, and nothing else.

`WindowRun` takes a window from position to commit event over an `OffsetStore`, a `Sink` and an
`Engine`, its only ways out. What differs between windows that stand alone, those after a cursor and
those that are claimed is in `standalone_run`, `cursor_run` and `claimed_run`. A run may be killed
at any moment and repeated, by another try, in another process, beside other runs of the same group:
every record is in the sink once.

Truth, in this order: the sink's *marker* says whether a window is written; the *commit event*
whether it was accepted; the *plan* which offsets it is; the *cursor* caches the rest.

Between any two actions the run yields (`steps`), so that tests can stop, interleave or kill it
there; no flag exists for that. This module must not import airflow, pyspark or pyarrow, and must
not decide anything without one of the four truths above. See docs/guarantees.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import ClassVar, NamedTuple

from tubemq_client.errors import LogRegression, TubeMQError, UnknownTopic
from tubemq_provider.windows.errors import SinkHistoryLost
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.planning.read_limits import Throughput
from tubemq_provider.windows.planning.scopes import refuse_other_scopes, scope_in
from tubemq_provider.windows.policies import OnOtherScope
from tubemq_provider.windows.protocols import (
    AbandoningEngine,
    CountedEngine,
    IngestCounts,
    Marker,
    PlacedSink,
    RecountingSink,
    ReplacingSink,
    ResumingEngine,
    SchemaSink,
    Staging,
    Step,
)
from tubemq_provider.windows.run._base import RunBase
from tubemq_provider.windows.run._outcome import outcome
from tubemq_provider.windows.run._progress import refuse_edited, same_window, topic_away
from tubemq_provider.windows.run.result import WindowResult, event_document
from tubemq_provider.windows.verify import check_counts, check_marker, counts_of_another

__all__ = ["StepPoint", "WindowRun"]


class StepPoint(NamedTuple):
    """A point between two actions: ``begin``, ``end``, or the action just completed."""

    step: Step
    point: str


class WindowRun(RunBase, ABC):
    """One try to bring one window into a sink. Use it once; `window_run` makes it.

    - `attempt`: unique per try (a task-instance id); names the staging place.
    - `observer`: told every point, also those inside long steps.
    - `mirror`: optional; its failure is a warning, never an error.
    - `cleared`: a user asked for a finished run to be done again; see `OnClear`.
    - `columns`: the `pyarrow.Schema` of what the engine will write, None if nobody can tell yet.
    """

    _chained: ClassVar[bool]
    """Whether the window goes on where another one has ended."""
    _plans_only: bool = False
    """Whether the window is for somebody else to read."""

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
        """Take the steps that read nothing: the frozen plan, and its marker if the window is done.

        Another run, or this task again, finds the same plan; None if there is nothing to read. A
        window without entries is nobody's to read: it is taken through all steps, see `finished`.
        """
        self._plans_only = True
        for step, point in self.steps():
            if step is Step.INGEST and (self._now.plan is None or self._now.plan.entries):
                break
            self._observe(step, point)
        return self._now.plan, self._now.marker

    @property
    def finished(self) -> WindowResult | None:
        """What became of the window, once it was taken through all steps; else None."""
        return self._result

    def steps(self) -> Generator[StepPoint, None, WindowResult]:
        """The run as a generator: at most one action on a store, sink or engine between two points.

        Dropping it at any point is what a kill does there.
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
                    raise topic_away(self._scope) from error
                raise
            yield StepPoint(step, "end")
        return replace(self._made_result(), warnings=tuple(self._now.warnings))

    def _begun(self) -> bool:
        """Whether the group has known the topic: it has a position, a plan or a window."""
        now, own = self._now, self._scope.scope_hash
        return (
            bool(now.plan or now.position or now.past)
            or self._store.load_task_plan() is not None
            or any(scope_in(window_id) == own for window_id in self._sink.window_ids())
        )

    # -- 1 load -------------------------------------------------------------------------------

    @abstractmethod
    def _load(self) -> Iterator[str]:
        """Find the position, where there is one."""

    def _refuse_other_scopes(self) -> Iterator[str]:
        """A scope that begins where another one has stored the same records asks first."""
        if self._planner.policies.on_other_scope is OnOtherScope.FAIL:
            yield from refuse_other_scopes(self._sink, self._scope, cursor=self._chained)

    # -- 2 plan -------------------------------------------------------------------------------

    def _plan(self) -> Iterator[str]:
        """Task plan, stored plan, marker, and only then a new plan; copied into the task plan."""
        now = self._now
        task_plan = self._task_plan()
        yield "task plan read"
        if isinstance(self._engine, CountedEngine):
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
        """What an earlier try of this task has planned. A task that plans for others goes on behind
        windows without entries: it has finished them itself, or finds them again."""
        plan = self._read_plan(self._store.load_task_plan(), "task plan")
        self._refuse_edited(plan)
        behind = self._plans_only and self._chained and plan is not None and not plan.entries
        return None if behind else plan

    def _refuse_edited(self, plan: WindowPlan | None) -> None:
        """Raise `IdentityMismatch` for the plan of an earlier try with other arguments, unless the
        task was cleared and has its window behind it."""
        if plan is not None and not (self._cleared and self._accepted_before()):
            refuse_edited(plan, self._scope)

    def _accepted_before(self) -> bool:
        """Whether the window of an earlier try of a cleared task may have been accepted: then the
        task is free to have other options now."""
        return True

    def _plan_counted(self, task_plan: WindowPlan | None, wanted: str) -> Iterator[str]:
        """The window was read before this run began: its plan is taken, or none. To plan another
        one here would fix, or claim, what nobody is going to read."""
        now = self._now
        kept = self._kept(wanted)
        yield "kept plan read"
        for plan in (task_plan, kept):
            if now.plan is None and plan and plan.hash == wanted and self._ours(plan):
                yield from self._take_counted(plan)
        if now.plan is None:
            raise counts_of_another()
        self._store.store_task_plan(now.plan.to_document())
        yield "task plan stored"

    def _kept(self, wanted: str) -> WindowPlan | None:  # noqa: ARG002 - for those with claims
        """What other tasks have planned to come next; `wanted` is the hash that is looked for."""
        window_id = self._window_id()
        return None if window_id is None else self._stored_plan(window_id)

    def _take_counted(self, plan: WindowPlan) -> Iterator[str]:
        """Use the plan of a window that was read already, if it is the next one or done."""
        yield from self._consider(plan)

    @abstractmethod
    def _window_id(self) -> str | None:
        """The id of the window that is asked for, if it is known before planning."""

    @abstractmethod
    def _ours(self, plan: WindowPlan) -> bool:
        """Whether a task plan is for what is asked now (a cleared task may have new options)."""

    @abstractmethod
    def _still_there(self, plan: WindowPlan) -> bool:
        """Whether an unpublished plan can still be read, as far as a policy asks for more than an
        error."""

    @abstractmethod
    def _created(self) -> Generator[str, None, WindowPlan | None]:
        """Plan anew; None if there is nothing to read, or another run's plan was found instead."""

    def _consider(self, plan: WindowPlan) -> Iterator[str]:
        """Use a stored plan if it begins at the position or its window is in the sink; else it is
        replaced."""
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
            # Also where the log is another one by now: others have brought the window in.
            self._now.plan = plan
        elif error is not None:
            raise error

    def _find_plan(self, window_id: str) -> Iterator[str]:
        stored = self._stored_plan(window_id)
        yield "stored plan read"
        if stored is not None:
            yield from self._consider(stored)
        # A window that was seen missing a moment ago is planned; the check before ingest looks
        # again, and takes the plan of who was faster.
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
        # Two runs may have created the window at once; both go on with the plan that stayed.
        stored = self._stored_plan(created.window_id)
        yield "plan read back"
        now.plan = stored if stored is not None and now.usable(stored) else created

    # -- 3 check marker -----------------------------------------------------------------------

    def _check(self) -> Iterator[str]:
        """A window that is in the sink is not written again; its marker is right about it."""
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
            # The marker says that its counts were verified, and that stays true of what was
            # published. Whether it is still there nobody has looked since; replays are rare (a
            # kill, a clear), footers or one query answer, and only the operator could say that
            # this one is a retry and not a clear, which promises the count.
            if isinstance(self._sink, RecountingSink):
                check_marker(marker, self._sink.recount(marker))
                yield "rows counted again"
        else:
            self._refuse_unmarked(now.plan)

    @abstractmethod
    def _refuse_unmarked(self, plan: WindowPlan) -> None:
        """Raise `SinkHistoryLost` if a window without a marker may be in the sink all the same."""

    def _adopt(self, plan: WindowPlan, marker: Marker) -> Iterator[str]:
        """The marker wins: its plan is used from here on."""
        now = self._now
        now.plan = same_window(plan, marker)
        now.marker = marker
        now.replayed = True
        if now.plan.hash != plan.hash:
            self._store.store_task_plan(now.plan.to_document())
            yield "task plan replaced"

    # -- 4 ingest, 5 publish ------------------------------------------------------------------

    def _ingest(self) -> Iterator[str]:
        """Write exactly the plan into a staging place of this try, and check the counts."""
        now = self._now
        if now.plan is None or now.marker is not None:
            return
        self._refuse_lost_place(now.plan)
        if now.plan.entries:
            self._check_columns()
        now.staging = self._sink.begin(now.plan, self._attempt)
        yield "staging ready"
        yield from self._take_up(now.plan, now.staging)
        now.began = self._clock()
        try:
            if now.plan.entries:
                self._planner.recognise(now.plan)
                now.counts = self._engine.ingest(
                    now.plan, now.staging, lambda point: self._observe(Step.INGEST, point)
                )
                yield "records written"
                # Asked after the read: a log that is the right one now was so all the time.
                self._planner.recognise(now.plan, again=True)
            else:
                now.counts = IngestCounts(dict.fromkeys(now.plan.ranges, 0))
            check_counts(now.plan, now.counts, replaces=now.replacing)
            now.plan = replace(now.plan, upto=now.counts.last)
        except Exception as exc:  # noqa: BLE001 (raised again unless the window is written)
            self._drop(now.staging)
            yield from self._pardon(now.plan, exc)
        yield "ingested"

    def _check_columns(self) -> None:
        """Raise `ConfigError` for rows that the sink would refuse after they were read."""
        expected = self._columns() if isinstance(self._sink, SchemaSink) else None
        if expected is not None and isinstance(self._sink, SchemaSink):
            self._sink.check_columns(expected)

    def _take_up(self, plan: WindowPlan, fresh: Staging) -> Iterator[str]:
        """Take the staging place of an earlier try whose work goes on, if the engine has one. What
        replaces a window is always written anew: the sink has been told of its place."""
        if not isinstance(self._engine, ResumingEngine) or self._now.replacing:
            return
        found = self._engine.place(plan, fresh)
        if found != fresh:
            self._sink.discard(fresh)
            self._now.staging = found
            yield "earlier try taken up"

    def _drop(self, staging: Staging) -> None:
        """Discard what this try will not publish, unless another try may."""
        if not isinstance(self._engine, ResumingEngine):
            self._sink.discard(staging)

    def _refuse_lost_place(self, plan: WindowPlan) -> None:
        """A window after others goes where those went, and not on the disk below a mount."""
        self._refuse_absent_place(self._written_before(plan))

    def _refuse_absent_place(self, before: int) -> None:
        """Raise `SinkHistoryLost` if the place is away where `before` windows were written."""
        lost = self._sink.missing() if before and isinstance(self._sink, PlacedSink) else None
        if lost:
            raise SinkHistoryLost(f"{before} windows were written before, but {lost}")

    def _written_before(self, plan: WindowPlan) -> int:
        """How many windows of the group are in the sink for certain."""
        return (plan.seq or 1) - 1

    def _pardon(self, plan: WindowPlan, error: Exception) -> Iterator[str]:
        """A failed ingest is of no matter if another run has published the window meanwhile (and
        may have taken this try's staging place away); else the error stands."""
        marker = None if self._now.replacing else self._sink.marker(plan.window_id)
        if marker is None:
            raise error
        self._now.warnings.append(f"another run wrote the window; the ingest here failed: {error}")
        self._now.staging = None
        yield from self._adopt(plan, marker)

    def _publish(self) -> Iterator[str]:
        """Make the window visible with its marker in one step; a second run takes step 3."""
        now = self._now
        if now.plan is None:
            return
        if now.staging is not None and now.counts is not None:
            yield from self._refuse_if_overtaken(now.plan)
            publish = self._sink.publish
            if now.replacing and isinstance(self._sink, ReplacingSink):
                publish = self._sink.replace
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
        yield from self._arrive(now.plan)
        self._end_abandoned(now.plan)
        try:
            self._sink.tidy(now.plan.window_id)
        except (OSError, TubeMQError) as exc:  # The window is published, whatever is left.
            self._now.warnings.append(f"what other tries have left was not removed: {exc}")
        yield "tidied"

    def _end_abandoned(self, plan: WindowPlan) -> None:
        """Work of earlier tries goes on here although another machine has published their windows:
        it is ended, and what it has written removed. Best effort."""
        if not isinstance(self._engine, AbandoningEngine):
            return
        try:
            for window_id in self._engine.abandoned(plan):
                if self._sink.marker(window_id) is not None:
                    self._engine.end_abandoned(window_id)
                    self._sink.tidy(window_id)
        except Exception as exc:  # noqa: BLE001 (the window is published, whatever lies about)
            self._now.warnings.append(f"what earlier tries have left was not removed: {exc}")

    @abstractmethod
    def _refuse_if_overtaken(self, plan: WindowPlan) -> Iterator[str]:
        """A try that slept for long may find that others have been where it is about to write."""

    def _arrive(self, plan: WindowPlan) -> Iterator[str]:  # noqa: ARG002 - for those in a chain
        """The window is in the sink."""
        yield from ()

    # -- 6 advance ----------------------------------------------------------------------------

    @abstractmethod
    def _advance(self) -> Iterator[str]:
        """Note that the window is done, where later runs look for it."""

    # -- 7 commit event, 8 mirror -------------------------------------------------------------

    def _commit(self) -> Iterator[str]:
        """Say what was done, in the event that becomes visible with the task's success."""
        pace = self._look_back()
        self._result = outcome(self._planner, self._sink, self._engine, self._now, pace)
        self._store.emit(event_document(self._scope, self._result, self._now.past))
        yield "event emitted"

    def _look_back(self) -> Throughput | None:
        """Note what this run has left to later ones; how fast windows before it went."""
        return None

    def _mirror(self) -> Iterator[str]:
        """Show where the group goes on as its offsets at the brokers, if asked; best effort."""
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
