"""Result of a run, built from the facts that its steps have gathered.

Separate from `steps`, so that the steps stay a list of actions. A pure function; this module must
not do I/O or decide anything.
"""

from __future__ import annotations

from dataclasses import replace

from tubemq_provider.windows.canonical import rfc3339
from tubemq_provider.windows.planning.read_limits import Throughput
from tubemq_provider.windows.protocols import Engine, Sink
from tubemq_provider.windows.run._base import Planner
from tubemq_provider.windows.run._progress import RunProgress
from tubemq_provider.windows.run.result import WindowResult, merged_gaps

__all__ = ["outcome"]


def outcome(
    planner: Planner, sink: Sink, engine: Engine, now: RunProgress, pace: Throughput | None
) -> WindowResult:
    """Return the result of a run; `empty` if it has neither plan nor marker.

    `pace` is the throughput of earlier windows, used if this window has measured none."""
    scope = planner.scope
    common = WindowResult(
        kind=planner.kind,
        topic=scope.topic,
        group=scope.group,
        engine=engine.name,
        sink_kind=sink.kind,
        exactly_once=sink.exactly_once,
        position=now.position,
        recovered=now.recovered(scope.scope_hash),
        absent=now.absent,
        begun=now.begun,
        pace=pace,
        made_good=dict(sink.made_good),
    )
    if now.plan is None or now.marker is None:
        return replace(common, empty=True)
    counts = now.marker.counts
    start, end = now.plan.time or (None, None)
    return replace(
        common,
        window_id=now.plan.window_id,
        hash=now.plan.hash,
        start=start,
        end=end,
        ranges=now.plan.ranges,
        records=counts.published,
        bytes=counts.bytes,
        corrupt=counts.corrupt,
        notices=counts.notices,
        tables=counts.tables,
        gaps=merged_gaps(now.plan, now.marker),
        resets=now.plan.resets,
        has_more=now.plan.has_more,
        pace=now.pace() or common.pace,
        empty=now.plan.entries == 0,
        replayed=now.replayed,
        missing=tuple((rfc3339(low), rfc3339(high)) for low, high in now.missing),
        sink_ref=now.marker.ref,
    )
