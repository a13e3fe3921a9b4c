"""Cursor and window operators: the arguments of each, with unchanged windows."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from tests.provider.contexts import fake_context
from tubemq_client import Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.errors import ConfigError
from tubemq_provider import task_arguments
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.values import (
    Auto,
    History,
    IngestPolicies,
    MessageTime,
    Spark,
    StoreTime,
    Timeline,
)
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator
from tubemq_provider.operators.rocketmq import (
    RocketMQCursorIngestOperator,
    RocketMQWindowIngestOperator,
)
from tubemq_provider.sensors.lag import TubeMQLagSensor
from tubemq_provider.task_arguments import parse

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

TOPIC = "orders"
NAMES = {"task_id": "t", "topic": TOPIC, "group": "lake", "cluster": "test", "path": "/lake"}
OF_TIME = {"start", "end", "granularity", "resolver", "boundaries", "starting_offsets"}
OF_CURSOR = {"initial_position", "max_records", "max_bytes", "max_duration", "commit_to_broker"}


def arguments_of(kind: type) -> set[str]:
    """Return the arguments of the provider that a Dag's author can pass."""
    levels = [level for level in kind.__mro__ if level.__module__.startswith("tubemq_provider")]
    found = (name for level in levels for name in inspect.signature(level.__init__).parameters)
    return set(found) - {"self", "args", "kwargs"}


def checked(task: Any) -> IngestArguments:
    return parse(IngestArguments, task._arguments())


def execute(task: Any, context: Any) -> Any:
    method = type(task).execute
    return getattr(method, "__wrapped__", method)(task, context)


