"""Liveness of the tasks that hold claims, by their state in Airflow.

A claim names its task as ``<dag>|<run>|<task>|<map index>``. Adopting a claim of a live task is
safe, since the sink's marker decides, but repeats work; never adopting one would block the group.
So only final states count as ended, and unknown ones as alive. A task that succeeded and left its
claim has planned for other tasks of its run: these may still read and commit until the run ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["task_is_over"]

_RUN_OVER = frozenset({"success", "failed"})
_TASK_OVER = frozenset({"failed", "skipped", "upstream_failed", "removed"})
_NOT_FOUND = 404


def task_is_over(ti: Any) -> Callable[[str], bool]:
    """Return a function that is True for claimants whose task has ended, asked through the running
    task instance `ti` and cached."""
    answers: dict[str, bool] = {}

    def is_over(claimant: str) -> bool:
        if claimant not in answers:
            answers[claimant] = _ask(ti, claimant)
        return answers[claimant]

    return is_over


def _ask(ti: Any, claimant: str) -> bool:
    parts = claimant.rsplit("|", 2)
    dag_id, _, run_id = parts[0].partition("|")
    if len(parts) != 3 or not run_id:
        return False
    task_id, map_index = parts[1], int(parts[2])
    try:
        if ti.get_dagrun_state(dag_id, run_id) in _RUN_OVER:
            return True
        states = ti.get_task_states(dag_id, run_ids=[run_id], task_ids=[task_id])
    except Exception as exc:
        detail = getattr(getattr(exc, "error", None), "detail", None)
        # The run was deleted, and its tasks with it.
        if isinstance(detail, dict) and detail.get("status_code") == _NOT_FOUND:
            return True
        raise
    name = task_id if map_index < 0 else f"{task_id}_{map_index}"
    return (states.get(run_id) or {}).get(name) in _TASK_OVER
