"""The session engine: a plan becomes Parquet files whose counts agree with the receipts."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.provider.spark.world import World
from tubemq_client.errors import ConfigError, CorruptRecord
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.engines.spark_runtime import open_session, properties_text, temporary_conf
from tubemq_provider.sinks.parquet import MARKER_NAME, ParquetSink
from tubemq_provider.windows.errors import CountMismatch, WindowError
from tubemq_provider.windows.protocols import Engine, IngestWatch, Staging
from tubemq_provider.windows.verify import check_counts

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

pyspark = pytest.importorskip("pyspark")
pq = pytest.importorskip("pyarrow.parquet")

from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from pyspark.sql import functions as sf  # noqa: E402


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging("w-1", "try-1", str(tmp_path))


def silent(point: str) -> None:
    """Ignore progress."""


def written(staging: Staging) -> list[bytes]:
    files = Path(staging.path).glob("*.parquet")
    return sorted(body for f in files for body in pq.read_table(f).column("value").to_pylist())


def test_a_plan_becomes_files_and_counts(
    spark: SparkSession, world: World, staging: Staging
) -> None:
    world.produce(300)
    ranges = {key: (280, end - 140) for key, (_, end) in world.whole().items()}
    plan = world.plan({**ranges, "2:1": (280, 280)})
    ranges.pop("2:1")
    engine = SessionEngine(world.settings, options={"minPartitions": "5"})
    assert isinstance(engine, Engine)
    points: list[str] = []

    counts = engine.ingest(plan, staging, IngestWatch(points.append))

    assert points == ["session started", "frame loaded", "files written", "records counted"]
    assert written(staging) == world.expected(ranges)
    expected = {key: len(world.expected({key: bounds})) for key, bounds in ranges.items()}
    assert dict(counts.records) == {**expected, "2:1": 0}
    assert counts.bytes == 26 * counts.total
    assert counts.pieces is not None
    for key, pieces in counts.pieces.items():
        edges = [edge for piece in pieces for edge in piece]
        assert (edges[0], edges[-1]) == ranges[key]
        assert edges[1:-1:2] == edges[2::2]
    assert not (Path(staging.path) / "_reads").exists()
    engine.stop()
    assert spark.range(1).count() == 1  # it was active before, so it keeps running


def test_task_counts_of_the_job_are_reported_while_it_runs(
    spark: SparkSession, world: World, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tubemq_provider.engines.spark_runtime._FOLLOW_S", 0.01)
    world.produce(300)
    engine = SessionEngine(world.settings, options={"minPartitions": "6"})
    told: list[tuple[int, int]] = []
    watch = IngestWatch(on_tasks=lambda _, *done: told.append(done))
    engine.ingest(world.plan(world.whole()), staging, watch)
    assert {total for _, total in told} == {6}
    assert all(done <= total for done, total in told)
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


def test_a_window_becomes_one_clean_directory_of_the_sink(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.produce(120)
    plan = world.plan(world.whole())
    sink = ParquetSink(tmp_path)
    staging = sink.begin(plan, "try-1")
    counts = SessionEngine(world.settings).ingest(plan, staging, IngestWatch())
    check_counts(plan, counts)

    publication = sink.publish(staging, plan, counts, silent)

    assert publication.won
    assert sum(publication.marker.counts.records.values()) == 120
    names = {path.name for path in Path(publication.marker.ref).iterdir()}
    assert {n for n in names if not n.endswith(".parquet")} == {MARKER_NAME}
    table = spark.read.parquet(str(tmp_path))
    assert sorted(bytes(row.value) for row in table.collect()) == world.expected(world.whole())


def test_timestamps_are_written_as_microseconds_and_settings_are_restored(
    spark: SparkSession, world: World, staging: Staging
) -> None:
    world.produce(8)
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    SessionEngine(world.settings).ingest(world.plan(world.whole()), staging, IngestWatch())
    (schema, *_) = (pq.read_schema(f) for f in Path(staging.path).glob("*.parquet"))
    assert str(schema.field("msg_time").type) == "timestamp[us, tz=UTC]"
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == before
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


def test_a_plan_without_offsets_starts_nothing(world: World, staging: Staging) -> None:
    plan = world.plan({"1:0": (280, 280)})
    points: list[str] = []
    counts = SessionEngine(world.settings).ingest(plan, staging, IngestWatch(points.append))
    assert (dict(counts.records), points) == ({"1:0": 0}, [])


def test_a_transform_shapes_what_is_written_and_counted(
    spark: SparkSession, world: World, staging: Staging
) -> None:
    world.produce(80)

    def betas(frame: DataFrame) -> DataFrame:
        return frame.where("stream_id = 'beta'").withColumn("size", sf.length("value"))

    engine = SessionEngine(world.settings, transform=betas)
    counts = engine.ingest(world.plan(world.whole()), staging, IngestWatch())
    assert counts.total == 40 == len(written(staging))
    # Records go round four partitions, and every second one is a beta.
    assert sorted(counts.records.values()) == [0, 0, 20, 20]


@pytest.mark.parametrize("transformed", [True, False])
def test_files_are_staged_locally_whatever_hadoops_default_file_system_is(
    spark: SparkSession, world: World, tmp_path: Path, transformed: bool
) -> None:
    world.produce(8)
    place = tmp_path / "a lake=ü" / "50%41"
    place.mkdir(parents=True)
    staging = Staging("w-1", "try-1", str(place))
    transform = (lambda frame: frame.withColumn("one", sf.lit(1))) if transformed else None
    engine = SessionEngine(world.settings, direct_write="off", transform=transform)
    with temporary_conf(spark, {"fs.defaultFS": f"viewfs://{tmp_path.name}"}):
        counts = engine.ingest(world.plan(world.whole()), staging, IngestWatch())
    assert counts.total == 8 == len(written(staging))


def test_a_transform_must_leave_the_partition_column_alone(
    spark: SparkSession, world: World, staging: Staging
) -> None:
    world.produce(8)
    plan = world.plan(world.whole())
    without = SessionEngine(world.settings, transform=lambda frame: frame.select("value"))
    with pytest.raises(ConfigError, match="keep 'partition'"):
        without.ingest(plan, staging, IngestWatch())
    renamed = SessionEngine(
        world.settings, transform=lambda frame: frame.withColumn("partition", sf.lit("9:9"))
    )
    with pytest.raises(CountMismatch, match="keep 'partition' as it is"):
        renamed.ingest(plan, staging, IngestWatch())


@pytest.mark.parametrize(
    ("transform", "sentence"),
    [
        (lambda frame: None, r"is NoneType, .* does it lack a 'return'\?"),
        (lambda frame: [frame], "is list, and must be a frame of Spark"),
        (
            lambda frame: frame.selectExpr("partition", "value", "value AS Value"),
            "the columns 'value' and 'Value', which differ in case alone",
        ),
        (
            lambda frame: frame.selectExpr("partition", "value", "value"),
            "two columns 'value'; rename one",
        ),
        (
            lambda frame: (
                frame.sparkSession.readStream.format("rate")
                .load()
                .withColumn("partition", sf.lit("1:0"))
            ),
            "is a stream",
        ),
    ],
)
def test_a_transform_without_a_valid_frame_is_refused_with_the_reason(
    spark: SparkSession, world: World, staging: Staging, transform: Any, sentence: str
) -> None:
    world.produce(4)
    engine = SessionEngine(world.settings, transform=transform)
    with pytest.raises(ConfigError, match=sentence):
        engine.ingest(world.plan(world.whole()), staging, IngestWatch())
    assert not list(Path(staging.path).glob("*.parquet"))


def test_a_gap_is_counted_when_skipping_is_allowed(
    spark: SparkSession, world: World, staging: Staging
) -> None:
    world.produce(200)
    ranges = {"1:0": (0, world.end("1:0"))}
    plan = world.plan(ranges)
    world.mq.broker(1).expire_to("demo", 280)
    engine = SessionEngine(world.settings, gap_policy="skip")
    counts = engine.ingest(plan, staging, IngestWatch())
    assert counts.gaps == {"1:0": [[0, 280]]}
    assert counts.total == len(world.expected({"1:0": (280, world.end("1:0"))}))


def test_a_kill_while_spark_starts_is_reported_as_one(
    world: World, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SessionEngine(world.settings)

    def starting(*_: object) -> SparkSession:
        engine.cancel()
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited")

    monkeypatch.setattr("tubemq_provider.engines.spark_runtime.open_session", starting)
    world.produce(4)
    with pytest.raises(WindowError, match="was cancelled"):
        engine.ingest(world.plan(world.whole()), staging, IngestWatch())


@pytest.mark.parametrize("delay_s", [0.0, 1.0], ids=["before-its-job", "in-its-job"])
def test_cancelling_stops_a_running_ingest(
    spark: SparkSession, world: World, staging: Staging, delay_s: float
) -> None:
    world.produce(8)
    plan = world.plan(world.whole())
    world.mq.broker(1).stop_reading()  # fetches answer 503, so the tasks wait and retry
    engine = SessionEngine(world.settings)
    timer: list[threading.Timer] = []

    def cancel_soon(point: str) -> None:
        if point == "frame loaded":
            timer.append(threading.Timer(delay_s, engine.cancel))
            timer[0].start()

    with pytest.raises(WindowError, match="was cancelled"):
        engine.ingest(plan, staging, IngestWatch(cancel_soon))
    timer[0].join(10)
    assert not (Path(staging.path) / "_reads").exists()
    with pytest.raises(WindowError, match="was cancelled"):
        engine.ingest(plan, staging, IngestWatch())


class _TimeIsOver(BaseException):
    """Exception raised as Airflow raises `AirflowTaskTimeout`: by a signal handler, at any
    moment."""


def _wait_for_jobs(spark: SparkSession, *, running: bool) -> None:
    tracker = spark.sparkContext.statusTracker()
    for _ in range(600):
        if bool(tracker.getActiveJobsIds()) == running:
            return
        time.sleep(0.05)
    raise AssertionError("no job began" if running else "a job goes on")


@pytest.mark.parametrize("transformed", [False, True])
def test_a_task_whose_time_is_over_ends_at_once_and_so_does_its_job(
    spark: SparkSession, world: World, staging: Staging, *, transformed: bool
) -> None:
    world.produce(8)
    plan = world.plan(world.whole())
    engine = SessionEngine(world.settings, transform=(lambda frame: frame) if transformed else None)
    raised_at: list[float] = []

    def over(*_: object) -> None:
        raised_at.append(time.monotonic())
        raise _TimeIsOver

    def signal_in_mid_job() -> None:
        _wait_for_jobs(spark, running=True)
        os.kill(os.getpid(), signal.SIGUSR1)

    def read_no_more(point: str) -> None:
        if point == "frame loaded":
            world.mq.broker(1).stop_reading()
            threading.Thread(target=signal_in_mid_job).start()

    former = signal.signal(signal.SIGUSR1, over)
    try:
        with pytest.raises(_TimeIsOver):
            engine.ingest(plan, staging, IngestWatch(read_no_more))
        ended_at = time.monotonic()
        _wait_for_jobs(spark, running=False)
    finally:
        signal.signal(signal.SIGUSR1, former)
        world.mq.broker(1).resume_reading()

    assert ended_at - raised_at[0] < 10
    assert spark.range(3).count() == 3
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


def test_a_fatal_error_keeps_its_class_on_the_way_out_of_spark(
    spark: SparkSession, world: World, staging: Staging
) -> None:
    world.produce(8)
    plan = world.plan(world.whole())
    world.mq.broker(1).corrupt_next(1)
    with pytest.raises(CorruptRecord, match="corruptRecords") as caught:
        SessionEngine(world.settings).ingest(plan, staging, IngestWatch())
    assert caught.value.fatal


def test_options_that_the_engine_sets_are_refused(world: World) -> None:
    with pytest.raises(ConfigError) as caught:
        SessionEngine(world.settings, options={"WINDOW": "{}", "failOnDataLoss": "false"})
    assert len(caught.value.problems) == 2


def test_a_session_of_our_own_stays_on_loopback_and_uses_this_python(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"
    interpreters = spark.sparkContext.parallelize([0], 1).map(
        lambda _: __import__("sys").executable
    )
    assert interpreters.collect() == [sys.executable]


def test_settings_in_a_file_are_what_was_given(spark: SparkSession) -> None:
    given = {
        "spark.driver.extraClassPath": ":/opt/jars/*",
        "spark.of=one:two": "=#=",
        "spark.text": 'back\\slash, "ü"\nand a line: !',
        "spark.none": "",
    }
    jvm: Any = spark._jvm
    found = jvm.java.util.Properties()
    found.load(jvm.java.io.StringReader(properties_text(given)))
    assert {key: found.getProperty(key) for key in given} == given
    assert found.size() == len(given)


def test_a_session_of_another_thread_is_not_stopped(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://connect1")  # it belongs to tasks of other engines
    found: list[tuple[SparkSession, bool]] = []
    conf = {"spark.sql.shuffle.partitions": "7"}
    other = threading.Thread(target=lambda: found.append(open_session("local[1]", conf)))
    other.start()
    other.join(60)
    assert found == [(spark, False)]
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
