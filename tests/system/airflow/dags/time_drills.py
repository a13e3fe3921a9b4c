"""Dags of `test_time_on_real_airflow.py`: one task samples ends, another cuts windows by them."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable

from tubemq_provider.ingest.values import IngestPolicies
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator
from tubemq_provider.operators.sample import TubeMQSampleEndsOperator

LAKES = Path(os.environ.get("TUBEMQ_DRILL_LAKES", "lakes"))
FIRST = datetime(2026, 1, 1, tzinfo=UTC)

with DAG("sample_ends", schedule=None, start_date=FIRST, catchup=False):
    TubeMQSampleEndsOperator(task_id="sample", topic="timed", group="timed", cluster="test")

with DAG("window_by_arrival", schedule=None, start_date=FIRST, catchup=False):
    TubeMQWindowIngestOperator(
        task_id="ingest",
        topic="timed",
        group="timed",
        cluster="test",
        path=str(LAKES / "timed"),
        engine="inline",
        resolver="timeline",
        policies=IngestPolicies(max_run_window=timedelta(days=1)),
        granularity=timedelta(microseconds=1),
        retries=1,
        retry_delay=timedelta(seconds=1),
    )

HOURLY = CronDataIntervalTimetable("@hourly", timezone="UTC")
OF_MODE: dict[str, tuple[Any, dict[str, Any]]] = {
    "cursor": (TubeMQCursorIngestOperator, {"initial_position": "earliest"}),
    "time": (
        TubeMQWindowIngestOperator,
        {"boundaries": {}, "policies": IngestPolicies(max_run_window="PT1H")},
    ),
}
for mode, (operator, arguments) in OF_MODE.items():
    # Their last interval is long past, so that only runs of a test start.
    with DAG(
        f"resolve_{mode}",
        schedule=HOURLY,
        start_date=FIRST,
        end_date=FIRST + timedelta(days=1),
        catchup=False,
    ) as resolving:
        operator(
            task_id="ingest",
            topic="timed",
            group=f"resolve_{mode}",
            cluster="test",
            path=str(LAKES / f"resolve_{mode}"),
            engine="inline",
            **arguments,
        )
    globals()[f"resolve_{mode}"] = resolving
