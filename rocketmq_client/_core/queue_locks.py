"""Locks of queues at their brokers, for members that consume in order.

A broker gives a queue to one member of a group at a time, by client id, and forgets a lock that was
not renewed for 60 s; `membership` counts on half of that.

Source: `docs/rocketmq-protocol/wire.md#groups`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_client import errors
from rocketmq_client._wire import codes
from rocketmq_client._wire.bodies import lock_body, parse_locked

if TYPE_CHECKING:
    from collections.abc import Collection

    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client.model import Address, Queue
    from tubemq_client._core.effects import Conversation

__all__ = ["LOCK_LASTS_MS", "lock", "unlock"]

LOCK_LASTS_MS: Final = 30_000
"""Time for which a member counts on a lock after asking for it."""


def lock(
    cluster: Cluster, address: Address, group: str, client_id: str, queues: Collection[Queue]
) -> Conversation[set[Queue]]:
    """Lock queues of one broker, or renew their locks. Return those that this member has now; the
    others belong to another member."""
    body = lock_body(group, client_id, queues)
    answer = yield from cluster.call(address, codes.LOCK_BATCH_MQ, {}, body)
    return parse_locked(answer.body)


def unlock(
    cluster: Cluster, address: Address, group: str, client_id: str, queues: Collection[Queue]
) -> Conversation[None]:
    """Unlock queues of one broker. One that cannot be reached forgets the locks by itself."""
    body = lock_body(group, client_id, queues)
    try:
        yield from cluster.call(address, codes.UNLOCK_BATCH_MQ, {}, body)
    except (errors.NetworkError, errors.ServerError):
        pass  # they expire
