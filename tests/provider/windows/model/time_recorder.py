"""Random histories of the real run of windows of time, recorded for the model to judge.

A step of a try continues to the next point that the model knows: planned, marker read, written,
boundaries compared, published, done. Where a boundary is fixed, the steps are finer: before a run
writes its turn, other tries may take steps.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.provider.windows.changing_worlds import EPOCH, HOUR, OfHours, hour
from tests.provider.windows.exploration import FencedError
from tests.provider.windows.model.player import KEYS, Log, LogEngine, TidySink, TryStore
from tests.provider.windows.world import ENTRY, TOPIC, MemoryBook, Record
from tubemq_client.errors import DataLoss
from tubemq_provider.offsets.memory import MemoryJournal
from tubemq_provider.windows.canonical import rfc3339
from tubemq_provider.windows.errors import StoreConflict
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.boundary_book import ScopeBook
from tubemq_provider.windows.planning.instants import Resolved
from tubemq_provider.windows.planning.overlaps import interval_of
from tubemq_provider.windows.protocols import Document, Marker
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.steps import WindowRun

Action = dict[str, Any]

HOURS, TASKS, RECORDS, TRIES = 3, 3, 6, 4

POINTS = (
    (("plan", "end"), "planned"),
    (("check_marker", "end"), "marker read"),
    (("ingest", "end"), "written"),
    (("publish", "intervals compared"), "compared"),
    (("publish", "end"), "published"),
)
"""Points of the real run at which a step of the model ends."""


@dataclass
class OldestBehind:
    """Resolver of the model: an instant is behind the last stable record that is older."""

    log: Log
    hours: Mapping[int, int]
    name = "model"
    exact = False

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        return self.resolve(instant).certain()

    def resolve(self, instant: datetime) -> Resolved:
        limit = (instant - EPOCH) // HOUR
        found = {}
        for key in self.log.keys:
            low, stable = self.log.low[key], self.log.stable[key]
            older = [
                offset
                for offset in range(low, stable)
                if self.hours[self.log.records[key][offset]] < limit
            ]
            found[key] = (older[-1] + 1 if older else low) * ENTRY
        return Resolved(found)


@dataclass
class Try:
    """A try that lives, and the points that it has still to reach."""

    task: int
    run: WindowRun
    store: TryStore
    points: list[tuple[tuple[str, str], str]] = field(default_factory=lambda: list(POINTS))

    def __post_init__(self) -> None:
        self.steps = self.run.steps()

    @property
    def next_point(self) -> str:
        return self.points[0][1] if self.points else "done"


class TimeRecorder:
    """Plays what the dice say, as far as the model can do it, and keeps the trace."""

    def __init__(self, seed: int, length: int = 60) -> None:
        self.dice = random.Random(seed)
        self.rate = (0.0, 0.04, 0.1)[seed % 3]
        self.length = length
        self.log = Log(1 + seed % 2)
        self.partitions = self.log.partitions
        self.hours: dict[int, int] = {}
        self.book = MemoryBook()
        self.sink = TidySink(boundary_book=self.book)
        self.journal = MemoryJournal()
        self.scope = WindowScope("c1", TOPIC, "g1", self.sink.identity)
        self.now = 0
        self.tasks: dict[int, int] = {}
        self.tried = dict.fromkeys(range(TASKS), 0)
        self.tries: dict[int, Try] = {}
        self.attempts = 0
        self.busy: list[int] = []
        self.actions: list[Action] = []
        self._hours: dict[str, int] = {}
        self._parts: dict[str, Any] = {"fixed": {}, "lake": {}, "accepted": []}
        self._book_of_parts: dict[str, Document] = {}
        self._windows_of_parts: list[tuple[str, tuple[Marker, list[Record]]]] = []
        self._events_of_parts: tuple[str, ...] = ()

    def trace(self) -> dict[str, Any]:
        """Return the history of a seed, as the model reads it."""
        while len(self.actions) < self.length and (action := self.choose()):
            self.act(action)
        return {"time": True, "partitions": self.partitions, "actions": self.actions}

    def act(self, action: Action) -> None:
        if action["do"] == "step":
            self.step(self.tries[action["task"]])
            return
        self.apply(action)
        self.note(action)

    def note(self, action: Action) -> None:
        self.actions.append({**action, "after": self.seen()})

    # -- what can happen ----------------------------------------------------------------------

    def choose(self) -> Action | None:
        """Return an action that the model can take here; None if there is none."""
        if self.dice.random() < self.rate and (faults := list(self.faults())):
            return self.dice.choice(faults)
        steps = [{"do": "step", "task": task} for task in self.tries]
        if steps and self.dice.random() < 0.7:
            return self.dice.choice(steps)
        choices = list(self.others()) or steps
        return self.dice.choice(choices) if choices else None

    def others(self) -> Iterator[Action]:
        if self.log.count < RECORDS:
            for partition in range(self.log.partitions):
                late = self.dice.choice((0, 0, 1, 2))
                yield {
                    "do": "append",
                    "partition": partition,
                    "hour": max(0, min(self.now, HOURS - 1) - late),
                    "synced": self.dice.random() < 0.7,
                }
        if self.now < HOURS:
            yield {"do": "hour"}
        if self.log.partitions < len(KEYS):
            yield {"do": "add partition"}
        for task in range(TASKS):
            turn = task == 0 or self.tried[task - 1]
            if turn and not self.tried[task] and self.now:
                yield {"do": "start", "task": task, "hour": self.dice.randrange(self.now)}
            elif 0 < self.tried[task] < TRIES and task not in self.tries and self._again(task):
                yield {"do": "retry", "task": task}

    def _again(self, task: int) -> bool:
        """Return whether a task that has ended is tried again: seldom, if it has succeeded."""
        return self.tasks[task] not in self.lake() or self.dice.random() < 0.1

    def faults(self) -> Iterator[Action]:
        if not any(one.next_point == "published" for one in self.tries.values()):
            book = ScopeBook(self.book, self.scope)
            instants = [(at - EPOCH) // HOUR for at in book.instants()]
            yield from ({"do": "lose boundary", "instant": number} for number in instants)
            if len(instants) > 1:
                yield {"do": "lose boundaries"}
        yield from ({"do": "lose window", "hour": number} for number in self.lake())
        if self.journal.task_plans or self.journal.plans:
            yield {"do": "wipe"}
        if self.journal.events:
            yield {"do": "purge"}
        if any(self.log.stable[key] < len(self.log.records[key]) for key in KEYS):
            yield {"do": "crash"}
        for number, key in enumerate(self.log.keys):
            if self.log.low[key] < self.log.stable[key]:
                yield {"do": "retain", "partition": number}

    def apply(self, action: Action) -> None:
        name = action["do"]
        if name in {"start", "retry"}:
            self.begin(action["task"], action.get("hour"))
        elif name == "append":
            self.hours[self.log.count] = action["hour"]
            self.log.append(KEYS[action["partition"]], synced=action["synced"])
        elif name == "hour":
            self.now += 1
        elif name == "add partition":
            self.log.partitions += 1
        elif name == "lose window":
            del self.sink.windows[self.window_id(action["hour"])]
            self.tries.clear()
        elif name == "lose boundary":
            self.forget(hour(action["instant"]))
        elif name == "lose boundaries":
            self.book.fixed.clear()
        elif name == "wipe":
            self.journal.task_plans.clear()
            self.journal.plans.clear()
        elif name == "purge":
            self.journal.events.clear()
        elif name == "crash":
            self.log.crash()
        else:
            self.log.low[KEYS[action["partition"]]] += 1

    def forget(self, instant: datetime) -> None:
        """Lose the boundary at `instant`, with the turn in which it was fixed."""
        for key, document in list(self.book.fixed.items()):
            if document.get("boundary", document).get("instant") == rfc3339(instant):
                del self.book.fixed[key]

    def begin(self, task: int, number: int | None) -> None:
        self.tried[task] += 1
        self.attempts += 1
        self.tasks.setdefault(task, 0 if number is None else number)
        first = self.tasks[task]
        planner = OfHours(
            self.scope,
            hour(first),
            hour(first + 1),
            OldestBehind(self.log, self.hours),
            self.log.ends,
            self.book,
        )
        planner.books = self.books(task)
        store = TryStore(self.journal, str(task), fenced=True)
        engine = LogEngine(self.log, self.sink)
        run = window_run(planner, store, self.sink, engine, attempt=f"try-{self.attempts}")
        self.tries[task] = Try(task, run, store)

    def books(self, task: int) -> type[ScopeBook]:
        """Return a book that lets other tries act right before a turn is written."""
        recorder = self

        class Interrupted(ScopeBook):
            def _take_turn(self, instant: datetime, document: Document) -> bool:
                step = {"do": "step", "task": task, "zombie": False}
                recorder.note({**step, "point": "fitted"})
                recorder.interrupt(task)
                taken = super()._take_turn(instant, document)
                recorder.note({**step, "point": "turn"})
                return taken

        return Interrupted

    def interrupt(self, task: int) -> None:
        """Let another try take a step, unless it would publish: listings are a moment old."""
        others = [
            one
            for one in self.tries.values()
            if one.task != task
            and one.task not in self.busy
            and one.next_point not in {"published", "done"}
        ]
        if others and self.dice.random() < 0.5:
            self.step(self.dice.choice(others))

    # -- steps --------------------------------------------------------------------------------

    def step(self, one: Try) -> None:
        """Take a step of the model: to the next point that it knows, or to the end."""
        action = {"do": "step", "task": one.task, "zombie": False}
        self.busy.append(one.task)
        try:
            point = self._step(one)
        except StopIteration:
            one.store.succeed()
            point = "done"
        except Exception as error:  # noqa: BLE001 - the model says which
            point = f"error: {_kind(error)}"
        finally:
            self.busy.remove(one.task)
        if point == "done" or point.startswith("error: "):
            del self.tries[one.task]
        self.note({**action, "point": point})

    def _step(self, one: Try) -> str:
        if not one.points:
            while True:
                next(one.steps)
        wanted, name = one.points.pop(0)
        while True:
            reached = next(one.steps)
            if (reached.step, reached.point) == wanted:
                break
        if name in {"marker read", "written"} and one.run._now.marker is not None:
            one.points.clear()  # another run has published the window
        return name

    # -- what everybody can see ---------------------------------------------------------------

    def window_id(self, number: int) -> str:
        return next(name for name in self.sink.windows if self._hour(name) == number)

    def _hour(self, window_id: str) -> int:
        number = self._hours.get(window_id)
        if number is None:
            interval = interval_of(window_id, self.scope.scope_hash)
            assert interval is not None
            number = self._hours[window_id] = (interval[0] - EPOCH) // HOUR
        return number

    def lake(self) -> list[int]:
        return sorted(self._hour(name) for name in self.sink.windows)

    def seen(self) -> dict[str, Any]:
        """Return what everybody can see. Parts that have not changed are the same objects."""
        if self.book.fixed != self._book_of_parts:
            book = ScopeBook(self.book, self.scope)
            hours = {(at - EPOCH) // HOUR: book.at(at) for at in book.instants()}
            self._parts["fixed"] = {str(number): _offsets(at) for number, at in hours.items()}
            self._book_of_parts = dict(self.book.fixed)
        windows = list(self.sink.windows.items())
        if windows != self._windows_of_parts:
            self._parts["lake"] = {
                str(self._hour(name)): _window(marker, records)
                for name, (marker, records) in windows
            }
            self._windows_of_parts = windows
        if (accepted := tuple(self.journal.events)) != self._events_of_parts:
            named = (json.loads(event)["window_id"] for event in accepted)
            self._parts["accepted"] = sorted(set(map(self._hour, named)))
            self._events_of_parts = accepted
        return dict(self._parts)


def _window(marker: Marker, records: Sequence[Record]) -> dict[str, Any]:
    ranges = marker.plan.ranges
    return {
        "start": _offsets({key: low for key, (low, _) in ranges.items()}),
        "end": _offsets({key: high for key, (_, high) in ranges.items()}),
        "records": sorted(number for _, number in records),
    }


def _kind(error: Exception) -> str:
    if isinstance(error, DataLoss):
        return "data loss"
    return "again" if isinstance(error, StoreConflict | FencedError) else "refused"


def _offsets(offsets: Mapping[str, int]) -> dict[str, int]:
    return {str(KEYS.index(key)): offset // ENTRY for key, offset in offsets.items()}
