"""Mapped tasks: the scheduler knows only what `.partial()` says; the worker must not pretend."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from tubemq_provider.assets import offsets_asset, topic_asset
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.operators.produce import TubeMQProduceOperator
from tubemq_provider.operators.sample import TubeMQSampleEndsOperator
from tubemq_provider.sensors.lag import TubeMQLagSensor

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

TOPIC = "orders"
ASSET = offsets_asset("test", TOPIC, "lake")
GIVEN = {"topic": TOPIC, "group": "lake", "cluster": "test"}


def lag(**partial: Any) -> Any:
    with DAG("mapped", schedule=None):
        task = TubeMQLagSensor.partial(task_id="lag", **GIVEN, **partial).expand(min_lag=[1])
    return task.unmap({"min_lag": 1})


def sample(**partial: Any) -> Any:
    given = {**GIVEN, **partial}
    topic = given.pop("topic")
    with DAG("mapped", schedule=None):
        task = TubeMQSampleEndsOperator.partial(task_id="s", **given).expand(topic=[topic])
    return task.unmap({"topic": topic})


@pytest.mark.parametrize("make", [lag, sample])
def test_the_worker_adds_no_inlet_and_names_the_argument(make: Any, hook: TubeMQHook) -> None:
    task = make()
    assert task.inlets == []
    run = task.poke if make is lag else type(task).execute.__wrapped__.__get__(task)
    with pytest.raises(AirflowFailException) as caught:
        run({})
    said = str(caught.value)
    assert "pass inlets=[a] to .partial()" in said
    assert "offsets_asset('test', 'orders', 'lake')" in said


@pytest.mark.parametrize("make", [lag, sample])
def test_what_partial_declares_counts(make: Any) -> None:
    assert make(inlets=[ASSET]).inlets == [ASSET]


def test_positions_of_brokers_need_no_inlet() -> None:
    assert lag(of="broker").inlets == []


@pytest.mark.parametrize("outlets", [[], [topic_asset("test", TOPIC)]])
def test_a_mapped_produce_task_explains_missing_events(
    hook: TubeMQHook, capsys: pytest.CaptureFixture[str], outlets: list[Any]
) -> None:
    given = {"topic": TOPIC, "cluster": "test", "on_retry": "send_again", "outlets": outlets}
    with DAG("mapped", schedule=None):
        task = TubeMQProduceOperator.partial(task_id="make", **given).expand(records=[["x"]])
    sending = task.unmap({"records": ["x"]})
    assert sending.outlets == outlets
    assert type(sending).execute.__wrapped__(sending, {})["records"] == 1
    said = "no event on asset tubemq:test/orders" in (text := capsys.readouterr().out)
    assert said == ("topic_asset('test', 'orders')" in text) == (not outlets)
