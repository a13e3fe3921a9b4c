"""The Spark rows of the read benchmark: the same range through `format("tubemq")`.

One task on `local[1]`, so that the rate compares with one reader; the session is warmed up with a
short range first. The sinks are Spark's own: `noop` shows the source alone, Parquet the usual path.
"""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from tools.benchmarks.interleaved import Rate
from tubemq_client import OffsetRange
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.engines.spark_runtime import open_session
from tubemq_provider.spark.session import register
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestWatch, Staging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tubemq_client import ClientSettings

__all__ = ["spark_ways"]

_WARM_UP_ENTRIES = 5_000


@contextmanager
def spark_ways(
    settings: ClientSettings, range_: OffsetRange, folder: Path, size: int
) -> Iterator[dict[str, Callable[[], Rate]]]:
    """Yield Spark's ways to read `range_` of records of `size` bytes, while its session is up: to
    nowhere, to Parquet, and by the session engine."""
    spark, _ = open_session("local[1]", {})
    try:
        register(spark)
        warm = min(range_.end, range_.start + _WARM_UP_ENTRIES * 28)
        _noop(_frame(spark, settings, OffsetRange(range_.partition, range_.start, warm)))
        frame = _frame(spark, settings, range_)
        target = str(folder / "out")

        def rate(seconds: float) -> Rate:
            return Rate(range_.entries, range_.entries * size, seconds)

        yield {
            "Spark to noop": lambda: rate(_timed(lambda: _noop(frame))),
            "Spark to Parquet": lambda: rate(
                _timed(lambda: frame.write.mode("overwrite").parquet(target))
            ),
            "session, direct write off": lambda: rate(_ingested(settings, range_, folder, "off")),
            "session, direct write on": lambda: rate(_ingested(settings, range_, folder, "on")),
        }
        rows = spark.read.parquet(target).count()
        if rows != range_.entries:
            raise SystemExit(f"Spark wrote {rows} of {range_.entries} records")
    finally:
        spark.stop()


def _ingested(
    settings: ClientSettings, range_: OffsetRange, folder: Path, direct_write: Literal["on", "off"]
) -> float:
    """Return the seconds the session engine takes to stage a window, in one task and the same
    columns."""
    plan = WindowPlan.explicit(
        WindowScope("bench", range_.partition.topic, "bench_spark", "bench"),
        {range_.partition.key: (range_.start, range_.end)},
    )
    options = {
        "columns": "partition,offset,value",
        "maxRecordsPerPartition": str(range_.entries + 1),
    }
    engine = SessionEngine(settings, options=options, direct_write=direct_write)
    with tempfile.TemporaryDirectory(dir=folder) as staging:
        staging_place = Staging(plan.window_id, "bench", staging)
        counts: list[int] = []
        seconds = _timed(
            lambda: counts.append(engine.ingest(plan, staging_place, IngestWatch()).total)
        )
    if counts != [range_.entries]:
        raise SystemExit(f"direct write {direct_write}: {counts} of {range_.entries} records")
    return seconds


def _frame(spark: SparkSession, settings: ClientSettings, range_: OffsetRange) -> DataFrame:
    masters = ",".join(f"{host}:{port}" for host, port in settings.masters)
    topic, key = range_.partition.topic, range_.partition.key
    reader = spark.read.format("tubemq").options(
        masters=masters,
        topic=topic,
        group="bench_spark",
        partitions=key,
        startingOffsets=json.dumps({topic: {key: range_.start}}),
        endingOffsets=json.dumps({topic: {key: range_.end}}),
        maxRecordsPerPartition=str(range_.entries + 1),
    )
    return reader.schema("partition string, offset bigint, value binary").load()


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _timed(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
