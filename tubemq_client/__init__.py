"""Client for Apache InLong TubeMQ: exact range reads, producing, consuming in groups.

Importing the package is light (no asyncio, pydantic, httpx, pyarrow); the public names below are
loaded when first used. `sync` has the blocking API, whose classes are also here, and `aio` the
same classes for asyncio; `config` has validated options, `testing` and `embedded` servers to
develop against.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubemq_client._lazy import lazy_names

if TYPE_CHECKING:
    from tubemq_client import aio as aio
    from tubemq_client._core.balance_fetch import ReceivedBatch
    from tubemq_client._core.balance_orders import BoundStart
    from tubemq_client._core.balance_partitions import ConsumedOffset
    from tubemq_client._core.batch import COLUMNS, CorruptEntry, MessageBatch
    from tubemq_client._core.master import TopicMetadata
    from tubemq_client._core.read_stats import Gap, ReadStats
    from tubemq_client._core.sending import Record
    from tubemq_client.model import (
        Anchor,
        BrokerNode,
        ClientSettings,
        ConnectionStats,
        ConsumerSettings,
        ConsumerStats,
        Credentials,
        Message,
        OffsetRange,
        Partition,
        PartitionEnds,
        ProducerSettings,
        ProducerStats,
        ReachableEnds,
        SendReceipt,
        SendSummary,
        TlsSettings,
    )
    from tubemq_client.sync import (
        AssignedConsumer,
        Consumer,
        Metadata,
        Producer,
        RangeReader,
        Session,
    )
    from tubemq_client.tdmsg import (
        TDMsg,
        TDMsgBuilder,
        TDMsgPacketBuilder,
        TDMsgRecord,
        is_tdmsg,
        parse_tdmsg,
    )

__version__ = "0.1.0"

__all__ = [
    "COLUMNS",
    "Anchor",
    "AssignedConsumer",
    "BoundStart",
    "BrokerNode",
    "ClientSettings",
    "ConnectionStats",
    "ConsumedOffset",
    "Consumer",
    "ConsumerSettings",
    "ConsumerStats",
    "CorruptEntry",
    "Credentials",
    "Delivery",
    "Gap",
    "IdleReason",
    "Message",
    "MessageBatch",
    "Metadata",
    "OffsetRange",
    "Partition",
    "PartitionEnds",
    "Producer",
    "ProducerSettings",
    "ProducerStats",
    "RangeReader",
    "ReachableEnds",
    "ReadStats",
    "ReceivedBatch",
    "Record",
    "SendReceipt",
    "SendSummary",
    "Session",
    "TDMsg",
    "TDMsgBuilder",
    "TDMsgPacketBuilder",
    "TDMsgRecord",
    "TlsSettings",
    "TopicMetadata",
    "__version__",
    "is_tdmsg",
    "parse_tdmsg",
]

_HOMES = {
    "tubemq_client._core.balance_fetch": ("ReceivedBatch",),
    "tubemq_client._core.balance_orders": ("BoundStart",),
    "tubemq_client._core.balance_partitions": ("ConsumedOffset",),
    "tubemq_client._core.batch": ("COLUMNS", "CorruptEntry", "MessageBatch"),
    "tubemq_client._core.master": ("TopicMetadata",),
    "tubemq_client._core.sending": ("Record",),
    "tubemq_client._core.read_stats": ("Gap", "ReadStats"),
    "tubemq_client.model": (
        "Anchor",
        "BrokerNode",
        "ClientSettings",
        "ConnectionStats",
        "ConsumerSettings",
        "ConsumerStats",
        "Credentials",
        "Delivery",
        "IdleReason",
        "Message",
        "OffsetRange",
        "Partition",
        "PartitionEnds",
        "ProducerSettings",
        "ProducerStats",
        "ReachableEnds",
        "SendReceipt",
        "SendSummary",
        "TlsSettings",
    ),
    "tubemq_client.sync": (
        "AssignedConsumer",
        "Consumer",
        "Metadata",
        "Producer",
        "RangeReader",
        "Session",
    ),
    "tubemq_client.tdmsg": (
        "TDMsg",
        "TDMsgBuilder",
        "TDMsgPacketBuilder",
        "TDMsgRecord",
        "is_tdmsg",
        "parse_tdmsg",
    ),
}
_find = lazy_names(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    if name == "aio":  # not in __all__: `import *` must not import asyncio
        from importlib import import_module

        return import_module("tubemq_client.aio")
    return _find(name)


def __dir__() -> list[str]:
    return sorted(__all__)
