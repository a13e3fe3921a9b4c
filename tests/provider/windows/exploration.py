"""Random histories of many runs over one group, with an oracle.

A history is a list of small integers; each picks what happens next: one action of a live try, a
kill, a retry beside a try that still lives (a zombie), a new run, a clear of an old one, new
records, a wipe of asset state, a purge of events. hypothesis shrinks such lists well. After every
action the oracle checks what must always hold; at the end one undisturbed run after the other must
bring the group to the end of the log.

`Claimed` plays the same with claims, where windows are published in any order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from tests.provider.windows.world import ENTRY, TOPIC, MemorySink, ReplacingMemorySink, World
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import Document
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.run.steps import StepPoint, WindowRun
from tubemq_provider.windows.verify import chain_problems

MAX_TASKS = 3
MAX_TRIES = 3
MAX_ZOMBIES = 2
BURSTS = (1, 3, 6, 10, 15, 40)
WIDTH = MAX_TASKS * len(BURSTS)
"""Number of values of a choice that differ in *who* acts and for how long."""

Steps = Generator[StepPoint, None, WindowResult]
MakeRun = Callable[..., WindowRun]
"""Takes what `WindowRun` takes."""


class ViolationError(AssertionError):
    """A history after which something is wrong that must never be."""


class FencedError(Exception):
    """A store refused the write of a try that was superseded."""


class FencedStore(MemoryOffsetStore):
    """A store as one try of a task sees it under Airflow: events wait for success, and writes of a
    superseded try are refused if `fenced`."""

    def __init__(self, journal: MemoryJournal, task: str, *, fenced: bool) -> None:
        super().__init__(journal, task=task)
        self.fenced = fenced
        self.superseded = False
        self.event: Document | None = None

    def store_cursor(self, document: Document) -> None:
        self._fence()
        super().store_cursor(document)

    def store_plan(self, window_id: str, document: Document) -> None:
        self._fence()
        super().store_plan(window_id, document)

    def store_task_plan(self, document: Document) -> None:
        self._fence()
        super().store_task_plan(document)

    def emit(self, document: Document) -> None:
        self.event = document

    def _fence(self) -> None:
        if self.superseded and self.fenced:
            raise FencedError


class TryStore(FencedStore):
    """The same for a random history: checks that the cursor only moves along published windows."""

    def __init__(self, journal: MemoryJournal, history: History, task: str) -> None:
        super().__init__(journal, task, fenced=history.fenced)
        self.history = history
        self.seen: Document | None = None

    def load_cursor(self) -> Document | None:
        self.seen = super().load_cursor()
        return self.seen

    def store_cursor(self, document: Document) -> None:
        self._fence()
        self.history.check_advance(self.seen, document)
        super().store_cursor(document)


@dataclass
class Try:
    """A live try of a task."""

    steps: Steps
    store: TryStore


@dataclass
class Task:
    """A task run: its current try, older tries that still act, and how often it was tried."""

    name: str
    current: Try | None = None
    zombies: list[Try] = field(default_factory=list)
    tries: int = 0
    succeeded: bool = False
    cleared: bool = False

    @property
    def given_up(self) -> bool:
        """Failed for good, and nothing of it lives any more."""
        alive = self.current is not None or self.zombies
        return not self.succeeded and self.tries >= MAX_TRIES and not alive


@dataclass
class History:
    """Plays a list of choices. `fenced`: superseded tries cannot write to stores (as in Airflow).

    `wipes` allows asset state to be wiped, `purges` commit events to be purged as well. Cleared
    tasks rewrite their window where the sink can.
    """

    make_run: MakeRun = window_run
    fenced: bool = True
    wipes: bool = True
    purges: bool = True
    sink: MemorySink = field(default_factory=MemorySink)

    initial_positions = ("earliest", {TOPIC: {"1:0": ENTRY, "1:1": 0, "2:0": ENTRY}})

    def __post_init__(self) -> None:
        self.world = World(sink=self.sink)
        self.tasks: list[Task] = []
        self.attempts = 0
        self.checked: dict[str, int] = {}
        self.world.log.append("1:0", 2)
        self.world.log.append("2:0", 2)
        self.actions = self._actions()

    # -- playing ------------------------------------------------------------------------------

    def play(self, choices: Iterable[int]) -> None:
        """Play all choices, then let every try die and see that the group recovers."""
        for choice in choices:
            self.act(choice)
            self.check()
        self.finish()

    def act(self, choice: int) -> None:
        """One thing happens: `choice` says what, and to whom."""
        which, what = divmod(choice, len(self.actions))
        self.actions[what](which)

    def finish(self) -> None:
        """Run alone: fresh runs must come to an end that holds every record once."""
        self.tasks.clear()
        for _ in range(len(list(self.world.log.all_records())) + 5):
            task = Task("solo-" + str(self.attempts))
            self.tasks.append(task)
            self._new_try(task)
            while task.current is not None:
                self._step(task, task.current)
                self.check()
            newest = self.world.journal.events[-1:]
            if newest and json.loads(newest[0]).get("window_id") is None:
                break
        else:
            raise ViolationError("the group never reached the end of the log")
        first = self.world.sink.marker(self.world.id(1))
        begin = first.plan.bases if first else {}
        records = self.world.log.all_records()
        wanted = {(key, offset): 1 for key, offset in records if offset >= begin.get(key, 0)}
        if self.world.sink.records() != wanted:
            raise ViolationError("records in the sink are not those of the log, each once")

    def _actions(self) -> list[Callable[[int], None]]:
        return [
            *[self.step_one] * 7,
            *[self.step_zombie] * 2,
            self.start_task,
            self.retry,
            self.kill,
            self.clear_task,
            *[self.append] * 2,
            self.wipe,
            self.purge,
        ]

    # -- what can happen ------------------------------------------------------------------------

    def step_one(self, which: int) -> None:
        """Let a live try take one action, a few, or all of its actions."""
        burst, whose = divmod(which, MAX_TASKS)
        live = [task for task in self.tasks if task.current]
        if live:
            task = live[whose % len(live)]
            self._burst(task, task.current, burst)

    def step_zombie(self, which: int) -> None:
        burst, whose = divmod(which, MAX_TASKS)
        zombies = [(task, zombie) for task in self.tasks for zombie in task.zombies]
        if zombies:
            self._burst(*zombies[whose % len(zombies)], burst)

    def _burst(self, task: Task, actor: Try | None, burst: int) -> None:
        for _ in range(BURSTS[burst % len(BURSTS)]):
            if actor is not None and (actor is task.current or actor in task.zombies):
                self._step(task, actor)
                self.check()

    def start_task(self, _: int) -> None:
        self.tasks = [task for task in self.tasks if not task.given_up]
        if sum(not task.succeeded for task in self.tasks) < MAX_TASKS:
            self.attempts += 1
            self.tasks.append(Task(f"task-{self.attempts}"))
            self._new_try(self.tasks[-1])

    def retry(self, which: int) -> None:
        """Another try; one that still lives continues as a zombie."""
        open_tasks = [task for task in self.tasks if not task.succeeded and task.tries < MAX_TRIES]
        if open_tasks:
            task = open_tasks[which % len(open_tasks)]
            if task.current is not None and len(task.zombies) < MAX_ZOMBIES:
                task.current.store.superseded = True
                task.zombies.append(task.current)
            self._new_try(task)

    def kill(self, which: int) -> None:
        live = [task for task in self.tasks if task.current]
        if live:
            live[which % len(live)].current = None

    def clear_task(self, which: int) -> None:
        """Clear a task that succeeded: it runs again with its task state."""
        succeeded = [task for task in self.tasks if task.succeeded]
        if succeeded:
            task = succeeded[which % len(succeeded)]
            task.succeeded, task.tries, task.cleared = False, 0, True
            self._new_try(task)

    def append(self, which: int) -> None:
        keys = self.world.log.partitions
        self.world.log.append(keys[which % len(keys)], 1 + which % 2)

    def wipe(self, _: int) -> None:
        if self.wipes:
            self.world.journal.cursor = None
            self.world.journal.plans.clear()

    def purge(self, _: int) -> None:
        if self.purges:
            self.world.journal.events.clear()

    def _new_try(self, task: Task) -> None:
        self.attempts += 1
        task.tries += 1
        store, world = self.store_of(task), self.world
        rewrites = isinstance(self.sink, ReplacingMemorySink)
        # Options may change between tries: caps always, where to begin before there is progress.
        planner = world.planner(
            max_records=(None, 3)[self.attempts % 2],
            initial_position=self.initial_positions[self.attempts // 2 % 2],
            serialised=False,
            policies={"on_clear": "rewrite"} if rewrites else {},
        )
        run = self.make_run(
            planner,
            store,
            world.sink,
            world.engine,
            attempt=f"try-{self.attempts}",
            cleared=task.cleared,
        )
        task.current = Try(run.steps(), store)

    def store_of(self, task: Task) -> TryStore:
        """Return the store as a try of `task` sees it."""
        return TryStore(self.world.journal, self, task.name)

    def _step(self, task: Task, actor: Try) -> None:
        try:
            next(actor.steps)
        except StopIteration:
            self._end(task, actor)
            if actor.store.superseded:
                return  # its success is refused, so its event never appears
            task.succeeded = True
            assert actor.store.event is not None
            MemoryOffsetStore.emit(actor.store, actor.store.event)
        except FencedError:
            self._end(task, actor)
        except FileNotFoundError:
            # Who found the window written has tidied up after a rewrite: it is tried again.
            if not task.cleared:
                raise
            self._end(task, actor)

    def _end(self, task: Task, actor: Try) -> None:
        if task.current is actor:
            task.current = None
        else:
            task.zombies.remove(actor)

    # -- what must hold -------------------------------------------------------------------------

    def check(self) -> None:
        """Windows follow each other without gap or overlap; no record is in the sink twice; cursor
        and events only claim what is published."""
        problems = self._sink_problems()
        journal = self.world.journal
        claims = [json.loads(event)["position"] for event in journal.events[-1:]]
        if journal.cursor is not None:
            claims.append(json.loads(journal.cursor))
        problems += [bad for claim in claims for bad in self._claim_problems(claim)]
        if problems:
            raise ViolationError("; ".join(problems))

    def _sink_problems(self) -> list[str]:
        sink = self.world.sink
        found = {window_id: id(marker) for window_id, (marker, _) in sink.windows.items()}
        if found == self.checked:
            return []
        self.checked = found
        plans = sink.plans()
        problems = self.chain_problems(plans)
        twice = [record for record, count in sink.records().items() if count > 1]
        if twice:
            problems.append(f"records twice: {twice}")
        for marker, records in sink.windows.values():
            if list(self.world.log.records(marker.plan)) != records:
                problems.append(f"{marker.plan.window_id} does not hold its records")
        return problems

    def chain_problems(self, plans: list[WindowPlan]) -> list[str]:
        """Windows are published one after the other."""
        problems = chain_problems(plans)
        if plans and min(plan.seq or 0 for plan in plans) != 1:
            problems.append("the first window is missing")
        return problems

    def _claim_problems(self, claim: Document) -> list[str]:
        seq = claim["seq"]
        if seq == 0:
            return []
        marker = self.world.sink.marker(self.world.id(seq))
        if marker is None:
            return [f"window {seq} is claimed but not published"]
        if marker.plan.ends != claim["next"]:
            return [f"window {seq} does not end at {claim['next']}"]
        return []

    def check_advance(self, seen: Document | None, stored: Document) -> None:
        """Check that a cursor replaces only one from which published windows lead to it."""
        if seen is None:
            return
        if stored["seq"] <= seen["seq"]:
            raise ViolationError(f"the cursor went from {seen['seq']} to {stored['seq']}")
        position = seen["next"]
        for seq in range(seen["seq"] + 1, stored["seq"] + 1):
            marker = self.world.sink.marker(self.world.id(seq))
            if marker is None or not marker.plan.continues(position):
                raise ViolationError(f"window {seq} does not lead from {position} onward")
            position = marker.plan.ends


class SetByHand(History):
    """Histories in which an operator sets the cursor again while runs are under way.

    Only `check_advance` is asked then: whether records come twice is the operator's wish.
    """

    def _actions(self) -> list[Callable[[int], None]]:
        return [*[self.step_one] * 6, self.start_task, self.append, self.set_cursor]

    def set_cursor(self, which: int) -> None:
        journal = self.world.journal
        if journal.cursor is None:
            return
        cursor = json.loads(journal.cursor)
        key = sorted(cursor["next"])[which % len(cursor["next"])]
        cursor["next"][key] = max(0, cursor["next"][key] - ENTRY)
        journal.cursor = json.dumps(cursor)

    def check(self) -> None:
        """Nothing but `check_advance`, which stores call."""

    def finish(self) -> None:
        """Not asked: after an operator's change a run may have to ask for help."""

    def _step(self, task: Task, actor: Try) -> None:
        from tubemq_provider.windows.errors import WindowError

        try:
            super()._step(task, actor)
        except WindowError:
            task.current = None


