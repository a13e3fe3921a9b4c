"""Conditions on which sensors succeed, wait or fail, poke by poke, on an embedded cluster."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowFailException

from tests.kit.look_ups import look_up_under_way
from tests.kit.servers import speaking_otherwise
from tubemq_client import Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.errors import ConfigError
from tubemq_provider.assets import offsets_asset
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.offsets.asset_state import EVENT_KEY
from tubemq_provider.sensors.lag import TubeMQLagSensor
from tubemq_provider.sensors.ready import ReadyArguments, TubeMQPartitionReadySensor
from tubemq_provider.task_arguments import parse

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60), pytest.mark.usefixtures("hook")]

TOPIC = "orders"
ASSET = offsets_asset("test", TOPIC, "lake")


def ready(**arguments: Any) -> TubeMQPartitionReadySensor:
    return TubeMQPartitionReadySensor(task_id="ready", topic=TOPIC, **arguments)


def lag(**arguments: Any) -> TubeMQLagSensor:
    return TubeMQLagSensor(task_id="lag", topic=TOPIC, group="lake", cluster="test", **arguments)


def reported(sensor: Any, task_context: Any) -> dict[str, Any]:
    report = sensor.poke(task_context).xcom_value
    assert isinstance(report, dict)
    return report


def produce(hook: TubeMQHook, count: int, key: str = "1:0") -> None:
    partition = Partition.from_key(TOPIC, key)
    list(hook.produce(TOPIC, [Record(b"x", partition=partition)] * count))


class Events(list[Any]):
    def ascending(self, ascending: bool = True) -> Events:
        return self

    def limit(self, limit: int) -> Events:
        return self


class Event:
    def __init__(self, document: dict[str, Any]) -> None:
        self.extra = {EVENT_KEY: document}


def context(cursor: Any = None, *events: dict[str, Any]) -> Any:
    """Return the part of a task's context that holds progress."""
    state = {} if cursor is None else {"cursor": cursor}
    return {
        "asset_state_store": {ASSET: state},
        "inlet_events": {ASSET: Events(map(Event, events))},
    }


class TestReady:
    def test_all_partitions_of_the_topic_by_default(self) -> None:
        found = ready().poke({})
        assert found.is_done
        assert found.xcom_value
        assert set(found.xcom_value["ends"]) == {
            f"{b}:{s}{n}" for b in "12" for s in ("", "1000") for n in "01"
        }

    def test_waits_for_offsets_to_reach_the_disk(
        self, hook: TubeMQHook, mq: EmbeddedTubeMQ
    ) -> None:
        produce(hook, 3)
        sensor = ready(until_offsets={TOPIC: {"1:0": 84}})
        assert not sensor.poke({}).is_done
        assert ready(until_offsets='{"1:0": 84}', end="latest").poke({}).is_done
        mq.broker(1).store(TOPIC, 0).flush()
        found = sensor.poke({})
        assert found.is_done
        assert found.xcom_value == {
            "topic": TOPIC,
            "end": "stable",
            "ends": {"1:0": 84},
            "lag": 3,
            "lag_by_store": {"1/0": 3},
        }

    def test_waits_while_a_named_partition_has_no_live_broker(self, mq: EmbeddedTubeMQ) -> None:
        mq.broker(2).crash()
        assert not ready(partitions="2:0").poke({}).is_done
        assert ready(partitions=["1:0"]).poke({}).is_done
        mq.broker(2).restart()
        assert ready(partitions="2:0").poke({}).is_done

    def test_waits_for_a_topic_that_does_not_exist_yet(self, mq: EmbeddedTubeMQ) -> None:
        sensor = TubeMQPartitionReadySensor(task_id="ready", topic="later")
        assert not sensor.poke({}).is_done
        mq.add_topic("later")
        assert sensor.poke({}).is_done

    def test_a_look_up_of_another_topic_in_the_same_group_is_waited_for(
        self, hook: TubeMQHook, mq: EmbeddedTubeMQ
    ) -> None:
        """By default all of them look in one group, which a master takes for one topic only."""
        mq.add_topic("mails")
        with ThreadPoolExecutor(1) as beside:
            with look_up_under_way(hook.get_settings(), "mails", "tubemq_ready"):
                found = beside.submit(ready().poke, {})
                time.sleep(0.5)
                assert not found.done()
            assert found.result(20).is_done

    def test_waits_while_no_master_answers(self, mq: EmbeddedTubeMQ) -> None:
        mq.stop()
        assert not ready().poke({}).is_done

    def test_a_port_that_is_no_tubemq_fails_it_at_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with speaking_otherwise() as (host, port):
            connection = {"conn_type": "tubemq", "host": f"{host}:{port}"}
            monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps(connection))
            with pytest.raises(AirflowFailException, match="ProtocolViolation"):
                ready().poke({})

    def test_an_unknown_partition_keeps_it_waiting(self) -> None:
        assert not ready(partitions=["9:0"]).poke({}).is_done

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({"until_offsets": {"1:0": 29}}, r"until_offsets: 1:0: .*29"),
            ({"partitions": "first"}, "partitions: .*'first'"),
            ({"end": "memory"}, "end:"),
        ],
    )
    def test_mistakes_show_when_the_dag_is_parsed(
        self, arguments: dict[str, Any], said: str
    ) -> None:
        with pytest.raises(ConfigError, match=said):
            ready(**arguments)

    def test_all_of_them_at_once(self) -> None:
        with pytest.raises(ConfigError) as caught:
            ready(partitions=["x"], until_offsets={"1:0": 5}, end="now")
        found = [problem.split(":")[0] for problem in caught.value.problems]
        assert found == ["end", "partitions", "until_offsets"]

    def test_templates_are_checked_once_rendered(self) -> None:
        sensor = ready(until_offsets={"1:0": "{{ params.until }}"})
        sensor.render_template_fields({"params": {"until": 56}})
        assert parse(ReadyArguments, sensor._arguments()).until() == {"1:0": 56}
        sensor = ready(until_offsets="{{ params.until }}")
        sensor.until_offsets = '{"1:0": 29}'
        with pytest.raises(AirflowFailException, match=r"until_offsets: 1:0: .*29"):
            sensor.poke({})


