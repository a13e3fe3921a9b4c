"""Run of a group's next window, for one run at a time: `WindowRun` after a cursor.

The position is the higher of cursor and newest commit event, advanced over the markers that the
sink has behind it. Runs that overlap by mistake waste work and lose or repeat no records; runs that
overlap on purpose are in `claimed_run`. This module must not import airflow, pyspark or pyarrow.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ClassVar, Final

from tubemq_client.errors import LogRegression
from tubemq_provider.windows.cursor import (
    Cursor,
    Position,
    continue_command,
    earlier_epochs,
    epoch_of,
    past_epochs,
    position_of_event,
)
from tubemq_provider.windows.errors import SinkHistoryLost
from tubemq_provider.windows.plan import WindowPlan, cursor_window_id
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.read_limits import Throughput
from tubemq_provider.windows.protocols import Document, Marker
from tubemq_provider.windows.run._progress import (
    changed_without_command,
    cursor_numbers,
    epoch_unclear,
    history_lost,
    is_cursor,
    windows_lost,
)
from tubemq_provider.windows.run.steps import WindowRun

__all__ = ["PLANS_KEPT", "CursorRun"]

PLANS_KEPT: Final = 16
"""Number of published cursor windows whose stored plans stay; older ones are removed. The sink's
markers keep every plan."""

_FEW: Final = 100
"""Windows in a sink up to which a listing costs no more than one marker query."""

_RECENTLY: Final = timedelta(minutes=10)
"""Age below which a cursor cannot come from a restored backup."""


class CursorRun(WindowRun):
    """One try to publish the window after the cursor. Single use."""

    _planner: CursorPlanner
    _chained: ClassVar[bool] = True

    def planned(self) -> tuple[WindowPlan | None, Marker | None]:
        """Plan as `WindowRun.planned`; store the first position of a group that has nothing to read
        yet. A run that only plans emits no event, and ``stable`` would resolve to another end in
        every later run."""
        planned = super().planned()
        if self._now.begun and self._now.plan is None and self._read_cursor() is None:
            self._store_cursor(None)
        return planned

    # -- 1 load -------------------------------------------------------------------------------

    def _load(self) -> Iterator[str]:
        """Find the position: the higher of cursor and newest event, then along the markers."""
        now = self._now
        stored = self._stored_progress
        cursor = self._read_cursor() if stored is None else self._cursor_of(stored.cursor)
        yield "cursor read"
        event = self._store.newest_position() if stored is None else stored.event
        yield "event read"
        self._planner.observe(event)
        now.cursor_missing = cursor is None
        accepted = self._accepted(event)
        if accepted is not None:
            now.announced = accepted.seq
            now.reach(accepted)
        if cursor is not None and (accepted is None or cursor.seq >= accepted.seq):
            now.reach(_better_known(cursor.position, accepted))
        elif cursor is not None:
            behind = self._sink.marker(cursor_window_id(cursor.seq, self._scope.scope_hash))
            yield "marker of cursor read"
            now.recognise(cursor, behind)
        if cursor and now.position and self._may_be_behind(now.position, cursor.updated):
            now.listed = set(cursor_numbers(self._sink.window_ids(), self._scope.scope_hash))
            yield "windows listed"
        yield from self._follow_markers()
        if now.cursor_missing:
            yield from self._look_for_holes()
        elif now.listed and now.position and now.position.seq + 1 not in now.listed:
            yield from self._refuse_hole(max(now.listed))
        now.listed = None
        yield from self._refuse_lost_windows()
        now.unannounced = now.position is None
        if now.position is None:
            yield from self._look_for_first_plan()
        if now.position is None:
            yield from self._refuse_other_scopes()
            yield from self._begin_behind()
        if now.position is None:
            now.reach(self._planner.initial())
            now.begun = True
            yield "initial position resolved"

    def _begin_behind(self) -> Iterator[str]:
        """Begin a new epoch after windows of the previous one that were published since the error
        on which the user began it, so that they are not read again. By their anchors the planner
        checks that they are of the present log."""
        decided = self._planner.decided_after
        if decided is None:
            return
        last_known, scope_hash = decided
        later = {
            number
            for number in cursor_numbers(self._sink.window_ids(), scope_hash)
            if number > last_known
        }
        yield "windows of the epoch before listed"
        newest, marker = last_known, None
        for newest in sorted(later, reverse=True):
            window_id = cursor_window_id(newest, scope_hash)
            marker = yield from self._present(window_id, "marker of the epoch before read")
            if marker is not None:
                break
        if marker is None:
            return
        behind = Position(0, marker.plan.ends, marker.plan.anchors)
        if missing := set(range(last_known + 1, newest)) - later:
            begin = self._begin_anew(marker.plan)
            newest_id, missing_id = (
                marker.plan.window_id,
                cursor_window_id(min(missing), scope_hash),
            )
            raise epoch_unclear(self._scope, newest_id, missing_id, begin)
        self._now.reach(behind)

    def _look_for_first_plan(self) -> Iterator[str]:
        """Begin a group where the plan of its unpublished first window begins: words such as
        ``earliest`` may resolve to other offsets by now."""
        own = self._read_plan(self._store.load_task_plan(), "task plan")
        yield "task plan read"
        self._refuse_edited(own)
        stored = self._stored_plan(cursor_window_id(1, self._scope.scope_hash))
        yield "first plan read"
        for plan in (own, stored):
            if plan is not None and plan.scope_hash == self._scope.scope_hash and plan.seq == 1:
                self._now.reach(Position(0, plan.bases, plan.anchors_at_start))
                return

    def _follow_markers(self) -> Iterator[str]:
        """Advance over windows that were published by runs that died before their commit event."""
        now = self._now
        while True:
            seq = now.position.seq + 1 if now.position else 1
            window_id = cursor_window_id(seq, self._scope.scope_hash)
            if now.listed is not None and seq not in now.listed:
                now.unwritten = window_id
                return
            marker = self._sink.marker(window_id)
            yield "marker read"
            if marker is None:
                now.unwritten = window_id
                return
            now.follow(marker.plan, seq)
            now.seen[window_id] = marker

    def _may_be_behind(self, position: Position, updated: datetime) -> bool:
        """Return True if the sink's windows should be listed to find some far beyond the position,
        which exist if progress was restored from an older backup. A listing is cheap while there
        are few windows, and rare otherwise."""
        return position.seq <= _FEW or self._clock() - updated > _RECENTLY

    def _refuse_lost_windows(self) -> Iterator[str]:
        """Raise `SinkHistoryLost` if the sink has lost the window at the position, and
        `MarkerConflict` if that window ends elsewhere.

        A sink loses it when it is emptied, restored from an older copy or not mounted; restored
        progress may also name a window that was removed since. Windows before it may be removed at
        any time."""
        position = self._now.position
        if position is None or position.seq == 0 or not self._sink.exactly_once:
            return
        if position.by_hand:
            return
        window_id = cursor_window_id(position.seq, self._scope.scope_hash)
        marker = yield from self._present(window_id, "marker of position read")
        if marker is None:
            yield from self._refuse_lost(position, [window_id])
        elif marker.plan.ends != position.next:
            raise changed_without_command(self._scope, position, marker)

    def _present(self, window_id: str, point: str) -> Generator[str, None, Marker | None]:
        """Return the marker of a window in the sink's present state; None also if the sink was
        restored to a state before it."""
        marker = self._now.seen.get(window_id)
        if marker is None:
            marker = self._sink.marker(window_id)
            yield point
        present = None if marker is None else self._sink.holds(marker)
        if present is not None:
            yield "history of sink read"
        return None if present is False else marker

    def _refuse_lost(self, position: Position, lost: Sequence[str]) -> Iterator[str]:
        """Raise the error for windows `lost`, with advice by the windows that the sink has."""
        self._refuse_absent_place(position.seq)
        self._now.seen.clear()
        ids = list(self._sink.window_ids())
        numbers = sorted(cursor_numbers(ids, self._scope.scope_hash), reverse=True)
        yield "windows listed"
        newest: Marker | None = None
        for number in numbers:
            newest = yield from self._present(
                cursor_window_id(number, self._scope.scope_hash), "marker read"
            )
            if newest is not None:
                break
        beyond = newest is not None and (newest.plan.seq or 0) > position.seq
        begin = self._begin_anew(newest.plan) if newest is not None and beyond else None
        others = len(ids) > len(numbers)
        raise windows_lost(
            self._scope, position, lost, newest, begin, self._sink.identity, empty=not others
        )

    def _look_for_holes(self) -> Iterator[str]:
        """Refuse missing windows between markers, which may be all that is left of progress."""
        highest = max(cursor_numbers(self._sink.window_ids(), self._scope.scope_hash), default=0)
        yield "windows listed"
        yield from self._refuse_hole(highest)

    def _refuse_hole(self, highest: int) -> Iterator[str]:
        """Raise `SinkHistoryLost` if the sink has window `highest`, and none that leads to it."""
        now = self._now
        if highest <= (now.position.seq if now.position else 0):
            return
        # Another run may have published them since; a lost marker stays lost.
        now.listed = None
        yield from self._follow_markers()
        reached = now.position.seq if now.position else 0
        if highest <= reached:
            return
        last = self._sink.marker(cursor_window_id(highest, self._scope.scope_hash))
        yield "last marker read"
        begin = self._begin_anew(last.plan) if last is not None else None
        raise SinkHistoryLost(
            f"group {self._scope.group!r} has lost its cursor, or has an older one, and the sink "
            f"has window {cursor_window_id(highest, self._scope.scope_hash)} but not "
            f"{cursor_window_id(reached + 1, self._scope.scope_hash)}; beginning again could store "
            f"records twice. If a window between was claimed in a ledger and never written, only "
            f"runs with offset_store='ledger' can finish it. If all of them were there and were "
            f"removed, continue after the last one: "
            f"{continue_command(last.plan, begin) if last else 'look again, it was there'}"
        )

    def _begin_anew(self, last: WindowPlan) -> dict[str, int]:
        """Return the offsets after the sink's newest window, for a group whose windows are partly
        lost. Raises `LogRegression` if its logs were recreated: lost offsets of the old logs cannot
        be read any more."""
        seq = (last.seq or 0) if last.scope_hash == self._scope.scope_hash else 0
        behind = Position(seq, last.ends, last.anchors)
        self._planner.compare(behind)
        return self._planner.begin_behind(behind)

    def _position(self) -> Position:
        if self._now.position is None:
            raise RuntimeError("a cursor window has no position before step 1")
        return self._now.position

    def _read_cursor(self) -> Cursor | None:
        return self._cursor_of(self._store.load_cursor())

    def _cursor_of(self, document: Document | None) -> Cursor | None:
        if document is None or self._is_earlier(document):
            return None
        cursor = Cursor.from_document(document, self._scope)
        self._now.past = cursor.past
        return cursor

    def _accepted(self, event: Document | None) -> Position | None:
        """Return the position of the newest event, if it is of this epoch."""
        if event is None or epoch_of(event) in self._now.past or self._is_earlier(event):
            return None
        self._now.past = self._now.past or past_epochs(event)
        return position_of_event(event, self._scope)

    def _is_earlier(self, document: Document) -> bool:
        """Return True if a cursor or event is of an earlier epoch; this one then begins."""
        earlier = earlier_epochs(document, self._scope)
        if earlier is None:
            return False
        if not self._now.past:  # the first document read decides
            self._now.past = earlier.past
            self._planner.begin_epoch(earlier)
        return True

    # -- 2 plan -------------------------------------------------------------------------------

    def _window_id(self) -> str:
        return cursor_window_id(self._position().seq + 1, self._scope.scope_hash)

    def _accepted_before(self) -> bool:
        """Return False for a group without progress: it has no accepted window."""
        return not self._now.unannounced

    def _ours(self, plan: WindowPlan) -> bool:
        """Return True if a task plan matches the present arguments (clearing may change them)."""
        return plan.scope_hash == self._scope.scope_hash and is_cursor(plan)

    def _still_there(self, plan: WindowPlan) -> bool:
        if self._engine.plan_hash is not None:
            return True  # its records were read already
        return (plan.seq or 0) <= self._position().seq or self._planner.readable(plan)

    def _created(self) -> Generator[str, None, WindowPlan | None]:
        try:
            created = self._planner.plan(self._position())
        except LogRegression as exc:
            yield from self._find_reset(exc)
            return None
        yield "plan created"
        if created is None:
            yield from self._anchor()
        return created

    def _anchor(self) -> Iterator[str]:
        """Add anchors to a position that has none, when there is nothing to read. They are stored
        in the cursor, since the event of a skipped run is lost; without a cursor, in the event."""
        now, before = self._now, self._position()
        anchored = self._planner.anchored(before)
        if anchored.last == before.last:
            return
        now.reach(anchored)
        cursor = self._read_cursor()
        yield "cursor read"
        if cursor is not None and now.proven.get(cursor.seq) == cursor.position.next:
            self._store_cursor(cursor)
            yield "anchors stored"
        else:
            now.begun = True

    def _find_reset(self, error: LogRegression) -> Iterator[str]:
        """Use the next window if another run has published it after a permitted reset; otherwise
        raise `error`: the log was truncated or recreated."""
        yield "another log seen"
        marker = self._sink.marker(
            cursor_window_id(self._position().seq + 1, self._scope.scope_hash)
        )
        yield "marker of reset read"
        if marker is None:
            raise error
        self._now.plan = marker.plan

    # -- 3 check marker, 5 publish ------------------------------------------------------------

    def _refuse_unmarked(self, plan: WindowPlan) -> None:
        if (plan.seq or 0) <= self._position().seq:
            raise history_lost(plan, self._position().seq, self._sink.identity)

    def _refuse_if_overtaken(self, plan: WindowPlan) -> Iterator[str]:
        """Raise `SinkHistoryLost` if the window was published and its marker removed while this try
        was suspended."""
        if self._now.unannounced:
            # Others may have begun since this group's first window was planned.
            yield from self._refuse_other_scopes()
        cursor = self._read_cursor()
        yield "cursor read again"
        if cursor is None or cursor.seq < (plan.seq or 0):
            # The sink may have gone back to an older copy while this run was reading.
            self._now.seen.clear()
            yield from self._refuse_lost_windows()
            return
        marker = self._sink.marker(plan.window_id)
        yield "marker read again"
        if marker is None:
            raise history_lost(plan, cursor.seq, self._sink.identity)

    def _arrive(self, plan: WindowPlan) -> Iterator[str]:
        """Advance the position if the window is the next one."""
        if (plan.seq or 0) > self._position().seq + 1:
            # Others have published this task's window, and those before it, since step 1.
            yield from self._follow_markers()
        self._now.arrive()

    # -- 6 advance, 7 commit event ------------------------------------------------------------

    def _advance(self) -> Iterator[str]:
        """Move the cursor forward, never back, and only along the proven chain.

        It is read for this: a position or an epoch that was set by hand while the window was
        published has to stay.
        """
        now = self._now
        if now.plan is None:
            return
        cursor = self._read_cursor()
        yield "cursor read"
        if not now.may_advance(cursor):
            return
        self._store_cursor(cursor)
        yield "cursor stored"
        old = self._position().seq - PLANS_KEPT
        if old > 0:
            self._store.forget_plan(cursor_window_id(old, self._scope.scope_hash))
            yield "old plan forgotten"

    def _store_cursor(self, before: Cursor | None) -> None:
        """Store the position as the cursor, replacing `before`."""
        rev = (before.rev if before else 0) + 1
        cursor = Cursor(self._position(), rev, self._store.writer, self._now.past)
        self._store.store_cursor(cursor.to_document(self._scope, self._clock()))

    def _look_back(self) -> Throughput | None:
        self._now.miss(self._planner.absent(self._position()))
        return self._planner.pace


def _better_known(stored: Position, accepted: Position | None) -> Position:
    """Return the cursor's position, or the equal one of an event if only that has anchors: an empty
    run added them and moved no cursor."""
    better = accepted if accepted == stored and accepted.last and not stored.last else stored
    return replace(better, by_hand=stored.by_hand)
