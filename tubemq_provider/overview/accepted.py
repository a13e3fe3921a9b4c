"""Windows that were accepted: what commit events say of them, without what each partition has.

An event of ten thousand partitions has about a megabyte; a thousand of them are looked through one
at a time, and kept as some numbers each. Nothing is asked of a sink or a broker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tubemq_provider.offsets.metadata_db import Commit, Group
from tubemq_provider.windows.canonical import rfc3339, sha256_hex
from tubemq_provider.windows.plan import time_window_of

__all__ = ["Accepted", "accepted", "digest", "is_readable", "told_windows"]


class Accepted(NamedTuple):
    """What is compared of a commit event. `counts` is a digest of the records by partition."""

    hash: str
    records: int
    counts: str
    sink_kind: str
    ref: str


def accepted(group: Group) -> dict[str, Accepted]:
    """Commit events by window, the oldest first; the newest of several that can be read counts."""
    found: dict[str, Accepted] = {}
    for event in group.events():
        if not is_readable(event):
            continue
        if "window_id" in event and event["window_id"] not in found:
            records = event.get("records", {})
            told = event.get("sink", {})
            where = str(told.get("kind", "")), str(told.get("ref", ""))
            total = sum(records.values())
            said = Accepted(str(event.get("hash", "")), total, digest(records), *where)
            found[event["window_id"]] = said
    return dict(reversed(found.items()))


def digest(records: Mapping[str, int]) -> str:
    """Equal for equal counts of all partitions."""
    return sha256_hex(json.dumps(dict(records), sort_keys=True))


def is_readable(event: Mapping[str, Any]) -> bool:
    """Whether a commit event has what is shown of it. Users with the right to make asset events may
    write anything there, and one such event must not hide all others."""
    records, ranges = event.get("records", {}), event.get("ranges", {})
    gaps, resets = event.get("gaps", {}), event.get("resets", {})
    if not all(isinstance(part, dict) for part in (records, ranges, gaps, resets)):
        return False
    if not isinstance(event.get("sink", {}), dict):
        return False
    if not isinstance(event.get("window_id"), str | None):
        return False
    pieces = [*ranges.values(), *(gap for lost in gaps.values() for gap in _listed(lost))]
    numbers = [number for piece in pieces for number in _listed(piece)]
    return (
        all(len(_listed(piece)) == 2 for piece in pieces)
        and all(isinstance(lost, list) for lost in gaps.values())
        and isinstance(event.get("recovered", []), list)
        and all(isinstance(number, int) for number in [*numbers, *records.values()])
    )


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def told_windows(group: Group, *, skip: int, most: int) -> dict[str, Any]:
    """A page of a group's events, the newest first, each as a row for people: `windows`, and in
    `next` how many events to skip for the page after it, or None. Runs without a window count."""
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
        "gaps": sum(len(found) for found in event.get("gaps", {}).values()),
        "missing": len(_listed(event.get("missing"))),
        "replayed": bool(event.get("replayed")),
        "place": f"{sink.get('kind', '')} {sink.get('ref', '')}".strip(),
        "at": rfc3339(commit.at),
        "dag_id": commit.dag_id,
        "run_id": commit.run_id,
        "task_id": commit.task_id,
    }
