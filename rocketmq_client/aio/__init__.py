"""Asyncio API: metadata, exact ranges, producers, pull consumers, administration.

Works on the caller's event loop and starts no thread. `sync` has the same names for threads;
`_core` has the logic of both.
"""

from rocketmq_client.aio.admin import Admin
from rocketmq_client.aio.consumer import Consumer
from rocketmq_client.aio.metadata import Metadata
from rocketmq_client.aio.producer import Producer
from rocketmq_client.aio.pulling import PullConsumer
from rocketmq_client.aio.ranges import RangeReader
from rocketmq_client.aio.requests import Requester
from rocketmq_client.aio.session import Session
from rocketmq_client.aio.transactions import TransactionalProducer

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
