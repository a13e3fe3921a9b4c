"""The two tables of the ledger, and every statement on them.

`tubemq_offset_cursor` has one row per group (and chunks of documents too long for one row),
`tubemq_window_ledger` one per window. A write names the revision it replaces and takes effect only
if that is the current one: one UPDATE … WHERE rev = …, decided by the database. Uses a session or
connection of the caller and never commits. Rows are keyed by the *name* of the offsets asset, as
Airflow gives assets new ids. This module must not import airflow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    MetaData,
    String,
    Table,
    Text,
    delete,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from tubemq_client import errors
from tubemq_provider.offsets.ledger.envelope import Envelope, Versioned
from tubemq_provider.windows.errors import StoreConflict
from tubemq_provider.windows.protocols import Document

__all__ = ["CURSORS", "WINDOWS", "LedgerTables", "WindowRow", "metadata"]

metadata = MetaData()

CURSORS = Table(
    "tubemq_offset_cursor",
    metadata,
    Column("asset", String(1500), primary_key=True),
    Column("key", String(250), primary_key=True),
    Column("rev", BigInteger, nullable=False),
    Column("writes", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
)

WINDOWS = Table(
    "tubemq_window_ledger",
    metadata,
    Column("asset", String(1500), primary_key=True),
    Column("window_id", String(250), primary_key=True),
    Column("rev", BigInteger, nullable=False),
    Column("writes", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("plan_hash", String(64), nullable=False),
    Column("plan", Text, nullable=True),
    Column("outcome", Text, nullable=True),
    Column("updated_at", DateTime(timezone=True), nullable=False),
)

_PLANNED, _WRITTEN = "planned", "written"
_WRITES = 64


class Executor(Protocol):
    """Common interface of a SQLAlchemy session and connection."""

    def execute(self, statement: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class WindowRow:
    """Row of a window. `plan` is None after it was forgotten; `outcome` is the commit event of the
    run (whose task may still have failed afterwards)."""

    window_id: str
    state: str
    plan_hash: str
    plan: Document | None
    outcome: Document | None
    updated_at: datetime


class LedgerTables:
    """Ledger on one session or connection; the caller begins and commits."""

    def __init__(self, connection: Executor, dialect: str) -> None:
        if dialect not in ("postgresql", "sqlite"):
            raise errors.ConfigError(
                f"the ledger knows postgresql and sqlite, not {dialect}", subject="ledger"
            )
        self._connection = connection
        self._insert = (postgresql if dialect == "postgresql" else sqlite).insert

    # -- cursors ------------------------------------------------------------------------------

    def assets(self) -> list[str]:
        """Return names of all offsets assets that have a cursor here."""
        rows = self._connection.execute(select(CURSORS.c.asset).distinct())
        return sorted(row.asset for row in rows)

    def read(self, asset: str, key: str) -> Versioned | None:
        """Return the document under `key`, or None."""
        row = self._one(CURSORS, _cursor_key(asset, key))
        return Versioned(row.rev, json.loads(row.document)) if row else None

    def write(self, asset: str, key: str, envelope: Envelope) -> None:
        """Store a document. Raises `StoreConflict`."""
        where = _cursor_key(asset, key)
        values = {"document": json.dumps(envelope.document)}
        before = self._one(CURSORS, where)
        if envelope.write_id in _writes(before):
            return
        values |= _versions(envelope, before)
        if envelope.expected == 0:
            created = self._insert(CURSORS).values(**where, **values).on_conflict_do_nothing()
            done = self._connection.execute(created)
        else:
            replaced = update(CURSORS).where(*_same(CURSORS, where)).values(**values)
            done = self._connection.execute(replaced.where(CURSORS.c.rev == envelope.expected))
        self._judge(done, CURSORS, where, envelope)

    def remove(self, asset: str, key: str) -> None:
        """Remove the document under `key`, if any."""
        self._connection.execute(delete(CURSORS).where(*_same(CURSORS, _cursor_key(asset, key))))

    # -- windows ------------------------------------------------------------------------------

    def windows(self, asset: str) -> Iterator[WindowRow]:
        """Yield all windows of a group, in the order of their last write."""
        statement = select(WINDOWS).where(WINDOWS.c.asset == asset)
        for row in self._connection.execute(statement.order_by(WINDOWS.c.updated_at)):
            yield WindowRow(
                row.window_id,
                row.state,
                row.plan_hash,
                json.loads(row.plan) if row.plan else None,
                json.loads(row.outcome) if row.outcome else None,
                row.updated_at.replace(tzinfo=row.updated_at.tzinfo or UTC),
            )

    def read_plan(self, asset: str, window_id: str) -> Versioned | None:
        """Return the plan of a window, or None if there is none or it was forgotten."""
        row = self._one(WINDOWS, _window_key(asset, window_id))
        return Versioned(row.rev, json.loads(row.plan)) if row and row.plan else None

    def write_plan(self, asset: str, window_id: str, envelope: Envelope) -> None:
        """Store a plan. Raises `StoreConflict`."""
        where = _window_key(asset, window_id)
        before = self._one(WINDOWS, where)
        if envelope.write_id in _writes(before):
            return
        values = _versions(envelope, before) | {
            "state": _PLANNED,
            "plan": json.dumps(envelope.document),
            "plan_hash": str(envelope.document.get("hash", "")),
        }
        replace = update(WINDOWS).where(*_same(WINDOWS, where))
        if envelope.expected == 0:
            # A row whose plan was forgotten stays as history, and counts as no plan.
            forgotten = replace.where(WINDOWS.c.plan.is_(None))
            done = self._connection.execute(
                forgotten.values(**{**values, "rev": WINDOWS.c.rev + 1})
            )
            if done.rowcount == 0:
                created = self._insert(WINDOWS).values(**where, **values)
                done = self._connection.execute(created.on_conflict_do_nothing())
        else:
            present = replace.where(WINDOWS.c.rev == envelope.expected, WINDOWS.c.plan.is_not(None))
            done = self._connection.execute(present.values(**values))
        self._judge(done, WINDOWS, where, envelope)

    def forget_plan(self, asset: str, window_id: str) -> None:
        """Remove the plan of a published window; the row stays."""
        statement = update(WINDOWS).where(*_same(WINDOWS, _window_key(asset, window_id)))
        self._connection.execute(statement.values(plan=None, state=_WRITTEN))

    def finish(self, asset: str, window_id: str, envelope: Envelope) -> None:
        """Store the commit event of a run that published the window, or found it published."""
        values = {
            "state": _WRITTEN,
            "outcome": json.dumps(envelope.document),
            "plan_hash": str(envelope.document.get("hash", "")),
            "updated_at": datetime.now(UTC),
        }
        created = self._insert(WINDOWS).values(
            **_window_key(asset, window_id), rev=1, writes=envelope.write_id, **values
        )
        self._connection.execute(
            created.on_conflict_do_update(index_elements=["asset", "window_id"], set_=values)
        )

    # -- helpers ------------------------------------------------------------------------------

    def _one(self, table: Table, where: Mapping[str, str]) -> Any:
        return self._connection.execute(select(table).where(*_same(table, where))).one_or_none()

    def _judge(self, done: Any, table: Table, where: Mapping[str, str], envelope: Envelope) -> None:
        """Raise `StoreConflict` if no row changed, unless the row has this write already: it was
        repeated after a lost answer."""
        if done.rowcount == 0:
            row = self._one(table, where)
            if envelope.write_id not in _writes(row):
                current = row.rev if row else 0
                raise StoreConflict(
                    f"{table.name}: expected revision {envelope.expected}, found {current}"
                )


def _cursor_key(asset: str, key: str) -> dict[str, str]:
    return {"asset": asset, "key": key}


def _window_key(asset: str, window_id: str) -> dict[str, str]:
    return {"asset": asset, "window_id": window_id}


def _same(table: Table, where: Mapping[str, str]) -> list[Any]:
    return [table.c[name] == value for name, value in where.items()]


def _writes(row: Any) -> list[str]:
    """Return ids of the last writes of a row. A repeated write must be recognised even if other
    writes came between."""
    return str(row.writes).split() if row else []


def _versions(envelope: Envelope, before: Any) -> dict[str, Any]:
    return {
        "rev": envelope.expected + 1,
        "writes": " ".join([*_writes(before), envelope.write_id][-_WRITES:]),
        "updated_at": datetime.now(UTC),
    }
