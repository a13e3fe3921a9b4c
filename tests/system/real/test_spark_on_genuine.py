"""A window through Spark on the genuine broker: its content equals the send receipts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system.behaviour.windows import Feeder, Ledger
from tests.system.real import topics
from tubemq_client import ClientSettings, Metadata
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.standalone_planner import ExplicitPlanner
from tubemq_provider.windows.run.kinds import window_run

pytestmark = [pytest.mark.real, pytest.mark.slow]

TOPIC = topics.SPARES[0].name


def test_an_explicit_window_through_spark_equals_the_receipts(
    settings: ClientSettings, tmp_path: Path
) -> None:
    ledger = Ledger()
    Feeder(settings, TOPIC, ledger, 7).produce(3_000)
    partitions = sorted(ledger.rows)
    starts = {p.key: 28 * 10 for p in partitions}
    ends = {p.key: ledger.stable_end_of(p) - 28 * 10 for p in partitions}
    sink = ParquetSink(tmp_path)
    engine = SessionEngine(settings, master="local[1]")
    with Metadata(settings) as metadata:
        planner = ExplicitPlanner(
            WindowScope("genuine", TOPIC, "spark_real", sink.identity),
            starts,
            ends,
            lambda: metadata.ends(TOPIC, "spark_real", stable=False),
        )
        store = MemoryOffsetStore(MemoryJournal())
        try:
            result = window_run(planner, store, sink, engine, attempt="1").run()
        finally:
            engine.stop()
    wanted = {
        p.key: sorted(
            body for offset, body, _ in ledger.rows[p] if starts[p.key] <= offset < ends[p.key]
        )
        for p in partitions
    }
    table = read_windows(tmp_path).to_table(columns=["partition", "value"]).to_pydict()
    found: dict[str, list[bytes]] = {key: [] for key in wanted}
    for key, value in zip(table["partition"], table["value"], strict=True):
        found[key].append(value)
    assert {key: sorted(values) for key, values in found.items()} == wanted
    assert result.records == {key: len(bodies) for key, bodies in wanted.items()}
    assert json.dumps(result.to_document())
