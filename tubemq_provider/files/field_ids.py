"""Field ids in the Arrow schemas of Parquet files, as Iceberg requires them.

pyarrow writes a field's ``PARQUET:field_id`` into the file, also for parts of structs, lists and
maps. This module knows schemas and no table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tubemq_provider.windows.field_ids import FieldIds

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ids_in", "with_field_ids"]

_KEY: Final = b"PARQUET:field_id"


def with_field_ids(schema: pa.Schema, ids: FieldIds | None) -> pa.Schema:
    """Return `schema` with the numbers of its columns and their parts; unchanged for None."""
    import pyarrow as pa

    if ids is None:
        return schema
    numbers = ids.of(path for field in schema for path, _ in _paths(field, field.name))
    return pa.schema([_numbered(field, field.name, numbers) for field in schema])


def ids_in(schema: pa.Schema) -> dict[str, int] | None:
    """Return numbers by path; None if a column has none."""
    numbers: dict[str, int] = {}
    for field in schema:
        for path, each in _paths(field, field.name):
            number = (each.metadata or {}).get(_KEY)
            if number is None:
                return None
            numbers[path] = int(number)
    return numbers


def _paths(field: pa.Field, path: str) -> Iterator[tuple[str, pa.Field]]:
    yield path, field
    for name, part in _parts(field.type):
        yield from _paths(part, f"{path}.{name}")


def _parts(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    """Return the parts of a column with Iceberg's names."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        return [("key", kind.key_field), ("value", kind.item_field)]
    if _is_list(kind):
        return [("element", kind.value_field)]
    if pa.types.is_struct(kind):
        return [(kind.field(at).name, kind.field(at)) for at in range(kind.num_fields)]
    return []


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _numbered(field: pa.Field, path: str, numbers: Mapping[str, int]) -> pa.Field:
    import pyarrow as pa

    kind = field.type
    parts = [_numbered(part, f"{path}.{name}", numbers) for name, part in _parts(kind)]
    if pa.types.is_map(kind):
        kind = pa.map_(*parts, keys_sorted=kind.keys_sorted)
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(*parts)
    elif pa.types.is_fixed_size_list(kind):
        kind = pa.list_(parts[0], kind.list_size)
    elif pa.types.is_list(kind):
        kind = pa.list_(*parts)
    elif pa.types.is_struct(kind):
        kind = pa.struct(parts)
    metadata = {**(field.metadata or {}), _KEY: str(numbers[path]).encode()}
    return pa.field(field.name, kind, field.nullable, metadata)
