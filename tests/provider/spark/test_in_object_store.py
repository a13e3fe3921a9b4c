"""Spark into object stores: tasks write there themselves; files of Spark's own writer are
uploaded."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pytest
from deltalake import DeltaTable

from tests.provider.sinks.object_server import object_server
from tests.provider.spark.world import World
from tubemq_client.errors import ConfigError
from tubemq_provider.sinks.delta import DeltaSink
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.spark.credentials_file import storage_file, storage_from
from tubemq_provider.windows.protocols import IngestWatch
from tubemq_provider.windows.verify import check_counts

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

pyspark = pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession  # noqa: E402

from tubemq_provider.engines.session import SessionEngine  # noqa: E402
from tubemq_provider.engines.transforms import sql_transform  # noqa: E402
from tubemq_provider.spark.direct_write_tasks import WriteTask  # noqa: E402

SECRET = "hush-hush"


def silent(point: str) -> None:
    """Ignore progress."""


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with object_server("sparks") as found:
        yield found


@pytest.mark.parametrize("kind", ["objects", "delta"])
def test_tasks_write_where_the_sink_keeps_its_files(
    spark: SparkSession, world: World, options: dict[str, str], kind: str
) -> None:
    world.produce(120)
    plan = world.plan(world.whole())
    url = f"s3://sparks/{kind}"
    sink = (
        ObjectStoreSink(url, storage_options=options)
        if kind == "objects"
        else DeltaSink(url, storage_options=options)
    )
    engine = SessionEngine(world.settings, options={"minPartitions": "5"})
    for attempt in ("first", "second"):
        staging = sink.begin(plan, attempt)
        assert staging.path.startswith(f"{url}/")
        counts = engine.ingest(plan, staging, IngestWatch())
        assert counts.files
        assert all(fact.tag and fact.pieces for fact in counts.files)
        assert sink.publish(staging, plan, counts, silent).won == (attempt == "first")
    sink.tidy(plan.window_id)
    marker = sink.marker(plan.window_id)
    assert marker is not None
    assert sorted(sink.storage.names("data" if kind == "objects" else "windows")) == sorted(
        marker.files
    )
    if isinstance(sink, ObjectStoreSink):
        found = read_windows(sink).to_table()["value"].to_pylist()
    else:
        table = DeltaTable(url, storage_options=options)
        found = table.to_pyarrow_table()["value"].to_pylist()
    assert sorted(found) == world.expected(world.whole())
    assert SECRET not in "\n".join(shown_plans(spark))


def test_tasks_write_folders_of_partitions_into_the_store(
    spark: SparkSession, world: World, options: dict[str, str]
) -> None:
    world.produce(60)
    plan = world.plan(world.whole())
    by = ["stream_id", "day(msg_time)", "partition"]
    sink = ObjectStoreSink("s3://sparks/apart", storage_options=options, partition_by=by)
    staging = sink.begin(plan, "try")
    engine = SessionEngine(world.settings, options={"minPartitions": "5"})
    counts = engine.ingest(plan, staging, IngestWatch())
    check_counts(plan, counts)
    marker = sink.publish(staging, plan, counts, silent).marker
    table = read_windows(sink).to_table()
    assert sorted(table["value"].to_pylist()) == world.expected(world.whole())
    assert {*table["stream_id"].to_pylist()} == {"alpha", "beta"}
    assert {*table["msg_time_day"].to_pylist()} == {date(2026, 11, 21)}
    assert dict(sink.recount(marker)) == marker.counts.records


@pytest.mark.parametrize("transform", [None, lambda frame: frame.select("partition", "value")])
def test_corrupt_records_are_quarantined_in_the_store(
    spark: SparkSession,
    world: World,
    options: dict[str, str],
    transform: Callable[[DataFrame], DataFrame] | None,
) -> None:
    world.produce(40)
    plan = world.plan({"1:0": (0, world.end("1:0"))})
    world.mq.broker(1).corrupt_next(1)
    url = f"s3://sparks/corrupt-{'rows' if transform else 'records'}"
    sink = ObjectStoreSink(url, storage_options=options)
    staging = sink.begin(plan, "try")
    engine = SessionEngine(world.settings, corrupt_records="quarantine", transform=transform)
    counts = engine.ingest(plan, staging, IngestWatch())
    check_counts(plan, counts)
    assert counts.corrupt > 0
    assert sink.publish(staging, plan, counts, silent).won
    (aside,) = sink.storage.names("quarantine")
    assert aside.endswith(".corrupt")
    sink.tidy(plan.window_id)
    assert list(sink.storage.names("quarantine")) == [aside]


@pytest.mark.parametrize("write", ["auto", "off"])
def test_rows_of_a_transform_are_written_to_the_sinks_storage(
    spark: SparkSession, world: World, options: dict[str, str], write: Literal["auto", "off"]
) -> None:
    world.produce(40)
    plan = world.plan(world.whole())
    sink = ObjectStoreSink(f"s3://sparks/transformed-{write}", storage_options=options)
    staging = sink.begin(plan, "try")
    engine = SessionEngine(
        world.settings, transform=lambda frame: frame.drop("attributes"), direct_write=write
    )
    counts = engine.ingest(plan, staging, IngestWatch())
    check_counts(plan, counts)
    # Only our tasks report their files; those of Spark's writer are uploaded by the driver.
    assert (counts.files is None) == (write == "off")
    assert {name for name in sink.storage.names("") if "_reads" in name} == set()
    assert sink.publish(staging, plan, counts, silent).won
    table = read_windows(sink).to_table()
    assert sorted(table["value"].to_pylist()) == world.expected(world.whole())
    assert "attributes" not in table.schema.names
    assert SECRET not in "\n".join(shown_plans(spark))


def test_a_transform_fills_the_folders_of_partitions(
    spark: SparkSession, world: World, options: dict[str, str]
) -> None:
    world.produce(60)
    plan = world.plan(world.whole())
    sink = ObjectStoreSink("s3://sparks/by", storage_options=options, partition_by=["kind"])
    staging = sink.begin(plan, "try")
    query = "SELECT partition, value, upper(stream_id) AS kind FROM records DISTRIBUTE BY kind"
    engine = SessionEngine(
        world.settings, transform=sql_transform(query), target_file_bytes=1 << 20
    )
    counts = engine.ingest(plan, staging, IngestWatch())
    marker = sink.publish(staging, plan, counts, silent).marker
    table = read_windows(sink).to_table()
    assert sorted(table["value"].to_pylist()) == world.expected(world.whole())
    assert {*table["kind"].to_pylist()} == {"ALPHA", "BETA"}
    assert len(marker.files) == 2
    assert dict(sink.recount(marker)) == marker.counts.records


def test_a_refusal_of_the_store_is_reported_without_secrets(
    spark: SparkSession, world: World, options: dict[str, str]
) -> None:
    world.produce(8)
    plan = world.plan(world.whole())
    sink = ObjectStoreSink("s3://nowhere/at-all", storage_options=options)
    with pytest.raises((ConfigError, OSError, pyspark.errors.PySparkException)) as refused:
        SessionEngine(world.settings).ingest(plan, sink.begin(plan, "try"), IngestWatch())
    assert SECRET not in str(refused.value)


def test_credentials_of_a_storage_are_only_in_a_private_file(
    options: dict[str, str],
) -> None:
    with storage_file(options) as path:
        assert path is not None
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
        assert storage_from(path) == options
        order = WriteTask("s3://sparks/x", path)
        assert SECRET not in order.to_json() + repr(order)
        assert json.loads(order.to_json())["storage_file"] == path
    assert not Path(path).exists()
    with storage_file({}) as nothing:
        assert nothing is None


def shown_plans(spark: SparkSession) -> list[str]:
    """Return Spark's web pages of every query so far."""
    session: Any = spark
    store = session._jsparkSession.sharedState().statusStore()
    found = store.executionsList()
    return [found.apply(n).physicalPlanDescription() for n in range(found.size())]
