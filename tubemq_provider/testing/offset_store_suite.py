"""Contract of every `OffsetStore`: what the built-in ones pass.

    class TestMyStore(OffsetStoreSuite):
        def make(self, tmp_path, task):
            return MyStore(tmp_path, task=task)

Tries of one task share its task plan; all tasks share the rest. A store of events alone inherits
from `EventSuite`, one whose cursor changes by compare-and-set from `ClaimStoreSuite`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tubemq_provider.testing.memory import SPACE, World
from tubemq_provider.windows.errors import StoreConflict
from tubemq_provider.windows.protocols import ClaimStore, Document, OffsetStore
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.run.steps import WindowRun

__all__ = [
    "BIG",
    "ClaimStoreSuite",
    "EventSuite",
    "OffsetStoreSuite",
    "OpenTry",
    "RunWorld",
    "event",
]

OpenTry = Callable[[str], OffsetStore]
"""Opens the store as a try of the named task sees it; tries of one task share its task plan."""

BIG = 2**62 // SPACE.step * SPACE.step
"""An offset beyond what a float can hold."""


def event(seq: int | None) -> Document:
    """Return a commit event, without a position for None."""
    document: Document = {"v": 1, "window_id": f"c-{seq}-0123456789"}
    if seq is not None:
        document["position"] = {"h": "0123456789", "seq": seq, "next": {"1:0": BIG}}
    return document


class RunWorld(World):
    """A world whose runs keep their progress in the store under test."""

    def __init__(self, open_try: OpenTry) -> None:
        super().__init__()
        self.open_try = open_try

    def over(self, store: OffsetStore, **options: Any) -> WindowRun:
        """Return a run that keeps its progress in `store`."""
        self.runs += 1
        return window_run(
            self.planner(**options), store, self.sink, self.engine, attempt=f"try-{self.runs}"
        )


class EventSuite:
    """Contract of stores that keep commit events only, and of all others.

    `finish_task` makes emitted events of a finished task visible; `wipe` is Airflow's clean-up of
    asset state, where there is such a thing.
    """

    def make(self, tmp_path: Path, task: str) -> OffsetStore:
        """Open the store as a try of the task named `task` does."""
        raise NotImplementedError

    @pytest.fixture
    def open_try(self, tmp_path: Path) -> OpenTry:
        """Return a function that opens the store for a task."""
        return lambda task: self.make(tmp_path, task)

    @pytest.fixture
    def world(self, open_try: OpenTry) -> RunWorld:
        """Return runs over a log of five records."""
        world = RunWorld(open_try)
        world.log.append("1:0", 3)
        world.log.append("2:0", 2)
        return world

    def finish_task(self, store: OffsetStore) -> None:
        """Let the task of `store` succeed."""

    def wipe(self) -> None:
        """Remove what Airflow's clean-up of asset state removes."""

    def finish(self, world: RunWorld, task: str) -> WindowResult:
        """Run a new task to its success."""
        store = world.open_try(task)
        result = world.over(store).run()
        self.finish_task(store)
        return result

    def test_windows_follow_each_other_and_are_read_once(self, world: RunWorld) -> None:
        first = self.finish(world, "a")
        empty = self.finish(world, "b")
        world.log.append("1:1", 2)
        second = self.finish(world, "c")
        assert (first.total, empty.empty, second.total) == (5, True, 2)
        assert set(world.sink.windows) == {world.id(1), world.id(2)}
        assert world.sink.records() == Counter(world.log.all_records())

    def test_a_replay_never_rewinds(self, world: RunWorld) -> None:
        for task in ("a", "b"):
            self.finish(world, task)
            world.log.append("1:0")
        again = world.open_try("a")
        world.over(again).run()
        self.finish_task(again)
        self.finish(world, "c")
        assert world.sink.records() == Counter(world.log.all_records())

    def test_a_wipe_loses_and_repeats_nothing(self, world: RunWorld) -> None:
        self.finish(world, "a")
        world.log.append("1:1", 4)
        self.wipe()
        assert self.finish(world, "b").total == 4
        assert world.sink.records() == Counter(world.log.all_records())

    def test_two_planners_at_once_never_make_two_windows_of_one_id(self, world: RunWorld) -> None:
        """Stopped at every point, the second run sees more of the log than the first."""
        for stop in range(1, 12):
            one, two = world.open_try(f"one-{stop}"), world.open_try(f"two-{stop}")
            steps = world.over(one).steps()
            for _ in range(stop):
                next(steps, None)
            world.log.append("1:0", 2)
            world.over(two).run()
            self.finish_task(two)
            for _ in steps:
                pass
            self.finish_task(one)
        self.finish(world, "last")
        assert world.sink.records() == Counter(world.log.all_records())

    def test_the_newest_event_with_a_position_is_found(self, open_try: OpenTry) -> None:
        for seq in (1, 2, None, None):
            store = open_try(f"task-{seq}")
            store.emit(event(seq))
            self.finish_task(store)
        assert open_try("z").newest_position() == event(2)

    def test_a_position_is_found_behind_many_events_without_one(self, open_try: OpenTry) -> None:
        store = open_try("a")
        store.emit(event(7))
        self.finish_task(store)
        for number in range(60):
            later = open_try(f"time-{number}")
            later.emit(event(None))
            self.finish_task(later)
        assert open_try("z").newest_position() == event(7)

    @pytest.mark.parametrize("value", [1.5, float("nan"), b"x"])
    def test_values_that_some_store_would_change_are_refused(
        self, open_try: OpenTry, value: object
    ) -> None:
        store = open_try("a")
        with pytest.raises(TypeError):
            store.store_cursor({"nested": [value]})
        assert store.load_cursor() is None

    def test_the_writer_is_named(self, open_try: OpenTry) -> None:
        assert open_try("a").writer


