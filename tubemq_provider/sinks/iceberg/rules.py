"""Checks of files that are to be added to an Iceberg table: would it read them correctly?

pyiceberg takes a file's partition from the least and largest value in its footer: a column without
them, or with some nulls, puts all records into a partition that they are not in, and readers with a
filter pass over them. Columns of files without field ids (Spark's own writer, engines of others)
are found through the table's name mapping: one that is not in it reads as null. pyiceberg takes
types that readers cannot. All are judged here before anything is committed.
This module reads a loaded table and facts of files, and must not change either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubemq_provider.files.field_ids import ids_in
from tubemq_provider.files.footers import arrow_schema_of
from tubemq_provider.sinks._column_names import case_problems, path_problems
from tubemq_provider.sinks._evolution import Evolution
from tubemq_provider.sinks.iceberg.spec import spec_of
from tubemq_provider.windows.facts import FileFact
from tubemq_provider.windows.partitioning import PartitionBy

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

__all__ = [
    "StagedColumns",
    "alike_problems",
    "column_misfits",
    "columns_of",
    "misfits",
    "mismatches",
    "new_column_problems",
    "type_problems",
]


@dataclass(frozen=True, slots=True)
class StagedColumns:
    """Columns of a window's files, and which of them have values that their footers tell: a least
    and a largest one and no null, or nulls alone, in every file. `numbered`: every file has field
    ids."""

    names: frozenset[str]
    told: frozenset[str]
    numbered: bool = False


def columns_of(schema: pa.Schema | None, files: Sequence[FileFact]) -> StagedColumns:
    """Return the columns of `files`, all of `schema`."""
    if schema is None:
        return StagedColumns(frozenset(), frozenset())
    in_footers = set(schema.names)
    for file in files:
        in_footers &= {path for path, leaf in file.leaves.items() if leaf.told}
    numbered = all(ids_in(arrow_schema_of(file)) is not None for file in files)
    return StagedColumns(frozenset(schema.names), frozenset(in_footers), numbered)


def alike_problems(table: Table | None, schema: pa.Schema) -> list[str]:
    """Columns of files that the table, or one made of them, could not tell from others."""
    if table is None:
        return [*case_problems(schema), *path_problems(schema, ())]
    there, paths = _names_in(table), table.schema().column_names
    return [*case_problems(schema, there), *path_problems(schema, there, paths)]


def type_problems(table: Table | None, schema: pa.Schema) -> list[str]:
    """Columns of types that the table, or one made of them, cannot have."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, _pyarrow_to_schema_without_ids
    from pyiceberg.table import TableProperties

    version = TableProperties.DEFAULT_FORMAT_VERSION
    if table is not None:
        version = table.metadata.format_version
    problems = []
    for field in schema:
        try:
            # Without pyiceberg's cut of nanoseconds: the files would keep them.
            _pyarrow_to_schema_without_ids(pa.schema([field]), False, version)  # noqa: FBT003
        except (ValueError, TypeError, UnsupportedPyArrowTypeException):
            problems.append(
                f"column {field.name!r} is {field.type}, for which the table can have no type; "
                f"cast it in a transform"
            )
    return problems


def _names_in(table: Table) -> list[str]:
    """Its columns; pyiceberg's `column_names` has their parts too."""
    return [field.name for field in table.schema().fields]


def misfits(table: Table, columns: StagedColumns, by: PartitionBy | None) -> list[str]:
    """Return the reasons why files with `columns` cannot be added to the table; empty if they can.
    Files that were written by partition need no partition values in their footers."""
    partition_problems = (
        _footer_problems(table, columns) if by is None else _spec_problems(table, by)
    )
    # Columns are found by number where files have them, and by the mapping of names elsewhere.
    mapped = [] if columns.numbered else _mapping_problems(table, columns.names)
    return [*partition_problems, *mapped]


def column_misfits(
    table: Table, schema: pa.Schema, by: PartitionBy | None, evolution: Evolution
) -> list[str]:
    """Return the reasons why files with these columns cannot be added, as far as no values are
    needed."""
    problems = [] if by is None else [*_spec_problems(table, by)]
    problems += new_column_problems(table, schema, evolution)
    problems += mismatches(table, schema)
    if not problems:
        problems += _type_problems(table, schema)
    return problems


