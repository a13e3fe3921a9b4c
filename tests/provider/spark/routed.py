"""Topic of an embedded TubeMQ whose windows go into routes by an engine on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.provider.changes.test_followed_tables import Never
from tests.provider.changes.test_routes import made_good
from tests.provider.spark.in_process import engine_in_process
from tests.provider.spark.world import GROUP, TOPIC, World
from tubemq_client import Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.model import PartitionEnds
from tubemq_provider.ingest.routes import parse_routes
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.routed import Route, RoutedSink
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.run.kinds import window_run


@contextmanager
def serving() -> Iterator[World]:
    """Serve a topic of eight partitions on two brokers."""
    topic = TopicSpec(TOPIC, stores=1, partitions=4)
    with EmbeddedTubeMQ(brokers=2, topics=[topic], http=False) as mq:
        yield World(mq)


class SparkTopic:
    """Records with stream ids, and one group's windows of them into routes. `engine` makes the
    engine; by default its tasks run in this process."""

    def __init__(
        self,
        world: World,
        home: Path,
        routes: Any,
        engine: Any = engine_in_process,
        **options: Any,
    ) -> None:
        self.world, self.home, self.routes = world, home, routes
        self.engine, self.options = engine, options
        self.journal = MemoryJournal()
        self._waiting: list[Record] = []

    def add(self, key: str, stream: str | None, body: bytes) -> None:
        """Send a record before the next window; the producer chooses the partition."""
        self._waiting.append(Record(body, {}, stream))

    def make_sink(self, home: Any, routes: Any) -> RoutedSink:
        def open_table(route: Route, address: str) -> Any:
            return sink_for(address, **route.options, following=route.following)

        return RoutedSink(home, routes, open_table)

    def run(self, task: str, observer: Any = None, *, again: bool = False) -> Any:
        """Run the next window; with `again` make good those of failed tables, return what failed
        again."""
        if self._waiting:
            self.world.send(self._waiting)
            self._waiting = []
        sink = self.make_sink(sink_for(self.home), parse_routes(self.routes))
        scope = WindowScope("c1", TOPIC, GROUP, sink.identity)
        ends = {
            partition: PartitionEnds(partition, 0, end, stable=True)
            for key, (_, end) in self.world.whole().items()
            for partition in [Partition.from_key(TOPIC, key)]
        }
        planner = CursorPlanner(
            scope, lambda: ends, initial_position="earliest", policies=Policies()
        )
        engine = self.engine(self.world.settings, **self.options).into(sink)
        store = MemoryOffsetStore(self.journal, task=task)
        observer = Never() if observer is None else observer
        if again:
            return made_good(sink, engine, observer)
        return window_run(planner, store, sink, engine, attempt="a", observer=observer).run()
