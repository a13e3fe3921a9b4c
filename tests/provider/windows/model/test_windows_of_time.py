"""Mistakes that the model plants in windows of time, planted in the real run, its planner and book:
the shortest history on which the model breaks a promise breaks it here too, and the run as shipped
keeps it.

The model takes finer actions than the real run where boundaries are fixed, so these histories are
written out by hand; `TimeHistory.finish` judges where they end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import pytest

from tests.provider.windows.changing_worlds import OfHours, Steps, TimeHistory
from tests.provider.windows.exploration import MakeRun, ViolationError
from tests.provider.windows.test_changing_worlds import JoinsTwice, NoCeiling
from tests.provider.windows.world import ENTRY
from tubemq_provider.windows.errors import StoreConflict
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.planning.boundary_book import ScopeBook
from tubemq_provider.windows.planning.instants import Resolved
from tubemq_provider.windows.planning.published import WindowEdge
from tubemq_provider.windows.protocols import Document
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.standalone_run import StandaloneRun

Play = Callable[["Script"], None]


class Script(TimeHistory):
    """A history that is written out: nothing in it is left to chance."""

    def __init__(self, planner: type[OfHours], make_run: MakeRun) -> None:
        super().__init__(0, planner, make_run)
        self.topic.partitions = ["1:0"]
        self.now = 4
        self.meanwhile: Callable[[], None] | None = None

    def _interrupt(self) -> None:
        if self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            act()

    def record(self, hour: int, key: str = "1:0") -> None:
        self.topic.append(key)
        broker = 2 if key.startswith("2") else 1
        self.hours[key, (len(self.topic.entries[broker, 0]) - 1) * ENTRY] = hour

    def begin(self, hour: int) -> Steps:
        return self._begin(hour, hour + 1)

    def until(self, steps: Steps, step: str, point: str) -> None:
        while (reached := next(steps)) != (step, point):
            assert reached is not None

    def end(self, steps: Steps) -> None:
        """Take all steps that are left; a run may refuse to publish what it planned."""
        try:
            for _ in steps:
                pass
        except StoreConflict:
            pass
        self.live.remove(steps)

    def finish(self) -> None:
        """Check that windows meet, then as `TimeHistory`."""
        plans = {plan.time: plan for plan in self.sink.plans() if plan.time is not None}
        for (_, end), plan in plans.items():
            for (start, _), later in plans.items():
                if start == end and later.bases != plan.ends:
                    raise ViolationError(f"{plan.ends} and {later.bases} at {end}")
        super().finish()


def _late_record_between_two_runs(script: Script) -> None:
    script.record(0)
    first = script.begin(0)
    script.until(first, "publish", "intervals compared")
    script.record(0)
    second = script.begin(1)
    script.until(second, "publish", "intervals compared")
    script.end(first)
    script.end(second)


def _late_record_before_an_earlier_hour(script: Script) -> None:
    script.record(0)
    script.end(script.begin(2))
    script.record(0)


def _another_run_fixes_first(script: Script) -> None:
    script.record(0)

    def meanwhile() -> None:
        script.record(0)
        script.end(script.begin(0))

    script.meanwhile = meanwhile
    script.end(script.begin(2))


def _boundary_lost_while_reading(script: Script) -> None:
    script.record(0)
    first = script.begin(0)
    script.until(first, "ingest", "records written")
    script.book.fixed.clear()
    script.record(0)
    script.end(script.begin(1))
    script.end(first)


def _partition_joins_behind_a_fixed_hour(script: Script) -> None:
    script.record(0)
    script.end(script.begin(2))
    script.topic.partitions.append("2:0")
    script.record(0, "2:0")
    script.end(script.begin(0))


class NotFixed(ScopeBook):
    """Each run resolves its boundaries itself."""

    def fix(
        self, instant: datetime, name: str, resolve: Callable[[], Resolved], **rest: Any
    ) -> dict[str, int]:
        return dict(resolve().offsets)

    def refuse_disorder(self, start: datetime, end: datetime) -> None:
        """Nothing is fixed that could be out of order."""

    def keep(self, instant: datetime, edge: WindowEdge) -> None:
        """Nothing is fixed that could be another boundary."""


class NoTurns(ScopeBook):
    """A boundary is fixed though others were fixed since it was fitted."""

    def _take_turn(self, instant: datetime, document: Document) -> bool:
        self._read[instant] = self._book.fix(self._key(instant), document)
        self._forget_listing()
        return True


class NotKept(StandaloneRun):
    def _refuse_if_overtaken(self, plan: WindowPlan) -> Iterator[str]:
        yield from ()


def _with_book(book: type[ScopeBook]) -> type[OfHours]:
    return type("Planner", (OfHours,), {"books": book})


HISTORIES: Mapping[str, tuple[Play, type[OfHours], MakeRun]] = {
    "NotFixed": (_late_record_between_two_runs, _with_book(NotFixed), window_run),
    "NotFitted": (_late_record_before_an_earlier_hour, _with_book(NoCeiling), window_run),
    "NoTurns": (_another_run_fixes_first, _with_book(NoTurns), window_run),
    "NotKept": (_boundary_lost_while_reading, OfHours, NotKept),
    "JoinsEverywhere": (_partition_joins_behind_a_fixed_hour, _with_book(JoinsTwice), window_run),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_the_run_as_shipped_keeps_its_promises_on_the_history_of_a_mistake(name: str) -> None:
    play, _, _ = HISTORIES[name]
    script = Script(OfHours, window_run)
    play(script)
    script.finish()


@pytest.mark.parametrize("name", HISTORIES)
def test_a_real_run_with_the_mistake_breaks_a_promise_of_windows_of_time(name: str) -> None:
    play, planner, make_run = HISTORIES[name]
    script = Script(planner, make_run)
    play(script)
    with pytest.raises(ViolationError):
        script.finish()
