"""How long a sensor waits in all, however often it is deferred, and what of a mistyped topic."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, TaskDeferred

from tests.provider.contexts import fake_context
from tubemq_provider.sensors.ready import TubeMQPartitionReadySensor

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60), pytest.mark.usefixtures("hook")]


def ready(**arguments: Any) -> TubeMQPartitionReadySensor:
    given = {"topic": "orders", "until_offsets": {"1:0": 28}, "timeout": 100, **arguments}
    return TubeMQPartitionReadySensor(task_id="ready", deferrable=True, **given)


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


def test_a_topic_that_is_not_there_is_waited_for_or_fails() -> None:
    waiting = ready(topic="oders")
    with pytest.raises(TaskDeferred):
        waiting.poke(fake_context(waiting, {}))
    strict = ready(topic="oders", wait_for_topic=False)
    with pytest.raises(AirflowFailException, match="UnknownTopic"):
        strict.poke(fake_context(strict, {}))
