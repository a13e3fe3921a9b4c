"""Dags on an Airflow with the ledger's backend: contention, claims, and the store of events."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, Context

from tubemq_provider.assets import offsets_asset
from tubemq_provider.offsets.ledger.store import LedgerStore
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator

LAKES = Path(os.environ.get("TUBEMQ_LEDGER_LAKES", "lakes"))


class Count(BaseOperator):
    """Add one to a number in the ledger, ten times, concurrently with others."""

    def __init__(self, **kwargs: Any) -> None:
        self.asset = offsets_asset("test", "count", "contended")
        super().__init__(inlets=[self.asset], outlets=[self.asset], **kwargs)

    def execute(self, context: Context) -> None:
        store = LedgerStore.from_context(context, self.asset)
        for _ in range(10):
            store.change_cursor(lambda found: {"n": (found or {"n": 0})["n"] + 1})


class WaitAfterClaim:
    """An observer that waits behind the claim until the test releases it."""

    def __init__(self, inner: Any, name: str) -> None:
        self.inner = inner
        self.name = name

    def at(self, step: Any, point: str) -> None:
        self.inner.at(step, point)
        if point == "task plan stored":
            (LAKES / "claimed" / self.name).touch()
            import time

            for _ in range(600):
                if (LAKES / "go" / self.name).exists():
                    return
                time.sleep(0.1)


class Ingest(TubeMQCursorIngestOperator):
    """Operator that waits after its claim if the run's configuration asks for it."""

    def observer(self, context: Context, job: Any) -> Any:
        inner = super().observer(context, job)
        name = (context["dag_run"].conf or {}).get("wait")
        return WaitAfterClaim(inner, name) if name else inner


def dag(dag_id: str) -> DAG:
    return DAG(
        dag_id=dag_id,
        schedule=None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=4,
        default_args={"retries": 0, "retry_delay": timedelta(seconds=1)},
    )


with dag("ledger_count"):
    for number in range(4):
        Count(task_id=f"count_{number}")

for store in ("ledger", "events"):
    with dag(f"ingest_{store}") as made:
        Ingest(
            task_id="ingest",
            topic="orders",
            group=store,
            cluster="test",
            path=str(LAKES / store),
            engine="inline",
            initial_position="earliest",
            offset_store=store,
        )
    globals()[f"ingest_{store}"] = made
