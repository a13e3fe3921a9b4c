"""Sensors on a source of another distribution."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.installed import toy_source_installed
from tests.provider.contexts import fake_context
from tubemq_client.errors import ConfigError
from tubemq_provider.assets import offsets_asset
from tubemq_provider.hooks.by_kind import hook_class
from tubemq_provider.sensors.lag import TubeMQLagSensor
from tubemq_provider.sensors.ready import TubeMQPartitionReadySensor

pytestmark = pytest.mark.airflow


@pytest.fixture(autouse=True)
def topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a source as another distribution would, with a topic of two partitions."""
    root = tmp_path / "cluster"
    (root / "orders").mkdir(parents=True)
    (root / "orders" / "north.0").write_text("a\nb\n")
    (root / "orders" / "south.0").write_text("c\n")
    document = json.dumps({"conn_type": "lines", "extra": {"root": str(root), "cluster": "main"}})
    monkeypatch.setenv("AIRFLOW_CONN_FILES", document)
    with toy_source_installed(tmp_path, monkeypatch):
        yield root / "orders"


def lag(**given: Any) -> Any:
    names = {"topic": "orders", "group": "lake", "cluster": "main", "tubemq_conn_id": "files"}
    return TubeMQLagSensor(task_id="lag", **{**names, "source": "lines", **given})


def ready(**given: Any) -> Any:
    return TubeMQPartitionReadySensor(
        task_id="ready", source="lines", topic="orders", tubemq_conn_id="files", **given
    )


def test_lag_of_a_source_of_a_plugin_is_seen() -> None:
    sensor = lag(min_lag=3)

    seen = sensor.poke(fake_context(sensor, {}))

    assert sensor.inlets == [offsets_asset("main", "orders", "lake", "lines")]
    assert (seen.is_done, seen.xcom_value["lag"]) == (True, 3)
    assert not lag(min_lag=4).poke(fake_context(sensor, {})).is_done


def test_partitions_of_a_source_of_a_plugin_are_waited_for() -> None:
    assert ready().poke({}).xcom_value["ends"] == {"north.0": 2, "south.0": 1}
    assert ready(until_offsets={"north.0": 2}).poke({}).is_done
    assert not ready(until_offsets={"north.0": 3}).poke({}).is_done
    assert not ready(partitions=["west.0"]).poke({}).is_done


def test_what_a_plugin_does_not_have_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(ConfigError, match="triggers do not know 'lines'; say mode='reschedule'"):
        lag(deferrable=True)
    with pytest.raises(ConfigError, match="of='broker' is not available for lines"):
        lag(of="broker")
    with pytest.raises(ConfigError, match=r"no source of kind 'linez' here"):
        lag(source="linez")
    with pytest.raises(ConfigError, match="'rocketmq' has sensors of its own"):
        lag(source="rocketmq")


def test_the_connection_of_a_plugin_is_tested_as_far_as_its_source_can() -> None:
    hook: Any = hook_class("lines")
    assert hook("files").test_connection() == (True, "the options are valid")
