"""`consumer_config` of operators, sensors, triggers and connections, in Airflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider.hooks.rocketmq import RocketMQHook
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator
from tubemq_provider.operators.rocketmq import RocketMQCursorIngestOperator
from tubemq_provider.sensors.lag import TubeMQLagSensor
from tubemq_provider.sensors.ready import TubeMQPartitionReadySensor
from tubemq_provider.sensors.rocketmq import RocketMQLagSensor
from tubemq_provider.triggers.offsets import TubeMQOffsetTrigger

pytestmark = pytest.mark.airflow

NAMES = {"topic": "orders", "group": "lake"}
INGEST = {**NAMES, "path": "/lake", "engine": "inline", "initial_position": "earliest"}


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("tubemq", "rocketmq"):
        document = {"conn_type": kind, "host": "one", "extra": {"deadline_ms": 5_000}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{kind.upper()}_DEFAULT", json.dumps(document))


@pytest.mark.parametrize("kind", [TubeMQCursorIngestOperator, RocketMQCursorIngestOperator])
def test_options_are_judged_when_the_dag_is_parsed_also_beside_templates(kind: Any) -> None:
    options = {"rpc_timeout_ms": "{{ params.ms }}", "deadline_ms": 1, "deadlin_ms": 2}
    with pytest.raises(ConfigError) as caught:
        kind(task_id="ingest", consumer_config=options, **INGEST)
    assert "consumer_config: deadline_ms: 1: input should be" in str(caught.value)
    assert "consumer_config: deadlin_ms: unknown option; did you mean deadline_ms?" in str(
        caught.value
    )

    task = kind(task_id="ingest", consumer_config={"deadline_ms": "{{ params.ms }}"}, **INGEST)
    task.render_template_fields({"params": {"ms": 9_000}})
    assert task.consumer_config == {"deadline_ms": "9000"}
    assert kind(task_id="one", consumer_config="{{ params.reading | tojson }}", **INGEST)


def test_the_operators_options_win_over_those_of_the_connection() -> None:
    assert TubeMQHook().get_settings().deadline_ms == 5_000
    chosen: Any = TubeMQHook(consumer_config={"deadline_ms": 6_000, "pool_size": 2}).get_settings()
    assert (chosen.deadline_ms, chosen.pool_size) == (6_000, 2)
    queues: Any = RocketMQHook(consumer_config={"in_flight": 2}).get_settings()
    assert (queues.deadline_ms, queues.in_flight) == (5_000, 2)

    source = TubeMQHook().source("orders", "lake")
    source.configure({"pool_size": 2})
    read: Any = source.settings()
    assert (read.deadline_ms, read.pool_size) == (5_000, 2)


def test_options_of_a_connection_are_judged_with_all_its_other_fields(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extra = {
        "rpc_timeout_ms": 1,
        "pool_size": 2,
        "consumer_config": {"deadline_m": 1, "pool_size": 3},
    }
    document = {"conn_type": "tubemq", "host": "one", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps(document))
    with pytest.raises(ConfigError) as caught:
        TubeMQHook().get_settings()
    text = str(caught.value)
    assert "rpc_timeout_ms: 1: input should be" in text
    assert "pool_size: is in consumer_config as well" in text
    assert "consumer_config: deadline_m: unknown option; did you mean deadline_ms?" in text


def test_sensors_and_their_triggers_look_with_them() -> None:
    options = {"rpc_timeout_ms": 2_000, "deadline_ms": 6_000}
    for sensor in (
        TubeMQLagSensor(task_id="a", consumer_config=options, **NAMES),
        TubeMQPartitionReadySensor(task_id="b", topic="orders", consumer_config=options),
        RocketMQLagSensor(task_id="c", consumer_config=json.dumps(options), **NAMES),
    ):
        made: Any = sensor
        assert made.hook.get_settings().rpc_timeout_ms == 2_000
        path, arguments = made.trigger().serialize()
        assert arguments["consumer_config"] == options
        assert path.endswith("OffsetTrigger")
        with pytest.raises(ConfigError, match="consumer_config: pool: unknown option"):
            type(made)(task_id="d", consumer_config={"pool": 1}, **NAMES)


def test_a_trigger_without_them_is_stored_as_before() -> None:
    arguments = TubeMQOffsetTrigger(**NAMES).serialize()[1]
    assert not {"consumer_config", "source"} & arguments.keys()


def test_a_kind_without_such_options_refuses_them_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.kit.installed import toy_source_installed

    with (
        toy_source_installed(tmp_path, monkeypatch),
        pytest.raises(ConfigError, match="consumer_config: it is not available for lines"),
    ):
        TubeMQCursorIngestOperator(
            task_id="t", source="lines", consumer_config={"deadline_ms": 5_000}, **INGEST
        )
