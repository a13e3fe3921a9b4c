"""What an Iceberg table says about files that are added to it, and whether it would be true.

pyiceberg takes a file's partition from the least and largest value in its footer: a column without
them, or with some nulls, puts all records into a partition that they are not in, and readers with a
filter pass over them. Files have no field ids, so columns are found through the table's name
mapping: one that is not in it reads as null. Both are judged here before anything is committed.
This module reads a loaded table and facts of files, and must not change either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubemq_provider.windows.facts import FileFact

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

__all__ = ["StagedColumns", "columns_of", "misfits"]


@dataclass(frozen=True, slots=True)
class StagedColumns:
    """Columns of a window's files, and which of them have values that their footers tell: a least
    and a largest one and no null, or nulls alone, in every file."""

    names: frozenset[str]
    told: frozenset[str]


def columns_of(schema: pa.Schema | None, files: Sequence[FileFact]) -> StagedColumns:
    """The columns of `files`, all of `schema`."""
    if schema is None:
        return StagedColumns(frozenset(), frozenset())
    told = set(schema.names)
    for file in files:
        told &= {path for path, leaf in file.leaves.items() if leaf.told}
    return StagedColumns(frozenset(schema.names), frozenset(told))


def misfits(table: Table, columns: StagedColumns) -> list[str]:
    """Why files with `columns` cannot be added to the table; empty if they can."""
    return [*_partition_problems(table, columns), *_mapping_problems(table, columns.names)]


def _partition_problems(table: Table, columns: StagedColumns) -> Iterator[str]:
    schema = table.schema()
    for field in table.spec().fields:
        name = schema.find_column_name(field.source_id) or ""
        if name.partition(".")[0] in columns.names and name not in columns.told:
            yield (
                f"it is partitioned by {field.transform}({name}), and the footers of the files do "
                f"not tell which partition their records are in (no least and largest value of "
                f"{name!r}, or some nulls): readers with a filter would pass over them; write into "
                f"a table without that partition field, or one by msg_time of records that all "
                f"have it, and a window a partition"
            )


def _mapping_problems(table: Table, names: Collection[str]) -> Iterator[str]:
    mapping = table.name_mapping()
    if mapping is None:
        return
    wanted = _ids(table.schema().name_mapping)
    known = _ids(mapping)
    for path, number in wanted.items():
        if path[0] in names and known.get(path) != number:
            yield (
                f"its name mapping (schema.name-mapping.default) does not lead from "
                f"{'.'.join(path)!r} to that column, so the column would read as null; remove the "
                f"property, or add the name to it"
            )


def _ids(fields: Iterable[Any], above: tuple[str, ...] = ()) -> dict[tuple[str, ...], int | None]:
    found: dict[tuple[str, ...], int | None] = {}
    for field in fields:
        for name in field.names:
            found[(*above, name)] = field.field_id
            found |= _ids(field.fields, (*above, name))
    return found
