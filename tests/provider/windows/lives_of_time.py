"""Random histories of windows of time over a topic that is deleted and recreated at any moment.

All that `TimeHistory` has but brokers that come and go: late records, any interval in any order,
partitions that are added. Besides, the topic begins again, mostly grows past every boundary at
once, and the metadata database is restored to an earlier state. Every record has a number that
never comes again. Runs fail when they see another life; then an operator does what the error says
and begins an epoch.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.provider.windows.changing_worlds import (
    EPOCH,
    HOUR,
    Late,
    OfHours,
    Steps,
    TimeHistory,
    Topic,
    Unreliable,
    broker_of,
    hour,
)
from tests.provider.windows.exploration import MakeRun, ViolationError
from tests.provider.windows.new_lives import LivingLog
from tests.provider.windows.world import ENTRY, TOPIC, World
from tubemq_client.errors import ConfigError, ConnectError, LogRegression
from tubemq_client.model import Anchor, Partition
from tubemq_provider.ingest.maintenance import check_untouched, epoch_document, epochs_of
from tubemq_provider.offsets.memory import MemoryOffsetStore
from tubemq_provider.windows.canonical import parse_instant
from tubemq_provider.windows.cursor import epoch_of, past_epochs
from tubemq_provider.windows.errors import BoundaryConflict, IdentityMismatch, MarkerConflict
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.planning.boundary_book import ScopeBook
from tubemq_provider.windows.planning.overlaps import interval_of
from tubemq_provider.windows.planning.published import PublishedWindows
from tubemq_provider.windows.protocols import Document, IngestCounts, IngestWatch, Staging
from tubemq_provider.windows.run.epochs import stored_epoch
from tubemq_provider.windows.run.kinds import window_run


@dataclass
class LivingTopic(Topic, LivingLog):
    """A log of several lives on brokers that may be away; a broker that is cannot be asked."""

    def holds(self, partition: Partition, anchor: Anchor, upto: int) -> bool:
        if partition.key not in self.ready():
            raise ConnectError("a broker is away")
        return super().holds(partition, anchor, upto)


class Careful(Unreliable):
    """Refuses what lies beyond a log, as real engines do."""

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
        for range_ in plan.reads():
            if range_.end > len(self.log.entries.get(range_.partition.store_key, [])) * ENTRY:
                raise LogRegression(f"the log ends before {range_.end}")
        return super().ingest(plan, staging, watch)


class TimeLives(TimeHistory):
    """A history of windows of time and of lives. `witnessed` False plants the mistake that no run
    asks the logs."""

    def __init__(
        self,
        seed: int,
        planner: type[OfHours] = OfHours,
        make_run: MakeRun = window_run,
        *,
        witnessed: bool = True,
    ) -> None:
        super().__init__(seed, planner, make_run)
        self.witnessed, self.epochs = witnessed, 0
        self.topic: LivingTopic = LivingTopic()
        self.world = World(log=self.topic, sink=self.sink)
        self.engine = Careful(self.topic, self.sink)
        self.saved: list[object] = []

    @cached_property
    def moves(self) -> list[Callable[[], None]]:
        return [*super().moves, self.make_anew, self.save_or_restore]

    def make_anew(self) -> None:
        """Recreate the topic; mostly it grows past its old end; its partitions stay."""
        if self.source.randrange(3):
            return
        was = {key: len(self.topic.entries.get(_store(key), [])) for key in self.topic.ready()}
        self.topic.begin_anew(*self.topic.entries)
        self.hours.clear()
        if self.source.randrange(4):
            for key, count in was.items():
                for _ in range(count + self.source.randrange(3)):
                    self._produce(key, self.source.randrange(self.now + 1))

    def change(self) -> None:
        """Partitions are added. Brokers are all there: else an epoch reads again what was taken of
        the new logs before the others were back, which docs/guarantees.md does not promise to
        prevent."""
        self.topic.change(6 * self.source.randrange(10))

    def operator(self) -> None:
        """Retires nothing here."""

    def produce(self) -> None:
        for key in self.topic.ready():
            for _ in range(self.source.randrange(3)):
                self._produce(key, max(0, self.now - self.source.choice((0, 0, 0, 1, 2, 5))))

    def _produce(self, key: str, of_hour: int) -> None:
        self.topic.append(key)
        self.hours[key, (len(self.topic.entries[_store(key)]) - 1) * ENTRY] = of_hour

    def save_or_restore(self) -> None:
        """Back up the metadata database, or restore an old backup, while no task runs."""
        if not self.saved or self.source.randrange(3):
            self.saved.append(copy.deepcopy(vars(self.journal)))
        elif not self.nested:
            self.live.clear()
            vars(self.journal).update(copy.deepcopy(self.source.choice(self.saved)))

    def _begin(self, first: int, last: int) -> Steps:
        self.runs += 1
        planner = self.planner_type(
            self.world.scope,
            hour(first),
            hour(last),
            Late(self.topic, self.hours),
            self.topic.ends,
            self.book,
            witness=self.topic if self.witnessed else None,
        )
        task = f"{self.world.scope.epoch}-{first}-{last}"
        store = MemoryOffsetStore(self.journal, task=task)
        run = self.make_run(planner, store, self.sink, self.engine, attempt=f"try-{self.runs}")
        steps = run.steps()
        self.live.append(steps)
        return steps

    def _advance(self, steps: Steps) -> bool:
        try:
            return super()._advance(steps)
        except LogRegression as error:
            if steps in self.live:
                self.live.remove(steps)
            if "offsets epoch" in str(error):
                self._begin_epoch()
            return False

    def _begin_epoch(self) -> None:
        self.epochs += 1
        self.world.begin(f"life-{self.epochs}")
        self.live.clear()

    def finish(self) -> None:
        """Run as the base class, and once more in a new epoch if an error advises it."""
        for _ in range(5):
            try:
                super().finish()
            except LogRegression as error:
                if "offsets epoch" not in str(error):
                    raise ViolationError(f"no advice: {error}") from error
                self._begin_epoch()
            else:
                return
        raise ViolationError("no epoch leads to an end")

    def _left(self) -> list[tuple[int, int]]:
        taken: set[int] = set()
        for window_id in self.sink.windows:
            found = interval_of(window_id, self.world.scope.scope_hash)
            if found is not None:
                taken |= set(range((found[0] - EPOCH) // HOUR, (found[1] - EPOCH) // HOUR))
        left = [(number, number + 1) for number in range(self.now) if number not in taken]
        self.source.shuffle(left)
        return left

    def _given_up(self, key: str, offset: int) -> bool:
        h = self.world.scope.scope_hash
        gaps = (
            gap
            for plan in self.sink.plans()
            if plan.scope_hash == h
            for gap in plan.gaps.get(key, ())
        )
        return any(low <= offset < high for low, high in gaps)

    def _check_all(self) -> None:
        """Each record of the present life, up to the last boundary, is in the sink."""
        book = self._book()
        first, last = book.at(hour(0)), book.at(hour(self.now))
        held = self.sink.records()
        missing = [
            (key, offset)
            for key, offset in self.hours
            if broker_of(key) not in self.topic.gone
            and first.get(key, 0) <= offset
            and not self._given_up(key, offset)
            and (offset < last[key] if key in last else False)
            and (key, self.topic.numbers[_store(key)][offset // ENTRY]) not in held
        ]
        if missing:
            raise ViolationError(f"records lost: {missing}")


class OrderedLives(TimeLives):
    """The same with epochs that are begun by command and that tasks follow by what is stored. The
    cursor is wiped at any moment, and some tasks still name an epoch that has ended."""

    ended: tuple[str, ...] = ()

    @cached_property
    def moves(self) -> list[Callable[[], None]]:
        return [*super().moves, self.wipe_cursor, self.name_an_ended_epoch]

    def wipe_cursor(self) -> None:
        if not self.nested and not self.source.randrange(3):
            self.journal.cursor = None
            self._order_again()

    def save_or_restore(self) -> None:
        super().save_or_restore()
        self._order_again()

    def name_an_ended_epoch(self) -> None:
        if not self.ended or self.nested:
            return
        present = self.world.scope.epoch
        self.world.begin(self.source.choice(self.ended))
        steps = super()._begin(0, self.now + 1)
        self.live.remove(steps)
        self.world.begin(present)
        try:
            for _ in steps:
                pass
        except IdentityMismatch:
            return
        raise ViolationError("an epoch that has ended was taken up")

    def _begin(self, first: int, last: int) -> Steps:
        if self._stored() != self.world.scope.epoch:
            raise ViolationError(f"tasks follow epoch {self._stored()!r}")
        return super()._begin(first, last)

    def _begin_epoch(self) -> None:
        super()._begin_epoch()
        self._order()

    def _order_again(self) -> None:
        """Lose with the cursor, and with a restored database, all that no event holds yet; then the
        operator gives the same command again."""
        events = map(json.loads, self.journal.events)
        told = any(epoch_of(event) == self.world.scope.epoch for event in events)
        if self._stored() == self.world.scope.epoch:
            return
        if told:
            raise ViolationError(f"the group was thrown back into {self._stored()!r}")
        self._order()

    def _order(self) -> None:
        store = MemoryOffsetStore(self.journal, task="operator")
        before = store.load_cursor()
        known = epochs_of(before, store.newest_position(), store.recent_events())
        document = epoch_document(
            ("c1", TOPIC, "g1"),
            self.world.scope.epoch,
            "earliest",
            known,
            before=before,
            by="operator",
            source="tubemq",
        )
        self.ended = past_epochs(document)
        store.store_cursor(document)

    def _stored(self) -> str:
        return stored_epoch(MemoryOffsetStore(self.journal, task="any"), chained=False)


class LostBoundaries(TimeHistory):
    """A history whose lake loses boundaries at any moment, all or some, and may get them back. An
    operator takes back those that an error names."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.kept: list[dict[str, Document]] = []
        self.losses = self.advised = 0

    @cached_property
    def moves(self) -> list[Callable[[], None]]:
        return [*super().moves, self.lose_boundaries, self.get_back]

    def lose_boundaries(self) -> None:
        """All that is in `_boundaries`, or some of its files."""
        if self.source.randrange(2):
            return
        fixed, self.losses = self.book.fixed, self.losses + 1
        self.kept.append(dict(fixed))
        share = self.source.choice((1.0, 1.0, 0.5, 0.2))
        for key in [key for key in fixed if self.source.random() < share]:
            del fixed[key]

    def get_back(self) -> None:
        """Mount a directory again with its files, or copy files back."""
        if not self.kept or self.source.randrange(2):
            return
        old, fixed = self.source.choice(self.kept), self.book.fixed
        self.book.fixed = self.source.choice((dict(old), {**fixed, **old}, {**old, **fixed}))

    def _advance(self, steps: Steps) -> bool:
        try:
            return super()._advance(steps)
        except MarkerConflict:  # another run has published the window, with other boundaries
            self.live = [other for other in self.live if other is not steps]
            return False

    def follow(self, error: Exception) -> bool:
        found = re.search(r"offsets unfix .* --instant ([^' ]+)'", str(error))
        if found is None or self.nested:
            return False
        self.live.clear()  # no task may run
        instant, book = parse_instant(found[1]), ScopeBook(self.book, self.world.scope)
        if not book.has(instant):
            return True  # lost meanwhile: the command reports it, and another try continues
        try:
            check_untouched(self.sink, self.world.scope, book, instant, [], option="--ended")
        except (ConfigError, BoundaryConflict) as exc:
            raise ViolationError(f"advice that does not work: {error}: {exc}") from exc
        book.withdraw(instant)
        self.advised += 1
        return True

    def finish(self) -> None:
        """Finish with the commands that errors advise."""
        for _ in range(50):
            try:
                super().finish()
            except ViolationError as violation:
                cause = violation.__cause__
                if not isinstance(cause, BoundaryConflict) or not self.follow(cause):
                    raise
            else:
                return
        raise ViolationError("advice without end")

    def _book(self) -> ScopeBook:
        book = super()._book()
        book.compare(PublishedWindows(self.sink, self.world.scope))
        return book


class LostInAnyLife(LostBoundaries, TimeLives):
    """The same while the topic is recreated, once a window is published that knows its logs: what
    was planned before, and never published, knows of no other life."""

    def lose_boundaries(self) -> None:
        own = self.world.scope.scope_hash
        if any(plan.scope_hash == own for plan in self.sink.plans()):
            super().lose_boundaries()

    def _begin_epoch(self) -> None:
        """Only once no task runs: one that lost what it knew of the life before would continue."""
        if not self.nested:
            super()._begin_epoch()


def _store(key: str) -> tuple[int, int]:
    return Partition.from_key(TOPIC, key).store_key


__all__ = ["LostBoundaries", "LostInAnyLife", "OrderedLives", "TimeLives"]