class ClaimTry(TryStore):
    """A try's store that keeps claims, as the ledger does."""

    def change_cursor(
        self, change: Callable[[Document | None], Document | None]
    ) -> Document | None:
        self._fence()
        wanted = change(MemoryOffsetStore.load_cursor(self))
        if wanted is not None:
            MemoryOffsetStore.store_cursor(self, wanted)
        return MemoryOffsetStore.load_cursor(self)

    def is_over(self, claimant: str) -> bool:
        return claimant != self.writer and self.history.is_over(claimant)

    def previous_cursor(self) -> Document | None:
        return None


class Claimed(History):
    """Histories of runs that claim windows side by side.

    A wipe takes the ledger, which must not happen while tasks run, and for good if the events are
    gone too: then an operator has to say where the group stands.
    """

    def store_of(self, task: Task) -> TryStore:
        return ClaimTry(self.world.journal, self, task.name)

    def is_over(self, claimant: str) -> bool:
        """Return True if the task has ended for good; zombies of it may live."""
        found = [task for task in self.tasks if task.name == claimant]
        return all(
            task.succeeded or (task.current is None and task.tries >= MAX_TRIES) for task in found
        )

    def wipe(self, which: int) -> None:
        busy = any(task.current or task.zombies for task in self.tasks)
        if self.world.journal.events and not busy:
            super().wipe(which)

    def purge(self, which: int) -> None:
        if self.world.journal.cursor is not None:
            super().purge(which)

    def finish(self) -> None:
        super().finish()
        book = json.loads(self.world.journal.cursor or "{}")
        if book["pending"] or book["done"]:
            raise ViolationError(f"left behind: {book['pending']}, {book['done']}")

    def chain_problems(self, plans: list[WindowPlan]) -> list[str]:
        """Windows may be published in any order, but fit where both neighbours are there."""
        ordered = sorted(plans, key=lambda plan: plan.seq or 0)
        return [
            problem
            for pair in pairwise(ordered)
            if (pair[0].seq or 0) + 1 == pair[1].seq
            for problem in chain_problems(pair)
        ]
