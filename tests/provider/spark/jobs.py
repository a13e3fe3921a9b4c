"""Windows of a `World` by the ingest job itself, with any engine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pyarrow.parquet as pq

from tests.provider.spark.world import GROUP, TOPIC, World
from tools.devkit.spark import QUICK_JAVA, SparkCluster
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.job import IngestJob
from tubemq_provider.ingest.validation import parse
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sources.tubemq.source import TubeMQSource
from tubemq_provider.windows.protocols import Sink, Step
from tubemq_provider.windows.run.result import WindowResult

CLUSTER = "local"


class Window:
    """One window of everything in a world, with consecutive tries of its task."""

    def __init__(self, world: World, sink: str, storage: dict[str, str], **given: Any) -> None:
        self.world = world
        self.url = sink
        self.storage = storage
        self.ranges = world.whole()
        self.journal = MemoryJournal()
        self.tries = 0
        self._given = given
        self.job: IngestJob | None = None

    def sink(self) -> Sink:
        """Open the sink as a task does."""
        return sink_for(self.url, storage_options=self.storage)

    def run(self, at: Callable[[str], None] = lambda _: None) -> WindowResult:
        """Run one try; `at` is called at every point and may raise."""
        self.tries += 1
        arguments = parse(
            IngestArguments,
            {
                "topic": TOPIC,
                "group": GROUP,
                "cluster": CLUSTER,
                "sink": self.url,
                "mode": "time",
                "starting_offsets": {key: start for key, (start, _) in self.ranges.items()},
                "ending_offsets": {key: end for key, (_, end) in self.ranges.items()},
                **self._given,
            },
        )
        source = TubeMQSource(self.world.settings, identity=CLUSTER, topic=TOPIC, group=GROUP)
        with ExitStack() as stack:
            self.job = IngestJob(arguments, source, self.sink(), stack)
            store = MemoryOffsetStore(self.journal, task="task")
            attempt = f"try-{self.tries}"
            return self.job.run(store, attempt=attempt, serialised=True, observer=Listener(at))

    def expected(self) -> list[bytes]:
        """Return the bodies that the receipts place in the window."""
        return self.world.expected(self.ranges)


class Listener:
    """Listener that calls a function at every point; it may raise."""

    def __init__(self, at: Callable[[str], None]) -> None:
        self._at = at

    def at(self, step: Step, point: str) -> None:
        """Forward the point."""
        del step
        self._at(point)


def quarantined(sink: ObjectStoreSink) -> list[dict[str, Any]]:
    """Return the records in the quarantine of all windows of `sink`."""
    files, root = sink.storage.filesystem()
    return [
        row
        for name in sink.storage.names("quarantine")
        for row in pq.read_table(f"{root}/{name}", filesystem=files, partitioning=None).to_pylist()
    ]


def conf_for(cluster: SparkCluster) -> dict[str, str]:
    """Return settings of a small application on `cluster`."""
    return {
        "spark.master": cluster.master_url,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
    }
