"""The data source as Spark drives it, in this process: no JVM, a real embedded cluster."""

from __future__ import annotations

import json
import logging
import pickle
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tubemq_client.errors import (
    ConfigError,
    CorruptRecord,
    DataLoss,
    NetworkError,
    RangeStalled,
    UnknownTopic,
)
from tubemq_provider.spark import freeze, spark_options

pyspark = pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa  # noqa: E402
from pyspark.sql.datasource import InputPartition  # noqa: E402
from pyspark.sql.types import LongType, MapType, StringType, StructType  # noqa: E402

from tubemq_provider.sources.tubemq.columns import RECORDS  # noqa: E402
from tubemq_provider.spark.reading import EmptyPartition  # noqa: E402
from tubemq_provider.spark.rows import arrow_schema  # noqa: E402
from tubemq_provider.spark.source import TubeMQDataSource  # noqa: E402
from tubemq_provider.spark.task_metrics import SplitReport  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from tests.provider.spark.world import World

pytestmark = pytest.mark.timeout(60)

TYPES: dict[str, Any] = {"offset": LongType(), "value": pyspark.sql.types.BinaryType()}
ALL = (
    StructType()
    .add("topic", StringType())
    .add("partition", StringType())
    .add("offset", LongType())
    .add("batch_offset", LongType())
    .add("message_id", LongType())
    .add("msg_time", pyspark.sql.types.TimestampType())
    .add("stream_id", StringType())
    .add("attributes", MapType(StringType(), StringType()))
    .add("value", pyspark.sql.types.BinaryType())
)


def subset(*names: str) -> StructType:
    return StructType([ALL[name] for name in names])


def read(options: dict[str, str], schema: StructType = ALL) -> pa.Table:
    """Read everything, each split with pickled copies as in tasks."""
    source = pickle.loads(pickle.dumps(TubeMQDataSource(options)))
    reader = source.reader(schema)
    batches = []
    for partition in reader.partitions():
        task = pickle.loads(pickle.dumps((reader, partition)))
        batches += list(task[0].read(task[1]))
    return pa.Table.from_batches(batches, schema=arrow_schema(schema))


def reports_in(directory: Path) -> list[SplitReport]:
    found = [json.loads(path.read_text()) for path in directory.glob("split-*.json")]
    return [SplitReport(**report) for report in sorted(found, key=lambda item: item["index"])]


def bodies(table: pa.Table) -> list[bytes]:
    return sorted(table.column("value").to_pylist())


def test_a_window_is_read_exactly(world: World) -> None:
    world.produce(400)
    ranges = {key: (28 * 11, end - 28 * 7) for key, (_, end) in world.whole().items()}
    options = spark_options(world.settings, world.plan(ranges))
    assert bodies(read(options)) == world.expected(ranges)
    assert bodies(read({**options, "minPartitions": "13"})) == world.expected(ranges)


def test_words_read_everything_up_to_the_stable_end(world: World) -> None:
    world.produce(100)
    table = read(world.options)
    assert bodies(table) == world.expected(world.whole())
    row = table.sort_by("value").slice(1, 1).to_pylist()[0]
    assert (row["topic"], row["partition"]) == ("demo", "1:1")
    assert row["msg_time"] == datetime(2026, 11, 21, 8, 15, tzinfo=UTC)
    assert (row["stream_id"], dict(row["attributes"])) == ("beta", {"n": "1"})
    assert row["message_id"] is not None
    assert row["offset"] is None  # two partitions write this store: no offset is exactly known
    assert row["batch_offset"] % 28 == 0


def test_offsets_json_and_partitions_choose_ranges(world: World) -> None:
    world.produce(100)
    table = read(
        {
            **world.options,
            "partitions": "2:0,1:1",
            "startingOffsets": '{"demo": {"1:1": 280, "2:0": "earliest"}}',
            "endingOffsets": '{"demo": {"1:1": 560, "2:0": "latest"}}',
        }
    )
    assert bodies(table) == world.expected({"1:1": (280, 560), "2:0": (0, world.end("2:0"))})


def test_a_column_subset_in_another_order_is_honoured(world: World) -> None:
    world.produce(20)
    table = read(world.options, subset("value", "offset"))
    assert table.column_names == ["value", "offset"]
    source = TubeMQDataSource({**world.options, "columns": "stream_id, value"})
    assert source.schema() == "stream_id string, value binary"


