"""Parquet file being written, and its facts when it is finished.

Takes row groups and returns a `FileFact`; writers above decide which records go into which file.
This module must not know partitions, ranges or names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tubemq_provider.files.footers import fact_of, leaf_paths
from tubemq_provider.files.locations import Location, give_up
from tubemq_provider.windows.facts import FileFact

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.files.columns import ColumnSet

__all__ = ["DataFile"]


class DataFile:
    """Parquet file `name` in `location`. In an object store it appears only when it is closed.

    `columns` select the columns with dictionary and statistics; without them all have both.
    """

    def __init__(
        self,
        location: Location,
        name: str,
        schema: pa.Schema,
        compression: str = "snappy",
        columns: ColumnSet | None = None,
    ) -> None:
        import pyarrow.parquet as pq

        self.name = name
        self._schema = schema
        self._output = location.create(name)
        self._footers: list[Any] = []
        self._nulls: Counter[str] = Counter()
        names = schema.names
        self._writer = pq.ParquetWriter(
            self._output.stream,
            schema,
            compression=compression,
            use_dictionary=True
            if columns is None
            else columns.repeating(names) + _flat(schema, columns),
            write_statistics=_ranged(schema, columns),
            metadata_collector=self._footers,
        )

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._output.stream.tell())

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write `batches` as one row group."""
        import pyarrow as pa

        table = pa.Table.from_batches(batches, self._schema)
        self._writer.write_table(table, row_group_size=table.num_rows)
        for name in table.column_names:
            self._nulls[name] += table.column(name).null_count

    def close(self) -> FileFact:
        """Finish the file and return its facts."""
        self._writer.close()
        stored = self._output.finish()
        return fact_of(self.name, stored, self._footers[0], nulls=self._nulls)

    def abandon(self) -> None:
        """Give up the file unfinished."""
        give_up(self._writer, self._output)


def _flat(schema: pa.Schema, columns: ColumnSet) -> list[str]:
    """Return flat columns that were decoded from bodies. They get dictionary and statistics, which
    readers expect, and which cost little if they are of no use."""
    import pyarrow.types as pt

    return [f.name for f in schema if f.name not in columns.names and not pt.is_nested(f.type)]


def _ranged(schema: pa.Schema, columns: ColumnSet | None) -> list[str] | bool:
    """Return paths of the leaves with statistics. Floating-point columns have none: bounds ignore
    NaN, and pyarrow's filters would skip a row group with equal bounds although it has NaN."""
    import pyarrow.types as pt

    real = {field.name for field in schema if pt.is_floating(field.type)}
    if columns is not None:
        flat = [name for name in _flat(schema, columns) if name not in real]
        return columns.ranged(schema.names) + flat
    if not real:
        return True
    return [path for path in leaf_paths(schema) if path not in real]
