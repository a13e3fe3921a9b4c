"""The sink that says of itself that it is not exactly-once."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.provider.sinks.windows import COUNTS, ignore, plan_of, publish, stage
from tests.provider.windows.fake_reader import KEYS, TOPIC, ends_of, expected, open_fake
from tubemq_client.errors import ConfigError
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.append import AppendSink
from tubemq_provider.windows.errors import CountMismatch, SinkHistoryLost
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.protocols import IngestCounts, Sink
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult


@pytest.fixture
def sink(tmp_path: Path) -> AppendSink:
    return AppendSink(tmp_path / "lake", exactly_once=False)


def test_it_has_to_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exactly_once=False"):
        AppendSink(tmp_path, exactly_once=True)


def test_records_of_a_repeated_window_are_there_twice(sink: AppendSink, tmp_path: Path) -> None:
    assert isinstance(sink, Sink)
    assert not sink.exactly_once
    plan = plan_of(sink)
    for who in ("a", "b"):
        assert publish(sink, plan, who).won
    assert sink.marker(plan.window_id) is None
    assert list(sink.window_ids()) == []
    names = [path.name for path in (tmp_path / "lake").glob("*.parquet")]
    assert len(names) == 2
    assert all(name.startswith(plan.window_id) for name in names)
    assert pq.read_table(tmp_path / "lake").num_rows == 6


def test_counts_are_verified_all_the_same(sink: AppendSink, tmp_path: Path) -> None:
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    stage(staging, "a")
    with pytest.raises(CountMismatch):
        sink.publish(staging, plan, IngestCounts({"1:0": 1, "1:1": 1}), ignore)
    sink.discard(staging)
    sink.tidy(plan.window_id)
    assert list((tmp_path / "lake").glob("*.parquet")) == []
    assert COUNTS.total == 3


def run(sink: AppendSink, journal: MemoryJournal, task: str, ends: dict[str, int]) -> WindowResult:
    scope = WindowScope("c1", TOPIC, "g1", sink.identity)
    planner = CursorPlanner(scope, lambda: ends_of(ends), initial_position="earliest")
    store = MemoryOffsetStore(journal, task=task)
    return window_run(planner, store, sink, InlineEngine(open_fake), attempt=task).run()


def test_a_run_says_that_it_was_not_exactly_once(sink: AppendSink, tmp_path: Path) -> None:
    journal = MemoryJournal()
    first, second = dict.fromkeys(KEYS, 28 * 11), dict.fromkeys(KEYS, 28 * 40)
    assert run(sink, journal, "one", first).exactly_once is False
    result = run(sink, journal, "two", second)
    assert result.to_document()["exactly_once"] is False
    values = pq.read_table(tmp_path / "lake")["value"].to_pylist()
    assert sorted(values) == expected(second)


def test_a_cleared_task_does_not_append_again(sink: AppendSink, tmp_path: Path) -> None:
    journal = MemoryJournal()
    ends = dict.fromkeys(KEYS, 28 * 11)
    run(sink, journal, "one", ends)
    with pytest.raises(SinkHistoryLost):
        run(sink, journal, "one", ends)
    assert sorted(pq.read_table(tmp_path / "lake")["value"].to_pylist()) == expected(ends)
