"""Your own tasks between plan and commit, and a function that receives a window.

`tubemq_plan_read_commit`: one task freezes the next offsets, your tasks read exactly those, by
their
own means, and one task records that the window is done. `tubemq_window_function` does all three in
one task. Both are for destinations without a sink; a task that writes under the window's id, and
replaces what an earlier try left, writes each record once.

Set the environment variables below where Airflow's processes run.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from tubemq_client import OffsetRange, Partition
from tubemq_provider.hooks.retries import tubemq_retry_policy
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.operators.planning import TubeMQPlanWindowOperator

TOPIC = os.environ.get("TUBEMQ_EXAMPLE_TOPIC", "orders")
CLUSTER = os.environ.get("TUBEMQ_EXAMPLE_CLUSTER", "tubemq_default")
DONE = os.environ.get("TUBEMQ_EXAMPLE_DONE", "/tmp/tubemq_done")  # noqa: S108
REPORTS = Path(os.environ.get("TUBEMQ_EXAMPLE_REPORTS", "/tmp/tubemq_reports"))  # noqa: S108
USUAL = {
    "retries": 2,
    "retry_delay": timedelta(seconds=5),
    "retry_policy": tubemq_retry_policy(),
}


def written(window_id: str, document: dict[str, Any]) -> None:
    """Write a file under the window's id; it replaces that of an earlier try."""
    REPORTS.mkdir(exist_ok=True)
    (REPORTS / f"{window_id}.json").write_text(json.dumps(document))


with DAG(
    dag_id="tubemq_plan_read_commit",
    description="Own tasks between the plan of a window and its commit",
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,  # a concurrent run would get the same window
    default_args=USUAL,
    tags=["tubemq"],
):

    @task
    def count(window: dict[str, Any]) -> dict[str, int]:
        """Return the number of records of each partition in the window; any other engine would
        do."""
        hook = TubeMQHook()
        counts = {}
        for key, (start, end) in window["ranges"].items():
            range_ = OffsetRange(Partition.from_key(TOPIC, key), start, end)
            counts[key] = sum(1 for _ in hook.read_range(range_, group=window["group"]))
        written(window["window_id"], counts)
        return counts

    plan = TubeMQPlanWindowOperator(
        task_id="plan",
        topic=TOPIC,
        group="own_tasks",
        cluster=CLUSTER,
        markers=f"{DONE}_tasks",
        initial_position="earliest",
    )
    plan.committed(records=count(plan.output))  # type: ignore[arg-type]

with DAG(
    dag_id="tubemq_window_function",
    description="A function that receives a window of a topic",
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args=USUAL,
    tags=["tubemq"],
):

    @task.tubemq_window(
        topic=TOPIC,
        group="own_function",
        cluster=CLUSTER,
        markers=f"{DONE}_function",
        initial_position="earliest",
    )
    def report(window: Any) -> int:
        """Return the length of all bodies."""
        total = sum(len(message.body) for message in window.messages())
        written(window.window_id, {"bytes": total})
        return total

    report()
