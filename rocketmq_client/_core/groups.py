"""Consumer groups at brokers: committed offsets, members, and heartbeats.

Windows store their progress elsewhere; offsets are committed here for groups that other tools
monitor. A broker accepts any offset, also backwards and beyond the end; 4.x also accepts it for
groups and topics that do not exist, 5.x does not.

Source: `docs/rocketmq-protocol/wire.md#codes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_client import errors
from rocketmq_client._core.ends import require_address, select_queues
from rocketmq_client._core.pulling import number, pull_request
from rocketmq_client._wire import codes
from rocketmq_client._wire.bodies import (
    check_body,
    heartbeat_body,
    lock_body,
    parse_locked,
    parse_members,
)
from rocketmq_client._wire.properties import RETRY_TOPIC
from tubemq_client._core.effects import WallClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client._wire.bodies import Subscription, TopicRoute
    from rocketmq_client.model import Address, Message, Queue
    from tubemq_client._core.effects import Conversation

__all__ = [
    "check_subscription",
    "commit_offset",
    "commit_offset_at",
    "committed_offset",
    "heartbeat",
    "lock_queues",
    "members",
    "send_back",
    "unlock_queues",
    "unregister",
    "unregister_producer",
]

_LEVELS: Final = 18


def committed_offset(
    cluster: Cluster, route: TopicRoute, queue: Queue, group: str
) -> Conversation[int | None]:
    """Return the group's committed offset, None if there is none. A 4.x broker answers 0 for that
    on a queue that still begins at 0."""
    fields = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "setZeroIfNotFound": "false",
        "bname": queue.broker,
    }
    address = require_address(route, queue.broker)
    answer = yield from cluster.call(address, codes.QUERY_CONSUMER_OFFSET, fields)
    return None if answer.code == codes.QUERY_NOT_FOUND else number(answer, "offset")


def commit_offset(
    cluster: Cluster, route: TopicRoute, queue: Queue, group: str, offset: int
) -> Conversation[None]:
    """Commit the group's `offset` at the broker. A 5.x broker refuses this for an unknown group; a
    pull makes the group known. Raises `errors.ConfigError` for a queue that the route lacks."""
    select_queues(route, [queue])
    address = require_address(route, queue.broker)
    yield from commit_offset_at(cluster, address, queue, group, offset)


def commit_offset_at(
    cluster: Cluster, address: Address, queue: Queue, group: str, offset: int
) -> Conversation[None]:
    """Commit the group's `offset` at this broker, whether or not a route has the queue."""
    fields = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "commitOffset": str(offset),
        "bname": queue.broker,
    }
    try:
        yield from cluster.call(address, codes.UPDATE_CONSUMER_OFFSET, fields)
    except errors.UnknownGroup:
        pull = pull_request(cluster, queue, group, offset, 1)
        yield from cluster.ask(address, codes.PULL_MESSAGE, pull)
        yield from cluster.call(address, codes.UPDATE_CONSUMER_OFFSET, fields)


def heartbeat(
    cluster: Cluster,
    addresses: Iterable[Address],
    client_id: str,
    *,
    producers: Sequence[str] = (),
    consumers: Mapping[str, Sequence[Subscription]] | None = None,
) -> Conversation[list[Address]]:
    """Register this member of the groups at the brokers, for 120 s and on this connection. Return
    the brokers that answered. Raises the last failure if none did."""
    now = yield WallClock()
    body = heartbeat_body(client_id, producers, consumers or {}, now)
    heard: list[Address] = []
    failure: errors.RocketMQError | None = None
    for address in addresses:
        try:
            yield from cluster.call(address, codes.HEART_BEAT, {}, body)
            heard.append(address)
        except (errors.NetworkError, errors.Busy) as error:
            failure = error
    if failure is not None and not heard:
        raise failure
    return heard


def unregister(
    cluster: Cluster, addresses: Iterable[Address], client_id: str, group: str
) -> Conversation[None]:
    """Leave the group at these brokers. A broker that cannot be reached removes the member by
    itself."""
    yield from _leave(cluster, addresses, {"clientID": client_id, "consumerGroup": group})


