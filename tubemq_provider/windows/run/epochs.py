"""Which epoch of a group is the present one: what stores know, for tasks that name none.

An epoch is a life of a topic that a group follows. It is part of every window's id, so windows of
two lives never meet. An operator begins one, by command or with a task's argument, when a topic was
made anew; from then on cursor and events say which it is, and which have ended. Reads only.
"""

from __future__ import annotations

from tubemq_provider.windows.cursor import epoch_of, newer_position
from tubemq_provider.windows.protocols import OffsetStore

__all__ = ["stored_epoch"]


def stored_epoch(store: OffsetStore) -> str:
    """The epoch that the newer of cursor and commit event says; "" where neither does."""
    cursor = store.load_cursor()
    event = store.newest_position()
    newest = newer_position(cursor, event)
    return epoch_of(cursor if newest is not None and newest is cursor else event)
