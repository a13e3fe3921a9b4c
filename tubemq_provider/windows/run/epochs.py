"""Lookup of a group's current epoch in its stores, for tasks that name none.

A topic that was recreated counts its offsets from 0 again. An epoch is one such incarnation of a
topic as a group follows it, and part of every window id, so windows of two incarnations never
collide. A user begins an epoch by command or with a task's argument; from then on the cursor and
commit events name it, and the epochs that have ended. Read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tubemq_provider.windows.cursor import epoch_of, present_epoch
from tubemq_provider.windows.protocols import Document, OffsetStore

__all__ = [
    "StoredProgress",
    "recent_events",
    "stored_epoch",
    "stored_epoch_source",
    "stored_progress",
]


class StoredProgress(NamedTuple):
    """Cursor and newest commit event with a position, as read when a try began.

    Each read is a request to Airflow, so a run begins with those of the epoch's lookup. It reads
    the cursor again before it publishes and before it stores it.
    """

    cursor: Document | None
    event: Document | None


def recent_events(store: OffsetStore) -> Iterable[Document]:
    """Return newest commit events, with a position or without, newest first.

    Empty for a store that cannot read them without the older ones: it has no `recent_events`."""
    read: Callable[[], Iterable[Document]] | None = getattr(store, "recent_events", None)
    return () if read is None else read()


def stored_epoch(store: OffsetStore, *, chained: bool = True) -> str:
    """Return the current epoch; "" if none is stored. See `stored_epoch_source`."""
    return epoch_of(stored_epoch_source(store, store.load_cursor(), chained=chained))


def stored_progress(store: OffsetStore) -> tuple[str, StoredProgress]:
    """Return the current epoch for windows of a chain, and what it was read from."""
    cursor = store.load_cursor()
    event, standing = _newest_events(store, chained=True)
    return epoch_of(present_epoch(cursor, event, standing)), StoredProgress(cursor, event)


def stored_epoch_source(
    store: OffsetStore, cursor: Document | None, *, chained: bool = True
) -> Mapping[str, Any] | None:
    """Return the `cursor` or commit event that names the current epoch; see `present_epoch`.

    Events of standalone windows have no position, and a group may have years of them: unless the
    requested window is `chained`, only the newest events are read.
    """
    return present_epoch(cursor, *_newest_events(store, chained=chained))


def _newest_events(store: OffsetStore, *, chained: bool) -> tuple[Document | None, list[Document]]:
    """Return the newest event with a position, and newer ones without."""
    event: Document | None = None
    standing: list[Document] = []
    for recent in recent_events(store):
        if recent.get("position"):
            event = recent
            break
        standing.append(recent)
    if event is None and (chained or not hasattr(store, "recent_events")):
        event = store.newest_position()
    return event, standing
