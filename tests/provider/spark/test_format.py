"""`spark.read.format("tubemq")` on a running Spark: properties that only the JVM can prove."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.provider.spark.world import World
from tools.devkit.patience import PATIENCE
from tubemq_client import Partition
from tubemq_provider.engines.spark_runtime import temporary_conf
from tubemq_provider.spark import register, spark_artifacts, spark_options

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

pyspark = pytest.importorskip("pyspark")

from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402

ROOT = Path(__file__).parents[3]


def load(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Load without `register`: Spark finds the format through `pyspark_tubemq`."""
    return spark.read.format("tubemq").options(**options).load()


def bodies(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def last_line(error: BaseException) -> str:
    """Return the last line of the Python text; Spark may add its SQLSTATE below."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return next(line for line in reversed(lines) if "SQLSTATE" not in line).strip()


def test_a_window_is_read_exactly_by_every_action(spark: SparkSession, world: World) -> None:
    world.produce(300)
    ranges = {key: (280, end - 140) for key, (_, end) in world.whole().items()}
    options = spark_options(world.settings, world.plan(ranges))
    frame = load(spark, {**options, "minPartitions": "6"})
    assert frame.schema.simpleString() == (
        "struct<topic:string,partition:string,offset:bigint,batch_offset:bigint,message_id:bigint,"
        "msg_time:timestamp,stream_id:string,attributes:map<string,string>,value:binary>"
    )
    assert bodies(frame) == world.expected(ranges)
    counted = {row.partition: row["count"] for row in frame.groupBy("partition").count().collect()}
    assert counted == {key: len(world.expected({key: bounds})) for key, bounds in ranges.items()}


def test_times_are_instants_whatever_a_session_takes_a_timestamp_for(
    spark: SparkSession, world: World
) -> None:
    world.produce(20)
    with temporary_conf(spark, {"spark.sql.timestampType": "TIMESTAMP_NTZ"}):
        frame = load(spark, world.options)
        assert bodies(frame) == world.expected(world.whole())
        assert frame.schema["msg_time"].dataType.simpleString() == "timestamp"


def test_the_read_is_frozen_while_records_arrive(spark: SparkSession, world: World) -> None:
    world.produce(60)
    frame = load(spark, world.options)
    before = world.whole()
    world.produce(60)
    assert bodies(frame) == world.expected(before)
    world.produce(60)
    assert frame.where("stream_id = 'beta'").count() == 30
    assert frame.union(frame).count() == 120
    assert bodies(frame) == world.expected(before)
    assert load(spark, world.options).count() == 180


def test_a_user_schema_selects_columns(spark: SparkSession, world: World) -> None:
    world.produce(10)
    reader = spark.read.format("tubemq").options(**world.options)
    rows = reader.schema("stream_id string, msg_time timestamp").load().collect()
    assert {row.stream_id for row in rows} == {"alpha", "beta"}
    assert rows[0].msg_time is not None
    assert len(rows[0]) == 2


def test_an_empty_window_is_an_empty_frame(spark: SparkSession, world: World) -> None:
    options = spark_options(world.settings, world.plan({"1:0": (0, 0), "2:1": (280, 280)}))
    assert load(spark, options).collect() == []


def test_a_limit_leaves_no_partition_occupied(spark: SparkSession, world: World) -> None:
    world.produce(2000, size=1000)
    key = "1:0"
    options = {
        **world.options,
        "partitions": key,
        "poolSize": "1",
        "batchBytes": "20000",
        "readTimeoutMs": "5000",
    }
    for _ in range(3):  # one reader group: a lease left behind would make the next one wait 30 s
        assert len(load(spark, options).limit(1).collect()) == 1
    partition = Partition.from_key("demo", key)
    assert len(world.bodies[partition]) == load(spark, options).count()


def test_a_view_in_sql_reads_the_topic(spark: SparkSession, world: World) -> None:
    world.produce(10)
    given = ", ".join(f"{name} '{value}'" for name, value in world.options.items())
    spark.sql(f"CREATE OR REPLACE TEMP VIEW demo_view USING tubemq OPTIONS ({given})")
    try:
        assert spark.sql("SELECT count(*) AS n FROM demo_view").first() == (10,)
    finally:
        spark.catalog.dropTempView("demo_view")  # the session is that of all tests


Trouble = Callable[[World], dict[str, str]]


def _dead_broker(world: World) -> dict[str, str]:
    options = spark_options(world.settings, world.plan({"2:0": (0, 280)}))
    world.mq.broker(2).stop()
    return {**options, "readTimeoutMs": "500"}


def _expired(world: World) -> dict[str, str]:
    options = spark_options(world.settings, world.plan({"1:0": (0, 280)}))
    world.mq.broker(1).expire_to("demo", 140)
    return options


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (
            lambda w: {**w.options, "startingOffset": "earliest"},
            ["did you mean 'startingOffsets'?"],
        ),
        (lambda w: {**w.options, "endingOffsets": "{oops"}, ["endingOffsets: not valid JSON"]),
        (lambda w: {**w.options, "topic": "nowhere"}, ["nowhere"]),
        (lambda w: {**w.options, "masters": "127.0.0.1:1"}, ["127.0.0.1:1"]),
        (_dead_broker, ["2:demo:0[0,280)"]),
        (_expired, ["[0, 140)", "'demo'", "1:0", "failOnDataLoss=false"]),
    ],
    ids=["option", "json", "topic", "master", "broker", "data-loss"],
)
def test_the_last_line_of_an_error_says_what_is_wrong(
    spark: SparkSession, world: World, trouble: Trouble, words: list[str]
) -> None:
    world.produce(40)
    options = trouble(world)
    with pytest.raises(PySparkException) as caught:
        load(spark, options).count()
    for word in words:
        assert word in last_line(caught.value)


def test_registering_by_hand_is_harmless(spark: SparkSession, world: World) -> None:
    world.produce(4)
    register(spark)
    assert load(spark, world.options).count() == 4


SCRIPT = """
import sys
from pyspark.sql import SparkSession
zipped, masters = sys.argv[1:]
conf = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1"}
builder = SparkSession.builder.master("local[1]")
for key, value in conf.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sparkContext.addPyFile(zipped)
from tubemq_provider.spark import register
register(spark)
options = {"masters": masters, "topic": "demo", "group": "zip"}
print("rows", spark.read.format("tubemq").options(**options).load().count())
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_zip_is_all_that_a_cluster_needs(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    """In a directory and an interpreter that know of the packages only through the zip."""
    world.produce(12)
    (tmp_path / "job.py").write_text(SCRIPT)
    zipped = spark_artifacts(tmp_path)
    assert spark_artifacts(tmp_path) == zipped
    from tubemq_provider.engines.java import find_java

    environment = find_java().environment({"PATH": "/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1"})
    (tmp_path / "sitecustomize.py").write_text(hide_installed())
    done = subprocess.run(
        [sys.executable, "job.py", str(zipped), world.masters],
        cwd=tmp_path,
        env={**environment, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240 * PATIENCE,
        check=False,
    )
    assert "rows 12" in done.stdout, done.stderr[-3000:]


def hide_installed() -> str:
    """Write a `sitecustomize` that takes the repository off the path; an editable install adds
    it."""
    return (
        "import sys\n"
        f"sys.path[:] = [p for p in sys.path if p != {str(ROOT)!r}]\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f)]\n"
    )
