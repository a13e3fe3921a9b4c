"""Dags that only the tests run: kills at named points, empty runs, sensors, the offset store."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, Context

from tubemq_provider.assets import offsets_asset, sink_asset
from tubemq_provider.ingest.values import SparkSubmit
from tubemq_provider.offsets.asset_state import AssetStateOffsetStore
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator
from tubemq_provider.sensors.lag import TubeMQLagSensor
from tubemq_provider.sensors.ready import TubeMQPartitionReadySensor

LAKES = Path(os.environ.get("TUBEMQ_DRILL_LAKES", "lakes"))

KILL_POINTS = [
    "load:begin",
    "load:cursor read",
    "plan:plan created",
    "plan:plan stored",
    "plan:task plan stored",
    "check_marker:begin",
    "check_marker:marker read",
    "ingest:staging ready",
    "ingest:range ",
    "ingest:end",
    "publish:begin",
    "publish:published",
    "advance:begin",
    "advance:cursor stored",
    "commit_event:begin",
    "commit_event:event emitted",
    "mirror:begin",
    "mirror:mirrored",
]


class StopAt:
    """An observer that blocks at one point until it is killed, once."""

    def __init__(self, inner: Any, point: str, reached: Path) -> None:
        self.inner = inner
        self.point = point
        self.reached = reached

    def at(self, step: Any, point: str) -> None:
        self.inner.at(step, point)
        if f"{step}:{point}".startswith(self.point) and not self.reached.exists():
            self.reached.parent.mkdir(parents=True, exist_ok=True)
            self.reached.touch()
            for _ in range(100):
                time.sleep(1)
                self.inner.at(step, point)  # ends a run that Airflow has asked to end


class StoppingIngest(TubeMQCursorIngestOperator):
    """The operator, stopped at a point of its first try."""

    def __init__(self, *, stop_at: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stop_at = stop_at

    def observer(self, context: Context, job: Any) -> Any:
        reached = LAKES / "reached" / self.dag_id
        return StopAt(super().observer(context, job), self.stop_at, reached)


class SubmittingIngest(TubeMQCursorIngestOperator):
    """The operator with a `spark-submit` of the tests', which waits for a word."""

    def _run_try(self, context: Context, try_state: Any) -> dict[str, Any]:
        os.environ |= {"SPARK_HOME": str(LAKES / "submit" / "spark"), "FAKE_SUBMIT": "holds"}
        return super()._run_try(context, try_state)


class Idle(BaseOperator):
    """Takes a slot and does nothing in it."""

    def execute(self, context: Context) -> None:
        """Done."""


