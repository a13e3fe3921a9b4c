"""A small world for window runs: a log, a sink and an engine that live in memory and keep state.

The log has stores shared by partitions, as TubeMQ's have: entry *i* of a store sits at offset 28*i
and belongs to one of the store's partitions. So "each record once" can be checked to the record.
Sink and engine are those of the test kit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tubemq_client.model import Partition, PartitionEnds
from tubemq_provider.testing.memory import TOPIC, MemoryEngine, MemoryLog, MemorySink, Record
from tubemq_provider.testing.memory import World as KitWorld
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import (
    Document,
    IngestCounts,
    Marker,
    Progress,
    Publication,
    Staging,
)
from tubemq_provider.windows.verify import check_staged

__all__ = [
    "ENTRY",
    "TOPIC",
    "Log",
    "MemoryBook",
    "MemoryEngine",
    "MemorySink",
    "Record",
    "ReplacingMemorySink",
    "World",
    "keeping_boundaries",
    "memory_world",
]

ENTRY = 28


@dataclass
class Log(MemoryLog):
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
class World(KitWorld):
    """A log whose records can be lost, a journal and a sink, and runs over them."""

    log: Log = field(default_factory=Log)


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
