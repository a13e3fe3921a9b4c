"""Administration of consumer groups: settings, progress, members, and moved offsets.

Each broker has its own settings, offsets and members of a group, so every conversation names its
broker: a service node in between routes by the name. A group without members is moved by committing
its offsets; members would overwrite that, so the broker has to move them.

Source: `docs/rocketmq-protocol/wire.md#groups`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from rocketmq_client import errors
from rocketmq_client._core.ends import queue_ends, require_address, select_queues
from rocketmq_client._core.groups import commit_offset, committed_offset, members
from rocketmq_client._core.times import boundary_at
from rocketmq_client._wire import codes
from rocketmq_client._wire.admin_bodies import (
    group_body,
    group_settings,
    parse_group_members,
    parse_groups,
    parse_moved,
    parse_progress,
    parse_topic_stats,
)
from rocketmq_client.model import GroupMembers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client._wire.bodies import TopicRoute
    from rocketmq_client.model import Address, GroupSettings, Queue, QueueProgress, QueueStats
    from tubemq_client._core.effects import Conversation

__all__ = [
    "create_group",
    "delete_group",
    "enable_group",
    "group_members",
    "group_progress",
    "groups_at",
    "list_groups",
    "reset_by_time",
    "reset_offsets",
    "topic_stats",
]

_READER = "rocketmq_client_meta"
"""Group that brokers see in pulls of single records; it gets no offsets."""

_OF_SERVERS = ("CID_RMQ_SYS_", "CID_SYS_RMQ_TRANS", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_")
_OWN = frozenset({"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", _READER})


def _groups(cluster: Cluster, address: Address, broker: str) -> Conversation[dict[str, Any]]:
    answer = yield from cluster.call(
        address, codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"bname": broker}
    )
    return parse_groups(answer.body)


def list_groups(cluster: Cluster, masters: Mapping[str, Address]) -> Conversation[list[str]]:
    """Return the users' groups at these brokers, ordered; those of servers and tools are left
    out."""
    found: set[str] = set()
    for broker, address in masters.items():
        found |= (yield from _groups(cluster, address, broker)).keys()
    return sorted(name for name in found if not (name.startswith(_OF_SERVERS) or name in _OWN))


def groups_at(
    cluster: Cluster, group: str, masters: Mapping[str, Address]
) -> Conversation[dict[str, GroupSettings]]:
    """Return the group's settings at those of the brokers that have it."""
    found = {}
    for broker, address in masters.items():
        item = (yield from _groups(cluster, address, broker)).get(group)
        if item is not None:
            found[broker] = group_settings(group, item)
    return found


def create_group(
    cluster: Cluster, settings: GroupSettings, masters: Mapping[str, Address]
) -> Conversation[None]:
    """Create or change the group at these brokers. Options of brokers that `GroupSettings` lacks
    stay."""
    for broker, address in masters.items():
        before = (yield from _groups(cluster, address, broker)).get(settings.name)
        yield from _write_group(cluster, address, broker, group_body(settings, before))


def enable_group(
    cluster: Cluster, group: str, masters: Mapping[str, Address], *, enabled: bool
) -> Conversation[None]:
    """Give records to the group, or to none of its members. Raises `errors.UnknownGroup` if no
    broker has it."""
    changed = False
    for broker, address in masters.items():
        before = (yield from _groups(cluster, address, broker)).get(group)
        if before is not None:
            settings = group_settings(group, {**before, "consumeEnable": enabled})
            yield from _write_group(cluster, address, broker, group_body(settings, before))
            changed = True
    if not changed:
        raise errors.UnknownGroup(
            26, f"no broker has group {group!r}; create it, or let a member join first"
        )


def _write_group(
    cluster: Cluster, address: Address, broker: str, body: bytes
) -> Conversation[None]:
    method = codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    yield from cluster.call(address, method, {"bname": broker}, body)


def delete_group(
    cluster: Cluster, group: str, masters: Mapping[str, Address], *, offsets: bool
) -> Conversation[None]:
    """Delete the group at these brokers, and with `offsets` its committed offsets. A broker that
    does not have it has nothing to do."""
    for broker, address in masters.items():
        fields = {
            "groupName": group,
            "cleanOffset": "true" if offsets else "false",
            "bname": broker,
        }
        yield from cluster.call(address, codes.DELETE_SUBSCRIPTIONGROUP, fields)


def group_progress(
    cluster: Cluster, group: str, topic: str | None, masters: Mapping[str, Address]
) -> Conversation[list[QueueProgress]]:
    """Return the group's positions on the queues of these brokers, of one topic or of all."""
    found: list[QueueProgress] = []
    for broker, address in masters.items():
        fields = {"consumerGroup": group, "bname": broker, **({"topic": topic} if topic else {})}
        answer = yield from cluster.call(address, codes.GET_CONSUME_STATS, fields)
        found += parse_progress(answer.body)
    return sorted(found, key=lambda item: (item.queue.topic, item.queue))


