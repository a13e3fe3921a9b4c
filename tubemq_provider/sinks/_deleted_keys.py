"""Partitions of deleted keys, beside a table whose changes have no version.

Without a version the changes of a key must come from one partition. That of a row is in the table;
that of a row that was deleted is nowhere, and its key might come back from another partition in a
later window. So each window notes the keys that it deletes, *before* it is committed: that a key
came from a partition is true whether the commit succeeds or not, and noting it twice changes
nothing. This module must not know table formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from tubemq_provider.rows.changes.reduction import MOST_KEYS
from tubemq_provider.sinks._storage import Storage
from tubemq_provider.windows.errors import ChangeOrderUnclear
from tubemq_provider.windows.following import OP, Following

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DeletedKeys", "refuse_moved"]

_MOST_FILES: Final = 32
_ATTEMPTS: Final = 5


class DeletedKeys:
    """Deleted keys of the table with `table_id`, in files beside it."""

    def __init__(self, storage: Storage, table_id: str, following: Following) -> None:
        self._storage = storage
        self._root = f"_tubemq/{table_id}/deleted"
        self._key = list(following.key)

    def note(self, window_id: str, changes: pa.Table) -> None:
        """Note the keys that a window deletes. Raises `ChangeOrderUnclear` if one of its keys was
        deleted by a change from another partition."""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = [*self._key, *([] if "partition" in self._key else ["partition"])]
        known, names = self._known()
        if known is not None:
            refuse_moved(known.select(columns), changes.select(columns), self._key)
        deleted = changes.filter(pc.equal(changes.column(OP), "d")).select(columns)
        if deleted.num_rows:
            self._storage.create_file(f"{self._root}/{window_id}.arrow", _bytes_of(deleted))
        if known is not None and len(names) >= _MOST_FILES:
            rows = pa.concat_tables([known.cast(deleted.schema), deleted])
            rows = rows.group_by(columns).aggregate([]).select(columns)
            if rows.num_rows > MOST_KEYS:
                raise ChangeOrderUnclear(
                    f"more than {MOST_KEYS} keys were deleted, and without a version the partition "
                    "of each has to be known; name a column that orders changes in version="
                )
            self._storage.create_file(f"{self._root}/{uuid4().hex}.arrow", _bytes_of(rows))
            self._storage.remove(names)

    def _known(self) -> tuple[pa.Table | None, list[str]]:
        """Return what was noted, and the names of its files. Another try may replace several files
        by one meanwhile, after that has all that they had."""
        import pyarrow as pa

        for _ in range(_ATTEMPTS):
            names = list(self._storage.names(self._root))
            tables = list(self._tables(names))
            if len(tables) == len(names):
                break
        return (pa.concat_tables(tables) if tables else None), names

    def _tables(self, names: list[str]) -> Iterator[pa.Table]:
        import pyarrow as pa

        for name in names:
            data = self._storage.read_bytes(name)
            if data is not None:
                with pa.ipc.open_file(data) as source:
                    yield source.read_all()


def _bytes_of(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def refuse_moved(there: pa.Table, changes: pa.Table, key: list[str]) -> None:
    """Raise `ChangeOrderUnclear` if a key of `changes` is `there` under another partition; both
    have the columns of the key, and ``partition``."""
    import pyarrow.compute as pc

    if "partition" in key:
        return
    both = there.cast(changes.schema).join(changes, key, join_type="inner", right_suffix="_now")
    moved = both.filter(pc.not_equal(both.column("partition"), both.column("partition_now")))
    if moved.num_rows:
        row = moved.slice(0, 1).to_pylist()[0]
        raise ChangeOrderUnclear(
            f"a key came from partition {row['partition']} before, and comes from "
            f"{row['partition_now']} now, so that nothing says which change is the last; name a "
            "column that orders them in version="
        )
