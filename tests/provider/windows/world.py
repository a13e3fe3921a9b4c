"""A small world for window runs: a log, a sink and an engine that live in memory and keep state.

The log has stores shared by partitions, as TubeMQ's have: entry *i* of a store sits at offset 28*i
and belongs to one of the store's partitions. So "each record once" can be checked to the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tubemq_client.model import Partition, PartitionEnds
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import (
    BoundaryBook,
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
from tubemq_provider.windows.run._base import Mirror
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.steps import WindowRun
from tubemq_provider.windows.verify import check_staged

TOPIC = "orders"
ENTRY = 28
Record = tuple[str, int]
"""Partition key and offset."""


@dataclass
class Log:
    """Stores by `(broker, store)`: which partition each entry belongs to, and how much is gone."""

    partitions: list[str] = field(default_factory=lambda: ["1:0", "1:1", "2:0"])
    entries: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    lost: Counter[tuple[int, int]] = field(default_factory=Counter)

    def append(self, key: str, count: int = 1) -> None:
        if key not in self.partitions:
            self.partitions.append(key)
        self.entries.setdefault(_store(key), []).extend([key] * count)

    def ends(self) -> dict[Partition, PartitionEnds]:
        found = {}
        for key in self.partitions:
            low = self.lost[_store(key)] * ENTRY
            high = len(self.entries.get(_store(key), [])) * ENTRY
            partition = Partition.from_key(TOPIC, key)
            found[partition] = PartitionEnds(partition, low, max(low, high), stable=True)
        return found

    def records(self, plan: WindowPlan) -> Iterator[Record]:
        """Return the records that a plan must deliver."""
        for range_ in plan.reads():
            key = range_.partition.key
            owners = self.entries.get(_store(key), [])
            for index in range(range_.start // ENTRY, min(range_.end // ENTRY, len(owners))):
                if owners[index] == key:
                    yield key, index * ENTRY

    def all_records(self) -> Iterator[Record]:
        for owners in self.entries.values():
            for index, key in enumerate(owners):
                yield key, index * ENTRY


def _store(key: str) -> tuple[int, int]:
    partition = Partition.from_key(TOPIC, key)
    return partition.store_key


@dataclass
class MemorySink(Sink):
    """Windows in a dict; staging places are private lists. `publish` is one atomic action."""

    windows: dict[str, tuple[Marker, list[Record]]] = field(default_factory=dict)
    staged: dict[str, list[Record]] = field(default_factory=dict)
    tries: int = 0
    kind = "memory"
    identity = "memory:test"
    exactly_once = True
    book: MemoryBook | None = None

    @property
    def boundaries(self) -> BoundaryBook | None:
        return self.book

    def marker(self, window_id: str) -> Marker | None:
        found = self.windows.get(window_id)
        return found[0] if found else None

    def window_ids(self) -> Iterable[str]:
        return list(self.windows)

    def begin(self, plan: WindowPlan, attempt: str) -> Staging:
        self.tries += 1
        path = f"{plan.window_id}.{attempt}.{self.tries}"
        self.staged[path] = []
        return Staging(plan.window_id, attempt, path)

    def publish(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        found = self.windows.get(plan.window_id)
        if found:
            return Publication(won=False, marker=found[0])
        records = self.staged.pop(staging.path)
        check_staged(plan, counts, Counter(key for key, _ in records), len(records))
        marker = Marker(plan, counts, f"memory/{plan.window_id}")
        self.windows[plan.window_id] = (marker, records)
        return Publication(won=True, marker=marker)

    def discard(self, staging: Staging) -> None:
        self.staged.pop(staging.path, None)

    def tidy(self, window_id: str) -> None:
        for path in [path for path in self.staged if path.startswith(f"{window_id}.")]:
            del self.staged[path]

    def records(self) -> Counter[Record]:
        return Counter(record for _, records in self.windows.values() for record in records)

    def plans(self) -> list[WindowPlan]:
        return [marker.plan for marker, _ in self.windows.values()]


class ReplacingMemorySink(MemorySink):
    """A memory sink that counts windows again, and replaces them, each in one action."""

    can_replace = True

    def recount(self, marker: Marker) -> Mapping[str, int]:
        _, records = self.windows[marker.plan.window_id]
        return Counter(key for key, _ in records)

    def replace(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        if staging.path not in self.staged:
            raise FileNotFoundError(staging.path)
        records = self.staged.pop(staging.path)
        check_staged(plan, counts, Counter(key for key, _ in records), len(records))
        marker = Marker(plan, counts, f"memory/{plan.window_id}")
        self.windows[plan.window_id] = (marker, records)
        return Publication(won=True, marker=marker)


@dataclass
class MemoryBook:
    """Boundaries in a dict."""

    fixed: dict[str, Document] = field(default_factory=dict)

    @property
    def boundaries(self) -> dict[str, Document]:
        """The boundaries alone, in order of their instants."""
        return {key: self.fixed[key] for key in sorted(self.fixed) if key[0].isdigit()}

    def listing(self) -> Iterable[str]:
        return list(self.fixed)

    def withdraw(self, key: str) -> None:
        self.fixed.pop(key, None)

    def read(self, key: str) -> Document | None:
        return self.fixed.get(key)

    def fix(self, key: str, document: Document) -> Document:
        return self.fixed.setdefault(key, document)


@dataclass
class MemoryEngine(Engine):
    """Copies records from the log to the sink's staging; `failing` makes the next ingest raise."""

    log: Log
    sink: MemorySink
    name = "memory"
    ingested: list[str] = field(default_factory=list)
    failing: Exception | None = None

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
        if self.failing is not None:
            raise self.failing
        place = self.sink.staged.get(staging.path)
        if place is None:
            raise FileNotFoundError(staging.path)
        self.ingested.append(plan.window_id)
        place.extend(self.log.records(plan))
        watch.progress("records copied")
        counted = Counter(key for key, _ in place)
        return IngestCounts({key: counted[key] for key in plan.ranges}, len(place))

    def cancel(self) -> None:
        """Nothing to stop: an ingest is one action here."""