class TestLag:
    def test_without_any_position_everything_is_lag(self, hook: TubeMQHook) -> None:
        produce(hook, 3, "1:0")
        produce(hook, 2, "1:1")
        found = lag(end="latest", min_lag=5).poke(context())
        assert found.is_done
        assert found.xcom_value
        assert found.xcom_value["lag"] == 5
        assert found.xcom_value["positions"] == {}
        assert not lag(end="latest", min_lag=6).poke(context()).is_done

    def test_records_not_yet_on_disk_are_no_lag(self, hook: TubeMQHook, mq: EmbeddedTubeMQ) -> None:
        produce(hook, 3)
        assert not lag().poke(context()).is_done
        mq.broker(1).store(TOPIC, 0).flush()
        assert lag().poke(context()).is_done

    def test_the_newer_of_cursor_and_event_counts(self, hook: TubeMQHook) -> None:
        produce(hook, 4)
        cursor = {"seq": 2, "next": {"1:0": 56, "1:1": 56}}
        older = {"position": {"seq": 1, "next": {"1:0": 28, "1:1": 28}}}
        newer = {"position": {"seq": 3, "next": {"1:0": 84, "1:1": 84}}}
        look = lag(end="latest")
        assert reported(look, context(cursor, older))["lag"] == 2
        assert reported(look, context(cursor, newer))["lag"] == 1
        assert reported(look, context(None, older))["lag"] == 3

    def test_a_log_shorter_than_the_position_ends_the_wait(self, hook: TubeMQHook) -> None:
        produce(hook, 5)
        cursor = {"seq": 1, "next": {"1:0": 280, "1:1": 140}}
        found = lag(end="latest", min_lag=3).poke(context(cursor))
        assert found.is_done
        assert isinstance(found.xcom_value, dict)
        assert found.xcom_value["regressed"] == {"1:0": [280, 140]}
        level = {"seq": 1, "next": {"1:0": 140, "1:1": 140}}
        waiting = lag(end="latest", min_lag=3).poke(context(level))
        assert not waiting.is_done

    def test_records_read_from_memory_wake_no_worker_before_they_are_on_disk(
        self, hook: TubeMQHook
    ) -> None:
        produce(hook, 5)

        class Read(TubeMQLagSensor):
            @staticmethod
            def _positions(*_: Any) -> dict[Partition, int]:
                return {Partition.from_key(TOPIC, key): 140 for key in ("1:0", "1:1")}

        sensor = Read(task_id="lag", topic=TOPIC, group="lake", cluster="test", of="broker")
        assert not sensor.poke(context()).is_done
        assert sensor.trigger().positions == {"1:0": 0, "1:1": 0}

    def test_a_wrong_alias_is_refused_with_the_right_one(self) -> None:
        sensor = TubeMQLagSensor(task_id="lag", topic=TOPIC, group="lake")
        with pytest.raises(AirflowFailException, match="pass cluster='test'"):
            sensor.poke(context())

    def test_the_offsets_asset_is_its_inlet(self) -> None:
        assert lag().inlets == [ASSET]
        assert lag(of="broker").inlets == []

    def test_an_inlet_of_the_same_name_and_uri_is_it(self) -> None:
        mine = Asset(name=ASSET.name, uri=ASSET.uri)
        sensor = lag(inlets=[mine])
        assert sensor.inlets == [mine]
        assert sensor.poke(context()).xcom_value["lag"] == 0

    def test_a_bound_that_a_template_gave_as_text_counts_when_deferred_too(self) -> None:
        assert lag(min_lag="10.0").trigger().min_lag == 10

    def test_identity_cannot_be_a_template(self) -> None:
        with pytest.raises(ConfigError, match="group: cannot be a template"):
            TubeMQLagSensor(task_id="lag", topic=TOPIC, group="{{ ds }}")
