"""Heartbeats of a group's member to its brokers (RPC 16): what is asked, and what an answer says.

Shared by the member whose master balances (`balance`) and the one that assigns itself (`assigned`);
when to ask whom, and what a lost partition means, is theirs. No effect is yielded here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tubemq_client import _pb, errors
from tubemq_client._wire import strings

if TYPE_CHECKING:
    from tubemq_client._core.balance_partitions import HeldPartition
    from tubemq_client.model import BrokerNode

__all__ = ["beat_request", "by_broker", "lost_partitions"]


def by_broker(held: Iterable[HeldPartition]) -> dict[BrokerNode, list[HeldPartition]]:
    """What is held, by the broker that has it."""
    found: dict[BrokerNode, list[HeldPartition]] = {}
    for item in held:
        found.setdefault(item.lease.broker, []).append(item)
    return found


def beat_request(
    client_id: str,
    group: str,
    priority: int,
    broker: BrokerNode,
    held: Sequence[HeldPartition],
    auth: Any,
) -> Any:
    """The heartbeat that keeps `held`, all of `broker`."""
    return _pb.HeartBeatRequestC2B(
        clientId=client_id,
        groupName=group,
        readStatus=0,
        qryPriorityId=priority,
        partitionInfo=[strings.format_partition_info(broker, item.partition) for item in held],
        authInfo=auth,
    )


def lost_partitions(
    reply: Any, held: Sequence[HeldPartition], where: str
) -> Iterator[tuple[HeldPartition, errors.ServerError]]:
    """Which of the `held` asked about the broker gives to us no longer, and its refusal. Others it
    names are not meant: they were registered since."""
    if not reply.hasPartFailure:
        return
    asked = {item.partition: item for item in held}
    for text in reply.failureInfo:
        failure = strings.parse_failure_info(text)
        if failure.partition in asked:
            yield asked[failure.partition], errors.for_code(failure.code, text, where=where)
