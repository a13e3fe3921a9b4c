"""Offset store in memory: for tests and notebooks, and as the simplest implementation.

Documents are stored as JSON text, so that values that a remote store would change or refuse are
changed or refused here too. Nothing survives the process. This module must not import airflow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from tubemq_provider.windows.canonical import canonical_json
from tubemq_provider.windows.protocols import Document

__all__ = ["MemoryJournal", "MemoryOffsetStore"]

_RECENT = 25


@dataclass
class MemoryJournal:
    """Documents that all runs of one group share, and each task's plan. JSON texts by name."""

    cursor: str | None = None
    plans: dict[str, str] = field(default_factory=dict)
    task_plans: dict[str, str] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)


class MemoryOffsetStore:
    """Offset store of one try of task `task`; see `OffsetStore`. Events are stored at once."""

    def __init__(self, journal: MemoryJournal, *, task: str = "task") -> None:
        self._journal = journal
        self._task = task

    @property
    def writer(self) -> str:
        return self._task

    def load_cursor(self) -> Document | None:
        return _parsed(self._journal.cursor)

    def store_cursor(self, document: Document) -> None:
        self._journal.cursor = canonical_json(document)

    def load_plan(self, window_id: str) -> Document | None:
        return _parsed(self._journal.plans.get(window_id))

    def store_plan(self, window_id: str, document: Document) -> None:
        self._journal.plans[window_id] = canonical_json(document)

    def forget_plan(self, window_id: str) -> None:
        self._journal.plans.pop(window_id, None)

    def load_task_plan(self) -> Document | None:
        return _parsed(self._journal.task_plans.get(self._task))

    def store_task_plan(self, document: Document) -> None:
        self._journal.task_plans[self._task] = canonical_json(document)

    def newest_position(self) -> Document | None:
        events = map(_parsed, reversed(self._journal.events))
        return next((event for event in events if event and event.get("position")), None)

    def recent_events(self) -> Iterable[Document]:
        """Return some of the newest commit events, newest first."""
        return list(filter(None, map(_parsed, reversed(self._journal.events[-_RECENT:]))))

    def emit(self, document: Document) -> None:
        self._journal.events.append(canonical_json(document))


def _parsed(text: str | None) -> Document | None:
    if text is None:
        return None
    document: Document = json.loads(text)
    return document