def mismatches(table: Table, schema: pa.Schema) -> list[str]:
    """Columns of files whose types are not those of the table, nor may become them when they are
    read. pyiceberg also takes bytes for text, for one, and then no reader can scan the table."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids

    there = {field.name: field.field_type for field in table.schema().fields}
    version = table.metadata.format_version
    problems = []
    for field in schema:
        if field.name not in there:
            continue
        file_schema = _pyarrow_to_schema_without_ids(pa.schema([field]), False, version)  # noqa: FBT003
        for path, table_type, file_type in _differences(
            field.name, there[field.name], file_schema.fields[0].field_type
        ):
            problems.append(
                f"column {path!r} is {table_type} in the table and {file_type} in the files, which "
                f"readers cannot take for it; cast it in decode or transform, or write into "
                f"another table"
            )
    return problems


def _differences(path: str, table_type: Any, file_type: Any) -> Iterator[tuple[str, Any, Any]]:
    """Parts of a column that differ, with both types."""
    from pyiceberg.types import ListType, MapType, StructType

    if isinstance(table_type, StructType) and isinstance(file_type, StructType):
        parts = {field.name: field.field_type for field in table_type.fields}
        for field in file_type.fields:
            if field.name not in parts:
                yield f"{path}.{field.name}", "missing", field.field_type
            else:
                yield from _differences(f"{path}.{field.name}", parts[field.name], field.field_type)
    elif isinstance(table_type, ListType) and isinstance(file_type, ListType):
        yield from _differences(f"{path}.element", table_type.element_type, file_type.element_type)
    elif isinstance(table_type, MapType) and isinstance(file_type, MapType):
        yield from _differences(f"{path}.key", table_type.key_type, file_type.key_type)
        yield from _differences(f"{path}.value", table_type.value_type, file_type.value_type)
    elif table_type != file_type and not _becomes(file_type, table_type):
        yield path, table_type, file_type


def _becomes(file_type: Any, table_type: Any) -> bool:
    """Promotions that every reader of Iceberg makes: the specification lists them."""
    from pyiceberg.types import DecimalType, DoubleType, FloatType, IntegerType, LongType

    if isinstance(file_type, DecimalType) and isinstance(table_type, DecimalType):
        return file_type.scale == table_type.scale and file_type.precision <= table_type.precision
    return (type(file_type), type(table_type)) in ((IntegerType, LongType), (FloatType, DoubleType))


def _type_problems(table: Table, schema: pa.Schema) -> Iterator[str]:
    """Yield pyiceberg's objections to columns that both have."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import _check_pyarrow_schema_compatible

    table_names = {*_names_in(table)}
    shared = pa.schema([field for field in schema if field.name in table_names])
    try:
        _check_pyarrow_schema_compatible(
            table.schema(), shared, format_version=table.metadata.format_version
        )
    except ValueError as exc:
        yield str(exc)


def new_column_problems(table: Table, schema: pa.Schema, evolution: Evolution) -> list[str]:
    """Columns of files that the table has not and does not get, with the way out.

    Never one under a name that another column had: files of earlier releases have no field ids, so
    they would be read under the new column. What was renamed would be null, and what was dropped
    would come back, or no reader could make sense of it."""
    now = {field.field_id: field.name for field in table.schema().fields}
    before = _former_names(table)
    problems = []
    for name in schema.names:
        if name in now.values():
            continue
        if name in before:
            became = now.get(before[name] or 0)
            problems.append(
                f"its column {name!r} was {f'renamed to {became!r}' if became else 'dropped'}, and "
                f"a new one of that name would have the values of its files; write {name!r} under "
                f"another name (in decode or transform), or leave it out"
            )
        elif evolution == "refuse":
            problems.append(
                f"it has no column {name!r}; say schema_evolution='add_columns' to have new "
                f"columns added, or add it to the table"
            )
    return problems


def _former_names(table: Table) -> dict[str, int | None]:
    """Names that columns of the table have or had, and their numbers."""
    mapping = table.name_mapping()
    mapped_ids = {} if mapping is None else _ids(mapping)
    ids_by_name = {path[0]: number for path, number in mapped_ids.items() if len(path) == 1}
    past = (field for schema in table.metadata.schemas for field in schema.fields)
    return ids_by_name | {field.name: field.field_id for field in past}


def _spec_problems(table: Table, by: PartitionBy) -> Iterator[str]:
    there, requested = spec_of(table.metadata), {(f.column, f.transform) for f in by.fields}
    if {*there} == requested:
        return
    words = [f"{how}({name})" if how != "identity" else name for name, how in there]
    yield (
        f"it is partitioned by {', '.join(words) or 'nothing'}, and partition_by says {by}; say "
        f"the same, leave partition_by out, or change the table's partition spec"
    )


def _footer_problems(table: Table, columns: StagedColumns) -> Iterator[str]:
    schema = table.schema()
    for field in table.spec().fields:
        name = schema.find_column_name(field.source_id) or ""
        if name.partition(".")[0] in columns.names and name not in columns.told:
            yield (
                f"it is partitioned by {field.transform}({name}), and the footers of the files do "
                f"not tell which partition their records are in (no least and largest value of "
                f"{name!r}, or some nulls): readers with a filter would pass over them; say "
                f"partition_by, so that files are written apart by it, or write into a table "
                f"without that partition field, or one by msg_time of records that all have it, "
                f"and a window a partition"
            )


def _mapping_problems(table: Table, names: Collection[str]) -> Iterator[str]:
    mapping = table.name_mapping()
    if mapping is None:
        return
    schema_ids = _ids(table.schema().name_mapping)
    mapped_ids = _ids(mapping)
    for path, number in schema_ids.items():
        if path[0] in names and mapped_ids.get(path) != number:
            yield (
                f"its name mapping (schema.name-mapping.default) does not lead from "
                f"{'.'.join(path)!r} to that column, so the column would read as null; remove the "
                f"property, or add the name to it"
            )


def _ids(fields: Iterable[Any], above: tuple[str, ...] = ()) -> dict[tuple[str, ...], int | None]:
    ids_by_path: dict[tuple[str, ...], int | None] = {}
    for field in fields:
        for name in field.names:
            ids_by_path[(*above, name)] = field.field_id
            ids_by_path |= _ids(field.fields, (*above, name))
    return ids_by_path
