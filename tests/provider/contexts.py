"""A task's context in memory, as far as this provider's operators look into it.

State and events are the stand-ins of `offsets.accessors`, in a dictionary that outlives tries and
tasks: by asset what the asset has, under ``task`` what the task run has, under ``events`` the
commit events of successes. `fake_context` of a later task sees what earlier ones left. Nothing here
decides anything.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from airflow.sdk.execution_time.task_runner import coerce_datetime

from tests.provider.offsets.accessors import Event, Inlet, State

__all__ = ["accept", "data_interval", "fake_context"]


class States(dict[Any, State]):
    """State by asset, made when it is asked for."""

    def __init__(self, kept: dict[Any, Any]) -> None:
        super().__init__()
        self._kept = kept

    def __missing__(self, asset: Any) -> State:
        return self._kept.setdefault(asset, State())


class Inlets(dict[Any, Inlet]):
    """The accepted events by asset."""

    def __init__(self, kept: dict[Any, Any]) -> None:
        super().__init__()
        self._kept = kept

    def __missing__(self, asset: Any) -> Inlet:
        return Inlet([Event(extra) for extra in self._kept.get("events", {}).get(asset, [])])


def data_interval(start: datetime, end: datetime) -> dict[str, Any]:
    """Return a data interval for a context, with pendulum's types as from Airflow's task runner."""
    return {
        "data_interval_start": coerce_datetime(start),
        "data_interval_end": coerce_datetime(end),
    }


def fake_context(task: Any, kept: dict[Any, Any], *, run: str = "r1", **more: Any) -> Any:
    """Return the context of the next try of `task` in run `run`, over the state `kept`."""
    key = ("task", task.task_id, run)
    kept["tries", key] = kept.get(("tries", key), 0) + 1
    ti = SimpleNamespace(
        id=uuid.uuid4(),
        task=task,
        dag_id="d",
        task_id=task.task_id,
        run_id=run,
        map_index=-1,
        try_number=kept["tries", key],
        xcom_push=lambda key, value: kept.setdefault("xcom", {}).update({key: value}),
    )
    return {
        "ti": ti,
        "task_instance": ti,
        "dag": None,
        "dag_run": SimpleNamespace(clear_number=0, run_type="scheduled", conf={}, run_id=run),
        "run_id": run,
        "params": {},
        "data_interval_start": None,
        "data_interval_end": None,
        "asset_state_store": States(kept),
        "task_state_store": kept.setdefault(key, State()),
        "inlet_events": Inlets(kept),
        "outlet_events": defaultdict(lambda: Event({})),
        **more,
    }


def accept(context: Any, kept: dict[Any, Any]) -> None:
    """Mark the task as succeeded: its events become visible."""
    for asset, event in context["outlet_events"].items():
        if asset in context["ti"].task.outlets:
            kept.setdefault("events", {}).setdefault(asset, []).append(event.extra)