def test_filters_reach_the_broker(world: World) -> None:
    world.produce(40)
    table = read({**world.options, "streamIds": "beta"}, subset("stream_id", "value"))
    assert set(table.column("stream_id").to_pylist()) == {"beta"}
    assert table.num_rows == 20


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (StructType().add("ofset", LongType()), "unknown column 'ofset'; did you mean 'offset'?"),
        (StructType().add("offset", StringType()), "column 'offset' is bigint, not string"),
        (StructType().add("offset", LongType(), nullable=False), "'offset' must be nullable"),
        (StructType(), "the schema has no column"),
    ],
)
def test_a_schema_the_source_cannot_fill_is_refused(
    world: World, schema: StructType, sentence: str
) -> None:
    with pytest.raises(ConfigError, match="schema of format") as caught:
        TubeMQDataSource(world.options).reader(schema)
    assert sentence in str(caught.value).splitlines()[-1]


def test_the_ranges_are_frozen_when_the_frame_is_loaded(world: World) -> None:
    world.produce(50)
    source = TubeMQDataSource(world.options)
    source.schema()
    pickled = pickle.dumps(source)
    before = world.whole()
    world.produce(50)
    for _ in range(2):
        reader = pickle.loads(pickled).reader(ALL)
        assert {r.partition.key: (r.start, r.end) for r in reader.planned_ranges} == before


def test_frozen_options_read_the_same_ranges_in_another_load(world: World) -> None:
    world.produce(50)
    before = world.whole()
    options = freeze(world.options)
    world.produce(50)
    assert bodies(read(options)) == world.expected(before)
    assert freeze(options) == options


def test_an_empty_window_reads_as_nothing(world: World) -> None:
    options = spark_options(world.settings, world.plan({"1:0": (280, 280)}))
    reader = TubeMQDataSource(options).reader(ALL)
    (only,) = reader.partitions()
    assert isinstance(only, EmptyPartition)
    assert list(reader.read(only)) == []
    assert list(reader.read(InputPartition(None))) == []
    assert read(world.options).num_rows == 0  # a topic without records


def test_batches_have_the_size_asked_for_and_one_schema(world: World) -> None:
    world.produce(400, size=1000)
    reader = TubeMQDataSource({**world.options, "batchBytes": "40000"}).reader(ALL)
    batches = [b for p in reader.partitions() for b in reader.read(p)]
    assert {batch.schema for batch in batches} == {arrow_schema(ALL)}
    assert all(batch.num_rows for batch in batches)
    whole = TubeMQDataSource(world.options).reader(ALL)
    assert sum(1 for p in whole.partitions() for _ in whole.read(p)) == 4


def test_closing_a_read_early_gives_the_partition_back(world: World) -> None:
    world.produce(400, size=1000)
    options = {**world.options, "partitions": "1:0", "batchBytes": "1", "poolSize": "1"}
    reader = TubeMQDataSource({**options, "readTimeoutMs": "2000"}).reader(ALL)
    (split,) = reader.partitions()
    for _ in range(3):  # with a pool of one group, a lease left behind would occupy the partition
        with closing(reader.read(split)) as batches:  # type: ignore[type-var]
            next(batches)


def test_a_split_travels_small_and_a_read_reports_itself(world: World, tmp_path: Path) -> None:
    world.produce(100)
    options = {**world.options, "minPartitions": "8", "reportDir": str(tmp_path)}
    reader = TubeMQDataSource(options).reader(ALL)
    assert all(len(pickle.dumps(p)) < 1024 for p in reader.partitions())
    read(options)
    reports = reports_in(tmp_path)
    assert sum(report.records for report in reports) == 100
    assert sum(report.bytes for report in reports) == 26 * 100
    tiled = sorted((r.partition, r.start, r.end) for r in reports)
    for (key, _, end), (next_key, start, _) in pairwise(tiled):
        assert start == (end if key == next_key else 0)


# -- what goes wrong ----------------------------------------------------------------------------


def last_line(error: BaseException) -> str:
    return str(error).splitlines()[-1]


def test_an_unknown_topic_is_named(world: World) -> None:
    with pytest.raises(UnknownTopic) as caught:
        read({**world.options, "topic": "nowhere"})
    assert "nowhere" in last_line(caught.value)


def test_a_wrong_master_is_named(world: World) -> None:
    with pytest.raises(NetworkError) as caught:
        read({**world.options, "masters": "127.0.0.1:1"})
    assert "127.0.0.1:1" in last_line(caught.value)


def test_a_dead_broker_is_named_with_the_range(world: World) -> None:
    world.produce(40)
    options = freeze({**world.options, "partitions": "2:0"})
    source = TubeMQDataSource(spark_options(world.settings, world.plan({"2:0": (0, 280)})))
    source.schema()
    world.mq.broker(2).stop()
    with pytest.raises(NetworkError) as planning:
        read(options)
    assert world.mq.broker(2).address in last_line(planning.value)
    reader = TubeMQDataSource({**source.options, "readTimeoutMs": "500"})
    reader._planned = source.planned()
    task = reader.reader(ALL)
    with pytest.raises(RangeStalled) as reading:
        list(task.read(task.partitions()[0]))
    assert "2:demo:0[0,280)" in last_line(reading.value)


