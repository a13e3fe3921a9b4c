"""Boundaries of a scope as its published windows have them.

A boundary is stored once, with the data; the plans of windows that begin or end at its instant have
the same offsets, in their markers. So a boundary that was lost (a lake copied without its folder of
boundaries, a truncated table) is restored from markers, and one that contradicts them is detected.
Costs one listing of the sink, and the markers of the windows next to an instant. Windows of a scope
are disjoint: if the window right before an interval is published, no earlier one overlaps the
interval. So earlier ones are not parsed, nor listed where the sink can begin a listing later.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from operator import itemgetter
from typing import NamedTuple, Protocol

from tubemq_provider.windows.anchors import Anchors
from tubemq_provider.windows.canonical import parse_basic_instant
from tubemq_provider.windows.errors import SinkHistoryLost
from tubemq_provider.windows.plan import WindowPlan, WindowScope, time_window_id
from tubemq_provider.windows.planning.overlaps import instant_text
from tubemq_provider.windows.protocols import Marker

__all__ = ["ListedWindows", "MarkedWindows", "PublishedWindows", "WindowEdge", "edges_of"]

Interval = tuple[datetime, datetime]


class MarkedWindows(Protocol):
    """Part of a `Sink` that lists windows and reads markers."""

    @property
    def identity(self) -> str:
        """Identity of the sink."""

    def marker(self, window_id: str) -> Marker | None:
        """Return the marker published under this id, or None."""

    def window_ids(self) -> Iterable[str]:
        """Return ids of all published windows, in no particular order."""


class ListedWindows(MarkedWindows, Protocol):
    """Part of a `Sink` that lists the newest windows alone."""

    def later_window_ids(self, low: str) -> Iterable[str]:
        """Return all ids, but time windows that sort before `low` may be left out."""


class WindowEdge(NamedTuple):
    """Boundary at which a window begins or ends, according to its plan.

    `offsets` are those of the boundary's partitions; `joined` the starts of partitions that join
    with the window. `open` are partitions whose offset was lost to retention, with the lowest and
    the highest offset that it can have.
    """

    window_id: str
    offsets: Mapping[str, int]
    joined: Mapping[str, int]
    anchors: Anchors
    open: Mapping[str, tuple[int, int]]

    def contradicts(self, boundary: Mapping[str, int]) -> dict[str, int]:
        """Return partitions that `boundary` has at another offset, each with the window's offset. A
        missing partition counts as 0: a later window reads it from its beginning."""
        mine = {**dict.fromkeys(boundary, 0), **self.offsets}
        mine |= {key: start for key, start in self.joined.items() if key in boundary}
        return {key: offset for key, offset in mine.items() if boundary.get(key, 0) != offset}


class PublishedWindows:
    """Time windows of `scope` in a sink. `interval`: the window to be planned; where the window of
    the same length right before it is published, earlier ones are left out until they are needed.
    """

    def __init__(
        self, windows: ListedWindows, scope: WindowScope, interval: Interval | None = None
    ) -> None:
        self._windows = windows
        self._scope = scope
        self._interval = interval
        self._ids: list[str] | None = None
        self._texts: list[tuple[str, str]] | None = None
        self._bounded = False
        self._plans: dict[Interval, WindowPlan] = {}
        self._parsed: dict[str, tuple[str, str] | None] = {}

    @property
    def identity(self) -> str:
        """Identity of the sink."""
        return self._windows.identity

    def window_ids(self) -> list[str]:
        """Return the ids of the one listing, without time windows before its beginning."""
        return self.ids

    def marker(self, window_id: str) -> Marker | None:
        """Return the marker as it is now, or None."""
        return self._windows.marker(window_id)

    @property
    def ids(self) -> list[str]:
        """Ids of windows of any scope, listed once: all, or without time windows before the one
        right before the interval, if that is published."""
        if self._ids is None:
            self._ids = self._later_ids()
            self._bounded = self._ids is not None
        if self._ids is None:
            self._ids = list(self._windows.window_ids())
        return self._ids

    def _later_ids(self) -> list[str] | None:
        if self._interval is None:
            return None
        start, end = self._interval
        try:
            before = time_window_id(start - (end - start), start, self._scope.scope_hash)
        except OverflowError:
            return None
        if self._windows.marker(before) is None:
            return None
        # Up to the full second: its fractions sort before it.
        return list(self._windows.later_window_ids(before[: len("t-20261121T120000")]))

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Intervals of the windows of the scope in `ids`, in order, as texts of their ids without
        the ``Z``: such texts sort like the instants, and few are needed as instants."""
        if self._texts is None:
            parsed = self._parsed
            if new := [id_ for id_ in self.ids if id_ not in parsed]:
                form = re.compile(f"t-([0-9T.]+)Z-([0-9T.]+)Z-{self._scope.scope_hash}")
                for id_ in new:
                    match = form.fullmatch(id_)
                    parsed[id_] = (match[1], match[2]) if match else None
            self._texts = sorted(filter(None, map(parsed.__getitem__, self.ids)))
        return self._texts

    def _texts_from(self, instant: datetime) -> list[tuple[str, str]]:
        """Return `texts`, of all windows if `instant` is before the interval."""
        if self.ids and self._bounded and self._interval and instant < self._interval[0]:
            self._ids, self._texts, self._bounded = list(self._windows.window_ids()), None, False
        return self.texts

    def first(self) -> datetime | None:
        """Return the earliest instant at which a window begins, or None."""
        texts = self._texts_from(datetime.min.replace(tzinfo=UTC))
        return _instant(texts[0][0]) if texts else None

    def last(self) -> datetime | None:
        """Return the latest instant at which a window ends, or None."""
        return _instant(self.texts[-1][1]) if self.texts else None

    def neighbours(self, instant: datetime) -> tuple[datetime | None, datetime | None]:
        """Return the last instant before this one and the first after it at which a window begins
        or ends."""
        text, intervals = instant_text(instant), self._texts_from(instant)
        low = bisect_left(intervals, (text, "")) - 1  # begins before
        high = bisect_right(intervals, text, key=itemgetter(0))  # begins after
        before = (
            _instant(intervals[low][1 if intervals[low][1] < text else 0]) if low >= 0 else None
        )
        after = [_instant(intervals[high][0])] if high < len(intervals) else []
        after += [_instant(end) for _, end in intervals[max(0, high - 1) : high] if end > text]
        return before, min(after, default=None)

    def overlaps(self, start: datetime, end: datetime) -> bool:
        """Return True if a window overlaps `[start, end)`."""
        texts = self._texts_from(start)
        place = bisect_right(texts, instant_text(start), key=itemgetter(1))
        return place < len(texts) and texts[place][0] < instant_text(end)

    def again(self) -> PublishedWindows:
        """Return the windows of a new listing. Cached plans stay valid, as offsets never change."""
        fresh = PublishedWindows(self._windows, self._scope, self._interval)
        fresh._plans.update(self._plans)
        fresh._parsed = self._parsed
        return fresh

    def across(self, instant: datetime) -> str | None:
        """Return the id of the window that contains `instant` strictly inside, or None."""
        texts = self._texts_from(instant)
        place = bisect_right(texts, instant_text(instant), key=itemgetter(1))
        if place < len(texts) and texts[place][0] < instant_text(instant):
            return time_window_id(*_interval(texts[place]), self._scope.scope_hash)
        return None

    def at(self, instant: datetime) -> list[WindowEdge]:
        """Return the edges of the windows that end or begin at `instant`."""
        edges = []
        before, after = self._beside(instant)
        if before is not None and before[1] == instant:
            edges.append(self._end(before))
        if after is not None and after[0] == instant:
            edges.append(self._start(after))
        return edges

    def around(self, start: datetime, end: datetime) -> tuple[WindowEdge | None, WindowEdge | None]:
        """Return the last end at or before `start`, and the first start at or after `end`."""
        before, _ = self._beside(start)
        _, after = self._beside(end)
        return (
            None if before is None else self._end(before),
            None if after is None else self._start(after),
        )

    def _beside(self, instant: datetime) -> tuple[Interval | None, Interval | None]:
        """Return the last window that ends at or before `instant`, and the first that begins at or
        after it."""
        intervals, text = self._texts_from(instant), instant_text(instant)
        low = bisect_right(intervals, text, key=itemgetter(1))
        high = bisect_left(intervals, text, key=itemgetter(0))
        return (
            _interval(intervals[low - 1]) if low else None,
            _interval(intervals[high]) if high < len(intervals) else None,
        )

    def _end(self, interval: Interval) -> WindowEdge:
        return edges_of(self._plan(interval))[1]

    def _start(self, interval: Interval) -> WindowEdge:
        return edges_of(self._plan(interval))[0]

    def _plan(self, interval: Interval) -> WindowPlan:
        if interval not in self._plans:
            window_id = time_window_id(*interval, self._scope.scope_hash)
            marker = self._windows.marker(window_id)
            if marker is None:
                raise SinkHistoryLost(
                    f"window {window_id} was in the sink a moment ago and has no marker now: is "
                    f"the lake being restored or cleaned up? Run again once that is over"
                )
            self._plans[interval] = marker.plan
        return self._plans[interval]


def edges_of(plan: WindowPlan) -> tuple[WindowEdge, WindowEdge]:
    """Return the boundaries at which a time window begins and ends.

    A window whose ends are all 0 was planned before any partition had joined: its ranges are empty,
    and its boundaries have no partition.
    """
    starts, ends = (plan.bases, plan.ends) if any(plan.ends.values()) else ({}, {})
    open_offsets = {
        key: gaps[0]
        for key, gaps in plan.gaps.items()
        if key in starts and gaps and gaps[0][0] == starts[key]
    }
    joined = {key: plan.ranges[key][0] for key in plan.joined}
    return (
        WindowEdge(plan.window_id, starts, joined, plan.anchors_at_start, open_offsets),
        WindowEdge(plan.window_id, ends, {}, plan.anchors, {}),
    )


def _instant(text: str) -> datetime:
    return parse_basic_instant(f"{text}Z")


def _interval(texts: tuple[str, str]) -> Interval:
    return _instant(texts[0]), _instant(texts[1])
