"""Triggers of RocketMQ's sensors: they fire when the sensor should poke again."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from rocketmq_client import Producer, PullConsumer
from rocketmq_client.aio import Metadata
from rocketmq_client.embedded import EmbeddedRocketMQ
from tests.kit.servers import embedded_rocketmq
from tubemq_client.errors import ConfigError
from tubemq_provider.sensors.rocketmq import RocketMQLagSensor, RocketMQPartitionReadySensor
from tubemq_provider.triggers.rocketmq import RocketMQOffsetTrigger

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

SECRET = "hush-hush"


rocketmq = embedded_rocketmq(
    1,
    connection={
        "login": "reader01",
        "password": SECRET,
        "extra": {"rpc_timeout_ms": 2000, "connect_timeout_ms": 1000},
    },
)


def produce(rocketmq: EmbeddedRocketMQ, count: int) -> None:
    with Producer(rocketmq.settings) as producer:
        for _ in range(count):
            producer.send("orders", b"x")


def deferred(sensor: Any) -> RocketMQOffsetTrigger:
    """Return the trigger of a sensor that has deferred, recreated as in a triggerer."""
    with pytest.raises(TaskDeferred) as found:
        sensor.execute({})
    name, arguments = found.value.trigger.serialize()
    assert SECRET not in json.dumps(arguments)
    assert name == "tubemq_provider.triggers.rocketmq.RocketMQOffsetTrigger"
    return RocketMQOffsetTrigger(**arguments)


def fired(trigger: RocketMQOffsetTrigger, *acts: Any) -> dict[str, Any]:
    """Return the event after all acts are done; the trigger must be silent before the last."""

    async def scene() -> dict[str, Any]:
        events = trigger.run()
        waiting = asyncio.ensure_future(anext(events))
        for act in acts:
            await asyncio.sleep(0.3)
            assert not waiting.done()
            await asyncio.to_thread(act)
        event = await asyncio.wait_for(waiting, 45)
        await events.aclose()
        payload: dict[str, Any] = event.payload
        return payload

    return asyncio.run(scene())


NAMED = {"task_id": "wait", "topic": "orders", "deferrable": True, "poke_interval": 0.1}


def test_a_deferred_sensor_waits_for_offsets_over_a_dead_broker(rocketmq: EmbeddedRocketMQ) -> None:
    sensor = RocketMQPartitionReadySensor(until_offsets='{"broker-a:0": 3}', **NAMED)
    trigger = deferred(sensor)

    acts = (
        rocketmq.kill_broker,
        rocketmq.start_broker,
        lambda: produce(rocketmq, 2),
        lambda: produce(rocketmq, 1),
    )
    assert fired(trigger, *acts) == {"status": "ready"}
    found = sensor.execute_complete({}, {"status": "ready"}, 0.0)
    assert found["ends"] == {"broker-a:0": 3}


def test_a_deferred_sensor_waits_for_what_a_group_has_not_committed(
    rocketmq: EmbeddedRocketMQ,
) -> None:
    produce(rocketmq, 4)
    with PullConsumer(rocketmq.settings, group="lake") as consumer:
        consumer.commit(consumer.queues("orders")[0], 4)
    trigger = deferred(RocketMQLagSensor(group="lake", min_records=2, **NAMED))

    assert fired(trigger, lambda: produce(rocketmq, 1), lambda: produce(rocketmq, 1)) == {
        "status": "ready"
    }


def test_a_queue_that_is_shorter_than_the_groups_offset_is_nothing_to_wait_for(
    rocketmq: EmbeddedRocketMQ,
) -> None:
    """It would be, for as long as the new one took to grow past the old one's offset."""
    produce(rocketmq, 4)
    sensor = RocketMQLagSensor(group="lake", min_records=2, **NAMED)
    with PullConsumer(rocketmq.settings, group="lake") as consumer:
        consumer.commit(consumer.queues("orders")[0], 4)
        trigger = deferred(sensor)
        act = partial(consumer.commit, consumer.queues("orders")[0], 1000)
        assert fired(trigger, act) == {"status": "ready"}
    found = sensor.execute_complete({}, {"status": "ready"}, 0.0)
    assert (found["lag"], found["regressed"]) == (0, {"broker-a:0": [1000, 4]})


def looked(trigger: RocketMQOffsetTrigger) -> bool:
    async def look() -> bool:
        async with trigger.connected() as client:
            return await trigger.is_ready(client)

    return asyncio.run(look())


def test_commits_during_a_poll_do_not_look_like_a_shorter_queue(
    rocketmq: EmbeddedRocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PullConsumer(rocketmq.settings, group="lake") as consumer:
        (queue,) = consumer.queues("orders")

        def then_more(ask: Any) -> Any:
            async def asked(*args: Any, **options: Any) -> Any:
                found = await ask(*args, **options)
                produce(rocketmq, 2)
                consumer.commit(queue, (consumer.committed(queue) or 0) + 2)
                return found

            return asked

        for name in ("ends", "group_offsets"):
            monkeypatch.setattr(Metadata, name, then_more(getattr(Metadata, name)))
        assert not looked(RocketMQOffsetTrigger(topic="orders", group="lake", min_lag=5))


def test_a_topic_that_is_deleted_while_a_sensor_waits_ends_the_wait(
    rocketmq: EmbeddedRocketMQ,
) -> None:
    trigger = deferred(RocketMQLagSensor(group="lake", wait_for_topic=False, **NAMED))
    trigger.topic = "oders"
    assert fired(trigger) == {"status": "ready"}


def test_a_deferred_sensor_waits_until_an_instant_is_over_at_the_brokers(
    rocketmq: EmbeddedRocketMQ,
) -> None:
    later, before = (datetime.now(UTC) + timedelta(hours=hours) for hours in (1, -1))
    trigger = deferred(RocketMQPartitionReadySensor(until=later, **NAMED))

    assert trigger.instant == later.isoformat()
    assert not looked(trigger)
    over = RocketMQOffsetTrigger(topic="orders", instant=before.isoformat())
    assert fired(over) == {"status": "ready"}


def test_an_instant_is_over_once_what_was_stored_before_it_is_on_disk(
    rocketmq: EmbeddedRocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns()
    with monkeypatch.context() as patched:  # the brokers' clock, an hour ago
        clock = SimpleNamespace(time_ns=lambda: now - 3_600 * 10**9)
        patched.setattr("rocketmq_client.embedded.storage.time", clock)
        rocketmq.hold_flush()
        produce(rocketmq, 3)
    instant = (datetime.now(UTC) - timedelta(minutes=30)).isoformat()
    assert not looked(RocketMQOffsetTrigger(topic="orders", instant=instant))
    assert looked(RocketMQOffsetTrigger(topic="orders", instant=instant, stable=False))
    rocketmq.hold_flush(held=False)
    assert looked(RocketMQOffsetTrigger(topic="orders", instant=instant))


def test_permanent_errors_are_reported(
    rocketmq: EmbeddedRocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ROCKETMQ_DEFAULT", json.dumps({"conn_type": "rocketmq"}))
    found = fired(RocketMQOffsetTrigger(topic="orders"))

    assert found["status"] == "error"
    assert "name_servers" in found["message"]


def test_templates_are_checked_when_rendered(rocketmq: EmbeddedRocketMQ) -> None:
    for given in ("{{ params.ends }}", {"broker-a:0": "{{ params.end }}"}):
        sensor = RocketMQPartitionReadySensor(until_offsets=given, **NAMED)
    sensor.until_offsets = '{"1": 3}'
    with pytest.raises(ConfigError, match="broker name"):
        sensor.look({})
