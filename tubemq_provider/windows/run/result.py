"""Result of a run for its caller, and the commit event for later runs and other tasks.

Both are JSON. The result goes to XCom or a terminal. The event stores progress and is the only
record that a window was accepted: it becomes visible with the task's success. This module must not
do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tubemq_provider.windows.cursor import Position
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.read_limits import Throughput
from tubemq_provider.windows.protocols import Marker
from tubemq_provider.windows.versions import VERSIONS

__all__ = ["WindowResult", "event_document", "merged_gaps"]

Gaps = Mapping[str, list[list[int]]]


@dataclass(frozen=True, slots=True)
class WindowResult:
    """Outcome of one run.

    - `window_id`, `hash`, `ranges`: the window, as the sink has it; None and {} for an empty cursor
      run, which publishes no window.
    - `start`, `end`: the interval of a time window, RFC 3339; None for other kinds.
    - `records`: by partition key; `bytes`: of all bodies. From the marker when `replayed`.
    - `corrupt`: records that failed their checksum and were left out.
    - `notices`: records without a row by kind, such as ``ddl`` and ``heartbeat`` of change streams.
    - `tables`: of routed windows, the records read for each table and its rows, by address;
      `failed` is why a table did not take them.
    - `made_good`: tables by earlier window that had failed to take it, and have it now.
    - `empty`: there was nothing to read. `replayed`: the window was already published, by an
      earlier try or another run. `has_more`: a limit cut it short.
    - `position`: end of the published cursor windows; None for other kinds.
    - `recovered`: ids of windows published by runs that died before their commit event.
    - `pace`: throughput of this or the last window, by which `max_duration` limits the next one.
    - `absent`: partitions left to later windows, as no broker offers them now, with the reason.
    - `begun`: this run resolved the group's first position, or the anchors of its logs, and only
      its event stores them.
    - `gaps`: offset ranges that retention removed and `gap_policy="skip"` accepted.
    - `missing`: intervals between a time window and its nearest neighbours that no published window
      covered when this one was published.
    - `resets`: the position that a partition had before `on_offset_regression` moved it.
    - `warnings`: sentences for users.
    """

    kind: str
    topic: str
    group: str
    window_id: str | None = None
    hash: str | None = None
    start: str | None = None
    end: str | None = None
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    records: Mapping[str, int] = field(default_factory=dict)
    bytes: int = 0
    corrupt: int = 0
    notices: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    made_good: Mapping[str, list[str]] = field(default_factory=dict)
    gaps: Gaps = field(default_factory=dict)
    has_more: bool = False
    pace: Throughput | None = None
    empty: bool = False
    replayed: bool = False
    exactly_once: bool = True
    engine: str = ""
    sink_kind: str = ""
    sink_ref: str | None = None
    position: Position | None = None
    recovered: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    begun: bool = False
    resets: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Records over all partitions."""
        return sum(self.records.values())

    @property
    def has_news(self) -> bool:
        """True if only the commit event of an empty run records something: lost or skipped
        offsets, windows of other runs, or the group's first position."""
        return bool(self.gaps or self.resets or self.recovered or self.begun or self.made_good)

    def to_document(self) -> dict[str, Any]:
        """Return a JSON object with every member, `total` included."""
        position = self.position
        return {
            "kind": self.kind,
            "topic": self.topic,
            "group": self.group,
            "window_id": self.window_id,
            "hash": self.hash,
            "start": self.start,
            "end": self.end,
            "ranges": {key: list(value) for key, value in self.ranges.items()},
            "records": dict(self.records),
            "total": self.total,
            "bytes": self.bytes,
            "corrupt": self.corrupt,
            "gaps": {key: [list(gap) for gap in gaps] for key, gaps in self.gaps.items()},
            "has_more": self.has_more,
            "pace": [self.pace.entries, self.pace.took_ms] if self.pace else None,
            "empty": self.empty,
            "replayed": self.replayed,
            "exactly_once": self.exactly_once,
            "engine": self.engine,
            "sink_kind": self.sink_kind,
            "sink_ref": self.sink_ref,
            "position": {"seq": position.seq, "next": dict(position.next)} if position else None,
            "recovered": list(self.recovered),
            "absent": dict(self.absent),
            "missing": [list(span) for span in self.missing],
            "warnings": list(self.warnings),
            **({"notices": dict(self.notices)} if self.notices else {}),
            **({"tables": dict(self.tables)} if self.tables else {}),
            **({"made_good": dict(self.made_good)} if self.made_good else {}),
        }


def merged_gaps(plan: WindowPlan, marker: Marker) -> dict[str, list[list[int]]]:
    """Return gaps known at planning and gaps met while reading, by partition key."""
    gaps = {key: [list(gap) for gap in lost] for key, lost in plan.gaps.items()}
    for key, lost in marker.counts.gaps.items():
        gaps.setdefault(key, []).extend(list(gap) for gap in lost)
    return gaps


def event_document(
    scope: WindowScope, result: WindowResult, past: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the commit event of a run: strings, integers, lists and objects only.

    Members that do not apply are left out (an empty run has no window, a time window no position).
    `past` are epochs of the group that have ended."""
    document: dict[str, Any] = {
        "v": VERSIONS["event"],
        "cluster": scope.cluster,
        "topic": scope.topic,
        "group": scope.group,
        "kind": result.kind,
    }
    if scope.epoch or past:
        document |= {"epoch": scope.epoch, "past": list(past)}
    if result.window_id is not None:
        document |= {
            "window_id": result.window_id,
            "hash": result.hash,
            "ranges": {key: list(value) for key, value in result.ranges.items()},
            "records": dict(result.records),
            "bytes": result.bytes,
            "corrupt": result.corrupt,
            "gaps": {key: [list(gap) for gap in gaps] for key, gaps in result.gaps.items()},
            "sink": {"kind": result.sink_kind, "ref": result.sink_ref or ""},
            "replayed": int(result.replayed),
        }
    if result.position is not None:
        document["position"] = result.position.to_document(scope.scope_hash, scope.space)
        document["recovered"] = list(result.recovered)
    if result.notices:
        document["notices"] = dict(result.notices)
    if result.tables:
        document["tables"] = dict(result.tables)
    if result.made_good:
        document["made_good"] = dict(result.made_good)
    if result.resets:
        document["resets"] = dict(result.resets)
    if result.missing:
        document["missing"] = [list(span) for span in result.missing]
    if result.absent:
        document["absent"] = list(result.absent)
    if result.pace is not None:
        document["pace"] = [result.pace.entries, result.pace.took_ms]
    return document
