"""`max_files`: a window with more data files fails before anything is published."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.provider.sinks.openers import iceberg_catalog
from tests.provider.windows.fake_reader import KEYS, TOPIC, ends_of, open_fake
from tubemq_client.errors import ConfigError
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.delta import DeltaSink
from tubemq_provider.sinks.iceberg import IcebergSink
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import IngestCounts, IngestWatch, Sink, Staging
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult

RECORDS = 4
BY = ["partition"]


class SilentEngine(InlineEngine):
    """An engine that does not tell which files it writes."""

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
        counts = super().ingest(plan, staging, watch)
        return IngestCounts(counts.records, bytes=counts.bytes)


def run(
    sink: Sink,
    most: int | None,
    journal: MemoryJournal,
    engine: type[InlineEngine] = InlineEngine,
    records: int = RECORDS,
) -> WindowResult:
    planner = CursorPlanner(
        WindowScope("c1", TOPIC, "g1", sink.identity),
        lambda: ends_of(dict.fromkeys(KEYS, 28 * records)),
        initial_position="earliest",
        policies=Policies(max_files=most),
    )
    store = MemoryOffsetStore(journal, task="t")
    return window_run(planner, store, sink, engine(open_fake), attempt="a1").run()


@pytest.fixture(params=["parquet", "delta", "iceberg"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> ParquetSink | DeltaSink | IcebergSink:
    if request.param == "parquet":
        return ParquetSink(tmp_path / "lake", partition_by=BY)
    if request.param == "delta":
        return DeltaSink(tmp_path / "table", partition_by=BY)
    catalog = iceberg_catalog(tmp_path / "iceberg")
    return IcebergSink("sales.orders", catalog=catalog, partition_by=BY)


def test_more_files_fail_the_window_and_publish_nothing(
    sink: ParquetSink | DeltaSink | IcebergSink,
) -> None:
    journal, files = MemoryJournal(), len(KEYS)
    with pytest.raises(ConfigError, match=rf"has {files} data files, and max_files={files - 1} "):
        run(sink, files - 1, journal)
    assert list(sink.window_ids()) == []
    # The same window, once the option is changed.
    assert run(sink, files, journal).total > 0
    assert len(list(sink.window_ids())) == 1


def test_an_engine_that_tells_no_files_is_refused(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "lake")
    with pytest.raises(ConfigError, match="engine inline does not tell which files it writes"):
        run(sink, 5, MemoryJournal(), SilentEngine)
    assert list(sink.window_ids()) == []
    assert run(sink, None, MemoryJournal(), SilentEngine).total


def test_a_window_without_records_has_no_files(tmp_path: Path) -> None:
    assert run(ParquetSink(tmp_path / "lake"), 1, MemoryJournal(), records=0).empty
