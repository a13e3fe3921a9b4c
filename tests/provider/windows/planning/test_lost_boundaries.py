"""Lost boundaries are restored from published windows, or refused; nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.provider.windows.planning.test_boundary_book import (
    TEN,
    Clocked,
    at,
    once,
    planner,
    scope_book,
    window,
)
from tests.provider.windows.world import ENTRY, World, keeping_boundaries, memory_world
from tubemq_provider.ingest.maintenance import check_untouched
from tubemq_provider.offsets.memory import MemoryOffsetStore
from tubemq_provider.sinks.markers import MarkerSink
from tubemq_provider.windows.canonical import basic_instant, parse_instant, rfc3339
from tubemq_provider.windows.errors import BoundaryConflict, MarkerConflict, StoreConflict
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.boundary_book import ScopeBook
from tubemq_provider.windows.planning.instants import Resolved
from tubemq_provider.windows.planning.published import PublishedWindows
from tubemq_provider.windows.protocols import Document, IngestCounts
from tubemq_provider.windows.run.kinds import window_run

LATE = Clocked(p1_0=dict.fromkeys(range(8), 31 * ENTRY))
"""A late record has come: every instant is behind it now."""

world = memory_world({"1:0": 31}, sink=keeping_boundaries, alone=True)


def fixed(world: World) -> dict[str, Document]:
    assert world.sink.boundary_book is not None
    return world.sink.boundary_book.fixed


def unfix(world: World, error: BoundaryConflict) -> None:
    """Run the command that the error names, to the letter."""
    (instant,) = re.findall(
        r"offsets unfix c1/orders/g1 --sink SINK --instant ([^' ]+)'", str(error)
    )
    book = scope_book(world)
    check_untouched(world.sink, world.scope, book, parse_instant(instant), [], option="--ended")
    book.withdraw(parse_instant(instant))


def all_of_them(documents: dict[str, Document]) -> None:
    documents.clear()


def all_but_turns(documents: dict[str, Document]) -> None:
    for key in [key for key in documents if not key.startswith("turn")]:
        del documents[key]


def all_but_the_last_turn(documents: dict[str, Document]) -> None:
    for key in sorted(documents)[:-1]:
        del documents[key]


def the_shared_one(documents: dict[str, Document]) -> None:
    for key in [key for key in documents if key.startswith("20261121T120000Z")]:
        del documents[key]


LOSSES = [all_of_them, all_but_turns, all_but_the_last_turn, the_shared_one]


@pytest.mark.parametrize("lose", LOSSES)
def test_the_next_window_begins_where_the_one_before_ends(
    world: World, lose: Callable[[dict[str, Document]], None]
) -> None:
    window(world, 0, 2, Clocked(p1_0={0: 0, 2: 20 * ENTRY}))
    lose(fixed(world))
    assert window(world, 2, 4, LATE).ranges == {"1:0": (560, 868)}
    assert once(world)


@pytest.mark.parametrize("lose", LOSSES)
def test_a_window_before_ends_where_the_next_one_begins(
    world: World, lose: Callable[[dict[str, Document]], None]
) -> None:
    window(world, 2, 4, Clocked(p1_0={2: 20 * ENTRY, 4: 31 * ENTRY}))
    lose(fixed(world))
    early = Clocked(p1_0={0: 0, 2: 5 * ENTRY})
    assert window(world, 0, 2, early).ranges == {"1:0": (0, 560)}
    assert once(world)


def test_windows_that_do_not_touch_bound_what_is_fixed_between_them(world: World) -> None:
    window(world, 0, 1, Clocked(p1_0={0: 0, 1: 10 * ENTRY}))
    window(world, 4, 5, Clocked(p1_0={4: 20 * ENTRY, 5: 31 * ENTRY}))
    fixed(world).clear()
    window(world, 2, 3, Clocked(p1_0={2: 5 * ENTRY, 3: 31 * ENTRY}))
    window(world, 3, 4, LATE)
    window(world, 1, 2, LATE)
    assert once(world)


def test_a_partition_that_joined_is_told_again_as_one_that_joins(world: World) -> None:
    window(world, 1, 2, Clocked(p1_0={1: 6 * ENTRY, 2: 9 * ENTRY}))
    world.log.append("2:0", 4)
    window(world, 2, 3, Clocked(p1_0={3: 31 * ENTRY}, p2_0={3: 4 * ENTRY}))
    fixed(world).clear()
    older = window(world, 0, 1, Clocked(p1_0={0: 0, 1: 0}, p2_0={0: 28, 1: 28}))
    assert "2:0" not in older.ranges
    assert once(world)


def test_a_clear_of_a_published_window_fixes_no_other_boundaries(world: World) -> None:
    told = Clocked(p1_0={0: 0, 2: 20 * ENTRY})
    store = MemoryOffsetStore(world.journal, task="cleared")
    for attempt in ("a", "b"):
        run = window_run(
            planner(world, 0, 2, told), store, world.sink, world.engine, attempt=attempt
        )
        run.run()
        fixed(world).clear()
        told = LATE
    assert window(world, 2, 4, LATE).ranges == {"1:0": (560, 868)}
    assert once(world)


def test_a_place_that_was_away_for_one_window_and_comes_back(world: World) -> None:
    """Of a table of boundaries, whose windows are elsewhere."""
    window(world, 0, 1, Clocked(p1_0={0: 0, 1: 10 * ENTRY}))
    kept = dict(fixed(world))
    fixed(world).clear()
    window(world, 1, 2, LATE)
    assert world.sink.boundary_book is not None
    world.sink.boundary_book.fixed = kept
    late = Clocked(p1_0={2: 5 * ENTRY, 3: 31 * ENTRY})
    assert window(world, 2, 3, late).empty
    assert once(world)


def test_a_boundary_that_contradicts_a_published_window_is_refused_until_it_is_taken_back(
    world: World,
) -> None:
    """It was fixed by a run that failed, lost, fixed again by one that did not, and is back."""
    window(world, 0, 1, Clocked(p1_0={0: 0, 1: 10 * ENTRY}))
    world.engine.failing = RuntimeError("executor lost")
    with pytest.raises(RuntimeError):
        window(world, 1, 2, Clocked(p1_0={2: 15 * ENTRY}))
    world.engine.failing = None
    world.journal.plans.clear()
    kept = dict(fixed(world))
    fixed(world).clear()
    window(world, 1, 2, Clocked(p1_0={2: 25 * ENTRY}))
    assert world.sink.boundary_book is not None
    world.sink.boundary_book.fixed = kept
    for _ in range(2):
        with pytest.raises(
            BoundaryConflict,
            match=r"1:0: fixed at 420, window t-20261121T110000Z-20261121T120000Z-\w+ has 700",
        ) as caught:
            window(world, 2, 3, LATE)
    unfix(world, caught.value)
    assert window(world, 2, 3, LATE).ranges == {"1:0": (700, 868)}
    assert once(world)


def test_a_boundary_that_published_windows_have_is_not_taken_back(world: World) -> None:
    window(world, 0, 2, Clocked(p1_0={0: 0, 2: 20 * ENTRY}))
    for hours in (0, 1, 2):
        scope_book(world).fix(at(hours), "says", lambda: Resolved({"1:0": 0}), exact=False)
        with pytest.raises(BoundaryConflict, match="is published"):
            check_untouched(
                world.sink, world.scope, scope_book(world), at(hours), [], option="--ended"
            )


def test_a_boundary_that_is_lost_with_its_turn_stays_before_later_ones(world: World) -> None:
    window(world, 0, 2, Clocked(p1_0={0: 0, 2: 20 * ENTRY}))
    world.engine.failing = RuntimeError("executor lost")
    with pytest.raises(RuntimeError):
        window(world, 4, 6, Clocked(p1_0={4: 25 * ENTRY, 6: 27 * ENTRY}))
    world.engine.failing = None
    four = parse_instant("2026-11-21T14:00:00Z")
    for key, document in list(fixed(world).items()):
        if document.get("boundary", document).get("instant") == rfc3339(four):
            del fixed(world)[key]
    assert window(world, 2, 4, LATE).ranges == {"1:0": (560, 756)}
    assert window(world, 4, 6, LATE).ranges == {"1:0": (756, 756)}
    assert set(world.sink.records().values()) == {1}


class TestPlannedBefore:
    """A window is planned, and published only after the boundaries were lost."""

    def reading(self, world: World) -> object:
        told = Clocked(p1_0={0: 0, 2: 20 * ENTRY})
        store = MemoryOffsetStore(world.journal, task="slow")
        steps = window_run(
            planner(world, 0, 2, told), store, world.sink, world.engine, attempt="slow"
        ).steps()
        while next(steps) != ("ingest", "end"):
            pass
        return steps

    def test_it_fixes_them_again_before_it_is_published(self, world: World) -> None:
        steps = self.reading(world)
        fixed(world).clear()
        list(steps)  # type: ignore[call-overload]
        fixed_again = scope_book(world).at(at(2))
        assert fixed_again == {"1:0": 560}
        assert window(world, 2, 4, LATE).ranges == {"1:0": (560, 868)}
        assert once(world)

    def test_it_is_planned_anew_if_others_have_fixed_them_meanwhile(self, world: World) -> None:
        steps = self.reading(world)
        fixed(world).clear()
        assert window(world, 2, 4, LATE).empty
        with pytest.raises(StoreConflict, match="the next try plans the window anew"):
            list(steps)  # type: ignore[call-overload]
        assert window(world, 0, 2, Clocked(p1_0={0: 0})).ranges == {"1:0": (0, 868)}
        assert once(world)

    def test_it_is_planned_anew_if_another_plan_has_fixed_them(self, world: World) -> None:
        steps = self.reading(world)
        fixed(world).clear()
        world.engine.failing = RuntimeError("executor lost")
        with pytest.raises(RuntimeError):
            window(world, 2, 5, Clocked(p1_0={2: 25 * ENTRY, 5: 31 * ENTRY}))
        world.engine.failing = None
        with pytest.raises(StoreConflict, match="the next try plans the window anew"):
            list(steps)  # type: ignore[call-overload]
        assert window(world, 0, 2, Clocked(p1_0={0: 0})).ranges == {"1:0": (0, 700)}
        window(world, 2, 5, LATE)
        assert once(world)

    def test_its_next_try_takes_the_window_that_another_task_has_published(
        self, world: World
    ) -> None:
        steps = self.reading(world)
        fixed(world).clear()
        published = window(world, 0, 2, Clocked(p1_0={0: 5 * ENTRY, 2: 25 * ENTRY}))
        with pytest.raises(StoreConflict, match="the next try plans the window anew"):
            list(steps)  # type: ignore[call-overload]
        store = MemoryOffsetStore(world.journal, task="slow")
        again = window_run(
            planner(world, 0, 2, LATE), store, world.sink, world.engine, attempt="slow-2"
        ).run()
        assert (again.replayed, again.ranges) == (True, published.ranges)

    def test_one_that_another_task_publishes_elsewhere_is_taken_after_a_clear(
        self, world: World
    ) -> None:
        told = Clocked(p1_0={0: 0, 2: 20 * ENTRY})
        store = MemoryOffsetStore(world.journal, task="slow")
        steps = window_run(
            planner(world, 0, 2, told), store, world.sink, world.engine, attempt="slow"
        ).steps()
        while next(steps) != ("plan", "end"):
            pass
        fixed(world).clear()
        published = window(world, 0, 2, Clocked(p1_0={0: 5 * ENTRY, 2: 25 * ENTRY}))
        with pytest.raises(MarkerConflict, match="Clear this task: it then takes the window"):
            list(steps)
        again = window_run(
            planner(world, 0, 2, LATE),
            store,
            world.sink,
            world.engine,
            attempt="slow-2",
            cleared=True,
        ).run()
        assert again.ranges == published.ranges

    def test_what_was_taken_back_meanwhile_is_not_fixed_again(self, world: World) -> None:
        steps = self.reading(world)
        scope_book(world).withdraw(at(2))
        with pytest.raises(StoreConflict, match="taken back"):
            list(steps)  # type: ignore[call-overload]

    def test_nor_when_other_boundaries_were_fixed_since(self, world: World) -> None:
        steps = self.reading(world)
        scope_book(world).withdraw(at(2))
        window(world, 4, 5, Clocked(p1_0={4: 25 * ENTRY, 5: 31 * ENTRY}))
        with pytest.raises(StoreConflict, match="taken back"):
            list(steps)  # type: ignore[call-overload]
        assert window(world, 0, 2, Clocked(p1_0={0: 0, 2: 5 * ENTRY})).ranges == {"1:0": (0, 140)}
        window(world, 2, 4, LATE)
        assert once(world)


def test_a_boundary_inside_a_published_window_bounds_nothing(world: World) -> None:
    """It was fixed for a window that failed, lost while another one was published over it, and came
    back."""
    world.engine.failing = RuntimeError("executor lost")
    with pytest.raises(RuntimeError):
        window(world, 0, 1, Clocked(p1_0={0: 0, 1: 20 * ENTRY}))
    kept = dict(fixed(world))
    fixed(world).clear()
    world.engine.failing = None
    window(world, 0, 2, Clocked(p1_0={0: 0, 2: 10 * ENTRY}))
    fixed(world).clear()
    fixed(world).update(kept)
    assert window(world, 2, 3, LATE).ranges == {"1:0": (280, 868)}
    assert once(world)


def test_boundaries_that_contradict_each_other_are_refused_until_one_is_taken_back(
    world: World,
) -> None:
    """Of two losses, each has given back what the other had fixed again."""
    for hours, entry in ((1, 20), (2, 10)):
        other = World(sink=keeping_boundaries())
        scope_book(other).fix(
            at(hours), "says", lambda entry=entry: Resolved({"1:0": entry * ENTRY}), exact=False
        )
        fixed(world).update(fixed(other))
    with pytest.raises(BoundaryConflict, match="contradict each other") as caught:
        window(world, 1, 2, LATE)
    unfix(world, caught.value)
    assert window(world, 1, 2, LATE).ranges == {"1:0": (560, 868)}


def test_boundaries_of_files_and_of_queues_are_told_again(tmp_path: Path) -> None:
    """RocketMQ's keys; boundaries in files beside markers."""
    sink = MarkerSink.at(tmp_path)
    scope = WindowScope("c1", "orders", "g1", sink.identity, source="rocketmq")
    plan = WindowPlan.for_time(scope, TEN, at(2), {"broker-a:0": (0, 20), "broker-a:1": (3, 5)})
    counts = IngestCounts({"broker-a:0": 20, "broker-a:1": 2})
    sink.publish(sink.begin(plan, "a"), plan, counts, lambda _: None)
    book = ScopeBook(sink.boundaries, scope)  # type: ignore[arg-type]
    book.compare(PublishedWindows(sink, scope), at(2))
    late = Resolved({"broker-a:0": 31, "broker-a:1": 9})
    told = book.fix(at(2), "late", lambda: late, exact=False)
    assert told == {"broker-a:0": 20, "broker-a:1": 5}
    (name,) = [path.name for path in tmp_path.glob("_boundaries/2*")]
    assert name.startswith(basic_instant(TEN + timedelta(hours=2)))
    assert ScopeBook(sink.boundaries, scope).evidence(at(2))["windows"] == [plan.window_id]  # type: ignore[arg-type]
