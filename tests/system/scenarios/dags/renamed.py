"""A Dag that the tests rename, by rewriting this file."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG

from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator

NAME = "s24"

with DAG(NAME, schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False):
    TubeMQCursorIngestOperator(
        task_id="ingest",
        topic="s24",
        group="group_s24",
        cluster="test",
        path=str(Path(os.environ.get("TUBEMQ_SCENARIO_LAKES", "lakes")) / "s24"),
        engine="inline",
        initial_position="earliest",
    )
