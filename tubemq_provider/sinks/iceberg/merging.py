"""Changes merged into an Iceberg table: one snapshot that rewrites the files with changed rows.

pyiceberg's own upsert and delete make a snapshot each, so that the window would be two; and they
compare by an expression with every key. Here keys are joined file by file: files without a
changed key stay as they are, of others the remaining rows are written again, together with the
changed ones. In memory are the changed rows, one file, and up to `_REWRITE_BYTES` of rows that
remain. This module must not decide whether a window is in the table.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tubemq_provider.sinks._deleted_keys import refuse_unclear
from tubemq_provider.windows.following import OP, Following

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction

__all__ = ["Merged", "merge"]

_REWRITE_BYTES: Final = 64 * 1024 * 1024
_STAGED: Final = "_staged"
_AT: Final = "_at"


class Merged:
    """Files of one merge: `removed` leave the table, `added` come into it."""

    def __init__(self, change: Transaction, table: Table) -> None:
        self.removed: list[DataFile] = []
        self.added: list[DataFile] = []
        self._metadata, self._io = change.table_metadata, table.io
        self._rows: list[pa.Table] = []
        self._bytes = 0
        self._write_id, self._numbers = uuid.uuid4(), itertools.count()

    def add(self, rows: pa.Table) -> None:
        """Take rows of the table's new state."""
        if rows.num_rows:
            self._rows.append(rows)
            self._bytes += rows.nbytes
        if self._bytes >= _REWRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that were taken."""
        import pyarrow as pa
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        if self._rows:
            rows = pa.concat_tables(self._rows)
            self.added += _dataframe_to_data_files(
                self._metadata, rows, self._io, self._write_id, self._numbers
            )
        self._rows, self._bytes = [], 0

    def discard(self) -> None:
        """Delete the files of a merge that was not committed."""
        for file in self.added:
            with suppress(Exception):
                self._io.delete(file.file_path)


def merge(change: Transaction, table: Table, changes: pa.Table, following: Following) -> Merged:
    """Write the files of the table's state after `changes`. Nothing is committed.
    Raises `ChangeOrderUnclear` if a row came from another partition and no version says which
    change is the last."""
    import pyarrow.compute as pc
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    target = schema_to_pyarrow(change.table_metadata.schema(), include_field_ids=False)
    merged = Merged(change, table)
    outdated: list[pa.Array] = []
    try:
        for file, pairs, read in _files_with(table, changes, following):
            if following.version is None:
                newer = pairs
            else:
                old = pairs.column(f"{following.version}_old")
                is_newer = pc.or_kleene(
                    pc.is_null(old), pc.greater_equal(pairs.column(following.version), old)
                )
                newer = pairs.filter(is_newer)
                outdated.append(pairs.filter(pc.invert(is_newer)).column(_STAGED))
            if not newer.num_rows:
                continue
            rows = read()
            merged.removed.append(file)
            merged.add(_without(rows, newer.column(_AT)).cast(target))
        merged.add(_new_rows(changes, outdated, following, target))
        merged.flush()
    except BaseException:
        merged.discard()
        raise
    return merged


def _new_rows(
    changes: pa.Table, outdated: Sequence[Any], following: Following, target: pa.Schema
) -> pa.Table:
    """Return the changed rows with the columns of the table, without changes that are older than
    its rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if outdated:
        old = pa.chunked_array([chunk for one in outdated for chunk in one.chunks], pa.int64())
        changes = _without(changes, old)
    deleted = pc.equal(changes.column(OP), "d")
    if following.soft_delete is None:
        changes = changes.filter(pc.invert(deleted))
    else:
        changes = changes.append_column(following.soft_delete, deleted)
    columns = [
        changes.column(item.name).cast(item.type)
        if item.name in changes.schema.names
        else pa.nulls(changes.num_rows, item.type)
        for item in target
    ]
    return pa.Table.from_arrays(columns, schema=target)


def _without(rows: pa.Table, places: pa.ChunkedArray) -> pa.Table:
    """Return the rows but those at `places`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at = pa.array(range(rows.num_rows), pa.int64())
    return rows.filter(pc.invert(pc.is_in(at, value_set=places.combine_chunks())))


def _files_with(
    table: Table, changes: pa.Table, following: Following
) -> Iterator[tuple[DataFile, pa.Table, Any]]:
    """Yield the data files that have changed keys, with the pairs of their rows and staged changes,
    and the function that reads the whole file."""
    import pyarrow as pa
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    beside, key = following.version or "partition", list(following.key)
    names = following.of_deleted
    if not changes.num_rows:  # all were older than a delete
        return
    staged = changes.select(names).append_column(
        _STAGED, pa.array(range(changes.num_rows), pa.int64())
    )

    def rows_of(task: Any, schema: Any) -> pa.Table:
        scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
        return scan.to_table(tasks=[task])

    schema = table.schema()
    for task in table.scan(row_filter=_range_of(changes, following, schema)).plan_files():
        there = rows_of(task, schema.select(*names)).select(names).cast(staged.select(names).schema)
        refuse_unclear(there, staged.select(names), key, following.version)
        old = there.column(beside)
        there = there.select(key).append_column(f"{beside}_old", old)
        there = there.append_column(_AT, pa.array(range(there.num_rows), pa.int64()))
        pairs = there.join(staged, key, join_type="inner")
        if pairs.num_rows:
            yield task.file, pairs, lambda task=task: rows_of(task, schema)


def _range_of(changes: pa.Table, following: Following, schema: Any) -> Any:
    """Return a filter for files that can have keys of the changes, by their first column."""
    import pyarrow.compute as pc
    from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, LessThanOrEqual
    from pyiceberg.types import DateType, IntegerType, LongType, StringType

    name = following.key[0]
    if not isinstance(
        schema.find_field(name).field_type, IntegerType | LongType | StringType | DateType
    ):
        return AlwaysTrue()
    ends = pc.min_max(changes.column(name)).as_py()
    least: Any = GreaterThanOrEqual  # mypy takes the arguments for those of its model
    most: Any = LessThanOrEqual
    return And(least(name, ends["min"]), most(name, ends["max"]))
