"""Contract of every resolver: what turns an instant into one offset of each partition.

    class TestMyResolver(ResolverSuite):
        def make(self, source):
            return MyResolver(source)

The source is a topic in memory, without times; a resolver that needs times defines `source`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.testing.memory import KEYS, MemoryLog
from tubemq_provider.testing.memory_source import MemorySource
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.instants import TimeResolver
from tubemq_provider.windows.planning.standalone_planner import TimePlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.run.kinds import window_run

__all__ = ["ResolverSuite"]


class ResolverSuite:
    """Behaviour shared by all resolvers. Subclasses define `make`."""

    instants: tuple[datetime, ...] = tuple(
        datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hour) for hour in range(4)
    )
    """Instants that can be resolved, in order."""

    def make(self, source: Any) -> TimeResolver:
        """Return the resolver for `source`."""
        raise NotImplementedError

    def grow(self, source: Any) -> None:
        """Let records arrive."""
        source.log.append("1:1", 2)

    @pytest.fixture
    def source(self) -> Any:
        """Return a topic of three partitions, of which two share a log."""
        log = MemoryLog()
        for key in KEYS:
            log.append(key, 3)
        return MemorySource(log)

    def test_it_has_a_name_and_says_whether_it_is_exact(self, source: Any) -> None:
        resolver = self.make(source)
        assert isinstance(resolver, TimeResolver)
        assert isinstance(resolver.name, str)
        assert isinstance(resolver.exact, bool)

    def test_offsets_are_of_the_topic_and_within_its_logs(self, source: Any) -> None:
        resolver = self.make(source)
        for instant in self.instants:
            ends = {found.key: end for found, end in source.ends().items()}
            offsets = resolver.offsets_at(instant)
            assert set(offsets) <= set(ends)
            for key, offset in offsets.items():
                assert source.space.offset_problem(offset) is None
                assert ends[key].min_offset <= offset <= ends[key].max_offset

    def test_a_later_instant_is_at_no_lower_offset(self, source: Any) -> None:
        resolver = self.make(source)
        answers = [resolver.offsets_at(instant) for instant in self.instants]
        for earlier, later in pairwise(answers):
            assert all(later.get(key, offset) >= offset for key, offset in earlier.items())

    def test_an_exact_answer_stays(self, source: Any) -> None:
        resolver = self.make(source)
        if not resolver.exact:
            pytest.skip("its answers are fixed in the sink's book")
        before = [resolver.offsets_at(instant) for instant in self.instants]
        self.grow(source)
        assert [self.make(source).offsets_at(instant) for instant in self.instants] == before

    def test_windows_of_time_tile_the_topic(self, source: Any, tmp_path: Path) -> None:
        sink = ParquetSink(tmp_path / "lake")
        scope = WindowScope(
            source.identity,
            source.topic,
            source.group,
            sink.identity,
            source=source.space.source,
        )
        plans: list[WindowPlan] = []
        for number, (start, end) in enumerate(pairwise(self.instants)):
            for task in (f"task-{number}", f"cleared-{number}"):
                planner = TimePlanner(
                    scope,
                    start,
                    end,
                    self.make(source),
                    source.ends,
                    sink.boundaries,
                    Policies(),
                    source.record_lookup(),
                )
                engine = InlineEngine.for_source(source, policies=planner.policies)
                store = MemoryOffsetStore(MemoryJournal(), task=task)
                result = window_run(planner, store, sink, engine, attempt=task).run()
                marker = sink.marker(result.window_id or "")
                assert marker is not None
                plans.append(marker.plan)
                self.grow(source)
        assert plans[::2] == plans[1::2]
        for earlier, later in pairwise(plans[::2]):
            for key, (_, end_offset) in earlier.ranges.items():
                assert later.ranges[key][0] == end_offset
