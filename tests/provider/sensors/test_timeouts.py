"""Timeouts of sensors over all deferrals, and waits for a mistyped topic."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferred,
)

from tests.kit.servers import speaking_otherwise
from tests.provider.contexts import fake_context
from tubemq_client import Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.sensors.lag import TubeMQLagSensor
from tubemq_provider.sensors.ready import TubeMQPartitionReadySensor
from tubemq_provider.triggers.offsets import TubeMQOffsetTrigger

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60), pytest.mark.usefixtures("hook")]


def ready(**arguments: Any) -> TubeMQPartitionReadySensor:
    given = {"topic": "orders", "until_offsets": {"1:0": 28}, "timeout": 100, **arguments}
    return TubeMQPartitionReadySensor(task_id="ready", deferrable=True, **given)


def lag(**arguments: Any) -> TubeMQLagSensor:
    given = {"topic": "orders", "group": "lake", "cluster": "test", **arguments}
    return TubeMQLagSensor(task_id="lag", deferrable=True, **given)


def test_a_timeout_counts_over_all_deferrals() -> None:
    task = ready()
    with pytest.raises(TaskDeferred) as deferred:
        task.poke(fake_context(task, {}))
    assert deferred.value.timeout is not None
    assert deferred.value.timeout <= timedelta(seconds=100)
    again = ready()
    context = fake_context(again, {})
    with pytest.raises(TaskDeferred) as deferred:
        again.execute_complete(context, {"status": "ready"}, time.time() - 60)
    assert timedelta(seconds=30) < deferred.value.timeout < timedelta(seconds=41)
    with pytest.raises(AirflowSensorTimeout, match="after 100 s"):
        ready().execute_complete(context, {"status": "ready"}, time.time() - 101)


OVER = ("__fail__", {"error": "Trigger timeout"})
"""Call the method that Airflow calls when a deferral has timed out."""


def test_the_execution_timeout_counts_over_all_deferrals_and_another_try_follows() -> None:
    """The default `timeout` of a sensor is a week."""
    waiting: dict[str, Any] = {"timeout": 7 * 86400, "execution_timeout": timedelta(seconds=60)}
    task = ready(**waiting)
    context = fake_context(task, {})
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    assert deferred.value.timeout is not None
    assert timedelta(seconds=50) < deferred.value.timeout <= timedelta(seconds=60)
    with pytest.raises(AirflowTaskTimeout, match="after 60 s"):
        ready(**waiting).resume_execution(*OVER, context)
    late = ("execute_complete", {"event": {"status": "ready"}, "started": time.time() - 61})
    with pytest.raises(AirflowTaskTimeout, match="after 60 s"):
        ready(**waiting).resume_execution(*late, context)
    with pytest.raises(AirflowSkipException):
        ready(**waiting, soft_fail=True).resume_execution(*OVER, context)


def test_the_timeout_is_final_where_it_is_the_shorter_one() -> None:
    task = ready(execution_timeout=timedelta(hours=1))
    with pytest.raises(AirflowSensorTimeout):
        task.resume_execution(*OVER, fake_context(task, {}))


def test_a_deferred_sensor_ends_when_something_else_answers_at_the_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Like one that is not deferred; it used to wait until `timeout`."""
    task = ready()
    context = fake_context(task, {})
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    _, arguments = deferred.value.trigger.serialize()

    async def fired() -> Any:
        return (await asyncio.wait_for(anext(TubeMQOffsetTrigger(**arguments).run()), 20)).payload

    with speaking_otherwise() as (host, port):
        connection = {"conn_type": "tubemq", "host": f"{host}:{port}", "extra": {"cluster": "test"}}
        monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps(connection))
        event = asyncio.run(fired())
    with pytest.raises(AirflowFailException, match="frame starts with"):
        task.execute_complete(context, event, time.time())


def test_a_deferred_sensor_without_position_keeps_its_interval(
    hook: TubeMQHook, mq: EmbeddedTubeMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions of brokers are asked over HTTP, which may be away while brokers answer."""
    connection = {"conn_type": "tubemq", "host": mq.masters}
    extra = {"cluster": "test", "admin_url": "http://127.0.0.1:9"}
    monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps({**connection, "extra": extra}))
    list(hook.produce("orders", [Record(b"x", partition=Partition(1, "orders", 0))]))
    mq.broker(1).store("orders", 0).flush()
    what = {"topic": "orders", "group": "lake", "cluster": "test", "of": "broker"}
    task = TubeMQLagSensor(task_id="lag", deferrable=True, poke_interval=1.5, **what)
    with pytest.raises(TaskDeferred) as deferred:
        task.poke(fake_context(task, {}))
    trigger = deferred.value.trigger
    assert isinstance(trigger, TubeMQOffsetTrigger)
    _, arguments = trigger.serialize()

    async def fired_after() -> float:
        began = time.monotonic()
        event = await asyncio.wait_for(anext(TubeMQOffsetTrigger(**arguments).run()), 20)
        assert event.payload == {"status": "ready"}
        return time.monotonic() - began

    assert asyncio.run(fired_after()) > 1.1


def test_a_missing_topic_is_waited_for_or_fails() -> None:
    waiting = ready(topic="oders")
    with pytest.raises(TaskDeferred):
        waiting.poke(fake_context(waiting, {}))
    strict = ready(topic="oders", wait_for_topic=False)
    with pytest.raises(AirflowFailException, match="UnknownTopic"):
        strict.poke(fake_context(strict, {}))


@pytest.mark.parametrize("kind", ["ready", "lag"])
def test_a_topic_that_is_deleted_while_a_sensor_waits_fails_it(kind: str) -> None:
    """The trigger has the sensor look, which says what is wrong."""
    strict: Any = ready(wait_for_topic=False)
    if kind == "lag":
        strict = lag(wait_for_topic=False, poke_interval=0.01)
    with pytest.raises(TaskDeferred) as deferred:
        strict.poke(fake_context(strict, {}))
    _, arguments = deferred.value.trigger.serialize()
    gone = TubeMQOffsetTrigger(**{**arguments, "topic": "oders"})

    async def fired() -> Any:
        return (await asyncio.wait_for(anext(gone.run()), 20)).payload

    assert asyncio.run(fired()) == {"status": "ready"}


def test_a_deferred_sensor_notices_a_position_that_was_moved_back(
    hook: TubeMQHook, mq: EmbeddedTubeMQ
) -> None:
    """The trigger compares ends with the position of before."""
    partition = Partition.from_key("orders", "1:0")
    list(hook.produce("orders", [Record(b"x", partition=partition)]))
    mq.broker(1).store("orders", 0).flush()
    sensor = lag()
    ends = {p.key: found.max_offset for p, found in hook.ends("orders", "lake").items()}
    cursor = {"v": 1, "h": "0123456789", "seq": 1, "next": ends}
    kept: dict[Any, Any] = {}
    context = fake_context(sensor, kept)
    context["asset_state_store"][sensor.inlets[0]].set("cursor", cursor)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(context)
    moved = {**cursor, "next": dict.fromkeys(ends, 0)}
    context["asset_state_store"][sensor.inlets[0]].set("cursor", moved)
    _, arguments = deferred.value.trigger.serialize()
    assert 600 < arguments["look_again_after"] <= 3600
    soon = {"look_again_after": 0.1, "poll_interval": 0.05, "first_look_after": 0.0}

    async def fired() -> Any:
        trigger = TubeMQOffsetTrigger(**{**arguments, **soon})
        return (await asyncio.wait_for(anext(trigger.run()), 20)).payload

    found = sensor.execute_complete(context, asyncio.run(fired()), time.time())
    assert found["lag"] == 1
