"""A topic of the genuine server into a directory, window by window, with all that was sent."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.kit.engines import inline_engine
from tools.devkit.patience import PATIENCE
from tubemq_client import ClientSettings, Metadata, Record
from tubemq_client.sync import Producer, RangeReader
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.standalone_planner import StandalonePlanner, TimePlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.time_resolvers.boundaries import Boundaries

GROUP = "coming_and_going"
PATIENCE_S = 150
HOUR = timedelta(hours=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S * PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(1)


class Pipeline:
    """A topic into two directories: one by cursor windows, one by windows of time."""

    def __init__(self, settings: ClientSettings, root: Path, topic: str) -> None:
        self.settings, self.root, self.topic = settings, root, topic
        self.sent: list[bytes] = []
        self.journal, self.runs = MemoryJournal(), 0

    def produce(self, count: int, *, over: int = 1) -> None:
        """Send `count` records in turn to all partitions, once the master announces `over` of them.

        Returns when all are on disk, some ten seconds later.
        """
        with Producer(self.settings) as producer:
            wait_for(lambda: len(producer.partitions(self.topic)) >= over)
            partitions = producer.partitions(self.topic)
            bodies = [f"record {len(self.sent) + number}".encode() for number in range(count)]
            records = [
                Record(body, partition=partitions[number % len(partitions)])
                for number, body in enumerate(bodies)
            ]
            list(producer.send_many(self.topic, records))
        self.sent += bodies
        with Metadata(self.settings) as metadata:
            wait_for(lambda: self.ends(metadata, stable=True) == self.ends(metadata, stable=False))

    def ends(self, metadata: Metadata, *, stable: bool) -> Mapping[str, int]:
        found = metadata.reachable_ends(self.topic, GROUP, stable=stable)
        return {partition.key: ends.max_offset for partition, ends in found.items()}

    def run(
        self,
        planner: CursorPlanner | StandalonePlanner,
        sink: ParquetSink,
        policies: Policies | None = None,
    ) -> WindowResult:
        self.runs += 1
        store = MemoryOffsetStore(self.journal, task=str(self.runs))
        engine = inline_engine(self.settings, policies=policies or Policies())
        return window_run(planner, store, sink, engine, attempt=str(self.runs)).run()

    def cursor_window(self, epoch: str = "", policies: Policies | None = None) -> WindowResult:
        sink = ParquetSink(self.root / "cursor")
        scope = WindowScope("genuine", self.topic, GROUP, sink.identity, epoch=epoch)
        with (
            Metadata(self.settings) as metadata,
            RangeReader(self.settings, group=GROUP) as witness,
        ):
            look = lambda: metadata.reachable_ends(self.topic, GROUP)  # noqa: E731
            planner = CursorPlanner(
                scope,
                look,
                initial_position="earliest",
                policies=policies or Policies(),
                witness=witness,
            )
            return self.run(planner, sink, policies)

    def time_window(self, number: int, boundaries: list[Mapping[str, int]]) -> WindowResult:
        sink = ParquetSink(self.root / "time")
        scope = WindowScope("genuine", self.topic, GROUP, sink.identity)
        given = {
            (NOON + hours * HOUR).isoformat(): {self.topic: dict(offsets)}
            for hours, offsets in enumerate(boundaries)
        }
        start = NOON + number * HOUR
        with Metadata(self.settings) as metadata:
            planner = TimePlanner(
                scope,
                start,
                start + HOUR,
                Boundaries(given, self.topic),
                lambda: metadata.reachable_ends(self.topic, GROUP),
                sink.boundaries,
            )
            return self.run(planner, sink)

    def each_once(self, name: str) -> bool:
        rows = read_windows(self.root / name).to_table(columns=["value"])
        return Counter(rows["value"].to_pylist()) == Counter(self.sent)

    def rows(self, name: str) -> Mapping[str, int]:
        """Count the records of each partition in a directory."""
        rows = read_windows(self.root / name).to_table(columns=["partition"])
        return Counter(rows["partition"].to_pylist())
