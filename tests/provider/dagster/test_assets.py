"""Assets over windows: a partition is a window, a rerun writes nothing, a backfill fills holes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from pydantic import ValidationError

from tests.kit.servers import embedded_tubemq, speaking_otherwise
from tools.devkit.patience import PATIENCE
from tubemq_client import ClientSettings, Partition, Producer, Record, errors
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_provider.dagster import (
    RocketMQResource,
    TubeMQResource,
    build_coverage_check,
    build_tubemq_asset,
    build_tubemq_ends_asset,
)
from tubemq_provider.offsets.file import FileOffsetStore
from tubemq_provider.offsets.file_timeline import FileTimeline
from tubemq_provider.sinks.read import published_windows, read_windows
from tubemq_provider.sources.tubemq.source import TubeMQSource
from tubemq_provider.windows.time_resolvers.samples import Sample, ms_of
from tubemq_provider.windows.time_resolvers.timeline import Timeline

TOPIC = "orders"
HOURS = dg.HourlyPartitionsDefinition(start_date="2026-11-21-08:00", end_offset=1)
ON_DISK = Switches(unflushed_records=1)
KEYS = [f"2026-11-21-{hour:02}:00" for hour in (8, 9, 10)]


mq = embedded_tubemq([TopicSpec(TOPIC, partitions=2)], switches=ON_DISK)


def send(mq: EmbeddedTubeMQ, *bodies: bytes) -> dict[str, int]:
    """Send to partition 1:0; the ends of all partitions afterwards."""
    with Producer(settings_of(mq)) as producer:
        records = [Record(body, partition=Partition(1, TOPIC, 0)) for body in bodies]
        receipts = list(producer.send_many(TOPIC, records))
    end = receipts[-1].offset + 28
    return {"1:0": end, "1:1": end}


def settings_of(mq: EmbeddedTubeMQ) -> ClientSettings:
    return ClientSettings(masters=(mq.master_address,))


@pytest.fixture
def hourly(mq: EmbeddedTubeMQ, lake: Path) -> dg.AssetsDefinition:
    """Three hours: two records, one record, none."""
    zero = {"1:0": 0, "1:1": 0}
    first, second = send(mq, b"a", b"b"), send(mq, b"c")
    ends = (zero, first, second, second)
    boundaries = {
        f"2026-11-21T{8 + hour:02}:00:00Z": {TOPIC: offsets} for hour, offsets in enumerate(ends)
    }
    return build_tubemq_asset(
        "orders",
        topic=TOPIC,
        group="lake",
        sink=lake,
        partitions_def=HOURS,
        boundaries=boundaries,
    )


def materialize(
    asset: dg.AssetsDefinition,
    resource: TubeMQResource,
    partition: str | None = None,
    instance: dg.DagsterInstance | None = None,
) -> dict[str, object]:
    """Return the metadata of a run that must succeed."""
    result = dg.materialize(
        [asset], partition_key=partition, resources={"tubemq": resource}, instance=instance
    )
    (event,) = result.get_asset_materialization_events()
    return {key: value.value for key, value in event.materialization.metadata.items()}


def stored(lake: Path) -> list[bytes]:
    return sorted(read_windows(lake).to_table()["value"].to_pylist())


def test_a_partition_is_a_window_and_a_rerun_writes_nothing(
    hourly: dg.AssetsDefinition, resource: TubeMQResource, lake: Path
) -> None:
    instance = dg.DagsterInstance.ephemeral()
    first = materialize(hourly, resource, KEYS[0], instance)
    again = materialize(hourly, resource, KEYS[0], instance)
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert first["dagster/partition_row_count"] == again["dagster/partition_row_count"] == 2
    assert stored(lake) == [b"a", b"b"]
    records = instance.fetch_materializations(hourly.key, limit=2).records
    versions = {record.asset_materialization.tags["dagster/data_version"] for record in records}
    assert len(versions) == 1


def test_hours_in_any_order_make_complete_coverage(
    hourly: dg.AssetsDefinition, resource: TubeMQResource, lake: Path
) -> None:
    check = build_coverage_check("orders", lake)
    assert not check().passed, "a path with a letter wrong has no hole either"
    for key in (KEYS[2], KEYS[0]):
        materialize(hourly, resource, key)
    assert not check().passed
    materialize(hourly, resource, KEYS[1])
    assert check().passed
    assert stored(lake) == [b"a", b"b", b"c"]


def test_a_check_reads_the_sink_of_the_asset(
    mq: EmbeddedTubeMQ, resource: TubeMQResource, tmp_path: Path
) -> None:
    """``delta:/data/orders`` was taken for a directory of that name: the check passed, whatever
    was in the table."""
    sink = f"delta:{tmp_path}/table"
    check = build_coverage_check("orders", sink)
    assert not check().passed
    send(mq, b"a", b"b", b"c")
    for start, passes in ((0, True), (56, False)):
        asset = build_tubemq_asset(
            "orders",
            topic=TOPIC,
            group="lake",
            sink=sink,
            starting_offsets={"1:0": start},
            ending_offsets={"1:0": start + 28},
        )
        assert materialize(asset, resource)["records"] == 1
        assert check().passed is passes


def test_a_backfill_in_a_single_run_is_one_window_per_partition(
    hourly: dg.AssetsDefinition, resource: TubeMQResource, lake: Path
) -> None:
    result = dg.materialize(
        [hourly],
        resources={"tubemq": resource},
        tags={
            "dagster/asset_partition_range_start": KEYS[0],
            "dagster/asset_partition_range_end": KEYS[2],
        },
    )
    assert result.success
    told = {
        event.materialization.partition: event.materialization.metadata
        for event in result.get_asset_materialization_events()
    }
    counts = [told[key]["dagster/partition_row_count"].value for key in KEYS]
    assert counts == [2, 1, 0]
    assert [len(told[key]["windows"].value) for key in KEYS] == [1, 1, 1]
    assert told[KEYS[0]]["place"].value != told[KEYS[1]]["place"].value
    assert len(published_windows(lake)) == 3
    assert stored(lake) == [b"a", b"b", b"c"]


def test_an_asset_without_partitions_continues_from_the_cursor(
    mq: EmbeddedTubeMQ, resource: TubeMQResource, lake: Path
) -> None:
    asset = build_tubemq_asset(
        "stream", topic=TOPIC, group="lake", sink=lake, initial_position="earliest"
    )
    send(mq, b"a")
    assert materialize(asset, resource)["dagster/partition_row_count"] == 1
    assert materialize(asset, resource)["dagster/partition_row_count"] == 0
    send(mq, b"b")
    assert materialize(asset, resource)["dagster/partition_row_count"] == 1
    assert stored(lake) == [b"a", b"b"]


class FailingOnce(TubeMQResource):
    """Has trouble that passes: once, as soon as the file `trouble` is there."""

    trouble: str

    def source(self, topic: str, group: str, filters: Sequence[str] = ()) -> TubeMQSource:
        if Path(self.trouble).exists():
            Path(self.trouble).unlink()
            raise OSError("a disk was full for a moment")
        return super().source(topic, group, filters)


def test_a_retry_of_a_rewrite_reads_what_the_first_try_was_asked_to_read(
    mq: EmbeddedTubeMQ, tmp_path: Path
) -> None:
    send(mq, b"a", b"b")
    trouble, (host, port) = tmp_path / "trouble", mq.master_address
    resource = FailingOnce(
        masters=f"{host}:{port}", offsets_dir=str(tmp_path / "offsets"), trouble=str(trouble)
    )
    asset = build_tubemq_asset(
        "orders",
        topic=TOPIC,
        group="lake",
        sink=f"sqlite:///{tmp_path}/lake.db?table=orders",
        starting_offsets={"1:0": 0},
        ending_offsets={"1:0": 56},
        on_clear="rewrite",
        retry_policy=dg.RetryPolicy(max_retries=1),
    )
    materialize(asset, resource)
    trouble.touch()
    with sqlite3.connect(tmp_path / "lake.db") as lake:
        lake.execute("UPDATE orders SET value = 'spoilt'")

    again = materialize(asset, resource)

    assert not trouble.exists()
    assert (again["records"], again["replayed"]) == (2, False)
    with sqlite3.connect(tmp_path / "lake.db") as lake:
        assert sorted(lake.execute("SELECT value FROM orders")) == [(b"a",), (b"b",)]


def test_a_server_of_another_protocol_is_not_retried(lake: Path, tmp_path: Path) -> None:
    with speaking_otherwise() as (host, port):
        result = dg.materialize(
            [
                build_tubemq_asset(
                    "orders",
                    topic=TOPIC,
                    group="lake",
                    sink=lake,
                    initial_position="earliest",
                    retry_policy=dg.RetryPolicy(max_retries=2),
                )
            ],
            resources={
                "tubemq": TubeMQResource(masters=f"{host}:{port}", offsets_dir=str(tmp_path / "o"))
            },
            raise_on_error=False,
        )
    (failed,) = result.get_step_failure_events()
    assert "frame starts" in str(failed.event_specific_data)
    assert not [event for event in result.all_events if event.is_step_up_for_retry]


def test_sampled_ends_are_the_clock_of_windows(
    mq: EmbeddedTubeMQ, resource: TubeMQResource
) -> None:
    send(mq, b"a", b"b")
    asset = build_tubemq_ends_asset("orders_ends", topic=TOPIC, group="lake")
    assert materialize(asset, resource)["ends"] == {"1/0": 56}
    assert materialize(asset, resource)["samples"] == 2


def test_a_window_without_a_clock_yet_is_tried_again(
    resource: TubeMQResource, lake: Path, mq: EmbeddedTubeMQ
) -> None:
    asset = build_tubemq_asset(
        "orders", topic=TOPIC, group="lake", sink=lake, partitions_def=HOURS, max_retries=0
    )
    result = dg.materialize(
        [asset], partition_key=KEYS[0], resources={"tubemq": resource}, raise_on_error=False
    )
    assert not result.success
    (failed,) = result.get_step_failure_events()
    assert "materialize the asset of build_tubemq_ends_asset every minute" in str(
        failed.event_specific_data
    )
    assert not lake.exists() or not stored(lake)


@pytest.mark.parametrize("late", [timedelta(0), timedelta(hours=1)])
def test_a_partition_before_the_first_sample_names_the_first_one_that_can_be_read(
    resource: TubeMQResource, lake: Path, late: timedelta
) -> None:
    """A newcomer materialized the latest hour, which had begun before sampling did, and was told
    the time of the first sample only."""
    samples = FileTimeline(resource.directory(TOPIC, "lake"))
    sampled = datetime(2026, 11, 21, 9, 20, 30, tzinfo=UTC)
    timeline = Timeline(TOPIC).with_sample(Sample(ms_of(sampled), {"1/0": 0}))
    samples.store_timeline(timeline.to_document())
    asset = build_tubemq_asset(
        "orders",
        topic=TOPIC,
        group="lake",
        sink=lake,
        partitions_def=HOURS,
        late_allowance=late,
    )
    with pytest.raises(dg.Failure) as caught:
        dg.materialize([asset], partition_key=KEYS[0], resources={"tubemq": resource})
    assert not caught.value.allow_retries
    first = sampled.replace(hour=10, minute=0, second=0) - late
    text = str(caught.value.description)
    assert f"the first partition that can be read is {first:%Y-%m-%d-%H:%M}" in text
    assert f"at {first + timedelta(hours=1)}: set start_date='{first:%Y-%m-%d-%H:%M}'" in text


def test_a_user_and_tls_come_from_fields_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tubemq.toml"
    file.write_text('[tls]\nca_file = "/ca.pem"\n')
    resource = TubeMQResource(
        masters="m1",
        offsets_dir=str(tmp_path),
        username="etl",
        password="s3cret-word",
        config_file=str(file),
    )
    settings = resource.settings()
    assert settings.auth is not None
    assert settings.auth.username == "etl"
    assert settings.tls is not None
    assert settings.masters == (("m1", 8716),)
    assert "s3cret-word" not in f"{settings!r} {resource!r} {resource}"


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (TubeMQResource, {"masters": "m1", "username": "etl", "password": 20261123777}),
        (RocketMQResource, {"name_servers": "ns", "access_key": "k", "secret_key": 20261123777}),
    ],
)
def test_a_secret_that_is_a_number_is_refused_without_repeating_it(kind, fields) -> None:
    with pytest.raises(ValidationError, match="valid string") as caught:
        kind(offsets_dir="/progress", **fields)
    assert "20261123777" not in str(caught.value)


def test_names_with_unsafe_characters_have_separate_progress(tmp_path: Path) -> None:
    """Topics ``a%b``, ``a|b`` and ``a_b`` had one cursor. What an earlier release has kept stays
    where it is."""
    resource = RocketMQResource(name_servers="ns", offsets_dir=str(tmp_path), cluster="c1")
    assert resource.directory("a_b", "lake") == tmp_path / "c1" / "a_b" / "lake"
    before = tmp_path / "c1" / "a_b" / "lake"
    FileOffsetStore(before, task="t").emit({"cluster": "c1", "topic": "a|b", "group": "lake"})
    assert resource.directory("a|b", "lake") == before
    assert resource.directory("a%b", "lake") == tmp_path / "c1" / "a%25b" / "lake"
    topics = ("a|b", "a%b", "a%25b", "a%7Cb", "ab")
    assert len({resource.directory(topic, "lake") for topic in topics}) == len(topics)


@pytest.mark.parametrize("alias", ["a b", "a/b", "..", ""])
def test_a_cluster_has_an_alias_as_airflow_takes_it(alias: str) -> None:
    for kind, servers in ((TubeMQResource, "masters"), (RocketMQResource, "name_servers")):
        with pytest.raises(ValidationError, match="cluster"):
            kind(offsets_dir="/progress", cluster=alias, **{servers: "m1"})


def test_options_that_do_not_go_together_are_refused_when_the_asset_is_made(lake: Path) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        build_tubemq_asset(
            "orders",
            topic=TOPIC,
            group="lake",
            sink=lake,
            partitions_def=dg.StaticPartitionsDefinition(["a"]),  # type: ignore[arg-type]
            initial_position="earliest",
            max_records=3,
        )
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"topic": "my topic"}, "topic: "),
        ({"group": "g"}, "group: "),
        ({"sink": "lake"}, "sink: 'lake' is relative"),
        ({"sink": "hdfs://lake"}, "sink: hdfs:"),
        ({"initial_position": "begin"}, "initial_position: 'begin'"),
        ({"initial_position": {TOPIC: {"1:0": 27}}}, "initial_position: 1:0"),
        ({"max_records": 0}, "max_records: input should be greater"),
    ],
)
def test_a_mistake_shows_when_the_asset_is_defined(
    wrong: dict[str, object], named: str, lake: Path
) -> None:
    given = {"topic": TOPIC, "group": "lake", "sink": lake, "initial_position": "earliest"}
    with pytest.raises(errors.ConfigError, match=f"(?s)asset 'orders'.*{named}"):
        build_tubemq_asset("orders", **{**given, **wrong})  # type: ignore[arg-type]


def test_nothing_of_airflow_or_spark_is_imported() -> None:
    code = (
        "import sys, tubemq_provider.dagster;"
        "assert not {'airflow', 'pyspark'} & {m.partition('.')[0] for m in sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60 * PATIENCE)


def test_without_dagster_the_extra_is_named() -> None:
    code = "import sys; sys.modules['dagster'] = None; import tubemq_provider.dagster"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=50 * PATIENCE,
        check=False,
    )
    assert done.returncode == 1
    assert "MissingExtraError: dagster is needed here" in done.stderr
    assert "pip install 'airflow-provider-tubemq[dagster]'" in done.stderr
