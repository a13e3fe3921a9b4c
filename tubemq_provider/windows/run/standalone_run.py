"""Run of a standalone window, of time or of explicit offsets: `WindowRun` without a cursor.

The window depends on no other, but must not overlap a published window, nor repeat records that the
group's cursor windows have stored. This module must not import airflow, pyspark or pyarrow.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar

from tubemq_provider.windows.canonical import rfc3339
from tubemq_provider.windows.cursor import earlier_epochs, past_epochs
from tubemq_provider.windows.errors import (
    BoundaryConflict,
    IntervalMissing,
    SinkHistoryLost,
)
from tubemq_provider.windows.plan import WindowKind, WindowPlan
from tubemq_provider.windows.planning.other_scopes import (
    refuse_other_scopes,
    refuse_stored,
    scope_in,
)
from tubemq_provider.windows.planning.overlaps import (
    missing_next_to,
    missing_text,
    refuse_overlaps,
)
from tubemq_provider.windows.planning.published import PublishedWindows
from tubemq_provider.windows.planning.standalone_planner import StandalonePlanner
from tubemq_provider.windows.policies import OnMissingInterval, OnOtherScope
from tubemq_provider.windows.run._progress import (
    appended_before,
    other_ranges,
    refuse_edited,
    time_windows_lost,
)
from tubemq_provider.windows.run.epochs import recent_events, stored_epoch_source
from tubemq_provider.windows.run.steps import WindowRun

__all__ = ["StandaloneRun"]


class StandaloneRun(WindowRun):
    """One try to publish one standalone window. Single use."""

    _planner: StandalonePlanner
    _chained: ClassVar[bool] = False

    @cached_property
    def _compared(self) -> set[str]:
        """Ids of windows whose offsets were compared with this one."""
        return set()

    @cached_property
    def _published(self) -> PublishedWindows:
        """Listing of the sink's windows, taken at first use and again before publishing."""
        return PublishedWindows(self._sink, self._scope, self._planner.interval)

    def _begun(self) -> bool:
        """Return True also if a boundary next to a time window is fixed."""
        return self._planner.has_neighbour() or super()._begun()

    # -- 1 load, 2 plan -----------------------------------------------------------------------

    def _load(self) -> Iterator[str]:
        """Load the epoch's state, since there is no position: it may have ended, or begin at
        offsets that a user has set."""
        self._planner.compare(self._published)
        cursor = self._store.load_cursor()
        yield "cursor read"
        latest = stored_epoch_source(self._store, cursor, chained=False)
        yield "events read"
        if latest is not None:
            self._follow(latest)
        yield from self._refuse_lost_sink()
        yield from self._look_for_accepted()

    def _follow(self, document: Mapping[str, Any]) -> None:
        """Begin this window's epoch after the one that `life` names. Raises `IdentityMismatch` if
        this window's epoch has ended.

        A time window ends the earlier epoch itself if the group has time windows only. It does not
        end that of a cursor, which continues independently; explicit windows end none."""
        earlier = earlier_epochs(document, self._scope)
        self._now.past = past_epochs(document)
        if earlier is None:
            return
        self._planner.begin_epoch(earlier)
        if (
            self._planner.kind is WindowKind.TIME
            and "next" not in document
            and "position" not in document
        ):
            self._now.past = earlier.past

    def _refuse_lost_sink(self) -> Iterator[str]:
        """Raise `SinkHistoryLost` if the sink's place is missing, e.g. not mounted, although commit
        events name windows there. Checked before planning, which fixes boundaries in the sink."""
        lost = self._sink.missing()
        yield "place looked at"
        if lost is None:
            return
        for event in recent_events(self._store):
            window_id = str(event.get("window_id", ""))
            if scope_in(window_id) == self._scope.scope_hash:
                raise SinkHistoryLost(f"window {window_id} was written before, but {lost}")

    def _look_for_accepted(self) -> Iterator[str]:
        """Check that the sink has the time window that was accepted last.

        Raises `SinkHistoryLost` if the sink has no window of the scope any more, unless the task
        was cleared. Warns if only that window is lost: its own task can write it again, and
        coverage reports it as missing."""
        if not self._sink.exactly_once:
            return
        windows = (str(event.get("window_id", "")) for event in recent_events(self._store))
        own = (name for name in windows if scope_in(name) == self._scope.scope_hash)
        newest = next((name for name in own if name.startswith("t-")), None)
        again = newest == self._planner.window_id
        if newest is None or (again and self._cleared):
            return
        marker = self._sink.marker(newest)
        yield "newest accepted window looked for"
        present = None if marker is None else self._sink.holds(marker)
        if present is not None:
            yield "history of sink read"
        if marker is not None and present is not False:
            return
        left = self._scope.scope_hash in {*map(scope_in, self._published.ids)}
        yield "windows of the scope listed"
        if not left and not self._cleared:
            raise time_windows_lost(self._scope, newest, self._sink.identity)
        if not again:
            # A table that was restored has the markers of windows that it lost.
            way = (
                "reads the same offsets again. 'airflow tubemq windows coverage --sink …' shows "
                "which windows are missing"
                if marker is None
                else "says how to continue. The table was restored: more windows may be missing"
            )
            self._now.warnings.append(
                f"window {newest} was accepted and is not in {self._sink.identity} any more. If it "
                f"was not removed on purpose, clear its task: it {way}"
            )

    def _accepted_meanwhile(self, plan: WindowPlan) -> WindowPlan | None:
        """Return the plan with which another run published this window since the listing, if its
        offsets differ from `plan`.

        Raises `SinkHistoryLost` if the sink has lost that window: its boundaries were lost with it,
        so `plan` would write other offsets under its id."""
        for event in recent_events(self._store):
            if event.get("window_id") == plan.window_id:
                accepted = {key: tuple(pair) for key, pair in event.get("ranges", {}).items()}
                if accepted == dict(plan.ranges):
                    return None
                marker = self._sink.marker(plan.window_id)
                if marker is None:
                    raise other_ranges(plan, accepted, self._sink.identity)
                return marker.plan
        return None

    def _plan(self) -> Iterator[str]:
        """Plan as `WindowRun`, after checking the request against fixed boundaries."""
        self._planner.confirm()
        yield "confirmed"
        yield from super()._plan()

    def _window_id(self) -> str | None:
        return self._planner.window_id

    def _refuse_edited(self, plan: WindowPlan | None) -> None:
        """Check retries only: a cleared task may write the same window to another place, and
        Dagster's runs of one partition share its plan."""
        if self._retried and plan is not None:
            refuse_edited(plan, self._scope, chained=self._chained)

    def _ours(self, plan: WindowPlan) -> bool:
        """Return True if a task plan matches the present arguments (clearing may change them)."""
        if plan.scope_hash != self._scope.scope_hash:
            return False
        requested_id = self._planner.window_id
        if requested_id is None:
            return plan.kind is WindowKind.EXPLICIT and self._planner.stands(plan)
        if plan.window_id == requested_id:
            return True
        if plan.kind is WindowKind.TIME and self._sink.marker(plan.window_id) is None:
            raise _interval_changed(plan, self._planner.interval)
        return False

    def _still_there(self, plan: WindowPlan) -> bool:
        return self._planner.stands(plan)

    def _created(self) -> Generator[str, None, WindowPlan | None]:
        if not self._planner.has_neighbour():
            yield from self._refuse_other_scopes()
        yield from self._refuse_overlaps()
        created = self._planner.plan()
        if (published := self._accepted_meanwhile(created)) is not None:
            self._now.plan = published
            return None
        yield from self._refuse_stored(created)
        yield "plan created"
        return created

    def _refuse_other_scopes(self) -> Iterator[str]:
        """Refuse as `WindowRun`, but by the listing that this run has already."""
        if self._planner.policies.on_other_scope is OnOtherScope.FAIL:
            yield from refuse_other_scopes(self._published, self._scope, cursor=False)

    def _refuse_stored(self, plan: WindowPlan) -> Iterator[str]:
        """Refuse, as `on_other_scope` says, records that other windows of the group have stored."""
        if self._planner.policies.on_other_scope is OnOtherScope.FAIL:
            yield from refuse_stored(self._published, self._scope, plan, self._compared)

    def _refuse_overlaps(self) -> Iterator[str]:
        """Refuse a time window that overlaps published ones: it would store records twice."""
        if interval := self._planner.interval:
            published = self._published.texts
            refuse_overlaps(published, interval, self._scope.scope_hash)
            self._now.missing = tuple(missing_next_to(published, interval))
            fails = self._planner.policies.on_missing_interval is OnMissingInterval.FAIL
            if self._now.missing and fails:
                raise IntervalMissing(
                    f"{missing_text(self._now.missing, interval)}, or set "
                    f"on_missing_interval='warn'"
                )
            yield "intervals compared"

    # -- 3 check marker, 5 publish ------------------------------------------------------------

    def _refuse_unmarked(self, plan: WindowPlan) -> None:
        if self._cleared and not self._sink.exactly_once:
            raise appended_before(plan, self._sink.kind)

    def _refuse_if_overtaken(self, plan: WindowPlan) -> Iterator[str]:
        """Repeat the checks of the planning step, for a try that was suspended or uses a stored
        plan: another interval, cursor or group may have published the same records since."""
        if self._now.replacing is None:
            self._planner.keep_boundaries(plan)
            yield "boundaries looked at again"
            self._published = self._published.again()
            self._planner.compare(self._published)
            # Without a point between them: both use the same listing.
            for check in (self._refuse_other_scopes(), self._refuse_stored(plan)):
                for _ in check:
                    pass
            self._planner.refuse_overtaken(plan)
            yield from self._refuse_overlaps()

    def _commit(self) -> Iterator[str]:
        """Commit as `WindowRun`, with a warning of intervals next to this window that no window
        covers; also if the try that published it was killed before its commit event."""
        if self._now.replayed and (interval := self._planner.interval):
            self._now.missing = tuple(missing_next_to(self._published.texts, interval))
            yield "intervals looked at again"
        if self._now.missing and (interval := self._planner.interval):
            self._now.warnings.append(missing_text(self._now.missing, interval))
        yield from super()._commit()

    # -- 6 advance ----------------------------------------------------------------------------

    def _advance(self) -> Iterator[str]:
        """Remove the stored plan: there is no cursor to move, the marker has the plan, and one key
        per interval would pile up."""
        if self._now.plan is not None:
            self._store.forget_plan(self._now.plan.window_id)
            yield "plan forgotten"


def _interval_changed(
    plan: WindowPlan, interval: tuple[datetime, datetime] | None
) -> BoundaryConflict:
    """Return the refusal of a changed interval: records that an earlier try has planned would be in
    no window."""
    start, end = plan.time or ("", "")
    now = f"{rfc3339(interval[0])} to {rfc3339(interval[1])}" if interval else "no interval"
    return BoundaryConflict(
        f"the interval of this task has changed since an earlier try of it planned window "
        f"{plan.window_id}, which was never published",
        [f"planned: {start} to {end}", f"asked for now: {now}"],
        [
            f"set start={start!r} and end={end!r} until this run is done",
            "if that window is not wanted, start a new run, or delete 'plan' in the task's state",
        ],
    )
