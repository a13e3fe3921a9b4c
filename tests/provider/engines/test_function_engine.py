"""Windows read by a function: done once, counted, and the same window on a retry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.provider.windows.fake_reader import (
    KEYS,
    TOPIC,
    FakeBatch,
    FakeReader,
    ends_of,
    expected,
    open_fake,
)
from tubemq_client import Gap
from tubemq_client.errors import ConfigError
from tubemq_client.model import OffsetRange
from tubemq_provider.engines.function import (
    FunctionEngine,
    PlannedWindow,
    ReportedEngine,
    reported,
)
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.read import published_windows
from tubemq_provider.windows.errors import CountMismatch, MarkerConflict, WindowError
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.protocols import Engine
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.run.steps import WindowRun

ENDS = dict.fromkeys(KEYS, 28 * 20)


class Tasks:
    """Markers in a directory, progress in memory."""

    def __init__(self, root: Path) -> None:
        self.sink = sink_for(f"markers:{root / 'done'}")
        self.journal = MemoryJournal()

    def planned(self) -> WindowPlan:
        """Return the output of a task that only plans."""
        plan, marker = self.window_run(calling(lambda _: None), "plan", ENDS).planned()
        assert plan is not None
        assert marker is None
        return plan

    def run(self, engine: Engine, name: str = "one", ends: dict[str, int] = ENDS) -> WindowResult:
        return self.window_run(engine, name, ends).run()

    def window_run(self, engine: Engine, name: str, ends: dict[str, int]) -> WindowRun:
        scope = WindowScope("c1", TOPIC, "g1", self.sink.identity)
        planner = CursorPlanner(scope, lambda: ends_of(ends), initial_position="earliest")
        store = MemoryOffsetStore(self.journal, task=name)
        return window_run(planner, store, self.sink, engine, attempt=name)


@pytest.fixture
def tasks(tmp_path: Path) -> Tasks:
    return Tasks(tmp_path)


def calling(function: Callable[[PlannedWindow], Any]) -> FunctionEngine:
    return FunctionEngine(function, open_fake)


def bodies(window: PlannedWindow, into: list[bytes]) -> None:
    for batch in window.batches():
        into += batch.column("value").to_pylist()


def test_a_function_gets_each_record_once_and_the_window_is_done(tasks: Tasks) -> None:
    seen: list[bytes] = []
    done = tasks.run(calling(lambda window: bodies(window, seen)))
    assert sorted(seen) == expected(ENDS)
    assert (done.total, done.engine, done.sink_kind) == (len(seen), "function", "markers")
    assert [m.plan.window_id for m in published_windows(tasks.sink)] == [done.window_id]
    assert tasks.run(calling(lambda window: bodies(window, seen)), "two").empty
    assert tasks.run(calling(lambda window: bodies(window, seen)), "one").replayed
    assert len(seen) == done.total


def test_a_function_that_fails_gets_the_same_window_again_although_more_has_come(
    tasks: Tasks,
) -> None:
    tried: list[tuple[str, dict[str, tuple[int, int]]]] = []

    def fails_at_first(window: PlannedWindow) -> None:
        tried.append((window.window_id, dict(window.ranges)))
        for _ in window.batches():
            if len(tried) == 1:
                raise OSError("the database is down")

    with pytest.raises(OSError, match="database"):
        tasks.run(calling(fails_at_first))
    more = dict.fromkeys(KEYS, 28 * 40)
    assert tasks.run(calling(fails_at_first), ends=more).total == len(expected(ENDS))
    assert tried[0] == tried[1]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda window: None, "has not read 1:0, 1:1"),
        (lambda window: next(window.batches()), "has not read"),
        (lambda window: [list(window.batches()), list(window.batches())], "read it twice"),
        (lambda window: [next(window.batches()), list(window.batches())], "read it twice"),
        (lambda window: {"1:0": 1_000}, "1:0 has 1000 records, but at most 20 fit"),
        (lambda window: {"7:0": 1}, "7:0 is not in the plan"),
    ],
)
def test_a_partly_read_window_is_not_done(
    function: Callable[[PlannedWindow], Any], said: str, tasks: Tasks
) -> None:
    with pytest.raises(CountMismatch, match=said):
        tasks.run(calling(function))
    assert list(tasks.sink.window_ids()) == []


class Lossy(FakeReader):
    """Reader that has lost the first five entries of 1:0 to retention, with a bad record in each
    partition."""

    def read(self, range_: OffsetRange) -> Iterator[FakeBatch]:
        self.stats.corrupt += 1
        if range_.partition.key == "1:0":
            self.stats.gaps.append(Gap(range_.partition, 0, 5 * 28))
        yield from list(super().read(range_))[1:]


def reads_and_counts(window: PlannedWindow) -> dict[str, int]:
    return Counter(
        message for batch in window.batches() for message in batch["partition"].to_pylist()
    )


def reads_twice(window: PlannedWindow) -> dict[str, int]:
    next(window.batches())
    return reads_and_counts(window)


@pytest.mark.parametrize("function", [reads_and_counts, reads_twice, lambda w: [*w.batches()]])
def test_losses_of_a_function_are_counted_whether_it_returns_counts_or_not(
    function: Callable[[PlannedWindow], Any], tasks: Tasks
) -> None:
    done = tasks.run(FunctionEngine(function, lambda _: nullcontext(Lossy())))
    assert (done.gaps, done.corrupt) == ({"1:0": [[0, 5 * 28]]}, len(KEYS))


def test_a_function_that_reads_elsewhere_has_lost_nothing_here(tasks: Tasks) -> None:
    done = tasks.run(FunctionEngine(lambda _: {"1:0": 3}, lambda _: nullcontext(Lossy())))
    assert (done.total, done.gaps, done.corrupt) == (3, {}, 0)


def test_counts_of_another_task_are_accepted(tasks: Tasks) -> None:
    with pytest.raises(MarkerConflict, match="of another window"):
        tasks.run(ReportedEngine("f" * 64, {"1:0": 1}))
    plan = tasks.planned()
    done = tasks.run(ReportedEngine(plan.hash, {"1:0": 10, "2:1": 10}, 99))
    assert (done.total, done.records["1:1"], done.bytes) == (20, 0, 99)


def test_counts_are_whole_numbers_in_every_notation() -> None:
    scope = WindowScope("c1", TOPIC, "g1", "memory:test")
    plan = WindowPlan.cursor(scope, 1, {"1:0": (0, 2_800), "2:1": (0, 2_800)})
    for count in (100, "100", 100.0, Decimal(100)):
        assert reported(plan, {"1:0": count}).records == {"1:0": 100, "2:1": 0}
    for count in (None, "ten", "", float("nan"), float("inf"), 99.9, [1], {}):
        with pytest.raises(ConfigError, match=r"partition 2:1: .* is not a whole number"):
            reported(plan, {"1:0": 1, "2:1": count})


def test_a_killed_function_stops_at_its_next_batch(tasks: Tasks) -> None:
    engine = calling(lambda window: [engine.cancel(), list(window.batches())])
    with pytest.raises(WindowError, match="cancelled"):
        tasks.run(engine)
