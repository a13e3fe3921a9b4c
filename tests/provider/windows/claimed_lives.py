"""Random histories of claims over logs that are recreated, with an operator who follows advice.

All that `Lives` has, with runs side by side whose windows are published in any order. No task runs
while the metadata database is restored, and a restored ledger is rebuilt, as docs/guarantees.md
asks. Where an error names windows that were claimed and never written, the operator begins behind
them and knows that they are left out; those records alone may be missing at the end.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from tests.provider.windows.exploration import (
    Claimed,
    ClaimTry,
    Task,
    Try,
    TryStore,
    ViolationError,
)
from tests.provider.windows.new_lives import Lives
from tests.provider.windows.world import ENTRY, Record
from tubemq_provider.windows.cursor import epoch_of, position_of_event
from tubemq_provider.windows.errors import MarkerConflict, SinkHistoryLost
from tubemq_provider.windows.planning.claims import ClaimBook, rebuilt
from tubemq_provider.windows.run.epochs import stored_epoch

_LEFT_OUT = ("never written", "left out before")


@dataclass
class ClaimedLives(Lives):
    """A history of claims and of lives. `rebuilds` False plants the mistake that a restored
    ledger is used as it is."""

    rebuilds: bool = True
    told: set[Record] = field(default_factory=set)
    finishing: bool = False
    seen: dict[str, str] = field(default_factory=dict)
    by_hand: set[str] = field(default_factory=set)

    def store_of(self, task: Task) -> TryStore:
        return ClaimTry(self.world.journal, self, task.name)

    def is_over(self, claimant: str) -> bool:
        """Return True if the task has ended for good; at the end none is tried again."""
        if self.finishing:
            return not any(task.current for task in self.tasks if task.name == claimant)
        return Claimed.is_over(self, claimant)  # type: ignore[arg-type]

    def save_or_restore(self, which: int) -> None:
        restores = bool(self.saved) and not which % 3
        if (
            restores
            and stored_epoch(TryStore(self.world.journal, self, "operator")) in self.by_hand
        ):
            return  # offsets by hand are of the logs of then, and not promised twice
        if restores:
            self.tasks.clear()
        super().save_or_restore(which)
        if restores and self.rebuilds:
            self._rebuild()

    def _order(self, epoch: str, seen: str = "") -> None:
        """After a restore the same command is given as before, with what was seen then."""
        super()._order(epoch, self.seen.setdefault(epoch, seen))

    def _rebuild(self) -> None:
        """``offsets rebuild`` of a ledger that has a position; without one the next run does it."""
        journal = self.world.journal
        cursor = json.loads(journal.cursor) if journal.cursor else {}
        if "next" not in cursor:
            return
        store = TryStore(journal, self, "operator")
        self.world.begin(stored_epoch(store))
        scope = self.world.scope
        held = ClaimBook.from_document(cursor, scope)
        event = store.newest_position()
        known = held.position
        if event is not None and epoch_of(event) == scope.epoch:
            known = position_of_event(event, scope)
        plans = [plan for plan in self.sink.plans() if plan.scope_hash == scope.scope_hash]
        claims = held.in_order()
        try:
            book = rebuilt(known, plans, claims).keeping(claims)
        except MarkerConflict as error:
            self._begin_epoch(_seen(error))
            return
        if book.position.seq >= held.position.seq:
            kept = {key: value for key, value in cursor.items() if key != "last"}
            journal.cursor = json.dumps({**kept, **self._document(book)})

    def _document(self, book: ClaimBook) -> dict[str, object]:
        scope = self.world.scope
        return book.position.to_document(scope.scope_hash, scope.space) | book.claims_document()

    def _step(self, task: Task, actor: Try) -> None:
        try:
            super()._step(task, actor)
        except MarkerConflict as error:
            self._end(task, actor)
            if not actor.store.superseded:
                self._begin_epoch(_seen(error))
        except SinkHistoryLost as error:
            self._end(task, actor)
            if actor.store.superseded:
                return
            advice = str(error)
            if "begun anew during a run" in advice:
                return
            found = re.search(r"--begin '(\{.*?\})'", advice)
            if found is None or not any(words in advice for words in _LEFT_OUT):
                raise ViolationError(f"no advice: {error}") from error
            self._begin_at(json.loads(found[1]))

    def _begin_at(self, begin: dict[str, int]) -> None:
        seen = [number for _, number in self.sink.records()]
        # Planning has read single records of claims, too.
        seen += [a.message_id for plan in self.sink.plans() for a in plan.before.values()]
        newest = max(seen, default=0)
        for (key, number), offset in zip(self.log.all_records(), self._offsets(), strict=True):
            # A log that is newer than all that was read was not told of.
            if offset < begin.get(key, 0) and number <= newest:
                self.told.add((key, number))
        self._begin_epoch("")
        order = json.loads(self.world.journal.cursor or "{}")
        self.by_hand.add(order["epoch"])
        self.world.journal.cursor = json.dumps({**order, "begin": begin})
        # Offsets tell no log: they are of the one of now, so the next run is now.
        task = Task(f"at-once-{self.attempts}")
        self.tasks.append(task)
        self._new_try(task)
        while task.current is not None:
            self._step(task, task.current)

    def _offsets(self) -> list[int]:
        return [
            index * ENTRY for owners in self.log.entries.values() for index in range(len(owners))
        ]

    def finish(self) -> None:
        """Finish as the base class; every earlier task has ended, and skipped records may miss."""
        self.finishing = True
        try:
            super().finish()
        except ViolationError as error:
            if "lost" not in str(error):
                raise
            held = self.sink.records()
            lost = set(self.log.all_records()) - set(held) - self.told
            if lost:
                raise ViolationError(f"lost, in a run that ended green: {sorted(lost)}") from error


def _seen(error: MarkerConflict) -> str:
    found = re.search(r"--seen (\S+)", str(error))
    if found is None:
        raise ViolationError(f"no advice: {error}") from error
    return found[1]


__all__ = ["ClaimedLives"]
