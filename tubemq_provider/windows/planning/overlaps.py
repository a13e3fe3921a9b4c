"""Time windows of one scope that reach into each other, or leave time between them.

A window's id names its interval, so one listing of the sink tells what is published. A schedule
that was changed from hours to two hours, or a backfill by days over hours, may ask for windows that
reach into others: they would store those records again, and are refused. Or its first window may
begin behind the end of the last one: what lies between is in no window, which is told. Pure
functions of ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from tubemq_provider.windows.canonical import basic_instant, parse_basic_instant, rfc3339
from tubemq_provider.windows.errors import BoundaryConflict
from tubemq_provider.windows.plan import time_window_id

__all__ = ["interval_of", "missing_beside", "missing_text", "refuse_overlaps"]

Interval = tuple[datetime, datetime]
_SHOWN = 3


def interval_of(window_id: str, scope_hash: str) -> Interval | None:
    """The interval that the id of a time window of scope `h` names; None for any other id."""
    kind, *rest = window_id.split("-")
    if kind != "t" or len(rest) != 3 or rest[2] != scope_hash:
        return None
    try:
        return parse_basic_instant(rest[0]), parse_basic_instant(rest[1])
    except ValueError:
        return None


def refuse_overlaps(window_ids: Iterable[str], interval: Interval, scope_hash: str) -> None:
    """Raise `BoundaryConflict` if a published window of scope `h` lies partly or wholly in
    `interval`, or around it. The very window of `interval` is no trouble."""
    start, end = interval
    low, high = map(_text, interval)
    ids = (
        f"t-{first}Z-{last}Z-{scope_hash}"
        for first, last in _texts(window_ids, scope_hash)
        if first < high and low < last
    )
    found = sorted(
        known
        for known in (interval_of(window_id, scope_hash) for window_id in ids)
        if known is not None and known != interval and known[0] < end and start < known[1]
    )
    if not found:
        return
    problems = [f"{time_window_id(*known, scope_hash)} is published" for known in found[:_SHOWN]]
    if len(found) > _SHOWN:
        problems.append(f"and {len(found) - _SHOWN} more")
    free = " and ".join(f"{rfc3339(a)} to {rfc3339(b)}" for a, b in _free(interval, found))
    rest = (
        f"run {free} instead, with start and end of a task of the same group and sink"
        if free
        else "nothing of it is left to run"
    )
    raise BoundaryConflict(
        f"the window from {rfc3339(start)} to {rfc3339(end)} would store records again",
        problems,
        [f"{rest}; to have all of it in other pieces, take another group or another sink"],
    )


def missing_beside(
    window_ids: Iterable[str], interval: Interval, scope_hash: str
) -> list[Interval]:
    """The time between `interval` and its nearest published neighbours in scope `h`, on both sides,
    that no published window has. Empty where there is no neighbour on a side, or it touches."""
    start, end = interval
    low, high = map(_text, interval)
    texts = _texts(window_ids, scope_hash)
    ends = [last for _, last in texts if last <= low]
    begins = [first for first, _ in texts if first >= high]
    before = parse_basic_instant(f"{max(ends)}Z") if ends else start
    after = parse_basic_instant(f"{min(begins)}Z") if begins else end
    return [(low, high) for low, high in ((before, start), (end, after)) if low < high]


def missing_text(missing: Iterable[Interval], interval: Interval) -> str:
    """What to say of time that is in no window beside `interval`."""
    spans = " and ".join(f"{rfc3339(low)} to {rfc3339(high)}" for low, high in missing)
    return (
        f"no published window has {spans}, beside the window from {rfc3339(interval[0])} to "
        f"{rfc3339(interval[1])}: a run that is under way may bring it; if none is (the schedule "
        f"was changed, or a run was passed over), run a task of the same group and sink once with "
        f"exactly that start and end"
    )


def _text(instant: datetime) -> str:
    """Spell an instant as ids do, without the ``Z``: such texts sort like the instants."""
    return basic_instant(instant).removesuffix("Z")


def _texts(window_ids: Iterable[str], scope_hash: str) -> list[tuple[str, str]]:
    """Return the intervals of a scope as their ids spell them: few are needed as instants."""
    id_ = re.compile(f"t-([0-9T.]+)Z-([0-9T.]+)Z-{scope_hash}")
    return [(found[1], found[2]) for found in map(id_.fullmatch, window_ids) if found]


def _free(interval: Interval, taken: Iterable[Interval]) -> Iterable[Interval]:
    """What `taken`, in order, leaves of `interval`."""
    at, end = interval
    for low, high in taken:
        if at < low:
            yield at, low
        at = max(at, high)
    if at < end:
        yield at, end
