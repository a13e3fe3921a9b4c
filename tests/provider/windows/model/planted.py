"""The mistakes that can be planted in the model, planted in the real run, sink, engine and planner.

By the name that the model gives them. Most are a method of the run that is left out or changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.provider.windows.exploration import MakeRun
from tests.provider.windows.model.player import LogEngine, TidySink
from tests.provider.windows.world import ENTRY, MemorySink, Record
from tubemq_provider.windows.cursor import Cursor, Position
from tubemq_provider.windows.errors import SinkHistoryLost
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.planning.claims import ClaimBook
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import (
    IngestCounts,
    IngestWatch,
    Marker,
    Progress,
    Publication,
    Staging,
    Step,
)
from tubemq_provider.windows.run._progress import same_window
from tubemq_provider.windows.run.claimed_run import Change, ClaimedRun
from tubemq_provider.windows.run.cursor_run import CursorRun


class OverwritingSink(TidySink):
    """Publishing replaces what is there, and no clean-up runs."""

    def publish(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        self.windows.pop(plan.window_id, None)
        return super().publish(staging, plan, counts, progress)

    def tidy(self, window_id: str) -> None:
        """Leave other tries alone, so that they come to publish."""


class SinkInTwoSteps(TidySink):
    """Records are visible first, and the marker that tells of them after the next action."""

    def __init__(self) -> None:
        super().__init__()
        self.unmarked: set[str] = set()

    def marker(self, window_id: str) -> Marker | None:
        return None if window_id in self.unmarked else super().marker(window_id)

    def window_ids(self) -> list[str]:
        return [name for name in self.windows if name not in self.unmarked]

    def publish(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        if plan.window_id in self.unmarked:
            del self.windows[plan.window_id]
        found = super().publish(staging, plan, counts, progress)
        if found.won:
            self.unmarked.add(plan.window_id)
        return found


class MarkerNotChecked(CursorRun):
    def _check(self) -> Iterator[str]:
        yield from ()


class PublishedInTwoSteps(CursorRun):
    def _arrive(self, plan: WindowPlan) -> Iterator[str]:
        sink = self._sink
        assert isinstance(sink, SinkInTwoSteps)
        if plan.window_id in sink.unmarked:
            sink.unmarked.discard(plan.window_id)
            yield "marker written"
        yield from super()._arrive(plan)


class OwnPlanKept(CursorRun):
    def _adopt(self, plan: WindowPlan, marker: Marker) -> Iterator[str]:
        same_window(plan, marker)
        self._now.marker = marker
        yield from ()


class AdvancesBeforePublishing(CursorRun):
    def _ingest(self) -> Iterator[str]:
        for point in super()._ingest():
            if point == "records written":
                self._now.arrive()
                self._store_cursor(self._read_cursor())
            yield point

    def _refuse_if_overtaken(self, plan: WindowPlan) -> Iterator[str]:
        yield from ()


class EmittedBeforePublishing(CursorRun):
    def _ingest(self) -> Iterator[str]:
        for point in super()._ingest():
            if point == "records written":
                self._now.arrive()
                list(self._commit())
                self._store.succeed()  # type: ignore[attr-defined]
            yield point

    def _refuse_if_overtaken(self, plan: WindowPlan) -> Iterator[str]:
        yield from ()


class CursorRewinds(CursorRun):
    def _advance(self) -> Iterator[str]:
        plan = self._now.plan
        if plan is None:
            return
        self._read_cursor()
        yield "cursor read"
        cursor = Cursor(Position(plan.seq or 0, plan.ends), 1, self._store.writer, ())
        self._store.store_cursor(cursor.to_document(self._scope, self._clock()))
        yield "cursor stored"


class AdvancesToTheEnd(CursorRun):
    def _store_cursor(self, before: Cursor | None) -> None:
        position = self._position()
        ends = {place.key: end.max_offset for place, end in self._planner.ends().items()}
        later = {key: ends[key] for key in position.next}
        cursor = Cursor(Position(position.seq, later), 1, self._store.writer, ())
        self._store.store_cursor(cursor.to_document(self._scope, self._clock()))


class HoleNotSeen(CursorRun):
    def _refuse_hole(self, highest: int) -> Iterator[str]:
        yield from ()


class LostWindowNotSeen(CursorRun):
    def _refuse_lost_windows(self) -> Iterator[str]:
        yield from ()


class WrittenAgain(CursorRun):
    def _refuse_unmarked(self, plan: WindowPlan) -> None:
        """Nothing is refused."""


class NotAskedAgain(CursorRun):
    def _refuse_if_overtaken(self, plan: WindowPlan) -> Iterator[str]:
        yield from ()


class AnyPlanUsed(CursorRun):
    def _load(self) -> Iterator[str]:
        self._now.usable = lambda plan: True  # type: ignore[method-assign]
        yield from super()._load()


class JoinedForgotten(CursorRun):
    def _load(self) -> Iterator[str]:
        now, reach = self._now, self._now.reach

        def forgetful(position: Position) -> None:
            marker = self._sink.marker(f"c-{position.seq}-{self._scope.scope_hash}")
            plan = marker.plan if marker else now.plan
            joined = plan.joined if plan is not None and plan.ends == position.next else ()
            left = {key: at for key, at in position.next.items() if key not in joined}
            reach(Position(position.seq, left, position.last))

        now.reach = forgetful  # type: ignore[method-assign]
        yield from super()._load()


class AgedWindowMissed(CursorRun):
    def _follow_markers(self) -> Iterator[str]:
        now = self._now
        listed, position = now.listed, now.position
        if listed is not None and position and not listed.issuperset(range(1, position.seq + 1)):
            raise SinkHistoryLost("a window before the position is missing")
        yield from super()._follow_markers()


class ClaimsOverwritten(ClaimedRun):
    def _change(self, change: Change) -> ClaimBook:
        book = change(self._known())
        if book is not None:
            store = self._store
            self._keep(store.change_cursor(lambda _: self._document(book)))
        return self._known()


class DeadClaimCounts(ClaimedRun):
    def _adopt_dead_claim(self) -> Iterator[str]:
        for claim in self._known().in_order():
            over = self._store.is_over(claim.by)
            yield "claimant asked for"
            if over:
                self._sink.marker(claim.plan.window_id)
                yield "marker of claim read"
                plan = claim.plan
                self._change(lambda book, plan=plan: book.complete(plan))  # type: ignore[misc]
                yield "claim completed"
        self._reach()


class AdoptedAnew(ClaimedRun):
    def _plan(self) -> Iterator[str]:
        for point in super()._plan():
            if point == "claim adopted" and self._now.plan is not None:
                ends = {place.key: end.max_offset for place, end in self._planner.ends().items()}
                ranges = {
                    key: (start, max(end, ends[key]))
                    for key, (start, end) in self._now.plan.ranges.items()
                }
                self._now.plan = replace(self._now.plan, ranges=ranges)
            yield point


class PassesClaims(ClaimedRun):
    def _change(self, change: Change) -> ClaimBook:
        def passing(book: ClaimBook) -> ClaimBook | None:
            changed = change(book)
            return None if changed is None else _passed_over(changed)

        return super()._change(passing)


def _passed_over(book: ClaimBook) -> ClaimBook:
    """Return the book with the position behind the last window that is done."""
    last = max(book.done.values(), key=lambda plan: plan.seq or 0, default=None)
    if last is None:
        return book
    return replace(book, position=Position(last.seq or 0, last.ends, last.anchors), done={})


class HoleNotClaimed(ClaimedRun):
    def _rebuild(self, accepted: Position | None, result: list[ClaimBook]) -> Iterator[str]:
        yield from super()._rebuild(accepted, result)
        result[:] = [_passed_over(replace(book, pending={})) for book in result]


class NewestNotSeen(ClaimedRun):
    def _refuse_lost_windows(self) -> Iterator[str]:
        yield from CursorRun._refuse_lost_windows(self)


class EngineThatSkips(LogEngine):
    """Reads what there is, and says nothing of what is not."""

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
        self.skips = True
        counts = super().ingest(plan, staging, watch)
        return IngestCounts(counts.records, counts.bytes)


class PlannerThatSkips(CursorPlanner):
    """Plans as if retention had taken nothing."""

    def plan(self, position: Position) -> WindowPlan | None:
        self.policies = Policies.of(gap_policy="skip")
        plan = super().plan(position)
        if plan is None or not plan.gaps:
            return plan
        return WindowPlan.cursor(self.scope, position.seq + 1, plan.ranges, joined=plan.joined)


class PlannerThatJoinsLate(CursorPlanner):
    """Reads a partition that joins from its end of that moment."""

    def _starts(self, position: Position) -> tuple[dict[str, int], dict[str, int], tuple[str, ...]]:
        starts, resets, joined = super()._starts(position)
        late = {place.key: end.max_offset for place, end in self.ends().items()}
        return {**starts, **{key: late[key] for key in joined}}, resets, joined


class UncappedPlanner(CursorPlanner):
    """Says that the window is whole."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.max_records = None


