"""Coverage of a sink: intervals and offsets that are published, missing, or stored twice.

Computed from published markers alone, since only they prove what is written. Intervals are those of
time windows; offsets are compared over windows of every kind. Windows of different scopes are never
mixed, and each epoch of a group is a scope. If a reset moved a partition, its log was recreated or
its records were skipped on purpose: offsets before and after the reset are not compared. `calendar`
and `report` format the result. This module must not do I/O: the caller opens the sink and passes
its markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Final, Generic, TypeVar

from tubemq_client.errors import ConfigError
from tubemq_provider.windows.canonical import parse_instant, rfc3339
from tubemq_provider.windows.protocols import Marker
from tubemq_provider.windows.run.result import merged_gaps

__all__ = [
    "Coverage",
    "Interval",
    "IntervalSet",
    "calendar",
    "coverage",
    "days_of",
    "interval_set_of",
    "pieces_between_resets",
    "report",
]

MAX_DAYS: Final = 3_660

_HOUR = timedelta(hours=1)
_LAST_DAY = datetime(9999, 12, 31, tzinfo=UTC)
_HOURS = 24


Point = TypeVar("Point", int, datetime)
Interval = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class IntervalSet(Generic[Point]):
    """Half-open spans in order. `done`: published, merged if adjacent. `missing`: between the first
    and the last, or within the requested span. `overlapping`: in more than one window."""

    done: tuple[tuple[Point, Point], ...] = ()
    missing: tuple[tuple[Point, Point], ...] = ()
    overlapping: tuple[tuple[Point, Point], ...] = ()


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of one scope.

    By partition key: `offsets`; `lost`, ranges that retention removed before they were read; and
    `resets`, pairs of the position and the offset to which `on_offset_regression` moved it. With
    resets, `offsets` has the spans before the first reset, then those up to the next, and so on.
    """

    cluster: str
    topic: str
    group: str
    scope_hash: str
    windows: int
    intervals: IntervalSet[datetime]
    offsets: Mapping[str, IntervalSet[int]] = field(default_factory=dict)
    lost: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    resets: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    epoch: str = ""

    @property
    def complete(self) -> bool:
        """True if nothing is missing, lost or stored twice. Records that a reset skipped or
        repeated do not count: the policy allowed them, and the report shows them."""
        parts: list[IntervalSet[int] | IntervalSet[datetime]] = [
            self.intervals,
            *self.offsets.values(),
        ]
        return not self.lost and not any(item.missing or item.overlapping for item in parts)

    def to_document(self) -> dict[str, Any]:
        """Return plain JSON values, for commands and tasks."""
        return {
            "cluster": self.cluster,
            "topic": self.topic,
            "group": self.group,
            "h": self.scope_hash,
            "epoch": self.epoch,
            "windows": self.windows,
            "complete": self.complete,
            "intervals": {
                name: [[rfc3339(start), rfc3339(end)] for start, end in pieces]
                for name, pieces in _named(self.intervals)
            },
            "offsets": {
                key: {name: [list(piece) for piece in pieces] for name, pieces in _named(item)}
                for key, item in self.offsets.items()
            },
            "lost": {key: [list(gap) for gap in gaps] for key, gaps in self.lost.items()},
            "resets": {key: [list(move) for move in moves] for key, moves in self.resets.items()},
        }


def coverage(
    markers: Iterable[Marker], *, start: datetime | None = None, end: datetime | None = None
) -> list[Coverage]:
    """Return the coverage of each scope among `markers`, in order of scope hash.

    With `start` and `end`, intervals are clipped to that span, and missing time up to either is
    reported; offsets are not clipped. Raises `ConfigError` for an empty span.
    """
    if start is not None and end is not None and start >= end:
        raise ConfigError(
            f"start {rfc3339(start)} is not before end {rfc3339(end)}", subject="coverage"
        )
    ordered = sorted(markers, key=lambda marker: marker.plan.scope_hash)
    return [
        _of_scope(list(group), start, end)
        for _, group in groupby(ordered, key=lambda marker: marker.plan.scope_hash)
    ]


def _of_scope(markers: list[Marker], start: datetime | None, end: datetime | None) -> Coverage:
    plan = markers[0].plan
    ranges_by_reset: dict[str, list[list[tuple[int, int]]]] = {}
    lost: dict[str, list[list[int]]] = {}
    resets: dict[str, list[list[int]]] = {}
    for marker in sorted(markers, key=lambda marker: marker.plan.seq or 0):
        for key, range_ in marker.plan.ranges.items():
            runs = ranges_by_reset.setdefault(key, [[]])
            if key in marker.plan.resets:
                runs.append([])
                resets.setdefault(key, []).append([marker.plan.resets[key], range_[0]])
            runs[-1].append(range_)
        for key, gaps in merged_gaps(marker.plan, marker).items():
            lost.setdefault(key, []).extend(list(gap) for gap in gaps)
    by_key = plan.space.by_key
    return Coverage(
        plan.cluster,
        plan.topic,
        plan.group,
        plan.scope_hash,
        len(markers),
        interval_set_of(_intervals(markers), start, end),
        {key: pieces_between_resets(runs) for key, runs in by_key(ranges_by_reset).items()},
        {key: sorted(gaps) for key, gaps in by_key(lost).items()},
        by_key(resets),
        plan.epoch,
    )


def pieces_between_resets(lives: Iterable[Iterable[tuple[int, int]]]) -> IntervalSet[int]:
    """Return the spans of the ranges between resets, without comparing these parts."""
    parts = [interval_set_of(ranges) for ranges in lives]
    return IntervalSet(
        tuple(span for part in parts for span in part.done),
        tuple(span for part in parts for span in part.missing),
        tuple(span for part in parts for span in part.overlapping),
    )


