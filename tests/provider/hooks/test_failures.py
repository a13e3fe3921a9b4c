"""Errors in a task's log, at 80 columns: the cause, what to do, whose it is, and a command."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException

from tubemq_client import errors
from tubemq_provider.hooks.failures import ErrorContext, explained, fatal_errors_fail_the_task
from tubemq_provider.hooks.rocketmq import error_context
from tubemq_provider.operators.ingest import (
    TubeMQCursorIngestOperator,
    TubeMQWindowIngestOperator,
)
from tubemq_provider.sensors.lag import TubeMQLagSensor
from tubemq_provider.task_arguments import near_names
from tubemq_provider.windows.errors import NoInitialPosition

pytestmark = pytest.mark.airflow

WHERE = ErrorContext("mq_eu", "orders", "lake")


class Told(list[str]):
    """Log in memory."""

    def error(self, event: str, *args: Any) -> None:
        self.append(event % args)

    def debug(self, *_: Any, **__: Any) -> None:
        """Ignore the line."""


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (
            errors.ConnectError("cannot connect to 127.0.0.1:1: Connection refused"),
            "compare host and port of connection 'mq_eu'",
        ),
        (errors.TlsError("certificate verify failed"), "compare the TLS fields"),
        (
            errors.ProtocolViolation("127.0.0.1:80: frame starts with 16030100"),
            "name the port of the servers",
        ),
        (
            AirflowNotFoundException("The conn_id `mq_eu` isn't defined"),
            "add connection 'mq_eu' of type tubemq, in the UI or as AIRFLOW_CONN_MQ_EU",
        ),
        (
            AirflowNotFoundException("The conn_id `lake_db` isn't defined"),
            "add connection 'lake_db', in the UI or as AIRFLOW_CONN_LAKE_DB",
        ),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else "",
)
def test_remedy_context_and_command_are_separate_lines(error: Exception, remedy: str) -> None:
    lines = explained(error, WHERE).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"{type(error).__name__}: {str(error)[:20]}")
    begins = next(n for n, line in enumerate(lines) if line.startswith("to mend it: "))
    assert remedy in " ".join(lines[begins:])
    assert lines[-2:] == [
        "connection 'mq_eu', topic 'orders', group 'lake'",
        "to look further: airflow tubemq check --conn-id mq_eu",
    ]


def test_a_group_without_the_right_to_a_topic_is_not_sent_to_its_password() -> None:
    refused = "code 450: [unAuthorized Group] lake.e_1's consumerGroup not authorized"
    said = " ".join(explained(errors.NotAuthorized(450, refused), WHERE).split())
    assert "'tubemq groups names lake' lists them" in said
    assert "'tubemq topics modify orders --no-authorisation'" in said
    assert "password" not in said


def test_a_remedy_behind_a_semicolon_begins_a_line() -> None:
    said = explained(
        NoInitialPosition(
            "group 'lake' has no progress on topic 'orders'; set initial_position to 'earliest', "
            "'stable' or offsets for its first window"
        ),
        WHERE,
    ).splitlines()
    assert said[1].startswith("set initial_position to 'earliest', 'stable' or offsets")


def test_a_command_is_never_broken() -> None:
    where = error_context("c" * 70, "orders", "lake")
    told = explained(errors.ConnectError("refused"), where).splitlines()
    assert told[-1] == f"to look further: airflow tubemq check --conn-id {'c' * 70}"
    assert "port 9876" in " ".join(told)


def test_a_missing_connection_is_logged_once_and_retried() -> None:
    told = Told()
    with (
        pytest.raises(AirflowNotFoundException) as caught,
        fatal_errors_fail_the_task(told, about=WHERE),
    ):
        raise AirflowNotFoundException("The conn_id `mq_eu` isn't defined")
    assert caught.value.__suppress_context__
    assert len(told) == 1


def test_network_errors_are_retried_and_their_cause_logged_once() -> None:
    told = Told()

    def deep(calls: int) -> None:
        if calls:
            deep(calls - 1)
        raise errors.ConnectError("refused") from OSError("refused")

    with (
        pytest.raises(errors.ConnectError) as caught,
        fatal_errors_fail_the_task(told, about=WHERE),
    ):
        deep(30)
    # Airflow shows the end of a log: thirty frames would hide the lines above them.
    assert len(caught.traceback) < 5
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert len(told) == 1


def test_mistakes_in_a_dag_file_name_the_operator_and_the_task() -> None:
    with pytest.raises(errors.ConfigError) as caught:
        TubeMQLagSensor(task_id="wait", topic="orders", group="lake", min_lag="many")
    said = str(caught.value)
    assert "invalid arguments of TubeMQLagSensor 'wait'" in said
    assert "min_lag: 'many': input should be a valid integer" in said


def test_an_argument_that_nearly_matches_is_offered() -> None:
    with pytest.raises(TypeError, match="intial_position: did you mean initial_position"):
        TubeMQCursorIngestOperator(
            task_id="t", topic="orders", group="lake", path="/lake", intial_position="earliest"
        )
    with pytest.raises(TypeError, match="initial_position: an argument of TubeMQCursorIngest"):
        TubeMQWindowIngestOperator(
            task_id="t", topic="orders", group="lake", path="/lake", initial_position="earliest"
        )
    with pytest.raises(TypeError, match="something else"), near_names(object):
        raise TypeError("something else: 'a': 1")


def test_an_unknown_argument_hides_no_other_mistake() -> None:
    """Values were looked at only once every name was right."""
    with pytest.raises(TypeError) as caught:
        TubeMQCursorIngestOperator(
            task_id="t",
            topic="orders",
            group="9bad",
            path="relative",
            engine="sparkk",
            intial_position="earliest",
            corrupt_records="drop",
        )
    text = str(caught.value)
    for name in ("group", "path", "engine", "intial_position", "corrupt_records"):
        assert f"\n{name}: " in text, text


def test_permanent_errors_fail_without_a_log_too() -> None:
    with pytest.raises(AirflowFailException), fatal_errors_fail_the_task():
        raise errors.ConfigError("wrong", subject="x")
