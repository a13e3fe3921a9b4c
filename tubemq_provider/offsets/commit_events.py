"""Progress in commit events alone: for Airflow before asset state, and as a last resort.

A commit event is recorded in the transaction of the task's success, so what it says is true; but
nothing of a group can be kept *during* a run, only the plan of a task for its own tries, where
Airflow keeps state of tasks. Of two plans of one window the sink's marker decides, and both begin
at the same place; and without a cursor every run looks for holes among the windows of the sink.
Time windows need a sink that fixes boundaries. Uses Airflow's accessors by shape only.
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
"""Commit events nest under this key of an event's extra, so that users' own extras fit beside."""

_FIRST_PAGE = 1
_PAGE_GROWTH = 5
"""An event of ten thousand partitions has about a megabyte, and nearly always the newest one has a
position: asking for twenty at once would fetch nineteen in vain, on every run."""

_LOOKED_THROUGH = 2000

RECENT: Final = 25
"""This many of the newest commit events are read where a position is not sure to be among them."""


class OutletEvent(Protocol):
    """Airflow's accessor of the event this task will emit on one outlet."""

    extra: dict[str, Any]


class TaskPlan(Protocol):
    """Where the plan of a task run is kept for its own tries."""

    def load(self) -> Document | None:
        """The plan, or None."""

    def store(self, document: Document) -> None:
        """Replace the plan."""


class CommitEventStore:
    """The store of one try of one task; see `OffsetStore`. What is stored but no event is dropped:
    cursor and plans read as None, as after a wipe of asset state. `task_plan` keeps the task's own
    plan for later tries, where there is such a place."""

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
        """The store for the running task, which must have `asset` as inlet and as outlet."""
        state = context.get("task_state_store")
        return cls(
            inlet_events=context["inlet_events"][asset],
            outlet_event=context["outlet_events"][asset],
            writer=writer_of(context["ti"]),
            task_plan=None if state is None else TaskStatePlan(state),
        )

    @property
    def writer(self) -> str:
        """`<dag>|<run>|<task>|<map index>`."""
        return self._writer

    def load_cursor(self) -> Document | None:
        """Nothing: the newest event has the position."""
        return None

    def store_cursor(self, document: Document) -> None:
        """Checks the document and keeps nothing; the event of this run will say it."""
        canonical_json(document)

    def load_plan(self, window_id: str) -> Document | None:  # noqa: ARG002 - the protocol's
        """Nothing; a published window's plan is in its marker."""
        return None

    def store_plan(self, window_id: str, document: Document) -> None:  # noqa: ARG002
        """Checks the document and keeps nothing."""
        canonical_json(document)

    def forget_plan(self, window_id: str) -> None:
        """Nothing to forget."""

    def load_task_plan(self) -> Document | None:
        """The plan that an earlier try of this task run kept, or None; None before Airflow 3.3."""
        return None if self._task_plan is None else self._task_plan.load()

    def store_task_plan(self, document: Document) -> None:
        """Keep the plan for later tries of this task run, where Airflow keeps state of tasks."""
        canonical_json(document)
        if self._task_plan is not None:
            self._task_plan.store(document)

    def load_timeline(self) -> Document | None:
        """Nothing: samples of ends are kept in asset state."""
        return None

    def newest_position(self) -> Document | None:
        """The newest commit event that has a position, or None."""
        return newest_position(self._inlet_events)

    def recent_events(self) -> Iterable[Document]:
        """The newest commit events, the newest first; some are enough."""
        return self._recent

    def emit(self, document: Document) -> None:
        """Give the commit event; Airflow records it in the transaction of the task's success."""
        give_event(self._outlet_event, document)


def writer_of(ti: Any) -> str:
    """How a task instance is named in cursors and claims; the same for all its tries."""
    return f"{ti.dag_id}|{ti.run_id}|{ti.task_id}|{ti.map_index}"


def give_event(outlet_event: OutletEvent, document: Document) -> None:
    """Put a commit event into what the task will emit. Raises `TypeError` for floats and such."""
    canonical_json(document)
    outlet_event.extra = {**outlet_event.extra, EVENT_KEY: document}


def commit_event(extra: Mapping[str, Any] | None) -> Document | None:
    """The commit event in an asset event's extra, or None."""
    document = (extra or {}).get(EVENT_KEY)
    return document if isinstance(document, dict) else None


class RecentEvents:
    """Some of the newest commit events, the newest first: read as far as somebody asks, and then
    remembered."""

    def __init__(self, inlet_events: Any) -> None:
        self._unread = _recent(inlet_events)
        self._read: list[Document] = []

    def __iter__(self) -> Iterator[Document]:
        yield from list(self._read)
        for document in self._unread:
            self._read.append(document)
            yield document


def newest_position(inlet_events: Any) -> Document | None:
    """The newest commit event that has a position, or None if no event has one.

    Normally one request for one event; only a row of events without a position makes it ask for
    more, five times as many each time.
    """
    for extra in _newest_first(inlet_events):
        document = commit_event(extra)
        if document is not None and document.get("position") is not None:
            return document
    return None


def is_accepted(inlet_events: Any, window_id: str) -> bool:
    """Whether a commit event tells of this window. Looks at some thousand of the newest events, so
    an older one may be overlooked."""
    for seen, extra in enumerate(_newest_first(inlet_events)):
        document = commit_event(extra)
        if document is not None and document.get("window_id") == window_id:
            return True
        if seen >= _LOOKED_THROUGH:
            return False
    return False


def _recent(inlet_events: Any) -> Iterator[Document]:
    """The newest commit events, at most `RECENT`.

    Successes without one count for nothing, as tasks that only look can have any number of them.
    The newest commit event is found however many there are; others among some thousand events.
    """
    found = 0
    for seen, extra in enumerate(_newest_first(inlet_events), start=1):
        document = commit_event(extra)
        if document is not None:
            found += 1
            yield document
        if found >= RECENT or (found and seen >= _LOOKED_THROUGH):
            return


def _newest_first(inlet_events: Any) -> Iterable[Mapping[str, Any] | None]:
    """Extras of an inlet's events. Older Airflow gives a plain sequence, oldest first; newer ones
    can be asked for some of the newest."""
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
