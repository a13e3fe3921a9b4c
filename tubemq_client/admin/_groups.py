"""Consumer groups over HTTP: members, permissions, and rate limits.

Conversations. Rules and permissions are records at the master, independent of groups: they may be
set before a group first registers, and an existing record is updated. Nothing here touches
positions; see `_offsets`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tubemq_client import errors
from tubemq_client.admin import _parsing
from tubemq_client.admin._brokers import online_broker_urls, rules_text
from tubemq_client.admin._web import Conversation, Web, parsed
from tubemq_client.admin.model import (
    ConsumeControl,
    GroupDetail,
    GroupInfo,
    ResourceControl,
)

__all__ = [
    "consume_controls",
    "delete_consume_control",
    "delete_resource_control",
    "group",
    "groups",
    "resource_controls",
    "set_consume_control",
    "set_resource_control",
]

_FILTER = re.compile(r"[\w-]{1,256}", re.ASCII)


def groups(web: Web, topic: str | None = None) -> Conversation[list[GroupInfo]]:
    """List groups online (with `topic`: its subscribers), else also those with positions.

    Every broker online is queried. A group whose positions were removed (`remove_offsets`) is
    listed until its broker is restarted.
    """
    body = yield from web.query("admin_query_sub_info", topicName=topic)
    online = parsed(
        lambda: {
            str(row["consumeGroup"]): (tuple(sorted(row["topicSet"])), int(row["consumerNum"]))
            for row in body["data"]
        },
        "admin_query_sub_info",
    )
    booked: dict[str, list[int]] = {}
    urls = yield from online_broker_urls(web)
    for broker_id, url in sorted(urls.items()):
        names = yield from _booked(web, url)
        for name in names:
            booked.setdefault(name, []).append(broker_id)
    listed = set(online) if topic is not None else set(online) | set(booked)
    return [
        GroupInfo(name, *online.get(name, ((), 0)), tuple(booked.get(name, ())))
        for name in sorted(listed)
    ]


def _booked(web: Web, url: str) -> Conversation[list[str]]:
    method = "admin_get_booked_groupname"
    body = yield from web.broker(url, method)
    return parsed(
        lambda: [str(name) for entry in body["dataSet"] for name in entry["groupName"]], method
    )


def group(web: Web, name: str) -> Conversation[GroupDetail | None]:
    """Return the members of a group and their partitions; None if none is online."""
    method = "admin_query_consume_group_detail"
    body = yield from web.query(method, consumeGroup=name)
    if not body.get("data"):
        return None
    return parsed(lambda: _parsing.group_detail(body), method)


def consume_controls(
    web: Web, group: str | None = None, topic: str | None = None
) -> Conversation[list[ConsumeControl]]:
    """List permissions and filter conditions, of one group or topic or all."""
    method = "admin_query_group_csmctrl_info"
    body = yield from web.query(method, groupName=group, topicName=topic)
    controls = parsed(lambda: [_parsing.consume_control(row) for row in body["data"]], method)
    return sorted(controls, key=lambda control: (control.group, control.topic))


def set_consume_control(web: Web, control: ConsumeControl) -> Conversation[None]:
    """Set whether a group may read a topic and which filters it needs; replaces the former record.

    Checked when a consumer registers: members online keep their partitions until they register
    again. On a topic with authorisation, `filter_required` refuses groups that do not request some
    of `filters` (455); without authorisation a forbidden group registers and gets no partition. A
    master keeps former `filters` if none are passed.
    """
    problems = [
        f"filters: {item!r} is no stream id to filter by"
        for item in control.filters
        if not _FILTER.fullmatch(item)
    ]
    if control.filter_required and not control.filters:
        problems.append("filter_required needs filters")
    if problems:
        raise errors.ConfigError(problems, subject=f"control of group {control.group}")
    existing = yield from consume_controls(web, control.group, control.topic)
    verb, user = ("update", "modifyUser") if existing else ("add", "createUser")
    yield from web.modify(
        f"admin_{verb}_group_csmctrl_info",
        groupName=control.group,
        topicName=control.topic,
        consumeEnable=control.enabled,
        disableCsmRsn=control.reason,
        filterEnable=control.filter_required,
        filterConds=control.filters,
        **{user: web.user},
    )


def delete_consume_control(web: Web, group: str, topic: str | None = None) -> Conversation[None]:
    """Delete the permissions of a group, for one topic or all of them.

    On a topic with authorisation the group may then not register any more.
    """
    yield from web.modify(
        "admin_delete_group_csmctrl_info", groupName=group, topicName=topic, modifyUser=web.user
    )


def resource_controls(web: Web, group: str | None = None) -> Conversation[list[ResourceControl]]:
    """List consumption settings and flow rules, of one group or all."""
    method = "admin_query_group_resctrl_info"
    body = yield from web.query(method, groupName=group)
    controls = parsed(lambda: [_parsing.resource_control(row) for row in body["data"]], method)
    return sorted(controls, key=lambda control: control.group)


def set_resource_control(
    web: Web,
    group: str,
    *,
    check_resources: bool | None = None,
    clients_per_broker: int | None = None,
    query_priority: int | None = None,
    flow_control: bool | None = None,
    flow_rules: Sequence[Mapping[str, object]] | None = None,
) -> Conversation[None]:
    """Change settings of a group; None leaves a value unchanged (or TubeMQ's default, if new).

    Members learn them with their next heartbeat. Flow rules of groups are obeyed by clients, not
    enforced by brokers. The master refuses rules it cannot parse (`errors.BadRequest` names field
    and record).
    """
    existing = yield from resource_controls(web, group)
    verb, user = ("update", "modifyUser") if existing else ("add", "createUser")
    yield from web.modify(
        f"admin_{verb}_group_resctrl_info",
        groupName=group,
        resCheckEnable=check_resources,
        alwdBrokerClientRate=clients_per_broker,
        qryPriorityId=query_priority,
        flowCtrlEnable=flow_control,
        flowCtrlInfo=rules_text(flow_rules),
        **{user: web.user},
    )


def delete_resource_control(web: Web, group: str) -> Conversation[None]:
    """Reset a group to the cluster's defaults."""
    yield from web.modify("admin_delete_group_resctrl_info", groupName=group, modifyUser=web.user)
