"""The Dags of the kill drill: windows of every kind, each into a separate lake.

Intervals of a schedule (for backfills and single runs), mapped tasks with explicit offsets, cursor
windows one at a time, cursor windows that may race, and the same through Spark. The operator is the
real one; a subclass only adds the killer, and records the resulting window.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Context, CronDataIntervalTimetable, task

from tools.drill.kill_plan import Killer, KillLog, TaskKey, plan_of
from tubemq_provider.assets import offsets_asset
from tubemq_provider.ingest.values import Spark
from tubemq_provider.operators.base import IngestOperator
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator

ROOT = Path(os.environ.get("TUBEMQ_DRILL_FOLDER", "drill"))
SEED = os.environ.get("TUBEMQ_DRILL_SEED", "0")
SHARE = float(os.environ.get("TUBEMQ_DRILL_SHARE", "0"))
CAP = int(os.environ.get("TUBEMQ_DRILL_CAP", "1000"))
LANES = int(os.environ.get("TUBEMQ_DRILL_LANES", "3"))

TOPIC = "drill"
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
KILLS, OUTCOMES = KillLog(ROOT / "kills.jsonl"), KillLog(ROOT / "outcomes.jsonl")


class Drilled(IngestOperator):
    """An ingest operator with a killer as its observer."""

    _killer: Killer | None = None

    def observer(self, context: Context, job: Any) -> Any:
        key, spark = _key(context), isinstance(self.engine, Spark)
        plan = plan_of(SEED, SHARE, key, spark=spark)
        self._killer = Killer(super().observer(context, job), plan, KILLS, key)
        return self._killer

    def execute(self, context: Context) -> dict[str, Any]:
        result = super().execute(context)
        key = _key(context)
        OUTCOMES.add(
            dag_id=key.dag_id,
            run_id=key.run_id,
            map_index=key.map_index,
            try_number=key.try_number,
            window_id=result["window_id"],
            replayed=result["replayed"],
        )
        if self._killer is not None:
            self._killer.finish()
        return result


class DrilledCursor(Drilled, TubeMQCursorIngestOperator):
    """The operator of cursor windows."""


class DrilledWindow(Drilled, TubeMQWindowIngestOperator):
    """The operator of windows of time and of explicit offsets."""


def _key(context: Context) -> TaskKey:
    ti = context["ti"]
    map_index = -1 if ti.map_index is None else ti.map_index
    return TaskKey(ti.dag_id, ti.run_id, map_index, ti.try_number)


def dag(dag_id: str, schedule: Any = None, runs: int = 6) -> DAG:
    return DAG(
        dag_id=dag_id,
        schedule=schedule,
        start_date=FIRST,
        catchup=False,
        max_active_runs=runs,
        default_args={"retries": 40, "retry_delay": timedelta(seconds=1)},
    )


def where(dag_id: str, engine: str = "inline") -> dict[str, Any]:
    return {
        "task_id": "ingest",
        "topic": TOPIC,
        "group": dag_id,
        "cluster": "drill",
        "path": str(ROOT / "lakes" / dag_id),
        "engine": Spark(conf={"spark.ui.enabled": "false"}) if engine == "session" else engine,
    }


# The drill changes these when the logs are recreated: the schedule, and the epoch that explicit
# windows name.
LIFE = json.loads((ROOT / "life.json").read_text()) if (ROOT / "life.json").exists() else {}
EVERY = LIFE.get("minutes", 1)
MINUTES = CronDataIntervalTimetable(f"*/{EVERY} * * * *", timezone="UTC")
CURSOR: dict[str, Any] = {"initial_position": "earliest", "max_records": CAP}
BOUNDARIES: dict[str, Any] = {"boundaries": str(ROOT / "boundaries.json")}

for lane in range(LANES):
    name = f"intervals_{lane}"
    with dag(name, MINUTES) as globals()[name]:
        DrilledWindow(**where(name), **BOUNDARIES)
    name = f"follow_{lane}"
    with dag(name) as globals()[name]:
        DrilledCursor(**where(name), **CURSOR)

with dag("race"):
    DrilledCursor(**where("race"), **CURSOR, max_active_tis_per_dag=3)

with dag("mapped"):

    @task
    def cut(dag_run: Any = None) -> list[dict[str, Any]]:
        """Return the windows in the run's configuration."""
        return list(dag_run.conf["windows"])

    asset = offsets_asset("drill", TOPIC, "mapped")
    DrilledWindow.partial(
        **where("mapped"),
        resolver="explicit",
        epoch=LIFE.get("epoch"),
        inlets=[asset],
        outlets=[asset],
    ).expand_kwargs(cut())

with dag("spark_intervals", MINUTES):
    DrilledWindow(**where("spark_intervals", "session"), **BOUNDARIES, max_active_tis_per_dag=1)

with dag("spark_follow"):
    DrilledCursor(**where("spark_follow", "session"), **CURSOR)
