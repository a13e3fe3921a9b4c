"""Typed rows through the engines: every record of the window is a row or in the quarantine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.kit.engines import inline_engine
from tests.provider.sinks.object_server import object_server
from tests.provider.spark.conftest import spark as spark  # noqa: PLC0414 - the one session
from tests.provider.spark.jobs import Window, quarantined
from tests.provider.spark.world import TOPIC, World
from tubemq_client import Producer
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.errors import ConfigError, CorruptRecord
from tubemq_client.tdmsg import TDMsgBuilder
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.engines.transforms import sql_transform
from tubemq_provider.rows.ddl import parse_ddl
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sinks.delta import DeltaSink
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import Engine, IngestWatch, Staging
from tubemq_provider.windows.verify import check_counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pq = pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.timeout(120)

JSON = DecodeSpec.parse({"format": "json", "schema": "id bigint, name string"})
BAD = 7


@pytest.fixture(scope="module")
def typed() -> Iterator[World]:
    """Produce 200 objects over four partitions, every `BAD`th with an invalid id."""
    spec = TopicSpec(TOPIC, stores=1, partitions=2)
    with EmbeddedTubeMQ(brokers=2, topics=[spec], http=False) as mq:
        world = World(mq)
        world.produce_objects(200, BAD)
        yield world


def inline(world: World, decode: DecodeSpec, policy: str) -> Engine:
    policies = Policies.of(corrupt_records=policy)
    return inline_engine(world.settings, policies=policies, decode=decode)


def direct_write(world: World, decode: DecodeSpec, policy: str) -> Engine:
    return SessionEngine(world.settings, decode=decode, corrupt_records=policy)  # type: ignore[arg-type]


def through_spark(world: World, decode: DecodeSpec, policy: str) -> Engine:
    return SessionEngine(world.settings, decode=decode, corrupt_records=policy, direct_write="off")  # type: ignore[arg-type]


TWICE = (
    "SELECT r.* FROM records r "
    "JOIN (SELECT DISTINCT partition FROM records) p ON r.partition = p.partition"
)


def transformed(world: World, decode: DecodeSpec, policy: str) -> Engine:
    """Return an engine whose query reads the window twice: every split has two attempts."""
    transform = sql_transform(TWICE)
    return SessionEngine(
        world.settings,
        decode=decode,
        corrupt_records=policy,  # type: ignore[arg-type]
        transform=transform,
    )


def silent(point: str) -> None:
    """Ignore progress."""


ENGINES = [
    pytest.param(inline, id="inline"),
    pytest.param(direct_write, id="direct_write", marks=pytest.mark.spark),
    pytest.param(through_spark, id="spark", marks=pytest.mark.spark),
    pytest.param(transformed, id="transformed", marks=pytest.mark.spark),
]


@pytest.fixture
def with_spark(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("spark")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.usefixtures("with_spark")
def test_rows_and_quarantine_together_are_the_window(
    engine: object, typed: World, tmp_path: Path
) -> None:
    policy = "drop" if engine is through_spark else "quarantine"
    plan = typed.plan(typed.whole())
    sink = ParquetSink(tmp_path)
    staging = sink.begin(plan, "try-1")
    counts = engine(typed, JSON, policy).ingest(plan, staging, IngestWatch())  # type: ignore[operator]
    check_counts(plan, counts)
    published = sink.publish(staging, plan, counts, silent)
    table = pq.read_table(tmp_path, partitioning=None)
    sound = [number for number in range(200) if number % BAD]
    assert sorted(table["id"].to_pylist()) == sound
    assert sorted(table["name"].to_pylist()) == sorted(f"n{number}" for number in sound)
    assert table["batch_offset"].null_count == table["message_id"].null_count == 0
    assert "value" not in table.schema.names
    assert (counts.total, counts.corrupt) == (len(sound), 200 - len(sound))
    assert counts.read is not None
    assert sum(counts.read.values()) == 200
    assert published.marker.counts.total == len(sound)
    if policy == "quarantine":
        files = list(tmp_path.rglob("*.corrupt"))
        kept = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
        assert {json.loads(row["data"])["name"] for row in kept} == {
            f"n{number}" for number in range(0, 200, BAD)
        }
        assert all("has the JSON type string, and needs number" in row["reason"] for row in kept)
        assert len(kept) == 200 - len(sound)


VALUES = {
    "day_time": time(23, 59, 59, 999_999),
    "late": datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    "local": datetime(1969, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001 - without a zone
    "day": date(1, 1, 1),
    "price": Decimal("-999.99"),
    "wide": Decimal("9" * 28 + "." + "9" * 10),
    "raw": b"\xff\x00",
    "small": -128,
}
VALUES_SCHEMA = (
    "day_time TIME(6) COMMENT 'x', late TIMESTAMP_LTZ NOT NULL, local timestamp_ntz, day date, "
    "price decimal(5,2), wide decimal(38,10), raw binary, small tinyint"
)


def same_values(records: Any) -> Any:
    """Return the same values for each record, as a user's function."""
    import pyarrow as pa

    schema = parse_ddl(VALUES_SCHEMA)
    columns = [pa.array([VALUES[f.name]] * records.num_rows, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@pytest.mark.parametrize("engine", ENGINES[:3])
@pytest.mark.usefixtures("with_spark")
def test_a_value_is_the_same_in_every_engine(engine: object, typed: World, tmp_path: Path) -> None:
    """Spark refuses times of day by name, see the test below."""
    path, wanted = f"{__name__}.same_values", dict(VALUES)
    schema = VALUES_SCHEMA
    if engine is not inline:
        schema = schema.partition(", ")[2]
        del wanted["day_time"]
    decode = DecodeSpec.parse({"format": "function", "function": path, "schema": schema})
    plan = typed.plan(typed.whole())
    sink = ParquetSink(tmp_path)
    staging = sink.begin(plan, "try-1")
    counts = engine(typed, decode, "drop").ingest(plan, staging, IngestWatch())  # type: ignore[operator]
    sink.publish(staging, plan, counts, silent)
    table = pq.read_table(tmp_path, partitioning=None).select(list(wanted))
    assert table.num_rows == 200
    for name, value in wanted.items():
        assert set(table[name].to_pylist()) == {value}, name


def test_spark_refuses_a_time_of_day_by_name() -> None:
    pytest.importorskip("pyspark")
    from tubemq_provider.sources.tubemq.columns import RECORDS
    from tubemq_provider.spark.reading import schema_of

    shape = SimpleNamespace(
        decode=DecodeSpec.parse({"format": "json", "schema": "id int, at time"}), columns=None
    )
    with pytest.raises(ConfigError, match="column 'at' has a time of day, which Spark does not"):
        schema_of(shape, RECORDS)  # type: ignore[arg-type]


@pytest.mark.spark
def test_a_query_behind_submit_filters_and_each_bad_record_is_kept_once(
    typed: World, tmp_path: Path
) -> None:
    with object_server("typed") as storage:
        through = Window(
            typed,
            "s3://typed/even",
            storage,
            decode=JSON.document(),
            sql=f"{TWICE} WHERE r.id % 2 = 0",
            corrupt_records="quarantine",
            engine="submit",
            spark_conf={"spark.master": "local[2]", "spark.driver.memory": "512m"},
            spark_work_dir=str(tmp_path / "work"),
        )
        result = through.run()
        sink = through.sink()
        assert isinstance(sink, ObjectStoreSink)
        kept = list(sink.storage.names("quarantine"))
        found = read_windows(sink).to_table()["id"].to_pylist()
        rows = quarantined(sink)
    assert sorted(found) == [number for number in range(0, 200, 2) if number % BAD]
    bad = [f"n{number}" for number in range(0, 200, BAD)]
    assert sorted(json.loads(row["data"])["name"] for row in rows) == sorted(bad)
    assert result.corrupt == len(bad)
    assert all(result.window_id in name for name in kept)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.usefixtures("with_spark")
def test_by_default_a_record_that_does_not_decode_fails_the_window(
    engine: object, typed: World, tmp_path: Path
) -> None:
    plan = typed.plan(typed.whole())
    with pytest.raises(CorruptRecord, match="does not decode"):
        engine(typed, JSON, "fail").ingest(plan, Staging("w", "a", str(tmp_path)), IngestWatch())  # type: ignore[operator]


@pytest.mark.parametrize("engine", [ENGINES[0], ENGINES[1]])
@pytest.mark.usefixtures("with_spark")
def test_a_schema_is_inferred_once_and_then_kept(
    engine: object, typed: World, tmp_path: Path
) -> None:
    kept = tmp_path / "schemas" / "orders.ddl"
    spec = DecodeSpec.parse({"format": "json", "schema_file": str(kept), "columns": ["partition"]})
    plan = typed.plan({"1:0": (0, 28 * 8)})
    first, second = Staging("w", "a", str(tmp_path / "1")), Staging("w", "b", str(tmp_path / "2"))
    for staging in (first, second):
        Path(staging.path).mkdir()
    engine(typed, spec, "drop").ingest(plan, first, IngestWatch())  # type: ignore[operator]
    assert "`name` string" in kept.read_text()
    kept.write_text("name string\n")
    engine(typed, spec, "drop").ingest(plan, second, IngestWatch())  # type: ignore[operator]
    assert pq.read_table(second.path).schema.names == ["partition", "name"]


def test_packs_make_more_rows_than_records_and_are_counted(tmp_path: Path) -> None:
    spec = DecodeSpec.parse({"format": "tdmsg", "then": {"format": "csv", "schema": "n int"}})
    with EmbeddedTubeMQ(brokers=1, topics=[TopicSpec(TOPIC, partitions=1)], http=False) as mq:
        world = World(mq)
        with Producer(world.settings) as producer:
            for first in range(0, 30, 10):
                pack = TDMsgBuilder()
                for number in range(first, first + 10):
                    pack.add("m=0", b"oops" if number == 17 else b"%d" % number)
                producer.send(TOPIC, pack.build(1_700_000_000_000))
        mq.broker(1).flush()
        plan = world.plan({"1:0": (0, world.end("1:0"))})
        sink = ParquetSink(tmp_path)
        staging = sink.begin(plan, "try-1")
        counts = inline(world, spec, "quarantine").ingest(plan, staging, IngestWatch())
        check_counts(plan, counts)
        sink.publish(staging, plan, counts, silent)
    table = pq.read_table(tmp_path, partitioning=None)
    assert sorted(table["n"].to_pylist()) == [n for n in range(30) if n != 17]
    assert (counts.total, counts.corrupt, counts.read) == (29, 1, {"1:0": 3})


@pytest.fixture
def small() -> Iterator[tuple[World, EmbeddedTubeMQ]]:
    """Produce 20 objects in the one partition 1:0."""
    with EmbeddedTubeMQ(brokers=1, topics=[TopicSpec(TOPIC, partitions=1)], http=False) as mq:
        world = World(mq)
        with Producer(world.settings) as producer:
            for number in range(20):
                producer.send(TOPIC, json.dumps({"id": number, "b": "x" * 50}).encode())
        mq.broker(1).flush()
        yield world, mq


def test_records_read_for_inference_are_not_quarantined_twice(
    small: tuple[World, EmbeddedTubeMQ], tmp_path: Path
) -> None:
    world, mq = small
    mq.broker(1).store(TOPIC).corrupt(28 * 3)
    spec = DecodeSpec.parse({"format": "json", "schema_file": str(tmp_path / "orders.ddl")})
    plan = world.plan({"1:0": (0, world.end("1:0"))})
    sink = ParquetSink(tmp_path / "lake")
    staging = sink.begin(plan, "try-1")
    counts = inline(world, spec, "quarantine").ingest(plan, staging, IngestWatch())
    (file,) = Path(staging.path).rglob("*.corrupt")
    assert (counts.total, counts.corrupt, pq.read_table(file).num_rows) == (19, 1, 1)


def cut(world: World, mq: EmbeddedTubeMQ, schema_file: Path) -> tuple[WindowPlan, DecodeSpec]:
    """Return a window whose first records retention has removed, and a spec that must infer."""
    plan = world.plan({"1:0": (0, world.end("1:0"))})
    mq.broker(1).store(TOPIC).expire_to(28 * 10)
    return plan, DecodeSpec.parse({"format": "json", "schema_file": str(schema_file)})


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_schema_is_inferred_from_what_retention_has_left(
    small: tuple[World, EmbeddedTubeMQ], tmp_path: Path
) -> None:
    plan, spec = cut(*small, tmp_path / "orders.ddl")
    engine = SessionEngine(small[0].settings, decode=spec, gap_policy="skip")
    (tmp_path / "lake").mkdir()
    counts = engine.ingest(plan, Staging("w", "a", str(tmp_path / "lake")), IngestWatch())
    assert (counts.total, counts.gaps) == (10, {"1:0": [[0, 280]]})


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_spark_leaves_no_columns_of_a_window_without_records(typed: World, tmp_path: Path) -> None:
    spec = DecodeSpec.parse({"format": "json", "schema_file": str(tmp_path / "orders.ddl")})
    plan = typed.plan({"1:0": (0, 280)}, ("of-none",))
    sink = ParquetSink(tmp_path / "lake")
    staging = sink.begin(plan, "try-1")
    counts = through_spark(typed, spec, "drop").ingest(plan, staging, IngestWatch())
    check_counts(plan, counts)
    assert not list(Path(staging.path).rglob("part-*.parquet"))
    sink.publish(staging, plan, counts, silent)
    assert not (tmp_path / "orders.ddl").exists()


@pytest.mark.parametrize("engine", ENGINES[:2])
@pytest.mark.usefixtures("with_spark")
def test_typed_rows_are_partitioned_by_decoded_columns(
    engine: object, typed: World, tmp_path: Path
) -> None:
    plan = typed.plan({"1:0": (0, typed.end("1:0"))})
    sink = DeltaSink(tmp_path / "table", partition_by=["name", "partition"], max_partitions=100)
    staging = sink.begin(plan, "try-1")
    counts = engine(typed, JSON, "drop").ingest(plan, staging, IngestWatch())  # type: ignore[operator]
    check_counts(plan, counts)
    sink.publish(staging, plan, counts, silent)
    table = DeltaTable(tmp_path / "table")
    rows = table.to_pyarrow_table().select(["id", "name", "partition"]).to_pylist()
    assert {row["name"] for row in rows} == {f"n{row['id']}" for row in rows}
    assert len(rows) == counts.total == len(table.file_uris())
    missing = DeltaSink(tmp_path / "other", partition_by=["country"])
    with pytest.raises(ConfigError, match=r"there is no column 'country', only topic.*name"):
        engine(typed, JSON, "drop").ingest(plan, missing.begin(plan, "a"), IngestWatch())  # type: ignore[operator]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_transform_is_skipped_until_columns_are_inferred(typed: World, tmp_path: Path) -> None:
    """Columns that are not inferred yet cannot be selected: a window without records is empty."""
    spec = DecodeSpec.parse({"format": "json", "schema_file": str(tmp_path / "orders.ddl")})
    sink = ParquetSink(tmp_path / "lake")
    twice = sql_transform("SELECT partition, name AS twice FROM records")
    totals = []
    for filters in (("of-none",), ()):
        plan = typed.plan({"1:0": (0, 280)}, filters)
        staging = sink.begin(plan, "try-1")
        engine = SessionEngine(typed.settings, decode=spec, corrupt_records="drop", transform=twice)
        counts = engine.ingest(plan, staging, IngestWatch())
        check_counts(plan, counts)
        sink.publish(staging, plan, counts, silent)
        totals.append(counts.total)
    assert totals[0] == 0 < totals[1]
    assert {*read_windows(sink).to_table().column_names} == {"partition", "twice", "window_id"}


def test_windows_need_their_partition(typed: World) -> None:
    spec = DecodeSpec.parse({"format": "json", "schema": "id bigint", "columns": ["offset"]})
    for engine in (inline, direct_write):
        with pytest.raises(ConfigError, match="keep 'partition'"):
            engine(typed, spec, "fail")


@pytest.mark.spark
@pytest.mark.parametrize(
    "query",
    [
        "SELECT partition, id * 2 AS twice FROM records WHERE id > 100;",
        "with x as (select * from records where id > 100) select partition, 2 * id twice from x",
    ],
)
def test_a_query_changes_what_is_written(
    spark: SparkSession, typed: World, tmp_path: Path, query: str
) -> None:
    before = [table.name for table in spark.catalog.listTables()]
    plan = typed.plan(typed.whole())
    engine = SessionEngine(
        typed.settings, decode=JSON, corrupt_records="drop", transform=sql_transform(query)
    )
    counts = engine.ingest(plan, Staging("w", "a", str(tmp_path)), IngestWatch())
    check_counts(plan, counts)
    table = pq.read_table(tmp_path, partitioning=None)
    assert table.schema.names == ["partition", "twice"]
    wanted = [2 * number for number in range(101, 200) if number % BAD]
    assert sorted(table["twice"].to_pylist()) == wanted
    assert counts.total == len(wanted)
    assert [table.name for table in spark.catalog.listTables()] == before


def test_the_path_of_a_transform_that_is_not_there_is_named(typed: World) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.change"):
        SessionEngine(typed.settings, transform="nowhere.change")


@pytest.mark.spark
def test_the_source_gives_typed_columns(spark: SparkSession, typed: World) -> None:
    decode = json.dumps({"format": "json", "schema": "id bigint, name string, tags array<string>"})
    reader = spark.read.format("tubemq").options(**typed.options, corruptRecords="drop")
    frame = reader.option("decode", decode).option("columns", "partition,offset").load()
    assert frame.schema.simpleString() == (
        "struct<partition:string,offset:bigint,id:bigint,name:string,tags:array<string>>"
    )
    assert frame.where("id is not null").count() == frame.count() == 171
    few = reader.option("decode", decode).schema("name string, id bigint").load()
    assert len(few.first() or ()) == 2
