"""Columns of RocketMQ records, named as in the client's batches.

Imported by tasks on executors: this module must stay as light as `files.columns`.
"""

from __future__ import annotations

from typing import Final

from tubemq_provider.files.columns import Column, ColumnSet

__all__ = ["COLUMNS"]

COLUMNS: Final = ColumnSet(
    (
        Column("topic", "string", repeating=("topic",)),
        Column("partition", "string", repeating=("partition",), ranged=True),
        Column("offset", "bigint", ranged=True),
        Column("store_time", "timestamp", ranged=True),
        Column("born_time", "timestamp", ranged=True),
        Column("message_id", "string"),
        Column("tags", "string", repeating=("tags",)),
        Column("keys", "string"),
        Column("reconsume_times", "bigint", repeating=("reconsume_times",)),
        Column("flag", "bigint", repeating=("flag",)),
        Column("properties", "map<string,string>", repeating=("properties.key_value.key",)),
        Column("value", "binary"),
    )
)
"""Columns of a RocketMQ record.

Never null: topic, partition, offset and `store_time`. `born_time` is the producer's, null if its
clock was outside the range of timestamps.
"""
