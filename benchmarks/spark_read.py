"""The Spark rows of the read benchmark: the same range through `format("tubemq")`.

One task on `local[1]`, so that the rate compares with one reader; the session is warmed up with a
short range first. The sinks are Spark's own: `noop` shows the source alone, Parquet the usual path.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from benchmarks.raw_fetch import Rate
from tubemq_client import OffsetRange
from tubemq_provider.engines.spark_runtime import open_session
from tubemq_provider.spark.session import register

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tubemq_client import ClientSettings

__all__ = ["spark_rows"]

_WARM_UP_ENTRIES = 5_000


def spark_rows(
    settings: ClientSettings, range_: OffsetRange, folder: Path, passes: int
) -> dict[str, Rate]:
    """Rates of Spark reading `range_` to nowhere and to Parquet, best of `passes`."""
    spark, _ = open_session("local[1]", {})
    try:
        register(spark)
        warm = min(range_.end, range_.start + _WARM_UP_ENTRIES * 28)
        _noop(_frame(spark, settings, OffsetRange(range_.partition, range_.start, warm)))
        frame = _frame(spark, settings, range_)
        noop = min(_timed(lambda: _noop(frame)) for _ in range(passes))
        parquet = min(
            _timed(lambda: frame.write.mode("overwrite").parquet(str(folder / "out")))
            for _ in range(passes)
        )
        rows = spark.read.parquet(str(folder / "out")).count()
    finally:
        spark.stop()
    if rows != range_.entries:
        raise SystemExit(f"Spark wrote {rows} of {range_.entries} records")
    return {"Spark to noop": Rate(rows, 0, noop), "Spark to Parquet": Rate(rows, 0, parquet)}


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
        maxOffsetsPerPartition=str(range_.entries + 1),
    )
    return reader.schema("partition string, offset bigint, value binary").load()


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _timed(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