def _intervals(markers: Iterable[Marker]) -> Iterator[Interval]:
    for marker in markers:
        if marker.plan.time is not None:
            start, end = marker.plan.time
            yield parse_instant(start), parse_instant(end)


def interval_set_of(
    claimed: Iterable[tuple[Point, Point]], start: Point | None = None, end: Point | None = None
) -> IntervalSet[Point]:
    """Return what half-open spans cover, clipped to `[start, end)`. Empty spans do not count."""
    done: list[tuple[Point, Point]] = []
    missing: list[tuple[Point, Point]] = []
    overlapping: list[tuple[Point, Point]] = []
    reached = start
    for low, high in sorted(_cut(claimed, start, end)):
        if reached is not None and low > reached:
            missing.append((reached, low))
        if done and low <= done[-1][1]:
            if low < done[-1][1]:
                _extend(overlapping, low, min(high, done[-1][1]))
            done[-1] = (done[-1][0], max(high, done[-1][1]))
        else:
            done.append((low, high))
        reached = done[-1][1]
    if end is not None and reached is not None and reached < end:
        missing.append((reached, end))
    return IntervalSet(tuple(done), tuple(missing), tuple(overlapping))


def _cut(
    claimed: Iterable[tuple[Point, Point]], start: Point | None, end: Point | None
) -> Iterator[tuple[Point, Point]]:
    for claim in claimed:
        low = claim[0] if start is None else max(claim[0], start)
        high = claim[1] if end is None else min(claim[1], end)
        if low < high:
            yield low, high


def _extend(pieces: list[tuple[Point, Point]], low: Point, high: Point) -> None:
    """Append a span, merged with the last one if adjacent."""
    if pieces and low <= pieces[-1][1]:
        pieces[-1] = (pieces[-1][0], max(high, pieces[-1][1]))
    else:
        pieces.append((low, high))


def _named(pieces: IntervalSet[Point]) -> list[tuple[str, tuple[tuple[Point, Point], ...]]]:
    return [
        ("done", pieces.done),
        ("missing", pieces.missing),
        ("overlapping", pieces.overlapping),
    ]


# Text --------------------------------------------------------------------------------------------


def report(found: Coverage) -> str:
    """Return lines for users: the verdict, every span, lost ranges, resets, and the calendar."""
    verdict = "complete" if found.complete else "NOT complete"
    epoch = f", epoch {found.epoch}" if found.epoch else ""
    whose = f"{found.cluster}/{found.topic}, group {found.group}{epoch} ({found.scope_hash})"
    lines = [f"{whose}: {found.windows} windows, {verdict}"]
    for name, intervals in _named(found.intervals):
        lines += [f"  {name} {rfc3339(low)} to {rfc3339(high)}" for low, high in intervals]
    for key, pieces in found.offsets.items():
        for name, ranges in _named(pieces):
            lines += [f"  {key} {name} [{low}, {high})" for low, high in ranges]
    lines += [
        f"  {key} lost to retention [{low}, {high})"
        for key, gaps in found.lost.items()
        for low, high in gaps
    ]
    lines += [
        f"  {key} reset from {position} to {start}: another log, or skipped on purpose"
        for key, moves in found.resets.items()
        for position, start in moves
    ]
    drawn = calendar(found.intervals)
    return "\n".join([*lines, *([drawn] if drawn else [])])


def calendar(pieces: IntervalSet[datetime]) -> str:
    """Return a line per day in UTC with a sign per hour: ``#`` done, ``+`` partly done, ``!``
    stored twice, ``.`` missing, blank outside. Empty if there is no interval at all.

    Raises `ConfigError` for more than ten years.
    """
    lines = [f"{day:%Y-%m-%d} {signs}".rstrip() for day, signs in days_of(pieces)]
    return "\n".join([" " * 11 + "0     6     12    18", *lines]) if lines else ""


def days_of(
    pieces: IntervalSet[datetime], *, most: int | None = None
) -> Iterator[tuple[datetime, str]]:
    """Yield each UTC day of the spans, or the last `most` of them, with the hour signs of
    `calendar`. Raises `ConfigError` for more than ten years without `most`."""
    spans = [*pieces.done, *pieces.missing]
    if not spans:
        return
    first = min(low for low, _ in spans).astimezone(UTC)
    last = max(high for _, high in spans)
    day = first.replace(hour=0, minute=0, second=0, microsecond=0)
    if most is not None:
        end = (last - timedelta.resolution).astimezone(UTC)
        end = end.replace(hour=0, minute=0, second=0, microsecond=0)
        day = end - min(end - day, timedelta(days=most - 1))
    elif (last - day).days > MAX_DAYS:
        raise ConfigError(f"{(last - day).days} days are too many to draw", subject="calendar")
    # `datetime` has no day after 9999-12-31.
    while day < min(last, _LAST_DAY):
        hours = (day + number * _HOUR for number in range(_HOURS))
        yield day, "".join(_sign(pieces, hour) for hour in hours)
        day += timedelta(days=1)


def _sign(pieces: IntervalSet[datetime], hour: datetime) -> str:
    def within(parts: Iterable[Interval]) -> timedelta:
        spans = (min(high, hour + _HOUR) - max(low, hour) for low, high in parts)
        return sum((span for span in spans if span > timedelta(0)), timedelta(0))

    done, missing = within(pieces.done), within(pieces.missing)
    if within(pieces.overlapping):
        return "!"
    if done and missing:
        return "+"
    if done:
        return "#"
    return "." if missing else " "