def topic_stats(cluster: Cluster, topic: str) -> Conversation[list[QueueStats]]:
    """Return ends and last time of each queue of the topic."""
    route = yield from cluster.route(topic, fresh=True)
    found: list[QueueStats] = []
    for broker, address in sorted(route.masters().items()):
        fields = {"topic": topic, "bname": broker}
        answer = yield from cluster.call(address, codes.GET_TOPIC_STATS_INFO, fields)
        found += parse_topic_stats(answer.body)
    return sorted(found, key=lambda item: item.queue)


def group_members(
    cluster: Cluster, group: str, masters: Mapping[str, Address]
) -> Conversation[GroupMembers]:
    """Return the members that any of these brokers knows, once each; none is no error."""
    known: dict[str, GroupMembers] = {}
    for broker, address in masters.items():
        fields = {"consumerGroup": group, "bname": broker}
        answer = yield from cluster.call(address, codes.GET_CONSUMER_CONNECTION_LIST, fields)
        if answer.code == codes.SUCCESS:
            known[broker] = parse_group_members(answer.body)
    by_id = {one.client_id: one for found in known.values() for one in found.members}
    subscriptions = {
        topic: tags for found in known.values() for topic, tags in found.subscriptions.items()
    }
    broadcasting = any(found.mode == "broadcasting" for found in known.values())
    mode: Literal["clustering", "broadcasting"] = "broadcasting" if broadcasting else "clustering"
    return GroupMembers(tuple(sorted(by_id.values())), subscriptions, mode)


def reset_by_time(
    cluster: Cluster, group: str, topic: str, instant_ms: int
) -> Conversation[dict[Queue, int]]:
    """Move the group to the first record of each queue that was stored at or after the instant;
    return the offsets."""
    route = yield from cluster.route(topic, fresh=True)
    ends = yield from queue_ends(cluster, route, route.readable(), _READER, stable=False)
    targets = {}
    for queue, bounds in ends.items():
        boundary = yield from boundary_at(cluster, route, bounds, instant_ms, _READER)
        targets[queue] = boundary.offset
    return (yield from _move(cluster, route, group, targets, instant_ms))


def reset_offsets(
    cluster: Cluster, group: str, topic: str, offsets: Mapping[Queue, int]
) -> Conversation[dict[Queue, int]]:
    """Move the group to these offsets; other queues stay. Raises `errors.ConfigError` for queues
    that the topic lacks, and for offsets that a queue does not reach."""
    route = yield from cluster.route(topic, fresh=True)
    chosen = select_queues(route, offsets)
    ends = yield from queue_ends(cluster, route, chosen, _READER, stable=False)
    problems = [
        f"offset {offset} of {queue} is not within [{ends[queue].min_offset}, "
        f"{ends[queue].latest_offset}]"
        for queue, offset in offsets.items()
        if not ends[queue].min_offset <= offset <= ends[queue].latest_offset
    ]
    if problems:
        raise errors.ConfigError(problems, subject="offsets")
    return (yield from _move(cluster, route, group, offsets, None))


def _move(
    cluster: Cluster,
    route: TopicRoute,
    group: str,
    targets: Mapping[Queue, int],
    instant_ms: int | None,
) -> Conversation[dict[Queue, int]]:
    """Move the group's members, or else its committed offsets, broker by broker."""
    moved: dict[Queue, int] = {}
    for broker in sorted({queue.broker for queue in targets}):
        address = require_address(route, broker)
        mine = {queue: offset for queue, offset in targets.items() if queue.broker == broker}
        if not (yield from members(cluster, address, group, broker)):
            for queue, offset in mine.items():
                yield from commit_offset(cluster, route, queue, group, offset)
            moved |= mine
        elif (yield from cluster.runtime_info(address, broker)).has_exact_minima:
            for queue, offset in mine.items():
                fields = {"queueId": str(queue.queue_id), "offset": str(offset)}
                yield from _reset(cluster, route, queue, group, fields)
            moved |= mine
        elif instant_ms is None:
            raise errors.ConfigError(
                f"group {group!r} has members, and broker {broker!r} (4.x) moves members by time "
                "only: stop them, or reset by time",
                subject="offsets",
            )
        else:
            for queue, offset in mine.items():  # it refuses to move a group that lacks one offset
                if not (yield from committed_offset(cluster, route, queue, group)):
                    yield from commit_offset(cluster, route, queue, group, offset)
            fields = {"timestamp": str(instant_ms)}
            moved |= yield from _reset(cluster, route, next(iter(mine)), group, fields)
    return moved


def _reset(
    cluster: Cluster, route: TopicRoute, queue: Queue, group: str, fields: Mapping[str, str]
) -> Conversation[dict[Queue, int]]:
    """Let the broker of `queue` move the members of the group."""
    asked = {
        "topic": queue.topic,
        "group": group,
        "timestamp": "-1",
        "isForce": "true",
        "bname": queue.broker,
        **fields,
    }
    address = require_address(route, queue.broker)
    answer = yield from cluster.call(address, codes.INVOKE_BROKER_TO_RESET_OFFSET, asked)
    return parse_moved(answer.body) if answer.body else {}
