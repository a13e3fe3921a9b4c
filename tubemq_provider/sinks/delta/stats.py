"""The statistics that Delta keeps of a file, from its facts: readers skip files by them.

Bounds that could be wrong for some reader are left out, which Delta allows. This module knows
Delta's words for statistics and no tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from tubemq_provider.files.footers import leaves_of
from tubemq_provider.windows.facts import FileFact, LeafFact

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["stats_of"]

_LONGEST: Final = 64
"""Characters: Delta's writers cut longer texts, by rules that need not be known for short ones."""


def stats_of(file: FileFact) -> str:
    """``numRecords``, ``minValues``, ``maxValues`` and ``nullCount`` of the columns that are no
    maps, structs or lists, as JSON. Delta's protocol counts instants in whole milliseconds, so the
    last one is rounded up.

    A file has bounds of all columns that can have them, or none: `deltalake` gives a reader no row
    of a file for a filter on a column without bounds, if another column has some."""
    import pyarrow as pa

    columns = {
        field.name: (field.type, leaf)
        for field, _, _, leaf in leaves_of(file)
        if not pa.types.is_nested(field.type)
    }
    counted = {name: file.null_count(name) for name in columns}
    stats: dict[str, Any] = {"numRecords": file.rows}
    if nulls := {name: count for name, count in counted.items() if count is not None}:
        bounds_by_column = _all_bounds(columns, nulls)
        low = {name: bounds[0] for name, bounds in bounds_by_column.items()}
        high = {name: bounds[1] for name, bounds in bounds_by_column.items()}
        stats |= {"minValues": low, "maxValues": high} if bounds_by_column else {}
        stats["nullCount"] = nulls
    # Unescaped: deltalake joins two escapes of a character beyond U+FFFF to another character.
    return json.dumps(stats, ensure_ascii=False)


def _all_bounds(
    columns: Mapping[str, tuple[pa.DataType, LeafFact]], nulls: Mapping[str, int]
) -> dict[str, tuple[Any, Any]]:
    """By column; none at all if some column with values has none that are sure. Delta has none for
    bytes."""
    bounds_by_column: dict[str, tuple[Any, Any]] = {}
    for name, (kind, leaf) in columns.items():
        if nulls.get(name, leaf.nulls) == leaf.values or _is_bytes(kind):
            continue
        bounds = None if leaf.low is None else _bounds(kind, leaf.low, leaf.high)
        if bounds is None:
            return {}
        bounds_by_column[name] = bounds
    return bounds_by_column


def _is_bytes(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _bounds(kind: pa.DataType, low: Any, high: Any) -> tuple[Any, Any] | None:
    """Return the bounds of integers, short texts and instants. The type of the column decides: a
    footer has integers for decimals too, which are not their values."""
    import pyarrow as pa

    if pa.types.is_integer(kind):
        return low, high
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return (low, high) if max(len(low), len(high)) <= _LONGEST else None
    if pa.types.is_timestamp(kind) and kind.tz is not None and isinstance(low, datetime):
        try:
            return _instant(low), _instant(high + timedelta(microseconds=999))
        except OverflowError:  # 9999-12-31 means "for ever"
            return None
    return None


def _instant(at: datetime) -> str:
    text = at.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
