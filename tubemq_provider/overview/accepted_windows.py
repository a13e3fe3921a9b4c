"""Accepted windows from commit events, without the details of each partition.

An event of ten thousand partitions has about a megabyte; a thousand of them are read one at a time,
and reduced to a few numbers each. Queries no sink and no broker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tubemq_provider.offsets.metadata_db import Commit, Group
from tubemq_provider.windows.canonical import rfc3339, sha256_hex
from tubemq_provider.windows.plan import time_window_of


class Accepted(NamedTuple):
    """Fields of a commit event for comparison. `counts` is a digest of the records by partition."""

    hash: str
    records: int
    counts: str
    sink_kind: str
    ref: str


def accepted(group: Group) -> dict[str, Accepted]:
    """Return commit events by window, the oldest first; the newest readable one of a window
    counts."""
    windows: dict[str, Accepted] = {}
    for event in group.events():
        if not is_readable(event):
            continue
        if "window_id" in event and event["window_id"] not in windows:
            records = event.get("records", {})
            sink = event.get("sink", {})
            where = str(sink.get("kind", "")), str(sink.get("ref", ""))
            total = sum(records.values())
            summary = Accepted(str(event.get("hash", "")), total, digest(records), *where)
            windows[event["window_id"]] = summary
    return dict(reversed(windows.items()))


def digest(records: Mapping[str, int]) -> str:
    """Return a digest that is equal for equal counts of all partitions."""
    return sha256_hex(json.dumps(dict(records), sort_keys=True))


def is_readable(event: Mapping[str, Any]) -> bool:
    """Return True if a commit event has the fields that are shown, in the right types.

    Users with the right to create asset events may write anything there, and one such event must
    not hide all others.
    """
    records, ranges = event.get("records", {}), event.get("ranges", {})
    gaps, resets = event.get("gaps", {}), event.get("resets", {})
    if not all(isinstance(part, dict) for part in (records, ranges, gaps, resets)):
        return False
    if not isinstance(event.get("sink", {}), dict):
        return False
    if not isinstance(event.get("window_id"), str | None):
        return False
    intervals = [*ranges.values(), *(gap for lost in gaps.values() for gap in _listed(lost))]
    numbers = [number for interval in intervals for number in _listed(interval)]
    return (
        all(len(_listed(interval)) == 2 for interval in intervals)
        and all(isinstance(lost, list) for lost in gaps.values())
        and isinstance(event.get("recovered", []), list)
        and all(isinstance(number, int) for number in [*numbers, *records.values()])
    )


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def window_rows(group: Group, *, skip: int, most: int) -> dict[str, Any]:
    """Return a page of a group's events, the newest first, as `windows` with a row each.

    `next` is the number of events to skip for the next page, or None. Runs without a window count.
    """
    rows: list[dict[str, Any]] = []
    seen = 0
    for commit in group.commits(skip=skip, most=most + 1):
        seen += 1
        if seen <= most and commit.document is not None and is_readable(commit.document):
            rows.append(_row(commit, commit.document))
    return {"windows": rows, "next": skip + most if seen > most else None}


def _row(commit: Commit, event: Mapping[str, Any]) -> dict[str, Any]:
    window_id = str(event.get("window_id", ""))
    interval = time_window_of(window_id)
    records = event.get("records", {})
    sink = event.get("sink", {})
    return {
        "window": window_id,
        "kind": str(event.get("kind", "")),
        "interval": [rfc3339(instant) for instant in interval[:2]] if interval else None,
        "records": sum(records.values()),
        "bytes": event.get("bytes", 0),
        "corrupt": event.get("corrupt", 0),
        "partitions": len(event.get("ranges", {})),
        "gaps": sum(len(lost) for lost in event.get("gaps", {}).values()),
        "missing": len(_listed(event.get("missing"))),
        "replayed": bool(event.get("replayed")),
        "place": f"{sink.get('kind', '')} {sink.get('ref', '')}".strip(),
        "at": rfc3339(commit.at),
        "dag_id": commit.dag_id,
        "run_id": commit.run_id,
        "task_id": commit.task_id,
    }
