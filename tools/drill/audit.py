"""Audit of the lakes against the brokers' logs: lost, duplicated, gaps, unaccounted.

Each window is compared record by record with the part of the log that its plan names, then the
windows of a lake with each other: they must cover the span from its start to its last end once, in
every partition. Last, every window must be named by a commit event in Airflow. Pure functions over
data that was read; nothing here starts or repairs anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.drill.cluster import Log
from tubemq_provider.sinks.read import published_windows, read_windows
from tubemq_provider.windows.coverage import coverage
from tubemq_provider.windows.protocols import Marker
from tubemq_provider.windows.verify import chain_problems

__all__ = ["Audit", "audit_lake", "audit_writer", "windows_in_events"]

Spans = Mapping[str, tuple[int, int]]


@dataclass
class Audit:
    """Counts of errors, with a few examples of each; the promise is that all are zero."""

    windows: int = 0
    records: int = 0
    lost: int = 0
    duplicated: int = 0
    gaps: int = 0
    unaccounted: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, other: Audit) -> None:
        """Add the counts of another audit."""
        self.windows += other.windows
        self.records += other.records
        self.lost += other.lost
        self.duplicated += other.duplicated
        self.gaps += other.gaps
        self.unaccounted += other.unaccounted
        self.problems += other.problems

    @property
    def clean(self) -> bool:
        """True if nothing is wrong."""
        return not (self.lost or self.duplicated or self.gaps or self.unaccounted)


def audit_lake(
    lake: Path, log: Log, span: Spans | None, accounted: Iterable[str], epoch: str = ""
) -> Audit:
    """Audit the windows of one epoch in a lake.

    `span` is what they must cover by partition key; None for a cursor's lake: from 0 to the end of
    the last window. `accounted` are the window ids in commit events.
    """
    audit = Audit()
    markers = published_windows(lake) if lake.exists() else []
    markers = [marker for marker in markers if marker.plan.epoch == epoch]
    rows = _rows(lake) if markers else {}
    for marker in markers:
        _audit_window(audit, lake.name, marker, log, rows.get(marker.plan.window_id, Counter()))
    _audit_span(audit, lake.name, markers, span)
    accounted_ids = set(accounted)
    missing = [m.plan.window_id for m in markers if m.plan.window_id not in accounted_ids]
    audit.windows = len(markers)
    audit.unaccounted = len(missing)
    audit.problems += [f"{lake.name}: no commit event names {name}" for name in missing[:5]]
    return audit


def audit_writer(logs: Sequence[Log], numbers: int) -> list[str]:
    """Return the writer's records that are in no log: a promise of the drill, not of the
    product."""
    bodies = {body for log in logs for body in log.bodies()}
    missing = [number for number in range(numbers) if b"record %d" % number not in bodies]
    return [f"{len(missing)} records never reached a log: {missing[:5]} …"] if missing else []


def windows_in_events(events: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the window ids that commit events name, as their own or as recovered."""
    named: set[str] = set()
    for event in events:
        document = event["extra"].get("tubemq", {})
        named.update(document.get("recovered", ()))
        if "window_id" in document:
            named.add(document["window_id"])
    return named


def _rows(lake: Path) -> dict[str, Counter[tuple[str, bytes]]]:
    """Count each (partition, body) in each window, as any reader sees it."""
    table = read_windows(lake).to_table(columns=["window_id", "partition", "value"]).to_pydict()
    rows: dict[str, Counter[tuple[str, bytes]]] = defaultdict(Counter)
    columns = (table["window_id"], table["partition"], table["value"])
    for window_id, partition, value in zip(*columns, strict=True):
        rows[window_id][partition, value] += 1
    return rows


def _audit_window(
    audit: Audit, lake: str, marker: Marker, log: Log, rows: Counter[tuple[str, bytes]]
) -> None:
    expected: Counter[tuple[str, bytes]] = Counter()
    for key, (start, end) in marker.plan.ranges.items():
        expected.update((key, body) for body in log.between(key, start, end))
    lost, extra = expected - rows, rows - expected
    audit.records += rows.total()
    audit.lost += lost.total()
    audit.duplicated += extra.total()
    for error, records in (("lost", lost), ("has too many", extra)):
        if records:
            example = next(iter(records))
            audit.problems.append(
                f"{lake} {marker.plan.window_id} {error}: {records.total()} records, e.g. {example}"
            )


def _audit_span(audit: Audit, lake: str, markers: Sequence[Marker], span: Spans | None) -> None:
    """Check that the windows cover the span once, and claim nothing else."""
    problems: list[str] = []
    if span is None:
        plans = [marker.plan for marker in markers]
        problems += chain_problems(plans)
        ends = plans[-1].ends if plans else {}
        span = {key: (0, end) for key, end in ends.items()}
    scopes = coverage(markers)
    if len(scopes) > 1:
        problems.append(f"windows of {len(scopes)} scopes")
    offsets = scopes[0].offsets if scopes else {}
    for key, (start, end) in span.items():
        done = offsets[key].done if key in offsets else ()
        if done != ((start, end),) and start != end:
            problems.append(f"{key} covers {done}, not [{start}, {end})")
    for scope in scopes:
        for key, subranges in scope.offsets.items():
            twice = sum(high - low for low, high in subranges.overlapping) // 28
            audit.duplicated += twice
            problems += [f"{key}: {twice} offsets in two windows"] if twice else []
    audit.gaps += len(problems)
    audit.problems += [f"{lake}: {problem}" for problem in problems[:5]]
