"""Random histories in a world that changes: partitions, brokers, late records, other schedules.

`Shaken` is a `History` of cursor windows whose brokers come and go, `ShakenClaims` one of claims.
`TimeHistory` plays windows of time: any interval, in any order and several at once, over a resolver
whose answers change with every late record, while partitions are added, unannounced or taken away
and brokers die, come back or are decommissioned for good. At the end each follows the advice that
errors give, and continues until every record is in the sink once. What a decommissioned broker took
with it is lost; nothing of it may be there twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property

from tests.provider.windows.exploration import (
    Claimed,
    History,
    MakeRun,
    Task,
    Try,
    ViolationError,
)
from tests.provider.windows.world import (
    ENTRY,
    TOPIC,
    Log,
    MemoryBook,
    MemoryEngine,
    MemorySink,
    Record,
    World,
)
from tubemq_client.errors import ConfigError, ConnectError
from tubemq_client.model import Partition, PartitionEnds, ReachableEnds
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.windows.errors import BoundaryConflict, StoreConflict, WindowNotReady
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.planning.boundary_book import ScopeBook
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.instants import Resolved
from tubemq_provider.windows.planning.overlaps import interval_of
from tubemq_provider.windows.planning.standalone_planner import TimePlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import Document, IngestCounts, IngestWatch, Staging
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.run.steps import StepPoint, WindowRun

REFUSALS = (WindowNotReady, BoundaryConflict, StoreConflict, ConnectError)
NEW_PARTITIONS = ("1:2", "2:1", "3:0", "1:10000")


def broker_of(key: str) -> int:
    return int(key.partition(":")[0])


@dataclass
class Topic(Log):
    """A log on brokers that may be away or gone; `hidden` partitions are not announced."""

    away: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)

    def announced(self) -> list[str]:
        return [
            key
            for key in self.partitions
            if key not in self.hidden and broker_of(key) not in self.gone
        ]

    def ready(self) -> list[str]:
        return [key for key in self.announced() if broker_of(key) not in self.away]

    def ends(self) -> dict[Partition, PartitionEnds]:
        ready, everything = self.ready(), super().ends()
        if not ready:
            raise ConnectError("no broker answers")
        announced = {Partition.from_key(TOPIC, key) for key in self.announced()}
        found = {place: ends for place, ends in everything.items() if place.key in ready}
        return ReachableEnds(found, dict.fromkeys(announced - found.keys(), "ConnectError: away"))

    def all_records(self) -> Iterator[Record]:
        return (record for record in super().all_records() if record[0] != "lost")

    def change(self, which: int) -> None:
        """One change of partitions or brokers; `which` says which."""
        what, choice = which % 6, which // 6
        key = self.partitions[choice % len(self.partitions)]
        missing = [new for new in NEW_PARTITIONS if new not in self.partitions]
        if what == 0 and missing:
            self.partitions.append(missing[0])
        elif what == 1 and len(self.announced()) > 1:
            self.hidden.add(key)
        elif what == 2:
            self.hidden.clear()
        elif what == 3 and len(self.away) < 1:
            self.away.add(broker_of(key))
        elif what in (4, 5):
            self.away.clear()

    def restore(self) -> None:
        """All that is not gone is back."""
        self.hidden.clear()
        self.away.clear()


class Unreliable(MemoryEngine):
    """Cannot read from brokers that are not there."""

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
        log = self.log
        assert isinstance(log, Topic)
        if {range_.partition.key for range_ in plan.reads()} - set(log.ready()):
            raise ConnectError("a broker is away")
        return super().ingest(plan, staging, watch)


# Cursor windows ---------------------------------------------------------------------------------


@dataclass
class Shaken(History):
    """Histories in which partitions are added and hidden, and brokers die and come back, or are
    decommissioned (`lasting`) and retired."""

    planner_type: type[CursorPlanner] = CursorPlanner
    lasting: bool = True

    initial_positions = ("earliest", "earliest")

    def __post_init__(self) -> None:
        super().__post_init__()
        old = self.world.log
        self.topic = Topic(old.partitions, old.entries, old.lost)
        self.world.log = self.topic
        self.world.engine = Unreliable(self.topic, self.world.sink)
        self.world.planner = self.planner  # type: ignore[method-assign]

    def planner(self, **options: object) -> CursorPlanner:
        return self.planner_type(
            self.world.scope,
            self.topic.ends,
            initial_position="earliest",
            max_records=options.get("max_records"),  # type: ignore[arg-type]
            policies=Policies.of(**options.get("policies", {})),  # type: ignore[arg-type]
            serialised=False,
            retired=lambda: self.topic.gone,
        )

    def _actions(self) -> list[Callable[[int], None]]:
        return [*super()._actions(), self.change, self.change, self.decommission]

    def change(self, which: int) -> None:
        self.topic.change(which)

    def decommission(self, which: int) -> None:
        """Once in a long while, and never all of them."""
        if self.lasting and which % 7 == 0 and not self.topic.gone:
            self.topic.gone.add(2)

    def append(self, which: int) -> None:
        keys = self.topic.ready()
        if keys:
            self.topic.append(keys[which % len(keys)], 1 + which % 2)

    def _step(self, task: Task, actor: Try) -> None:
        try:
            super()._step(task, actor)
        except (ConnectError, WindowNotReady):
            self._end(task, actor)  # says what to wait for; it is tried again

    def finish(self) -> None:
        self.topic.restore()
        for key in self.topic.partitions:
            if broker_of(key) in self.topic.gone:
                # What was not read is lost with its broker; what was read counts as ever.
                self._forget_unread(key)
        super().finish()

    def _forget_unread(self, key: str) -> None:
        kept = {offset for known, offset in self.world.sink.records() if known == key}
        for owners in self.topic.entries.values():
            for index, owner in enumerate(owners):
                if owner == key and index * ENTRY not in kept:
                    owners[index] = "lost"


@dataclass
class ShakenClaims(Claimed, Shaken):
    """The same with claims: what a run has left waits for its brokers, and holds up no other."""


# Windows of time --------------------------------------------------------------------------------

EPOCH = datetime(2026, 11, 21, tzinfo=UTC)
HOUR = timedelta(hours=1)
Steps = Generator[StepPoint, None, WindowResult]


def hour(number: int) -> datetime:
    return EPOCH + number * HOUR


class Busy(MemoryBook):
    """A book in which other runs may act right before a boundary is fixed."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        super().__init__()
        self.interrupt = interrupt

    def fix(self, key: str, document: Document) -> Document:
        self.interrupt()
        return super().fix(key, document)


