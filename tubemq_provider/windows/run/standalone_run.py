"""A window that depends on no other, of time or of explicit offsets: `WindowRun` without a cursor.

What it may not do is reach into a window that is published, or store what the group's cursor has
stored. This module must not import airflow, pyspark or pyarrow.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar

from tubemq_provider.windows.cursor import earlier_life, past_epochs
from tubemq_provider.windows.errors import SinkHistoryLost
from tubemq_provider.windows.plan import WindowKind, WindowPlan
from tubemq_provider.windows.planning.overlaps import refuse_overlaps
from tubemq_provider.windows.planning.published import PublishedWindows
from tubemq_provider.windows.planning.scopes import refuse_other_scopes, refuse_stored, scope_in
from tubemq_provider.windows.planning.standalone_planner import StandalonePlanner
from tubemq_provider.windows.policies import OnOtherScope
from tubemq_provider.windows.protocols import PlacedSink
from tubemq_provider.windows.run._progress import appended_before
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

    def _plan(self) -> Iterator[str]:
        """As ever, once what is asked for is known not to contradict what is fixed."""
        self._planner.confirm()
        yield "confirmed"
        yield from super()._plan()

    def _window_id(self) -> str | None:
        return self._planner.window_id

    def _ours(self, plan: WindowPlan) -> bool:
        """Whether a task plan is for what is asked now (a cleared task may have new options)."""
        if plan.scope_hash != self._scope.scope_hash:
            return False
        wanted = self._planner.window_id
        if wanted is None:
            return plan.kind is WindowKind.EXPLICIT and self._planner.stands(plan)
        return plan.window_id == wanted

    def _still_there(self, plan: WindowPlan) -> bool:
        return self._planner.stands(plan)

    def _created(self) -> Generator[str, None, WindowPlan | None]:
        if not self._planner.has_neighbour():
            yield from self._refuse_other_scopes()
        yield from self._refuse_overlaps()
        created = self._planner.plan()
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
            refuse_overlaps(self._published.ids, interval, self._scope.scope_hash)
            yield "intervals compared"

    # -- 3 check marker, 5 publish ------------------------------------------------------------

    def _refuse_unmarked(self, plan: WindowPlan) -> None:
        if self._cleared and not self._sink.exactly_once:
            raise appended_before(plan, self._sink.kind)

    def _refuse_if_overtaken(self, plan: WindowPlan) -> Iterator[str]:
        """A try that slept for long, or goes on with a plan that was stored, may find that others
        have published over it: another interval, a cursor, another group."""
        if self._now.replacing is None:
            self._published = self._published.again()
            self._planner.compare(self._published)
            # In one step, as they share a listing: what comes after it is not seen.
            for check in (self._refuse_other_scopes(), self._refuse_stored(plan)):
                for _ in check:
                    pass
            yield from self._refuse_overlaps()
            self._planner.keep_boundaries(plan)

    # -- 6 advance ----------------------------------------------------------------------------

    def _advance(self) -> Iterator[str]:
        """No cursor to move. The marker has the plan; one key per interval would pile up."""
        if self._now.plan is not None:
            self._store.forget_plan(self._now.plan.window_id)
            yield "plan forgotten"
