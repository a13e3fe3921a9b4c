"""Ordinary ingests of one topic into a directory, by one group."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq

from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.job import IngestJob
from tubemq_provider.ingest.validation import parse
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sources.registry import config_of, open_source

QUIET = SimpleNamespace(at=lambda *_: None)


class Lake:
    """Windows of `topic` at `address`, as Parquet in `folder`."""

    def __init__(self, address: str, topic: str, folder: Path) -> None:
        self.topic, self.folder, self.journal = topic, folder, MemoryJournal()
        self.settings = config_of("kafka").parse({"bootstrap.servers": address}).settings()
        self.tries = 0
        folder.mkdir(parents=True, exist_ok=True)

    def source(self) -> Any:
        names = {"topic": self.topic, "group": "lake"}
        return open_source("kafka", self.settings, identity="main", **names)

    def run(self, **given: Any) -> Any:
        """Run the next window, or one of time or offsets; each call is a task of its own."""
        self.tries += 1
        names = {"topic": self.topic, "group": "lake", "cluster": "main", "source": "kafka"}
        own = {"engine": "inline", "path": str(self.folder)}
        if given.get("mode") != "time":
            own["initial_position"] = "earliest"
        if "sink" in given:
            del own["path"]
        arguments = parse(IngestArguments, {**names, **own, **given})
        with ExitStack() as stack:
            sink = sink_for(arguments.destination, **arguments.sink_options)
            job = IngestJob(arguments, self.source(), sink, stack)
            store = MemoryOffsetStore(self.journal, task=str(self.tries))
            return job.run(store, attempt=str(self.tries), serialised=True, observer=QUIET)

    def rows(self) -> list[dict[str, Any]]:
        """Return what is in the lake."""
        files = sorted(self.folder.rglob("part*.parquet"))
        return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]

    def values(self) -> list[str]:
        """Return the values of all records, ordered."""
        return sorted(row["value"].decode() for row in self.rows())
