"""Secrets of a connection are nowhere in the output of a run on a cluster with users."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.task_runner import _serialize_rendered_fields
from airflow.serialization.helpers import serialize_template_field
from airflow.serialization.serialized_objects import DagSerialization

from tests.provider.contexts import accept, fake_context
from tests.provider.hooks.test_visible import Backend, backend  # noqa: F401 - a fixture
from tubemq_client import Partition, Record
from tubemq_client._wire.methods import SEND_MESSAGE
from tubemq_client.embedded import EmbeddedTubeMQ, Security, Switches, TopicSpec
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.ingest.values import Spark, SparkConnect, SparkSubmit
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator
from tubemq_provider.operators.produce import TubeMQProduceOperator
from tubemq_provider.sensors.lag import TubeMQLagSensor
from tubemq_provider.sensors.ready import TubeMQPartitionReadySensor
from tubemq_provider.triggers.lag import TubeMQLagTrigger
from tubemq_provider.triggers.messages import TubeMQMessageTrigger

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

SECRETS = ("hunter2-of-the-user", "token-of-the-masters", "pass-of-the-key")
WHAT = {"topic": "orders", "group": "lake", "cluster": "test"}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedTubeMQ]:
    security = Security(produce=True, consume=True, users={"loader": SECRETS[0]})
    switches = Switches(security=security, unflushed_records=1)
    with EmbeddedTubeMQ(1, [TopicSpec("orders")], http=False, switches=switches) as mq:
        _connect(monkeypatch, mq, SECRETS[0])
        yield mq


def _connect(monkeypatch: pytest.MonkeyPatch, mq: EmbeddedTubeMQ, password: str) -> None:
    extra = {
        "cluster": "test",
        "admin_url": "http://127.0.0.1:1",
        "admin_token": SECRETS[1],
        "tls": False,
        "tls_key_password": SECRETS[2],
        "rpc_timeout_ms": 1000,
    }
    connection = {
        "conn_type": "tubemq",
        "host": mq.masters,
        "login": "loader",
        "password": password,
        "extra": extra,
    }
    monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps(connection))


def execute(task: Any, kept: dict[Any, Any]) -> tuple[Any, Any]:
    context = fake_context(task, kept)
    done = type(task).execute.__wrapped__(task, context)
    accept(context, kept)
    return done, context


def ingest(path: Path) -> TubeMQCursorIngestOperator:
    return TubeMQCursorIngestOperator(
        task_id="ingest",
        path=str(path),
        initial_position="earliest",
        engine="inline",
        **WHAT,
    )


def test_no_output_of_a_run_has_a_secret(
    cluster: EmbeddedTubeMQ,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capfd: pytest.CaptureFixture[str],
) -> None:
    partition = Partition(1, "orders", 0)
    list(TubeMQHook().produce("orders", [Record(b"x", partition=partition)] * 3))
    # From here on, as Airflow times the loading of its plugins.
    sent: Backend = request.getfixturevalue("backend")
    kept: dict[Any, Any] = {}
    task = ingest(tmp_path / "lake")
    done, context = execute(task, kept)
    assert done["total"] == 3
    link_texts = [
        link.get_link(task, ti_key=context["ti"]) for link in task.operator_extra_links[:3]
    ]
    told = {
        "xcom": done,
        "state and events": {str(key): str(value) for key, value in kept.items()},
        "links": link_texts,
        "lineage": repr(task.get_openlineage_facets_on_complete(context["ti"])),
        "metrics": sent.sent,
        "files": [str(path) for path in tmp_path.rglob("*")],
        "markers": [path.read_text() for path in tmp_path.rglob("*.json")],
        "repr": [repr(TubeMQHook().config), repr(task)],
        "log": capfd.readouterr(),
    }
    assert told["metrics"]
    text = json.dumps(told, default=str)
    assert not [secret for secret in SECRETS if secret in text]


def test_no_trigger_has_a_secret_among_its_arguments(cluster: EmbeddedTubeMQ) -> None:
    lag = TubeMQLagSensor(task_id="lag", deferrable=True, **WHAT)
    ready = TubeMQPartitionReadySensor(task_id="ready", topic="orders", until_offsets={"1:0": 28})
    triggers = [
        lag.trigger(),
        ready.trigger(),
        TubeMQLagTrigger(**WHAT),
        TubeMQMessageTrigger(**WHAT),
    ]
    for trigger in triggers:
        _, kwargs = trigger.serialize()
        assert kwargs["tubemq_conn_id"] == "tubemq_default"
        text = json.dumps(kwargs) + repr(trigger)
        assert not [secret for secret in SECRETS if secret in text]


def test_wrong_credentials_fail_the_task_before_anything_is_read_or_sent(
    cluster: EmbeddedTubeMQ, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _connect(monkeypatch, cluster, "wrong")
    send = TubeMQProduceOperator(task_id="send", topic="orders", cluster="test", records=["x"])
    for task in (send, ingest(tmp_path / "lake")):
        with pytest.raises(AirflowFailException, match=r"auth|password|user") as caught:
            execute(task, {})
        assert "wrong" not in str(caught.value).split()
    assert cluster.broker(1).store("orders", 0).ends.memory == 0
    assert not (tmp_path / "lake").exists()


def test_sending_to_a_silent_broker_ends_by_a_deadline(
    cluster: EmbeddedTubeMQ,
) -> None:
    cluster.broker(1).silence(SEND_MESSAGE.id)
    send = TubeMQProduceOperator(task_id="send", topic="orders", cluster="test", records=["x"])
    with pytest.raises(Exception, match=r"1000 ms|timed out|no answer|deadline|not delivered"):
        execute(send, {})


@pytest.mark.parametrize("kind", [Spark, SparkSubmit, SparkConnect])
def test_settings_of_spark_are_shown_by_name(kind: Any) -> None:
    """Airflow shows rendered fields, and stores Dags, with the `repr` of such a value."""
    conf = {"spark.hadoop.fs.s3a.secret.key": SECRETS[0]}
    if kind is SparkConnect:
        conf["spark.remote"] = f"sc://spark:15002/;x-api-key={SECRETS[1]}"
    task = TubeMQCursorIngestOperator(
        task_id="ingest", path="/lake", engine=kind(conf=conf), initial_position="earliest", **WHAT
    )
    shown = [
        repr(kind(conf=SECRETS[0])),
        repr(task.engine),
        str(serialize_template_field(task.engine, "engine")),
        str(_serialize_rendered_fields(task)["engine"]),
    ]
    assert not [text for text in shown if any(secret in text for secret in SECRETS)]
    assert all("spark.hadoop.fs.s3a.secret.key" in text for text in shown[1:])
    assert task.engine.conf == conf


def test_a_secret_among_settings_of_spark_is_in_no_stored_dag() -> None:
    """Value objects and templates."""
    name = "spark.hadoop.fs.s3a.secret.key"
    with DAG("stored", schedule=None) as dag:
        for number, conf in enumerate(({name: SECRETS[0]}, {name: "{{ conn.lake.password }}"})):
            TubeMQCursorIngestOperator(
                task_id=f"ingest{number}",
                path="/lake",
                initial_position="earliest",
                engine=Spark(conf=conf),
                **WHAT,
            )
    stored = json.dumps(DagSerialization.to_dict(dag))
    assert name in stored
    assert not [secret for secret in SECRETS if secret in stored]
