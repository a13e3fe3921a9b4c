"""The marker as a JSON document: the same words whatever sink keeps it.

A marker holds the whole plan, its hash, the counts, and the files. Sinks differ in where they put
the document and in what makes it count; this module only writes and reads it, and must not do I/O
or decide whether a window is published.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tubemq_provider.windows.errors import DocumentError, SinkDamaged
from tubemq_provider.windows.facts import FileFact
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import Document, IngestCounts, Marker

__all__ = ["MARKER_VERSION", "has_files_of", "marker_document", "read_marker"]

MARKER_VERSION: Final = 1


def marker_document(
    plan: WindowPlan, counts: IngestCounts, files: Iterable[FileFact], **notes: str
) -> Document:
    """Return the document of a window; `notes` are members that one sink adds for itself."""
    files = list(files)
    partition_columns = [[name, kind] for name, kind, _ in files[0].keys] if files else []
    return {
        "v": MARKER_VERSION,
        "plan": plan.to_document(),
        "hash": plan.hash,
        "records": dict(counts.records),
        "bytes": counts.bytes,
        "corrupt": counts.corrupt,
        "gaps": {key: [list(gap) for gap in gaps] for key, gaps in counts.gaps.items()},
        "files": [{"path": file.path, "rows": file.rows} for file in files],
        **({"partition_columns": partition_columns} if partition_columns else {}),
        **({"notices": dict(counts.notices)} if counts.notices else {}),
        **({"tables": dict(counts.tables)} if counts.tables else {}),
        **({"routed": dict(counts.routed)} if counts.routed else {}),
        **({"routes": list(counts.patterns)} if counts.patterns else {}),
        **notes,
    }


def read_marker(document: Document, place: str, window_id: str) -> Marker:
    """Return the marker of `window_id` in `document`, found at `place`, which becomes its `ref`.

    Raises `SinkDamaged` if it is not valid, of an unknown version, or of another window.
    """
    where = f"marker of {place}"
    if document.get("v") != MARKER_VERSION:
        raise SinkDamaged(f"{where} has version {document.get('v')!r}, which is unknown here")
    try:
        plan = WindowPlan.from_document(document.get("plan"), where=where)
        partition_columns = tuple(
            (str(n), str(k)) for n, k in document.get("partition_columns", ())
        )
        marker = Marker(
            plan, _read_counts(document), place, _read_files(document), partition_columns
        )
    except (DocumentError, KeyError, TypeError, ValueError) as exc:
        raise SinkDamaged(f"{where} is not valid: {exc}") from exc
    if plan.window_id != window_id or plan.hash != document.get("hash"):
        raise SinkDamaged(f"{where} is that of window {plan.window_id}")
    return marker


def has_files_of(marker: Marker, present: Iterable[str]) -> bool:
    """Return False if files of the window are gone and no other data file, as compaction writes
    one, is in their place; `present` names the files that its place has."""
    data = {name for name in present if name.endswith(".parquet")}
    return data.issuperset(marker.files) or not data.issubset(marker.files)


def _read_counts(document: Document) -> IngestCounts:
    records: dict[str, int] = {key: int(count) for key, count in dict(document["records"]).items()}
    return IngestCounts(
        records,
        int(document["bytes"]),
        document["gaps"],
        int(document["corrupt"]),
        notices=document.get("notices", {}),
        tables=document.get("tables", {}),
        routed=document.get("routed", {}),
        patterns=tuple(map(str, document.get("routes", ()))),
    )


def _read_files(document: Document) -> tuple[str, ...]:
    entries: list[dict[str, Any]] = document["files"]
    return tuple(str(entry["path"]) for entry in entries)
