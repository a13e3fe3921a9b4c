"""Columns of TubeMQ records, named as in the client's batches.

Imported by tasks on executors: this module must stay as light as `files.columns`.
"""

from __future__ import annotations

from typing import Final

from tubemq_provider.files.columns import Column, ColumnSet

__all__ = ["COLUMNS", "RECORDS"]

RECORDS: Final = ColumnSet(
    (
        Column("topic", "string", repeating=("topic",), ranged=True),
        Column("partition", "string", repeating=("partition",), ranged=True),
        Column("offset", "bigint", ranged=True),
        Column("batch_offset", "bigint", ranged=True),
        Column("message_id", "bigint", ranged=True),
        Column("msg_time", "timestamp", repeating=("msg_time",), ranged=True),
        Column("stream_id", "string", repeating=("stream_id",), ranged=True),
        Column(
            "attributes",
            "map<string,string>",
            repeating=("attributes.key_value.key", "attributes.key_value.value"),
        ),
        Column("value", "binary"),
    ),
    place=("batch_offset", "message_id"),
)
"""Columns of a TubeMQ record."""

COLUMNS: Final = RECORDS
"""Alias that `files.columns.columns_of` imports."""
