"""Reduction of a window to the last change of each key, before anything is written.

A merge then handles keys, not events. Rows are kept in memory and reduced each time that
`_COMPACT_ROWS` have come in, so memory is bounded by the keys of a window, at most `MOST_KEYS`. A
change of the key itself becomes the delete of the old one and the row of the new one. This module
must not know a sink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tubemq_provider.windows.errors import ChangeOrderUnclear
from tubemq_provider.windows.following import OP, Following

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

__all__ = ["MOST_KEYS", "Reducer", "reduced_schema"]

MOST_KEYS: Final = 5_000_000
"""Maximal keys of one window, whose rows are in memory."""
_COMPACT_ROWS: Final = 200_000
_BATCH_ROWS: Final = 65_536
_BEFORE: Final = "_before"
_ORDER: Final = "_order"


def reduced_schema(schema: pa.Schema, following: Following | None) -> pa.Schema:
    """Return the columns of reduced rows: those of the rows without ``_before``, with ``_op`` last;
    of a table that follows no changes, those of the rows. Raises `ConfigError` if they lack the key
    or the version."""
    import pyarrow as pa

    if following is None:
        return schema
    kept = [item for item in schema if item.name not in (OP, _BEFORE)]
    following.check_columns([item.name for item in kept])
    return pa.schema([*kept, pa.field(OP, pa.string())])


class Reducer:
    """Last changes by key of batches with `schema`, which `add` takes in the order of reading."""

    def __init__(self, schema: pa.Schema, following: Following) -> None:
        self.schema = reduced_schema(schema, following)
        self._following = following
        self._key = list(following.key)
        self._read = 0
        self._tables: list[pa.Table] = []
        self._rows = 0
        self._compact_at = _COMPACT_ROWS

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next rows. Raises `ChangeOrderUnclear` for keys that are null."""
        table = self._with_moved_keys(batch)
        for name in (*self._key, self._following.version):
            if name is not None and table.column(name).null_count:
                raise ChangeOrderUnclear(
                    f"a change has no value in {name!r}, which "
                    f"{'orders changes' if name == self._following.version else 'is of the key'}; "
                    "name another column, or have the source write it"
                )
        self._tables.append(table)
        self._rows += table.num_rows
        if self._rows >= self._compact_at:
            self._compact()

    def result(self) -> pa.Table:
        """Return the last change of each key, in the order of reading."""
        self._compact()
        return self._tables[0].select(self.schema.names)

    def by_partition(self, keys: Iterable[str]) -> Iterator[tuple[str, list[pa.RecordBatch]]]:
        """Yield the partitions with the last changes that were read from each, in batches."""
        import pyarrow.compute as pc

        table = self.result()
        for key in keys:
            rows = table.filter(pc.equal(table.column("partition"), key))
            yield key, rows.to_batches(max_chunksize=_BATCH_ROWS)

    def _with_moved_keys(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the rows with their order, and before each that changes its key the delete of the
        old one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        count = batch.num_rows
        order = pa.array(range(self._read, self._read + 2 * count, 2), pa.int64())
        self._read += 2 * count
        names = batch.schema.names
        op = batch.column(OP) if OP in names else pa.array(["u"] * count, pa.string())
        kept = [name for name in self.schema.names if name != OP]
        columns = [*(batch.column(name) for name in kept), op, pc.add(order, 1)]
        schema = self.schema.append(pa.field(_ORDER, pa.int64()))
        table = pa.Table.from_arrays(columns, schema=schema)
        if self._following.apply != "changes" or _BEFORE not in names or not count:
            return table
        before = batch.column(_BEFORE)
        moved = pa.array([False] * count)
        for name in self._key:
            old = pc.struct_field(before, name)
            changed = pc.and_(pc.is_valid(old), pc.not_equal(old, batch.column(name)))
            moved = pc.or_(moved, pc.fill_null(changed, fill_value=False))
        moved = pc.and_(moved, pc.fill_null(pc.equal(op, "u"), fill_value=False))
        if not pc.any(moved).as_py():
            return table
        old_keys = before.filter(moved)
        deleted = table.filter(moved)
        member_names = {item.name for item in before.type}
        for at, name in enumerate(deleted.schema.names):
            if name in member_names:
                cells = pc.struct_field(old_keys, name)
                if name == self._following.version:
                    continue  # the delete is as new as the change that made it
                deleted = deleted.set_column(at, schema.field(name), cells)
        deleted = deleted.set_column(
            deleted.schema.get_field_index(OP),
            schema.field(OP),
            pa.array(["d"] * deleted.num_rows, pa.string()),
        )
        deleted = deleted.set_column(
            deleted.schema.get_field_index(_ORDER), schema.field(_ORDER), order.filter(moved)
        )
        return pa.concat_tables([deleted, table])

    def _compact(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        schema = self.schema.append(pa.field(_ORDER, pa.int64()))
        table = pa.concat_tables([schema.empty_table(), *self._tables]).combine_chunks()
        version = self._following.version
        rank = [(version, "ascending")] if version else []
        table = table.sort_by([*rank, (_ORDER, "ascending")])
        table = table.append_column("_rank", pa.array(range(table.num_rows), pa.int64()))
        group = [*self._key, *([version] if version else [])]
        partitions = table.group_by(group, use_threads=False).aggregate(
            [("partition", "count_distinct")]
        )
        if pc.any(pc.greater(partitions.column("partition_count_distinct"), 1)).as_py():
            raise ChangeOrderUnclear(
                f"changes of one key ({', '.join(self._key)}) came from two partitions"
                + (
                    f" with the same {version!r}, so that nothing says which is the last; name a "
                    "version that differs"
                    if version
                    else ", so that nothing says which is the last; name a column that orders them "
                    "in version="
                )
            )
        last = table.group_by(self._key, use_threads=False).aggregate([("_rank", "max")])
        rows = pc.sort_indices(pc.take(table.column(_ORDER), last.column("_rank_max")))
        table = table.take(pc.take(last.column("_rank_max"), rows)).drop_columns(["_rank"])
        if table.num_rows > MOST_KEYS:
            raise ChangeOrderUnclear(
                f"the window changes more than {MOST_KEYS} keys, whose rows one process would have "
                "in memory; set max_records to make windows smaller"
            )
        self._tables, self._rows = [table], table.num_rows
        self._compact_at = 2 * max(_COMPACT_ROWS, table.num_rows)
