"""Columns of a line."""

from __future__ import annotations

from tubemq_provider.files.columns import Column, ColumnSet

__all__ = ["COLUMNS"]

COLUMNS = ColumnSet(
    (
        Column("partition", "string", repeating=("partition",), ranged=True),
        Column("offset", "bigint", ranged=True),
        Column("text", "string"),
    )
)
