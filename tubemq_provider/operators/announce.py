"""What the sink's own asset is told: one event for each window with records, and which one it is.

Airflow records an event on every outlet of a task that succeeds. Downstream Dags want to run for
data and not for successes, so a run that brought nothing in takes the sink's asset off the outlets
of this one task instance; what is declared stays as it is. The offsets asset is none of this
module's business: its events are progress, and every run emits one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tubemq_provider.assets import declared, without
from tubemq_provider.offsets.commit_events import EVENT_KEY, is_accepted

if TYPE_CHECKING:
    from airflow.sdk import Asset, Context

    from tubemq_provider.windows.run.result import WindowResult

__all__ = ["announce", "bounded", "sink_event"]

_PARTITIONS: Final = 200
_RANGES: Final = 100
"""An event names ranges of at most this many partitions; longer ones are in the sink's marker."""


def announce(
    context: Context, sink: Asset, offsets: Asset, result: WindowResult, *, emit_replayed: bool
) -> None:
    """Give the sink's event its content, or take the event away.

    There is an event if the window has records and no earlier success has told of it, or if windows
    of runs that died are in the sink now (``recovered``). A retry that finds the window written by
    a killed try tells of it: the killed one never did.
    """
    task: Any = context["ti"].task
    if not declared(sink, task.outlets):
        return
    told = (
        result.replayed
        and not emit_replayed
        and is_accepted(context["inlet_events"][offsets], result.window_id or "")
    )
    if (result.total and not told) or result.recovered:
        event: Any = context["outlet_events"][sink]
        event.extra = {**event.extra, EVENT_KEY: sink_event(result)}
    else:
        task.outlets = without(task.outlets, sink)


def bounded(document: dict[str, Any]) -> dict[str, Any]:
    """A result as XCom carries it: ranges of a thousand partitions are a hundred kilobytes, and the
    sink's marker, the commit event and the offsets asset have them anyway."""
    if len(document["ranges"]) <= _PARTITIONS:
        return {**document, "bounded": False}
    position = document["position"] and {**document["position"], "next": {}}
    return {**document, "ranges": {}, "records": {}, "position": position, "bounded": True}


def sink_event(result: WindowResult) -> Mapping[str, Any]:
    """What a downstream Dag reads under ``extra["tubemq"]``: strings, integers, lists, objects."""
    ranges = {key: list(value) for key, value in result.ranges.items()}
    event: dict[str, Any] = {
        "topic": result.topic,
        "group": result.group,
        "kind": result.kind,
        "window_id": result.window_id,
        "records": result.total,
        "bytes": result.bytes,
        "place": result.sink_ref,
        "partitions": len(ranges),
        "ranges": ranges if len(ranges) <= _RANGES else {},
        "replayed": result.replayed,
        "recovered": list(result.recovered),
    }
    if result.start is not None:
        event["interval"] = {"start": result.start, "end": result.end}
    return event
