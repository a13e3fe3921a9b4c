"""Clears of a task instance, as far as one of its tries can tell.

Airflow counts the clears of a Dag run, but not those by a REST request with ``"reset_dag_runs":
false``. Every clear, these included, raises `max_tries` of the task instance. A cleared task notes
its clears in its state, so that the tries of one clear know each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["is_cleared", "is_retried", "most_tries", "run_clears", "try_number"]

_NOTE: Final = "clear"
"""Key of the task's state: the clears so far, and the plan that was stored before the last one."""


def run_clears(context: Mapping[str, Any]) -> int:
    """Return how often tasks of the run were cleared together with the run."""
    return int(getattr(context.get("dag_run"), "clear_number", 0) or 0)


def most_tries(context: Mapping[str, Any]) -> int | None:
    """Return `max_tries`, which only a clear raises; None where Airflow does not provide it."""
    max_tries = getattr(context["ti"], "max_tries", None)
    return max_tries if isinstance(max_tries, int) else None


def try_number(context: Mapping[str, Any]) -> int:
    """Return the number of the try, counted from 1."""
    return int(getattr(context["ti"], "try_number", 1) or 1)


def is_cleared(context: Mapping[str, Any], retries: int | None) -> bool:
    """Return True if the task instance, or another one of its run, was cleared.

    `retries` are those of the task. Also True if the author has lowered them since Airflow created
    the task instance.
    """
    return run_clears(context) > 0 or (most_tries(context) or 0) > (retries or 0)


def is_retried(
    context: Mapping[str, Any], retries: int | None, plan_hash: Callable[[], str | None]
) -> bool:
    """Return True if an earlier try began what this one continues with: one since the last clear,
    if the task was cleared, that has stored another plan than was there before (`plan_hash`)."""
    if try_number(context) <= 1:
        return False
    if not is_cleared(context, retries):
        return True
    state: Any = context.get("task_state_store")
    if state is None:
        return False
    clears, note = [run_clears(context), most_tries(context)], state.get(_NOTE)
    if isinstance(note, Mapping) and note.get("clears") == clears:
        return bool(plan_hash() != note.get("plan"))
    state.set(_NOTE, {"clears": clears, "plan": plan_hash()})
    return False
