"""Contract of every `Engine`: what the inline engine passes.

    class TestMyEngine(EngineSuite):
        def make(self, source):
            return MyEngine.for_source(source)

The source is a topic in memory: an engine that reads in other processes defines `source` as well,
and returns one that they reach.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.testing.memory import KEYS, MemoryLog
from tubemq_provider.testing.memory_source import MemorySource, body_of
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.protocols import Engine, IngestWatch
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.steps import WindowRun
from tubemq_provider.windows.verify import check_counts

__all__ = ["EngineSuite"]


class _Stopped(Exception):
    """End of an ingest, as by a killed task."""


class EngineSuite:
    """Behaviour shared by all engines. Subclasses define `make`."""

    def make(self, source: MemorySource) -> Engine:
        """Return the engine that reads `source`."""
        raise NotImplementedError

    @pytest.fixture
    def source(self) -> MemorySource:
        """Return a topic of three partitions, of which two share a log."""
        log = MemoryLog()
        for _ in range(4):
            for key in KEYS:
                log.append(key, 2)
        return MemorySource(log)

    @pytest.fixture
    def sink(self, tmp_path: Path) -> ParquetSink:
        """Return an empty sink."""
        return ParquetSink(tmp_path / "lake")

    def plan(self, source: MemorySource, sink: ParquetSink) -> WindowPlan:
        """Return the plan of all records, with one empty partition."""
        ends = {found.key: (0, end.max_offset) for found, end in source.ends().items()}
        scope = WindowScope(source.identity, source.topic, source.group, sink.identity)
        return WindowPlan.cursor(scope, 1, {**ends, "9:9": (0, 0)})

    def run(self, source: MemorySource, sink: ParquetSink, journal: Any, task: str) -> WindowRun:
        """Return a try of a task."""
        scope = WindowScope(source.identity, source.topic, source.group, sink.identity)
        planner = CursorPlanner(scope, source.ends, "earliest")
        store = MemoryOffsetStore(journal, task=task)
        return window_run(planner, store, sink, self.make(source), attempt=f"{task}-{id(store)}")

    def bodies(self, sink: ParquetSink) -> Counter[bytes]:
        """Return the bodies in the sink."""
        table = read_windows(sink).to_table()
        return Counter(table["value"].to_pylist() if table.num_rows else ())

    def expected(self, source: MemorySource) -> Counter[bytes]:
        """Return the bodies of the topic."""
        return Counter(body_of(key, offset) for key, offset in source.log.all_records())

    def test_each_record_of_a_plan_is_written_once_and_counted(
        self, source: MemorySource, sink: ParquetSink
    ) -> None:
        plan = self.plan(source, sink)
        staging = sink.begin(plan, "a")
        counts = self.make(source).ingest(plan, staging, IngestWatch())
        check_counts(plan, counts)
        assert dict(counts.records) == {**dict.fromkeys(KEYS, 8), "9:9": 0}
        assert counts.bytes == sum(map(len, self.expected(source).elements()))
        assert sink.publish(staging, plan, counts, lambda _: None).won
        assert self.bodies(sink) == self.expected(source)

    def test_a_part_of_a_range_is_all_that_is_read(
        self, source: MemorySource, sink: ParquetSink
    ) -> None:
        step = source.space.step
        scope = WindowScope(source.identity, source.topic, source.group, sink.identity)
        plan = WindowPlan.cursor(scope, 1, {"1:0": (step, 3 * step), "2:0": (2 * step, 5 * step)})
        staging = sink.begin(plan, "a")
        counts = self.make(source).ingest(plan, staging, IngestWatch())
        assert sink.publish(staging, plan, counts, lambda _: None).won
        wanted = [body_of(key, offset) for key, offset in source.log.records(plan)]
        assert self.bodies(sink) == Counter(wanted)

    def test_two_tries_share_no_file(self, source: MemorySource, sink: ParquetSink) -> None:
        plan = self.plan(source, sink)
        dead, live = sink.begin(plan, "dead"), sink.begin(plan, "live")
        self.make(source).ingest(plan, dead, IngestWatch())
        counts = self.make(source).ingest(plan, live, IngestWatch())
        assert sink.publish(live, plan, counts, lambda _: None).won
        sink.tidy(plan.window_id)
        assert self.bodies(sink) == self.expected(source)

    def test_a_stopped_ingest_leaves_nothing_to_readers(
        self, source: MemorySource, sink: ParquetSink
    ) -> None:
        plan, calls = self.plan(source, sink), list[str]()
        self.make(source).ingest(
            plan, sink.begin(plan, "count"), IngestWatch(progress=calls.append)
        )

        for number in range(len(calls)):
            seen = list[str]()

            def stop(point: str, limit: int = number, seen: list[str] = seen) -> None:
                if len(seen) == limit:
                    raise _Stopped
                seen.append(point)

            with pytest.raises(_Stopped):
                self.make(source).ingest(
                    plan, sink.begin(plan, f"stop-{number}"), IngestWatch(progress=stop)
                )
            assert self.bodies(sink) == Counter()

    def test_a_run_stopped_at_any_point_is_finished_by_its_retry(
        self, source: MemorySource, sink: ParquetSink
    ) -> None:
        journal = MemoryJournal()
        for stop in range(0, 30, 3):
            source.log.append("1:1", 2)
            steps = self.run(source, sink, journal, f"task-{stop}").steps()
            for _ in range(stop):
                next(steps, None)
            del steps
            self.run(source, sink, journal, f"task-{stop}").run()
        assert self.bodies(sink) == self.expected(source)

    def test_what_airflow_shows_of_it_is_its_class(self, source: MemorySource) -> None:
        engine = self.make(source)
        assert engine.name
        shown = engine.serialize()
        assert shown["class"] == f"{type(engine).__module__}.{type(engine).__qualname__}"
