"""Cost of a window besides reading.

Run as `python -m tools.benchmarks.overhead` (part of `make bench`).

Windows of eight records through all eight steps with the inline engine, an embedded cluster and the
Parquet sink, on a store of files: everything but the two data steps counts; the cost of Airflow's
API per call of its state must be added (the number of calls is printed). Then the time to plan a
cursor window of 1 000 partitions on an embedded broker, look-ups included.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from statistics import median
from typing import Any

from tubemq_client import Partition, Producer, Record
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.sync import Metadata
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sources.tubemq.source import TubeMQSource
from tubemq_provider.windows.cursor import Position
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import Step
from tubemq_provider.windows.run.cursor_run import CursorRun

__all__ = ["CountingStore", "main", "plan_seconds"]

WINDOWS = 40
STORES, PARTITIONS = 20, 50
DATA_STEPS = (Step.INGEST,)


class CountingStore:
    """An offset store that counts calls: each is a call of Airflow's API there."""

    def __init__(self, inner: MemoryOffsetStore) -> None:
        self._inner = inner
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if not callable(attribute):
            return attribute

        def counted(*arguments: Any) -> Any:
            self.calls[name] += 1
            return attribute(*arguments)

        return counted


class _Stopwatch:
    """Seconds per step of a run."""

    def __init__(self) -> None:
        self.seconds: dict[Step, float] = {}
        self._began = 0.0

    def at(self, step: Step, point: str) -> None:
        if point == "begin":
            self._began = time.perf_counter()
        elif point == "end":
            self.seconds[step] = time.perf_counter() - self._began


def main() -> int:
    """Measure both and print a line for each."""
    overheads, calls = _overheads()
    print(
        f"plan and commit of a window, besides its ingest: median {median(overheads):.0f} ms, "
        f"slowest of {len(overheads)}: {max(overheads):.0f} ms; {calls} calls of the offset store"
    )
    seconds = plan_seconds()
    print(f"planning {STORES * PARTITIONS} partitions in {STORES} stores: {seconds:.2f} s")
    return 0


def _overheads() -> tuple[list[float], int]:
    """Return milliseconds per window after the first, and state calls of the last one."""
    journal, overheads, calls = MemoryJournal(), [], 0
    with EmbeddedTubeMQ(topics=[TopicSpec("bench")], http=False) as mq, _folder() as root:
        settings = ClientConfig.parse({"masters": mq.masters}).settings()
        sink = ParquetSink(root)
        scope = WindowScope("bench", "bench", "bench", sink.identity)
        for number in range(WINDOWS):
            with Producer(settings) as producer:
                partition = Partition(1, "bench", 0)
                list(producer.send_many("bench", [Record(b"x" * 100, partition=partition)] * 8))
            mq.broker(1).flush()
            store, watch = CountingStore(MemoryOffsetStore(journal, task=str(number))), _Stopwatch()

            def ends() -> Any:
                with Metadata(settings) as metadata:
                    return metadata.ends("bench", "bench", stable=True)

            source = TubeMQSource(settings, identity="bench", topic="bench", group="bench")
            CursorRun(
                CursorPlanner(scope, ends, initial_position="earliest"),
                store,  # type: ignore[arg-type] (it forwards all calls)
                sink,
                InlineEngine.for_source(source, policies=Policies()),
                attempt=str(number),
                observer=watch,
            ).run()
            overheads.append(
                1000 * sum(s for step, s in watch.seconds.items() if step not in DATA_STEPS)
            )
            calls = sum(store.calls.values())
    return overheads[1:], calls


def plan_seconds() -> float:
    """Return the seconds to look up the ends of 1 000 partitions and plan their window."""
    topic = TopicSpec("wide", stores=STORES, partitions=PARTITIONS)
    with EmbeddedTubeMQ(topics=[topic], http=False) as mq:
        settings = ClientConfig.parse({"masters": mq.masters}).settings()
        scope = WindowScope("bench", "wide", "bench", "none")
        started = time.perf_counter()
        with Metadata(settings) as metadata:
            ends = metadata.ends("wide", "bench", stable=True)
        planner = CursorPlanner(scope, lambda: ends, initial_position="earliest", max_records=100)
        plan = planner.plan(Position(0, dict.fromkeys(planner.initial().next, 0)))
        seconds = time.perf_counter() - started
        assert len(ends) == STORES * PARTITIONS, (len(ends), plan)
        return seconds


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tubemq-bench-")


if __name__ == "__main__":
    raise SystemExit(main())