@dataclass
class World:
    """A log, a journal and a sink, and runs over them."""

    log: Log = field(default_factory=Log)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    sink: MemorySink = field(default_factory=MemorySink)
    runs: int = 0

    def __post_init__(self) -> None:
        self.scope = WindowScope("c1", TOPIC, "g1", self.sink.identity)
        self.engine = MemoryEngine(self.log, self.sink)

    def begin(self, epoch: str) -> None:
        """Let runs from here on belong to this epoch."""
        self.scope = replace(self.scope, epoch=epoch)

    def planner(self, **options: object) -> CursorPlanner:
        policies = Policies.of(**options.pop("policies", {}))  # type: ignore[arg-type]
        options.setdefault("initial_position", "earliest")
        return CursorPlanner(self.scope, self.log.ends, policies=policies, **options)  # type: ignore[arg-type]

    def run(
        self, *, task: str | None = None, mirror: Mirror | None = None, **options: object
    ) -> WindowRun:
        """Return a cursor run of a new task, or another try of `task`."""
        self.runs += 1
        return window_run(
            self.planner(**options),
            MemoryOffsetStore(self.journal, task=task or f"task-{self.runs}"),
            self.sink,
            self.engine,
            attempt=f"try-{self.runs}",
            mirror=mirror,
        )

    def id(self, seq: int) -> str:
        return f"c-{seq}-{self.scope.scope_hash}"


def memory_world(
    records: Mapping[str, int],
    *,
    sink: Callable[[], MemorySink] = MemorySink,
    engine: Callable[[Log, MemorySink], MemoryEngine] = MemoryEngine,
    alone: bool = False,
) -> Any:
    """Mark the records that the log of the fixture `world` has in each partition. `alone`: and no
    other partitions."""

    @pytest.fixture
    def world() -> World:
        made = World(sink=sink())
        made.engine = engine(made.log, made.sink)
        if alone:
            made.log.partitions = [*records]
        for key, count in records.items():
            made.log.append(key, count)
        return made

    return world


def keeping_boundaries() -> MemorySink:
    """Return a sink that fixes the boundaries of time windows."""
    return MemorySink(book=MemoryBook())
