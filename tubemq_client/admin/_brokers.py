"""Brokers and masters over HTTP: configuration, run status, and the switches of a broker.

Conversations. Changes reach clients with their heartbeats: a broker taken offline keeps its
records, and its partitions come back with it. Nothing here handles topics or groups.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence

from tubemq_client import errors
from tubemq_client.admin import _parsing
from tubemq_client.admin._topics import modify_topic, topics
from tubemq_client.admin._web import Conversation, Web, in_batches, parsed
from tubemq_client.admin.model import (
    BrokerInfo,
    BrokerStatus,
    ClusterSettings,
    MasterGroup,
    TopicProperties,
)

__all__ = [
    "add_broker",
    "broker_status",
    "broker_urls",
    "brokers",
    "cluster_settings",
    "delete_brokers",
    "master_group",
    "modify_broker",
    "offline_brokers",
    "online_broker_urls",
    "online_brokers",
    "release_brokers",
    "reload_brokers",
    "server_version",
    "set_broker_access",
    "set_cluster_settings",
]


def brokers(web: Web) -> Conversation[list[BrokerInfo]]:
    """List every configured broker, by id."""
    body = yield from web.query("admin_query_broker_configure")
    infos = parsed(
        lambda: [_parsing.broker_info(row) for row in body["data"]], "admin_query_broker_configure"
    )
    return sorted(infos, key=lambda broker: broker.broker_id)


def broker_urls(web: Web) -> Conversation[dict[int, str]]:
    """Return the HTTP address of every configured broker, by broker id."""
    infos = yield from brokers(web)
    return {broker.broker_id: broker.web_url for broker in infos}


def online_broker_urls(web: Web) -> Conversation[dict[int, str]]:
    """Return `broker_urls` without drafts and brokers that are offline, which often do not
    answer."""
    infos = yield from brokers(web)
    return {b.broker_id: b.web_url for b in infos if b.manage_status not in ("draft", "offline")}


def broker_status(web: Web) -> Conversation[list[BrokerStatus]]:
    """Return the run status of every broker, by id; None where unknown, as for a stopped one."""
    method = "admin_query_broker_run_status"
    body = yield from web.query(method)
    statuses = parsed(lambda: [_parsing.broker_status(row) for row in body["data"]], method)
    return sorted(statuses, key=lambda status: status.broker_id)


def add_broker(
    web: Web,
    host: str,
    broker_id: int | None = None,
    *,
    port: int = 8123,
    tls_port: int = 8124,
    web_port: int = 8081,
    properties: TopicProperties | None = None,
) -> Conversation[int]:
    """Configure a new broker as a draft and return its id (default: derived from the address).

    `host` is an IPv4 address. `properties` are the defaults of its topics. The broker process must
    be started afterwards, and `online_brokers` opens it to clients.
    """
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        raise errors.ConfigError(
            f"host: {host!r} is not an IPv4 address, the only kind that masters accept",
            subject="broker",
        ) from None
    method = "admin_add_broker_configure"
    body = yield from web.modify(
        method,
        brokerIp=host,
        brokerId=broker_id,
        brokerPort=port,
        brokerTLSPort=tls_port,
        brokerWebPort=web_port,
        createUser=web.user,
        **(properties or TopicProperties()).fields(),
    )
    return parsed(lambda: int(body["data"][0]["brokerId"]), method)


def modify_broker(
    web: Web,
    broker_id: int,
    *,
    port: int | None = None,
    tls_port: int | None = None,
    web_port: int | None = None,
    properties: TopicProperties | None = None,
) -> Conversation[None]:
    """Change ports or the defaults of its topics; None leaves a value unchanged.

    Existing topics keep their own properties. Takes effect with `reload_brokers`.
    """
    yield from web.modify(
        "admin_update_broker_configure",
        brokerId=broker_id,
        brokerPort=port,
        brokerTLSPort=tls_port,
        brokerWebPort=web_port,
        modifyUser=web.user,
        **(properties or TopicProperties()).fields(),
    )


def online_brokers(web: Web, broker_ids: Sequence[int]) -> Conversation[None]:
    """Open brokers to producers and consumers."""
    yield from _each(web, "admin_online_broker_configure", broker_ids)


def offline_brokers(web: Web, broker_ids: Sequence[int]) -> Conversation[None]:
    """Close brokers: clients lose their partitions with the next heartbeat, records stay."""
    yield from _each(web, "admin_offline_broker_configure", broker_ids)


def reload_brokers(web: Web, broker_ids: Sequence[int]) -> Conversation[None]:
    """Send brokers their changed configuration; reading and writing continue meanwhile."""
    yield from _each(web, "admin_reload_broker_configure", broker_ids)


def set_broker_access(
    web: Web,
    broker_ids: Sequence[int],
    *,
    publish: bool | None = None,
    subscribe: bool | None = None,
) -> Conversation[None]:
    """Open or close on-line brokers to producers and to consumers; None leaves a value
    unchanged."""
    if publish is None and subscribe is None:
        raise errors.ConfigError("give publish, subscribe or both", subject="broker access")
    method = "admin_set_broker_read_or_write"
    yield from _each(web, method, broker_ids, acceptPublish=publish, acceptSubscribe=subscribe)


def release_brokers(web: Web, broker_ids: Sequence[int], reason: str = "") -> Conversation[None]:
    """Clear the mark of brokers that the master forbade after they reported faults."""
    method = "admin_release_broker_autoforbidden_status"
    yield from _each(web, method, broker_ids, relReason=reason or "released")


def delete_brokers(
    web: Web, broker_ids: Sequence[int], *, with_topics: bool = False
) -> Conversation[None]:
    """Delete brokers that are drafts or offline (`errors.AdminError` 406 otherwise).

    Only `with_topics` deletes one that still has topics (404 otherwise), after closing them there;
    a broker always has the system's own. Files on their machines stay.
    """
    if with_topics:
        yield from _close_topics(web, broker_ids)
    method = "admin_delete_broker_configure"
    yield from _each(web, method, broker_ids, isReservedData=with_topics or None)


def _close_topics(web: Web, broker_ids: Sequence[int]) -> Conversation[None]:
    """Close the brokers' topics: a master deletes no broker with a topic that is open."""
    infos = yield from topics(web)
    for info in infos:
        ids = [d.broker_id for d in info.deployments if d.broker_id in broker_ids]
        if ids:
            closed = TopicProperties(accept_publish=False, accept_subscribe=False)
            yield from modify_topic(web, info.name, closed, ids)


