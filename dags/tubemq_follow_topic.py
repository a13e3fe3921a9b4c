"""Lag, then ingest: follow a topic, one window per run, from the end of the last one.

The sensor waits, in the triggerer and without a worker slot, until there is something on the
brokers' disks that the group has not read; the ingest task reads everything up to the stable end
and stores its position on the offsets asset. Runs may be triggered by hand, by a schedule or by
anything else; a run without new data changes nothing.

Set the environment variables below where Airflow's processes run.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from tubemq_provider.hooks.retries import tubemq_retry_policy
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator
from tubemq_provider.sensors.lag import TubeMQLagSensor

TOPIC = os.environ.get("TUBEMQ_EXAMPLE_TOPIC", "orders")
GROUP = os.environ.get("TUBEMQ_EXAMPLE_FOLLOW_GROUP", "lake_follow")
PATH = os.environ.get("TUBEMQ_EXAMPLE_FOLLOW_PATH", "/tmp/tubemq_orders")  # noqa: S108
CLUSTER = os.environ.get("TUBEMQ_EXAMPLE_CLUSTER", "tubemq_default")
FILTERS = [f for f in os.environ.get("TUBEMQ_EXAMPLE_FILTERS", "").split(",") if f]
ENGINE = os.environ.get("TUBEMQ_EXAMPLE_ENGINE", "auto")

with DAG(
    dag_id="tubemq_follow_topic",
    description="Everything new on a TubeMQ topic, exactly once, into Parquet",
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
    lag = TubeMQLagSensor(
        task_id="lag",
        topic=TOPIC,
        group=GROUP,
        cluster=CLUSTER,
        min_lag=1,
        poke_interval=2,
        timeout=600,
        deferrable=True,
    )
    ingest = TubeMQCursorIngestOperator(
        task_id="ingest",
        topic=TOPIC,
        group=GROUP,
        cluster=CLUSTER,
        path=PATH,
        initial_position="earliest",
        filters=FILTERS,
        engine=ENGINE,
    )
    lag >> ingest
