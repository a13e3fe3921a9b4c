"""Clears of a task instance, as far as one of its tries can tell.

Airflow counts the clears of a Dag run, but not those by a REST request with ``"reset_dag_runs":
false``. Every clear, these included, raises `max_tries` of the task instance. Reads a context,
nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["is_cleared", "most_tries", "run_clears"]


def run_clears(context: Mapping[str, Any]) -> int:
    """Return how often tasks of the run were cleared together with the run."""
    return int(getattr(context.get("dag_run"), "clear_number", 0) or 0)


def most_tries(context: Mapping[str, Any]) -> int | None:
    """Return `max_tries`, which only a clear raises; None where Airflow does not provide it."""
    max_tries = getattr(context["ti"], "max_tries", None)
    return max_tries if isinstance(max_tries, int) else None


def is_cleared(context: Mapping[str, Any], retries: int | None) -> bool:
    """Return True if the task instance, or another one of its run, was cleared.

    `retries` are those of the task. Also True if the author has lowered them since Airflow created
    the task instance.
    """
    return run_clears(context) > 0 or (most_tries(context) or 0) > (retries or 0)
