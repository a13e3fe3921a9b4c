"""Alembic's revisions make the same tables as the code knows."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from tubemq_provider.offsets.ledger.tables import metadata

alembic = pytest.importorskip("alembic")


def columns(engine: sa.Engine) -> dict[str, list[tuple[str, str, bool, bool]]]:
    found = sa.inspect(engine)
    return {
        table: [
            (c["name"], str(c["type"]), bool(c["nullable"]), bool(c["primary_key"]))
            for c in found.get_columns(table)
        ]
        for table in sorted(found.get_table_names())
    }


def test_the_revisions_make_the_tables_of_the_code_and_take_them_back() -> None:
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    from tubemq_provider.offsets.ledger.migrations.versions import r0001_tables

    made, migrated = sa.create_engine("sqlite://"), sa.create_engine("sqlite://")
    metadata.create_all(made)
    with migrated.begin() as connection:
        context = MigrationContext.configure(connection)
        with Operations.context(context):
            r0001_tables.upgrade()
    assert columns(migrated) == columns(made)
    with migrated.begin() as connection:
        context = MigrationContext.configure(connection)
        with Operations.context(context):
            r0001_tables.downgrade()
    assert columns(migrated) == {}
