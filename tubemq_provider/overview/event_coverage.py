"""Coverage from commit events: accepted intervals and offsets, holes and duplicates.

Only markers prove what is written, and listing them may take a sink minutes; events are in the same
database as the page, and prove what Airflow has accepted. The data kept of an event is bounded:
intervals, and the ranges of the first partitions. Queries no sink and no broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from tubemq_provider.offsets.metadata_db import Group
from tubemq_provider.overview.accepted_windows import is_readable
from tubemq_provider.windows.canonical import rfc3339
from tubemq_provider.windows.coverage import (
    Interval,
    IntervalSet,
    days_of,
    interval_set_of,
    pieces_between_resets,
)
from tubemq_provider.windows.plan import time_window_of
from tubemq_provider.windows.spaces import space_of

EVENTS: Final = 500
"""Number of newest events that are read."""
_PARTITIONS: Final = 64
_INTERVALS: Final = 50
_DAYS: Final = 31
_HOUR: Final = timedelta(hours=1)


@dataclass
class _Scope:
    """Coverage of one scope so far.

    `ranges` has those of each epoch of a log, the newest epoch first: where a reset moved a
    partition, the earlier ranges belong to another log.
    """

    scope_hash: str
    epoch: str
    kind: str
    windows: set[str] = field(default_factory=set)
    replays: int = 0
    records: int = 0
    intervals: list[Interval] = field(default_factory=list)
    ranges: dict[str, list[list[tuple[int, int]]]] = field(default_factory=dict)
    lost: dict[str, list[list[int]]] = field(default_factory=dict)
    hours: dict[datetime, int] = field(default_factory=dict)
    partitions: int = 0
    recovered: set[str] = field(default_factory=set)

    def take(self, event: Mapping[str, Any], at: datetime) -> None:
        """Add one more event, which is older than those before."""
        window_id = str(event["window_id"])
        if window_id in self.windows:
            self.replays += 1
            return
        self.windows.add(window_id)
        records = sum(event.get("records", {}).values())
        self.records += records
        hour = at.replace(minute=0, second=0, microsecond=0)
        self.hours[hour] = self.hours.get(hour, 0) + records
        interval = time_window_of(window_id)
        if interval is not None:
            self.intervals.append(interval[:2])
        self._take_ranges(event)

    def _take_ranges(self, event: Mapping[str, Any]) -> None:
        ranges = event.get("ranges", {})
        self.partitions = max(self.partitions, len(ranges))
        for key, (start, end) in ranges.items():
            if key in self.ranges or len(self.ranges) < _PARTITIONS:
                lives = self.ranges.setdefault(key, [[]])
                lives[-1].append((start, end))
                if key in event.get("resets", {}):
                    lives.append([])
        for key, gaps in event.get("gaps", {}).items():
            if key in self.ranges:
                self.lost.setdefault(key, []).extend(gaps)

    def document(self, source: str) -> dict[str, Any]:
        """Return plain JSON values."""
        intervals = interval_set_of(self.intervals)
        offsets = {
            key: pieces_between_resets(reversed(epochs)) for key, epochs in self.ranges.items()
        }
        return {
            "scope": self.scope_hash,
            "epoch": self.epoch,
            "kind": self.kind,
            "windows": len(self.windows),
            "replays": self.replays,
            "recovered": len(self.recovered - self.windows),
            "records": self.records,
            "partitions": self.partitions,
            "intervals": _instants(intervals),
            "days": [[f"{day:%Y-%m-%d}", s] for day, s in days_of(intervals, most=_DAYS)],
            "hours": self._hours(),
            "offsets": [
                {
                    "partition": key,
                    **_offsets(offsets[key]),
                    "lost": self.lost.get(key, [])[:_INTERVALS],
                }
                for key in space_of(source).ordered(offsets)
            ],
        }

    def _hours(self) -> list[list[object]]:
        if not self.hours:
            return []
        first = max(self.hours) - timedelta(days=_DAYS)
        return [[rfc3339(hour), n] for hour, n in sorted(self.hours.items()) if hour > first]


def covered(group: Group, *, most: int = EVENTS) -> dict[str, Any]:
    """Return the coverage of each scope among the `most` newest events, newest scope first.

    Older events are not read; `older` is True if there are any.
    """
    scopes: dict[str, _Scope] = {}
    recovered: dict[str, set[str]] = {}
    seen = 0
    for commit in group.commits(most=most + 1):
        seen += 1
        event = commit.document
        if seen > most or event is None or not is_readable(event):
            continue
        for window_id in map(str, event.get("recovered", ())):
            recovered.setdefault(_hash_of(window_id), set()).add(window_id)
        if "window_id" not in event:
            continue
        scope_hash = _hash_of(str(event["window_id"]))
        scope = scopes.get(scope_hash)
        if scope is None:
            kind, epoch = str(event.get("kind", "")), str(event.get("epoch", ""))
            scope = scopes[scope_hash] = _Scope(scope_hash, epoch, kind)
        scope.take(event, commit.at)
    for scope_hash, scope in scopes.items():
        scope.recovered = recovered.get(scope_hash, set())
    documents = [scope.document(group.source) for scope in scopes.values()]
    return {"events": min(seen, most), "older": seen > most, "scopes": documents}


def _hash_of(window_id: str) -> str:
    return window_id.rpartition("-")[2]


def _instants(intervals: IntervalSet[datetime]) -> dict[str, list[list[str]]]:
    named = {"missing": intervals.missing, "overlapping": intervals.overlapping}
    return {
        name: [[rfc3339(low), rfc3339(high)] for low, high in each[-_INTERVALS:]]
        for name, each in named.items()
    }


def _offsets(intervals: IntervalSet[int]) -> dict[str, list[list[int]]]:
    named = {
        "done": intervals.done,
        "missing": intervals.missing,
        "overlapping": intervals.overlapping,
    }
    return {
        name: [list(interval) for interval in each[-_INTERVALS:]] for name, each in named.items()
    }
