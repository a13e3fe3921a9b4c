"""A world in which a real run takes the actions of the model in `models/`, and says what it sees.

An action is a JSON object as the model writes it. `Player.act` does it; a step of a try continues
to its next step point at which something was read or written. `Player.seen` is what stores and sink
have, in the words of the model.
"""

from __future__ import annotations

import copy
import json
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tests.provider.windows.exploration import FencedStore, MakeRun, Steps
from tests.provider.windows.world import ENTRY, TOPIC, MemorySink, Record
from tubemq_client.errors import DataLoss
from tubemq_client.model import Partition, PartitionEnds
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.windows.plan import WindowPlan, WindowScope, cursor_window_id
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import (
    Document,
    Engine,
    IngestCounts,
    IngestWatch,
    Marker,
    Progress,
    Publication,
    Sink,
    Staging,
)
from tubemq_provider.windows.run.kinds import window_run

Action = Mapping[str, Any]

KEYS = ("1:0", "2:0")
"""The model's partitions: each on its own broker, so that each has its own log."""

PASSED = frozenset({"begin", "end", "ingested"})
"""Step points before which nothing was read or written."""

FAULTS = frozenset(
    {"wipe", "purge", "lose newest", "lose oldest", "lose some", "restore", "crash", "retain"}
)

ALONE = 10
"""Number of undisturbed runs that bring every history of the model to its end."""


@dataclass
class Log:
    """Logs of the brokers: numbers of records by partition, and how much of them is stable."""

    partitions: int
    records: dict[str, list[int]] = field(default_factory=lambda: {key: [] for key in KEYS})
    stable: Counter[str] = field(default_factory=Counter)
    low: Counter[str] = field(default_factory=Counter)
    count: int = 0
    latest: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        return KEYS[: self.partitions]

    def ends(self) -> dict[Partition, PartitionEnds]:
        found = {}
        for key in self.keys:
            partition = Partition.from_key(TOPIC, key)
            high = len(self.records[key]) if self.latest else self.stable[key]
            found[partition] = PartitionEnds(
                partition, self.low[key] * ENTRY, high * ENTRY, stable=True
            )
        return found

    def append(self, key: str, *, synced: bool) -> None:
        self.records[key].append(self.count)
        self.count += 1
        if synced:
            self.stable[key] = len(self.records[key])

    def crash(self) -> None:
        for key, records in self.records.items():
            del records[self.stable[key] :]


