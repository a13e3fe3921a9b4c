"""Columns of an Iceberg table and their numbers: in files, in the table, and when they come in.

Files carry numbers (`files.field_ids`), so a table gets new columns under the numbers that its
files have. pyiceberg's own update would choose others. This module changes a transaction at most
and commits nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tubemq_provider.files.field_ids import ids_in, with_field_ids
from tubemq_provider.sinks._table_sink import is_stub
from tubemq_provider.sinks.iceberg.spec import as_nullable
from tubemq_provider.windows.field_ids import FieldIds

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata

__all__ = ["field_ids_of", "id_problem", "require_columns", "set_columns"]


def field_ids_of(table: Table | None) -> FieldIds:
    """Numbers for files of the table, or of one that will be made."""
    if table is None:
        return FieldIds({"partition": 1}, first=True)
    return _ids_of(table.metadata)


def _ids_of(metadata: TableMetadata) -> FieldIds:
    schema = metadata.schema()
    ids_by_path = {path: schema.find_field(path).field_id for path in schema.column_names}
    used = {number for each in metadata.schemas for number in each.field_ids}
    return FieldIds(
        ids_by_path, tuple(sorted(used - {*ids_by_path.values()})), is_stub(schema.column_names)
    )


def id_problem(metadata: TableMetadata, schema: pa.Schema) -> str | None:
    """Return why columns would be read from other columns of the files: their field ids are not the
    table's. A path that the table lacks must have an id that no column had. None if the ids match,
    or the files have none."""
    file_ids = ids_in(schema)
    if file_ids is None:
        return None
    table = _ids_of(metadata)
    taken = {*table.used, *table.known.values()}
    for path, number in file_ids.items():
        table_id = table.known.get(path)
        if table_id is None and number in taken:
            return f"the files have column {path!r} under the number {number} of another column"
        if table_id not in (None, number):
            return f"column {path!r} has the number {table_id}, and {number} in the files"
    return None


def set_columns(
    change: Transaction, schema: pa.Schema, fields: Sequence[pa.Field], order: Sequence[str] = ()
) -> None:
    """Give the table those `fields` of `schema` that it has not, which may be null. Columns stand
    in the `order` of names, if one is given."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import pyarrow_to_schema
    from pyiceberg.schema import Schema
    from pyiceberg.table.name_mapping import update_mapping
    from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate

    metadata = change.table_metadata
    now = metadata.schema()
    if ids_in(schema) is None:
        schema = with_field_ids(schema, _ids_of(metadata))
    names = {field.name for field in now.fields}
    more = [schema.field(field.name) for field in fields if field.name not in names]
    if not more:
        return
    new = pyarrow_to_schema(
        pa.schema(as_nullable(more)), format_version=metadata.format_version
    ).fields
    made = [*now.fields, *new]
    if order:
        places = {name: at for at, name in enumerate(order)}
        made.sort(key=lambda field: places.get(field.name, len(places)))
    number = 1 + max(each.schema_id for each in metadata.schemas)
    grown = Schema(*made, schema_id=number, identifier_field_ids=now.identifier_field_ids)
    require_columns(change)
    change._apply((AddSchemaUpdate(schema_=grown), SetCurrentSchemaUpdate(schema_id=-1)))  # noqa: SLF001 (pyiceberg's own update numbers columns itself)
    mapping = metadata.name_mapping()
    if mapping is not None:
        mapping = update_mapping(mapping, {}, {-1: list(new)})
        change.set_properties({"schema.name-mapping.default": mapping.model_dump_json()})


def require_columns(change: Transaction) -> None:
    """Make the catalog refuse the commit if the table's columns or partition spec have changed
    since the files were checked."""
    from pyiceberg.table.update import AssertCurrentSchemaId, AssertDefaultSpecId

    metadata = change.table_metadata
    change._apply(  # noqa: SLF001 (a requirement without an update has no public name)
        (),
        (
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
        ),
    )
