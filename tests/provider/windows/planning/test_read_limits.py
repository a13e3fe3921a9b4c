"""Caps by bytes and by time: estimates that become exact windows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.provider.windows.fake_reader import KEYS, TOPIC, ends_of, expected, open_fake, owns
from tubemq_client import Message
from tubemq_client.errors import ConfigError
from tubemq_client.model import OffsetRange
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.read_limits import ByteBudget, Throughput
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult

reads: list[OffsetRange] = []


def read(range_: OffsetRange) -> Iterator[Message]:
    """Return records of a hundred bytes, one in every second entry."""
    reads.append(range_)
    for offset in range(range_.start, range_.end, 28):
        if owns(range_.partition, offset):
            yield Message(bytes(100), {}, None, None, 1, offset)


@given(st.integers(1, 100_000))
def test_a_byte_budget_is_entries_at_the_sampled_size(max_bytes: int) -> None:
    ranges = {"1:0": (0, 28 * 1_000), "1:1": (0, 28 * 1_000), "2:0": (28, 28)}
    found = ByteBudget(TOPIC, max_bytes, read, SPACE)(ranges)
    # Both partitions of the store together have a record of 100 bytes per entry.
    assert found == max(1, max_bytes // 100)


def test_samples_are_few_however_many_stores_there_are() -> None:
    reads.clear()
    ranges = {f"{broker}:0": (280, 28 * (100 + broker)) for broker in range(1, 200)}
    ByteBudget(TOPIC, 1_000, read, SPACE)(ranges)
    assert len(reads) == 16
    assert all(r.start == 280 and r.entries == 64 for r in reads)


def test_nothing_is_known_without_a_record() -> None:
    assert ByteBudget(TOPIC, 10, lambda _: iter(()), SPACE)({"1:0": (0, 2800)}) is None
    assert ByteBudget(TOPIC, 10, read, SPACE)({"1:0": (0, 0)}) is None


def test_a_pace_is_read_from_an_event_and_never_starves() -> None:
    assert Throughput.of_event({"pace": [5_000, 250]}) == Throughput(5_000, 250)
    assert Throughput(5_000, 250).entries_in(timedelta(seconds=2)) == 40_000
    assert Throughput(1, 60_000).entries_in(timedelta(seconds=1)) == 1_000
    for damaged in (None, {}, {"pace": 3}, {"pace": [1]}, {"pace": [0, 1]}, {"pace": [1, 0.5]}):
        assert Throughput.of_event(damaged) is None


class Clock:
    """A second passes between any two looks."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def test_windows_are_cut_by_the_pace_of_the_one_before(tmp_path: Path) -> None:
    ends = dict.fromkeys(KEYS, 28 * 3_000)
    journal, sink = MemoryJournal(), ParquetSink(tmp_path)
    scope = WindowScope("c1", TOPIC, "g1", sink.identity)

    def run(name: str, wanted: timedelta | None) -> WindowResult:
        planner = CursorPlanner(
            scope, lambda: ends_of(ends), initial_position="earliest", max_duration=wanted
        )
        store = MemoryOffsetStore(journal, task=name)
        engine = InlineEngine(open_fake, columns=["partition", "value"])
        return window_run(planner, store, sink, engine, attempt=name, clock=Clock()).run()

    first = run("first", timedelta(milliseconds=200))
    assert first.has_more
    assert sum(e - s for s, e in first.ranges.values()) == 28 * 2 * 2_000  # as assumed
    assert first.pace == Throughput(2_000, 1_000)
    second = run("second", timedelta(milliseconds=1_200))
    assert sum(e - s for s, e in second.ranges.values()) == 28 * 2 * 2_400
    third = run("third", None)
    assert not third.has_more
    assert first.total + second.total + third.total == len(expected(ends))
    empty = run("fourth", timedelta(seconds=1))
    assert empty.empty
    assert empty.pace == third.pace == Throughput(1_600, 1_000)


def test_a_duration_must_be_one() -> None:
    with pytest.raises(ConfigError, match="max_duration"):
        CursorPlanner(WindowScope("c", "t", "g", "s"), dict, max_duration=timedelta(0))
