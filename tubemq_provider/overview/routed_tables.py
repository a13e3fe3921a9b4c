"""Tables of routed windows from commit events: rows, newest window, and windows that failed.

Queries no sink and no broker; the number of tables is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tubemq_provider.offsets.metadata_db import Group
from tubemq_provider.overview.accepted_windows import is_readable
from tubemq_provider.overview.event_coverage import EVENTS
from tubemq_provider.windows.canonical import rfc3339

__all__ = ["table_rows"]

_TABLES: Final = 500
_VALUES: Final = 5


def table_rows(group: Group, *, most: int = EVENTS) -> dict[str, Any]:
    """Return a row for each table among the `most` newest events, failed tables first."""
    rows: dict[str, dict[str, Any]] = {}
    made_good: set[tuple[str, str]] = set()
    seen: set[str] = set()
    events = 0
    for commit in group.commits(most=most):
        events += 1
        event = commit.document
        if event is None or not is_readable(event):
            continue
        for window_id, addresses in _mapping(event.get("made_good")).items():
            made_good |= {(window_id, str(a)) for a in addresses if isinstance(addresses, list)}
        window_id = str(event.get("window_id", ""))
        if window_id in seen:
            continue
        seen.add(window_id)
        for address, entry in _entries(event):
            row = rows.get(address)
            if row is None:
                if len(rows) >= _TABLES:
                    continue
                row = rows[address] = _new_row(address, entry)
            failed = entry.get("failed") and (window_id, address) not in made_good
            row["failed"] += bool(failed)
            row["reason"] = row["reason"] or (str(entry["failed"]) if failed else "")
            row["windows"] += not failed
            row["rows"] += entry["rows"]
            if not row["window"] and not failed:
                row["window"], row["at"] = window_id, rfc3339(commit.at)
    ordered = sorted(rows.values(), key=lambda row: (not row["failed"], row["table"]))
    return {"events": events, "tables": ordered}


def _new_row(address: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    values = [str(value) for value in entry["values"][:_VALUES]]
    names: dict[str, Any] = {"table": address, "values": values, "of": len(entry["values"])}
    return {**names, "windows": 0, "rows": 0, "failed": 0, "reason": "", "window": "", "at": ""}


def _entries(event: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the tables of an event that have the members that are shown."""
    for address, entry in _mapping(event.get("tables")).items():
        if not isinstance(entry, dict):
            continue
        if isinstance(entry.get("rows"), int) and isinstance(entry.get("values"), list):
            yield str(address), entry


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
