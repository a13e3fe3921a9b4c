"""Which epoch of a group is the present one: what stores know, for tasks that name none.

An epoch is a life of a topic that a group follows. It is part of every window's id, so windows of
two lives never meet. An operator begins one, by command or with a task's argument, when a topic was
made anew; from then on cursor and events say which it is, and which have ended. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from tubemq_provider.windows.cursor import epoch_of, present_life
from tubemq_provider.windows.protocols import Document, OffsetStore

__all__ = ["RecallingStore", "recent_events", "stored_epoch", "stored_life"]


@runtime_checkable
class RecallingStore(Protocol):
    """An `OffsetStore` that can look at its newest commit events only."""

    def recent_events(self) -> Iterable[Document]:
        """The newest commit events, with a position or without, the newest first; some are
        enough."""


def recent_events(store: OffsetStore) -> Iterable[Document]:
    """The newest commit events, if `store` can look at them only."""
    return store.recent_events() if isinstance(store, RecallingStore) else ()


def stored_epoch(store: OffsetStore, *, chained: bool = True) -> str:
    """The present epoch; "" where nothing is stored of any. See `stored_life`."""
    return epoch_of(stored_life(store, store.load_cursor(), chained=chained))


def stored_life(
    store: OffsetStore, cursor: Document | None, *, chained: bool = True
) -> Mapping[str, Any] | None:
    """The `cursor` or commit event that says which epoch is the present one; see `present_life`.

    Events of windows that stand alone have no position, and a group may have years of them: unless
    the window asked for is `chained`, only the newest events are looked at.
    """
    event: Document | None = None
    standing: list[Document] = []
    for found in recent_events(store):
        if found.get("position"):
            event = found
            break
        standing.append(found)
    if event is None and (chained or not isinstance(store, RecallingStore)):
        event = store.newest_position()
    return present_life(cursor, event, standing)
