"""Log, sink, engine and runs in memory, for the suites of stores and engines.

A log has partitions that may share it, as the space of its kind says; each entry has one owner. So
"each record once" can be checked to the record. Nothing here is for production.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import (
    BoundaryBook,
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
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of
from tubemq_provider.windows.verify import check_staged

__all__ = ["KEYS", "SPACE", "TOPIC", "LogEnds", "MemoryEngine", "MemoryLog", "MemorySink", "World"]

TOPIC = "orders"
SPACE = space_of(FIRST_SOURCE)
KEYS = ("1:0", "1:1", "2:0")
"""Partitions of a log; the first two share one."""
Record = tuple[str, int]
"""Partition key and offset."""


class LogEnds(NamedTuple):
    """Ends of one partition."""

    partition: Any
    min_offset: int
    max_offset: int
    stable: bool = True


@dataclass
class MemoryLog:
    """Owners of the entries of each log."""

    partitions: list[str] = field(default_factory=lambda: list(KEYS))
    entries: dict[Any, list[str]] = field(default_factory=dict)

    def append(self, key: str, count: int = 1) -> None:
        """Append records of a partition."""
        if key not in self.partitions:
            self.partitions.append(key)
        self.entries.setdefault(SPACE.log_of(key), []).extend([key] * count)

    def ends(self) -> Mapping[Any, Any]:
        """Return the ends of all partitions."""
        found = {}
        for key in self.partitions:
            partition = SPACE.partition(TOPIC, key)
            count = len(self.entries.get(SPACE.log_of(key), []))
            found[partition] = LogEnds(partition, 0, count * SPACE.step)
        return found

    def records(self, plan: WindowPlan) -> Iterator[Record]:
        """Yield the records that a plan must deliver."""
        for range_ in plan.reads():
            key = range_.partition.key
            owners = self.entries.get(SPACE.log_of(key), [])
            for offset in range(range_.start, range_.end, SPACE.step):
                index = offset // SPACE.step
                if index < len(owners) and owners[index] == key:
                    yield key, offset

    def all_records(self) -> Iterator[Record]:
        """Yield all records."""
        for owners in self.entries.values():
            for index, key in enumerate(owners):
                yield key, index * SPACE.step


@dataclass
class MemorySink(Sink):
    """Windows in a dict; staging places are private lists. `publish` is one atomic action."""

    windows: dict[str, tuple[Marker, list[Record]]] = field(default_factory=dict)
    staged: dict[str, list[Record]] = field(default_factory=dict)
    tries: int = 0
    kind = "memory"
    identity = "memory:test"
    exactly_once = True
    book: BoundaryBook | None = None

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
        self,
        staging: Staging,
        plan: WindowPlan,
        counts: IngestCounts,
        progress: Progress,  # noqa: ARG002
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
        """Return all published records."""
        return Counter(record for _, records in self.windows.values() for record in records)

    def plans(self) -> list[WindowPlan]:
        """Return the plans of all windows."""
        return [marker.plan for marker, _ in self.windows.values()]


@dataclass
class MemoryEngine(Engine):
    """Copies records from the log to the sink's staging; `failing` makes the next ingest raise."""

    log: MemoryLog
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

    log: MemoryLog = field(default_factory=MemoryLog)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    sink: MemorySink = field(default_factory=MemorySink)
    runs: int = 0

    def __post_init__(self) -> None:
        self.scope = WindowScope("c1", TOPIC, "g1", self.sink.identity)
        self.engine = MemoryEngine(self.log, self.sink)

    def begin(self, epoch: str) -> None:
        """Let runs from here on belong to this epoch."""
        self.scope = replace(self.scope, epoch=epoch)

    def planner(self, **options: Any) -> CursorPlanner:
        """Return a planner of the next window."""
        policies = Policies.of(**options.pop("policies", {}))
        options.setdefault("initial_position", "earliest")
        return CursorPlanner(self.scope, self.log.ends, policies=policies, **options)

    def run(
        self, *, task: str | None = None, mirror: Mirror | None = None, **options: Any
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
        """Return the id of a window."""
        return f"c-{seq}-{self.scope.scope_hash}"
