"""The Dags of the failure scenarios: each with a group, a topic, a lake and a point to block at.

A task blocks at the point that the file `stop/<dag id>` names, once, until it is killed or until
`go/<dag id>` appears. Otherwise the operator is the users' one.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Context, CronDataIntervalTimetable, CronPartitionTimetable

from tubemq_provider.ingest.values import IngestPolicies
from tubemq_provider.operators.base import IngestOperator
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator
from tubemq_provider.operators.rocketmq import (
    RocketMQCursorIngestOperator,
    RocketMQWindowIngestOperator,
)

LAKES = Path(os.environ.get("TUBEMQ_SCENARIO_LAKES", "lakes"))
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
HOURS = CronDataIntervalTimetable("@hourly", timezone="UTC")


class GroupProgress:
    """An observer that blocks at one point, once."""

    def __init__(self, inner: Any, dag_id: str) -> None:
        self.inner = inner
        self.stop, self.reached, self.go = (LAKES / n / dag_id for n in ("stop", "reached", "go"))

    def at(self, step: Any, point: str) -> None:
        self.inner.at(step, point)
        if self.reached.exists() or not self.stop.exists():
            return
        if f"{step}:{point}".startswith(self.stop.read_text()):
            self.reached.touch()
            deadline = time.monotonic() + 90
            while not self.go.exists() and time.monotonic() < deadline:
                time.sleep(0.05)


class Blocking(IngestOperator):
    """An ingest operator with a point to block at."""

    def observer(self, context: Context, job: Any) -> Any:
        return GroupProgress(super().observer(context, job), self.dag_id)


class Follow(Blocking, TubeMQCursorIngestOperator):
    """Cursor windows of TubeMQ."""


class Interval(Blocking, TubeMQWindowIngestOperator):
    """Windows of time of TubeMQ."""


class RocketFollow(Blocking, RocketMQCursorIngestOperator):
    """Cursor windows of RocketMQ."""


class RocketInterval(Blocking, RocketMQWindowIngestOperator):
    """Windows of time of RocketMQ."""


def dag(dag_id: str, schedule: Any = None, retries: int = 3) -> DAG:
    return DAG(
        dag_id=dag_id,
        schedule=schedule,
        start_date=FIRST,
        catchup=False,
        max_active_runs=4,
        default_args={"retries": retries, "retry_delay": timedelta(seconds=1)},
    )


def into(name: str, **arguments: Any) -> dict[str, Any]:
    return {
        "task_id": "ingest",
        "topic": name,
        "group": f"group_{name}",
        "cluster": "test",
        "path": str(LAKES / name),
        "engine": "inline",
        **arguments,
    }


def cursor(name: str, **arguments: Any) -> dict[str, Any]:
    return into(name, initial_position="earliest", **arguments)


def time_windows(name: str, **arguments: Any) -> dict[str, Any]:
    return into(name, boundaries=str(LAKES / f"{name}.json"), **arguments)


for letter, Following, Timed in (("s", Follow, Interval), ("r", RocketFollow, RocketInterval)):
    for number in (1, 2, 3, 4, 5, 7, 8, 16, 17, 18, 19, 20, 22, 23):
        with dag(f"{letter}{number:02}") as globals()[f"{letter}{number:02}"]:
            Following(**cursor(f"{letter}{number:02}"))

    with dag(f"{letter}06"):
        Following(**cursor(f"{letter}06"), commit_to_broker=True)

    with dag(f"{letter}09"):
        Following(**cursor(f"{letter}09"), max_active_tis_per_dag=2)

    for which in (f"{letter}10", f"{letter}10_too"):
        with dag(which) as globals()[which]:
            Following(**cursor(f"{letter}10"))

    for number in (11, 12, 14, 15):
        with dag(f"{letter}{number:02}", HOURS) as globals()[f"{letter}{number:02}"]:
            Timed(
                **time_windows(
                    f"{letter}{number:02}", policies=IngestPolicies(max_run_window="PT1H")
                )
            )

    with dag(f"{letter}11_cursor", HOURS, retries=0):
        Following(**cursor(f"{letter}11"))

    with dag(f"{letter}13", CronPartitionTimetable("@hourly", timezone="UTC")):
        Timed(**time_windows(f"{letter}13", granularity="PT1H"))

    with dag(f"{letter}21", HOURS, retries=0):
        Timed(**time_windows(f"{letter}21"))

    with dag(f"{letter}21_cursor", retries=0):
        Following(**into(f"{letter}21_cursor", initial_position="earliest"))

with dag("s17_command"):
    Follow(**cursor("s17_command"))

with dag("s18_skip"):
    Follow(**cursor("s18", policies=IngestPolicies(gap_policy="skip")))
