"""Dag of one history of `edits.py`; its file is this module's name and a mapping."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Context

from tests.provider.edits.editor import HOUR, TIMETABLES, TOPIC
from tubemq_provider.ingest.values import IngestPolicies
from tubemq_provider.operators.base import IngestOperator
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator

__all__ = ["dag_file", "edited_dag"]

_PATIENT_SECONDS = 120


class _StopsOnce:
    """Observer that waits, at the point that the file `stop` names, for its process to be
    killed."""

    def __init__(self, inner: Any, stop: Path) -> None:
        self._inner = inner
        self._stop = stop

    def at(self, step: Any, point: str) -> None:
        self._inner.at(step, point)
        try:
            wanted = self._stop.read_text()
        except FileNotFoundError:
            return
        if wanted != f"{step}:{point}":
            return
        self._stop.unlink()
        reached = self._stop.with_name("reached")
        reached.with_name("reaching").write_text(str(os.getpid()))
        reached.with_name("reaching").rename(reached)
        time.sleep(_PATIENT_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)


class _Stops(IngestOperator):
    def observer(self, context: Context, progress_logger: Any) -> Any:
        inner = super().observer(context, progress_logger)
        return _StopsOnce(inner, Path(self.path or "").parent / "stop")


class Follow(_Stops, TubeMQCursorIngestOperator):
    """Operator of cursor windows."""


class Interval(_Stops, TubeMQWindowIngestOperator):
    """Operator of windows of time."""


def dag_file(dag_id: str, root: Path, dag: Mapping[str, Any], edit: int) -> str:
    """Return the text of the Dag's file after an edit, which the Dag names as a tag."""
    values = {**dag, "granularity": dag["granularity"] and dag["granularity"] // HOUR}
    return (
        "# A Dag of airflow.\n"
        "from tests.system.airflow.edited_dag import edited_dag\n\n"
        f"dag = edited_dag({dag_id!r}, {str(root)!r}, {values!r}, {edit})\n"
    )


def edited_dag(dag_id: str, root: str, values: Mapping[str, Any], edit: int) -> DAG:
    """Create the Dag as its author wrote it."""
    given: dict[str, Any] = {
        "task_id": values["task_id"],
        "topic": TOPIC,
        "group": f"{values['group']}_{dag_id}",
        "cluster": "test",
        "path": f"{root}/{values['path']}",
        "filters": values["filters"],
        "engine": "inline",
        "offset_store": values["offset_store"],
    }
    if values["mode"] == "time":
        hours = values["granularity"]
        given |= {
            "granularity": hours and timedelta(hours=hours),
            "policies": IngestPolicies(max_run_window="P2D"),
        }
        if values["resolver"] == "boundaries":
            given["boundaries"] = str(Path(root).parent / "boundaries.json")
        else:
            given["resolver"] = values["resolver"]
    else:
        given |= {"initial_position": "earliest", "max_records": 40}
    with DAG(
        dag_id,
        schedule=TIMETABLES[values["timetable"]],
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        tags=[f"edit-{edit}"],
        default_args={"retries": 10, "retry_delay": timedelta(seconds=1)},
    ) as made:
        (Interval if values["mode"] == "time" else Follow)(**given)
    return made
