"""Follow a topic into a Delta table: one commit per window, exactly once, without Spark.

The sink is a kind and a location; for ``s3://``, ``gs://`` and ``az://`` name a connection with the
credentials in `sink_conn_id`. The size of files is `target_file_bytes`, for any number of
partitions. Needs the extra `lake`.

Set the environment variables below where Airflow's processes run.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from tubemq_provider.hooks.retries import tubemq_retry_policy
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator

TOPIC = os.environ.get("TUBEMQ_EXAMPLE_TOPIC", "orders")
GROUP = os.environ.get("TUBEMQ_EXAMPLE_DELTA_GROUP", "lake_delta")
SINK = os.environ.get("TUBEMQ_EXAMPLE_DELTA_SINK", "delta:/tmp/tubemq_orders_delta")
SINK_CONN_ID = os.environ.get("TUBEMQ_EXAMPLE_DELTA_CONN_ID") or None
CLUSTER = os.environ.get("TUBEMQ_EXAMPLE_CLUSTER", "tubemq_default")

with DAG(
    dag_id="tubemq_follow_into_delta",
    description="Everything new on a TubeMQ topic, exactly once, into a Delta table",
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
        task_id="ingest",
        topic=TOPIC,
        group=GROUP,
        cluster=CLUSTER,
        sink=SINK,
        sink_conn_id=SINK_CONN_ID,
        initial_position="earliest",
        engine="inline",
        target_file_bytes=128 * 1024 * 1024,
        max_duration=timedelta(minutes=10),
    )