@dataclass
class LogEngine(Engine):
    """Reads from the log into the sink's staging place; fails where records are gone."""

    log: Log
    sink: MemorySink
    skips: bool = False
    capped: bool = False
    name = "memory"

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
        place = self.sink.staged.get(staging.path)
        if place is None:
            raise FileNotFoundError(staging.path)
        gaps: dict[str, list[list[int]]] = {}
        for range_ in plan.reads():
            key, low = range_.partition.key, self.log.low[range_.partition.key]
            start, end = range_.start // ENTRY, range_.end // ENTRY
            if (start < low or end > len(self.log.records[key])) and not self.skips:
                raise DataLoss("gone", start=range_.start, available=low * ENTRY)
            if start < low:
                gaps[key] = [[start * ENTRY, min(low, end) * ENTRY]]
        place.extend(self.choose(list(self.read(plan))))
        counted = Counter(key for key, _ in place)
        return IngestCounts({key: counted[key] for key in plan.ranges}, len(place), gaps)

    def read(self, plan: WindowPlan) -> Iterator[Record]:
        for range_ in plan.reads():
            key = range_.partition.key
            start = max(range_.start // ENTRY, self.log.low[key])
            yield from (
                (key, number) for number in self.log.records[key][start : range_.end // ENTRY]
            )

    def choose(self, records: list[Record]) -> list[Record]:
        """Return the records that are written: all. Planted mistakes leave some out."""
        return records

    def cancel(self) -> None:
        """Nothing to stop: an ingest is one action here."""


class TidySink(MemorySink):
    """A memory sink whose staging places are directories that may be gone."""

    def publish(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        if plan.window_id not in self.windows and staging.path not in self.staged:
            raise FileNotFoundError(staging.path)
        return super().publish(staging, plan, counts, progress)


class TryStore(FencedStore):
    """The store of one try: its event waits for success, and may be refused to write."""

    def succeed(self) -> None:
        if self.event is not None and not self.superseded:
            MemoryOffsetStore.emit(self, self.event)


class ClaimStore(TryStore):
    """The same with claims, as the ledger keeps them."""

    def __init__(self, player: Player, task: str) -> None:
        super().__init__(player.journal, task, fenced=player.fenced)
        self.player = player

    def change_cursor(
        self, change: Callable[[Document | None], Document | None]
    ) -> Document | None:
        self._fence()
        wanted = change(self.load_cursor())
        if wanted is not None:
            MemoryOffsetStore.store_cursor(self, wanted)
        return self.load_cursor()

    def is_over(self, claimant: str) -> bool:
        return claimant != self.writer and self.player.is_over(claimant)

    def previous_cursor(self) -> Document | None:
        return None


@dataclass
class Try:
    """A try that lives."""

    steps: Steps
    store: TryStore


@dataclass
class Player:
    """The world of one history.

    `fenced`: superseded tries cannot write to stores. `make_run`, `sink`, `engine_type`,
    `planner_type` and `latest` are where mistakes are planted. `results` has the windows of another
    sink, if `sink` is not in memory.
    """

    fenced: bool = True
    partitions: int = 1
    make_run: MakeRun = window_run
    sink: MemorySink = field(default_factory=TidySink)
    engine_type: type[LogEngine] = LogEngine
    planner_type: type[CursorPlanner] = CursorPlanner
    latest: bool = False
    claims: bool = False

    def __post_init__(self) -> None:
        self.over: set[str] = set()
        self.succeeded: set[str] = set()
        self.published: list[int] = []
        self.log = Log(self.partitions, latest=self.latest)
        self.journal = MemoryJournal()
        self.backup: MemoryJournal | None = None
        self.scope = WindowScope("c1", TOPIC, "g1", self.sink.identity)
        self.tries: dict[tuple[int, bool], Try] = {}
        self.attempts = 0
        self.damaged = False
        self._windows: list[tuple[Marker, list[Record]]] = []
        self._lake: dict[str, dict[str, Any]] = {}

    # -- actions ------------------------------------------------------------------------------

    def act(self, action: Action) -> str | None:
        """Do `action`; the step point behind it, if a try took it."""
        name = action["do"]
        if name == "step":
            return self.step(action["task"], zombie=action["zombie"])
        if name in {"start", "retry"}:
            self.start(action["task"], capped=action["capped"])
        elif name == "append":
            self.log.append(KEYS[action["partition"]], synced=action["synced"])
        elif name == "retain":
            self.log.low[KEYS[action["partition"]]] += 1
        elif name == "give up":
            self.give_up(action["task"])
        elif name == "lose some":
            self.lose(action["seq"])
        elif name == "backup":
            self.backup = copy.deepcopy(self.journal)
        else:
            getattr(self, name.replace(" ", "_"))()
        self.damaged = self.damaged or name.startswith("lose")
        if name in FAULTS and self.damaged and not self._known():
            # Nothing tells of the group any more: what follows is another one.
            self.tries.clear()
            self.backup = None
        return None

    def _known(self) -> bool:
        """Return whether cursor, events or lake tell of the group."""
        return bool(self.journal.cursor or self.journal.events or self.sink.windows)

    def start(self, task: int, *, capped: bool, skips: bool = False) -> None:
        older = self.tries.pop((task, False), None)
        if older is not None:
            older.store.superseded = True
            self.tries[task, True] = older
        self.attempts += 1
        self.over.discard(str(task))
        self.succeeded.discard(str(task))
        store = (
            ClaimStore(self, str(task))
            if self.claims
            else TryStore(self.journal, str(task), fenced=self.fenced)
        )
        planner = self.planner_type(
            self.scope,
            self.log.ends,
            initial_position="earliest",
            max_records=1 if capped else None,
            policies=Policies.of(gap_policy="skip" if skips else "fail"),
            serialised=False,
        )
        engine = self.engine_type(self.log, self.sink, skips=skips, capped=capped)
        run = self.make_run(planner, store, self.sink, engine, attempt=f"try-{self.attempts}")
        self.tries[task, False] = Try(run.steps(), store)

    def give_up(self, task: int) -> None:
        """Airflow tries the task no more; an earlier try of it may still act."""
        older = self.tries.pop((task, False), None)
        if older is not None:
            older.store.superseded = True
            self.tries[task, True] = older
        self.over.add(str(task))

    def is_over(self, claimant: str) -> bool:
        """Return whether a task has ended for good; a claim without a task counts as one."""
        return claimant == "" or claimant in self.over | self.succeeded

    def step(self, task: int, *, zombie: bool) -> str:
        before = self.lake()
        point = self._step(task, zombie=zombie)
        self.published += sorted(set(self.lake()).difference(before))
        return point

    def _step(self, task: int, *, zombie: bool) -> str:
        actor = self.tries[task, zombie]
        try:
            while (reached := next(actor.steps)).point in PASSED:
                pass
        except StopIteration:
            actor.store.succeed()
            if not actor.store.superseded:
                self.succeeded.add(str(task))
            del self.tries[task, zombie]
            return "done"
        except Exception as error:  # noqa: BLE001 - the model says which
            del self.tries[task, zombie]
            return f"error: {type(error).__name__}"
        return f"{reached.step}: {reached.point}"

    def add_partition(self) -> None:
        self.log.partitions += 1

    def crash(self) -> None:
        self.log.crash()

    def wipe(self) -> None:
        if self.claims:
            self.tries.clear()
        self.journal.cursor = None
        self.journal.plans.clear()

    def purge(self) -> None:
        self.journal.events.clear()

    def lose_newest(self) -> None:
        self.lose(self.published[-1] if self.claims else max(self.lake()))

    def lose_oldest(self) -> None:
        del self.sink.windows[self.window_id(min(self.lake()))]

    def lose(self, seq: int) -> None:
        del self.sink.windows[self.window_id(seq)]
        self.published.clear()
        self.tries.clear()

    def restore(self) -> None:
        assert self.backup is not None
        vars(self.journal).update(vars(self.backup))
        self.backup = None
        self.tries.clear()

    def alone(self) -> None:
        """Every try is dead; undisturbed runs continue until one finds nothing, or an error that no
        policy answers."""
        self.tries.clear()
        skips = False
        self.over = {"0", "1", "2"}
        for _ in range(ALONE):
            self.journal.task_plans.clear()
            before = len(self.sink.windows)
            self.start(0, capped=False, skips=skips)
            point = ""
            while (0, False) in self.tries:
                point = self.step(0, zombie=False)
            if point == "error: DataLoss" and not skips:
                skips = True
            elif point != "done" or (
                len(self.sink.windows) == before and not self.journal.task_plans
            ):
                return

    # -- what everybody can see ---------------------------------------------------------------

    def seen(self) -> dict[str, Any]:
        """Return what stores and sink have. Parts that have not changed are the same objects."""
        journal = self.journal
        claims = {"claims": _claims(journal.cursor)} if self.claims and journal.cursor else {}
        return {
            **claims,
            "cursor": _stored_cursor(journal.cursor),
            "event": _accepted(journal.events[-1] if journal.events else None),
            "plans": _stored_plans(tuple(journal.plans.values())),
            "task_plans": _task_plans(tuple(journal.task_plans.items())),
            "lake": self._stored_windows(),
        }

    def lake(self) -> list[int]:
        """Return the numbers of the windows that readers of the sink see."""
        return [window["seq"] for window in self._stored_windows().values()]

    def _stored_windows(self) -> dict[str, dict[str, Any]]:
        windows = list(self.sink.windows.values())
        if len(windows) != len(self._windows) or any(map(operator.is_not, windows, self._windows)):
            self._windows, self._lake = windows, {}
            for marker, records in windows:
                window = _plan(marker.plan)
                window["records"] = sorted(number for _, number in records)
                self._lake[str(window["seq"])] = window
        return self._lake

    def window_id(self, seq: int) -> str:
        return cursor_window_id(seq, self.scope.scope_hash)


def _offsets(offsets: Mapping[str, int]) -> dict[str, int]:
    return {str(KEYS.index(key)): offset // ENTRY for key, offset in offsets.items()}


def _position(document: Document) -> dict[str, Any]:
    return {"seq": document["seq"], "next": _offsets(document["next"])}


# A history shows each stored text many times, so each is read once.


@lru_cache(maxsize=1_000)
def _stored_cursor(text: str | None) -> dict[str, Any] | None:
    return _position(json.loads(text)) if text else None


@lru_cache(maxsize=1_000)
def _accepted(event: str | None) -> dict[str, Any] | None:
    """Return the position that a commit event tells."""
    return _position(json.loads(event)["position"]) if event else None


@lru_cache(maxsize=1_000)
def _stored_plans(texts: tuple[str, ...]) -> dict[str, Any]:
    return {str(plan["seq"]): plan for plan in map(_stored_plan, texts)}


@lru_cache(maxsize=1_000)
def _task_plans(texts: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    return {task: _stored_plan(text) for task, text in texts}


@lru_cache(maxsize=1_000)
def _claims(cursor: str) -> dict[str, Any]:
    document = json.loads(cursor)
    pending = {}
    for claim in document["pending"].values():
        plan = _stored_plan(json.dumps(claim["plan"]))
        pending[str(plan["seq"])] = {**plan, "by": int(claim["by"]) if claim["by"] else None}
    done = [_stored_plan(json.dumps(plan)) for plan in document["done"].values()]
    newest = sorted(int(window_id.split("-")[1]) for window_id in document.get("newest", ()))
    return {
        "pending": pending,
        "done": {str(plan["seq"]): plan for plan in done},
        "newest": newest,
    }


@lru_cache(maxsize=1_000)
def _stored_plan(text: str) -> dict[str, Any]:
    return _plan(WindowPlan.from_document(json.loads(text), where="a plan of the history"))


def _plan(plan: WindowPlan) -> dict[str, Any]:
    return {
        "seq": plan.seq,
        "start": _offsets({key: low for key, (low, _) in plan.ranges.items()}),
        "end": _offsets(plan.ends),
    }


__all__ = ["ENTRY", "Action", "LogEngine", "Marker", "Player", "Sink", "TidySink"]
