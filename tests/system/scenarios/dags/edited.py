"""A Dag of days that the tests edit to hours, by rewriting this file."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, CronPartitionTimetable

from tubemq_provider.operators.ingest import TubeMQWindowIngestOperator

LAKES = Path(os.environ.get("TUBEMQ_SCENARIO_LAKES", "lakes"))
CRON = "0 0 * * *"

with DAG(
    "s25",
    schedule=CronPartitionTimetable(CRON, timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    # For what a busy machine does; an instant without a boundary is final.
    default_args={"retries": 3, "retry_delay": timedelta(seconds=1)},
):
    TubeMQWindowIngestOperator(
        task_id="ingest",
        topic="s25",
        group="group_s25",
        cluster="test",
        path=str(LAKES / "s25"),
        engine="inline",
        boundaries=str(LAKES / "s25.json"),
    )
