"""Rows of a transform, written by our tasks: as Spark's own writer would, and counted."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.provider.spark.world import World
from tubemq_client.errors import ConfigError
from tubemq_provider.files.locations import LocalLocation
from tubemq_provider.files.writer import StagedWriter, with_file_parts
from tubemq_provider.windows.errors import CountMismatch
from tubemq_provider.windows.protocols import IngestWatch, Staging
from tubemq_provider.windows.verify import check_counts

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from tubemq_provider.engines import frame_write_job
from tubemq_provider.engines.frame_write_job import report_directory
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.engines.spark_runtime import temporary_conf
from tubemq_provider.engines.transforms import sql_transform
from tubemq_provider.spark.task_metrics import ReportDirectory, SplitReport

EVERY_TYPE = """
SELECT partition, offset, value,
       1 AS whole, CAST(-7 AS tinyint) AS tiny, CAST(300 AS smallint) AS small, 3L AS large,
       0.5F AS thin, 0.25D AS wide, CAST(12.34 AS decimal(10, 2)) AS exact, true AS yes,
       'text' AS word, DATE'1969-12-31' AS day, TIMESTAMP'2026-03-08 02:30:00.123456' AS instant,
       TIMESTAMP_NTZ'2026-03-08 02:30:00.123456' AS local,
       array(1, 2) AS numbers, array(named_struct('at', msg_time, 'n', 1)) AS things,
       named_struct('one', 1, 'at', array(msg_time)) AS both,
       map('k', named_struct('at', msg_time)) AS named, attributes,
       CAST(NULL AS string) AS nothing
