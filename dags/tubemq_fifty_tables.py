"""Fifty streams of one topic into fifty tables, with one read of each window: docs/routes.md.

Every stream id gets its own directory under `LAKE`, made with its first record; the windows'
markers and what has no stream id are in `WINDOWS`.

Set the environment variables below where Airflow's processes run.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from tubemq_provider.hooks.retries import tubemq_retry_policy
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator

TOPIC = os.environ.get("TUBEMQ_EXAMPLE_TOPIC", "orders")
GROUP = os.environ.get("TUBEMQ_EXAMPLE_ROUTES_GROUP", "lake_routes")
WINDOWS = os.environ.get("TUBEMQ_EXAMPLE_ROUTES_WINDOWS", "file:///tmp/tubemq_routes_windows")
LAKE = os.environ.get("TUBEMQ_EXAMPLE_ROUTES_LAKE", "file:///tmp")
ENGINE = os.environ.get("TUBEMQ_EXAMPLE_ROUTES_ENGINE", "inline")
CLUSTER = os.environ.get("TUBEMQ_EXAMPLE_CLUSTER", "tubemq_default")

with DAG(
    dag_id="tubemq_fifty_tables",
    description="One read of a TubeMQ topic, exactly once, into a table per stream",
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
        sink=WINDOWS,
        routes={
            "name": "streams",
            "by": "stream_id",
            "unrouted": "quarantine",
            "tables": {"*": f"{LAKE}/tubemq_stream_{{stream_id}}"},
        },
        initial_position="earliest",
        engine=ENGINE,
        max_duration=timedelta(minutes=10),
    )
