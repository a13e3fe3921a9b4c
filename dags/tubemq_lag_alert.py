"""Alert when a group falls behind: check every ten minutes, fail beyond a limit, notify.

The task that fails is the alert: Airflow shows it, and runs its callbacks. The notifier here sends
a record to a topic; any other of Airflow's notifiers (mail, chat, pager) goes into the same list.
The lag is also a metric, `tubemq.group.lag`.

Set the environment variables below where Airflow's processes run.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from tubemq_provider.hooks.retries import tubemq_retry_policy
from tubemq_provider.notifications import TubeMQNotifier
from tubemq_provider.operators.offsets import TubeMQOffsetsOperator

TOPIC = os.environ.get("TUBEMQ_EXAMPLE_TOPIC", "orders")
GROUP = os.environ.get("TUBEMQ_EXAMPLE_FOLLOW_GROUP", "lake_follow")
CLUSTER = os.environ.get("TUBEMQ_EXAMPLE_CLUSTER", "tubemq_default")
ALERTS = os.environ.get("TUBEMQ_EXAMPLE_ALERTS_TOPIC", "alerts")
LIMIT = int(os.environ.get("TUBEMQ_EXAMPLE_LAG_LIMIT", "100000"))

with DAG(
    dag_id="tubemq_lag_alert",
    description="Fails, and notifies, while a group is too far behind",
    schedule="*/10 * * * *",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=5),
        "retry_policy": tubemq_retry_policy(),
    },
    tags=["tubemq"],
):
    TubeMQOffsetsOperator(
        task_id="lag",
        topic=TOPIC,
        group=GROUP,
        cluster=CLUSTER,
        fail_above=LIMIT,
        on_failure_callback=[
            TubeMQNotifier(
                topic=ALERTS,
                message={"dag": "{{ dag.dag_id }}", "group": GROUP, "topic": TOPIC},
            )
        ],
    )
