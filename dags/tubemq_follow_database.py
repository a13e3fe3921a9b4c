"""Follow a database's table through its change stream into a Delta table: docs/changes.md.

Debezium, Canal, Maxwell or GoldenGate write the changes to a topic; after every window the Delta
table equals the source's. Needs the extra `lake`.

Set the environment variables below where Airflow's processes run.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from tubemq_provider.hooks.retries import tubemq_retry_policy
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator

TOPIC = os.environ.get("TUBEMQ_EXAMPLE_CHANGES_TOPIC", "changes")
GROUP = os.environ.get("TUBEMQ_EXAMPLE_CHANGES_GROUP", "lake_changes")
SINK = os.environ.get("TUBEMQ_EXAMPLE_CHANGES_SINK", "delta:/tmp/tubemq_customers")
SINK_CONN_ID = os.environ.get("TUBEMQ_EXAMPLE_CHANGES_CONN_ID") or None
CLUSTER = os.environ.get("TUBEMQ_EXAMPLE_CLUSTER", "tubemq_default")
FORMAT = os.environ.get("TUBEMQ_EXAMPLE_CHANGES_FORMAT", "debezium")
SCHEMA = os.environ.get("TUBEMQ_EXAMPLE_CHANGES_SCHEMA", "id int, name string, email string")

with DAG(
    dag_id="tubemq_follow_database",
    description="A Delta table that equals a database's table after every window",
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=5),
        "retry_policy": tubemq_retry_policy(),
    },
    tags=["tubemq"],
):
    TubeMQCursorIngestOperator(
        task_id="follow",
        topic=TOPIC,
        group=GROUP,
        cluster=CLUSTER,
        sink=SINK,
        sink_conn_id=SINK_CONN_ID,
        initial_position="earliest",
        engine="inline",
        decode={"format": FORMAT, "schema": SCHEMA},
        apply="changes",
        key=["id"],
        version="_source_position",
        max_duration=timedelta(minutes=10),
    )