class CappedEngine(LogEngine):
    """Writes the first record of a window that was to be cut."""

    def choose(self, records: list[Record]) -> list[Record]:
        first = sorted(records, key=lambda record: record[1])[:1]
        return first if self.capped else records


class EngineThatStops(LogEngine):
    """Takes the last record for the end."""

    def choose(self, records: list[Record]) -> list[Record]:
        ordered = sorted(records, key=lambda record: record[1])
        return ordered[:-1] if len(ordered) > 1 else ordered


@dataclass(frozen=True)
class Planted:
    """Places where a mistake is planted; all others are as shipped."""

    make_run: MakeRun | None = None
    sink: type[MemorySink] | None = None
    engine_type: type[LogEngine] | None = None
    planner_type: type[CursorPlanner] | None = None
    latest: bool = False
    claims: bool = False

    def options(self) -> dict[str, Any]:
        """For a `Player`."""
        given = {name: value for name, value in vars(self).items() if value}
        return {**given, "sink": self.sink()} if self.sink else given


PLANTED: Mapping[str, Planted] = {
    "MarkerNotChecked": Planted(MarkerNotChecked, sink=OverwritingSink),
    "PublishOverwrites": Planted(sink=OverwritingSink),
    "PublishedInTwoSteps": Planted(PublishedInTwoSteps, sink=SinkInTwoSteps),
    "OwnPlanKept": Planted(OwnPlanKept),
    "AdvancesBeforePublishing": Planted(AdvancesBeforePublishing),
    "EmittedBeforePublishing": Planted(EmittedBeforePublishing),
    "CursorRewinds": Planted(CursorRewinds),
    "AdvancesToTheEnd": Planted(AdvancesToTheEnd),
    "EndInMemory": Planted(latest=True),
    "HoleNotSeen": Planted(HoleNotSeen),
    "LostWindowNotSeen": Planted(LostWindowNotSeen),
    "WrittenAgain": Planted(WrittenAgain),
    "NotAskedAgain": Planted(NotAskedAgain),
    "AnyPlanUsed": Planted(AnyPlanUsed),
    "JoinedForgotten": Planted(JoinedForgotten),
    "RetentionNotSeen": Planted(engine_type=EngineThatSkips, planner_type=PlannerThatSkips),
    "JoinsAtItsEnd": Planted(planner_type=PlannerThatJoinsLate),
    "CapForgotten": Planted(engine_type=CappedEngine, planner_type=UncappedPlanner),
    "StopsEarly": Planted(engine_type=EngineThatStops),
    "AgedWindowMissed": Planted(AgedWindowMissed),
    "ClaimsOverwritten": Planted(ClaimsOverwritten, claims=True),
    "DeadClaimCounts": Planted(DeadClaimCounts, claims=True),
    "AdoptedAnew": Planted(AdoptedAnew, claims=True),
    "PassesClaims": Planted(PassesClaims, claims=True),
    "NewestNotSeen": Planted(NewestNotSeen, claims=True),
    "HoleNotClaimed": Planted(HoleNotClaimed, claims=True),
}

__all__ = ["ENTRY", "PLANTED", "Planted", "Step"]
