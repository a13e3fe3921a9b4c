"""Queues that retention has emptied although their broker still reports an old minimum.

A 4.x broker sets a queue's minimum to the first entry of its index whose record still exists. If
there is none, it keeps reporting the old minimum until the next record arrives: the queue seems to
have records, and pulls of them answer that these are being removed. The last record decides: all
records before it in the queue are older.

Source: `docs/rocketmq-protocol/exact-ranges.md#queues-of-which-nothing-is-left`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_client import errors
from rocketmq_client._core.pull_errors import REMOVING, is_present_log_start
from rocketmq_client._core.pulling import PullAnswer, pull_request
from rocketmq_client._wire import codes
from tubemq_client._core.effects import Await, Post

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client._wire.bodies import RuntimeInfo
    from rocketmq_client.model import Address, Queue
    from tubemq_client._core.effects import Conversation

__all__ = ["emptied"]


def emptied(
    cluster: Cluster,
    address: Address,
    queues: Sequence[Queue],
    lasts: Mapping[Queue, int],
    group: str,
    info: RuntimeInfo,
) -> Conversation[list[Queue]]:
    """Return the queues whose last record, before `lasts`, no longer exists. All queues are of one
    broker; one pull of one record per queue, all in flight together."""
    tickets = []
    for queue in queues:
        request = pull_request(cluster, queue, group, lasts[queue] - 1, 1)
        tickets.append((queue, request, (yield Post(address, codes.PULL_MESSAGE, request))))
    empty_queues: list[Queue] = []
    for queue, request, ticket in tickets:
        try:
            answer = yield Await(ticket)
        except errors.ConnectionLost:
            answer = yield from cluster.ask(address, codes.PULL_MESSAGE, request)
        if _is_gone(PullAnswer.of(answer), queue, info.log_start):
            empty_queues.append(queue)
    return empty_queues


def _is_gone(answer: PullAnswer, queue: Queue, log_start: int) -> bool:
    if answer.code == codes.PULL_RETRY:
        return answer.remark == REMOVING
    return answer.code == codes.SUCCESS and is_present_log_start(answer.body, queue, log_start)
