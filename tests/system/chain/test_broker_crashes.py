"""Cursor windows across hard kills of a broker that loses records and uses their offsets again.

Everything real but the server process: range reader, planner, `WindowRun`, Parquet. What the
brokers hold in the end is the truth: each of those records is in the lake once, nothing else is.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.kit.engines import inline_engine
from tests.kit.servers import embedded_tubemq
from tests.system.behaviour.windows import Feeder, Ledger
from tubemq_client import ClientSettings, Metadata, OffsetRange, RangeReader
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import published_windows, read_windows
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult

TOPIC, GROUP = "orders", "lake"


# Equal partition ids; flushed only by hand.
mq = embedded_tubemq(
    [TopicSpec(TOPIC, stores=2, partitions=2)],
    brokers=2,
    switches=Switches(flush_interval_ms=None, unflushed_records=None),
)


def run_window(
    settings: ClientSettings, sink: ParquetSink, journal: MemoryJournal, number: int
) -> WindowResult:
    with Metadata(settings) as metadata:
        planner = CursorPlanner(
            WindowScope("test", TOPIC, GROUP, sink.identity),
            lambda: metadata.ends(TOPIC, GROUP),
            initial_position="earliest",
        )
        engine = inline_engine(settings, policies=Policies())
        store = MemoryOffsetStore(journal, task=f"run-{number}")
        return window_run(planner, store, sink, engine, attempt=f"try-{number}").run()


def held_by_brokers(settings: ClientSettings) -> Counter[bytes]:
    held: Counter[bytes] = Counter()
    with Metadata(settings) as metadata, RangeReader(settings, group="audit") as reader:
        for partition, ends in metadata.ends(TOPIC, "audit").items():
            whole = OffsetRange(partition, ends.min_offset, ends.max_offset)
            for batch in reader.read(whole):
                held.update(message.body for message in batch.messages())
    return held


def in_lake(root: Path) -> Counter[bytes]:
    return Counter(read_windows(root).to_table(columns=["value"])["value"].to_pylist())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_crashes_that_reuse_offsets_neither_skip_nor_double(
    mq: EmbeddedTubeMQ, settings: ClientSettings, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    sink, journal = ParquetSink(tmp_path), MemoryJournal()
    feeder = Feeder(settings, TOPIC, Ledger(), seed)
    lost = 0
    for number in range(12):
        feeder.produce(rng.randint(20, 120))
        if rng.random() < 0.5:
            mq.broker(rng.choice((1, 2))).flush()
        run_window(settings, sink, journal, number)
        if rng.random() < 0.5:
            victim = mq.broker(rng.choice((1, 2)))
            lost += victim.crash()
            victim.restart()
    for broker in (1, 2):
        mq.broker(broker).flush()
    last = run_window(settings, sink, journal, 99)
    assert lost > 0
    assert in_lake(tmp_path) == held_by_brokers(settings)
    assert not last.has_more
    assert_contiguous(tmp_path)


def assert_contiguous(root: Path) -> None:
    position: dict[str, int] = {}
    windows = sorted(published_windows(root), key=lambda marker: marker.plan.seq or 0)
    for expected, marker in enumerate(windows, start=1):
        assert marker.plan.seq == expected
        for key, (start, end) in marker.plan.ranges.items():
            assert start == position.get(key, start)
            position[key] = end


def test_windows_without_new_data_leave_no_trace(
    mq: EmbeddedTubeMQ, settings: ClientSettings, tmp_path: Path
) -> None:
    sink, journal = ParquetSink(tmp_path), MemoryJournal()
    feeder = Feeder(settings, TOPIC, Ledger(), 1)
    feeder.produce(50)
    for broker in (1, 2):
        mq.broker(broker).flush()
    assert not run_window(settings, sink, journal, 0).empty
    assert all(run_window(settings, sink, journal, n).empty for n in (1, 2, 3))
    feeder.produce(10)
    for broker in (1, 2):
        mq.broker(broker).flush()
    assert not run_window(settings, sink, journal, 4).empty
    assert [m.plan.seq for m in published_windows(tmp_path)] == [1, 2]
    assert in_lake(tmp_path) == held_by_brokers(settings)
