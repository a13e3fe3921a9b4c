"""Assets over RocketMQ: windows as of the other kind, with queues, tags and store times."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from rocketmq_client import Metadata, Producer, PullConsumer
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.model import Credentials
from tests.kit.servers import embedded_rocketmq
from tubemq_client.errors import ConfigError
from tubemq_provider.dagster import (
    RocketMQResource,
    build_coverage_check,
    build_rocketmq_asset,
    build_tubemq_ends_asset,
    build_tubemq_upkeep_job,
)
from tubemq_provider.sinks.read import read_windows

TOPIC = "orders"
KEY = Credentials("reader01", "87654321")


rocketmq = embedded_rocketmq(1, topic=TOPIC, brokers=2, credentials=KEY)


@pytest.fixture
def resource(rocketmq: EmbeddedRocketMQ, tmp_path: Path) -> RocketMQResource:
    host, port = rocketmq.name_server
    return RocketMQResource(
        name_servers=f"{host}:{port}",
        offsets_dir=str(tmp_path / "offsets"),
        access_key=KEY.access_key,
        secret_key=KEY.secret_key,
    )


def send(rocketmq: EmbeddedRocketMQ, *bodies: bytes, tags: str | None = None) -> dict[str, int]:
    """Send, and the ends of all queues afterwards."""
    settings = replace(rocketmq.settings, auth=KEY)
    with Producer(settings) as producer:
        for body in bodies:
            producer.send(TOPIC, body, tags=tags)
    with Metadata(settings) as metadata:
        return {queue.key: end.max_offset for queue, end in metadata.ends(TOPIC).items()}


def materialize(
    asset: dg.AssetsDefinition, resource: RocketMQResource, partition: str | None = None
) -> dict[str, Any]:
    result = dg.materialize([asset], partition_key=partition, resources={"rocketmq": resource})
    (event,) = result.get_asset_materialization_events()
    return {key: value.value for key, value in event.materialization.metadata.items()}


def stored(lake: Path) -> list[bytes]:
    return sorted(read_windows(lake).to_table()["value"].to_pylist())


def asset(lake: Path, **options: Any) -> dg.AssetsDefinition:
    return build_rocketmq_asset("orders", topic=TOPIC, group="lake", sink=lake, **options)


def test_runs_continue_from_the_cursor_and_filters_are_tags(
    rocketmq: EmbeddedRocketMQ, resource: RocketMQResource, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    following = asset(lake, filters=["kept"], initial_position="earliest", commit_to_broker=True)
    send(rocketmq, b"a", b"b", tags="kept")
    send(rocketmq, b"c", b"d", tags="left")
    counts = [materialize(following, resource)["records"] for _ in range(2)]
    send(rocketmq, b"e", tags="kept")
    counts.append(materialize(following, resource)["records"])

    assert counts == [2, 0, 1]
    assert stored(lake) == [b"a", b"b", b"e"]
    with PullConsumer(replace(rocketmq.settings, auth=KEY), group="lake") as consumer:
        assert sum(consumer.committed(queue) or 0 for queue in consumer.queues(TOPIC)) == 5


def test_partitions_are_windows_and_a_rerun_writes_nothing(
    rocketmq: EmbeddedRocketMQ, resource: RocketMQResource, tmp_path: Path
) -> None:
    lake, hours = tmp_path / "lake", dg.HourlyPartitionsDefinition("2026-11-21-08:00")
    keys = dict.fromkeys(("broker-a:0", "broker-b:0"), 0)
    ends = [keys, send(rocketmq, b"a", b"b"), send(rocketmq, b"c")]
    boundaries = {f"2026-11-21T{8 + n:02}:00:00Z": {TOPIC: end} for n, end in enumerate(ends)}
    hourly = asset(lake, partitions_def=hours, boundaries=boundaries)
    found = [materialize(hourly, resource, f"2026-11-21-{h:02}:00") for h in (9, 8, 9)]

    assert [(one["records"], one["replayed"]) for one in found] == [
        (1, False),
        (2, False),
        (1, True),
    ]
    assert stored(lake) == [b"a", b"b", b"c"]
    assert build_coverage_check("orders", lake)().passed


def test_an_hour_holds_what_was_stored_in_it_and_waits_until_it_is_over(
    rocketmq: EmbeddedRocketMQ, resource: RocketMQResource, tmp_path: Path
) -> None:
    send(rocketmq, b"a", b"b", b"c")
    now = datetime.now(UTC)
    days = dg.DailyPartitionsDefinition(now - timedelta(days=3), timezone="UTC", end_offset=2)
    daily = asset(tmp_path / "lake", partitions_def=days, max_retries=0)
    long_ago = (now - timedelta(days=2)).strftime("%Y-%m-%d")
    tomorrow = (now + timedelta(days=1)).strftime("%Y-%m-%d")

    assert materialize(daily, resource, long_ago)["records"] == 0
    result = dg.materialize(
        [daily],
        partition_key=tomorrow,
        resources={"rocketmq": resource},
        raise_on_error=False,
    )
    (failed,) = result.get_step_failure_events()
    assert "is not final yet" in str(failed.step_failure_data.error)


def test_a_window_by_offsets_and_wrong_keys_when_definitions_are_loaded(
    rocketmq: EmbeddedRocketMQ, resource: RocketMQResource, tmp_path: Path
) -> None:
    send(rocketmq, b"a", b"b", b"c", b"d")
    keys = ("broker-a:0", "broker-b:0")
    given = {
        "starting_offsets": dict.fromkeys(keys, 0),
        "ending_offsets": dict.fromkeys(keys, 1),
    }
    assert materialize(asset(tmp_path / "lake", **given), resource)["records"] == 2
    with pytest.raises(ConfigError, match="broker name"):
        asset(tmp_path / "lake", starting_offsets={"1": 0}, ending_offsets={"1": 1})


def test_a_named_broker_is_retired_and_ends_are_sampled(
    rocketmq: EmbeddedRocketMQ, resource: RocketMQResource, tmp_path: Path
) -> None:
    send(rocketmq, b"a", b"b")
    sampled = build_tubemq_ends_asset("e", topic=TOPIC, group="lake", resource_key="rocketmq")
    assert materialize(sampled, resource)["ends"] == {"broker-a:0": 1, "broker-b:0": 1}
    job = build_tubemq_upkeep_job(
        "upkeep", topic=TOPIC, group="lake", sink=tmp_path / "lake", resource_key="rocketmq"
    )
    done = job.execute_in_process(
        run_config={"ops": {"change": {"config": {"retire_names": ["broker-b"]}}}},
        resources={"rocketmq": resource},
    )
    assert done.success


def test_the_secret_is_shown_nowhere(resource: RocketMQResource) -> None:
    assert KEY.secret_key not in repr(resource.source(TOPIC, "lake"))
    assert KEY.secret_key not in repr(resource.settings())
    assert KEY.secret_key not in f"{resource!r} {resource}"
