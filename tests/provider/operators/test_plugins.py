"""Plug-ins and objects as arguments of an operator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.helpers import serialize_template_field
from airflow.serialization.serialized_objects import DagSerialization

from tests.kit.installed import toy_source_installed
from tests.provider.contexts import fake_context
from tubemq_client.errors import ConfigError
from tubemq_provider.assets import offsets_asset
from tubemq_provider.engines.function import ReportedEngine
from tubemq_provider.operators.ingest import (
    TubeMQCursorIngestOperator,
    TubeMQWindowIngestOperator,
)
from tubemq_provider.operators.offsets import TubeMQOffsetsOperator
from tubemq_provider.operators.rocketmq import RocketMQCursorIngestOperator
from tubemq_provider.operators.sample import TubeMQSampleEndsOperator
from tubemq_provider.sinks.parquet import ParquetSink

pytestmark = pytest.mark.airflow


@pytest.fixture(autouse=True)
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a source as another distribution would."""
    with toy_source_installed(tmp_path, monkeypatch):
        yield


@pytest.fixture
def two_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a topic with two lines, and the connection `files` to its cluster."""
    topic = tmp_path / "cluster" / "orders"
    topic.mkdir(parents=True)
    (topic / "north.0").write_text("a\nb\n")
    extra = {"root": str(topic.parent), "cluster": "main"}
    document = json.dumps({"conn_type": "lines", "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_FILES", document)


def operator(**arguments: Any) -> Any:
    given = {"topic": "orders", "group": "lake", "engine": "inline", **arguments}
    return TubeMQCursorIngestOperator(
        task_id="ingest", tubemq_conn_id="files", initial_position="earliest", **given
    )


def test_the_ordinary_operator_reads_a_source_of_a_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"root": str(tmp_path), "cluster": "main"}
    document = json.dumps({"conn_type": "generic", "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_FILES", document)

    task = operator(source="lines", path="/lake", cluster="main")

    assert task.inlets == [offsets_asset("main", "orders", "lake", "lines")]
    hook = task._hook()
    hook.expect_cluster("main")
    with hook.source("orders", "lake") as source:
        assert (source.space.source, source.identity) == ("lines", "main")


@pytest.mark.usefixtures("two_lines")
def test_a_group_of_a_plugin_is_ingested_sampled_shown_and_moved(tmp_path: Path) -> None:
    given = {"source": "lines", "cluster": "main"}
    names = {**given, "topic": "orders", "group": "lake", "tubemq_conn_id": "files"}
    kept: dict[Any, Any] = {}

    def execute(task: Any) -> Any:
        return type(task).execute.__wrapped__(task, fake_context(task, kept))

    ingest = operator(path=str(tmp_path / "lake"), **given)
    assert execute(ingest)["total"] == 2
    sampled = execute(TubeMQSampleEndsOperator(task_id="sample", **names))
    assert sampled["ends"] == {"north.0": 2}
    assert execute(TubeMQOffsetsOperator(task_id="show", **names))["lag"] == 0
    moved = execute(TubeMQOffsetsOperator(task_id="set", action="set", to="earliest", **names))
    assert (moved["before"], moved["after"]) == ({"north.0": 2}, {"north.0": 0})
    with pytest.raises(ConfigError, match="action='mirror' is not available for lines"):
        TubeMQOffsetsOperator(task_id="mirror", action="mirror", **names)
    with pytest.raises(ConfigError, match="'rocketmq' has an operator of its own"):
        TubeMQSampleEndsOperator(task_id="sample", **{**names, "source": "rocketmq"})


@pytest.mark.usefixtures("two_lines")
def test_an_operator_writes_into_the_sink_that_it_was_given(tmp_path: Path) -> None:
    task = operator(source="lines", cluster="main", sink=ParquetSink(tmp_path / "lake"))

    done = type(task).execute.__wrapped__(task, fake_context(task, {}))

    assert done["total"] == 2
    assert list((tmp_path / "lake").rglob("*.parquet"))


def test_an_unknown_source_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(ConfigError, match="no source of kind 'linez' here"):
        operator(source="linez", path="/lake")
    with pytest.raises(ConfigError, match="RocketMQCursorIngestOperator reads rocketmq"):
        RocketMQCursorIngestOperator(
            task_id="t", source="lines", topic="t", group="g", path="/lake"
        )


def test_objects_are_shown_by_their_class(tmp_path: Path) -> None:
    sink, engine = ParquetSink(tmp_path), ReportedEngine("h", {}, 0)

    task = operator(sink=sink, engine=engine)

    assert task.outlets == task.inlets
    assert serialize_template_field(task.sink, "sink") == {
        "class": "tubemq_provider.sinks.parquet.ParquetSink"
    }
    assert serialize_template_field(task.engine, "engine") == {
        "class": "tubemq_provider.engines.function.ReportedEngine"
    }


def test_an_object_of_the_wrong_kind_is_refused_with_all_other_problems() -> None:
    with pytest.raises(ConfigError) as caught:
        operator(sink=object(), engine=3, offset_store=4)
    text = str(caught.value)
    assert "object is neither the address of a sink nor a Sink" in text
    assert "3 is neither a word nor an object of Engine" in text
    assert "offset_store: 4 is neither a word" in text


def test_the_text_of_an_object_of_the_wrong_kind_is_not_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        operator(engine=OwnSink(tmp_path, "s3cret"))
    assert "engine: an object of OwnSink is neither a word" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_an_option_without_effect_on_a_sink_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="partition_by has no effect on a sink that is an object"):
        operator(sink=ParquetSink(tmp_path), partition_by=["offset"])


class OwnSink(ParquetSink):
    """A sink whose text has a secret."""

    def __init__(self, path: Path, password: str) -> None:
        super().__init__(path)
        self.password = password

    def __repr__(self) -> str:
        return f"OwnSink({self.password})"


class OwnResolver:
    """A resolver whose text has a secret."""

    def __repr__(self) -> str:
        return "OwnResolver(s3cret)"

    name, exact = "own", True

    def offsets_at(self, instant: datetime) -> dict[str, int]:
        """Return nothing: no test here runs it."""
        return {}


def test_the_text_of_a_resolver_object_is_not_stored() -> None:
    with DAG("resolved", schedule=None) as dag:
        task = TubeMQWindowIngestOperator(
            task_id="ingest", topic="orders", group="lake", path="/lake", resolver=OwnResolver()
        )
        other = TubeMQWindowIngestOperator(
            task_id="other", topic="orders", group="other", path="/lake", resolver="timeline"
        )

    text = json.dumps(DagSerialization.to_dict(dag))

    assert "s3cret" not in text
    assert isinstance(task.resolver, OwnResolver)
    assert "resolver" in other.template_fields


def own_store(*_: Any) -> Any:
    """Return nothing: no test here runs it."""


def test_a_dag_with_objects_survives_airflows_serializer_without_their_options(
    tmp_path: Path,
) -> None:
    def stored() -> str:
        with DAG("objects", schedule=None) as dag:
            operator(
                cluster="main",
                sink=OwnSink(tmp_path, "s3cret"),
                engine=ReportedEngine("h", {}, 0),
                offset_store=own_store,
            )
        return json.dumps(DagSerialization.to_dict(dag))

    text = stored()

    assert "s3cret" not in text
    assert stored() == text  # else each parse would be a new version of the Dag
    task = DagSerialization.from_dict(json.loads(text)).task_dict["ingest"]
    assert task.sink == {"class": f"{__name__}.OwnSink"}
    assert task.engine == {"class": "tubemq_provider.engines.function.ReportedEngine"}