def unregister_producer(
    cluster: Cluster, addresses: Iterable[Address], client_id: str, group: str
) -> Conversation[None]:
    """Take a producer out of its group at these brokers, like `unregister`."""
    yield from _leave(cluster, addresses, {"clientID": client_id, "producerGroup": group})


def _leave(
    cluster: Cluster, addresses: Iterable[Address], fields: dict[str, str]
) -> Conversation[None]:
    for address in addresses:
        try:
            yield from cluster.call(address, codes.UNREGISTER_CLIENT, fields)
        except (errors.NetworkError, errors.ServerError, errors.ProtocolViolation):
            pass  # the broker removes the member with its connection


def members(
    cluster: Cluster, address: Address, group: str, broker: str | None = None
) -> Conversation[list[str]]:
    """Return the client ids of the group's members that this broker knows; none is no error. A
    service node asks the `broker` of this name, or any."""
    fields = {"consumerGroup": group, **({"bname": broker} if broker else {})}
    try:
        answer = yield from cluster.call(address, codes.GET_CONSUMER_LIST_BY_GROUP, fields)
    except errors.BrokerFailure:
        return []  # code 1: no member
    return parse_members(answer.body)


def check_subscription(
    cluster: Cluster,
    address: Address,
    broker: str,
    group: str,
    client_id: str,
    subscription: Subscription,
) -> Conversation[None]:
    """Raise `errors.IllegalRequest` if the broker cannot read the expression, or supports no such
    expressions. A broker that cannot judge it is not asked again."""
    body = check_body(client_id, group, subscription)
    try:
        yield from cluster.call(address, codes.CHECK_CLIENT_CONFIG, {"bname": broker}, body)
    except errors.Unsupported:
        pass


def lock_queues(
    cluster: Cluster, address: Address, group: str, client_id: str, queues: Sequence[Queue]
) -> Conversation[set[Queue]]:
    """Return those of `queues`, all of one broker, that it has locked for this member, for 60 s
    from now: no other member of the group gets them meanwhile."""
    body = lock_body(group, client_id, queues)
    fields = {"bname": queues[0].broker}
    answer = yield from cluster.call(address, codes.LOCK_BATCH_MQ, fields, body)
    return parse_locked(answer.body)


def unlock_queues(
    cluster: Cluster, address: Address, group: str, client_id: str, queues: Sequence[Queue]
) -> Conversation[None]:
    """Release locks. A broker that cannot be reached releases them after 60 s."""
    body = lock_body(group, client_id, queues)
    try:
        fields = {"bname": queues[0].broker}
        yield from cluster.call(address, codes.UNLOCK_BATCH_MQ, fields, body)
    except (errors.NetworkError, errors.ServerError, errors.ProtocolViolation):
        pass  # the lock ends by itself


def send_back(
    cluster: Cluster,
    route: TopicRoute,
    group: str,
    message: Message,
    *,
    delay_level: int,
    max_retries: int,
) -> Conversation[None]:
    """Ask the broker that has `message` to store it again for the group, in ``%RETRY%<group>``
    after the time of `delay_level`, or in ``%DLQ%<group>`` if it was sent back `max_retries` times.

    Level 0 lets the broker choose: 10 s after the first time, later with each. Raises
    `errors.ConfigError` for a level beyond 18, and the broker's answer if it has no such record.
    """
    if not 0 <= delay_level <= _LEVELS:
        raise errors.ConfigError(
            f"delay_level is {delay_level}; 0 (the broker's choice) to {_LEVELS} is allowed",
            subject="consumer",
        )
    fields = {
        "group": group,
        "offset": str(message.physical_offset),
        "delayLevel": str(delay_level),
        "originMsgId": message.message_id or message.offset_id,
        "originTopic": message.properties.get(RETRY_TOPIC, message.queue.topic),
        "unitMode": "false",
        "maxReconsumeTimes": str(max_retries),
        "bname": message.queue.broker,
    }
    address = require_address(route, message.queue.broker)
    yield from cluster.call(address, codes.CONSUMER_SEND_MSG_BACK, fields)
