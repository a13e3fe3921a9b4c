"""A Dag whose file the tests take away, and put back."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG

from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator

NAME = "s16_gone"

with DAG(NAME, schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False):
    TubeMQCursorIngestOperator(
        task_id="ingest",
        topic="s16_gone",
        group="group_s16_gone",
        cluster="test",
        path=str(Path(os.environ.get("TUBEMQ_SCENARIO_LAKES", "lakes")) / "s16_gone"),
        engine="inline",
        initial_position="earliest",
    )
