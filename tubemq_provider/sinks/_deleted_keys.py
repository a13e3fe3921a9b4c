"""Deleted keys, beside a table that keeps no row of them, and what their changes may be.

A row of the table has the partition and the version of its last change; those of a row that was
deleted are nowhere, and a change of its key may come in a later window: from another partition, or
an older one that would bring the row back. So each window notes the keys that it deletes, *before*
it is committed: that a key was deleted by a change from a partition, with a version, is true
whether the commit succeeds or not, and noting it twice changes nothing. This module must not know
table formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from tubemq_provider.rows.changes.reduction import MOST_KEYS
from tubemq_provider.sinks._storage import Storage
from tubemq_provider.windows.errors import ChangeOrderUnclear
from tubemq_provider.windows.following import OP, Following

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DeletedKeys", "refuse_unclear", "unclear"]

_MOST_FILES: Final = 32
_ATTEMPTS: Final = 5
_FORGOTTEN: Final = "forgotten-"
"""Prefix of files with the newest version among keys that are noted no more."""
_NOW: Final = "_now"
_AT: Final = "_at"


class DeletedKeys:
    """Deleted keys of the table with `table_id`, in files beside it. With a version at most `most`
    are kept, the newest ones; an older change is refused then."""

    def __init__(
        self, storage: Storage, table_id: str, following: Following, *, most: int = MOST_KEYS
    ) -> None:
        self._storage = storage
        kind = "deleted" if following.version is None else "deleted-versions"
        self._root = f"_tubemq/{table_id}/{kind}"
        self._key = list(following.key)
        self._version = following.version
        self._columns = following.of_deleted
        self._most = most

    @property
    def columns(self) -> list[str]:
        """Columns of changes that `note` looks at."""
        return [*self._columns, OP]

    def note(self, window_id: str, changes: pa.Table) -> None:
        """Note the keys that a window deletes. Raises `ChangeOrderUnclear` if nothing says whether
        one of its changes is older than an earlier delete of the key."""
        import pyarrow.compute as pc

        self.current(changes)
        deleted = changes.filter(pc.equal(changes.column(OP), "d")).select(self._columns)
        if deleted.num_rows:
            self._storage.create_file(f"{self._root}/{window_id}.arrow", _bytes_of(deleted))
        if len(self._names()[0]) > _MOST_FILES:
            self._compact(deleted.schema)

    def current(self, changes: pa.Table) -> pa.Table:
        """Return the changes without those that are older than a noted delete of their key."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not changes.num_rows:
            return changes
        mine = changes.select(self._columns)
        least = None if self._version is None else pc.min(mine.column(self._version))
        known, _ = self._known(least)
        if known is None or not known.num_rows:
            return changes
        known = known.cast(mine.schema)
        refuse_unclear(known, mine, self._key, self._version)
        if self._version is None:
            return changes
        places = mine.append_column(_AT, pa.array(range(mine.num_rows), pa.int64()))
        pairs = known.join(places, self._key, join_type="inner", right_suffix=_NOW)
        older = pc.less(pairs.column(f"{self._version}{_NOW}"), pairs.column(self._version))
        dropped = pairs.filter(older).column(_AT).combine_chunks()
        return changes.filter(pc.invert(pc.is_in(places.column(_AT), value_set=dropped)))

    def _refuse_forgotten(self, names: list[str], least: Any) -> None:
        """Raise `ChangeOrderUnclear` if a change may be older than a forgotten delete."""
        import pyarrow.compute as pc

        for table in self._tables(names):
            newest = pc.max(table.column(self._version))
            if pc.less_equal(least, newest.cast(least.type)).as_py():
                raise ChangeOrderUnclear(
                    f"a change with {self._version} {least} is older than deletes that are noted "
                    f"no more (the newest {self._most} are), so that it might bring a deleted row "
                    "back; keep deleted rows with soft_delete="
                )

    def _compact(self, schema: pa.Schema) -> None:
        """Replace all files by one."""
        known, names = self._known()
        if known is None:
            return
        rows = known.cast(schema)
        if self._version is None:
            rows = rows.group_by(self._columns).aggregate([]).select(self._columns)
        else:
            rows = rows.sort_by(self._version).group_by(self._key, use_threads=False)
            rest = [name for name in self._columns if name not in self._key]
            rows = rows.aggregate([(name, "last") for name in rest])
            rows = rows.select([*self._key, *(f"{name}_last" for name in rest)])
            rows = rows.rename_columns([*self._key, *rest]).select(self._columns)
        if rows.num_rows > self._most:
            rows = self._newest(rows)
        self._storage.create_file(f"{self._root}/{uuid4().hex}.arrow", _bytes_of(rows))
        self._storage.remove(names)

    def _newest(self, rows: pa.Table) -> pa.Table:
        """Return the newer half of `most` rows, after noting up to which version others were."""
        if self._version is None:
            raise ChangeOrderUnclear(
                f"more than {self._most} keys were deleted, and without a version the partition of "
                "each has to be known; name a column that orders changes in version="
            )
        rows = rows.sort_by(self._version)
        kept = rows.slice(rows.num_rows - self._most // 2)
        newest = rows.slice(rows.num_rows - kept.num_rows - 1, 1).select([self._version])
        name = f"{self._root}/{_FORGOTTEN}{uuid4().hex}.arrow"
        self._storage.create_file(name, _bytes_of(newest))
        return kept

    def _known(self, least: Any = None) -> tuple[pa.Table | None, list[str]]:
        """Return what was noted, with `least` only of this version or newer, and the names of its
        files. Another try may replace several files by one meanwhile, after that has all that they
        had. Raises `ChangeOrderUnclear` if `least` may be older than what is noted no more."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for _ in range(_ATTEMPTS):
            names, forgotten = self._names()
            if least is not None:
                self._refuse_forgotten(forgotten, least)
            tables = []
            for table in self._tables(names):
                newer = table
                if least is not None:
                    version = table.column(self._version).cast(least.type)
                    newer = table.filter(pc.greater_equal(version, least))
                tables.append(newer)
            if len(tables) == len(names):
                break
        return (pa.concat_tables(tables) if tables else None), names

    def _names(self) -> tuple[list[str], list[str]]:
        """Return the files of keys, and those of what is noted no more, by one listing: the second
        are there before the first are replaced."""
        names = list(self._storage.names(self._root))
        forgotten = [name for name in names if name.rpartition("/")[2].startswith(_FORGOTTEN)]
        return [name for name in names if name not in forgotten], forgotten

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


def refuse_unclear(there: pa.Table, changes: pa.Table, key: list[str], version: str | None) -> None:
    """Raise `ChangeOrderUnclear` if a key of `changes` is `there` under another partition, with a
    version only if that is the same; both have the columns of the key, ``partition`` and the
    version."""
    import pyarrow.compute as pc

    if "partition" in key or version == "partition":
        return
    by = key if version is None else list(dict.fromkeys([*key, version]))
    both = there.cast(changes.schema).join(changes, by, join_type="inner", right_suffix=_NOW)
    moved = both.filter(pc.not_equal(both.column("partition"), both.column(f"partition{_NOW}")))
    if moved.num_rows:
        row = moved.slice(0, 1).to_pylist()[0]
        raise unclear("a key", row["partition"], row[f"partition{_NOW}"], version)


def unclear(what: str, before: str, now: str, version: str | None) -> ChangeOrderUnclear:
    """Return the error for a key that comes from two partitions without an order."""
    if version is None:
        same, way = "", "name a column that orders them in version="
    else:
        same, way = f" with the same {version!r}", "name a version that differs"
    return ChangeOrderUnclear(
        f"{what} came from partition {before} before, and comes from {now} now{same}, so that "
        f"nothing says which change is the last; {way}"
    )