def _each(web: Web, method: str, broker_ids: Sequence[int], **fields: object) -> Conversation[None]:
    if not broker_ids:
        raise errors.ConfigError("no broker id given", subject="brokers")
    for batch in in_batches(list(broker_ids)):
        yield from web.modify(method, brokerId=batch, modifyUser=web.user, **fields)


def server_version(web: Web) -> Conversation[str]:
    """Return the version of the master that answers."""
    method = "admin_query_server_version"
    body = yield from web.query(method)
    return parsed(lambda: str(body["data"][0]["version"]), method)


def master_group(web: Web) -> Conversation[MasterGroup]:
    """Return the masters of the cluster, with their status."""
    method = "admin_query_master_group_info"
    body = yield from web.query(method)
    return parsed(lambda: _parsing.master_group(body), method)


def cluster_settings(web: Web) -> Conversation[ClusterSettings | None]:
    """Return the defaults of the whole cluster; None if they were never set."""
    method = "admin_query_cluster_default_setting"
    body = yield from web.query(method)
    settings = parsed(lambda: [_parsing.cluster_settings(row) for row in body["data"]], method)
    return settings[0] if settings else None


def set_cluster_settings(
    web: Web,
    *,
    max_message_mb: int | None = None,
    query_priority: int | None = None,
    flow_control: bool | None = None,
    flow_rules: Sequence[Mapping[str, object]] | None = None,
) -> Conversation[None]:
    """Change defaults of the whole cluster; None leaves a value unchanged.

    Brokers enforce the flow rules of type 0 within a heartbeat (about 10 s), and answer fetches
    beyond them with 452; consumers learn the others with their own heartbeats. The master refuses
    rules it cannot parse (`errors.BadRequest` names field and record).
    """
    current = yield from cluster_settings(web)
    verb, user = ("set", "createUser") if current is None else ("update", "modifyUser")
    try:
        yield from web.modify(
            f"admin_{verb}_cluster_default_setting",
            maxMsgSizeInMB=max_message_mb,
            qryPriorityId=query_priority,
            flowCtrlEnable=flow_control,
            flowCtrlInfo=rules_text(flow_rules),
            **{user: web.user},
        )
    except errors.BadRequest as error:
        # Unlike other changes, this one is refused if nothing changes.
        if "not changed" not in error.detail:
            raise


def rules_text(rules: Sequence[Mapping[str, object]] | None) -> str | None:
    """Return flow rules as the parameter `flowCtrlInfo`."""
    return None if rules is None else json.dumps(list(rules), separators=(",", ":"))
