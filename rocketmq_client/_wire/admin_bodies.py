"""JSON bodies of administration: settings of groups, progress, statistics, members.

Upstream's `SubscriptionGroupConfig`, `ConsumeStats`, `TopicStatsTable` and `ConsumerConnection`.
Settings of a group keep members that this client does not know, so that a change keeps them too.

Source: `docs/rocketmq-protocol/wire.md#bodies`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rocketmq_client import errors
from rocketmq_client._wire.json_text import object_in, read_json, write_json
from rocketmq_client.model import (
    GroupMember,
    GroupMembers,
    GroupSettings,
    Queue,
    QueueProgress,
    QueueStats,
)

__all__ = [
    "group_body",
    "group_settings",
    "parse_group_members",
    "parse_groups",
    "parse_moved",
    "parse_progress",
    "parse_topic_stats",
]

_SWITCHES: Final = {
    "enabled": "consumeEnable",
    "broadcasting": "consumeBroadcastEnable",
    "from_first": "consumeFromMinEnable",
    "ordered": "consumeMessageOrderly",
}
_COUNTS: Final = {"retry_queues": "retryQueueNums", "max_retries": "retryMaxTimes"}
"""Options of `GroupSettings` and the names that brokers have for them."""

_NEW_GROUP: Final = {
    "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1,
    "notifyConsumerIdsChangedEnable": True,
}


def parse_groups(body: bytes) -> dict[str, dict[str, Any]]:
    """Return the settings of all groups of a broker, with unknown members."""
    table = object_in(read_json(body, "the groups").get("subscriptionGroupTable"))
    return {name: object_in(item) for name, item in sorted(table.items())}


def group_settings(name: str, item: Mapping[str, Any]) -> GroupSettings:
    """Return a broker's settings of a group; members that a 4.x broker lacks have their
    defaults."""
    found: dict[str, Any] = {}
    for kind, options in ((bool, _SWITCHES), (int, _COUNTS)):
        for option, member in options.items():
            value = item.get(member)
            if value is None:
                continue
            if type(value) is not kind:
                raise errors.ProtocolViolation(f"{member} of group {name!r} is {value!r:.40}")
            found[option] = value
    return GroupSettings(name, **found)


def group_body(settings: GroupSettings, before: Mapping[str, Any] | None) -> bytes:
    """Return the body of a request to create a group, or to change one that was `before`."""
    changed = {
        member: getattr(settings, option) for option, member in {**_SWITCHES, **_COUNTS}.items()
    }
    return write_json({**_NEW_GROUP, **(before or {}), **changed, "groupName": settings.name})


def parse_progress(body: bytes) -> list[QueueProgress]:
    """Return the positions of a group at a broker."""
    return [
        QueueProgress(
            queue,
            _whole(item, "brokerOffset"),
            _whole(item, "consumerOffset"),
            _whole(item, "lastTimestamp") or None,
        )
        for queue, item in _by_queue(body, "the progress")
    ]


def parse_topic_stats(body: bytes) -> list[QueueStats]:
    """Return the ends of a topic's queues at a broker."""
    return [
        QueueStats(
            queue,
            _whole(item, "minOffset"),
            _whole(item, "maxOffset"),
            _whole(item, "lastUpdateTimestamp") or None,
        )
        for queue, item in _by_queue(body, "the statistics")
    ]


def parse_moved(body: bytes) -> dict[Queue, int]:
    """Return the offsets to which a broker has moved a group, or asks its members to go."""
    table = object_in(read_json(body, "the reset").get("offsetTable"))
    moved = {}
    for key, offset in table.items():
        if type(offset) is not int or offset < 0:
            raise errors.ProtocolViolation(f"the reset has offset {str(offset)[:40]!r}")
        moved[_queue(key)] = offset
    return moved


def parse_group_members(body: bytes) -> GroupMembers:
    """Return the members of a group that a broker knows."""
    found = read_json(body, "the members")
    connections = found.get("connectionSet") or []
    subscriptions = object_in(found.get("subscriptionTable"))
    if not isinstance(connections, list):
        raise errors.ProtocolViolation("the members are no list")
    members = [
        GroupMember(
            _text(item, "clientId"),
            _text(item, "clientAddr"),
            _text(item, "language"),
            _version(_whole(item, "version")),
        )
        for item in map(object_in, connections)
    ]
    return GroupMembers(
        tuple(sorted(members)),
        {
            topic: _text(object_in(item), "subString")
            for topic, item in sorted(subscriptions.items())
        },
        "broadcasting" if found.get("messageModel") == "BROADCASTING" else "clustering",
    )


def _version(number: int) -> str:
    """Return the version that a client's number stands for: since 4.0.0 each has two, the first for
    its snapshots."""
    patch = (number - 213) // 2
    if not 0 <= patch < 600:
        return str(number)
    return f"{4 + patch // 100}.{patch // 10 % 10}.{patch % 10}"


def _by_queue(body: bytes, what: str) -> Iterator[tuple[Queue, dict[str, Any]]]:
    table = object_in(read_json(body, what).get("offsetTable"))
    found = ((_queue(key), object_in(item)) for key, item in table.items())
    yield from sorted(found, key=lambda pair: pair[0])


def _queue(key: str) -> Queue:
    try:
        item = json.loads(key)
        return Queue(str(item["brokerName"]), str(item["topic"]), int(item["queueId"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise errors.ProtocolViolation(f"{key[:80]!r} is no queue") from error


def _whole(item: Mapping[str, Any], name: str) -> int:
    value = item.get(name)
    if type(value) is not int:
        raise errors.ProtocolViolation(f"{name} is {str(value)[:40]!r}")
    return value


def _text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise errors.ProtocolViolation(f"{name} is {str(value)[:40]!r}")
    return value
