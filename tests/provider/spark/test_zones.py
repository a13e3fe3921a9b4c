"""The same records make the same rows, whatever the zone and the settings of the worker are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.provider.spark.world import World
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.engines.spark_runtime import session_conf, temporary_conf
from tubemq_provider.engines.transforms import sql_transform
from tubemq_provider.windows.protocols import IngestWatch, Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

ZONE = "spark.sql.session.timeZone"
SQL = """
SELECT partition, to_timestamp('2026-07-01 12:00:00') AS noon,
       hour(TIMESTAMP '2026-07-01T23:30:00Z') AS hour,
       date(TIMESTAMP '2026-07-01T23:30:00Z') AS day,
       CAST(TIMESTAMP '2026-07-01T23:30:00Z' AS STRING) AS text
FROM records
"""
IN_UTC = {
    "noon": datetime(2026, 7, 1, 12, tzinfo=UTC),
    "hour": 23,
    "day": date(2026, 7, 1),
    "text": "2026-07-01 23:30:00",
}
NEW_YORK = {
    "noon": datetime(2026, 7, 1, 16, tzinfo=UTC),
    "hour": 19,
    "day": date(2026, 7, 1),
    "text": "2026-07-01 19:30:00",
}


@pytest.fixture
def abroad(spark: SparkSession) -> Iterator[None]:
    """Run as a worker in New York: the machine's zone is the JVM's, and so Spark's by default."""
    zones: Any = spark._jvm.java.util.TimeZone  # type: ignore[union-attr]
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone("America/New_York"))
    yield
    zones.setDefault(before)


def written(world: World, root: Path, way: Literal["on", "off"], transform: Any) -> pa.Table:
    root.mkdir()
    engine = SessionEngine(world.settings, transform=transform, direct_write=way)
    engine.ingest(world.plan(world.whole()), Staging("w-1", "a", str(root)), IngestWatch())
    return pq.read_table(root)


@pytest.mark.usefixtures("abroad")
@pytest.mark.parametrize("way", ["on", "off"])
def test_the_zone_of_a_worker_changes_no_row(
    spark: SparkSession, world: World, tmp_path: Path, way: Literal["on", "off"]
) -> None:
    world.produce(4)
    assert spark.conf.get(ZONE) == "America/New_York"
    rows = written(world, tmp_path / "a", way, sql_transform(SQL)).select([*IN_UTC]).to_pylist()
    assert rows
    assert all(row == IN_UTC for row in rows)
    # Otherwise the session's next window would treat it as chosen by the user.
    assert ZONE not in spark.conf.getAll
    assert spark.conf.get(ZONE) == "America/New_York"


def test_a_zone_that_was_chosen_is_used_and_stays(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.produce(4)
    with temporary_conf(spark, {ZONE: "America/New_York"}):
        rows = written(world, tmp_path / "a", "on", sql_transform(SQL)).to_pylist()
        assert all({name: row[name] for name in NEW_YORK} == NEW_YORK for row in rows)
        assert spark.conf.getAll[ZONE] == "America/New_York"
    assert ZONE not in spark.conf.getAll


def test_functions_in_python_are_in_the_zone_of_a_new_session() -> None:
    assert session_conf("local[1]", {})["spark.executorEnv.TZ"] == "UTC"
    chosen = session_conf("local[1]", {ZONE: "Europe/Berlin"})
    assert chosen["spark.executorEnv.TZ"] == "Europe/Berlin"


OLD = """
SELECT partition, DATE '1500-01-01' AS day, TIMESTAMP '1582-10-04T12:00:00Z' AS at,
       TIMESTAMP '1890-01-01T00:00:00.123456Z' AS later, CAST(1.25 AS DECIMAL(9, 2)) AS price,
       array(1, 2) AS numbers
FROM records
"""
LEGACY = {
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.writeLegacyFormat": "true",
}


@pytest.mark.parametrize("mode", ["LEGACY", "EXCEPTION"])
def test_old_dates_are_written_as_they_are_under_any_setting(
    spark: SparkSession, world: World, tmp_path: Path, mode: str
) -> None:
    world.produce(4)
    settings = {name: value.replace("LEGACY", mode) for name, value in LEGACY.items()}
    ways: tuple[Literal["on", "off"], ...] = ("on", "off")
    with temporary_conf(spark, settings):
        tables = [written(world, tmp_path / way, way, sql_transform(OLD)) for way in ways]
        assert {name: spark.conf.get(name) for name in settings} == settings
    for table in tables:
        row = table.slice(0, 1).to_pylist()[0]
        assert row["day"] == date(1500, 1, 1)
        assert row["at"] == datetime(1582, 10, 4, 12, tzinfo=UTC)
        assert row["later"] == datetime(1890, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
    assert {f.name: str(f.type) for f in tables[0].schema} == {
        f.name: str(f.type) for f in tables[1].schema
    }


def in_python(frame: DataFrame) -> DataFrame:
    """Spark passes instants to Python functions without a zone, in that of the process."""
    from pyspark.sql import functions as sf

    @sf.udf("string", useArrow=False)
    def hour_of(at: datetime) -> str:
        return str(at.hour)

    at = sf.expr("TIMESTAMP '2026-07-01T23:30:00Z'")
    return frame.select("partition", hour_of(at).alias("hour"))


def test_functions_in_python_see_utc(world: World, spark: SparkSession, tmp_path: Path) -> None:
    del spark  # It was opened as the engine opens one.
    world.produce(4)
    hours = written(world, tmp_path / "a", "on", in_python)["hour"].to_pylist()
    assert {*hours} == {"23"}
