"""Changes merged into a table, inside of the transaction that publishes their window.

The staged rows, one for each key, go into a temporary table, from which those leave that are older
than the row of the target; then rows of the target that have a change are deleted, and the changed
rows inserted. The statements are plain SQL, and read as much of the target as its index on the key
says. This module opens no connection and ends no transaction.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # noqa: TID253 (only reached by the sink that needs it)
import sqlalchemy as sa  # noqa: TID253

from tubemq_provider.sinks._deleted_keys import unclear
from tubemq_provider.sinks.sql.types import RowWriter
from tubemq_provider.windows.following import OP, Following

__all__ = ["Merge", "deleted_keys", "index_key"]

_MOST_NAME: Final = 63
"""Longest name of a table that all databases take."""


def index_key(writer: RowWriter, following: Following) -> None:
    """Give a table that is yet to be made a unique index on the key."""
    columns = [_column(writer.table, name) for name in following.key]
    sa.Index(f"{writer.table.name}_key", *columns, unique=True)


def deleted_keys(writer: RowWriter, following: Following) -> sa.Table | None:
    """Return the table beside the target that keeps the partitions of deleted keys, and the
    versions, if there are any; None where deleted rows stay."""
    if not following.notes_deleted:
        return None
    target = writer.table
    prefix = "tubemq_deleted_" if following.version is None else "tubemq_deleted_at_"
    digest = hashlib.sha256(target.name.encode()).hexdigest()[:16]
    fits = len(prefix) + len(target.name) <= _MOST_NAME
    return sa.Table(
        f"{prefix}{target.name if fits else digest}",
        sa.MetaData(schema=target.schema),
        *(
            sa.Column(name, _column(target, name).type, primary_key=name in following.key)
            for name in following.of_deleted
        ),
    )


def _column(table: sa.Table, name: str) -> sa.Column[Any]:
    return next(column for column in table.columns if column.name == name)


class Merge:
    """Merge of one window's changes into the table of `writer`; `staged` are the files' columns."""

    def __init__(
        self,
        following: Following,
        writer: RowWriter,
        staged: pa.Schema | None,
        token: str,
        deleted: sa.Table | None,
    ) -> None:
        self._following = following
        self._deleted = deleted
        self._target = writer.table
        self._staged = staged or pa.schema([])
        self._name = f"tubemq_changes_{token[:12]}"
        self._writer: RowWriter | None = None

    def stage(self, connection: sa.Connection, path: Path, window_id: str) -> None:
        """Insert the rows of a file into the temporary table."""
        if self._writer is None:
            self._writer = RowWriter(
                self._name, None, self._staged, connection.dialect, temporary=True
            )
            self._writer.table.create(connection)
        self._writer.write(connection, path, window_id)

    def apply(self, connection: sa.Connection) -> None:
        """Merge the staged rows. Raises `ChangeOrderUnclear` if a row of the table came from
        another partition and no version says which change is the last."""
        if self._writer is None:
            return
        staged, target, following = self._writer.table, self._target, self._following
        if connection.dialect.name == "postgresql":  # which knows nothing of a new table
            quoted = connection.dialect.identifier_preparer.format_table(staged)
            connection.execute(sa.text(f"ANALYZE {quoted}"))
        for known in (target, self._deleted):
            if known is not None:
                self._refuse_other_partition(connection, staged, known)
                if following.version is not None:
                    self._drop_older(connection, staged, known, following.version)
        connection.execute(target.delete().where(self._has_change(target, staged)))
        names = [column.name for column in target.columns]
        cells: list[Any] = []
        for name in names:
            if name == following.soft_delete:
                cells.append(sa.case((_column(staged, OP) == "d", sa.true()), else_=sa.false()))
            else:
                cells.append(_column(staged, name))
        rows = sa.select(*cells)
        if not following.soft_delete:
            rows = rows.where(_column(staged, OP) != "d")
        connection.execute(target.insert().from_select(list(target.columns), rows))
        if self._deleted is not None:
            self._note_deleted(connection, staged, self._deleted)
        self._writer.table.drop(connection)

    def _drop_older(
        self, connection: sa.Connection, staged: sa.Table, known: sa.Table, version: str
    ) -> None:
        """Take back staged changes that are older than what is known of their key."""
        new, old = (
            self._comparable(connection, _column(table, version)) for table in (staged, known)
        )
        newer_there = sa.and_(self._same_key(staged, known), old > new)
        connection.execute(staged.delete().where(sa.exists().where(newer_there).correlate(staged)))

    def _note_deleted(self, connection: sa.Connection, staged: sa.Table, deleted: sa.Table) -> None:
        """Note the keys that the window deletes, and forget those of which it brings a row."""
        connection.execute(deleted.delete().where(self._has_change(deleted, staged)))
        names = [column.name for column in deleted.columns]
        rows = sa.select(*(_column(staged, name) for name in names))
        rows = rows.where(_column(staged, OP) == "d")
        connection.execute(deleted.insert().from_select(names, rows))

    def _has_change(self, table: sa.Table, staged: sa.Table) -> sa.ColumnElement[bool]:
        """Return the condition of rows whose key has a staged change, in a form for which databases
        look the staged keys up in the table's index, and do not read the whole table."""
        key = [_column(table, name) for name in self._following.key]
        keys = sa.select(*(_column(staged, name) for name in self._following.key))
        return key[0].in_(keys) if len(key) == 1 else sa.tuple_(*key).in_(keys)

    def _same_key(self, staged: sa.Table, other: sa.Table) -> sa.ColumnElement[bool]:
        return sa.and_(
            *(_column(staged, name) == _column(other, name) for name in self._following.key)
        )

    def _refuse_other_partition(
        self, connection: sa.Connection, staged: sa.Table, other: sa.Table
    ) -> None:
        before, now = _column(other, "partition"), _column(staged, "partition")
        version = self._following.version
        moved = sa.and_(self._same_key(staged, other), before != now)
        if version is not None:
            moved = sa.and_(moved, _column(staged, version) == _column(other, version))
        row = connection.execute(sa.select(before, now).where(moved).limit(1)).first()
        if row is not None:
            raise unclear(f"a key of table {self._target.fullname}", row[0], row[1], version)

    def _comparable(self, connection: sa.Connection, column: sa.Column[Any]) -> Any:
        """Compare texts by their bytes, as they were compared where the window was reduced."""
        if isinstance(column.type, sa.Text) and connection.dialect.name == "postgresql":
            return column.collate("C")
        return column
