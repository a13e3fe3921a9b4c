"""Windows on the genuine server while a partition is added, and while its broker is down."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from devkit.tubemq.genuine import GenuineTubeMQ
from tests.real import topics
from tubemq_client import ClientSettings, Metadata, Record
from tubemq_client.admin import AdminClient, TopicProperties
from tubemq_client.errors import ConnectError
from tubemq_client.sync import Producer
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.resolve import StandalonePlanner, TimePlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.run.steps import WindowRun
from tubemq_provider.windows.time.boundaries import Boundaries

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(400)]

TOPIC = topics.SPARES[6].name
GROUP = "coming_and_going"
PATIENCE_S = 150
HOUR = timedelta(hours=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(1)


class Pipeline:
    """A topic into two directories: one by cursor windows, one by windows of time."""

    def __init__(self, settings: ClientSettings, root: Path) -> None:
        self.settings, self.root = settings, root
        self.sent: list[bytes] = []
        self.journal, self.runs = MemoryJournal(), 0

    def produce(self, count: int) -> None:
        with Producer(self.settings) as producer:
            wait_for(lambda: len(producer.partitions(TOPIC)) > 0)
            partitions = producer.partitions(TOPIC)
            bodies = [f"record {len(self.sent) + number}".encode() for number in range(count)]
            records = [
                Record(body, partition=partitions[number % len(partitions)])
                for number, body in enumerate(bodies)
            ]
            list(producer.send_many(TOPIC, records))
        self.sent += bodies
        with Metadata(self.settings) as metadata:
            wait_for(lambda: self.ends(metadata, stable=True) == self.ends(metadata, stable=False))

    @staticmethod
    def ends(metadata: Metadata, *, stable: bool) -> Mapping[str, int]:
        found = metadata.reachable_ends(TOPIC, GROUP, stable=stable)
        return {partition.key: ends.max_offset for partition, ends in found.items()}

    def run(self, planner: CursorPlanner | StandalonePlanner, sink: ParquetSink) -> WindowResult:
        self.runs += 1
        store = MemoryOffsetStore(self.journal, task=str(self.runs))
        engine = InlineEngine.for_cluster(self.settings, policies=Policies())
        return WindowRun(planner, store, sink, engine, attempt=str(self.runs)).run()

    def cursor_window(self) -> WindowResult:
        sink = ParquetSink(self.root / "cursor")
        scope = WindowScope("genuine", TOPIC, GROUP, sink.identity)
        with Metadata(self.settings) as metadata:
            look = lambda: metadata.reachable_ends(TOPIC, GROUP)  # noqa: E731
            planner = CursorPlanner(scope, look, initial_position="earliest")
            return self.run(planner, sink)

    def time_window(self, number: int, boundaries: list[Mapping[str, int]]) -> WindowResult:
        sink = ParquetSink(self.root / "time")
        scope = WindowScope("genuine", TOPIC, GROUP, sink.identity)
        given = {
            (NOON + hours * HOUR).isoformat(): {TOPIC: dict(offsets)}
            for hours, offsets in enumerate(boundaries)
        }
        start = NOON + number * HOUR
        with Metadata(self.settings) as metadata:
            planner = TimePlanner(
                scope,
                start,
                start + HOUR,
                Boundaries(given, TOPIC),
                lambda: metadata.reachable_ends(TOPIC, GROUP),
                sink.boundaries,
            )
            return self.run(planner, sink)

    def each_once(self, name: str) -> bool:
        rows = read_windows(self.root / name).to_table(columns=["value"])
        return Counter(rows["value"].to_pylist()) == Counter(self.sent)


def test_a_partition_is_added_and_the_broker_dies_and_comes_back(
    genuine: GenuineTubeMQ, tmp_path: Path
) -> None:
    pipeline = Pipeline(ClientSettings(masters=(genuine.master_address,)), tmp_path)
    with Metadata(pipeline.settings) as metadata:
        boundaries = [pipeline.ends(metadata, stable=True)]
        assert len(boundaries[0]) == 2
        pipeline.produce(20)
        assert pipeline.cursor_window().total == 20
        boundaries.append(pipeline.ends(metadata, stable=True))

        with AdminClient(genuine.master_web, token=genuine.admin_token) as admin:
            admin.modify_topic(TOPIC, TopicProperties(partitions=3))
        wait_for(lambda: len(metadata.topic(TOPIC, GROUP).subscribable) == 3)
        pipeline.produce(30)
        joined = pipeline.cursor_window()
        assert joined.total == 30
        assert len(joined.ranges) == 3
        assert pipeline.each_once("cursor")
        boundaries.append(pipeline.ends(metadata, stable=True))

        # The newer window first; the partition is there when the older one is planned.
        assert pipeline.time_window(1, boundaries).total == 30
        assert pipeline.time_window(0, boundaries).total == 20
        assert pipeline.each_once("time")

        genuine.kill_broker()
        with pytest.raises(ConnectError):
            pipeline.cursor_window()
        genuine.start_broker()
        wait_for(lambda: len(metadata.topic(TOPIC, GROUP).subscribable) == 3)
        pipeline.produce(9)
        pipeline.cursor_window()
        assert pipeline.each_once("cursor")