class OffsetStoreSuite(EventSuite):
    """Contract of stores that also keep cursor, plans and task plans."""

    def test_an_empty_store_knows_nothing(self, open_try: OpenTry) -> None:
        store = open_try("a")
        assert isinstance(store, OffsetStore)
        assert store.load_cursor() is None
        assert store.load_plan("c-1-0123456789") is None
        assert store.load_task_plan() is None
        assert store.newest_position() is None

    def test_documents_come_back_unchanged(self, open_try: OpenTry) -> None:
        document: Document = {"v": 1, "next": {"1:0": BIG, "2:10002": 0}, "by": "ä|b", "list": [1]}
        open_try("a").store_cursor(document)
        open_try("a").store_plan("c-1-0123456789", document)
        open_try("a").store_task_plan(document)
        again = open_try("a")
        assert again.load_cursor() == document
        assert again.load_plan("c-1-0123456789") == document
        assert again.load_task_plan() == document

    def test_the_last_write_stays(self, open_try: OpenTry) -> None:
        one, two = open_try("a"), open_try("b")
        one.store_cursor({"seq": 1})
        two.store_cursor({"seq": 2})
        assert one.load_cursor() == {"seq": 2}
        one.store_plan("w", {"seq": 1})
        two.store_plan("w", {"seq": 2})
        assert one.load_plan("w") == {"seq": 2}

    def test_a_task_plan_is_seen_by_tries_of_the_same_task_only(self, open_try: OpenTry) -> None:
        open_try("a").store_task_plan({"seq": 1})
        assert open_try("b").load_task_plan() is None
        assert open_try("a").load_task_plan() == {"seq": 1}

    def test_a_forgotten_plan_is_gone_and_others_stay(self, open_try: OpenTry) -> None:
        store = open_try("a")
        store.store_plan("c-1-0123456789", {"seq": 1})
        store.store_plan("c-2-0123456789", {"seq": 2})
        store.forget_plan("c-1-0123456789")
        store.forget_plan("never-there")
        assert store.load_plan("c-1-0123456789") is None
        assert store.load_plan("c-2-0123456789") == {"seq": 2}

    def test_documents_of_thousands_of_partitions_come_back(self, open_try: OpenTry) -> None:
        def document(base: int) -> Document:
            ranges = {f"{n % 7}:{n}": [base + n, base + n + SPACE.step] for n in range(5000)}
            return {"v": 1, "ranges": ranges}

        store = open_try("a")
        for base in (BIG, BIG - 28_000):
            store.load_cursor()
            store.store_cursor(document(base))
            store.store_plan("c-1-0123456789", document(base))
            store.store_task_plan(document(base))
            again = open_try("a")
            assert again.load_cursor() == document(base)
            assert again.load_plan("c-1-0123456789") == document(base)
            assert again.load_task_plan() == document(base)
        store.forget_plan("c-1-0123456789")
        assert open_try("a").load_plan("c-1-0123456789") is None


class ClaimStoreSuite(OffsetStoreSuite):
    """Contract of stores whose cursor changes by compare-and-set."""

    def test_a_write_that_comes_too_late_changes_nothing(self, open_try: OpenTry) -> None:
        one, two = open_try("a"), open_try("b")
        assert one.load_cursor() is None
        assert two.load_cursor() is None
        one.store_cursor({"seq": 1})
        with pytest.raises(StoreConflict):
            two.store_cursor({"seq": 2})
        assert two.load_cursor() == {"seq": 1}
        two.store_cursor({"seq": 2})
        assert one.load_cursor() == {"seq": 2}

    def test_of_two_plans_of_a_window_the_first_stays(self, open_try: OpenTry) -> None:
        one, two = open_try("a"), open_try("b")
        for store in (one, two):
            assert store.load_plan("w") is None
        one.store_plan("w", {"seq": 1})
        two.store_plan("w", {"seq": 2})
        assert one.load_plan("w") == two.load_plan("w") == {"seq": 1}
        one.forget_plan("w")
        open_try("c").store_plan("w", {"seq": 3})
        assert one.load_plan("w") == {"seq": 3}

    def test_a_change_is_applied_to_what_is_there(self, open_try: OpenTry) -> None:
        one, two = open_try("a"), open_try("b")
        assert isinstance(one, ClaimStore)
        asked = []

        def add(document: Document | None) -> Document | None:
            asked.append(document)
            if len(asked) == 1:
                two.store_cursor({"n": 10})
            return {"n": (document or {"n": 0})["n"] + 1}

        assert one.change_cursor(add) == {"n": 11}
        assert asked == [None, {"n": 10}]
        assert one.change_cursor(lambda _: None) == {"n": 11}

    def test_runs_side_by_side_take_different_windows(self, world: RunWorld) -> None:
        results = []
        first = world.open_try("a")
        steps = world.over(first).steps()
        for step in steps:
            if step.point == "task plan stored":
                break
        for task in ("b", "c"):
            world.log.append("1:1", 2)
            results.append(self.finish(world, task))
        assert [result.total for result in results] == [2, 2]
        assert [result.position.seq for result in results if result.position] == [0, 0]
        for _ in steps:
            pass
        self.finish_task(first)
        assert set(world.sink.windows) == {world.id(1), world.id(2), world.id(3)}
        assert world.sink.records() == Counter(world.log.all_records())
        assert self.finish(world, "d").position.seq == 3  # type: ignore[union-attr]
