"""Sync API: metadata, exact ranges, producers, group and pull consumers, administration.

Works in the caller's thread; only group consumers, transactional producers and requesters start
threads. `aio` has the same names for event loops; `_core` has the logic of both. Modules that
Spark's executors do not receive are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_client.sync.metadata import Metadata
from rocketmq_client.sync.ranges import RangeReader
from rocketmq_client.sync.session import Session
from tubemq_client._lazy import lazy_names

if TYPE_CHECKING:
    from rocketmq_client.sync.admin import Admin
    from rocketmq_client.sync.consumer import Consumer
    from rocketmq_client.sync.producer import Producer
    from rocketmq_client.sync.pulling import PullConsumer
    from rocketmq_client.sync.requests import Requester
    from rocketmq_client.sync.transactions import TransactionalProducer

__all__ = [
    "Admin",
    "Consumer",
    "Metadata",
    "Producer",
    "PullConsumer",
    "RangeReader",
    "Requester",
    "Session",
    "TransactionalProducer",
]
__getattr__ = lazy_names(
    __name__,
    {
        ".admin": ("Admin",),
        ".consumer": ("Consumer",),
        ".producer": ("Producer",),
        ".pulling": ("PullConsumer",),
        ".requests": ("Requester",),
        ".transactions": ("TransactionalProducer",),
    },
)
