"""Requirements that a Delta table has of its writers, checked against the files to add.

delta-rs commits files as they are: it looks neither at constraints nor at names, so a table whose
rules are not kept reads as nulls, or holds rows that its owner has forbidden. Rules that can be
judged by looking at the files are judged; a table with any other rule is refused, with the way out.
This module reads a loaded table and facts of files, and must not change either.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tubemq_provider.files.locations import Location
from tubemq_provider.sinks._unsigned import unsigned_problems
from tubemq_provider.sinks.delta.log import LoadedTable, Shape, contains_type, new_type_problems
from tubemq_provider.windows.facts import FileFact
from tubemq_provider.windows.partitioning import PartitionBy

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.sinks._table_sink import StagedWindow

__all__ = [
    "KNOWN_FEATURES",
    "READER_VERSION",
    "WRITER_VERSION",
    "column_misfits",
    "map_type_problems",
    "misfits",
    "rules_of",
    "type_problems",
]

_NESTED_NULLS: Final = ("containsNull", "valueContainsNull", "nullable", "metadata")
WRITER_VERSION: Final = 7
READER_VERSION: Final = 3
KNOWN_FEATURES: Final = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "identityColumns",
        "invariants",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        "variantType-preview",
    }
)
"""Table features that ask nothing of a writer who only adds files, or whose use `misfits` sees."""

_NTZ_FEATURE: Final = "timestampNtz"
_NANOSECONDS: Final = "timestamp_nanos"
_SEPARATE_TABLE: Final = "or write windows into a table of their own and copy from there"
_MAPS_NAMES: Final = (
    "it maps column names (delta.columnMapping.mode), so files under their plain names would read "
    "as nulls; drop the feature (ALTER TABLE … DROP FEATURE columnMapping)"
)
_TRACKS_ROWS: Final = (
    "it tracks rows (delta.enableRowTracking), which is not done here; set it to false and drop "
    "the feature rowTracking"
)
_WANTS_TIMES: Final = (
    "it wants timestamps in its commits (delta.enableInCommitTimestamps), which are not written "
    "here; set it to false and drop the feature inCommitTimestamp"
)
_PROPERTIES: Final = {
    "delta.columnMapping.mode": ("none", _MAPS_NAMES),
    "delta.enableRowTracking": ("false", _TRACKS_ROWS),
    "delta.enableInCommitTimestamps": ("false", _WANTS_TIMES),
}
_COLUMN_RULES: Final = {
    "delta.invariants": "has an invariant",
    "delta.generationExpression": "is generated",
    "delta.identity.start": "is an identity column",
}


def rules_of(table: LoadedTable) -> object:
    """Return everything that the result of `misfits` depends on; equal values give equal
    results."""
    metadata = table.metadata()
    return (
        str(metadata.id),
        tuple(metadata.partition_columns),
        tuple(sorted(metadata.configuration.items())),
        json.dumps(json.loads(table.schema().to_json()), sort_keys=True),
        repr(table.protocol()),
    )


def misfits(
    table: LoadedTable, shape: Shape, staged: StagedWindow, by: PartitionBy | None
) -> list[str]:
    """Return the reasons why staged files cannot be added to the table with this shape; empty if
    they can. NOT NULL columns are read from the files where footers have no null counts."""
    return [
        *_partition_problems(shape, by),
        *_table_problems(table),
        *new_type_problems(table, shape),
        *_column_problems(shape, staged.schema),
        *_null_problems(shape, staged),
        *unsigned_problems(staged.files, lambda bits: bits),
    ]


def column_misfits(
    table: LoadedTable, shape: Shape, schema: pa.Schema, by: PartitionBy | None
) -> list[str]:
    """Return those problems of `misfits` that follow from the columns of the files alone. Partition
    columns that the writer derives from others need not be in `schema` yet."""
    made = {*shape.partition_columns} - {*schema.names}
    fields = tuple(field for field in shape.fields if field.name not in made)
    return [
        *_partition_problems(shape, by),
        *_table_problems(table),
        *new_type_problems(table, shape),
        *_column_problems(replace(shape, fields=fields), schema),
    ]


def type_problems(schema: pa.Schema) -> list[str]:
    """Columns of types that Delta does not have, or that its readers cannot give back."""
    import pyarrow as pa

    return [
        f"column {field.name!r} is {field.type}, for which Delta has no type; cast it in a "
        f"transform"
        for field in schema
        if not _has_type(pa.schema([field]))
    ]


def _has_type(schema: pa.Schema) -> bool:
    import pyarrow as pa
    from deltalake import Schema

    try:
        delta_schema = Schema.from_arrow(schema)
        pa.schema(
            delta_schema.to_arrow()
        )  # as a reader opens it: not extension types of fixed size
    except Exception:  # noqa: BLE001 - deltalake raises no specific class, with a Rust backtrace
        return False
    # deltalake makes tables with nanoseconds, by a feature that no protocol of Delta has.
    return not contains_type(delta_schema, _NANOSECONDS)


def map_type_problems(table: LoadedTable | None, schema: pa.Schema) -> list[str]:
    """Return a line for each column with a type inside of a map that needs a reader feature.
    delta-rs adds the feature for such types elsewhere only, and the table could not be opened any
    more."""
    features: set[str] = set()
    if table is not None:
        protocol = table.protocol()
        features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    if _NTZ_FEATURE in features:
        return []
    return [
        f"column {field.name!r} has instants without a zone in a map, and the table has not the "
        f"feature {_NTZ_FEATURE}, which is not added for maps; use instants with a zone "
        f"(timestamp), or add the feature to the table"
        for field in _delta_fields(schema)
        if _has_in_map(_parts(field), "timestamp_ntz")
    ]


def _has_in_map(type_json: Any, kind: str, *, inside: bool = False) -> bool:
    if isinstance(type_json, dict):
        inside = inside or type_json.get("type") == "map"
        types = (value for key, value in type_json.items() if key != "name")
        return any(_has_in_map(value, kind, inside=inside) for value in types)
    if isinstance(type_json, list):
        return any(_has_in_map(item, kind, inside=inside) for item in type_json)
    return inside and type_json == kind


def _partition_problems(shape: Shape, by: PartitionBy | None) -> Iterator[str]:
    there, requested = shape.partition_columns, () if by is None else by.names
    if {*there} == {*requested}:
        return
    if there:
        yield (
            f"it is partitioned by {', '.join(there)}; say so with partition_by="
            f"[{', '.join(map(repr, there))}]"
            + (f" instead of {by}" if by else "")
            + ", or write windows into a table without partition columns"
        )
        return
    yield (
        f"it has no partition columns, and partition_by asks for {by}; leave partition_by out, or "
        f"name a table that is to be made"
    )


def _table_problems(table: LoadedTable) -> Iterator[str]:
    metadata = table.metadata()
    for name, (harmless, problem) in _PROPERTIES.items():
        if metadata.configuration.get(name, harmless).lower() != harmless:
            yield f"{problem}, {_SEPARATE_TABLE}"
    prefix = "delta.constraints."
    for name, rule in sorted(metadata.configuration.items()):
        if name.lower().startswith(prefix):
            short = name[len(prefix) :]
            yield (
                f"its CHECK constraint {short} ({rule}) is not checked here; drop it "
                f"(ALTER TABLE … DROP CONSTRAINT {short}), {_SEPARATE_TABLE}"
            )
    yield from _protocol_problems(table)


def _protocol_problems(table: LoadedTable) -> Iterator[str]:
    protocol = table.protocol()
    if protocol.min_writer_version > WRITER_VERSION:
        version = protocol.min_writer_version
        yield f"it wants writers of version {version}; {WRITER_VERSION} is known here"
    if protocol.min_reader_version > READER_VERSION:
        version = protocol.min_reader_version
        yield f"it wants readers of version {version}; {READER_VERSION} is known here"
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    # A feature whose property is on has been named with it.
    for name in sorted(features - KNOWN_FEATURES):
        yield (
            f"it has the feature {name}, which asks of writers what is not done here; drop it "
            f"(ALTER TABLE … DROP FEATURE {name}), {_SEPARATE_TABLE}"
        )


def _column_problems(shape: Shape, schema: pa.Schema) -> Iterator[str]:
    table_fields = {field.name: field for field in shape.fields}
    for field in _delta_fields(schema):
        table_field = table_fields.pop(field.name, None)
        if table_field is None:
            yield (
                f"it has no column {field.name!r}; say schema_evolution='add_columns' to have new "
                f"columns added, or add it to the table"
            )
            continue
        if _type_of(table_field) != _type_of(field):
            yield f"column {field.name!r} is {table_field.type}, the files have {field.type}"
        yield from _rule_problems(table_field)
    for name, field in table_fields.items():
        if not field.nullable:
            yield f"its column {name!r} must not be null, and the files do not have it"
        if "CURRENT_DEFAULT" in field.metadata:
            yield (
                f"its column {name!r} has a default, which files without the column do not get; "
                f"drop the default, or fill the column in a transform"
            )
        yield from _rule_problems(field)


def _rule_problems(field: Any) -> Iterator[str]:
    for key, what in _COLUMN_RULES.items():
        if key in field.metadata:
            yield (
                f"its column {field.name!r} {what}, which is not seen to here; drop that, "
                f"{_SEPARATE_TABLE}"
            )


def _null_problems(shape: Shape, staged: StagedWindow) -> Iterator[str]:
    file_fields = {field.name: field for field in _delta_fields(staged.schema)}
    files, location = staged.files, staged.location
    for column in shape.fields:
        field = file_fields.get(column.name)
        if field is None or _type_of(column) != _type_of(field):
            continue
        is_stricter = field.nullable and not column.nullable
        if is_stricter and (nulls := sum(_nulls(file, column.name, location) for file in files)):
            yield (
                f"column {column.name!r} must not be null, and {nulls} records have none; drop "
                f"NOT NULL from it, or fill it in a transform"
            )
        # Whether it is null *inside* a value cannot be counted cheaply, so what may be is refused.
        if _allows_more_nulls(_parts(column), _parts(field)):
            yield (
                f"column {column.name!r} is {column.type}, the parts of which must not be null, "
                f"and those of {field.type} may be; allow it, or cast it in a transform"
            )


def _nulls(file: FileFact, name: str, location: Location) -> int:
    shared = {key: text for key, _, text in file.keys}
    if name in shared:
        return file.rows if shared[name] is None else 0
    counted = file.null_count(name)
    if counted is not None:
        return counted
    import pyarrow.parquet as pq

    with location.open(file.path) as source, pq.ParquetFile(source) as opened:
        return sum(b.column(name).null_count for b in opened.iter_batches(columns=[name]))


def _delta_fields(schema: pa.Schema) -> list[Any]:
    from deltalake import Schema

    return list(Schema.from_arrow(schema).fields)


def _parts(field: Any) -> Any:
    return json.loads(field.to_json())["type"]


def _type_of(field: Any) -> object:
    """Return a field's type without the nullability of its parts."""
    return _without_nulls(_parts(field))


def _without_nulls(type_json: Any) -> Any:
    if isinstance(type_json, dict):
        return {k: _without_nulls(v) for k, v in type_json.items() if k not in _NESTED_NULLS}
    return (
        [_without_nulls(item) for item in type_json] if isinstance(type_json, list) else type_json
    )


def _allows_more_nulls(table_type: Any, file_type: Any) -> bool:
    """Return True if a part of `given` may be null where that of `wanted` must not be. Both are of
    equal types."""
    if isinstance(table_type, Mapping):
        return any(
            (value is False and file_type[key] is True) or _allows_more_nulls(value, file_type[key])
            for key, value in table_type.items()
            if key in file_type and key != "metadata"
        )
    if isinstance(table_type, list):
        return any(_allows_more_nulls(*pair) for pair in zip(table_type, file_type, strict=True))
    return False
