"""One Parquet file while it is written, and the facts of it when it is whole.

Row groups in, a fact out; writers above decide what goes into which file. This module must not know
partitions, ranges or names.
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
    """A file called `name` in `location`, which in an object store is there when it is whole.

    `columns` say what a dictionary and statistics are written for; without them both are written
    for all.
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
        """Bytes so far."""
        return int(self._output.stream.tell())

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """A row group of `batches`."""
        import pyarrow as pa

        table = pa.Table.from_batches(batches, self._schema)
        self._writer.write_table(table, row_group_size=table.num_rows)
        for name in table.column_names:
            self._nulls[name] += table.column(name).null_count

    def close(self) -> FileFact:
        """The file is whole, and there."""
        self._writer.close()
        stored = self._output.finish()
        return fact_of(self.name, stored, self._footers[0], nulls=self._nulls)

    def abandon(self) -> None:
        """It will not be whole."""
        give_up(self._writer, self._output)


def _flat(schema: pa.Schema, known: ColumnSet) -> list[str]:
    """Columns that are not a record's own, decoded from bodies: a dictionary and statistics cost
    little where they do not pay, and readers expect them."""
    import pyarrow.types as pt

    return [f.name for f in schema if f.name not in known.names and not pt.is_nested(f.type)]


def _ranged(schema: pa.Schema, known: ColumnSet | None) -> list[str] | bool:
    """Paths that statistics are written for. Not floating-point numbers: bounds say nothing of NaN,
    and pyarrow takes a column whose least value is its largest for one without any, so that filters
    find no NaN."""
    import pyarrow.types as pt

    real = {field.name for field in schema if pt.is_floating(field.type)}
    if known is not None:
        flat = [name for name in _flat(schema, known) if name not in real]
        return known.ranged(schema.names) + flat
    if not real:
        return True
    return [path for path in leaf_paths(schema) if path not in real]
