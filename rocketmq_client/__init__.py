"""A client for Apache RocketMQ, in plain Python: exact ranges, groups, pulls, sends.

The top level has the blocking classes and the values; `rocketmq_client.aio` has the same classes
for event loops, `rocketmq_client.config` validated options, `rocketmq_client.embedded` a server for
tests. The import is cheap: names are loaded on first use. Sockets, threads and deadlines come from
`tubemq_client._io`, which works with any codec.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketmq_client._core.allocation import (
        allocate_average,
        allocate_by_room,
        allocate_fixed,
    )
    from rocketmq_client._core.batch import COLUMNS, CorruptEntry, RecordBatch
    from rocketmq_client._core.read_policy import Gap, ReadStats
    from rocketmq_client._wire.bodies import (
        BrokerData,
        ClusterInfo,
        RuntimeInfo,
        Subscription,
        TopicRoute,
    )
    from rocketmq_client.model import (
        Allocation,
        ClientSettings,
        ConsumerSettings,
        ConsumerStats,
        Credentials,
        Decision,
        GroupMember,
        GroupMembers,
        GroupSettings,
        HalfRecord,
        Message,
        OutgoingMessage,
        ProducerSettings,
        PullResult,
        Queue,
        QueueEnds,
        QueueProgress,
        QueueRange,
        QueueStats,
        Reachable,
        ReceivedBatch,
        RecordMark,
        Reply,
        SendReceipt,
        TimeBoundary,
        TlsSettings,
    )
    from rocketmq_client.sync.admin import Admin
    from rocketmq_client.sync.consumer import Consumer
    from rocketmq_client.sync.metadata import Metadata
    from rocketmq_client.sync.producer import Producer
    from rocketmq_client.sync.pulling import PullConsumer
    from rocketmq_client.sync.ranges import RangeReader
    from rocketmq_client.sync.requests import Requester
    from rocketmq_client.sync.session import Session
    from rocketmq_client.sync.transactions import TransactionalProducer

_HOMES = {
    "_core.allocation": ("allocate_average", "allocate_by_room", "allocate_fixed"),
    "_core.batch": ("COLUMNS", "CorruptEntry", "RecordBatch"),
    "_core.read_policy": ("Gap", "ReadStats"),
    "_wire.bodies": ("BrokerData", "ClusterInfo", "RuntimeInfo", "Subscription", "TopicRoute"),
    "model": (
        *("ClientSettings", "Credentials", "Message", "OutgoingMessage", "ProducerSettings"),
        *("PullResult", "Queue", "QueueEnds", "QueueRange", "SendReceipt", "TimeBoundary"),
        *("Reachable", "RecordMark", "Reply", "TlsSettings", "Decision", "HalfRecord"),
        *("GroupMember", "GroupMembers", "GroupSettings", "QueueProgress", "QueueStats"),
        *("Allocation", "ConsumerSettings", "ConsumerStats", "ReceivedBatch"),
    ),
    "sync.admin": ("Admin",),
    "sync.consumer": ("Consumer",),
    "sync.metadata": ("Metadata",),
    "sync.producer": ("Producer",),
    "sync.pulling": ("PullConsumer",),
    "sync.ranges": ("RangeReader",),
    "sync.requests": ("Requester",),
    "sync.session": ("Session",),
    "sync.transactions": ("TransactionalProducer",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "COLUMNS",
    "Admin",
    "Allocation",
    "BrokerData",
    "ClientSettings",
    "ClusterInfo",
    "Consumer",
    "ConsumerSettings",
    "ConsumerStats",
    "CorruptEntry",
    "Credentials",
    "Decision",
    "Gap",
    "GroupMember",
    "GroupMembers",
    "GroupSettings",
    "HalfRecord",
    "Message",
    "Metadata",
    "OutgoingMessage",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "PullResult",
    "Queue",
    "QueueEnds",
    "QueueProgress",
    "QueueRange",
    "QueueStats",
    "RangeReader",
    "Reachable",
    "ReadStats",
    "ReceivedBatch",
    "RecordBatch",
    "RecordMark",
    "Reply",
    "Requester",
    "RuntimeInfo",
    "SendReceipt",
    "Session",
    "Subscription",
    "TimeBoundary",
    "TlsSettings",
    "TopicRoute",
    "TransactionalProducer",
    "allocate_average",
    "allocate_by_room",
    "allocate_fixed",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
