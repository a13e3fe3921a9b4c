"""Run of a group's cursor windows by several runs concurrently: `CursorRun` over claims.

The eight steps and the facts that decide are those of `WindowRun`; only the sources of position and
plan differ. The position is in the claim book, and commit events do not move it. A run takes, in
this order: the window of its task plan, its own claim, the claim of a run that has ended, a new
window after all others. The sink's marker still decides whether a window is published, so a claim
that is adopted too early costs work and nothing else. This module must not import airflow, pyspark
or pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from datetime import datetime
from functools import cached_property

from tubemq_client.errors import LogRegression
from tubemq_provider.windows.cursor import (
    Cursor,
    Position,
    continue_command,
    earlier_epochs,
    past_epochs,
    updated_at,
)
from tubemq_provider.windows.errors import SinkHistoryLost, StoreConflict
from tubemq_provider.windows.plan import WindowPlan, cursor_window_id
from tubemq_provider.windows.planning.claims import Claim, ClaimBook, rebuilt, without
from tubemq_provider.windows.protocols import ClaimStore, Document
from tubemq_provider.windows.run._progress import (
    claim_stranded,
    claimed_windows_lost,
    claims_outdated,
    cursor_numbers,
    history_lost,
    rebuild_advice,
)
from tubemq_provider.windows.run.cursor_run import CursorRun

__all__ = ["ClaimedRun"]

_ATTEMPTS = 100

Change = Callable[[ClaimBook], ClaimBook | None]


class ClaimedRun(CursorRun):
    """One try to publish one claimed cursor window. Single use."""

    _store: ClaimStore
    _book: ClaimBook | None = None
    _updated: datetime
    _published_before: tuple[str, ...] = ()
    """Newest windows of the book that were published before this run's window."""

    @cached_property
    def _passed(self) -> list[WindowPlan]:
        """Claims that this run leaves to later ones, because their brokers are away or their logs
        were recreated."""
        return []

    # -- 1 load -------------------------------------------------------------------------------

    def _load(self) -> Iterator[str]:
        """Load the claim book, which has the position. It is created here, before planning, for a
        group that has none: two first runs must not resolve ``stable`` twice."""
        # Read the event before the book: a book is never behind the events of its runs.
        event = self._store.newest_position()
        yield "event read"
        document = self._store.load_cursor()
        yield "claims read"
        if document is not None and not self._is_earlier(document):
            self._keep(document)
        accepted = self._accepted(event)
        if self._book is None:
            lost: list[ClaimBook] = []
            yield from self._rebuild(accepted, lost)
            document = self._store.change_cursor(
                lambda there: (
                    self._document(lost[0]) if lost and not self._has_begun(there) else None
                )
            )
            yield "claims created"
        self._keep(document)
        self._reach()
        # The book is created before the group's first window.
        self._now.unannounced = accepted is None and self._position().seq == 0
        self._refuse_to_go_back(accepted.seq if accepted else 0)
        yield from self._refuse_lost_windows()
        yield from self._refuse_older_claims()
        self._planner.observe(event)

    def _refuse_lost_windows(self) -> Iterator[str]:
        """Check as `CursorRun`, and that the sink has the windows that were published last as well:
        the one at the position may have been published long before them."""
        if not self._sink.exactly_once:
            return
        lost = []
        for window_id in self._known().newest:
            marker = yield from self._present(window_id, "marker of newest window read")
            if marker is None:
                lost.append(window_id)
            else:
                self._now.seen[window_id] = marker
        if lost:
            yield from self._refuse_lost(self._position(), lost)
        yield from super()._refuse_lost_windows()

    def _refuse_lost(self, position: Position, lost: Sequence[str]) -> Iterator[str]:
        """Advise an epoch instead of a new position if windows are claimed, or if the lost windows
        are not those at the position."""
        self._refuse_absent_place(position.seq)
        book = self._known()
        own = cursor_window_id(position.seq, self._scope.scope_hash)
        if book.pending or book.done or own not in lost:
            behind = yield from self._behind_all(book.frontier)
            self._planner.compare(behind)
            begin = self._planner.begin_behind(behind)
            raise claimed_windows_lost(self._scope, book, lost, begin, self._sink.identity)
        yield from super()._refuse_lost(position, lost)

    def _behind_all(self, frontier: Position) -> Generator[str, None, Position]:
        """Return the end of all windows that are claimed or in the sink. Of a window that is both,
        the marker counts: claims of an older backup may be shorter."""
        numbers = set(cursor_numbers(self._sink.window_ids(), self._scope.scope_hash))
        yield "windows listed"
        highest = max(numbers, default=0)
        if highest < frontier.seq:
            return frontier
        marker = self._sink.marker(cursor_window_id(highest, self._scope.scope_hash))
        yield "last marker read"
        if marker is None:
            return frontier
        return Position(highest, marker.plan.ends, marker.plan.anchors)

    def _refuse_older_claims(self) -> Iterator[str]:
        """Raise `SinkHistoryLost` if the sink has windows that do not follow from the claims: the
        claims come from an older backup, and the sink may have the records of a claim or of the
        next window already."""
        if not self._may_be_behind(self._known().frontier, self._updated):
            return
        listed = set(cursor_numbers(self._sink.window_ids(), self._scope.scope_hash))
        yield "windows listed"
        unknown = yield from self._unknown(listed)
        if not unknown:
            return
        # Other runs may have claimed and published them since.
        self._keep(self._store.load_cursor())
        yield "claims read again"
        unknown = yield from self._unknown(listed)
        if unknown:
            raise claims_outdated(self._scope, self._known(), unknown, self._sink.identity)

    def _unknown(self, listed: Collection[int]) -> Generator[str, None, list[str]]:
        """Return ids of the sink's windows that do not follow from the claims. A window that begins
        where the claims end does follow: it was published by a run whose claim is lost."""
        book = self._known()
        behind = book.frontier
        unknown = []
        for number in sorted(number for number in listed if number > book.position.seq):
            window_id = cursor_window_id(number, self._scope.scope_hash)
            if book.knows(window_id):
                continue
            marker = self._sink.marker(window_id) if number == behind.seq + 1 else None
            if marker is not None:
                yield "marker of unknown window read"
            if marker is None or not marker.plan.continues(behind.next):
                unknown.append(window_id)
        return unknown

    def _has_begun(self, document: Document | None) -> bool:
        return document is not None and earlier_epochs(document, self._scope) is None

    def _refuse_to_go_back(self, accepted: int) -> None:
        """Raise `SinkHistoryLost` if windows were accepted with another store after the book's
        position."""
        if accepted > self._position().seq:
            raise SinkHistoryLost(
                f"the claims of group {self._scope.group!r} know windows up to "
                f"{self._position().seq}, but windows up to {accepted} were accepted with another "
                f"store. {rebuild_advice(self._scope)}"
            )

    def _rebuild(self, accepted: Position | None, result: list[ClaimBook]) -> Iterator[str]:
        """Build the book from an earlier cursor or the newest event, and the sink's markers."""
        positions: list[Position] = []
        earlier = self._store.previous_cursor()
        yield "earlier cursor read"
        if accepted is not None:
            positions.append(accepted)
        if earlier is not None and not self._is_earlier(earlier):
            positions.append(Cursor.from_document(earlier, self._scope).position)
        # The cursor counts if both have the same seq: a user may have set it.
        position = max(reversed(positions), key=lambda place: place.seq, default=None)
        seqs = cursor_numbers(self._sink.window_ids(), self._scope.scope_hash)
        yield "windows listed"
        published: list[WindowPlan] = []
        if position is None:
            yield from self._refuse_other_scopes()
        for seq in sorted(seq for seq in seqs if seq > (position.seq if position else 0)):
            marker = self._sink.marker(cursor_window_id(seq, self._scope.scope_hash))
            yield "marker read"
            if marker is not None:
                published.append(marker.plan)
        if position is None and published and published[0].seq != 1:
            # Concurrent runs may have begun the group since, and published out of order.
            current = self._store.load_cursor()
            yield "claims read again"
            if self._has_begun(current):
                return
        if position is None and not published:
            yield from self._begin_behind()
            position = self._now.position
        result.append(rebuilt(position or self._beginning(published), published))

    def _beginning(self, published: list[WindowPlan]) -> Position:
        """Return the first position of a group whose only progress is in the sink's markers."""
        if not published:
            return self._planner.initial()
        first = published[0]
        if first.seq != 1:
            last = published[-1]
            begin = self._begin_anew(last)
            raise SinkHistoryLost(
                f"group {self._scope.group!r} has lost its ledger and its events, and the sink has "
                f"window {first.window_id} but not the first one. If those before it were claimed "
                f"and never written, write their offsets, up to {first.bases}, as an explicit "
                f"window with on_other_scope='start_anew'. Then, or if they were there and were "
                f"removed, continue after the last one: {continue_command(last, begin)}"
            )
        return Position(0, first.bases, first.anchors_at_start)

    def _follow_markers(self) -> Iterator[str]:
        """Do nothing: the book has the position, and markers may be out of order."""
        yield from ()

    # -- 2 plan -------------------------------------------------------------------------------

    def _plan(self) -> Iterator[str]:
        """Use the task plan, else this run's claim, else that of an ended run, else a new claim.

        The result becomes the task plan."""
        now = self._now
        task_plan = self._task_plan()
        yield "task plan read"
        if self._engine.plan_hash is not None:
            yield from self._plan_counted(task_plan, self._engine.plan_hash)
            return
        if task_plan is not None and self._ours(task_plan):
            yield from self._resume(task_plan)
            if now.plan is not None:
                return
        own = self._known().own(self._store.writer)
        if own is not None:
            yield from self._go_on(own)
        if now.plan is None:
            yield from self._adopt_dead_claim()
        if now.plan is None:
            yield from self._claim_next()
        if now.plan is not None:
            self._store.store_task_plan(now.plan.to_document())
            yield "task plan stored"

    def _kept(self, plan_hash: str) -> WindowPlan | None:
        """Return the claimed plan of that hash, whichever task has claimed it."""
        plans = (claim.plan for claim in self._known().pending.values())
        return next((plan for plan in plans if plan.hash == plan_hash), None)

    def _use_reported_counts(self, plan: WindowPlan) -> Iterator[str]:
        """Use the plan if any task has claimed it, or if it is published."""
        claim = self._known().pending.get(plan.window_id)
        if claim is None:
            yield from self._resume(plan)
        elif claim.plan.hash == plan.hash:
            self._now.plan = self._known().remaining(claim.plan)

    def _resume(self, plan: WindowPlan) -> Iterator[str]:
        """Resume the window of an earlier try if the book or the sink has it.

        If the sink has another window under its number, or an earlier one that covers its ranges,
        the ledger was lost before this window was written, and another run has planned the same
        ranges: then the task takes the next window.
        """
        claim = self._known().pending.get(plan.window_id)
        if claim is not None:
            yield from self._go_on(claim.plan)
            return
        marker = self._sink.marker(plan.window_id)
        yield "marker of task plan read"
        if marker is not None and marker.plan.bases == plan.bases:
            self._now.plan = marker.plan
        elif marker is None and self._known().published(plan):
            covered = yield from self._covered(plan)
            self._now.plan = None if covered else plan

    def _covered(self, plan: WindowPlan) -> Generator[str, None, bool]:
        """Return True if the window before this one in the sink covers its ranges. A lost ledger
        leaves one hole where several windows were claimed, and one window fills it."""
        before = [
            seq
            for seq in cursor_numbers(self._sink.window_ids(), self._scope.scope_hash)
            if seq < (plan.seq or 0)
        ]
        yield "windows listed"
        marker = (
            self._sink.marker(cursor_window_id(max(before), self._scope.scope_hash))
            if before
            else None
        )
        yield "marker before task plan read"
        return (
            marker is not None
            and not plan.resets
            and all(
                marker.plan.ranges.get(key, (end, end))[0] <= start
                and end <= marker.plan.ranges.get(key, (end, end))[1]
                for key, (start, end) in plan.ranges.items()
            )
        )

    def _go_on(self, claim: WindowPlan) -> Iterator[str]:
        """Resume a claim of this task, unless a reset has to be planned before it."""
        plan = self._left_of(claim)
        try:
            if self._planner.claimable(plan):
                self._now.plan = plan
            else:
                self._pass(plan)
        except LogRegression:
            marker = self._sink.marker(plan.window_id)
            yield "marker of own claim read"
            if marker is None:
                raise
            # The log was truncated or recreated, after another run published the window.
            self._now.plan = marker.plan
        yield "claim compared with its logs"

    def _adopt_dead_claim(self) -> Iterator[str]:
        """Adopt the first claim of a run that has ended, with its exact ranges. Claims that are
        published already are only completed in the book."""
        for claim in self._known().in_order():
            over = self._store.is_over(claim.by)
            yield "claimant asked for"
            if not over:
                continue
            marker = self._sink.marker(claim.plan.window_id)
            yield "marker of claim read"
            if marker is not None:
                plan = marker.plan
                self._change(lambda book, plan=plan: book.complete(plan))  # type: ignore[misc]
                self._now.noted.append(plan.window_id)
                yield "claim completed"
                continue
            plan = self._left_of(claim.plan)
            if not self._planner.claimable(plan):
                self._pass(plan)
            elif self._adopt_claim(claim):
                self._now.plan = plan
                yield "claim adopted"
                return
        self._reach()

    def _left_of(self, claim: WindowPlan) -> WindowPlan:
        """Return the plan of a claim, with offsets that are lost for good as gaps."""
        book = self._known()
        plan = book.remaining(claim)
        return without(plan, self._planner.given_up(plan, book.reset_after(claim)))

    def _pass(self, plan: WindowPlan) -> None:
        """Leave a claim to a later run; this run continues after it."""
        self._passed.append(plan)
        if waiting := self._planner.waits_for(plan):
            self._now.warnings.append(
                f"window {plan.window_id} stays claimed until its brokers are back (partitions "
                f"{', '.join(waiting)})"
            )

    def _reach(self) -> None:
        """Take the position from the book. The run that published a window announces it, or the one
        that completes its claim."""
        self._now.reach(self._known().position)
        self._now.announced = self._position().seq

    def _adopt_claim(self, claim: Claim) -> bool:
        def change(book: ClaimBook) -> ClaimBook | None:
            return book.adopt(claim.plan.window_id, claim.by, self._store.writer, self._clock())

        mine = self._change(change).pending.get(claim.plan.window_id)
        return mine is not None and mine.by == self._store.writer

    def _claim_next(self) -> Iterator[str]:
        """Plan a window after all others and claim it by compare-and-set; repeat if another run was
        faster."""
        for _ in range(_ATTEMPTS):
            # Look up ends after reading the frontier: other runs may have claimed beyond ends that
            # were looked up earlier, which would look like a truncated log.
            self._planner.forget_ends()
            plan = self._planner.plan(self._known().frontier)
            yield "plan created"
            self._refuse_stranded()
            if plan is None:
                yield from self._anchor()
                return
            book = self._change(
                lambda book, plan=plan: book.claim(plan, self._store.writer, self._clock())  # type: ignore[misc]
            )
            yield "plan claimed"
            mine = book.pending.get(plan.window_id)
            if mine is not None and mine.by == self._store.writer and mine.plan.hash == plan.hash:
                self._now.plan = plan
                return
        raise StoreConflict(f"{_ATTEMPTS} windows in a row were claimed by others first")

    def _refuse_stranded(self) -> None:
        """Raise unless a claim of a recreated log may be left behind.

        It may if the next window, or a known one, restarts at the beginning of the present log;
        otherwise no window would read that log's first records."""
        book = self._known()
        behind = book.frontier
        for plan in self._passed:
            if plan.window_id not in book.pending:
                continue
            lost = set(self._planner.unclaimable_partitions(plan, behind)) - book.reset_after(plan)
            if lost:
                begin = self._planner.begin_behind(behind)
                raise claim_stranded(self._scope, plan, self._scope.space.ordered(lost), begin)

    def _anchor(self) -> Iterator[str]:
        """Add anchors to the book's position if it has none, when there is nothing to read."""
        position = self._known().position
        anchored = self._planner.anchored(position)
        if anchored.last != position.last:
            self._now.reach(self._change(lambda book: book.anchored(anchored)).position)
            yield "anchors stored"

    # -- 3 check marker, 5 publish ------------------------------------------------------------

    def _check(self) -> Iterator[str]:
        """Check as `WindowRun`; a window published after a pending one counts as published too."""
        yield from super()._check()
        now = self._now
        written = now.marker or now.replacing
        if now.plan is not None and written is None and self._known().published(now.plan):
            raise history_lost(now.plan, now.plan.seq or 0, self._sink.identity)

    def _refuse_if_overtaken(self, plan: WindowPlan) -> Iterator[str]:
        """Raise `SinkHistoryLost` if the window was published and its marker removed while this try
        was suspended."""
        if self._now.unannounced:
            yield from self._refuse_other_scopes()
        self._keep(self._store.load_cursor())
        yield "claims read again"
        self._refuse_reset_within(plan)
        if not self._known().published(plan):
            # The sink may have gone back to an older copy while this run was reading.
            self._reach()
            self._now.seen.clear()
            yield from self._refuse_lost_windows()
            self._published_before = self._known().newest
            return
        marker = self._sink.marker(plan.window_id)
        yield "marker read again"
        if marker is None:
            raise history_lost(plan, plan.seq or 0, self._sink.identity)

    def _refuse_reset_within(self, plan: WindowPlan) -> None:
        """Raise `StoreConflict` if a reset assigned part of these ranges to a later window, as
        happens if a log was truncated and has grown again."""
        if plan.window_id not in self._known().pending:
            return
        for key, gaps in self._known().remaining(plan).gaps.items():
            low, high = max(gaps)
            is_planned = any(a <= low and high <= b for a, b in plan.gaps.get(key, ()))
            if plan.ranges[key][0] < low and not is_planned:
                raise StoreConflict(
                    f"on_offset_regression let a later window read partition {key} from {low} on, "
                    f"within window {plan.window_id}, while that was written; run the task again, "
                    f"it leaves them out"
                )

    # -- 6 advance ----------------------------------------------------------------------------

    def _written_before(self, plan: WindowPlan) -> int:
        """Return the number of windows up to the position; those between it and the plan are
        claimed, and may not be written yet."""
        return min(super()._written_before(plan), self._position().seq)

    def _advance(self) -> Iterator[str]:
        """Complete the claim, which moves the position over all adjacent published windows."""
        plan = self._now.plan
        if plan is None:
            return
        before = () if self._now.replayed else self._published_before
        self._change(lambda book: book.complete(plan, before))
        yield "claim completed"
        self._reach()

    # -- small helpers ------------------------------------------------------------------------

    def _change(self, change: Change) -> ClaimBook:
        """Change the book by compare-and-set and return its new state."""

        def changed(document: Document | None) -> Document | None:
            if document is None:
                raise SinkHistoryLost(
                    f"the claims of group {self._scope.group!r} vanished during a run; a new run "
                    f"rebuilds them"
                )
            book = change(ClaimBook.from_document(document, self._scope))
            return None if book is None else self._document(book)

        return self._keep(self._store.change_cursor(changed))

    def _document(self, book: ClaimBook) -> Document:
        document = book.to_document(self._scope, self._clock(), self._store.writer)
        return document | ({"past": list(self._now.past)} if self._now.past else {})

    def _keep(self, document: Document | None) -> ClaimBook:
        if document is None:
            raise SinkHistoryLost(f"the claims of group {self._scope.group!r} are gone")
        if earlier_epochs(document, self._scope) is not None:
            raise SinkHistoryLost(
                f"the claims of group {self._scope.group!r} were begun anew during a run, by an "
                f"epoch or a restored database; a new run continues from their present state"
            )
        self._book = ClaimBook.from_document(document, self._scope)
        self._updated = updated_at(document)
        self._now.past = past_epochs(document)
        return self._book

    def _known(self) -> ClaimBook:
        if self._book is None:
            raise RuntimeError("claims are not known before step 1")
        return self._book