class UseStore(BaseOperator):
    """Put the store of a real task through what `WindowRun` does with it, failing its first try."""

    def __init__(self, **kwargs: Any) -> None:
        asset = offsets_asset("test", "drill", "store")
        super().__init__(inlets=[asset], outlets=[asset], **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        store = AssetStateOffsetStore.from_context(context, self.inlets[0])
        before: dict[str, Any] = {
            "writer": store.writer,
            "cursor": store.load_cursor(),
            "plan": store.load_plan("c-1-0123456789"),
            "task_plan": store.load_task_plan(),
            "event": store.newest_position(),
        }
        seq = (before["cursor"] or {"seq": 0})["seq"] + 1
        store.store_cursor({"seq": seq, "next": {"1:0": 2**53 + 28}, "text": "Größe ✓"})
        store.store_plan("c-1-0123456789", {"ranges": {"1:0": [0, 28]}})
        store.store_plan("c-0-0123456789", {"ranges": {}})
        store.forget_plan("c-0-0123456789")
        store.forget_plan("c-0-0123456789")
        store.store_task_plan({"seq": seq})
        store.emit({"seq": seq, "position": {"seq": seq}})
        if context["ti"].try_number == 1:
            raise RuntimeError("the first try fails after it has written everything")
        return before


def dag(dag_id: str) -> DAG:
    return DAG(
        dag_id=dag_id,
        schedule=None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        default_args={"retries": 2, "retry_delay": timedelta(seconds=1)},
    )


def ingest(dag_id: str, topic: str, **arguments: Any) -> dict[str, Any]:
    return {
        "task_id": "ingest",
        "topic": topic,
        "group": dag_id,
        "cluster": "test",
        "path": str(LAKES / dag_id),
        "engine": "inline",
        "initial_position": "earliest",
        **arguments,
    }


for kill_point in KILL_POINTS:
    name = re.sub(r"\W+", "_", f"kill_{kill_point}").strip("_")
    with dag(name) as drill:
        StoppingIngest(stop_at=kill_point, commit_to_broker=True, **ingest(name, "kills"))
    globals()[name] = drill

with dag("drill_deferrable"):
    SubmittingIngest(
        deferrable=True,
        **ingest(
            "drill_deferrable",
            "submitted",
            engine=SparkSubmit(work_dir=str(LAKES / "submit" / "work")),
        ),
    )

with dag("drill_deferrable_spark"):
    # Both of a pool that has one slot.
    TubeMQCursorIngestOperator(
        deferrable=True,
        transform="spark_gate.held",
        pool="single",
        weight_rule="absolute",
        priority_weight=10,
        **ingest(
            "drill_deferrable_spark",
            "submitted",
            engine=SparkSubmit(
                conf={
                    "spark.driver.memory": "512m",
                    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
                },
                work_dir=str(LAKES / "submit_spark" / "work"),
            ),
        ),
    )
    Idle(task_id="meanwhile", pool="single", weight_rule="absolute")

with dag("drill_empty_runs"):
    TubeMQCursorIngestOperator(**ingest("drill_empty_runs", "drill"))

SINKS = {
    "delta": {"sink": f"delta:{LAKES}/sinks/delta"},
    "jdbc": {"sink": f"sqlite:///{LAKES}/sinks/lake.db?table=orders"},
    "iceberg": {"sink": "iceberg:lake/sales.orders", "sink_conn_id": "lake_catalog"},
    "append": {"sink": f"append:{LAKES}/sinks/append", "exactly_once": False},
}
for kind, arguments in SINKS.items():
    name = f"drill_sink_{kind}"
    with dag(name) as drill:
        TubeMQCursorIngestOperator(**ingest(name, "sinks", path=None, **arguments))
    globals()[name] = drill

with dag("drill_wrong_cluster"):
    TubeMQCursorIngestOperator(**ingest("drill_wrong_cluster", "drill", cluster="elsewhere"))

with dag("drill_marked_failed"):
    StoppingIngest(stop_at="ingest:", **ingest("drill_marked_failed", "kills"))

with dag("drill_spark"):
    StoppingIngest(
        stop_at="ingest:files written", **ingest("drill_spark", "drill", engine="session")
    )

with dag("drill_store"):
    UseStore(task_id="use_store")

for mode in ("poke", "reschedule"):
    waiting: dict[str, Any] = {"mode": mode, "poke_interval": 1, "timeout": 60}
    with dag(f"sense_ready_{mode}") as drill:
        TubeMQPartitionReadySensor(
            task_id="sense",
            topic="sense",
            until_offsets="{{ dag_run.conf['until_offsets'] | tojson }}",
            **waiting,
        )
    globals()[f"sense_ready_{mode}"] = drill
    for of in ("cursor", "broker"):
        with dag(f"sense_lag_{of}_{mode}") as drill:
            TubeMQLagSensor(
                task_id="sense",
                topic="sense",
                group="sense_lag",
                cluster="test",
                of=of,
                min_lag="{{ dag_run.conf['min_lag'] }}",
                **waiting,
            )
        globals()[f"sense_lag_{of}_{mode}"] = drill

with dag("deferred_sense") as deferred:
    TubeMQLagSensor(
        task_id="lag",
        topic="deferred",
        group="sense_deferred",
        cluster="test",
        deferrable=True,
        poke_interval=1,
        timeout=120,
    )


class Hear(BaseOperator):
    """Write down the events of the sink's asset that this run received."""

    def execute(self, context: Context) -> list[Any]:
        return [
            dict(event.extra)
            for events in context["triggering_asset_events"].values()
            for event in events
        ]


with dag("tell"):
    cap = "{{ dag_run.conf.get('max_records', 1000) }}"
    StoppingIngest(stop_at="publish:published", **ingest("tell", "told", max_records=cap))
with DAG(
    "hear",
    schedule=[sink_asset(str(LAKES / "tell"))],
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
):
    Hear(task_id="hear")
