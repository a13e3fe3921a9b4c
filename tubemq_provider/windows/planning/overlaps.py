"""Time windows of one scope that would hold the same records: found before anything is read.

A window's id names its interval, so one listing of the sink tells what is published. A schedule
that was changed from hours to two hours, or a backfill by days over hours, asks for windows that
reach into others: they would store those records again, and are refused. Pure functions of ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from tubemq_provider.windows.canonical import basic_instant, parse_basic_instant, rfc3339
from tubemq_provider.windows.errors import BoundaryConflict
from tubemq_provider.windows.plan import time_window_id

__all__ = ["interval_of", "refuse_overlaps"]

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
    # Texts of instants sort like the instants, but for their last letter.
    low, high = (basic_instant(instant).removesuffix("Z") for instant in interval)
    id_ = re.compile(f"t-([0-9T.]+)Z-([0-9T.]+)Z-{scope_hash}")
    ids = (
        found[0]
        for found in map(id_.fullmatch, window_ids)
        if found and found[1] < high and low < found[2]
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
        f'run {free} instead, e.g. with {{"tubemq_window": {{"start": …, "end": …}}}} as conf'
        if free
        else "nothing of it is left to run"
    )
    raise BoundaryConflict(
        f"the window from {rfc3339(start)} to {rfc3339(end)} would store records again",
        problems,
        [f"{rest}; to have all of it in other pieces, take another group or another sink"],
    )


def _free(interval: Interval, taken: Iterable[Interval]) -> Iterable[Interval]:
    """What `taken`, in order, leaves of `interval`."""
    at, end = interval
    for low, high in taken:
        if at < low:
            yield at, low
        at = max(at, high)
    if at < end:
        yield at, end
