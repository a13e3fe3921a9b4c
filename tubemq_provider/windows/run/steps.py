"""One window, exactly once: the eight steps, and nothing else.

`WindowRun` takes a window from position to commit event over an `OffsetStore`, a `Sink` and an
`Engine`, its only ways out. It may be killed at any moment and run again, by another try, in
another process, beside other runs of the same group: every record is in the sink once.

Truth, in this order: the sink's *marker* says whether a window is written; the *commit event*
whether it was accepted; the *plan* which offsets it is; the *cursor* caches the rest.

Between any two actions the run yields (`steps`), so that tests can stop, interleave or kill it
there; no flag exists for that. This module must not import airflow, pyspark or pyarrow, and must
not decide anything without one of the four truths above. See docs/guarantees.md.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import NamedTuple

from tubemq_client.errors import LogRegression
from tubemq_provider.windows.cursor import (
    Cursor,
    Position,
)
from tubemq_provider.windows.errors import SinkHistoryLost
from tubemq_provider.windows.plan import WindowKind, WindowPlan, cursor_window_id
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.overlaps import refuse_overlaps
from tubemq_provider.windows.planning.resolve import StandalonePlanner
from tubemq_provider.windows.planning.scopes import refuse_beside_cursor, refuse_other_scopes
from tubemq_provider.windows.policies import OnOtherScope
from tubemq_provider.windows.protocols import (
    IngestCounts,
    Marker,
    RecountingSink,
    ReplacingSink,
    Step,
)
from tubemq_provider.windows.run._base import RunBase
from tubemq_provider.windows.run._outcome import outcome
from tubemq_provider.windows.run._progress import (
    appended_before,
    cursor_numbers,
    history_lost,
    is_cursor,
    same_window,
)
from tubemq_provider.windows.run.result import WindowResult, event_document
from tubemq_provider.windows.verify import check_counts, check_marker

__all__ = ["PLANS_KEPT", "StandalonePlanner", "StepPoint", "WindowRun"]

PLANS_KEPT = 16
"""Stored plans of so many published cursor windows stay; older ones are removed. The sink's
markers keep every plan."""


class StepPoint(NamedTuple):
    """A point between two actions: ``begin``, ``end``, or the action just completed."""

    step: Step
    point: str


class WindowRun(RunBase):
    """One try to bring one window into a sink. Use it once.

    - `attempt`: unique per try (a task-instance id); names the staging place.
    - `observer`: told every point, also those inside long steps.
    - `mirror`: optional; its failure is a warning, never an error.
    - `cleared`: somebody asked for a run that was done to be done again; see `OnClear`.
    """

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
            for point in body():
                yield StepPoint(step, point)
            yield StepPoint(step, "end")
        return replace(self._made_result(), warnings=tuple(self._now.warnings))

    # -- 1 load -------------------------------------------------------------------------------

    def _load(self) -> Iterator[str]:
        """Find the position: the higher of cursor and newest event, then along the markers."""
        if not isinstance(self._planner, CursorPlanner):
            return
        now = self._now
        cursor = self._read_cursor()
        yield "cursor read"
        event = self._store.newest_position()
        yield "event read"
        self._planner.observe(event)
        now.cursor_missing = cursor is None
        accepted = self._accepted(event)
        if accepted is not None:
            now.announced = accepted.seq
            now.reach(accepted)
        if cursor is not None and (accepted is None or cursor.seq >= accepted.seq):
            now.reach(cursor.position)
        elif cursor is not None:
            behind = self._sink.marker(cursor_window_id(cursor.seq, self._scope.h))
            yield "marker of cursor read"
            now.recognise(cursor, behind)
        yield from self._follow_markers()
        if now.cursor_missing:
            yield from self._look_for_holes()
        if now.position is None:
            yield from self._look_for_first_plan()
        if now.position is None:
            yield from self._refuse_other_scopes()
            now.reach(self._planner.initial())
            yield "initial position resolved"

    def _look_for_first_plan(self) -> Iterator[str]:
        """A group whose first window was planned and not published begins where that plan says:
        words such as ``earliest`` mean something else by now."""
        own = self._read_plan(self._store.load_task_plan(), "task plan")
        yield "task plan read"
        stored = self._stored_plan(cursor_window_id(1, self._scope.h))
        yield "first plan read"
        for plan in (own, stored):
            if plan is not None and plan.h == self._scope.h and plan.seq == 1:
                self._now.reach(Position(0, plan.bases, plan.anchors_at_start))
                return

    def _follow_markers(self) -> Iterator[str]:
        """Windows that were published by runs that never came to say so."""
        now = self._now
        while True:
            seq = now.position.seq + 1 if now.position else 1
            marker = self._sink.marker(cursor_window_id(seq, self._scope.h))
            yield "marker read"
            if marker is None:
                return
            now.follow(marker.plan, seq)

    def _look_for_holes(self) -> Iterator[str]:
        """Without a cursor the markers may be all that is left: none may be missing between."""
        now = self._now
        highest = max(cursor_numbers(self._sink.window_ids(), self._scope.h), default=0)
        yield "windows listed"
        if highest <= (now.position.seq if now.position else 0):
            return
        # Another run may have published them since; a lost marker stays lost.
        yield from self._follow_markers()
        reached = now.position.seq if now.position else 0
        if highest > reached:
            raise SinkHistoryLost(
                f"group {self._scope.group!r} has lost its cursor, and the sink has window "
                f"{cursor_window_id(highest, self._scope.h)} but not "
                f"{cursor_window_id(reached + 1, self._scope.h)}; set the position by hand, as "
                f"starting anew could store records twice"
            )

    def _refuse_other_scopes(self) -> Iterator[str]:
        """A scope that begins where another one has stored the same records asks first."""
        if self._planner.policies.on_other_scope is OnOtherScope.FAIL:
            cursor = isinstance(self._planner, CursorPlanner)
            yield from refuse_other_scopes(self._sink, self._scope, cursor=cursor)

    def _refuse_overlaps(self) -> Iterator[str]:
        """A time window that reaches into published ones would store their records again."""
        if not isinstance(self._planner, CursorPlanner) and (interval := self._planner.interval):
            refuse_overlaps(self._sink.window_ids(), interval, self._scope.h)
            yield "intervals compared"

    # -- 2 plan -------------------------------------------------------------------------------

    def _plan(self) -> Iterator[str]:
        """Task plan, stored plan, marker, and only then a new plan; copied into the task plan."""
        now = self._now
        if not isinstance(self._planner, CursorPlanner):
            self._planner.confirm()
            yield "confirmed"
        task_plan = self._read_plan(self._store.load_task_plan(), "task plan")
        yield "task plan read"
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

    def _still_there(self, plan: WindowPlan) -> bool:
        """Whether an unpublished plan can still be read, as far as a policy asks for more than an
        error."""
        planner = self._planner
        if not isinstance(planner, CursorPlanner):
            return planner.stands(plan)
        return (plan.seq or 0) <= self._position().seq or planner.readable(plan)

    def _find_plan(self, window_id: str) -> Iterator[str]:
        stored = self._stored_plan(window_id)
        yield "stored plan read"
        if stored is not None:
            yield from self._consider(stored)
        if self._now.plan is None:
            marker = self._sink.marker(window_id)
            yield "marker asked for plan"
            if marker is not None:
                self._now.plan = marker.plan

    def _create_plan(self) -> Iterator[str]:
        now = self._now
        if isinstance(self._planner, CursorPlanner):
            try:
                created = self._planner.plan(self._position())
            except LogRegression as exc:
                yield from self._find_reset(exc)
                return
        else:
            if not self._planner.has_neighbour():
                yield from self._refuse_other_scopes()
            yield from self._refuse_overlaps()
            created = self._planner.plan()
            if self._planner.policies.on_other_scope is OnOtherScope.FAIL:
                yield from refuse_beside_cursor(self._sink, self._scope, created)
        yield "plan created"
        if created is None:
            return
        self._store.store_plan(created.window_id, created.to_document())
        yield "plan stored"
        # Two runs may have created the window at once; both go on with the plan that stayed.
        stored = self._stored_plan(created.window_id)
        yield "plan read back"
        now.plan = stored if stored is not None and now.usable(stored) else created

    def _find_reset(self, error: LogRegression) -> Iterator[str]:
        """The log is another one by now; it is no error if another run has brought the window in,
        by a reset that it was allowed."""
        yield "another log seen"
        marker = self._sink.marker(cursor_window_id(self._position().seq + 1, self._scope.h))
        yield "marker of reset read"
        if marker is None:
            raise error
        self._now.plan = marker.plan

    def _window_id(self) -> str | None:
        if isinstance(self._planner, CursorPlanner):
            return cursor_window_id(self._position().seq + 1, self._scope.h)
        return self._planner.window_id

    def _ours(self, plan: WindowPlan) -> bool:
        """Whether a task plan is for what is asked now (a cleared task may have new options)."""
        if plan.h != self._scope.h:
            return False
        if isinstance(self._planner, CursorPlanner):
            return is_cursor(plan)
        wanted = self._planner.window_id
        if wanted is None:
            return plan.kind is WindowKind.EXPLICIT and self._planner.stands(plan)
        return plan.window_id == wanted

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
        elif is_cursor(now.plan) and (now.plan.seq or 0) <= self._position().seq:
            raise history_lost(now.plan, self._position().seq)
        elif self._cleared and not self._sink.exactly_once and not is_cursor(now.plan):
            raise appended_before(now.plan, self._sink.kind)

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
        now.staging = self._sink.begin(now.plan, self._attempt)
        yield "staging ready"
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
            self._sink.discard(now.staging)
            yield from self._pardon(now.plan, exc)
        yield "ingested"

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
        """Make the window visible with its marker in one step; whoever is second takes step 3."""
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
                self._sink.discard(now.staging)
                yield "staging discarded"
                yield from self._adopt(now.plan, won.marker)
        if is_cursor(now.plan) and (now.plan.seq or 0) > self._position().seq + 1:
            # Others have published this task's window, and those before it, since step 1.
            yield from self._follow_markers()
        now.arrive()
        self._sink.tidy(now.plan.window_id)
        yield "tidied"

    def _refuse_if_overtaken(self, plan: WindowPlan) -> Iterator[str]:
        """A try that slept for long may find its window published and its marker gone again, or
        another interval published over its own."""
        if not is_cursor(plan):
            if self._now.replacing is None:
                yield from self._refuse_overlaps()
            return
        cursor = self._read_cursor()
        yield "cursor read again"
        if cursor is None or cursor.seq < (plan.seq or 0):
            return
        marker = self._sink.marker(plan.window_id)
        yield "marker read again"
        if marker is None:
            raise history_lost(plan, cursor.seq)

    # -- 6 advance ----------------------------------------------------------------------------

    def _advance(self) -> Iterator[str]:
        """Move the cursor forward, never back, and never over a point it does not know."""
        now = self._now
        if now.plan is None:
            return
        if not is_cursor(now.plan):
            # No cursor to move. The marker has the plan; one key per interval would pile up.
            self._store.forget_plan(now.plan.window_id)
            yield "plan forgotten"
            return
        cursor = self._read_cursor()
        yield "cursor read"
        if not now.may_advance(cursor):
            return
        advanced = Cursor(
            self._position(), (cursor.rev if cursor else 0) + 1, self._store.writer, now.past
        )
        self._store.store_cursor(advanced.to_document(self._scope, self._clock()))
        yield "cursor stored"
        old = advanced.seq - PLANS_KEPT
        if old > 0:
            self._store.forget_plan(cursor_window_id(old, self._scope.h))
            yield "old plan forgotten"

    # -- 7 commit event, 8 mirror -------------------------------------------------------------

    def _commit(self) -> Iterator[str]:
        """Say what was done, in the event that becomes visible with the task's success."""
        if isinstance(self._planner, CursorPlanner):
            self._now.miss(self._planner.absent(self._position()))
        self._result = outcome(self._planner, self._sink, self._engine, self._now)
        self._store.emit(event_document(self._scope, self._result, self._now.past))
        yield "event emitted"

    def _mirror(self) -> Iterator[str]:
        """Show where the group goes on as its offsets at the brokers, if asked; best effort."""
        ends = self._now.ends()
        if self._mirror_to is None or ends is None:
            return
        try:
            self._mirror_to(ends)
        except Exception as exc:  # noqa: BLE001 (nothing depends on it, and any client may raise)
            self._now.warnings.append(f"group offsets at the brokers were not updated: {exc}")
        yield "mirrored"

    def _made_result(self) -> WindowResult:
        if self._result is None:
            raise RuntimeError("the run has not reached its commit event")
        return self._result
