"""First revision: one table of cursors, one of windows.

Written out instead of imported from `tables`, which will change while a revision must not.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "tubemq_0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "tubemq_offset_cursor",
        sa.Column("asset", sa.String(1500), primary_key=True),
        sa.Column("key", sa.String(250), primary_key=True),
        sa.Column("rev", sa.BigInteger, nullable=False),
        sa.Column("writes", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "tubemq_window_ledger",
        sa.Column("asset", sa.String(1500), primary_key=True),
        sa.Column("window_id", sa.String(250), primary_key=True),
        sa.Column("rev", sa.BigInteger, nullable=False),
        sa.Column("writes", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("plan_hash", sa.String(64), nullable=False),
        sa.Column("plan", sa.Text, nullable=True),
        sa.Column("outcome", sa.Text, nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    """Drop both tables, and with them all progress that only they hold."""
    op.drop_table("tubemq_window_ledger")
    op.drop_table("tubemq_offset_cursor")
