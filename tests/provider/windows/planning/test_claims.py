"""Cursor windows by several runs at once: random histories of claims, deaths and takeovers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.provider.windows.world import MemorySink, World
from tubemq_client.model import Anchor
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.windows.cursor import Position
from tubemq_provider.windows.errors import MarkerConflict, SinkHistoryLost
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.claims import Claim, ClaimBook, rebuilt
from tubemq_provider.windows.protocols import ClaimStore, Document
from tubemq_provider.windows.run.claimed_run import ClaimedRun
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.run.steps import StepPoint

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SCOPE = WindowScope("c1", "orders", "g1", "memory:test")


class MemoryClaims(MemoryOffsetStore):
    """A memory store whose cursor changes in one step."""

    def __init__(self, journal: MemoryJournal, *, task: str, dead: set[str]) -> None:
        super().__init__(journal, task=task)
        self.dead = dead

    def change_cursor(
        self, change: Callable[[Document | None], Document | None]
    ) -> Document | None:
        wanted = change(self.load_cursor())
        if wanted is not None:
            self.store_cursor(wanted)
        return self.load_cursor()

    def is_over(self, claimant: str) -> bool:
        return not claimant or (claimant != self.writer and claimant in self.dead)

    def previous_cursor(self) -> Document | None:
        return None


@dataclass
class Task:
    name: str
    tries: int = 0
    steps: Generator[StepPoint, None, WindowResult] | None = None


@dataclass
class History:
    """Tasks that run, are killed between two actions, tried again, or given up for good."""

    seed: int
    world: World = field(default_factory=World)
    dead: set[str] = field(default_factory=set)
    tasks: list[Task] = field(default_factory=list)
    made: int = 0

    def play(self, length: int) -> None:
        chance = random.Random(self.seed)
        for _ in range(length):
            action = chance.choice([self.start, self.append, self.kill, *[self.step] * 6])
            action(chance)
        for task in list(self.tasks):
            self.finish(task)
        # The remaining runs adopt the claims of the dead, then claim new windows.
        for _ in range(200):
            windows = len(self.world.sink.windows)
            self.finish(self.new_task())
            if len(self.world.sink.windows) == windows:
                return

    def new_task(self) -> Task:
        self.made += 1
        return Task(f"task-{self.made}")

    def start(self, _: random.Random) -> None:
        if len(self.tasks) < 4:
            self.tasks.append(self.new_task())

    def append(self, chance: random.Random) -> None:
        self.world.log.append(chance.choice(["1:0", "1:1", "2:0"]), chance.randint(1, 3))

    def kill(self, chance: random.Random) -> None:
        if not self.tasks:
            return
        task = chance.choice(self.tasks)
        task.steps = None
        if task.tries >= 3:
            self.tasks.remove(task)
            self.dead.add(task.name)

    def step(self, chance: random.Random) -> None:
        if self.tasks:
            self.advance(chance.choice(self.tasks))

    def advance(self, task: Task) -> bool:
        if task.steps is None:
            task.tries += 1
            store = MemoryClaims(self.world.journal, task=task.name, dead=self.dead)
            run = window_run(
                self.world.planner(max_records=4),
                store,
                self.world.sink,
                self.world.engine,
                attempt=f"{task.name}.{task.tries}",
            )
            assert isinstance(run, ClaimedRun)
            task.steps = run.steps()
        if next(task.steps, None) is not None:
            return True
        self.dead.add(task.name)
        if task in self.tasks:
            self.tasks.remove(task)
        return False

    def finish(self, task: Task) -> None:
        while self.advance(task):
            pass


@pytest.mark.parametrize("seed", range(40))
def test_no_history_of_claims_loses_or_repeats_a_record(seed: int) -> None:
    history = History(seed)
    history.world.log.append("1:0", 2)
    history.play(300)
    world = history.world
    assert world.sink.records() == Counter(world.log.all_records())
    cursor = MemoryOffsetStore(world.journal).load_cursor()
    assert cursor is not None
    assert (cursor["pending"], cursor["done"]) == ({}, {})
    assert cursor["seq"] == len(world.sink.windows)


def test_the_memory_store_has_no_claims_and_runs_as_ever() -> None:
    world = World()
    store = MemoryOffsetStore(world.journal)
    assert not isinstance(store, ClaimStore)
    run = window_run(world.planner(), store, world.sink, world.engine, attempt="a")
    assert not isinstance(run, ClaimedRun)


def run_of(world: World, task: str, *, dies: bool = False) -> WindowResult | None:
    store = MemoryClaims(world.journal, task=task, dead=set())
    run = window_run(world.planner(), store, world.sink, world.engine, attempt=task)
    if dies:
        for step in run.steps():
            if step.point == "task plan stored":
                return None
    return run.run()


def test_a_task_whose_claim_was_lost_and_planned_over_takes_the_next_window() -> None:
    world = World()
    for task in ("first", "second"):
        world.log.append("1:0", 2)
        run_of(world, task, dies=True)
    world.journal.cursor = None
    run_of(world, "third")
    world.log.append("1:0", 2)
    run_of(world, "fourth")
    world.log.append("1:0", 2)
    result = run_of(world, "second")
    assert result is not None
    assert result.window_id == world.id(3)
    assert world.sink.records() == Counter(world.log.all_records())


def test_a_task_whose_lost_claim_is_in_a_hole_that_was_written_takes_the_next_window() -> None:
    world = World()
    for task in ("first", "second", "third"):
        world.log.append("1:0", 2)
        run_of(world, task, dies=task != "third")
    world.journal.cursor = None
    hole = run_of(world, "first")
    assert hole is not None
    assert (hole.window_id, hole.total) == (world.id(1), 4)
    world.log.append("1:0", 2)
    result = run_of(world, "second")
    assert result is not None
    assert result.window_id == world.id(4)
    assert world.sink.records() == Counter(world.log.all_records())


def window(seq: int, start: int, end: int) -> WindowPlan:
    return WindowPlan.cursor(SCOPE, seq, {"1:0": (28 * start, 28 * end)})


def test_a_book_survives_its_document() -> None:
    book = ClaimBook(Position(0, {"1:0": 0}))
    for plan in (window(1, 0, 2), window(2, 2, 5), window(3, 5, 6)):
        claimed = book.claim(plan, "me", NOW)
        assert claimed is not None
        book = claimed
    done = book.complete(window(2, 2, 5))
    assert done is not None
    again = ClaimBook.from_document(done.to_document(SCOPE, NOW, "me"), SCOPE)
    assert replace(again, rev=0) == done
    assert again.position.seq == 0
    folded = again.complete(window(1, 0, 2))
    assert folded is not None
    assert folded.position == Position(2, {"1:0": 140})
    assert folded.complete(window(1, 0, 2)) is None


def test_a_claim_must_begin_at_the_frontier() -> None:
    book = ClaimBook(Position(0, {"1:0": 0})).claim(window(1, 0, 2), "me", NOW)
    assert book is not None
    assert book.claim(window(1, 0, 3), "other", NOW) is None
    assert book.claim(window(2, 1, 3), "other", NOW) is None
    assert book.claim(window(2, 2, 3), "other", NOW) is not None


def test_a_window_published_with_another_end_under_later_claims_is_refused() -> None:
    book = ClaimBook(Position(0, {"1:0": 0}))
    for plan in (window(1, 0, 2), window(2, 2, 5)):
        book = book.claim(plan, "me", NOW) or book
    with pytest.raises(MarkerConflict, match="rebuild"):
        book.complete(window(1, 0, 3))


def test_a_rebuilt_book_claims_exactly_the_hole() -> None:
    book = rebuilt(Position(1, {"1:0": 28}), [window(1, 0, 1), window(3, 4, 6), window(4, 6, 7)])
    (claim,) = book.in_order()
    assert (claim.plan.window_id, claim.plan.ranges) == (
        f"c-2-{SCOPE.scope_hash}",
        {"1:0": (28, 112)},
    )
    assert claim.by == ""
    whole = book.complete(claim.plan)
    assert whole is not None
    assert whole.position == Position(4, {"1:0": 196})


def test_a_hole_knows_its_log_as_the_position_before_it_does() -> None:
    last = {"1:0": Anchor(0, 9, 1)}
    book = rebuilt(Position(1, {"1:0": 28}, last), [window(3, 4, 6)])
    (claim,) = book.in_order()
    assert claim.plan.before == last


def test_a_partition_that_joined_in_a_hole_is_read_from_the_start_of_its_log() -> None:
    third = WindowPlan.cursor(SCOPE, 3, {"1:0": (112, 168), "2:0": (56, 84)})
    book = rebuilt(Position(1, {"1:0": 28}), [third])
    (claim,) = book.in_order()
    assert claim.plan.ranges == {"1:0": (28, 112), "2:0": (0, 56)}
    assert claim.plan.joined == ("2:0",)
    whole = book.complete(claim.plan)
    assert whole is not None
    assert whole.position == Position(3, {"1:0": 168, "2:0": 84})


def test_claims_that_still_fit_are_kept_when_a_book_is_rebuilt() -> None:
    position = Position(1, {"1:0": 28})
    alive = [Claim(window(*of), "me", "") for of in ((2, 1, 4), (4, 6, 9), (5, 9, 10), (7, 11, 12))]
    book = rebuilt(position, [window(3, 4, 6)]).keeping(alive)
    assert [(claim.plan.seq, claim.by) for claim in book.in_order()] == [
        (2, "me"),
        (4, "me"),
        (5, "me"),
    ]


def test_a_hole_knows_its_log_by_the_window_behind_it_if_the_position_does_not() -> None:
    """Else it was filled from a recreated topic, and those records were read again behind it."""
    anchors = {"1:0": Anchor(28, 9, 1), "2:0": Anchor(0, 7, 1)}
    ranges = {"1:0": (56, 84), "2:0": (28, 56)}
    third = WindowPlan.cursor(SCOPE, 3, ranges, before=anchors, resets={"2:0": 56})
    book = rebuilt(Position(1, {"1:0": 28, "2:0": 28}), [third])
    (claim,) = book.in_order()
    assert claim.plan.before == {"1:0": Anchor(28, 9, 1)}
    # What the third window reads again, as its log began again, is not the hole's any more.
    assert book.remaining(claim.plan).gaps == {"2:0": ((28, 56),)}


def test_a_claim_that_is_known_stands_for_its_hole() -> None:
    """One with which a log began again, too: its beginning cannot be told from its neighbours."""
    position = Position(1, {"1:0": 140})
    claim = Claim(WindowPlan.cursor(SCOPE, 2, {"1:0": (0, 112)}, resets={"1:0": 140}), "me", "")
    assert rebuilt(position, [window(3, 4, 6)], [claim]).in_order() == [claim]
    # Also where it ends at the position again, and seems to be no hole.
    back = Claim(WindowPlan.cursor(SCOPE, 2, {"1:0": (0, 140)}, resets={"1:0": 140}), "me", "")
    book = rebuilt(position, [window(3, 5, 6)], [back])
    assert (book.in_order(), book.position) == ([back], position)


def test_a_claim_that_the_window_behind_it_was_not_planned_on_stands_for_no_hole() -> None:
    """It is of a ledger that was restored: the sink continues from another window of its number."""
    claim = Claim(window(2, 1, 9), "me", "")
    (hole,) = rebuilt(Position(1, {"1:0": 28}), [window(3, 4, 6)], [claim]).in_order()
    assert hole.plan.ranges == {"1:0": (28, 112)}


def test_the_position_does_not_pass_a_claim_that_ends_where_it_stands() -> None:
    book = ClaimBook(Position(1, {"1:0": 140}))
    anew = WindowPlan.cursor(SCOPE, 2, {"1:0": (0, 140)}, resets={"1:0": 140})
    for plan in (anew, window(3, 5, 6)):
        book = book.claim(plan, "me", NOW) or book
    done = book.complete(window(3, 5, 6))
    assert done is not None
    assert done.position.seq == 1
    whole = done.complete(anew)
    assert whole is not None
    assert whole.position == Position(3, {"1:0": 168})


def test_what_cannot_be_told_from_markers_is_refused() -> None:
    with pytest.raises(MarkerConflict, match="twice"):
        rebuilt(Position(1, {"1:0": 140}), [window(3, 4, 6)])
    with pytest.raises(SinkHistoryLost, match="by hand"):
        rebuilt(Position(1, {"1:0": 28, "2:0": 0}), [window(3, 4, 6)])


def test_claimed_windows_are_cut_by_the_pace_of_the_last_one() -> None:
    world = World()
    for key in ("1:0", "2:0"):
        world.log.append(key, 3_000)
    store = MemoryClaims(world.journal, task="a", dead=set())
    begin = Position(0, {"1:0": 0, "1:1": 0, "2:0": 0})
    position = begin.to_document(world.scope.scope_hash, world.scope.space)
    store.emit({"v": 1, "position": position, "pace": [1_500, 1_000]})
    book = ClaimBook(begin)
    store.store_cursor(book.to_document(world.scope, NOW, "a"))
    planner = world.planner(max_duration=timedelta(seconds=1))
    result = window_run(planner, store, world.sink, world.engine, attempt="a").run()
    assert result.total == 1_500


class NotMadeYet(MemorySink):
    """A place on a file system: it is there from the first window on, or was taken away."""

    taken_away = False

    def missing(self) -> str | None:
        there = self.windows and not self.taken_away
        return None if there else "it is not there"


def test_a_window_beside_a_first_one_that_is_not_written_yet_needs_no_place() -> None:
    sink = NotMadeYet()
    world = World(sink=sink)

    def run(task: str) -> ClaimedRun:
        store = MemoryClaims(world.journal, task=task, dead=set())
        found = window_run(world.planner(), store, sink, world.engine, attempt=task)
        assert isinstance(found, ClaimedRun)
        return found

    world.log.append("1:0", 2)
    first = run("first").steps()
    while next(first).point != "task plan stored":
        pass
    world.log.append("1:0", 2)
    assert run("second").run().window_id == world.id(2)
    for _ in first:
        pass
    assert len(sink.windows) == 2
    sink.taken_away = True
    world.log.append("1:0", 2)
    with pytest.raises(SinkHistoryLost, match="2 windows were written before, but it is not"):
        run("third").run()
