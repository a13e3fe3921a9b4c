"""Content of the sink asset's event, one for each window with records.

Airflow records an event on every outlet of a task that succeeds, while downstream Dags should run
for data, not for successes. So a run without new records removes the sink's asset from the outlets
of this one task instance; the declaration in the Dag is not changed. Events of the offsets asset
are progress, are emitted by every run, and are not handled here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tubemq_provider.assets import declared, sink_asset, tables_alias, without
from tubemq_provider.offsets.commit_events import EVENT_KEY, is_accepted

if TYPE_CHECKING:
    from airflow.sdk import Asset, AssetAlias, Context

    from tubemq_provider.windows.run.result import WindowResult

__all__ = ["announce", "bounded", "sink_event"]

_PARTITIONS: Final = 200
_RANGES: Final = 100
"""An event names ranges of at most this many partitions; longer ones are in the sink's marker."""


def announce(
    context: Context, sink: Asset, offsets: Asset, result: WindowResult, *, emit_replayed: bool
) -> None:
    """Fill in the event of the sink's asset, or remove the asset from the outlets.

    The event is kept if the window has records that no earlier success announced, or if windows of
    dead runs were published by this one (``recovered``). A retry that finds the window published by
    a killed try announces it, since the killed try never did.
    """
    task: Any = context["ti"].task
    announced = (
        result.replayed
        and not emit_replayed
        and is_accepted(context["inlet_events"][offsets], result.window_id or "")
    )
    if not announced:
        _announce_tables(context, task, tables_alias(offsets), result)
    if not declared(sink, task.outlets):
        return
    if (result.total and not announced) or result.recovered:
        event: Any = context["outlet_events"][sink]
        event.extra = {**event.extra, EVENT_KEY: sink_event(result)}
    else:
        task.outlets = without(task.outlets, sink)


def _announce_tables(context: Context, task: Any, alias: AssetAlias, result: WindowResult) -> None:
    """Add an event for each table of a routed window that has rows of it, and for each that was
    made good."""
    if not result.tables or alias not in task.outlets:
        return
    events: Any = context["outlet_events"][alias]
    facts = {"topic": result.topic, "group": result.group}
    for address, entry in result.tables.items():
        if entry["rows"]:
            counts = {"records": entry["rows"], "read": entry["read"]}
            event = {**facts, "window_id": result.window_id, **counts, "place": address}
            events.add(sink_asset(address), extra={EVENT_KEY: event})
    for window_id, addresses in result.made_good.items():
        for address in addresses:
            event = {**facts, "window_id": window_id, "place": address, "made_good": True}
            events.add(sink_asset(address), extra={EVENT_KEY: event})


def bounded(document: dict[str, Any]) -> dict[str, Any]:
    """Return a result small enough for XCom.

    Ranges of a thousand partitions are a hundred kilobytes; the sink's marker, the commit event and
    the offsets asset have them anyway.
    """
    if len(document["ranges"]) <= _PARTITIONS:
        return {**document, "bounded": False}
    position = document["position"] and {**document["position"], "next": {}}
    return {**document, "ranges": {}, "records": {}, "position": position, "bounded": True}


def sink_event(result: WindowResult) -> Mapping[str, Any]:
    """Return what a downstream Dag reads under ``extra["tubemq"]``: only JSON types."""
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
