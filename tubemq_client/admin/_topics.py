"""Topics over HTTP: list, create, modify, delete, and their topic-wide settings.

Conversations; each docstring describes the effect on clients. A genuine master spreads a change
through broker heartbeats: brokers know a new topic after about 7 s, consumers after 13 s, producers
after 45 s. Method names are those of upstream's `WebMasterInfoHandler` family.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tubemq_client import errors
from tubemq_client.admin import _parsing
from tubemq_client.admin._web import Conversation, Web, in_batches, parsed
from tubemq_client.admin.model import TopicControl, TopicInfo, TopicProperties

__all__ = [
    "create_topic",
    "delete_topic",
    "modify_topic",
    "set_topic_control",
    "topic",
    "topic_controls",
    "topics",
]

_CLOSED = TopicProperties(accept_publish=False, accept_subscribe=False)


def topics(web: Web, names: Sequence[str] = ()) -> Conversation[list[TopicInfo]]:
    """List topics by name with their partitions and brokers; all of them if `names` is empty.

    Unknown names are missing in the result. The full list includes the system's own topic
    (``__offset_history__``).
    """
    infos: list[TopicInfo] = []
    for batch in in_batches(list(names)):
        body = yield from web.query("admin_query_topic_info", topicName=batch or None)
        infos += parsed(_topic_rows, "admin_query_topic_info", body)
    return sorted(infos, key=lambda info: info.name)


def _topic_rows(body: dict[str, Any]) -> list[TopicInfo]:
    return [_parsing.topic_info(row) for row in body["data"]]


def topic(web: Web, name: str) -> Conversation[TopicInfo]:
    """Return one topic. Raises `errors.UnknownTopic` if no broker has it."""
    infos = yield from topics(web, [name])
    for info in infos:
        if info.name == name:
            return info
    raise errors.UnknownTopic(431, f"topic {name!r} is on no broker")


def create_topic(
    web: Web,
    name: str,
    properties: TopicProperties | None = None,
    broker_ids: Sequence[int] | None = None,
) -> Conversation[list[int]]:
    """Create a topic on brokers (default: all configured ones) and return their ids.

    Properties left None are the broker's. Clients cannot use it at once: see the module's times;
    poll `topic` until `accepts_publish`. Raises `errors.AdminError` naming brokers that have it
    already, and `errors.ConfigError` for properties out of range before anything is sent.
    """
    fields = (properties or TopicProperties()).fields()
    ids = list(broker_ids) if broker_ids is not None else (yield from _all_brokers(web))
    yield from _each(web, "admin_add_topic_deploy_info", name, ids, createUser=web.user, **fields)
    return ids


def _all_brokers(web: Web) -> Conversation[list[int]]:
    body = yield from web.query("admin_query_broker_configure")
    ids = parsed(
        lambda: sorted(int(row["brokerId"]) for row in body["data"]), "admin_query_broker_configure"
    )
    if not ids:
        raise errors.ConfigError("the cluster has no broker yet: add one first", subject="brokers")
    return ids


def modify_topic(
    web: Web, name: str, properties: TopicProperties, broker_ids: Sequence[int] | None = None
) -> Conversation[list[int]]:
    """Change properties on brokers (default: all that have the topic) and return their ids.

    Stores and partitions can only grow (`errors.AdminError`, code 407). Records stay where they
    are: new partitions start empty, or, in an existing store, at the store's present end. Closing
    (`accept_publish` False) makes brokers refuse sends with 403 after some seconds.
    """
    fields = properties.fields()
    if not fields:
        raise errors.ConfigError("nothing to change: every property is None", subject="topic")
    ids = yield from _brokers_of(web, name, broker_ids)
    method = "admin_update_topic_deploy_info"
    yield from _each(web, method, name, ids, modifyUser=web.user, **fields)
    return ids


def _brokers_of(web: Web, name: str, broker_ids: Sequence[int] | None) -> Conversation[list[int]]:
    if broker_ids is not None:
        return list(broker_ids)
    info = yield from topic(web, name)
    return [deployment.broker_id for deployment in info.deployments]


def delete_topic(
    web: Web, name: str, broker_ids: Sequence[int] | None = None, *, remove_data: bool = False
) -> Conversation[list[int]]:
    """Close a topic and remove it from brokers (default: all that have it); return their ids.

    This cannot be undone: TubeMQ 2.4.0 answers the request to redo a deletion with Ok and does
    nothing. Producers are refused (403) and consumers lose their partitions within some seconds.
    Records stay on the brokers' disks, and the name stays taken, until `remove_data` deletes both
    (call again for a topic that is ``deleted``); brokers need some seconds for that. Positions of
    groups stay in either case.
    """
    ids = yield from _brokers_of(web, name, broker_ids)
    yield from modify_topic(web, name, _CLOSED, ids)
    yield from _each(web, "admin_delete_topic_deploy_info", name, ids, modifyUser=web.user)
    if remove_data:
        method = "admin_remove_topic_deploy_info"
        yield from _each(web, method, name, ids, modifyUser=web.user)
    return ids


def _each(
    web: Web, method: str, name: str, ids: Sequence[int], **fields: object
) -> Conversation[None]:
    for batch in in_batches(ids):
        yield from web.modify(method, topicName=name, brokerId=batch, **fields)


def topic_controls(web: Web, names: Sequence[str] = ()) -> Conversation[list[TopicControl]]:
    """List topic-wide settings; of all topics if `names` is empty."""
    method = "admin_query_topic_control_info"
    controls: list[TopicControl] = []
    for batch in in_batches(list(names)):
        body = yield from web.query(method, topicName=batch or None)
        controls += parsed(_control_rows, method, body)
    return sorted(controls, key=lambda control: control.topic)


def _control_rows(body: dict[str, Any]) -> list[TopicControl]:
    return [_parsing.topic_control(row) for row in body["data"]]


def set_topic_control(
    web: Web, name: str, *, authorisation: bool | None = None, max_message_mb: int | None = None
) -> Conversation[None]:
    """Change topic-wide settings; None leaves a value unchanged.

    With `authorisation` only groups with a `ConsumeControl` may register (others get 450); members
    online keep their partitions. The message size (MiB) reaches producers with their next
    heartbeat.
    """
    if max_message_mb is not None and not 1 <= max_message_mb <= 20:
        raise errors.ConfigError(f"max_message_mb: {max_message_mb} is not from 1 to 20")
    yield from web.modify(
        "admin_update_topic_control_info",
        topicName=name,
        enableAuthControl=authorisation,
        maxMsgSizeInMB=max_message_mb,
        modifyUser=web.user,
    )
