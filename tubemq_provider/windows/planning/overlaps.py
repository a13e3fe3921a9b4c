"""Overlaps and gaps between the time windows of one scope.

A window's id names its interval, so one listing of the sink shows the published intervals. After a
schedule was changed from one hour to two, or in a backfill by days over hours, windows may overlap
published ones: they would store those records again, and are refused. Or the first window of a new
schedule begins after the end of the last one: the time between is in no window, which is reported.
Pure functions of ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from tubemq_provider.windows.canonical import basic_instant, parse_basic_instant, rfc3339
from tubemq_provider.windows.errors import BoundaryConflict
from tubemq_provider.windows.plan import time_window_id

__all__ = ["instant_text", "interval_of", "missing_next_to", "missing_text", "refuse_overlaps"]

Interval = tuple[datetime, datetime]
_SHOWN = 3


def interval_of(window_id: str, scope_hash: str) -> Interval | None:
    """Return the interval in the id of a time window of the scope; None for any other id."""
    kind, *rest = window_id.split("-")
    if kind != "t" or len(rest) != 3 or rest[2] != scope_hash:
        return None
    try:
        return parse_basic_instant(rest[0]), parse_basic_instant(rest[1])
    except ValueError:
        return None


def refuse_overlaps(
    published: Sequence[tuple[str, str]], interval: Interval, scope_hash: str
) -> None:
    """Raise `BoundaryConflict` if a window of `PublishedWindows.texts` overlaps `interval`. The
    window of exactly `interval` does not count."""
    start, end = interval
    low, high = map(instant_text, interval)
    ids = (
        f"t-{first}Z-{last}Z-{scope_hash}"
        for first, last in published
        if first < high and low < last
    )
    overlapping = sorted(
        other
        for other in (interval_of(window_id, scope_hash) for window_id in ids)
        if other is not None and other != interval and other[0] < end and start < other[1]
    )
    if not overlapping:
        return
    problems = [
        f"{time_window_id(*other, scope_hash)} is published" for other in overlapping[:_SHOWN]
    ]
    if len(overlapping) > _SHOWN:
        problems.append(f"and {len(overlapping) - _SHOWN} more")
    free = " and ".join(f"{rfc3339(a)} to {rfc3339(b)}" for a, b in _free(interval, overlapping))
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


def missing_next_to(published: Sequence[tuple[str, str]], interval: Interval) -> list[Interval]:
    """Return the intervals between `interval` and its nearest neighbours in
    `PublishedWindows.texts`. There is none on a side without a neighbour, or with an adjacent
    one."""
    start, end = interval
    low, high = map(instant_text, interval)
    ends = [last for _, last in published if last <= low]
    begins = [first for first, _ in published if first >= high]
    before = parse_basic_instant(f"{max(ends)}Z") if ends else start
    after = parse_basic_instant(f"{min(begins)}Z") if begins else end
    return [(low, high) for low, high in ((before, start), (end, after)) if low < high]


def missing_text(missing: Iterable[Interval], interval: Interval) -> str:
    """Return the warning about intervals next to `interval` that are in no window."""
    spans = " and ".join(f"{rfc3339(low)} to {rfc3339(high)}" for low, high in missing)
    return (
        f"no published window has {spans}, beside the window from {rfc3339(interval[0])} to "
        f"{rfc3339(interval[1])}: a run that is under way may bring it; if none is (the schedule "
        f"was changed, or a run was skipped), run a task of the same group and sink once with "
        f"exactly that start and end"
    )


def instant_text(instant: datetime) -> str:
    """Format an instant as in ids, without the ``Z``: such texts sort like the instants."""
    return basic_instant(instant).removesuffix("Z")


def _free(interval: Interval, taken: Iterable[Interval]) -> Iterable[Interval]:
    """Yield the parts of `interval` that are not in the ordered intervals `taken`."""
    at, end = interval
    for low, high in taken:
        if at < low:
            yield at, low
        at = max(at, high)
    if at < end:
        yield at, end
