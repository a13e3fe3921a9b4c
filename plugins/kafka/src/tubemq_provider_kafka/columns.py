"""Columns of Kafka records, named as Spark's own Kafka source names them."""

from __future__ import annotations

from typing import Final

from tubemq_provider.files.columns import Column, ColumnSet

__all__ = ["COLUMNS"]

COLUMNS: Final = ColumnSet(
    (
        Column("topic", "string", repeating=("topic",)),
        Column("partition", "string", repeating=("partition",), ranged=True),
        Column("offset", "bigint", ranged=True),
        Column("timestamp", "timestamp", ranged=True),
        Column("timestamp_type", "string", repeating=("timestamp_type",)),
        Column("key", "binary"),
        Column(
            "headers",
            "array<struct<key:string,value:binary>>",
            repeating=("headers.list.element.key",),
        ),
        Column("value", "binary"),
    )
)
"""Columns of a record. Never null: topic, partition, offset.

`timestamp_type` is ``CreateTime`` or ``LogAppendTime``; both are null for a record without a time,
or with one outside the range of timestamps. `value` is null in a tombstone, `key` if the producer
gave none. `headers` are in the order of the record; a name may repeat.
"""