@dataclass
class Late:
    """Message time, by the hour: behind the last record that is older than the instant. So every
    late record changes the answer."""

    topic: Topic
    hours: Mapping[tuple[str, int], int]
    name = "late"
    exact = False

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        return self.resolve(instant).certain()

    def resolve(self, instant: datetime) -> Resolved:
        limit = (instant - EPOCH) // HOUR
        found: dict[str, int] = {}
        for partition, ends in self.topic.ends().items():
            mine = [offset for key, offset in self.hours if key == partition.key]
            old = [offset for offset in mine if self.hours[partition.key, offset] < limit]
            nothing = 0 if mine else ends.max_offset
            found[partition.key] = max(old) + ENTRY if old else nothing
        away = {key: "away" for key in self.topic.announced() if key not in found}
        return Resolved(found, {}, away)


class OfHours(TimePlanner):
    """The planner of these histories; mistakes are planted in subclasses."""

    books: type[ScopeBook] = ScopeBook

    def _scope_book(self) -> ScopeBook:
        assert self.book is not None
        return self.books(self.book, self.scope)


class TimeHistory:
    """A history of windows of time, played from `seed`."""

    def __init__(
        self,
        seed: int,
        planner: type[OfHours] = OfHours,
        make_run: MakeRun = window_run,
    ) -> None:
        self.source = random.Random(seed)
        self.planner_type, self.make_run = planner, make_run
        self.book = Busy(self._interrupt)
        self.sink = MemorySink(boundary_book=self.book)
        self.topic = Topic()
        self.world = World(log=self.topic, sink=self.sink)
        self.engine = Unreliable(self.topic, self.sink)
        self.hours: dict[tuple[str, int], int] = {}
        self.journal = MemoryJournal()
        self.now, self.runs, self.seen, self.nested = 1, 0, 0, False
        self.live: list[Steps] = []

    @cached_property
    def moves(self) -> list[Callable[[], None]]:
        return [
            *[self.produce] * 5,
            *[self.step] * 8,
            *[self.start] * 4,
            self.pass_time,
            self.change,
            self.change,
            self.operator,
            self.kill,
        ]

    def play(self, moves: int = 70) -> None:
        """Make a number of moves, then check that every record can be read."""
        for _ in range(moves):
            self.source.choice(self.moves)()
            self.check()
        self.finish()

    # -- what can happen ------------------------------------------------------------------------

    def produce(self) -> None:
        """Append records of this hour, or late ones."""
        for key in self.topic.ready():
            for _ in range(self.source.randrange(3)):
                late = self.source.choice((0, 0, 0, 1, 2, 5))
                self.topic.append(key)
                store = self.topic.entries[Partition.from_key(TOPIC, key).store_key]
                self.hours[key, (len(store) - 1) * ENTRY] = max(0, self.now - late)

    def pass_time(self) -> None:
        self.now += 1

    def start(self) -> None:
        """Run a window of any interval: mostly hours, some of other schedules."""
        first = self.source.randrange(self.now + 1)
        self._begin(first, first + self.source.choice((1, 1, 1, 1, 2, 3)))

    def step(self) -> None:
        if self.live:
            steps = self.source.choice(self.live)
            for _ in range(self.source.choice((1, 3, 8, 40))):
                if not self._advance(steps):
                    return

    def kill(self) -> None:
        if self.live:
            self.live.remove(self.source.choice(self.live))

    def change(self) -> None:
        self.topic.change(self.source.randrange(60))

    def operator(self) -> None:
        """Retires a broker that is away, though it may come back; rarely one is gone for good."""
        for broker in self.topic.away:
            self._book().retire(broker)
        if self.source.randrange(5) == 0 and not self.topic.gone and self.now > 2:
            self.topic.gone.add(2)

    # -- playing ------------------------------------------------------------------------------

    def _begin(self, first: int, last: int) -> Steps:
        self.runs += 1
        planner = self.planner_type(
            self.world.scope,
            hour(first),
            hour(last),
            Late(self.topic, self.hours),
            self.topic.ends,
            self.book,
        )
        store = MemoryOffsetStore(self.journal, task=f"{first}-{last}")
        run: WindowRun = self.make_run(
            planner, store, self.sink, self.engine, attempt=f"try-{self.runs}"
        )
        steps = run.steps()
        self.live.append(steps)
        return steps

    def _advance(self, steps: Steps) -> bool:
        """One action; False if the run has ended, with success or with advice."""
        try:
            step, point = next(steps)
            if step == "publish" and point == "intervals compared":
                next(steps)  # overlaps that are published in one instant are not promised
        except (
            StopIteration,
            WindowNotReady,
            BoundaryConflict,
            StoreConflict,
            ConnectError,
        ) as exc:
            if steps in self.live:
                self.live.remove(steps)
            self.follow(exc)
            return False
        except ConfigError as exc:
            raise ViolationError(f"stuck without an advice that works: {exc}") from exc
        except ValueError as exc:
            if "already executing" in str(exc):
                return False  # it is what was interrupted
            raise
        return True

    def follow(self, error: Exception) -> bool:
        """Do what an error advises, if an operator is here to do so; whether that was anything."""
        return False

    def _interrupt(self) -> None:
        """Another run takes some actions, in the middle of this one's."""
        if self.nested or not self.live or self.source.randrange(3):
            return
        self.nested = True
        try:
            other = self.source.choice(self.live)
            for _ in range(self.source.randrange(12)):
                if not self._advance(other):
                    break
        finally:
            self.nested = False

    def _book(self) -> ScopeBook:
        return ScopeBook(self.book, self.world.scope)

    # -- what must hold -------------------------------------------------------------------------

    def check(self) -> None:
        """No record is in the sink twice, whatever windows it is of."""
        if len(self.sink.windows) == self.seen:
            return
        self.seen = len(self.sink.windows)
        twice = [record for record, count in self.sink.records().items() if count > 1]
        if twice:
            raise ViolationError(f"records twice: {twice}")

    def finish(self) -> None:
        """Brokers come back or are retired, and what errors say is left to run is run."""
        self.live.clear()
        self.topic.restore()
        for broker in self.topic.gone:
            self._book().retire(broker)
        self.now += 6
        for first, last in self._left():
            steps = self._begin(first, last)
            try:
                while True:
                    next(steps)
            except StopIteration:
                self.live.clear()
            except (WindowNotReady, BoundaryConflict, ConnectError, ConfigError) as exc:
                raise ViolationError(f"{first} to {last} is stuck: {exc}") from exc
            self.check()
        self._check_all()

    def _left(self) -> list[tuple[int, int]]:
        """Return the intervals up to now without a published window, in any order."""
        taken: set[int] = set()
        for window_id in self.sink.windows:
            found = interval_of(window_id, self.world.scope.scope_hash)
            assert found is not None
            taken |= set(range((found[0] - EPOCH) // HOUR, (found[1] - EPOCH) // HOUR))
        left = [(number, number + 1) for number in range(self.now) if number not in taken]
        self.source.shuffle(left)
        return left

    def _given_up(self, key: str, offset: int) -> bool:
        """Return True if a window has a gap there: its broker was retired, and came back."""
        gaps = (gap for plan in self.sink.plans() for gap in plan.gaps.get(key, ()))
        return any(low <= offset < high for low, high in gaps)

    def _check_all(self) -> None:
        """Each record of a broker that is there, from the first boundary to the last, is there."""
        book = self._book()
        first, last = book.at(hour(0)), book.at(hour(self.now))
        wanted = {
            (key, offset)
            for key, offset in self.hours
            if broker_of(key) not in self.topic.gone
            and first.get(key, 0) <= offset < last.get(key, 0)
            and not self._given_up(key, offset)
        }
        if missing := wanted - self.sink.records().keys():
            raise ViolationError(f"records lost: {sorted(missing)}")
        late = [record for record in self.hours if record not in wanted and record[0] in last]
        if any(
            offset >= last[key] and broker_of(key) not in self.topic.gone for key, offset in late
        ):
            raise ViolationError("the last boundary leaves records out")
