"""Python values to Arrow rows, for parsers that create objects anyway.

Dicts represent structs and maps; values that Arrow does not accept (dicts of maps, UUIDs) are
converted first, and only in columns that can have them. This module does not depend on a format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tubemq_provider.rows.bulk import BadBody, Decoded, parse_by_bisection

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["decoded_rows"]


def decoded_rows(
    values: Sequence[Mapping[str, Any]], places: list[int], bad: list[BadBody], schema: pa.Schema
) -> Decoded:
    """Return a row for each mapping, made from the record at its index in `places`; a mapping with
    a value that its column cannot hold is bad, as are those in `bad`."""
    decoded = parse_by_bisection(
        places, lambda start, end: _rows(values[start:end], schema), schema
    )
    return Decoded(
        decoded.rows, decoded.origin, sorted(bad + decoded.bad, key=lambda one: one.index)
    )


def _rows(values: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return a row for each mapping; missing keys are null, unknown keys are refused."""
    import pyarrow as pa

    names = frozenset(schema.names)
    for value in values:
        _check_keys(value, names)
    columns = []
    for item in schema:
        cells = [value.get(item.name) for value in values]
        if _needs_conversion(item.type):
            cells = [_converted(cell, item.type) for cell in cells]
        columns.append(pa.array(cells, item.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _needs_conversion(type_: pa.DataType) -> bool:
    import pyarrow.types as pt

    return bool(pt.is_nested(type_) or pt.is_string(type_))


def _converted(value: Any, type_: pa.DataType) -> Any:
    import pyarrow.types as pt

    if value is None:
        return None
    if pt.is_map(type_):
        return [(key, _converted(item, type_.item_type)) for key, item in value.items()]
    if pt.is_list(type_):
        return [_converted(item, type_.value_type) for item in value]
    if pt.is_struct(type_):
        _check_keys(value, frozenset(item.name for item in type_))
        return {item.name: _converted(value.get(item.name), item.type) for item in type_}
    return str(value) if isinstance(value, UUID) else value


def _check_keys(value: Mapping[str, Any], names: frozenset[str]) -> None:
    """Refuse a value without a column, which would be lost silently."""
    import pyarrow as pa

    if not value.keys() <= names:
        unknown = sorted(value.keys() - names)
        raise pa.ArrowInvalid(f"no column holds {unknown[0]!r}, only {', '.join(sorted(names))} do")
