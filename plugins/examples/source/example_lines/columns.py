"""Columns of a line."""

from tubemq_provider.files.columns import Column, ColumnSet

COLUMNS = ColumnSet(
    (
        Column("partition", "string", repeating=("partition",), ranged=True),
        Column("offset", "bigint", ranged=True),
        Column("value", "binary"),
    )
)
