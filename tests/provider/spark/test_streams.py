"""`readStream` and writes on a running Spark: each record once, whatever is killed in between."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.provider.spark.world import TOPIC, World
from tubemq_client import Partition
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.errors import ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

pyspark = pytest.importorskip("pyspark")

from pyspark.errors import PySparkException, StreamingQueryException  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from pyspark.sql import functions as sf  # noqa: E402


class Stream:
    """Query from the topic into Parquet files, with its checkpoint."""

    def __init__(self, spark: SparkSession, world: World, root: Path, **options: str) -> None:
        self._spark = spark
        self._options = {**world.options, "startingOffsets": "earliest", **options}
        self._checkpoint, self.table = str(root / "checkpoint"), str(root / "table")

    def run(self, **trigger: Any) -> Any:
        """Run until the current records are read; return the query."""
        query = self.start(**trigger)
        query.awaitTermination(90)
        return query

    def start(self, **trigger: Any) -> Any:
        """Start the query and return it."""
        frame = self._spark.readStream.format("tubemq").options(**self._options).load()
        writer = frame.writeStream.format("parquet").option("path", self.table)
        writer = writer.option("checkpointLocation", self._checkpoint)
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def bodies(self) -> list[bytes]:
        """Return the records of the sink, as its readers see it."""
        rows = self._spark.read.parquet(self.table).select("value").collect()
        return sorted(bytes(row.value) for row in rows)


def test_available_now_reads_in_batches_and_resumes_from_its_checkpoint(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.produce(100)
    stream = Stream(spark, world, tmp_path, maxOffsetsPerTrigger="80")
    first = stream.run()
    # Two partitions share a store, and so each of its index entries counts for both.
    batches = [progress for progress in first.recentProgress if progress["numInputRows"]]
    assert [progress["numInputRows"] for progress in batches] == [40, 40, 20]
    assert stream.bodies() == world.expected(world.whole())
    end = json.loads(json.dumps(batches[-1]["sources"][0]["endOffset"]))
    assert (end if isinstance(end, dict) else json.loads(end))["offsets"]["demo"]["1:0"] > 0
    world.produce(60)
    stream.run()
    assert stream.bodies() == world.expected(world.whole())
    stream.run()  # nothing new
    assert len(stream.bodies()) == 160


def test_a_stream_begins_at_the_present_end_by_default(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.produce(20)
    before = world.whole()
    stream = Stream(spark, world, tmp_path, startingOffsets="latest")
    stream.run()
    world.produce(20)
    stream.run()
    after = world.whole()
    assert stream.bodies() == world.expected({k: (before[k][1], after[k][1]) for k in after})


@pytest.mark.slow
def test_killed_workers_and_stopped_queries_lose_and_double_nothing(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.produce(200)
    stream = Stream(spark, world, tmp_path, maxOffsetsPerTrigger="80")
    killed = 0
    for round_ in range(3):
        query = stream.start(processingTime="0 seconds")
        threading.Event().wait(0.8 + 0.4 * round_)
        for pid in python_workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        if round_ % 2:
            threading.Event().wait(0.3)
        query.stop()
        with contextlib.suppress(StreamingQueryException):  # a task has one try in local mode
            query.awaitTermination(30)
        world.produce(40)
    stream.run()
    found = Counter(stream.bodies())
    assert found == Counter(world.expected(world.whole()))
    assert max(found.values()) == 1
    assert killed


def python_workers() -> list[int]:
    """Return processes in which the JVM of this test process reads: forks of Spark's daemons for
    tasks and for streams. Not the daemons, without which a session is of no use any more."""
    children: dict[int, list[int]] = {}
    commands: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = (entry / "stat").read_text()
                parent = int(stat.rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
                commands[int(entry.name)] = (entry / "cmdline").read_text()
    found, waiting = [], list(children.get(os.getpid(), []))
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        command = commands.get(pid, "")
        if command.endswith(("pyspark.worker\0", "python_streaming_source_runner\0")):
            found += [fork for fork in children.get(pid, []) if commands.get(fork) == command]
    return found


def test_a_partition_that_appears_is_read_from_its_first_record(
    spark: SparkSession, tmp_path: Path
) -> None:
    with EmbeddedTubeMQ(brokers=1, topics=[TopicSpec(TOPIC, partitions=1)], http=False) as mq:
        world = World(mq)
        world.produce(20)
        stream = Stream(spark, world, tmp_path)
        stream.run()
        mq.add_topic(TopicSpec(TOPIC, partitions=3))
        world.produce(30)
        assert len(world.bodies) == 3
        stream.run()
        assert stream.bodies() == world.expected(world.whole())


def test_typed_rows_come_as_a_stream_too(spark: SparkSession, world: World, tmp_path: Path) -> None:
    world.produce(12)
    decode = {
        "format": "function",
        "function": "tests.provider.spark.test_streams.length_of",
        "schema": "n int",
        "columns": ["partition"],
    }
    frame = (
        spark.readStream.format("tubemq")
        .options(**world.options, startingOffsets="earliest", decode=json.dumps(decode))
        .load()
    )
    query = (
        frame.writeStream.format("memory")
        .queryName("typed_stream")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    query.awaitTermination(60)
    assert spark.table("typed_stream").where("n = 26").count() == 12
    spark.catalog.dropTempView("typed_stream")


def length_of(records: Any) -> Any:
    """Decode as a user's function would."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pa.RecordBatch.from_pydict({"n": pc.binary_length(records.column("value"))})


