"""What a group's progress looks like after a person has set it: the rules, and no store.

Used by the command line, which writes through Airflow's database, and by the operator, which writes
as a task does. Pure functions of documents.
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
    """Where a group stands, as a cursor: its own unless the newest event is ahead of it, as it is
    where runs keep no cursor any more; always its own where windows are claimed. Raises
    `errors.ConfigError` for a group without progress."""
    claimed = cursor is not None and (cursor.get("pending") or cursor.get("done"))
    if cursor is not None and (claimed or newer_position(cursor, event) is cursor):
        return cursor
    rev = {"rev": cursor["rev"]} if cursor and "rev" in cursor else {}
    return {**cursor_of_event(event, group, space), **rev}


def moved(
    cursor: Document, event: Document | None, offsets: Mapping[str, int], *, by: str, now: datetime
) -> Document:
    """`cursor` with other offsets; the number of the last accepted window stays. By which records
    the logs were known is forgotten: they may have been set for logs that are others by now. So is
    which windows the sink has to have: a person may set offsets because it has lost them.

    Raises `errors.ConfigError` where windows are claimed, or there is no window to come after.
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
    # A cursor with a lower number would be taken for one that has fallen behind.
    accepted = event["position"]["seq"] if event and epoch_of(event) == epoch_of(cursor) else 0
    kept = {name: value for name, value in cursor.items() if name not in {"last", "newest"}}
    seq = max(cursor["seq"], accepted)
    return {
        **kept,
        "seq": seq,
        "next": dict(offsets),
        BY_HAND: 1,
        **stamp(cursor, by=by, now=now),
    }


def moved_event(cursor: Document, event: Document | None) -> Document | None:
    """The commit event of a task that has moved a group to `cursor`: that of a run without a
    window. Runs that keep no cursor go by it, others once their cursor is lost.

    None where `event`, the newest before it, does not tell of the last window: the next run's event
    has to, and would not behind this one.
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
    """The fields of a change: the next revision, its author `by` and the time `now`."""
    return {"rev": int(cursor.get("rev", 0)) + 1, "by": by, "updated": rfc3339(now)}


def cursor_of_event(event: Document | None, group: str, space: OffsetSpace) -> Document:
    """The cursor of a group that has only events. Raises `errors.ConfigError` if it has none."""
    if event is None:
        raise errors.ConfigError(
            f"{group} has no progress yet; give its first run initial_position instead",
            subject="offsets",
        )
    told = event["position"]
    position = Position(told["seq"], told["next"], by_hand=is_by_hand(told))
    keys = ("cluster", "topic", "group", "epoch")
    names: Document = {name: str(event.get(name, "")) for name in keys}
    names |= {"past": list(past)} if (past := past_epochs(event)) else {}
    h = event["position"]["h"]
    return {"v": CURSOR_VERSION, **names, **position.to_document(h, space)}


def named_offsets(
    given: object, known: Iterable[str], space: OffsetSpace, *, subject: str
) -> dict[str, int]:
    """Offsets of all `known` partitions. Raises `DocumentError` with every problem."""
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
