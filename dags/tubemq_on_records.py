"""Event-driven: a run for every batch of records that waits on a topic, and none otherwise.

The watcher lives in Airflow's triggerer. It compares the ends of the logs with the position that
the ingest task stores, so it reads nothing and holds no worker slot; it fires again while records
remain. The run plans its own window, exactly once, even if events are lost or merged.

Set the environment variables below where Airflow's processes run.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.sdk import DAG, Asset, AssetWatcher

from tubemq_provider.hooks.retries import tubemq_retry_policy
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator

TOPIC = os.environ.get("TUBEMQ_EXAMPLE_TOPIC", "orders")
GROUP = os.environ.get("TUBEMQ_EXAMPLE_RECORDS_GROUP", "lake_on_records")
PATH = os.environ.get("TUBEMQ_EXAMPLE_RECORDS_PATH", "/tmp/tubemq_on_records")  # noqa: S108
CLUSTER = os.environ.get("TUBEMQ_EXAMPLE_CLUSTER", "tubemq_default")
ENGINE = os.environ.get("TUBEMQ_EXAMPLE_ENGINE", "auto")
POLL_SECONDS = float(os.environ.get("TUBEMQ_EXAMPLE_POLL_SECONDS", "15"))

waiting = Asset(
    name=f"{TOPIC}_waiting_for_{GROUP}",
    group="tubemq",
    watchers=[
        AssetWatcher(
            name=f"{GROUP}_lag",
            trigger=MessageQueueTrigger(
                scheme="tubemq",
                topic=TOPIC,
                group=GROUP,
                cluster=CLUSTER,
                poll_interval=POLL_SECONDS,
            ),
        )
    ],
)

with DAG(
    dag_id="tubemq_on_records",
    description="A window whenever records wait on a TubeMQ topic",
    schedule=[waiting],
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
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
        path=PATH,
        initial_position="earliest",
        engine=ENGINE,
    )