def test_unsupported_options_of_a_stream_are_named(spark: SparkSession, world: World) -> None:
    for option in ("endingOffsets", "minOffsetsPerTrigger"):
        options = {**world.options, option: "stable" if option.startswith("end") else "5"}
        frame = spark.readStream.format("tubemq").options(**options)
        with pytest.raises(PySparkException, match=f"(?i){option}"):
            frame.load().writeStream.format("noop").trigger(availableNow=True).start(
            ).awaitTermination(30)  # fmt: skip


def records_of(frame: DataFrame) -> list[tuple[bytes, str, dict[str, str]]]:
    rows = frame.collect()
    return sorted((bytes(r.value), r.stream_id, dict(r.attributes)) for r in rows)


def test_rows_are_written_as_records(spark: SparkSession, world: World) -> None:
    frame = spark.range(50).select(
        sf.format_string("row-%03d", "id").alias("value"),
        sf.lit("alpha").alias("stream_id"),
        sf.create_map(sf.lit("n"), sf.col("id").cast("string")).alias("attributes"),
        sf.lit("2026-11-21 08:15:00").cast("timestamp").alias("msg_time"),
    )
    frame.write.format("tubemq").options(masters=world.masters, topic=TOPIC).mode("append").save()
    world.mq.broker(1).flush()
    world.mq.broker(2).flush()
    read = spark.read.format("tubemq").options(**world.options).load()
    assert records_of(read) == [(b"row-%03d" % n, "alpha", {"n": str(n)}) for n in range(50)]


def test_a_stream_is_written_and_topics_may_be_a_column(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.produce(30)
    source = spark.readStream.format("tubemq").options(**world.options, startingOffsets="earliest")
    copied = source.load().select(
        "value", sf.lit(TOPIC).alias("topic"), sf.lit("1:0").alias("partition")
    )
    query = (
        copied.writeStream.format("tubemq")
        .options(masters=world.masters, checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    world.mq.broker(1).flush()
    read = spark.read.format("tubemq").options(**world.options, partitions="1:0").load()
    bodies = Counter(bytes(row.value) for row in read.collect())
    there = [body for _, body in world.bodies[Partition.from_key(TOPIC, "1:0")]]
    assert bodies == Counter(there) + Counter(world.expected(world.whole()))


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (["id"], {}, "no column 'value'"),
        (["cast(id as string) value", "id"], {}, "column 'id' is none of value, topic"),
        (["id value"], {}, "column 'value' is bigint, not binary or string"),
        (["cast(id as string) value"], {"topic": ""}, "topic: is needed"),
        (["cast(id as string) value"], {"inFlight": "0"}, "inFlight: '0' is not a whole number"),
        (["cast(id as string) value"], {"topic": "nowhere"}, "nowhere"),
    ],
)
def test_a_frame_that_is_no_records_is_refused(
    spark: SparkSession, world: World, columns: list[str], options: dict[str, str], words: str
) -> None:
    given = {"masters": world.masters, "topic": TOPIC, **options}
    with pytest.raises((PySparkException, ConfigError)) as caught:
        spark.range(2).selectExpr(*columns).write.format("tubemq").options(**given).mode(
            "append"
        ).save()
    assert words in str(caught.value)
