"""The statistics that Delta keeps of a file, from its facts: readers skip files by them.

Bounds that could be wrong for some reader are left out, which is always allowed. This module knows
Delta's words for statistics and no tables.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tubemq_provider.windows.facts import FileFact

__all__ = ["stats_of"]

_LONGEST: Final = 32
"""Characters: Delta's writers cut longer texts, by rules that need not be known for short ones."""


def stats_of(file: FileFact) -> str:
    """``numRecords``, ``minValues``, ``maxValues`` and ``nullCount`` of the columns that are no
    maps, structs or lists, as JSON. Delta's protocol counts instants in whole milliseconds, so the
    last one is rounded up."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, leaf in file.leaves.items():
        if "." in name:
            continue
        if (counted := file.null_count(name)) is not None:
            nulls[name] = counted
        if leaf.low is not None and (bounds := _bounds(leaf.low, leaf.high)):
            low[name], high[name] = bounds
    stats: dict[str, Any] = {"numRecords": file.rows}
    if nulls:
        stats |= {"minValues": low, "maxValues": high, "nullCount": nulls}
    return json.dumps(stats)


def _bounds(low: Any, high: Any) -> tuple[Any, Any] | None:
    if isinstance(low, bool):
        return None
    if isinstance(low, int):
        return low, high
    if isinstance(low, str) and max(len(low), len(high)) <= _LONGEST:
        return low, high
    if isinstance(low, datetime) and low.tzinfo is not None:
        return _instant(low), _instant(high + timedelta(microseconds=999))
    return None


def _instant(at: datetime) -> str:
    text = at.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
