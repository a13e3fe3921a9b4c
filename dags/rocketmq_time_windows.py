"""Ready, then ingest: one window per interval of the schedule, with known boundaries.

A JSON file has the begin of each interval in every queue:
``{"2026-01-01T00:00:00Z": {"orders": {"broker-a:0": 100}}}``. Each run waits until the brokers hold
the end of its interval on disk, then writes exactly that interval. Intervals are independent of
each other, so a backfill over past ones writes one window each, and creating it again writes
nothing. Without such a file, leave `boundaries` out: intervals are then by the brokers' own store
time, and the sensor waits with ``until="{{ data_interval_end }}"``.

Set the environment variables below where Airflow's processes run; everything has a default that
suits `make demo`.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, CronDataIntervalTimetable

from tubemq_provider.hooks.retries import tubemq_retry_policy
from tubemq_provider.operators.rocketmq import RocketMQWindowIngestOperator
from tubemq_provider.sensors.rocketmq import RocketMQPartitionReadySensor
from tubemq_provider.windows.time_resolvers.boundaries import Boundaries

TOPIC = os.environ.get("ROCKETMQ_EXAMPLE_TOPIC", "orders")
GROUP = os.environ.get("ROCKETMQ_EXAMPLE_INTERVAL_GROUP", "lake_intervals")
PATH = os.environ.get("ROCKETMQ_EXAMPLE_INTERVAL_PATH", "/tmp/rocketmq_orders_by_interval")  # noqa: S108
BOUNDARIES = os.environ.get("ROCKETMQ_EXAMPLE_BOUNDARIES", "/tmp/rocketmq_boundaries.json")  # noqa: S108
CLUSTER = os.environ.get("ROCKETMQ_EXAMPLE_CLUSTER", "rocketmq_default")
SCHEDULE = os.environ.get("ROCKETMQ_EXAMPLE_SCHEDULE", "@hourly")
FILTERS = [f for f in os.environ.get("ROCKETMQ_EXAMPLE_FILTERS", "").split(",") if f]
ENGINE = os.environ.get("ROCKETMQ_EXAMPLE_ENGINE", "auto")


def offsets_at(instant: datetime) -> str:
    """Return the offset of every queue at `instant`, as JSON for templates."""
    return json.dumps(
        dict(Boundaries.load(BOUNDARIES, TOPIC, source="rocketmq").offsets_at(instant))
    )


with DAG(
    dag_id="rocketmq_time_windows",
    description="One exact window of a RocketMQ topic per interval, into Parquet",
    schedule=CronDataIntervalTimetable(SCHEDULE, timezone="UTC"),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=2,
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=5),
        "retry_policy": tubemq_retry_policy(),
    },
    user_defined_macros={"offsets_at": offsets_at},
    tags=["rocketmq"],
):
    ready = RocketMQPartitionReadySensor(
        task_id="ready",
        topic=TOPIC,
        until_offsets="{{ offsets_at(data_interval_end) }}",
        mode="reschedule",
        poke_interval=5,
        timeout=600,
    )
    ingest = RocketMQWindowIngestOperator(
        task_id="ingest",
        topic=TOPIC,
        group=GROUP,
        cluster=CLUSTER,
        path=PATH,
        boundaries=BOUNDARIES,
        filters=FILTERS,
        engine=ENGINE,
    )
    ready >> ingest
