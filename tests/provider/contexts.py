"""A task's context in memory, as far as this provider's operators look into it.

State is kept in a dictionary that outlives tries and tasks: by asset what the asset has, under
``task`` what the task run has, under ``events`` the commit events of successes. `fake_context` of a
later task sees what earlier ones left. Nothing here decides anything.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

__all__ = ["accept", "fake_context"]


class FakeState:
    """A state accessor over a dictionary."""

    def __init__(self, kept: dict[str, Any]) -> None:
        self._kept = kept

    def get(self, key: str, default: Any = None) -> Any:
        return self._kept.get(key, default)

    def set(self, key: str, value: Any, **_: Any) -> None:
        self._kept[key] = value

    def delete(self, key: str) -> None:
        self._kept.pop(key, None)


class FakeEvents(list[Any]):
    """Events of an asset, the newest first."""

    def ascending(self, ascending: bool = True) -> FakeEvents:
        return self

    def limit(self, limit: int) -> FakeEvents:
        return FakeEvents(self[:limit])


class States(dict[Any, Any]):
    """State by asset, made when it is asked for."""

    def __init__(self, kept: dict[Any, Any]) -> None:
        super().__init__()
        self._kept = kept

    def __missing__(self, asset: Any) -> FakeState:
        return FakeState(self._kept.setdefault(asset, {}))


class Inlets(dict[Any, Any]):
    def __init__(self, kept: dict[Any, Any]) -> None:
        super().__init__()
        self._kept = kept

    def __missing__(self, asset: Any) -> FakeEvents:
        found = self._kept.get("events", {}).get(asset, [])
        return FakeEvents(SimpleNamespace(extra=extra) for extra in found)


def fake_context(task: Any, kept: dict[Any, Any], *, run: str = "r1", **more: Any) -> Any:
    """The context of a try of `task` in run `run`, over what is `kept`."""
    key = ("task", task.task_id, run)
    ti = SimpleNamespace(
        id=uuid.uuid4(),
        task=task,
        dag_id="d",
        task_id=task.task_id,
        run_id=run,
        map_index=-1,
        try_number=1,
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
        "task_state_store": FakeState(kept.setdefault(key, {})),
        "inlet_events": Inlets(kept),
        "outlet_events": defaultdict(lambda: SimpleNamespace(extra={})),
        **more,
    }


def accept(context: Any, kept: dict[Any, Any]) -> None:
    """The task has succeeded: its events become visible, the newest first."""
    for asset, event in context["outlet_events"].items():
        if asset in context["ti"].task.outlets:
            kept.setdefault("events", {}).setdefault(asset, []).insert(0, event.extra)
