"""Random histories in which a lake loses windows, and lake and progress come back older.

A lake loses the windows that were published last, its oldest ones (which is what retention does) or
some; it is restored from a copy, or is away for a while; progress is restored from a backup, alone
or with the lake. All that happens while no task is under way. A user does what an error says. What
must hold: nothing is published behind a window that counts as the newest and is not in the lake, no
record is there twice, all are there at the end but what the lake has lost and no command asked for
again, and no error is raised where nothing was lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.provider.windows.exploration import (
    Claimed,
    History,
    Task,
    Try,
    ViolationError,
)
from tests.provider.windows.world import Record
from tubemq_client.errors import TubeMQError
from tubemq_provider.ingest.maintenance import epoch_document, epochs_of
from tubemq_provider.offsets.position_reset import moved, standing
from tubemq_provider.windows.cursor import Position, is_by_hand, newer_position
from tubemq_provider.windows.plan import WindowPlan, cursor_window_of
from tubemq_provider.windows.planning.claims import Claim, rebuilt

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ASSET = "c1/orders/g1"
MAX_ERRORS = 40


@dataclass
class Copy:
    """Lake and progress as they were once, and which windows progress counts as published."""

    windows: dict[str, Any]
    cursor: str | None
    plans: dict[str, str]
    events: list[str]


@dataclass
class LostLakes(History):
    """Histories of one cursor. `wipes` takes asset state as ever; events stay."""

    purges: bool = False
    copies: list[Copy] = field(default_factory=list)
    stash: dict[str, Any] | None = None
    published: dict[str, int] = field(default_factory=dict)
    lost: dict[Record, int] = field(default_factory=dict)
    excused: bool = False
    answers: int = 0
    told: list[str] = field(default_factory=list)
    happened: set[str] = field(default_factory=set)

    def _actions(self) -> list[Callable[[int], None]]:
        """Lost lakes take the places of rare events, so that numbers stay equal."""
        return [
            *[self.step_one] * 6,
            self.step_zombie,
            self.start_task,
            self.retry,
            self.kill,
            self.clear_task,
            *[self.append] * 2,
            self.wipe,
            self.copy,
            self.damage,
            self.damage,
        ]

    # -- what happens to the lake ---------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return any(task.current or task.zombies for task in self.tasks)

    def damage(self, which: int) -> None:
        """One of the moves of this model, once nothing is under way."""
        for task in self.tasks:
            task.current = None
            task.zombies.clear()
        moves = [
            self.lose_newest,
            self.lose_oldest,
            self.lose_some,
            self.restore_lake,
            self.go_away,
            self.restore_progress,
            self.restore_both,
            self.obey,
        ]
        what = which % len(moves)
        self.come_back()
        moves[what](which // len(moves))
        self.told.clear()  # what was said before may be of no use now
        self.happened.add(moves[what].__name__)
        self.checked = dict.fromkeys(self.sink.windows, 0)

    def copy(self, _: int) -> None:
        if not self.busy and self.stash is None:
            self.copies = [*self.copies[-2:], self._now()]

    def lose_newest(self, which: int) -> None:
        """Return the windows that were published last."""
        self._lose(self._by_age()[-1 - which % 3 :])

    def lose_oldest(self, which: int) -> None:
        """By age, but never the one that progress counts as the newest."""
        excused, newest = self.excused, self.newest()
        old = self._by_age()[: which % 4]
        self._lose(old[: old.index(newest)] if newest in old else old)
        self.excused = excused

    def lose_some(self, which: int) -> None:
        there = self._by_age()
        if there:
            self._lose([there[which % len(there)]])

    def restore_lake(self, which: int) -> None:
        if self.copies:
            older = self.copies[which % len(self.copies)].windows
            self._lose([name for name in self.sink.windows if name not in older])

    def go_away(self, _: int) -> None:
        """Until the next move; a run meanwhile finds an empty place."""
        self.stash, self.excused = dict(self.sink.windows), True
        self.sink.windows.clear()

    def come_back(self) -> None:
        if self.stash is not None:
            # A group of which progress knows no window yet begins again meanwhile.
            self._lose([name for name in self.sink.windows if name not in self.stash])
            self.sink.windows.clear()
            self.sink.windows.update(self.stash)
            self.stash = None
            self.told.clear()  # errors of an empty place are not for the lake
            self.checked = dict.fromkeys(self.sink.windows, 0)

    def restore_progress(self, which: int) -> None:
        if self.copies:
            self._restore(self.copies[which % len(self.copies)])
            self.excused = True

    def restore_both(self, which: int) -> None:
        """Of one moment: what was published since is read again, into windows that are new."""
        if self.copies:
            copy = self.copies[which % len(self.copies)]
            gone = {name for name in copy.windows if name not in self.sink.windows}
            if gone:
                return
            self._restore(copy)
            for name in [name for name in self.sink.windows if name not in copy.windows]:
                del self.sink.windows[name]

    def _restore(self, copy: Copy) -> None:
        journal = self.world.journal
        journal.cursor, journal.events = copy.cursor, list(copy.events)
        journal.plans = dict(copy.plans)
        journal.task_plans.clear()
        self.tasks.clear()

    def _now(self) -> Copy:
        journal = self.world.journal
        return Copy(
            dict(self.sink.windows), journal.cursor, dict(journal.plans), list(journal.events)
        )

    def _by_age(self) -> list[str]:
        return sorted(self.sink.windows, key=lambda name: self.published[name])

    def _lose(self, names: Iterable[str]) -> None:
        for name in list(names):
            _, records = self.sink.windows.pop(name)
            self.lost.update(dict.fromkeys(records, 1))
            self.excused = True

    # -- what must hold -------------------------------------------------------------------------

    def newest(self) -> str | None:
        """Return the window published last of those that progress counts, unless a person has
        said otherwise since."""
        journal = self.world.journal
        cursor = json.loads(journal.cursor) if journal.cursor else None
        event = json.loads(journal.events[-1]) if journal.events else None
        newer = newer_position(cursor, event)
        if newer is None or is_by_hand(newer) or newer.get("h") != self.world.scope.scope_hash:
            return None
        # Windows of runs that died may lead on from there.
        seq = newer["seq"]
        while self.world.id(seq + 1) in self.checked:
            seq += 1
        return self.world.id(seq) if seq else None

    def wipe(self, which: int) -> None:
        """Forbid the loss of a position set by hand before the next window has it."""
        cursor = json.loads(self.world.journal.cursor or "{}")
        if "begin" not in cursor and not is_by_hand(cursor):
            super().wipe(which)
            self.told.clear()  # what was said of the position is of no use without one

    def check(self) -> None:
        new = [name for name in self.sink.windows if name not in self.checked]
        newest = self.newest()
        if new and newest is not None and newest not in self.sink.windows:
            raise ViolationError(f"{new} was published, and {newest} is not in the lake")
        for name in new:
            self.published[name] = max(self.published.values(), default=0) + 1
        problems = self._sink_problems()
        if problems:
            raise ViolationError("; ".join(problems))

    def _sink_problems(self) -> list[str]:
        found = super()._sink_problems()
        self.checked = {name: id(marker) for name, (marker, _) in self.sink.windows.items()}
        return found

    def chain_problems(self, plans: list[WindowPlan]) -> list[str]:
        """Windows of an epoch fit where both neighbours are there, and nothing was set between."""
        return [] if self.answers else Claimed.chain_problems(self, plans)  # type: ignore[arg-type]

    def check_advance(self, seen: Any, stored: Any) -> None:
        """Windows on the way may be lost by now."""
        if seen is not None and stored["seq"] < seen["seq"] and "begin" not in seen:
            raise ViolationError(f"the cursor went from {seen['seq']} to {stored['seq']}")

    def _step(self, task: Task, actor: Try) -> None:
        try:
            super()._step(task, actor)
        except ViolationError:
            raise
        except TubeMQError as exc:
            self._end(task, actor)
            if not self.excused and not any(
                name in str(exc) for name in self.published.keys() - self.sink.windows.keys()
            ):
                raise ViolationError(f"nothing was lost: {type(exc).__name__}: {exc}") from exc
            self.told.append(str(exc))

    # -- what errors say ------------------------------------------------------------------------

    def obey(self, which: int) -> None:
        """Do what the newest error says, if it says how to continue."""
        if not self.told or self.stash is not None:
            return
        text = self.told.pop()
        commands = re.findall(r"offsets (set|epoch) \S+(?: <name>)?(?: --\w+ '(.*?)')?", text)
        commands = [(name, given) for name, given in commands if not given.startswith("<")]
        if "offsets rebuild" in text:
            self.rebuild()
        elif commands and "Give offsets that no window has" not in text:
            command, given = commands[which % len(commands)]
            self.command(command, json.loads(given) if given else None)
        self.told.clear()

    def command(self, command: str, offsets: dict[str, int] | None) -> None:
        journal = self.world.journal
        cursor = json.loads(journal.cursor) if journal.cursor else None
        event = json.loads(journal.events[-1]) if journal.events else None
        if command == "set":
            if offsets is None:
                raise ViolationError("offsets set without offsets")
            here = standing(cursor, event, ASSET, self.world.scope.space)
            if here.get("pending") or here.get("done"):
                raise ViolationError("offsets set is refused where windows are claimed")
            after = moved(here, event, offsets, by="operator", now=NOW)
        else:
            name = f"life-{self.attempts}-{self.answers}"
            known = epochs_of(cursor, event)
            begin = offsets or "earliest"
            names = ("c1", "orders", "g1")
            after = epoch_document(
                names, name, begin, known, before=cursor, by="operator", source="tubemq"
            )
            self.world.begin(name)
            offsets = offsets or {}
        self.answers += 1
        journal.cursor = json.dumps(after)
        self.copies.clear()  # what was before has been given up
        self._read_from(offsets)

    def _read_from(self, offsets: dict[str, int]) -> None:
        """All from there on is in later windows, and nothing before is asked for again."""
        there = self.sink.records()
        self.lost = {
            (key, at): 1
            for key, at in self.world.log.all_records()
            if at < offsets.get(key, 0) and (key, at) not in there
        }

    def rebuild(self) -> None:
        raise ViolationError("there are no claims to rebuild")

    # -- the end --------------------------------------------------------------------------------

    def finish(self) -> None:
        """Restore the lake, and run fresh runs to their end as their errors advise."""
        self.come_back()
        self.tasks.clear()
        for number in range(MAX_ERRORS + len(list(self.world.log.all_records()))):
            task = Task("solo-" + str(self.attempts))
            self.tasks.append(task)
            self.told.clear()
            self._new_try(task)
            while task.current is not None:
                self._step(task, task.current)
                self.check()
            if self.told:
                self.obey(number)
                continue
            newest = self.world.journal.events[-1:]
            if newest and json.loads(newest[0]).get("window_id") is None:
                break
        else:
            raise ViolationError(f"never came to an end: {self.told}")
        self.judge()

    def judge(self) -> None:
        there = self.sink.records()
        missing = [
            (key, at)
            for key, at in self.world.log.all_records()
            if (key, at) not in there and (key, at) not in self.lost and at >= self._begin(key)
        ]
        if missing:
            raise ViolationError(f"records are in no window, and nobody was told: {missing}")

    def _begin(self, key: str) -> int:
        """Return the first position of the group."""
        return int(max(position[key] for position in self._firsts()) if self._firsts() else 0)

    def _firsts(self) -> list[dict[str, int]]:
        return [{"1:0": 28, "1:1": 0, "2:0": 28}]


class LostLakesOfClaims(LostLakes, Claimed):
    """The same with claims. The ledger is not wiped."""

    def wipe(self, which: int) -> None:
        """Restore an older ledger, never none."""

    def newest(self) -> str | None:
        """By the time of publication: numbers do not tell."""
        document = json.loads(self.world.journal.cursor or "{}")
        if "next" not in document or is_by_hand(document):
            return None
        if document["h"] != self.world.scope.scope_hash:
            return None
        seqs = range(1, document["seq"] + 1)
        counted = {*map(self.world.id, seqs), *document.get("done", ())} & self.published.keys()
        return max(counted, key=lambda name: self.published[name], default=None)

    def rebuild(self) -> None:
        """Do what the command does."""
        journal = self.world.journal
        cursor = json.loads(journal.cursor or "{}")
        event = json.loads(journal.events[-1]) if journal.events else None
        where = event["position"] if event else cursor
        if (event or cursor).get("epoch", "") != self.world.scope.epoch:
            where = cursor
        own = self.world.scope.scope_hash
        plans = [
            marker.plan
            for name, (marker, _) in self.sink.windows.items()
            if (found := cursor_window_of(name)) and found[1] == own
        ]
        claims = [
            Claim(WindowPlan.from_document(value["plan"], where=key), value["by"], value["at"])
            for key, value in cursor.get("pending", {}).items()
        ]
        position = Position(where["seq"], where["next"], by_hand=is_by_hand(where))
        try:
            book = rebuilt(position, plans, claims).keeping(claims)
        except TubeMQError as exc:
            self.told.append(str(exc))
            return
        document = book.to_document(self.world.scope, NOW, "operator")
        document |= {"past": cursor["past"]} if cursor.get("past") else {}
        journal.cursor = json.dumps(document)
        self.copies.clear()
        self._read_from(dict(where["next"]))

    def finish(self) -> None:
        LostLakes.finish(self)
