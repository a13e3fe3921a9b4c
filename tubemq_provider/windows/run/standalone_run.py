"""A window that depends on no other, of time or of explicit offsets: `WindowRun` without a cursor.

What it may not do is reach into a window that is published, or store what the group's cursor has
stored. This module must not import airflow, pyspark or pyarrow.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar

from tubemq_provider.windows.canonical import rfc3339
from tubemq_provider.windows.cursor import earlier_life, past_epochs
from tubemq_provider.windows.errors import (
    BoundaryConflict,
    IdentityMismatch,
    IntervalMissing,
    SinkHistoryLost,
)
from tubemq_provider.windows.plan import WindowKind, WindowPlan, WindowScope
from tubemq_provider.windows.planning.overlaps import (
    missing_beside,
    missing_text,
    refuse_overlaps,
)
from tubemq_provider.windows.planning.published import PublishedWindows
from tubemq_provider.windows.planning.scopes import refuse_other_scopes, refuse_stored, scope_in
from tubemq_provider.windows.planning.standalone_planner import StandalonePlanner
from tubemq_provider.windows.policies import OnMissingInterval, OnOtherScope
from tubemq_provider.windows.protocols import PlacedSink, RestorableSink
from tubemq_provider.windows.run._progress import (
    appended_before,
    other_ranges,
    time_windows_lost,
)
from tubemq_provider.windows.run.epochs import recent_events, stored_life
from tubemq_provider.windows.run.steps import WindowRun

__all__ = ["StandaloneRun"]


class StandaloneRun(WindowRun):
    """One try to bring one window that stands alone into a sink. Use it once."""

    _planner: StandalonePlanner
    _chained: ClassVar[bool] = False

    @cached_property
    def _compared(self) -> set[str]:
        """Windows that this run has been compared with."""
        return set()

    @cached_property
    def _published(self) -> PublishedWindows:
        """The windows that the sink had when this run first asked, or last."""
        return PublishedWindows(self._sink, self._scope)

    def _begun(self) -> bool:
        """Windows of time have boundaries as well."""
        return self._planner.has_neighbour() or super()._begun()

    # -- 1 load, 2 plan -----------------------------------------------------------------------

    def _load(self) -> Iterator[str]:
        """There is no position; but an epoch may have ended, or have been told where to begin."""
        self._planner.compare(self._published)
        cursor = self._store.load_cursor()
        yield "cursor read"
        life = stored_life(self._store, cursor, chained=False)
        yield "events read"
        if life is not None:
            self._follow(life)
        yield from self._refuse_lost_sink()
        yield from self._look_for_accepted()

    def _follow(self, life: Mapping[str, Any]) -> None:
        """Learn from what says which epoch is the present one. Raises `IdentityMismatch` if this
        window's has ended. It ends others itself where windows of time are all that the group has:
        not that of a cursor, which goes on beside them, nor does a window of explicit offsets."""
        earlier = earlier_life(life, self._scope)
        self._now.past = past_epochs(life)
        if earlier is None:
            return
        self._planner.begin_life(earlier)
        if self._planner.kind is WindowKind.TIME and "next" not in life and "position" not in life:
            self._now.past = earlier.past

    def _refuse_lost_sink(self) -> Iterator[str]:
        """Windows go where those before them went, and not on the disk below a mount. Asked before
        planning, which fixes boundaries there. Only events tell that there were windows."""
        if not isinstance(self._sink, PlacedSink):
            return
        lost = self._sink.missing()
        yield "place looked at"
        if lost is None:
            return
        for event in recent_events(self._store):
            window_id = str(event.get("window_id", ""))
            if scope_in(window_id) == self._scope.scope_hash:
                raise SinkHistoryLost(f"window {window_id} was written before, but {lost}")

    def _look_for_accepted(self) -> Iterator[str]:
        """Look for the window of time that was accepted last. Raise `SinkHistoryLost` if the sink
        has none of the scope any more, unless a person asks for the window again; warn if it has
        lost that one, which its own task writes again, and coverage shows as missing."""
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
        if marker is not None and isinstance(self._sink, RestorableSink):
            marker = marker if self._sink.holds(marker) else None
            yield "history of sink read"
        if marker is not None:
            return
        left = self._scope.scope_hash in {*map(scope_in, self._published.ids)}
        yield "windows of the scope listed"
        if not left and not self._cleared:
            raise time_windows_lost(self._scope, newest, self._sink.identity)
        if not again:
            self._now.warnings.append(
                f"window {newest} was accepted and is not in {self._sink.identity} any more. If it "
                f"was not removed on purpose, clear its task: it reads the same offsets again. "
                f"'airflow tubemq windows coverage --sink …' shows which windows are missing"
            )

    def _accepted_meanwhile(self, plan: WindowPlan) -> WindowPlan | None:
        """The plan of this very window as another run published it since windows were listed, if it
        has other offsets than `plan`. Raises `SinkHistoryLost` where the sink has lost it: `plan`
        would write other offsets in its place, as boundaries that were lost with it mean something
        else."""
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
        """As ever, once what is asked for is known not to contradict what is fixed."""
        self._planner.confirm()
        yield "confirmed"
        yield from super()._plan()

    def _window_id(self) -> str | None:
        return self._planner.window_id

    def _refuse_edited(self, plan: WindowPlan | None) -> None:
        """Asked of retries only: a person may want the same window in another place, and Dagster's
        runs of one partition share its plan."""
        if self._retried:
            super()._refuse_edited(plan)

    def _ours(self, plan: WindowPlan) -> bool:
        """Whether a task plan is for what is asked now (a cleared task may have new options)."""
        if plan.scope_hash != self._scope.scope_hash:
            if self._retried:
                raise _begun_elsewhere(plan, self._scope)
            return False
        wanted = self._planner.window_id
        if wanted is None:
            return plan.kind is WindowKind.EXPLICIT and self._planner.stands(plan)
        if plan.window_id == wanted:
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
        """As ever, by the listing that this run has."""
        if self._planner.policies.on_other_scope is OnOtherScope.FAIL:
            yield from refuse_other_scopes(self._published, self._scope, cursor=False)

    def _refuse_stored(self, plan: WindowPlan) -> Iterator[str]:
        """What other windows of the group have stored is not stored again."""
        if self._planner.policies.on_other_scope is OnOtherScope.FAIL:
            yield from refuse_stored(self._published, self._scope, plan, self._compared)

    def _refuse_overlaps(self) -> Iterator[str]:
        """A time window that reaches into published ones would store their records again."""
        if interval := self._planner.interval:
            ids = self._published.ids
            refuse_overlaps(ids, interval, self._scope.scope_hash)
            self._now.missing = tuple(missing_beside(ids, interval, self._scope.scope_hash))
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
        """A try that slept for long, or goes on with a plan that was stored, may find that others
        have published over it: another interval, a cursor, another group."""
        if self._now.replacing is None:
            self._planner.keep_boundaries(plan)
            yield "boundaries looked at again"
            self._published = self._published.again()
            self._planner.compare(self._published)
            # In one step, as they share a listing: what comes after it is not seen.
            for check in (self._refuse_other_scopes(), self._refuse_stored(plan)):
                for _ in check:
                    pass
            self._planner.refuse_overtaken(plan)
            yield from self._refuse_overlaps()

    def _commit(self) -> Iterator[str]:
        """As ever, with a warning of time that lies in no window beside this one: also where the
        try that published it was killed before it could say so."""
        if self._now.replayed and (interval := self._planner.interval):
            ids = self._published.ids
            self._now.missing = tuple(missing_beside(ids, interval, self._scope.scope_hash))
            yield "intervals looked at again"
        if self._now.missing and (interval := self._planner.interval):
            self._now.warnings.append(missing_text(self._now.missing, interval))
        yield from super()._commit()

    # -- 6 advance ----------------------------------------------------------------------------

    def _advance(self) -> Iterator[str]:
        """No cursor to move. The marker has the plan; one key per interval would pile up."""
        if self._now.plan is not None:
            self._store.forget_plan(self._now.plan.window_id)
            yield "plan forgotten"


def _begun_elsewhere(plan: WindowPlan, scope: WindowScope) -> IdentityMismatch:
    """An earlier try may have published its window where this one does not look."""
    names = ("cluster", "topic", "group", "filters", "epoch")
    changed = [
        f"{name} {getattr(plan, name)!r}, now {getattr(scope, name)!r}"
        for name in names
        if getattr(plan, name) != getattr(scope, name)
    ]
    return IdentityMismatch(
        f"an earlier try of this task planned window {plan.window_id} for another "
        f"{'scope: ' + '; '.join(changed) if changed else f'sink than {scope.sink}'}, and may have "
        f"published it there. Set the arguments back, so that this run ends as it began and new "
        f"runs have the new ones; or clear the task, which begins it with the new arguments and "
        f"leaves what was published"
    )


def _interval_changed(
    plan: WindowPlan, interval: tuple[datetime, datetime] | None
) -> BoundaryConflict:
    """What an earlier try has planned would be in no window."""
    start, end = plan.time or ("", "")
    now = f"{rfc3339(interval[0])} to {rfc3339(interval[1])}" if interval else "no interval"
    return BoundaryConflict(
        f"the interval of this task has changed since an earlier try of it planned window "
        f"{plan.window_id}, which nobody has published",
        [f"planned: {start} to {end}", f"asked for now: {now}"],
        [
            f"set start={start!r} and end={end!r} until this run is done",
            "if that window is not wanted, start a new run, or delete 'plan' in the task's state",
        ],
    )
