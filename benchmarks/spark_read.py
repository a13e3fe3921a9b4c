"""The Spark rows of the read benchmark: the same range through `format("tubemq")`.

One task on `local[1]`, so that the rate compares with one reader; the session is warmed up with a
short range first. The sinks are Spark's own: `noop` shows the source alone, Parquet the usual path.
"""

from __future__ import annotations

import json
import tempfile
import time
from typing import TYPE_CHECKING, Literal

from benchmarks.raw_fetch import Rate
from tubemq_client import OffsetRange
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.engines.spark_runtime import open_session
from tubemq_provider.spark.session import register
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import Staging

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
        engines = {
            f"session engine, landing {landing}": min(
                _ingested(settings, range_, folder, landing) for _ in range(passes)
            )
            for landing in ("off", "on")
        }
    finally:
        spark.stop()
    if rows != range_.entries:
        raise SystemExit(f"Spark wrote {rows} of {range_.entries} records")
    found = {"Spark to noop": noop, "Spark to Parquet": parquet, **engines}
    return {name: Rate(rows, 0, seconds) for name, seconds in found.items()}


def _ingested(
    settings: ClientSettings, range_: OffsetRange, folder: Path, landing: Literal["on", "off"]
) -> float:
    """Seconds in which the session engine stages a window, in one task and the same columns."""
    plan = WindowPlan.explicit(
        WindowScope("bench", range_.partition.topic, "bench_spark", "bench"),
        {range_.partition.key: (range_.start, range_.end)},
    )
    options = {
        "columns": "partition,offset,value",
        "maxOffsetsPerPartition": str(range_.entries + 1),
    }
    engine = SessionEngine(settings, options=options, landing=landing)
    with tempfile.TemporaryDirectory(dir=folder) as staging:
        place = Staging(plan.window_id, "bench", staging)
        counts: list[int] = []
        seconds = _timed(lambda: counts.append(engine.ingest(plan, place, lambda _: None).total))
    if counts != [range_.entries]:
        raise SystemExit(f"landing {landing}: {counts} of {range_.entries} records")
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
        maxOffsetsPerPartition=str(range_.entries + 1),
    )
    return reader.schema("partition string, offset bigint, value binary").load()


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _timed(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