FROM records
"""
REPORT = SplitReport(3, "1:0", 0, 280, 10, 100, 0, [])


@pytest.fixture
def stagings(tmp_path: Path) -> tuple[Staging, Staging]:
    for name in ("ours", "sparks"):
        (tmp_path / name).mkdir()
    ours, sparks = (Staging("w-1", name, str(tmp_path / name)) for name in ("ours", "sparks"))
    return ours, sparks


def rows_in(staging: Staging) -> pa.Table:
    order = [("partition", "ascending"), ("offset", "ascending")]
    return pq.read_table(staging.path).sort_by(order)


@pytest.mark.spark
@pytest.mark.timeout(120)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_every_type_is_written_as_sparks_own_writer_does(
    spark: SparkSession, world: World, stagings: tuple[Staging, Staging], zone: str
) -> None:
    world.produce(40)
    plan = world.plan(world.whole())
    ways: tuple[Literal["on", "off"], ...] = ("on", "off")
    with temporary_conf(spark, {"spark.sql.session.timeZone": zone}):
        for way, staging in zip(ways, stagings, strict=True):
            engine = SessionEngine(
                world.settings, transform=sql_transform(EVERY_TYPE), direct_write=way
            )
            check_counts(plan, engine.ingest(plan, staging, IngestWatch()))
    ours, sparks = map(rows_in, stagings)
    assert ours.num_rows == 40
    assert {f.name: str(f) for f in ours.schema} == {f.name: str(f) for f in sparks.schema}
    assert ours.equals(sparks)
    assert sorted(p.name for p in Path(stagings[0].path).iterdir() if p.suffix != ".parquet") == []


@pytest.mark.spark
@pytest.mark.timeout(120)
def test_a_transform_that_leaves_nothing_writes_no_file(
    spark: SparkSession, world: World, stagings: tuple[Staging, Staging]
) -> None:
    world.produce(8)
    plan = world.plan(world.whole())
    engine = SessionEngine(world.settings, transform=lambda frame: frame.where("value IS NULL"))
    counts = engine.ingest(plan, stagings[0], IngestWatch())
    check_counts(plan, counts)
    assert (counts.total, counts.files) == (0, ())
    assert sum((counts.read or {}).values()) == 8


SPELLINGS = {
    "a comment": "-- of the window\nSELECT partition, value FROM records;",
    "a table of its own": "/* two */ WITH r AS (SELECT * FROM records) SELECT partition FROM r",
    "FROM": "FROM records SELECT partition ORDER BY partition -- all of them",
    "a comment behind it": "SELECT partition, ';--' AS c FROM records; -- the whole window",
    "comments behind it": "SELECT partition FROM records;\n-- the /* whole\n/* win /* dow */ */ ; ",
    "RECURSIVE": (
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) "
        "SELECT partition FROM records WHERE 3 IN (SELECT n FROM t)"
    ),
}


@pytest.mark.spark
@pytest.mark.timeout(120)
@pytest.mark.parametrize("query", SPELLINGS.values(), ids=SPELLINGS)
def test_a_query_may_begin_and_end_as_it_likes(
    spark: SparkSession, world: World, stagings: tuple[Staging, Staging], query: str
) -> None:
    world.produce(8)
    plan = world.plan(world.whole())
    engine = SessionEngine(world.settings, transform=sql_transform(query))
    assert engine.ingest(plan, stagings[0], IngestWatch()).total == 8


NEEDS_NO_RECORD = {
    "a join with an empty table": "SELECT r.partition FROM records r JOIN nobody USING (offset)",
    "an empty list": "SELECT partition FROM records WHERE offset IN (SELECT offset FROM nobody)",
    "a condition that is never true": "SELECT partition FROM records WHERE 1 = 0",
}


@pytest.mark.spark
@pytest.mark.timeout(120)
@pytest.mark.parametrize("query", NEEDS_NO_RECORD.values(), ids=NEEDS_NO_RECORD)
def test_a_query_that_needs_no_record_reads_them_all_and_writes_none(
    spark: SparkSession, world: World, stagings: tuple[Staging, Staging], query: str
) -> None:
    spark.createDataFrame([], "offset bigint").repartition(2).createOrReplaceTempView("nobody")
    world.produce(40)
    plan = world.plan(world.whole())
    engine = SessionEngine(world.settings, transform=sql_transform(query))
    counts = engine.ingest(plan, stagings[0], IngestWatch())
    check_counts(plan, counts)
    assert (counts.total, sum((counts.read or {}).values())) == (0, 40)
    assert spark.conf.get("spark.sql.optimizer.excludedRules", None) is None


@pytest.mark.spark
@pytest.mark.timeout(120)
def test_a_query_that_does_not_read_all_is_refused_with_advice(
    spark: SparkSession, world: World, stagings: tuple[Staging, Staging]
) -> None:
    world.produce(8_000, size=4_000)  # more than fits between a task and its worker
    plan = world.plan(world.whole())
    engine = SessionEngine(world.settings, transform=lambda frame: frame.limit(1))
    with pytest.raises(CountMismatch, match="by a condition"):
        engine.ingest(plan, stagings[0], IngestWatch())


@pytest.mark.spark
@pytest.mark.timeout(120)
def test_a_transform_that_reads_the_window_twice_counts_it_once(
    spark: SparkSession, world: World, stagings: tuple[Staging, Staging]
) -> None:
    world.produce(40)
    plan = world.plan(world.whole())
    query = (
        "SELECT r.partition, r.value FROM records r "
        "JOIN (SELECT DISTINCT partition FROM records) p ON r.partition = p.partition"
    )
    counts = SessionEngine(world.settings, transform=sql_transform(query)).ingest(
        plan, stagings[0], IngestWatch()
    )
    check_counts(plan, counts)
    assert (counts.total, sum((counts.read or {}).values())) == (40, 40)
    assert rows_in_any_order(stagings[0]) == world.expected(world.whole())


def rows_in_any_order(staging: Staging) -> list[bytes]:
    return sorted(pq.read_table(staging.path)["value"].to_pylist())


def test_a_count_that_spark_never_reports_is_awaited_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Dropped:
        """Observation whose event was lost."""

        @property
        def get(self) -> dict[str, int]:
            threading.Event().wait(30)
            return {}

    monkeypatch.setattr(frame_write_job, "_OBSERVATION_S", 0.05)
    with pytest.raises(CountMismatch, match="a retry writes the window again"):
        frame_write_job._observed_rows(Dropped())  # type: ignore[arg-type]


def test_rows_of_any_partition_are_counted_by_file(tmp_path: Path) -> None:
    schema = pa.schema([("partition", pa.string()), ("n", pa.int64())])
    with StagedWriter(
        LocalLocation(tmp_path), "part", schema, target_bytes=2_000, row_group_bytes=500
    ) as writer:
        for number in range(400):
            keys = ["1:0", "1:1", "1:1"]
            writer.add(pa.RecordBatch.from_pydict({"partition": keys, "n": [number] * 3}), 0)
    facts = with_file_parts(writer.files, writer.pieces)
    assert len(facts) > 2
    for fact in facts:
        assert fact.partitions == {"1:0": fact.rows // 3, "1:1": fact.rows // 3 * 2}
        assert pq.read_metadata(tmp_path / fact.path).num_rows == fact.rows
    assert sum(fact.rows for fact in facts) == 1_200


def test_attempts_that_read_a_range_differently_are_an_error(tmp_path: Path) -> None:
    place = ReportDirectory(str(tmp_path))
    for report in (REPORT, replace(REPORT, index=1), REPORT):
        place.leave(report)
    place.put("files.json", [])
    (tmp_path / ".draft-of-one-that-was-killed").write_text('{"ind')
    assert [report.index for report in place.collect()] == [1, 3]
    place.leave(replace(REPORT, records=9, gaps=[[0, 28]]))
    with pytest.raises(CountMismatch, match=r"two attempts .* \[0, 280\) of partition 1:0"):
        place.collect()


def test_a_place_that_a_task_does_not_see_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="another file system than the driver; give staging_root"):
        ReportDirectory(str(tmp_path / "elsewhere")).leave(REPORT)
    assert not (tmp_path / "elsewhere").exists()


def test_reports_that_cannot_be_removed_fail_no_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: ReportDirectory) -> None:
        raise OSError("no right to delete")

    monkeypatch.setattr(ReportDirectory, "clear", refused)
    with report_directory(Staging("w-1", "a", str(tmp_path))) as place:
        place.leave(REPORT)
    with pytest.raises(KeyError), report_directory(Staging("w-1", "a", str(tmp_path))):
        raise KeyError("the cause")
