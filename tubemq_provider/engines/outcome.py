"""Outcome of a window in another process: `IngestCounts`, or an error, as a JSON document.

Facts of files are included, so the process that reads the document publishes without opening a
file. Errors keep their class, which decides whether a retry may help. This module must not do I/O
or judge counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tubemq_client.errors import ConfigError, TubeMQError, class_at
from tubemq_client.model import Anchor
from tubemq_provider.files.footers import fact_from_json, fact_to_json
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.facts import FileFact
from tubemq_provider.windows.protocols import Document, IngestCounts

__all__ = ["counts_document", "counts_from", "error_document", "error_from"]


def counts_document(counts: IngestCounts) -> Document:
    """Return every field of `counts` as plain JSON values."""
    return {
        "records": dict(counts.records),
        "bytes": counts.bytes,
        "gaps": {key: [list(gap) for gap in gaps] for key, gaps in counts.gaps.items()},
        "corrupt": counts.corrupt,
        "pieces": None
        if counts.pieces is None
        else {
            key: [list(file_part) for file_part in pieces] for key, pieces in counts.pieces.items()
        },
        "last": {key: list(anchor) for key, anchor in counts.last.items()},
        "files": None if counts.files is None else [_fact_document(f) for f in counts.files],
        "set_aside": list(counts.quarantined),
        "read": None if counts.read is None else dict(counts.read),
        "took_ms": counts.took_ms,
        "notices": dict(counts.notices),
    }


def counts_from(document: Mapping[str, Any]) -> IngestCounts:
    """Restore the counts from the result of `counts_document`."""
    files = document["files"]
    return IngestCounts(
        records=document["records"],
        bytes=document["bytes"],
        gaps=document["gaps"],
        corrupt=document["corrupt"],
        pieces=document["pieces"],
        last={key: Anchor(*anchor) for key, anchor in document["last"].items()},
        files=None if files is None else tuple(map(_fact_from, files)),
        quarantined=tuple(document["set_aside"]),
        read=document["read"],
        took_ms=document.get("took_ms"),
        notices=document.get("notices", {}),
    )


def error_document(error: BaseException) -> Document:
    """Return class and text of `error`."""
    return {"class": f"{type(error).__module__}.{type(error).__qualname__}", "text": str(error)}


def error_from(document: Mapping[str, Any], other: type[WindowError] = WindowError) -> TubeMQError:
    """Restore an error of this project with its class; other classes become `other`."""
    name, text = str(document["class"]), str(document["text"])
    cls = class_at(name)
    if cls is None:
        return other(f"{name.rpartition('.')[2]}: {text}")
    # Without `__init__`, which may take more than a text.
    error = cls.__new__(cls, text)
    error.args = (text,)
    if isinstance(error, ConfigError):
        error.problems = [text]
    return error


def _fact_document(fact: FileFact) -> Document:
    return {
        "fact": json.loads(fact_to_json(fact)),
        "partitions": None if fact.partitions is None else dict(fact.partitions),
        "pieces": [list(file_part) for file_part in fact.pieces],
    }


def _fact_from(document: Mapping[str, Any]) -> FileFact:
    return replace(
        fact_from_json(json.dumps(document["fact"])),
        partitions=document["partitions"],
        pieces=tuple((key, start, end, rows) for key, start, end, rows in document["pieces"]),
    )
