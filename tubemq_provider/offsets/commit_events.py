"""Offset store `events`: progress in commit events alone, for Airflow before asset state.

A commit event is stored in the transaction of the task's success, so it is reliable. But nothing of
a group can be stored *during* a run, except the plan of a task for its retries, if Airflow has task
state. Two runs may plan the same window: both plans begin at the same position, and the sink's
marker decides. Without a cursor every run checks the sink's windows for holes. Time windows need a
sink that fixes boundaries. Uses Airflow's accessors by shape only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Protocol, Self

from tubemq_provider.offsets.document_state import TaskStatePlan
from tubemq_provider.windows.canonical import canonical_json
from tubemq_provider.windows.protocols import Document

__all__ = [
    "EVENT_KEY",
    "RECENT",
    "CommitEventStore",
    "OutletEvent",
    "RecentEvents",
    "commit_event",
    "give_event",
    "is_accepted",
    "newest_position",
    "writer_of",
]

EVENT_KEY = "tubemq"
"""Key of the commit event in the extra of an asset event, which may have other extras of users."""

_FIRST_PAGE = 1
_PAGE_GROWTH = 5
"""Growth of pages of events. The newest event nearly always has a position, and one of ten thousand
partitions has about a megabyte, so the first page has one event."""

_LOOKED_THROUGH = 2000

RECENT: Final = 25
"""Most commit events that are read by callers that need not find a position."""


class OutletEvent(Protocol):
    """Airflow's accessor of the event that this task will emit on one outlet."""

    extra: dict[str, Any]


class TaskPlan(Protocol):
    """Store of a task run's plan, for its tries."""

    def load(self) -> Document | None:
        """Return the plan, or None."""

    def store(self, document: Document) -> None:
        """Replace the plan."""


class CommitEventStore:
    """Offset store of one try of one task; see `OffsetStore`.

    It drops everything but events: cursor and plans read as None, as after a wipe of asset state.
    `task_plan` stores the task's plan for later tries, if Airflow has task state."""

    def __init__(
        self,
        *,
        inlet_events: Any,
        outlet_event: OutletEvent,
        writer: str,
        task_plan: TaskPlan | None = None,
    ) -> None:
        self._task_plan = task_plan
        self._inlet_events = inlet_events
        self._recent = RecentEvents(inlet_events)
        self._outlet_event = outlet_event
        self._writer = writer

    @classmethod
    def from_context(cls, context: Mapping[str, Any], asset: Any) -> Self:
        """Create the store of the running task, which must have `asset` as inlet and outlet."""
        state = context.get("task_state_store")
        return cls(
            inlet_events=context["inlet_events"][asset],
            outlet_event=context["outlet_events"][asset],
            writer=writer_of(context["ti"]),
            task_plan=None if state is None else TaskStatePlan(state),
        )

    @property
    def writer(self) -> str:
        """Id of the writer, ``<dag>|<run>|<task>|<map index>``."""
        return self._writer

    def load_cursor(self) -> Document | None:
        """Return None: the newest event has the position."""
        return None

    def store_cursor(self, document: Document) -> None:
        """Check the document and store nothing; the event of this run will have the position."""
        canonical_json(document)

    def load_plan(self, window_id: str) -> Document | None:  # noqa: ARG002 - the protocol's
        """Return None; the plan of a published window is in its marker."""
        return None

    def store_plan(self, window_id: str, document: Document) -> None:  # noqa: ARG002
        """Check the document and store nothing."""
        canonical_json(document)

    def forget_plan(self, window_id: str) -> None:
        """Do nothing: no plan is stored."""

    def load_task_plan(self) -> Document | None:
        """Return the plan of an earlier try of this task run, or None; None before Airflow 3.3."""
        return None if self._task_plan is None else self._task_plan.load()

    def store_task_plan(self, document: Document) -> None:
        """Store the plan for later tries of this task run, if Airflow has task state."""
        canonical_json(document)
        if self._task_plan is not None:
            self._task_plan.store(document)

    def load_timeline(self) -> Document | None:
        """Return None: samples of ends are in asset state."""
        return None

    def newest_position(self) -> Document | None:
        """Return the newest commit event with a position, or None."""
        return newest_position(self._inlet_events)

    def recent_events(self) -> Iterable[Document]:
        """Return some of the newest commit events, newest first."""
        return self._recent

    def emit(self, document: Document) -> None:
        """Emit the commit event; Airflow stores it in the transaction of the task's success."""
        give_event(self._outlet_event, document)


def writer_of(ti: Any) -> str:
    """Return the id of a task instance in cursors and claims; equal for all its tries."""
    return f"{ti.dag_id}|{ti.run_id}|{ti.task_id}|{ti.map_index}"


def give_event(outlet_event: OutletEvent, document: Document) -> None:
    """Add a commit event to the outlet event of the task. Raises `TypeError` for floats etc."""
    canonical_json(document)
    outlet_event.extra = {**outlet_event.extra, EVENT_KEY: document}


def commit_event(extra: Mapping[str, Any] | None) -> Document | None:
    """Return the commit event in an asset event's extra, or None."""
    document = (extra or {}).get(EVENT_KEY)
    return document if isinstance(document, dict) else None


class RecentEvents:
    """Some of the newest commit events, newest first, read lazily and cached."""

    def __init__(self, inlet_events: Any) -> None:
        self._unread = _recent(inlet_events)
        self._read: list[Document] = []

    def __iter__(self) -> Iterator[Document]:
        yield from list(self._read)
        for document in self._unread:
            self._read.append(document)
            yield document


def newest_position(inlet_events: Any) -> Document | None:
    """Return the newest commit event with a position, or None.

    Normally one request for one event. After events without a position it requests more, five times
    as many each time.
    """
    for extra in _newest_first(inlet_events):
        document = commit_event(extra)
        if document is not None and document.get("position") is not None:
            return document
    return None


def is_accepted(inlet_events: Any, window_id: str) -> bool:
    """Return True if a commit event is of this window. Only some thousand of the newest events are
    read, so an older one may be missed."""
    for seen, extra in enumerate(_newest_first(inlet_events)):
        document = commit_event(extra)
        if document is not None and document.get("window_id") == window_id:
            return True
        if seen >= _LOOKED_THROUGH:
            return False
    return False


def _recent(inlet_events: Any) -> Iterator[Document]:
    """Yield the newest commit events, at most `RECENT`.

    Asset events without a commit event do not count: tasks that only observe may emit any number.
    The newest commit event is always found; others only among some thousand asset events.
    """
    count = 0
    for seen, extra in enumerate(_newest_first(inlet_events), start=1):
        document = commit_event(extra)
        if document is not None:
            count += 1
            yield document
        if count >= RECENT or (count and seen >= _LOOKED_THROUGH):
            return


def _newest_first(inlet_events: Any) -> Iterable[Mapping[str, Any] | None]:
    """Yield extras of an inlet's events, newest first. Older Airflow has a plain sequence, oldest
    first; newer ones can return a page of the newest."""
    if not hasattr(inlet_events, "ascending"):
        yield from (event.extra for event in reversed(list(inlet_events)))
        return
    seen, page = 0, _FIRST_PAGE
    while True:
        events = list(inlet_events.ascending(ascending=False).limit(page))
        yield from (event.extra for event in events[seen:])
        if len(events) < page:
            return
        seen, page = page, page * _PAGE_GROWTH
