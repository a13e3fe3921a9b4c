"""Alembic environment of the ledger's migrations: Airflow's engine, and a separate version table.

Alembic executes this file; it is not imported.
"""

from __future__ import annotations

from typing import Any

from airflow import settings
from alembic import context

from tubemq_provider.offsets.ledger.db_manager import LedgerDBManager

_OPTIONS: dict[str, Any] = {
    "target_metadata": LedgerDBManager.metadata,
    "version_table": LedgerDBManager.version_table_name,
    "render_as_batch": True,
}


def _offline() -> None:
    """Print the statements."""
    context.configure(url=settings.SQL_ALCHEMY_CONN, literal_binds=True, **_OPTIONS)
    with context.begin_transaction():
        context.run_migrations()


def _online() -> None:
    """Run the statements."""
    engine = settings.engine
    if engine is None:
        raise RuntimeError("Airflow's database engine is not configured")
    with engine.connect() as connection:
        context.configure(connection=connection, **_OPTIONS)
        with context.begin_transaction():
            context.run_migrations()
        connection.commit()


if context.is_offline_mode():
    _offline()
else:
    _online()
