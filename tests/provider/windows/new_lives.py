"""Random histories in which logs are recreated and the metadata database is restored.

Every record has a number that never comes again, so a record of any life can be counted. Runs fail
when they see another life; then an operator does what the error says: begins an epoch if the whole
topic is new, and lets the regressed partitions start over if one broker lost its disk.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.provider.windows.exploration import (
    History,
    Task,
    Try,
    TryStore,
    ViolationError,
)
from tests.provider.windows.world import ENTRY, Log, MemoryEngine, Record, World
from tubemq_client.errors import LogRegression, LogTruncated
from tubemq_client.model import Anchor, OffsetRange, Partition
from tubemq_provider.windows.cursor import epoch_of, past_epochs
from tubemq_provider.windows.errors import IdentityMismatch
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import Document, IngestCounts, IngestWatch, Staging
from tubemq_provider.windows.run.epochs import stored_epoch

Store = tuple[int, int]


@dataclass
class LivingLog(Log):
    """A log whose records are numbered over all lives, and which answers as brokers do."""

    numbers: dict[Store, list[int]] = field(default_factory=dict)
    count: int = 0
    asked: int = 0

    def append(self, key: str, count: int = 1) -> None:
        super().append(key, count)
        for _ in range(count):
            self.count += 1
            self.numbers.setdefault(_store(key), []).append(self.count)

    def begin_anew(self, *stores: Store) -> None:
        for store in stores:
            self.entries[store], self.numbers[store] = [], []

    def records(self, plan: WindowPlan) -> Iterator[Record]:
        for key, offset in super().records(plan):
            yield key, self.numbers[_store(key)][offset // ENTRY]

    def all_records(self) -> Iterator[Record]:
        for store, owners in self.entries.items():
            yield from zip(owners, self.numbers[store], strict=True)

    def first_record(self, range_: OffsetRange) -> Anchor | None:
        return next(self._anchors(range_), None)

    def holds(self, partition: Partition, anchor: Anchor, upto: int) -> bool:
        self.asked += 1
        return anchor in self._anchors(OffsetRange(partition, anchor.offset, upto))

    def last_records(self, plan: WindowPlan) -> dict[str, Anchor]:
        found = {}
        for range_ in plan.reads():
            for anchor in self._anchors(range_):
                found[range_.partition.key] = anchor
        return found

    def _anchors(self, range_: OffsetRange) -> Iterator[Anchor]:
        key, store = range_.partition.key, range_.partition.store_key
        owners = self.entries.get(store, [])
        for index in range(range_.start // ENTRY, min(range_.end // ENTRY, len(owners))):
            if owners[index] == key:
                yield Anchor(index * ENTRY, self.numbers[store][index], 0)


def _store(key: str) -> Store:
    return Partition.from_key("orders", key).store_key


@dataclass
class LivingEngine(MemoryEngine):
    """Reports the last records it read, and refuses what lies beyond a log, as real engines do."""

    log: LivingLog

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
        for range_ in plan.reads():
            store = range_.partition.store_key
            if range_.end > len(self.log.entries.get(store, [])) * ENTRY:
                raise LogTruncated(f"the log ends before {range_.end}, where its range does")
        last = self.log.last_records(plan)
        counts = super().ingest(plan, staging, watch)
        return IngestCounts(counts.records, counts.bytes, last=last)


@dataclass
class Lives(History):
    """Histories with lives. `witnessed` False plants the mistake that no run asks the logs, `dated`
    False that an epoch does not say what was known when it was decided."""

    witnessed: bool = True
    dated: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.log = LivingLog()
        self.world = World(log=self.log, sink=self.sink)
        self.world.engine = LivingEngine(self.log, self.sink)
        self.log.append("1:0", 2)
        self.log.append("2:0", 2)
        self.resets = False
        self.saved: list[object] = []

    def _actions(self) -> list[Callable[[int], None]]:
        return [
            *[self.step_one] * 7,
            self.step_zombie,
            *[self.start_task] * 2,
            self.retry,
            self.kill,
            *[self.append] * 2,
            self.make_anew,
            self.lose_a_disk,
            self.save_or_restore,
        ]

    # -- what can happen besides ----------------------------------------------------------------

    def make_anew(self, which: int) -> None:
        """Recreate the topic; mostly its log grows at once past its old end."""
        self._anew(which, *self.log.entries)

    def lose_a_disk(self, which: int) -> None:
        stores = sorted(self.log.entries)
        self._anew(which, stores[which % len(stores)])

    def _anew(self, which: int, *stores: Store) -> None:
        was = {store: len(self.log.entries[store]) for store in stores}
        self.log.begin_anew(*stores)
        for key in ("1:0", "2:0"):
            if which % 4 and _store(key) in was:
                self.log.append(key, was[_store(key)] + which % 3)

    def save_or_restore(self, which: int) -> None:
        """Back up the metadata database, or restore an old backup."""
        journal = self.world.journal
        if not self.saved or which % 3:
            self.saved.append(copy.deepcopy(vars(journal)))
        else:
            present = stored_epoch(TryStore(journal, self, "operator"))
            vars(journal).update(copy.deepcopy(self.saved[which % len(self.saved)]))
            if stored_epoch(TryStore(journal, self, "operator")) != present:
                self._order(present)  # as docs/offsets.md says

    # -- runs -------------------------------------------------------------------------------------

    def _new_try(self, task: Task) -> None:
        self.attempts += 1
        task.tries += 1
        store, world = self.store_of(task), self.world
        world.begin(stored_epoch(store))
        planner = world.planner(
            max_records=(None, 3)[self.attempts % 2],
            serialised=False,
            witness=self.log if self.witnessed else None,
            policies={"on_offset_regression": "reset_to_start"} if self.resets else {},
        )
        self.resets = False  # the policy is for one run
        run = self.make_run(planner, store, world.sink, world.engine, attempt=f"a{self.attempts}")
        task.current = Try(run.steps(), store)

    def _step(self, task: Task, actor: Try) -> None:
        try:
            super()._step(task, actor)
        except LogRegression as error:
            self._end(task, actor)
            # The engine's own word is no advice: the next try's planning gives it.
            if not actor.store.superseded and "offsets epoch" in str(error):
                self._follow(str(error))
        except IdentityMismatch as error:
            self._end(task, actor)
            if "has ended" not in str(error):
                raise  # else its epoch has, and the next try takes the present one

    def _follow(self, advice: str) -> None:
        """Follow the message: an epoch if the topic is new, a reset if one disk is."""
        assert "offsets epoch c1/orders/g1" in advice
        if {key.split(":")[0] for key in ("1:0", "2:0") if f"partition {key}" in advice} == {
            "1",
            "2",
        }:
            (seen,) = re.findall(r"--seen (\S+)", advice)
            self._begin_epoch(seen)
        else:
            self.resets = True

    def _begin_epoch(self, seen: str) -> None:
        journal = self.world.journal
        newest = [json.loads(journal.cursor)] if journal.cursor else []
        newest += [json.loads(event) for event in journal.events[-1:]]
        past = max((past_epochs(item) for item in newest), key=len, default=())
        present = next((epoch_of(item) for item in newest if past_epochs(item) == past), "")
        ended = list(dict.fromkeys([*past, present]))
        self._order(f"life-{len(ended)}", seen)

    def _order(self, epoch: str, seen: str = "") -> None:
        """Run the command that begins an epoch, or begins it again after a restore."""
        names = ["", *(f"life-{number}" for number in range(1, 100))]
        order: Document = {"v": 1, "epoch": epoch, "past": names[: names.index(epoch)], "seq": 0}
        order |= {"seen": seen} if seen and self.dated else {}
        self.world.journal.cursor = json.dumps({**order, "begin": "earliest", "rev": 1})
        self.tasks.clear()  # "stop its tasks first"

    # -- what must hold -------------------------------------------------------------------------

    def check(self) -> None:
        """No record of any life is there twice."""
        found = {window_id: id(marker) for window_id, (marker, _) in self.sink.windows.items()}
        if found == self.checked:
            return
        self.checked = found
        twice = [record for record, count in self.sink.records().items() if count > 1]
        if twice:
            raise ViolationError(f"records twice: {twice}")

    def check_advance(self, seen: Document | None, stored: Document) -> None:
        """Cursors of several epochs are not compared."""

    def finish(self) -> None:
        """Undisturbed runs, and an operator who follows advice, bring in all that there is."""
        self.tasks.clear()
        for _ in range(len(list(self.log.all_records())) + 20):
            task = Task(f"solo-{self.attempts}")
            self.tasks.append(task)
            self._new_try(task)
            while task.current is not None:
                self._step(task, task.current)
                self.check()
            newest = self.world.journal.events[-1:] if task.succeeded else []
            if newest and "window_id" not in json.loads(newest[0]):
                break
        else:
            raise ViolationError("the group never reached the end of the log")
        held = self.sink.records()
        if missing := [record for record in self.log.all_records() if record not in held]:
            raise ViolationError(f"lost, in a run that ended green: {missing}")


__all__ = ["Lives", "LivingLog", "TryStore"]
