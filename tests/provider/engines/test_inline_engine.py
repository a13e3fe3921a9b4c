"""The inline engine: exactly the plan's records as Parquet, in files of a known shape."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.provider.windows.fake_reader import TOPIC, FakeBatch, FakeReader, expected, open_fake
from tubemq_client import COLUMNS, Gap
from tubemq_client.errors import ConfigError
from tubemq_client.model import CorruptRecords, OffsetRange
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.testing.engine_suite import EngineSuite
from tubemq_provider.testing.memory_source import MemorySource
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import Engine, IngestWatch, Staging
from tubemq_provider.windows.verify import check_counts

SCOPE = WindowScope("c1", TOPIC, "g1", "parquet:/x")
PLAN = WindowPlan.cursor(
    SCOPE,
    1,
    {"1:0": (0, 28 * 40), "1:1": (0, 28 * 40), "2:0": (28, 56), "2:1": (0, 0)},
)


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(PLAN.window_id, "a", str(tmp_path))


class TestInlineEngine(EngineSuite):
    def make(self, source: MemorySource) -> InlineEngine:
        return InlineEngine.for_source(source, policies=Policies())


def test_every_record_of_the_plan_is_written_once(staging: Staging) -> None:
    engine = InlineEngine(open_fake)
    counts = engine.ingest(PLAN, staging, IngestWatch())
    check_counts(PLAN, counts)
    assert isinstance(engine, Engine)
    table = pq.read_table(staging.path)
    assert sorted(table["value"].to_pylist()) == expected({"1:0": 1120, "1:1": 1120})
    assert counts.records == {"1:0": 20, "1:1": 20, "2:0": 0, "2:1": 0}
    assert counts.bytes == sum(map(len, table["value"].to_pylist()))
    assert table.schema.names == list(COLUMNS)


def test_ranges_without_records_leave_no_file(staging: Staging) -> None:
    InlineEngine(open_fake).ingest(PLAN, staging, IngestWatch())
    names = sorted(path.name for path in Path(staging.path).iterdir())
    assert names == ["part-1-0-0.parquet", "part-1-1-0.parquet"]


def test_row_groups_are_cut_by_size_and_announced(staging: Staging) -> None:
    points: list[str] = []
    InlineEngine(open_fake, row_group_bytes=1).ingest(PLAN, staging, IngestWatch(points.append))
    metadata = pq.read_metadata(Path(staging.path) / "part-1-0-0.parquet")
    assert metadata.num_row_groups == 8
    assert points.count("row group written") == 16
    assert points.count("range written") == 3


def test_columns_may_be_left_out_but_not_the_partition(staging: Staging) -> None:
    InlineEngine(open_fake, columns=["partition", "value"]).ingest(PLAN, staging, IngestWatch())
    assert pq.read_table(staging.path).schema.names == ["partition", "value"]
    with pytest.raises(ConfigError) as caught:
        InlineEngine(open_fake, columns=["value", "colour"], row_group_bytes=0)
    assert len(caught.value.problems) == 3


def test_gaps_and_corrupt_records_of_the_reader_are_counted(staging: Staging) -> None:
    class Troubled(FakeReader):
        def read(self, range_: OffsetRange) -> Iterator[FakeBatch]:
            if range_.partition.key == "1:1":
                self.stats.gaps.append(Gap("1:1", 0, 28))
                self.stats.corrupt += 2
            return super().read(range_)

    @contextmanager
    def open_troubled(plan: WindowPlan) -> Iterator[FakeReader]:
        yield Troubled()

    counts = InlineEngine(open_troubled).ingest(PLAN, staging, IngestWatch())
    assert counts.gaps == {"1:1": [[0, 28]]}
    assert counts.corrupt == 2


def test_a_cancelled_ingest_stops(staging: Staging) -> None:
    engine = InlineEngine(open_fake, row_group_bytes=1)
    with pytest.raises(WindowError, match="cancelled"):
        engine.ingest(PLAN, staging, IngestWatch(lambda _: engine.cancel()))


def test_an_engine_cancelled_before_its_ingest_reads_nothing(staging: Staging) -> None:
    engine = InlineEngine(open_fake)
    engine.cancel()
    with pytest.raises(WindowError, match="cancelled"):
        engine.ingest(PLAN, staging, IngestWatch())
    assert not any(Path(staging.path).iterdir())


def test_files_have_about_the_size_that_is_asked(staging: Staging) -> None:
    whole = InlineEngine(open_fake, target_file_bytes=1 << 30)
    counts = whole.ingest(PLAN, staging, IngestWatch())
    check_counts(PLAN, counts)
    (file,) = Path(staging.path).iterdir()  # both partitions with records
    assert pq.read_metadata(file).num_row_groups == 2  # a row group is of one partition
    file.unlink()
    InlineEngine(open_fake, target_file_bytes=1).ingest(PLAN, staging, IngestWatch())
    assert len(list(Path(staging.path).iterdir())) > 4
    found = pq.read_table(staging.path)["value"].to_pylist()
    assert sorted(found) == expected({"1:0": 1120, "1:1": 1120})


def test_progress_counts_records_whatever_rows_are_made_of_them(staging: Staging) -> None:
    told: list[tuple[str, int, int]] = []
    spec = DecodeSpec("json", schema="id bigint")
    engine = InlineEngine(open_fake, decode=spec, corrupt_records=CorruptRecords.DROP)
    watch = IngestWatch(on_read=lambda _, *seen: told.append(seen))
    counts = engine.ingest(PLAN, staging, watch)
    assert counts.total == 0  # no body is JSON
    assert told[-1][2] == sum((counts.read or {}).values()) == 40
    assert {key: records for key, records, _ in told if records} == {"1:0": 20, "1:1": 20}
