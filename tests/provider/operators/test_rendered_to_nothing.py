"""Template fields that render to nothing: refused by every operator, sensor and notifier."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import jinja2
import pytest
from airflow.sdk import DAG
from airflow.sdk.bases.notifier import BaseNotifier
from airflow.sdk.definitions._internal.templater import Templater
from airflow.triggers.base import BaseTrigger

import tubemq_provider
from tubemq_client.errors import ConfigError
from tubemq_provider._airflow import AirflowFailException
from tubemq_provider.decorators import tubemq_window_task
from tubemq_provider.ingest.values import IngestPolicies, Spark
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator
from tubemq_provider.operators.planning import TubeMQCommitWindowOperator
from tubemq_provider.operators.produce import TubeMQProduceOperator
from tubemq_provider.rendered import RefusesEmptyRendering

pytestmark = pytest.mark.airflow

ROOMS = ("operators", "sensors", "decorators", "notifications", "triggers", "queues")


def shipped() -> Iterator[type]:
    """Every class of this package that Airflow fills templates in of."""
    for found in walk_packages(tubemq_provider.__path__, "tubemq_provider."):
        if found.name.split(".")[1] not in ROOMS:
            continue
        for _, kind in inspect.getmembers(import_module(found.name), inspect.isclass):
            if kind.__module__ == found.name and issubclass(kind, (Templater, BaseTrigger)):
                yield kind


EVERY = sorted(set(shipped()), key=lambda kind: kind.__name__)
FIELDS = [(kind, name) for kind in EVERY for name in getattr(kind, "template_fields", ()) or ()]


def filled(task: Any, **params: Any) -> Any:
    environment = jinja2.Environment(autoescape=False)
    task._do_render_template_fields(
        task, task.template_fields, {"params": params}, environment, set()
    )
    return task


def test_all_of_them_refuse_empty_renderings() -> None:
    with_fields = {kind for kind, _ in FIELDS}
    assert len(with_fields) >= 12
    assert not [kind for kind in with_fields if not issubclass(kind, RefusesEmptyRendering)]


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in FIELDS}, key=str), ids=str)
def test_every_field_of_every_class_is_checked(kind: Any) -> None:
    """Called as by Airflow, for an object that has only its fields."""
    refusal = ConfigError if issubclass(kind, BaseNotifier) else AirflowFailException
    for name in kind.template_fields:
        for value in ("", "None", None, "  "):
            bare: Any = object.__new__(kind)
            members: dict[str, Any] = dict.fromkeys(kind.template_fields)
            members |= {"_BaseOperator__init_kwargs": {}, name: "{{ params.asked }}"}
            if not issubclass(kind, BaseNotifier):
                members["task_id"] = "t"
            for member, content in members.items():
                object.__setattr__(bare, member, content)
            if name in RefusesEmptyRendering.passed_unchanged:
                filled(bare, asked=value)
                continue
            with pytest.raises(refusal, match=f"{name}: its template rendered to nothing"):
                filled(bare, asked=value)


def ingest(**arguments: Any) -> TubeMQCursorIngestOperator:
    given = {"task_id": "t", "topic": "orders", "group": "g1", "path": "/lake", "cluster": "c1"}
    return TubeMQCursorIngestOperator(**{**given, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"filters": ["a", "{{ params.asked }}"]}, r"filters\[1\]"),
        ({"filters": ("{{ params.asked }}",)}, r"filters\[0\]"),
        ({"decode": {"format": "json", "schema": "{{ params.asked }}"}}, r"decode\['schema'\]"),
        ({"initial_position": {"orders": {"1:0": "{{ params.asked }}"}}}, r"\['1:0'\]"),
        ({"engine": Spark(conf={"spark.x": "{{ params.asked }}"})}, r"conf\['spark.x'\]"),
        ({"sql": "{% if params.asked %}SELECT 1{% endif %}"}, "sql"),
        ({"engine": Spark(conn_id="{{ params.asked }}")}, "conn_id"),
    ],
)
def test_members_are_checked_too(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(AirflowFailException, match=f"{said}: its template rendered to nothing"):
        filled(ingest(**arguments), asked="")


def test_members_of_policies_are_checked() -> None:
    task = TubeMQWindowIngestOperator(
        task_id="t",
        topic="orders",
        group="g1",
        path="/lake",
        boundaries="/b.json",
        policies=IngestPolicies(gap_policy="{{ params.asked }}"),
    )
    with pytest.raises(AirflowFailException, match="gap_policy: its template rendered to nothing"):
        filled(task, asked="None")


def test_what_renders_to_something_or_was_left_out_passes() -> None:
    for everything in ([], (), "[]"):
        task = filled(ingest(filters=everything, sql=None, decode=""), asked="[]")
        assert task.filters == everything  # all of them, in as many words
    assert filled(ingest(filters="{{ params.asked }}"), asked="None of these").filters


@pytest.mark.parametrize("empty", ["[]", " [ ]\n", "()", [], ()])
def test_a_list_that_renders_empty_is_nothing(empty: Any) -> None:
    """A template of streams whose parameter was emptied read all of them."""
    with pytest.raises(AirflowFailException, match="filters: its template rendered to nothing"):
        filled(ingest(filters="{{ params.asked }}"), asked=empty)
    send = TubeMQProduceOperator(task_id="s", topic="orders", records="{{ params.asked }}")
    assert filled(send, asked=empty).records == str(empty)


def test_an_empty_file_of_sql_is_nothing(tmp_path: Any) -> None:
    (tmp_path / "empty.sql").write_text(" \n")
    with DAG("d", schedule=None, template_searchpath=str(tmp_path)) as dag:
        task = ingest(sql="empty.sql", initial_position="earliest")
    with pytest.raises(AirflowFailException, match="sql: its template rendered to nothing"):
        task.render_template_fields({"dag": dag}, dag.get_template_env())  # type: ignore[typeddict-item]


def test_records_and_arguments_of_a_function_are_data() -> None:
    send = TubeMQProduceOperator(task_id="s", topic="orders", records=["{{ params.asked }}", "b"])
    assert filled(send, asked="").records == ["", "b"]
    commit: Any = object.__new__(TubeMQCommitWindowOperator)
    assert commit.own_data == {"plan", "records"}

    @tubemq_window_task(topic="orders", group="g1", markers="/done")
    def report(window: Any, city: str) -> None: ...

    with DAG("d", schedule=None) as dag:
        report(city="{{ params.asked }}")
    assert filled(dag.get_task("report"), asked="").op_kwargs == {"city": ""}
