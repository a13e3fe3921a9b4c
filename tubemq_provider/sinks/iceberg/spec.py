"""`partition_by` in Iceberg's words: partition specs, and the partitions that files are in.

pyiceberg takes a file's partition from its footer; files that were written by partition come with
their values, which includes nulls and texts that footers truncate. This module changes a
transaction at most and commits nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

from tubemq_provider.windows.facts import Key
from tubemq_provider.windows.partitioning import PartitionBy

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import Record

__all__ = ["as_nullable", "partition_of", "set_spec", "spec_of"]

_EPOCH: Final = date(1970, 1, 1)


def set_spec(change: Transaction, by: PartitionBy) -> None:
    """Give a table that has none the spec that `by` means."""
    from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform

    transforms = {"identity": IdentityTransform, "day": DayTransform, "hour": HourTransform}
    with change.update_spec() as update:
        for field in by.fields:
            update.add_field(field.column, transforms[field.transform](), field.name)


def spec_of(metadata: TableMetadata) -> list[tuple[str, str]]:
    """Columns and transforms that the table is partitioned by."""
    schema = metadata.schema()
    return [
        (schema.find_column_name(field.source_id) or "", str(field.transform))
        for field in metadata.spec().fields
        if str(field.transform) != "void"
    ]


def partition_of(spec: PartitionSpec, schema: Schema, keys: Sequence[Key]) -> Record:
    """Return the partition of a file whose rows share `keys`."""
    from pyiceberg.typedef import Record

    known = {name: (kind, text) for name, kind, text in keys}
    values: list[Any] = []
    for field in spec.fields:
        column, transform = schema.find_column_name(field.source_id), str(field.transform)
        if transform == "void":
            values.append(None)
            continue
        name = column if transform == "identity" else f"{column}_{transform}"
        kind, text = known[str(name)]
        values.append(None if text is None else _value(transform, kind, text))
    return Record(*values)


def _value(transform: str, kind: str, text: str) -> Any:
    """Convert a value to Iceberg's form: days and hours are counted since 1970."""
    if transform == "hour":
        at = datetime.strptime(text, "%Y-%m-%d-%H").replace(tzinfo=UTC)
        return int(at.timestamp()) // 3600
    if kind == "date32[day]":
        return (date.fromisoformat(text) - _EPOCH).days
    if kind == "bool":
        return text == "true"
    return text if kind == "string" else int(text)


def as_nullable(fields: Iterable[pa.Field]) -> pa.Schema:
    """Return a schema of nullable columns."""
    import pyarrow as pa

    return pa.schema([field.with_nullable(nullable=True) for field in fields])
