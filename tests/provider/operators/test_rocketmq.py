"""RocketMQ as Dag authors meet it: connection, hook, operator and sensors on an embedded server."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from airflow.sdk.exceptions import TaskDeferred

from rocketmq_client import Admin, Producer, PullConsumer, Queue
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.errors import NoPermission
from tests.kit.servers import embedded_rocketmq
from tests.kit.spark_submit import fake_spark_home
from tests.provider.contexts import accept, data_interval, fake_context
from tests.provider.grouped import grouped
from tubemq_client.errors import ConfigError
from tubemq_provider.assets import offsets_asset, sink_asset
from tubemq_provider.engines.applications import Application
from tubemq_provider.engines.auto import AutoEngine
from tubemq_provider.hooks.failures import explained
from tubemq_provider.hooks.rocketmq import RocketMQHook, error_context
from tubemq_provider.operators.rocketmq import (
    RocketMQCursorIngestOperator,
    RocketMQSampleEndsOperator,
    RocketMQWindowIngestOperator,
)
from tubemq_provider.sensors.rocketmq import RocketMQLagSensor, RocketMQPartitionReadySensor
from tubemq_provider.sinks.read import read_windows

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]


rocketmq = embedded_rocketmq(2, connection={"extra": {"cluster": "test", "default_group": "look"}})


def operator(root: Path, kind: Any = RocketMQCursorIngestOperator, **arguments: Any) -> Any:
    given = {"topic": "orders", "group": "lake", "path": str(root / "lake"), "cluster": "test"}
    return kind(task_id="ingest", **grouped(**{**given, **arguments}))


def window(root: Path, **arguments: Any) -> Any:
    return operator(root, RocketMQWindowIngestOperator, **arguments)


def execute(task: Any, context: Any) -> Any:
    return type(task).execute.__wrapped__(task, context)


def run(task: Any, kept: dict[Any, Any], number: str) -> Any:
    context = fake_context(task, kept, run=number)
    found = execute(task, context)
    accept(context, kept)
    return found


def produce(rocketmq: EmbeddedRocketMQ, count: int, **options: Any) -> None:
    with Producer(rocketmq.settings) as producer:
        for number in range(count):
            producer.send("orders", b"%d" % number, **options)


def test_windows_follow_each_other_and_progress_shows_at_the_brokers(rocketmq, tmp_path) -> None:
    kept: dict[Any, Any] = {}
    options = {"initial_position": "earliest", "commit_to_broker": True}
    produce(rocketmq, 30)
    first = run(operator(tmp_path, **options), kept, "r1")
    produce(rocketmq, 12)
    second = run(operator(tmp_path, **options), kept, "r2")
    third = run(operator(tmp_path, **options), kept, "r3")

    assert (first["total"], second["total"], third["empty"]) == (30, 12, True)
    assert read_windows(tmp_path / "lake").count_rows() == 42
    with PullConsumer(rocketmq.settings, group="lake") as consumer:
        committed = [consumer.committed(queue) for queue in consumer.queues("orders")]
    assert sum(committed) == 42


def test_names_are_those_that_brokers_take(rocketmq, tmp_path) -> None:
    topic = "%DLQ%order-events|2024"
    with Admin(rocketmq.settings) as admin, Producer(rocketmq.settings) as producer:
        admin.create_topic(topic, queues=1)
        for tags in ("order.paid", "支付", "open"):
            producer.send(topic, b"x", tags=tags)
    names = {"topic": topic, "group": "1-lake", "filters": ["order.paid", "支付"]}
    kept: dict[Any, Any] = {}
    task = operator(tmp_path, initial_position="earliest", commit_to_broker=True, **names)
    assert run(task, kept, "r1")["total"] == 2
    sampler = RocketMQSampleEndsOperator(
        task_id="sample", topic=topic, group="1-lake", cluster="test"
    )
    assert execute(sampler, fake_context(sampler, kept))["ends"] == {"broker-a:0": 3}


def test_a_window_of_time_is_what_brokers_stored_in_it(rocketmq, tmp_path) -> None:
    produce(rocketmq, 10)
    time.sleep(0.05)
    middle = datetime.now(UTC)
    time.sleep(0.05)
    produce(rocketmq, 5)
    day = timedelta(days=1)
    task = window(tmp_path, start=middle - day, end=middle)
    assert task.resolver == "store_time"
    for name in ("scheduled", "given"):
        (tmp_path / name).mkdir()
    scheduled = window(tmp_path / "scheduled")
    given = window(
        tmp_path / "given",
        start=pendulum.instance(middle - day),
        end=pendulum.instance(middle),
    )
    time.sleep(3.5)
    assert run(task, {}, "r1")["total"] == 10
    assert run(given, {}, "r1")["total"] == 10
    context = fake_context(scheduled, {}, **data_interval(middle - day, middle))
    assert execute(scheduled, context)["total"] == 10


def test_a_window_of_time_is_cut_by_samples_of_the_ends(rocketmq, tmp_path) -> None:
    kept: dict[Any, Any] = {}
    given = {"topic": "orders", "group": "lake", "cluster": "test"}

    def instant() -> datetime:
        """Return an instant between two samples."""
        sampler = RocketMQSampleEndsOperator(task_id="sample", **given)
        execute(sampler, fake_context(sampler, kept))
        time.sleep(0.005)
        moment = datetime.now(UTC)
        time.sleep(0.005)
        found = execute(sampler, fake_context(sampler, kept))
        assert set(found["ends"]) == {"broker-a:0", "broker-a:1"}
        return moment

    produce(rocketmq, 3)
    start = instant()
    produce(rocketmq, 7)
    end = instant()
    produce(rocketmq, 2)
    task = window(tmp_path, resolver="timeline", start=start, end=end)

    assert run(task, kept, "r1")["total"] == 7


def test_a_deferred_window_resumes_and_is_published_once(
    rocketmq, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(fake_spark_home(tmp_path)))
    monkeypatch.setenv("FAKE_SUBMIT", "holds")
    kept: dict[Any, Any] = {}
    options = {
        "initial_position": "earliest",
        "engine": "submit",
        "deferrable": True,
        "spark_work_dir": str(tmp_path / "work"),
    }
    produce(rocketmq, 30)
    with pytest.raises(TaskDeferred) as caught:
        run(operator(tmp_path, **options), kept, "r1")
    produce(rocketmq, 5)
    application = Application.of_ticket(caught.value.kwargs["ticket"])
    (application.folder / "go").touch()
    assert application.wait_until_ended(60)
    task = operator(tmp_path, **options)
    told = json.loads(json.dumps(caught.value.kwargs)) | {"event": {"status": "over"}}
    result = task.resume_execution(
        caught.value.method_name, told, fake_context(task, kept, run="r1")
    )

    assert result["total"] == read_windows(tmp_path / "lake").count_rows() == 30
    assert not list((tmp_path / "work").iterdir())


def test_filters_are_tags(rocketmq, tmp_path) -> None:
    produce(rocketmq, 6, tags="kept")
    produce(rocketmq, 6, tags="left")
    task = operator(tmp_path, filters=["kept"], initial_position="earliest")
    assert run(task, {}, "r1")["total"] == 6


def test_assets_name_the_kind_of_source(tmp_path) -> None:
    task = operator(tmp_path)
    asset = offsets_asset("test", "orders", "lake", "rocketmq")
    assert asset.uri == "rocketmq://test/orders?group=lake"
    assert (task.inlets, task.outlets) == ([asset], [asset, sink_asset(str(tmp_path / "lake"))])
    assert "rocketmq_conn_id" in task.template_fields


def test_mistakes_show_when_the_dag_is_parsed(tmp_path) -> None:
    with pytest.raises(ConfigError, match="broker name"):
        window(tmp_path, starting_offsets={"1": 0}, ending_offsets={"broker-a:0": 5})


@pytest.mark.parametrize("way", ["history", "message_time"])
def test_resolvers_of_the_other_source_are_refused_when_the_dag_is_parsed(way, tmp_path) -> None:
    with pytest.raises(ConfigError, match=f"resolver='{way}' is not available for rocketmq"):
        window(tmp_path, resolver=way)


def test_a_sink_per_run_is_refused_with_store_time(tmp_path) -> None:
    with pytest.raises(ConfigError, match="gives each run another sink"):
        window(tmp_path, path=f"{tmp_path}/{{{{ ds }}}}")


def test_lineage_names_the_kind_of_source(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = SimpleNamespace(
        OperatorLineage=SimpleNamespace, Dataset=SimpleNamespace, OutputDataset=SimpleNamespace
    )
    stand_in.OutputStatisticsOutputDatasetFacet = SimpleNamespace
    for name in ("openlineage.extractors", "common.compat.openlineage.facet"):
        monkeypatch.setitem(sys.modules, f"airflow.providers.{name}", stand_in)
    told = operator(tmp_path).get_openlineage_facets_on_complete(None)
    assert [topic.namespace for topic in told.inputs] == ["rocketmq://test"]


@pytest.mark.parametrize("until", ["2026-01-01T00:00:00", datetime(2026, 1, 1)])  # noqa: DTZ001
def test_an_instant_without_a_zone_is_refused(until) -> None:
    with pytest.raises(ConfigError, match=r"until: .* has no time zone"):
        RocketMQPartitionReadySensor(task_id="s", topic="orders", until=until)


def test_a_large_window_stays_inline_where_spark_does_not_read_it(
    rocketmq, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AutoEngine.__init__, "__kwdefaults__", {"inline_up_to": 0})
    monkeypatch.delattr("tubemq_provider.sources.rocketmq.SPARK")
    produce(rocketmq, 5)
    task = operator(tmp_path, initial_position="earliest", engine="auto")
    assert run(task, {}, "r1")["total"] == 5


def test_the_hook_queries_reads_and_sends(rocketmq) -> None:
    from rocketmq_client import OutgoingMessage, QueueRange

    hook = RocketMQHook()
    assert hook.test_connection() == (True, "brokers that answer: broker-a")
    receipts = list(hook.produce("orders", [OutgoingMessage(b"a"), OutgoingMessage(b"b")]))
    queue = receipts[0].queue
    assert [m.body for m in hook.read_range(QueueRange(queue, 0, 1))] == [b"a"]
    assert hook.lag("orders", {}).total == 2
    hook.commit_group_offsets("orders", "lake", {queue.key: 1})
    assert hook.group_offsets("orders", "lake")[queue] == 1


def test_the_hook_sends_records_one_by_one(rocketmq) -> None:
    """Brokers pack no batch, and deliver at once what a batch has to be delivered later."""
    from rocketmq_client import OutgoingMessage, QueueRange

    hook = RocketMQHook()
    later = OutgoingMessage(b"later", properties={"DELAY": "1"})
    large = OutgoingMessage(bytes(5_000_000), "t", ("k",), {"n": "1"}, 7)
    receipts = list(hook.produce("orders", [later, large]))
    at = QueueRange(receipts[1].queue, receipts[1].offset, receipts[1].offset + 1)
    (found,) = hook.read_range(at)
    assert (found.body, found.tags, found.keys, found.flag) == (bytes(5_000_000), "t", ("k",), 7)
    assert found.properties["n"] == "1"


def test_a_connection_is_validated_at_once_and_shows_no_secret(monkeypatch) -> None:
    connection = {"conn_type": "rocketmq", "host": "", "password": "hidden", "schema": "x"}
    monkeypatch.setenv("AIRFLOW_CONN_ROCKETMQ_DEFAULT", json.dumps(connection))
    with pytest.raises(ConfigError, match="schema") as caught:
        RocketMQHook().config  # noqa: B018
    assert "hidden" not in str(caught.value)


def test_a_refusal_names_the_fields_to_compare() -> None:
    said = explained(NoPermission(16, "no"), error_context("rocketmq_default", "orders"))
    assert "compare login and password of connection 'rocketmq_default'" in " ".join(said.split())


def test_sensors_wait_for_offsets_instants_and_lag(rocketmq) -> None:
    named = {"task_id": "wait", "topic": "orders"}
    ready = RocketMQPartitionReadySensor(until_offsets={"broker-a:0": 3}, **named)
    lag = RocketMQLagSensor(group="lake", min_records=5, **named)
    early = RocketMQPartitionReadySensor(
        until=(datetime.now(UTC) + timedelta(hours=1)).isoformat(), **named
    )
    assert not ready.poke({}).is_done
    assert not lag.poke({}).is_done
    produce(rocketmq, 6)
    assert ready.poke({}).is_done
    found = lag.poke({})
    assert (found.is_done, found.xcom_value["lag"]) == (True, 6)
    assert not early.poke({}).is_done
    over = RocketMQPartitionReadySensor(until=pendulum.now("UTC").subtract(hours=1), **named)
    assert over.poke({}).is_done
    with pytest.raises(ConfigError, match="broker name"):
        RocketMQPartitionReadySensor(until_offsets={"1": 3}, **named)


def test_commits_during_a_poke_do_not_look_like_a_shorter_queue(rocketmq, monkeypatch) -> None:
    """Between the sensor's two questions two records come, and the group has them."""
    with PullConsumer(rocketmq.settings, group="lake") as consumer:
        queue = Queue("broker-a", "orders", 0)

        def then_more(ask):
            def asked(*args: Any, **options: Any) -> Any:
                found = ask(*args, **options)
                with Producer(rocketmq.settings) as producer:
                    last = [producer.send("orders", b"x", queue=queue) for _ in "ab"][-1]
                consumer.commit(queue, last.offset + 1)
                return found

            return asked

        for name in ("ends", "group_offsets"):
            monkeypatch.setattr(RocketMQHook, name, then_more(getattr(RocketMQHook, name)))
        found = RocketMQLagSensor(task_id="lag", topic="orders", group="lake", min_records=5).poke(
            {}
        )

    assert (found.is_done, found.xcom_value["regressed"]) == (False, {})


def test_an_instant_is_over_once_what_was_stored_before_it_is_on_disk(
    rocketmq, monkeypatch
) -> None:
    """A window that ends there would not be ready before."""
    hour = timedelta(hours=1)
    with monkeypatch.context() as patched:  # the brokers' clock, an hour ago
        clock = SimpleNamespace(
            time_ns=lambda: time.time_ns() - hour // timedelta(microseconds=1) * 1000
        )
        patched.setattr("rocketmq_client.embedded.storage.time", clock)
        rocketmq.hold_flush()
        produce(rocketmq, 3)
    sensor = RocketMQPartitionReadySensor(
        task_id="wait", topic="orders", until=datetime.now(UTC) - hour / 2
    )
    assert not sensor.poke({}).is_done
    sensor.end = "latest"
    assert sensor.poke({}).is_done
    sensor.end = "stable"
    rocketmq.hold_flush(held=False)
    assert sensor.poke({}).is_done