def test_tasks_that_are_alike_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Dag file may create thousands, each time that it is parsed."""
    looks: list[Any] = []
    check = task_arguments.validated
    monkeypatch.setattr(task_arguments, "_SOUND", set())
    monkeypatch.setattr(
        task_arguments, "validated", lambda *args: (looks.append(args), check(*args))[1]
    )
    for number in range(3):
        TubeMQCursorIngestOperator(**NAMES | {"task_id": f"t{number}"}, max_records=1)
    assert len(looks) == 1
    TubeMQCursorIngestOperator(**NAMES | {"topic": "payments"}, max_records=1)
    assert len(looks) == 2
    for _ in range(2):
        with pytest.raises(ConfigError, match="max_records"):
            TubeMQCursorIngestOperator(**NAMES, max_records=-1)
    with pytest.raises(ConfigError, match="no effect"):
        TubeMQWindowIngestOperator(**NAMES, resolver="boundaries", ending_offsets={"1:0": 1})


@pytest.mark.parametrize(
    ("cursor", "window"),
    [
        (TubeMQCursorIngestOperator, TubeMQWindowIngestOperator),
        (RocketMQCursorIngestOperator, RocketMQWindowIngestOperator),
    ],
)
def test_each_has_its_own_arguments_only(cursor: type, window: type) -> None:
    of_cursor, of_window = map(arguments_of, (cursor, window))

    assert of_cursor >= OF_CURSOR
    assert of_window >= OF_TIME
    assert not of_cursor & OF_TIME
    assert not of_window & OF_CURSOR
    assert len(of_cursor) <= 42
    assert len(of_window) <= 43


@pytest.mark.parametrize(
    ("kind", "foreign"),
    [
        (TubeMQCursorIngestOperator, {"start": "2026-11-21T00:00:00Z"}),
        (TubeMQCursorIngestOperator, {"mode": "time"}),
        (TubeMQWindowIngestOperator, {"max_records": 3}),
        (TubeMQWindowIngestOperator, {"gap_policy": "skip"}),
    ],
)
def test_an_argument_of_the_other_one_is_refused(kind: Any, foreign: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(foreign))):
        kind(**NAMES, **foreign)


@pytest.mark.parametrize(
    ("kind", "foreign", "said"),
    [
        (
            TubeMQCursorIngestOperator,
            {"gap_policy": "skip"},
            r"gap_policy: give it as policies=IngestPolicies\(gap_policy=…\)$",
        ),
        (
            TubeMQCursorIngestOperator,
            {"spark_conn_id": "spark"},
            r"spark_conn_id: give it as engine=Spark\(conn_id=…\) or engine=SparkConnect\(",
        ),
        (
            TubeMQWindowIngestOperator,
            {"late_allowance": "PT5M", "boundarys": {}},
            r"late_allowance: give it as resolver=Timeline\((.|\n)*boundarys: did you mean bound",
        ),
    ],
)
def test_an_argument_that_is_a_member_of_a_value_names_it(
    kind: Any, foreign: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        kind(**NAMES, **foreign)


@pytest.mark.parametrize(
    ("task", "plain"),
    [
        (
            TubeMQCursorIngestOperator(
                **NAMES,
                initial_position="earliest",
                max_records="7",
                policies=IngestPolicies(gap_policy="skip", on_other_scope="start_anew"),
                engine=Spark(conf={"spark.master": "local[4]"}, direct_write="off"),
                commit_to_broker=True,
                decode={"format": "json", "schema": "id bigint"},
                sql="SELECT partition, id FROM records",
            ),
            {
                "initial_position": "earliest",
                "max_records": 7,
                "gap_policy": "skip",
                "on_other_scope": "start_anew",
                "engine": "session",
                "spark_conf": {"spark.master": "local[4]"},
                "direct_write": "off",
                "commit_to_broker": True,
                "decode": {"format": "json", "schema": "id bigint"},
                "sql": "SELECT partition, id FROM records",
            },
        ),
        (
            TubeMQWindowIngestOperator(
                **NAMES,
                resolver=Timeline(late_allowance="PT5M"),
                engine="inline",
                decode="tdmsg",
            ),
            {
                "mode": "time",
                "resolver": "timeline",
                "late_allowance": "PT5M",
                "engine": "inline",
                "decode": "tdmsg",
            },
        ),
        (
            TubeMQWindowIngestOperator(
                **NAMES, resolver=History(group="other"), transform="jobs.orders.tidy"
            ),
            {
                "mode": "time",
                "resolver": "history",
                "history_group": "other",
                "transform": "jobs.orders.tidy",
            },
        ),
        (
            TubeMQWindowIngestOperator(**NAMES, resolver=MessageTime(zone="Europe/Berlin")),
            {"mode": "time", "resolver": "message_time", "message_zone": "Europe/Berlin"},
        ),
        (
            TubeMQCursorIngestOperator(**NAMES, engine=Auto(conf={"spark.master": "local[4]"})),
            {"engine": "auto", "spark_conf": {"spark.master": "local[4]"}},
        ),
        (
            RocketMQWindowIngestOperator(**NAMES, resolver=StoreTime(late_allowance="PT5S")),
            {
                "source": "rocketmq",
                "mode": "time",
                "resolver": "store_time",
                "late_allowance": "PT5S",
            },
        ),
        (
            RocketMQCursorIngestOperator(**NAMES, initial_position="earliest"),
            {"source": "rocketmq", "initial_position": "earliest"},
        ),
    ],
    ids=["cursor", "timeline", "history", "message_time", "auto", "store_time", "queues"],
)
def test_values_stand_for_plain_arguments(task: Any, plain: dict[str, Any]) -> None:
    named = {name: value for name, value in NAMES.items() if name != "task_id"}
    assert checked(task) == parse(IngestArguments, {**named, **plain})


def test_a_mistake_in_a_value_shows_when_the_dag_is_parsed() -> None:
    policies = IngestPolicies(gap_policy="ignore", on_clear="{{ params.clear }}")

    with pytest.raises(ConfigError) as caught:
        TubeMQCursorIngestOperator(**NAMES, policies=policies, engine=Spark(direct_write="maybe"))
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "direct_write",
        "gap_policy",
    ]
    reset = IngestPolicies(on_offset_regression="reset_to_end")
    with pytest.raises(ConfigError, match="on_offset_regression has no effect with mode='time'"):
        TubeMQWindowIngestOperator(**NAMES, boundaries="/b.json", policies=reset)


def test_templates_inside_of_values_are_filled_in_for_one_run_only() -> None:
    policies = IngestPolicies(gap_policy="{{ params.gaps }}")
    spark = Spark(conf={"spark.master": "local[{{ params.cores }}]"})
    with DAG("d", schedule=None):
        task = TubeMQCursorIngestOperator(**NAMES, policies=policies, engine=spark)

    task.render_template_fields({"params": {"gaps": "skip", "cores": 3}})

    found = checked(task)
    assert (found.gap_policy, found.spark_conf) == ("skip", {"spark.master": "local[3]"})
    assert policies.gap_policy == "{{ params.gaps }}"
    assert spark.conf == {"spark.master": "local[{{ params.cores }}]"}


def test_templates_inside_of_values_are_filled_in_for_one_mapped_task_only() -> None:
    """With `dag.test()` all tasks are of one process: each had the values of the first."""
    given = {name: value for name, value in NAMES.items() if name != "path"}
    spark = Spark(conf={"spark.app.name": "{{ run }}"})
    with DAG("mapped", schedule=None):
        task = TubeMQWindowIngestOperator.partial(
            **given, boundaries="/b.json", engine=spark
        ).expand(path=["/lake"])
    names = []
    for run in ("first", "second"):
        made = task.unmap({"path": "/lake"})
        # As Airflow's mapped operator does it.
        environment = task.get_template_env()
        made._do_render_template_fields(
            made, task.template_fields, {"run": run}, environment, set()
        )
        names.append(checked(made).spark_conf["spark.app.name"])
    assert names == ["first", "second"]


def test_they_can_be_mapped() -> None:
    given = {name: value for name, value in NAMES.items() if name != "path"}
    with DAG("mapped", schedule=None):
        task = TubeMQWindowIngestOperator.partial(**given, boundaries="/b.json").expand(
            path=["/lake"]
        )
    made = task.unmap({"path": "/lake"})

    assert isinstance(made, TubeMQWindowIngestOperator)
    assert checked(made).path == "/lake"


def test_both_write_windows(mq: EmbeddedTubeMQ, hook: TubeMQHook, tmp_path: Path) -> None:
    partition = Partition.from_key(TOPIC, "1:0")
    list(hook.produce(TOPIC, [Record(b"%d" % n, partition=partition) for n in range(5)]))
    for broker in (1, 2):
        for store in (0, 1):
            mq.broker(broker).store(TOPIC, store).flush()
    names = {**NAMES, "path": str(tmp_path / "cursor"), "engine": "inline"}
    cursor = TubeMQCursorIngestOperator(**names, initial_position="earliest", max_records=3)
    window = TubeMQWindowIngestOperator(
        **{**names, "path": str(tmp_path / "window"), "group": "other"},
        starting_offsets={"1:0": "earliest"},
        ending_offsets={"1:0": "stable"},
    )

    assert execute(cursor, fake_context(cursor, {}))["total"] == 3
    assert execute(window, fake_context(window, {}))["total"] == 5


def test_a_task_that_is_cleared_without_its_run_rewrites_its_window(
    mq: EmbeddedTubeMQ, hook: TubeMQHook, tmp_path: Path
) -> None:
    """A REST request with ``"reset_dag_runs": false``, which the run does not count."""
    list(hook.produce(TOPIC, [Record(b"a", partition=Partition(1, TOPIC, 0))]))
    mq.broker(1).store(TOPIC, 0).flush()
    sink = f"sqlite:///{tmp_path}/lake.db?table=orders"
    names = {name: value for name, value in NAMES.items() if name != "path"}
    kept: dict[Any, Any] = {}

    def run(most_tries: int) -> Any:
        task = TubeMQCursorIngestOperator(
            **names,
            sink=sink,
            engine="inline",
            initial_position="earliest",
            policies=IngestPolicies(on_clear="rewrite"),
            retries=2,
        )
        context = fake_context(task, kept)
        context["ti"].max_tries = most_tries
        return execute(task, context)["replayed"]

    assert [run(2), run(2), run(3)] == [False, True, False]


@pytest.mark.parametrize(
    ("kind", "arguments", "said"),
    [
        (
            TubeMQCursorIngestOperator,
            {"mode": "time"},
            "mode: TubeMQCursorIngestOperator follows a group, TubeMQWindowIngestOperator has",
        ),
        (TubeMQLagSensor, {"min_lagg": 3}, "min_lagg: did you mean min_lag?"),
    ],
)
def test_an_argument_that_beginners_try_has_a_hint(
    kind: Any, arguments: dict[str, Any], said: str
) -> None:
    names = {name: NAMES[name] for name in ("task_id", "topic", "group")}
    with DAG("hints", schedule=None), pytest.raises(TypeError) as caught:
        kind(**names, **arguments)
    assert said in str(caught.value)


def test_values_of_another_type_are_named_by_their_argument() -> None:
    """A dict of policies was an unknown argument beside a list of sixty, and a missing connection
    an error about the cluster."""
    names: dict[str, Any] = {**NAMES, "cluster": None, "tubemq_conn_id": None}
    with DAG("types", schedule=None), pytest.raises(ConfigError) as caught:
        TubeMQCursorIngestOperator(**names, policies={"corrupt_records": "drop"})
    assert caught.value.problems == [
        (
            "policies: give IngestPolicies(gap_policy=…, …) of tubemq_provider.ingest.values, "
            "not a dict"
        ),
        "tubemq_conn_id: it is empty; name a connection, or leave it out",
    ]