def test_a_read_lacks_no_partition_unless_allowed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.produce(40)
    world.mq.broker(2).stop()
    options = {**world.options, "planRetries": "0"}
    with pytest.raises(NetworkError) as refused:
        read(freeze(options))
    said = last_line(refused.value)
    assert "partition 2:0 of topic 'demo': ConnectError" in str(refused.value)
    assert "unreachablePartitions=skip" in said
    rows = read(freeze({**options, "unreachablePartitions": "skip"}))
    assert set(rows.column("partition").to_pylist()) == {"1:0", "1:1"}
    assert "partition 2:1 of topic 'demo'" in caplog.text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"startingOffsets": '{"demo": {"1:0": 0}}'},
            "startingOffsets: gives no offset for partition 2:1 of topic 'demo'",
        ),
        ({"partitions": "1:0,1:7"}, "partitions: topic 'demo' has no partition 1:7; it has 1:0"),
        (
            {"partitions": "1:0", "endingOffsets": '{"demo": {"1:0": 2800000}}'},
            "endingOffsets: 2800000 of partition 1:0 of topic 'demo' is beyond the broker's end",
        ),
        (
            {"partitions": "1:0", "startingOffsets": '{"demo": {"1:0": 2800000}}'},
            "startingOffsets: 2800000 of partition 1:0 of topic 'demo' is beyond the end",
        ),
    ],
)
def test_ranges_the_topic_does_not_have_are_refused_at_planning(
    world: World, options: dict[str, str], sentence: str
) -> None:
    world.produce(40)
    with pytest.raises(ConfigError) as caught:
        read({**world.options, **options})
    assert sentence in last_line(caught.value)


def test_a_window_of_a_partition_the_topic_does_not_have_is_refused(world: World) -> None:
    options = spark_options(world.settings, world.plan({"1:7": (0, 280)}))
    with pytest.raises(ConfigError) as caught:
        read(options)
    assert "window: topic 'demo' has no partition 1:7" in last_line(caught.value)


@pytest.mark.parametrize("expire", ["expire_to", "expire_data_to"])
def test_retention_between_planning_and_reading_is_an_error(world: World, expire: str) -> None:
    world.produce(400)
    ranges = {"1:0": (0, world.end("1:0"))}
    options = spark_options(world.settings, world.plan(ranges))
    getattr(world.mq.broker(1).store("demo"), expire)(28 * 50)
    with pytest.raises(DataLoss) as caught:
        read(options)
    line = last_line(caught.value)
    assert "[0, 1400)" in line
    assert "1:0" in line
    assert "'demo'" in line
    assert "failOnDataLoss=false" in line


def test_lost_offsets_are_refused_at_planning_or_reported_as_a_gap(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world.produce(400)
    world.mq.broker(1).expire_to("demo", 28 * 50)
    options = {
        **world.options,
        "partitions": "1:0",
        "startingOffsets": '{"demo": {"1:0": 0}}',
        "reportDir": str(tmp_path),
    }
    with pytest.raises(DataLoss) as caught:
        read(options)
    assert "start at 1400 or 'earliest', or set failOnDataLoss=false" in last_line(caught.value)
    with caplog.at_level(logging.WARNING):
        table = read({**options, "failOnDataLoss": "false"})
    assert bodies(table) == world.expected({"1:0": (28 * 50, world.end("1:0"))})
    (report,) = reports_in(tmp_path)
    assert report.gaps == [[0, 28 * 50]]
    assert "1:demo:0" in caplog.text


def test_a_corrupt_record_fails_the_read_or_is_counted(world: World, tmp_path: Path) -> None:
    world.produce(40)
    world.mq.broker(1).store("demo").corrupt(28 * 4)
    with pytest.raises(CorruptRecord) as caught:
        read({**world.options, "partitions": "1:0,1:1"})
    assert "1:demo:" in last_line(caught.value)
    options = {**world.options, "corruptRecords": "drop", "reportDir": str(tmp_path)}
    assert read(options).num_rows == 39
    assert sum(report.corrupt for report in reports_in(tmp_path)) == 1


def test_the_columns_are_those_of_the_documented_schema(world: World) -> None:
    assert TubeMQDataSource(world.options).schema().startswith("topic string, partition string")
    assert tuple(ALL.names) == RECORDS.names


def test_the_arrow_schema_is_the_same_where_spark_takes_no_time_zone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PySpark 4.1 has timestamps in UTC by default, and another parameter for it."""
    from pyspark.sql.pandas import types

    newer, wanted = types.to_arrow_schema, arrow_schema(ALL)

    def of_4_1(schema: Any, error: bool = False, timestamp_utc: bool = True) -> pa.Schema:
        return newer(schema, timezone="UTC" if timestamp_utc else None)

    monkeypatch.setattr(types, "to_arrow_schema", of_4_1)
    assert arrow_schema(ALL) == wanted
