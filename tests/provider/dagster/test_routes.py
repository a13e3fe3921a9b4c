"""Routes as a multi-asset: one read of a window, a materialisation of each route with counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.kit.servers import embedded_tubemq
from tubemq_client import ClientSettings, Partition, Producer, Record
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.errors import ConfigError
from tubemq_provider.dagster import TubeMQResource, build_tubemq_asset
from tubemq_provider.sinks.read import read_windows

mq = embedded_tubemq([TopicSpec("orders")], switches=Switches(unflushed_records=1))


def send(mq: EmbeddedTubeMQ, *records: tuple[str, bytes]) -> None:
    with Producer(ClientSettings(masters=(mq.master_address,))) as producer:
        place = Partition(1, "orders", 0)
        made = [Record(body, partition=place, stream_id=stream) for stream, body in records]
        list(producer.send_many("orders", made))


def materialised(asset: dg.AssetsDefinition, resource: TubeMQResource) -> dict[str, Any]:
    """Return the metadata of each asset."""
    result = dg.materialize([asset], resources={"tubemq": resource})
    assert result.success
    return {
        event.asset_key.to_user_string(): {
            name: value.value for name, value in event.materialization.metadata.items()
        }
        for event in result.get_asset_materialization_events()
        if event.asset_key is not None
    }


def test_each_route_is_an_asset_with_its_counts(
    mq: EmbeddedTubeMQ, resource: TubeMQResource, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    tables = {"orders": f"{tmp_path}/orders", "log_*": f"{tmp_path}/logs/{{stream_id}}"}
    asset = build_tubemq_asset(
        "streams", topic="orders", group="lake", sink=f"{tmp_path}/w", engine="inline",
        initial_position="earliest", routes={"name": "n", "tables": tables},
    )  # fmt: skip
    send(mq, ("orders", b"1"), ("log_a", b"2"), ("log_b", b"3"), ("log_b", b"4"))
    found = materialised(asset, resource)
    assert {key: facts["records"] for key, facts in found.items()} == {
        "streams/orders": 1,
        "streams/log__x2a_": 3,
    }
    assert len(found["streams/log__x2a_"]["tables"]) == 2
    send(mq, ("orders", b"5"))
    assert {key: facts["records"] for key, facts in materialised(asset, resource).items()} == {
        "streams/orders": 1,
        "streams/log__x2a_": 0,
    }
    assert sorted(read_windows(tmp_path / "orders").to_table()["value"].to_pylist()) == [b"1", b"5"]


def test_a_connection_of_a_route_is_refused(tmp_path: Path) -> None:
    routes = {"name": "n", "tables": {"a": {"sink": f"{tmp_path}/a", "sink_conn_id": "x"}}}
    with pytest.raises(ConfigError, match="there are no connections here"):
        build_tubemq_asset(
            "streams", topic="orders", group="lake", sink=f"{tmp_path}/w", engine="inline",
            initial_position="earliest", routes=routes,
        )  # fmt: skip
