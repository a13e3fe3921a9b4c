"""Rules for setting a group's position by hand, as functions of documents without a store.

Used by the command line, which writes through Airflow's database, and by the operator, which writes
as a task does. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from tubemq_client import errors
from tubemq_provider.windows.canonical import rfc3339
from tubemq_provider.windows.cursor import (
    BY_HAND,
    CURSOR_VERSION,
    Position,
    epoch_of,
    is_by_hand,
    newer_position,
    past_epochs,
)
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.plan import WindowKind
from tubemq_provider.windows.protocols import Document
from tubemq_provider.windows.spaces import OffsetSpace
from tubemq_provider.windows.versions import VERSIONS

__all__ = ["cursor_of_event", "moved", "moved_event", "named_offsets", "stamp", "standing"]


def standing(
    cursor: Document | None, event: Document | None, group: str, space: OffsetSpace
) -> Document:
    """Return the position of a group as a cursor document.

    It is the stored cursor, unless the newest event is ahead of it, which happens after the group
    moved to a store without cursors; with claimed windows always the cursor. Raises
    `errors.ConfigError` for a group without progress."""
    claimed = cursor is not None and (cursor.get("pending") or cursor.get("done"))
    if cursor is not None and (claimed or newer_position(cursor, event) is cursor):
        return cursor
    rev = {"rev": cursor["rev"]} if cursor and "rev" in cursor else {}
    return {**cursor_of_event(event, group, space), **rev}


def moved(
    cursor: Document, event: Document | None, offsets: Mapping[str, int], *, by: str, now: datetime
) -> Document:
    """Return `cursor` with other offsets; the number of the last accepted window stays.

    Anchors are removed, since the offsets may be set because the logs were recreated; so is the
    list of windows that the sink must have, since they may be set because the sink has lost them.
    Raises `errors.ConfigError` if windows are claimed, or if the epoch has no window yet.
    """
    if cursor.get("pending") or cursor.get("done"):
        raise errors.ConfigError(
            "windows are claimed or written beyond the position; let runs finish them first",
            subject="offsets",
        )
    if "next" not in cursor:
        raise errors.ConfigError(
            f"epoch {epoch_of(cursor)!r} has no window yet; say where it begins with 'offsets "
            f"epoch' under another name",
            subject="offsets",
        )
    # A cursor with a lower number would count as behind the newest event.
    accepted = event["position"]["seq"] if event and epoch_of(event) == epoch_of(cursor) else 0
    members = {name: value for name, value in cursor.items() if name not in {"last", "newest"}}
    seq = max(cursor["seq"], accepted)
    return {
        **members,
        "seq": seq,
        "next": dict(offsets),
        BY_HAND: 1,
        **stamp(cursor, by=by, now=now),
    }


def moved_event(cursor: Document, event: Document | None) -> Document | None:
    """Return the commit event of a task that has set a group's position to `cursor`: an event
    without a window, used by stores without cursors, and by others once their cursor is lost.

    None if `event`, the newest one, is not of the last window: the next run's event must list that
    window as recovered, and would not after this event.
    """
    position: Document = (event or {}).get("position") or {}
    if event is None or any(position.get(name) != cursor.get(name) for name in ("h", "seq")):
        return None
    document: Document = {
        "v": VERSIONS["event"],
        **{name: str(cursor.get(name, "")) for name in ("cluster", "topic", "group")},
        "kind": WindowKind.CURSOR.value,
    }
    if (past := past_epochs(cursor)) or epoch_of(cursor):
        document |= {"epoch": epoch_of(cursor), "past": list(past)}
    document["position"] = {name: cursor[name] for name in ("h", "seq", "next")}
    if is_by_hand(cursor):
        document["position"][BY_HAND] = 1
    document["recovered"] = []
    return document | ({"pace": event["pace"]} if "pace" in event else {})


def stamp(cursor: Document, *, by: str, now: datetime) -> Document:
    """Return the members of a change: the next revision, its author `by` and the time `now`."""
    return {"rev": int(cursor.get("rev", 0)) + 1, "by": by, "updated": rfc3339(now)}


def cursor_of_event(event: Document | None, group: str, space: OffsetSpace) -> Document:
    """Return a cursor from a commit event. Raises `errors.ConfigError` without an event."""
    if event is None:
        raise errors.ConfigError(
            f"{group} has no progress yet; give its first run initial_position instead",
            subject="offsets",
        )
    stored = event["position"]
    position = Position(stored["seq"], stored["next"], by_hand=is_by_hand(stored))
    keys = ("cluster", "topic", "group", "epoch")
    names: Document = {name: str(event.get(name, "")) for name in keys}
    names |= {"past": list(past)} if (past := past_epochs(event)) else {}
    h = event["position"]["h"]
    return {"v": CURSOR_VERSION, **names, **position.to_document(h, space)}


def named_offsets(
    given: object, known: Iterable[str], space: OffsetSpace, *, subject: str
) -> dict[str, int]:
    """Return a user's offsets of all `known` partitions. Raises `DocumentError` for problems."""
    if not isinstance(given, Mapping) or not given:
        raise DocumentError(subject, ["it is not an object of offsets by partition"])
    problems = [f"{key!r} is not {space.key_form}" for key in given if not space.is_key(key)]
    problems += [
        f"{key}: {bad}" for key, value in given.items() if (bad := space.offset_problem(value))
    ]
    if missing := space.ordered(set(known) - set(given)):
        problems.append(f"name every partition of the group; missing: {', '.join(missing)}")
    if problems:
        raise DocumentError(subject, problems)
    return dict(given)
