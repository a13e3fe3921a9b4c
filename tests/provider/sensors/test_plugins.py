"""Sensors on a source of another distribution."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from tests.kit.installed import toy_source_installed
from tests.provider.contexts import fake_context
from tests.provider.triggers.test_triggers import State
from tubemq_client.errors import ConfigError
from tubemq_provider.assets import offsets_asset
from tubemq_provider.hooks.by_kind import hook_class
from tubemq_provider.sensors.lag import TubeMQLagSensor
from tubemq_provider.sensors.ready import TubeMQPartitionReadySensor
from tubemq_provider.triggers.lag import TubeMQLagTrigger

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


def deferred(sensor: Any, context: Any) -> Any:
    """Return the trigger that the sensor waits with, as a triggerer makes it from the database."""
    with pytest.raises(TaskDeferred) as caught:
        sensor.execute(context)
    path, arguments = caught.value.trigger.serialize()
    return resolve_name(path)(**json.loads(json.dumps(arguments)))


async def event_of(trigger: Any, change: Callable[[], object]) -> Any:
    """Return the trigger's event, which comes only after the change."""
    events = trigger.run()
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    change()
    return (await asyncio.wait_for(waiting, 30)).payload


def test_a_deferred_sensor_waits_in_the_triggerer_for_a_topic_of_a_plugin(topic: Path) -> None:
    def grow() -> None:
        (topic / "north.0").write_text("a\nb\nc\nd\n")

    options = {"deferrable": True, "poke_interval": 0.1}
    for sensor in (lag(min_lag=5, **options), ready(until_offsets={"north.0": 4}, **options)):
        (topic / "north.0").write_text("a\nb\n")
        context = fake_context(sensor, {})
        trigger = deferred(sensor, context)
        assert trigger.serialize()[1]["source"] == "lines"
        assert asyncio.run(event_of(trigger, grow)) == {"status": "ready"}
        assert sensor.execute_complete(context, {"status": "ready"}, time.time())["topic"]


def test_a_watcher_fires_for_the_lag_of_a_source_of_a_plugin(topic: Path) -> None:
    trigger = Watcher(
        topic="orders",
        group="lake",
        cluster="main",
        min_lag=4,
        poll_interval=1,
        tubemq_conn_id="files",
        source="lines",
    )
    arguments = trigger.serialize()[1]
    assert arguments["source"] == "lines"

    async def scene() -> Any:
        return await event_of(trigger, lambda: (topic / "south.0").write_text("c\nd\n"))

    event = asyncio.run(scene())
    assert (event["lag"], event["ends"]) == (4, {"north.0": 2, "south.0": 2})
    with pytest.raises(ConfigError, match="no source of kind 'linez'"):
        TubeMQLagTrigger(topic="orders", group="lake", source="linez")


class Watcher(TubeMQLagTrigger):
    """The trigger over an empty state."""

    @property
    def state(self) -> Any:
        return State()


def test_what_a_plugin_does_not_have_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(ConfigError, match="of='broker' is not available for lines"):
        lag(of="broker")
    with pytest.raises(ConfigError, match=r"no source of kind 'linez' here"):
        lag(source="linez")
    with pytest.raises(ConfigError, match="'rocketmq' has sensors of its own"):
        lag(source="rocketmq")


def test_the_connection_of_a_plugin_is_tested_as_far_as_its_source_can() -> None:
    hook: Any = hook_class("lines")
    assert hook("files").test_connection() == (True, "the options are valid")
