"""`LedgerDBManager`: creates and migrates the ledger's tables with Airflow's own commands.

Add it to ``[database] external_db_managers``; ``airflow db migrate`` then creates the tables, and
``airflow db reset`` drops them. It is not in the provider's manifest, which would create tables in
every deployment that installs the package: the ledger is opt-in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.utils.db_manager import BaseDBManager

from tubemq_provider.offsets.ledger.tables import metadata

__all__ = ["LedgerDBManager"]

_HERE = Path(__file__).parent


class LedgerDBManager(BaseDBManager):
    """Migrations of `tubemq_offset_cursor` and `tubemq_window_ledger`."""

    metadata = metadata
    version_table_name = "tubemq_alembic_version"
    migration_dir = str(_HERE / "migrations")
    alembic_file = str(_HERE / "alembic.ini")
    supports_table_dropping = True
    revision_heads_map = {"0.1.0": "tubemq_0001"}  # noqa: RUF012 - Airflow's declaration

    def downgrade(
        self,
        to_revision: str,
        from_revision: str | None = None,
        show_sql_only: bool = False,  # noqa: FBT001, FBT002 - Airflow's signature
    ) -> None:
        """Go back to an earlier revision; ``base`` drops the tables and all progress in them."""
        from alembic import command

        revision: Any = f"{from_revision}:{to_revision}" if from_revision else to_revision
        config: Any = self.get_alembic_config()  # type: ignore[no-untyped-call]
        command.downgrade(config, revision=revision, sql=show_sql_only)
