"""Whether a person has had a task done again, as far as a try of it can tell.

Airflow counts the clears of a Dag run, but not those of a REST request with ``"reset_dag_runs":
false``; and with every clear, these too, it allows a task instance more tries than its retries are.
Reads a context, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["is_cleared", "most_tries", "run_clears"]


def run_clears(context: Mapping[str, Any]) -> int:
    """How often tasks of the run were cleared together with the run."""
    return int(getattr(context.get("dag_run"), "clear_number", 0) or 0)


def most_tries(context: Mapping[str, Any]) -> int | None:
    """A number that every clear of the task instance raises, and nothing else changes; None where
    Airflow does not say it."""
    found = getattr(context["ti"], "max_tries", None)
    return found if isinstance(found, int) else None


def is_cleared(context: Mapping[str, Any], retries: int | None) -> bool:
    """Whether the task instance, or another one of its run, was cleared; `retries` are the task's.
    So it seems as well where its author has lowered them since Airflow made the task instance."""
    return run_clears(context) > 0 or (most_tries(context) or 0) > (retries or 0)
