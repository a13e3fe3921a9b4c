"""Asyncio group consumer: the master assigns partitions, you receive and confirm batches.

At least once: a batch that was received but not confirmed is delivered again, here or to the next
owner. Tasks send heartbeats (one to masters, one to brokers) and perform the master's orders; they
end with `close()`. `sync.consumer` is its counterpart.
"""

from __future__ import annotations

from tubemq_client._core.balance_fetch import ReceivedBatch
from tubemq_client._core.balance_orders import BoundStart
from tubemq_client._core.balance_partitions import ConsumedOffset
from tubemq_client._io.consumer_base import BalancedConsumerBase
from tubemq_client.aio._member import GroupMember

__all__ = ["BoundStart", "ConsumedOffset", "Consumer", "ReceivedBatch"]


class Consumer(BalancedConsumerBase, GroupMember):
    """Member of a group whose partitions the master assigns.

    Created from settings, group and topics, or from a `config.ConsumerConfig` alone. `topics` maps
    topic names to stream ids to filter by (empty: everything). Methods may be called from several
    tasks. Entering the context joins the group; partitions arrive within a balance period of the
    master (30 to 60 s by its defaults) and may be moved at any time. The callbacks, plain or
    coroutine functions, are then called in a task of the consumer: `on_assigned` before the first
    fetch, `on_revoked` while batches may still be confirmed (`rebalance_confirm_wait_ms`),
    `on_lost` afterwards, when a broker has ended the registration. `bound` starts the whole group
    from explicit offsets. A cancelled `receive` loses nothing: its batch is delivered again. A
    cancelled `confirm` or `reject` takes effect nevertheless.
    """
