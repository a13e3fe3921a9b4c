"""Administration: topics of every broker, their kinds, brokers' options, key-value entries.

A topic is created at each broker, which registers it at the name servers at once. Only the code
decides about success: the remark of a success may read like a failure.

Source: `docs/rocketmq-protocol/wire.md#codes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rocketmq_client import errors
from rocketmq_client._wire import codes
from rocketmq_client._wire.bodies import RETRY_PREFIX, parse_topic_list
from rocketmq_client._wire.json_text import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client._wire.bodies import ClusterInfo, TopicRoute
    from rocketmq_client.model import Address
    from tubemq_client._core.effects import Conversation

__all__ = [
    "broker_config",
    "change_broker_config",
    "check_kind",
    "create_topic",
    "delete_topic",
    "is_system_topic",
    "list_topics",
    "masters",
    "topic_config",
]

_SYSTEM: Final = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "TBW102",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "BenchmarkTest",
    }
)


def is_system_topic(name: str) -> bool:
    """Return True for topics that servers create for themselves."""
    lowered = name.lower()
    return (
        name in _SYSTEM
        or lowered.startswith("rmq_sys_")
        or name.endswith("_REPLY_TOPIC")
        or name.startswith((RETRY_PREFIX, "%DLQ%"))
    )


def list_topics(cluster: Cluster) -> Conversation[list[str]]:
    """Return the users' topics. Names of brokers and clusters, which are topics too, are left
    out."""
    answer = yield from cluster.ask_name_server(codes.GET_ALL_TOPIC_LIST, {})
    info = yield from cluster.brokers()
    hidden = {*info.brokers, *info.clusters}
    return [
        name
        for name in parse_topic_list(answer.body)
        if name not in hidden and not is_system_topic(name)
    ]


def masters(info: ClusterInfo, broker: str | None) -> dict[str, Address]:
    """Return the master of one broker by its name, or all masters that a name server knows.

    Raises `errors.ConfigError` for an unknown broker, and `errors.ConnectError` if there is none at
    all: a change for all brokers would reach none.
    """
    brokers = info.brokers
    if broker is None:
        found = {
            name: data.master for name, data in sorted(brokers.items()) if data.master is not None
        }
        if not found:
            raise errors.ConnectError("no broker with a master is registered now")
        return found
    master = brokers[broker].master if broker in brokers else None
    if master is None:
        raise errors.ConfigError(
            f"broker {broker!r} is not registered; known: {', '.join(sorted(brokers)) or 'none'}",
            subject="broker",
        )
    return {broker: master}


def create_topic(
    cluster: Cluster,
    topic: str,
    addresses: Mapping[str, Address],
    *,
    queues: int,
    perm: int,
    order: bool,
    attributes: Mapping[str, str],
) -> Conversation[None]:
    """Create or change the topic at these brokers. Idempotent; fewer `queues` hide the others with
    their records. `attributes` work on 5.x only."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": str(perm),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "true" if order else "false",
    }
    if attributes:
        fields["attributes"] = ",".join(f"+{name}={value}" for name, value in attributes.items())
    for broker, address in addresses.items():
        named = {**fields, "bname": broker}
        yield from cluster.call(address, codes.UPDATE_AND_CREATE_TOPIC, named)
    cluster.forget_route(topic)


def delete_topic(
    cluster: Cluster, topic: str, addresses: Mapping[str, Address]
) -> Conversation[None]:
    """Remove the topic from these brokers, then from every name server. A topic recreated under its
    name begins at offset 0."""
    for broker, address in addresses.items():
        fields = {"topic": topic, "bname": broker}
        yield from cluster.call(address, codes.DELETE_TOPIC_IN_BROKER, fields)
    for server in cluster.settings.name_servers:
        yield from cluster.call(server, codes.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})
    cluster.forget_route(topic)


def topic_config(
    cluster: Cluster, address: Address, topic: str, broker: str
) -> Conversation[dict[str, Any] | None]:
    """Return the topic's settings at a broker, with its `attributes`; None from 4.x, which cannot
    report them. The broker name is for a service node in between, which routes by it."""
    fields = {"topic": topic, "bname": broker}
    try:
        answer = yield from cluster.call(address, codes.GET_TOPIC_CONFIG, fields)
    except errors.Unsupported:
        return None
    return read_json(answer.body, f"the settings of topic {topic!r}")


def check_kind(cluster: Cluster, route: TopicRoute) -> Conversation[None]:
    """Raise `errors.UnsupportedTopic` for kinds whose offsets are not one record each."""
    kind = ""
    if route.topic.startswith("%LMQ%"):
        kind = "light queue"
    elif route.static:
        kind = "static (queues move between brokers)"
    for broker, address in route.masters().items():
        if kind:
            break
        try:
            config = yield from topic_config(cluster, address, route.topic, broker)
        except errors.RocketMQError as error:
            if not (error.retriable or isinstance(error, errors.NoPermission)):
                raise
            continue  # the reader's checks detect it
        kind = _kind((config or {}).get("attributes"))
    if kind:
        raise errors.UnsupportedTopic(
            f"topic {route.topic!r} is of the kind {kind}, whose offsets do not count one record "
            "each; exact ranges need an ordinary topic",
            kind=kind,
        )


def _kind(attributes: Any) -> str:
    if not isinstance(attributes, dict):
        return ""
    if "batch" in str(attributes.get("queue.type", "")).lower():
        return "batch (queue.type=BatchCQ)"
    if "compaction" in str(attributes.get("cleanup.policy", "")).lower():
        return "compacted (cleanup.policy=COMPACTION)"
    return ""


def broker_config(cluster: Cluster, address: Address) -> Conversation[dict[str, str]]:
    """Return a broker's active options."""
    answer = yield from cluster.call(address, codes.GET_BROKER_CONFIG, {})
    lines = answer.body.decode("utf-8", "replace").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def change_broker_config(
    cluster: Cluster, address: Address, options: Mapping[str, str]
) -> Conversation[None]:
    """Change options of a running broker."""
    body = "".join(f"{name}={value}\n" for name, value in options.items()).encode()
    yield from cluster.call(address, codes.UPDATE_BROKER_CONFIG, {}, body)
