"""Metrics of windows and groups, sent through Airflow: StatsD, Datadog or OpenTelemetry.

Every metric is sent with the tags `cluster`, `topic` and `group`, and, unless Airflow's ``[metrics]
legacy_names_on`` is off, once more with them in the name, for backends without tags. A test
compares the table in docs/metrics.md with `NAMES`. Nothing here may fail a task.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from tubemq_provider._airflow import Stats, conf

if TYPE_CHECKING:
    from tubemq_provider.windows.run.result import WindowResult
    from tubemq_provider.windows.spaces import OffsetSpace

NAMES: Final = {
    "window.records": ("counter", "records of windows that a task wrote"),
    "window.bytes": ("counter", "bytes of their bodies"),
    "window.seconds": ("timing", "from the first read to the publication, ms"),
    "window.written": ("counter", "windows that a task wrote"),
    "window.replayed": ("counter", "windows that were found written"),
    "window.empty": ("counter", "runs that found nothing to read"),
    "window.recovered": ("counter", "windows of runs that died, told of by a later one"),
    "window.corrupt": (
        "counter",
        "records left out: bad checksums, bodies that do not decode",
    ),
    "window.gap_entries": ("counter", "index entries that retention took before they were read"),
    "group.lag": ("gauge", "index entries behind the end that is looked at"),
    "group.behind_seconds": ("gauge", "for how long a watcher has seen lag without a break"),
}
"""Names below ``tubemq.``, with their type and meaning."""


def count_window(result: WindowResult, cluster: str, space: OffsetSpace) -> None:
    """Count one run of an ingest task; `space` defines the length of an index entry."""
    counts: dict[str, int] = {
        "window.recovered": len(result.recovered),
        "window.gap_entries": 0 if result.replayed else _lost(result, space),
    }
    if result.window_id is None or result.empty:
        counts["window.empty"] = 1
    elif result.replayed:
        counts["window.replayed"] = 1
    else:
        counts |= {
            "window.written": 1,
            "window.records": result.total,
            "window.bytes": result.bytes,
            "window.corrupt": result.corrupt,
        }
    tags = _tags(cluster, result.topic, result.group)
    for name, value in counts.items():
        if value:
            _send("incr", name, value, tags)
    if "window.written" in counts and result.pace is not None:
        _send("timing", "window.seconds", timedelta(milliseconds=result.pace.took_ms), tags)


def _lost(result: WindowResult, space: OffsetSpace) -> int:
    """Return the index entries lost to retention, which may be all of a window."""
    return sum(space.entries(start, end) for gaps in result.gaps.values() for start, end in gaps)


def gauge_group(
    cluster: str, topic: str, group: str, *, lag: int, behind_seconds: float | None = None
) -> None:
    """Send the lag of a group."""
    tags = _tags(cluster, topic, group)
    _send("gauge", "group.lag", lag, tags)
    if behind_seconds is not None:
        _send("gauge", "group.behind_seconds", behind_seconds, tags)


def _tags(cluster: str, topic: str, group: str) -> dict[str, str]:
    return {"cluster": cluster, "topic": topic, "group": group}


def _send(kind: str, name: str, value: Any, tags: dict[str, str]) -> None:
    send: Any = getattr(Stats, kind)
    try:
        send(f"tubemq.{name}", value, tags=tags)
        if conf.getboolean("metrics", "legacy_names_on", fallback=True):
            prefix = ".".join(part.replace(".", "__") for part in tags.values())
            send(f"tubemq.{prefix}.{name}", value)
    except Exception:  # noqa: BLE001, S110 - a metric is no reason to fail
        pass
