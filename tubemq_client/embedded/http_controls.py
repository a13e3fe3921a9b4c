"""HTTP administration of read access: topics under authorisation, permissions of groups.

The tables of two kinds of records: topic controls, kept in `cluster`, and permissions of groups,
kept in `controls`. Changes take effect with the next registration or balance round. The older names
for the same records (``topic_authorize_control``, ``black_consumergroup``) are here, too.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from tubemq_client.embedded.cluster import TopicRecord
from tubemq_client.embedded.controls import ConsumeControl, GroupControl
from tubemq_client.embedded.http_params import BadParameter, Params
from tubemq_client.embedded.http_records import Method, RecordKind, Reply, change, changes
from tubemq_client.embedded.http_reply import audit_fields, item_result, rows
from tubemq_client.embedded.master import Master
from tubemq_client.embedded.records import UNDEFINED, Audit

__all__ = ["ControlAdmin"]

_FILTER_ITEM = re.compile(r"[\w-]+", re.ASCII)
_MOST_MB = 20
_FILTERING, _NOT_FILTERING = 2, 0
_BLACK = "Old API add blacklist, disable consume"
_BLACK_BATCH = "Old API batch set BlackList"
_TOPIC = RecordKind(
    ("topicName",), "topicName({})", "topic control configure", "Topic control configure"
)
_PERMISSION = RecordKind(
    ("groupName", "topicName"),
    "groupName-topicName({1}:{0})",
    "consume control",
    "Consume control configure",
)


class ControlAdmin:
    """Answers control methods against one master's state."""

    def __init__(self, master: Master) -> None:
        self._cluster = master.cluster
        self._controls = master.cluster.controls
        self._clock = master.clock
        self.reads: dict[str, Method] = {
            "admin_query_topic_control_info": self._topic_controls,
            "admin_query_topic_authorize_control": self._topic_authorisations,
            "admin_query_group_csmctrl_info": self._permissions,
            "admin_query_booked_csmctrl_groups": self._groups_with_permissions,
            "admin_query_black_consumer_group_info": self._black_groups,
        }
        self.writes: dict[str, Method] = {
            **changes(
                {
                    "admin_add_topic_control_info": ("createUser topicName", self._add_topic),
                    "admin_update_topic_control_info": ("modifyUser topicName", self._update_topic),
                    "admin_delete_topic_control_info": ("modifyUser topicName", self._delete_topic),
                    "admin_set_topic_authorize_control": ("createUser topicName", self._authorise),
                    "admin_delete_topic_authorize_control": (
                        "modifyUser topicName",
                        self._unauthorise,
                    ),
                    "admin_update_group_csmctrl_info": (
                        "modifyUser groupName topicName",
                        self._update_permission,
                    ),
                    "admin_delete_group_csmctrl_info": (
                        "modifyUser groupName topicName?",
                        self._delete_permission,
                    ),
                }
            ),
            "admin_add_group_csmctrl_info": change(
                "createUser groupName topicName",
                self._add_permission,
                check=lambda params: self._refuse_unknown(params.topics()),
            ),
            "admin_add_black_consumergroup_info": self._add_black,
            "admin_delete_black_consumergroup_info": self._delete_black,
            "admin_bath_add_black_consumergroup_info": self._add_black_batch,
            "admin_batch_delete_black_consumergroup_info": self._delete_black_batch,
        }

    # ------------------------------------------------------------------ topics

    def _selected_topics(self, params: Params) -> list[TopicRecord]:
        named = params.topics()
        return [
            record
            for name, record in sorted(self._cluster.topics.items())
            if not named or name in named
        ]

    def _topic_controls(self, params: Params) -> Reply:
        return rows(
            [
                {
                    "topicName": record.name,
                    "topicNameId": record.topic_name_id,
                    "enableAuthControl": record.auth_control,
                    "maxMsgSizeInMB": self._cluster.message_mb(record.name),
                    **audit_fields(record.audit),
                }
                for record in self._selected_topics(params)
            ]
        )

    def _topic_authorisations(self, params: Params) -> Reply:
        return rows(
            [
                {
                    "topicName": record.name,
                    "isEnable": record.auth_control,
                    **_dates(record.audit),
                    **self._groups_of(record.name),
                }
                for record in self._selected_topics(params)
            ]
        )

    def _groups_of(self, topic: str) -> dict[str, Any]:
        controls = [
            control
            for _, control in sorted(self._controls.consume.items())
            if control.topic == topic
        ]
        allowed = [
            {"topicName": topic, "groupName": control.group, **_dates(control.audit)}
            for control in controls
            if control.enabled
        ]
        filtered = [
            {
                "topicName": topic,
                "groupName": control.group,
                "condStatus": _FILTERING if control.filtering else _NOT_FILTERING,
                "filterConds": _stored_form(control.conditions),
                **_dates(control.audit),
            }
            for control in controls
        ]
        return {
            "authConsumeGroup": allowed,
            "groupCount": len(allowed),
            "authFilterCondSet": filtered,
            "filterCount": len(filtered),
        }

    def _add_topic(self, params: Params, user: str, topic: str) -> Reply:
        if topic in self._cluster.topics:
            return _TOPIC.exists(topic)
        self._change_topic(params, self._new_topic(topic, user), user)
        return _TOPIC.ok(topic)

    def _update_topic(self, params: Params, user: str, topic: str) -> Reply:
        record = self._cluster.topics.get(topic)
        if record is None:
            return _TOPIC.missing(topic)
        changed = self._change_topic(params, record, user)
        return _TOPIC.ok(topic) if changed else _TOPIC.unchanged(topic)

    def _delete_topic(self, _params: Params, _user: str, topic: str) -> Reply:
        if self._cluster.is_deployed(topic):
            text = f"TopicName {topic} is in use, please delete deploy configure first!"
            return _TOPIC.refused(406, text, topic)
        if self._cluster.topics.pop(topic, None) is not None:
            self._cluster.changed()
        return _TOPIC.ok(topic)

    def _authorise(self, params: Params, user: str, topic: str) -> Reply:
        """Set a topic's authorisation. Real masters create a record for an unknown topic."""
        record = self._cluster.topics.get(topic)
        if record is None:
            self._new_topic(topic, user).auth_control = params.flag("isEnable")
            return _TOPIC.ok(topic)
        enabled = params.flag("isEnable", default=record.auth_control)
        return self._set_auth(record, user, enabled=enabled)

    def _unauthorise(self, _params: Params, user: str, topic: str) -> Reply | None:
        record = self._cluster.topics.get(topic)
        return None if record is None else self._set_auth(record, user, enabled=False)

    def _set_auth(self, record: TopicRecord, user: str, *, enabled: bool) -> Reply:
        if record.auth_control == enabled:
            return _TOPIC.unchanged(record.name)
        record.auth_control = enabled
        record.audit.touch(user, self._clock())
        self._cluster.changed()
        return _TOPIC.ok(record.name)

    def _new_topic(self, topic: str, user: str) -> TopicRecord:
        record = TopicRecord(topic, Audit.new(user, self._clock()))
        self._cluster.topics[topic] = record
        self._cluster.changed()
        return record

    def _change_topic(self, params: Params, record: TopicRecord, user: str) -> bool:
        """Apply the parameters of the request; return True if anything differs."""
        size = params.number("maxMsgSizeInMB", least=1)
        if size is not None and size > _MOST_MB:
            raise BadParameter(f"Parameter maxMsgSizeInMB value must <= {_MOST_MB}")
        name_id = params.number("topicNameId", record.topic_name_id)
        before = (record.max_message_mb, record.topic_name_id, record.auth_control)
        if size is not None:
            record.max_message_mb = size
        record.topic_name_id = UNDEFINED if name_id is None else name_id
        record.auth_control = params.flag("enableAuthControl", default=record.auth_control)
        if before == (record.max_message_mb, record.topic_name_id, record.auth_control):
            return False
        record.audit.touch(user, self._clock())
        self._cluster.changed()
        return True

    # ------------------------------------------------------------------ permissions of groups

    def _selected(self, params: Params) -> list[ConsumeControl]:
        groups, topics = params.groups(), params.topics()
        items = set(_filter_items(params))
        return [
            control
            for _, control in sorted(self._controls.consume.items())
            if (not groups or control.group in groups)
            and (not topics or control.topic in topics)
            and items.issubset(control.conditions)
            and params.flag("consumeEnable", default=control.enabled) == control.enabled
            and params.flag("filterEnable", default=control.filtering) == control.filtering
        ]

    def _permissions(self, params: Params) -> Reply:
        return rows(
            [
                {
                    "topicName": control.topic,
                    "groupName": control.group,
                    "consumeEnable": control.enabled,
                    "disableCsmRsn": control.reason,
                    "filterEnable": control.filtering,
                    "filterConds": _stored_form(control.conditions),
                    **audit_fields(control.audit),
                }
                for control in self._selected(params)
            ]
        )

    def _groups_with_permissions(self, _params: Params) -> Reply:
        return rows(sorted({group for group, _ in self._controls.consume}))

    def _refuse_unknown(self, topics: list[str]) -> None:
        unknown = [topic for topic in topics if topic not in self._cluster.topics]
        if unknown:
            raise BadParameter(
                f"topicName value {unknown[0]} is not configure, please configure first!"
            )

    def _add_permission(self, params: Params, user: str, group: str, topic: str) -> Reply:
        if (group, topic) in self._controls.consume:
            return _PERMISSION.exists(group, topic)
        control = ConsumeControl(group, topic, Audit.new(user, self._clock()))
        self._store(_changed(params, control))
        return _PERMISSION.ok(group, topic)

    def _store(self, control: ConsumeControl) -> None:
        """Store `control`; its group gets a resource record if it has none, as on a real master."""
        self._controls.consume[control.group, control.topic] = control
        if control.group not in self._controls.groups:
            audit = Audit.by_system(self._clock())
            self._controls.groups[control.group] = GroupControl(control.group, audit)
        self._cluster.changed()

    def _update_permission(self, params: Params, user: str, group: str, topic: str) -> Reply:
        control = self._controls.consume.get((group, topic))
        if control is None:
            return _PERMISSION.missing(group, topic)
        changed = _changed(params, control)
        if changed == control:
            return _PERMISSION.unchanged(group, topic)
        changed.audit.touch(user, self._clock())
        self._store(changed)
        return _PERMISSION.ok(group, topic)

    def _delete_permission(self, _params: Params, _user: str, group: str, topic: str) -> Reply:
        """Delete one permission, or all of a group; nothing to delete is a success."""
        for key in list(self._controls.consume):
            if key[0] == group and topic in ("", key[1]):
                del self._controls.consume[key]
        self._cluster.changed()
        return _PERMISSION.ok(group, topic)

    # ------------------------------------------------------------------ black lists

    def _black_groups(self, params: Params) -> Reply:
        shown = []
        for control in self._selected(params):
            if not control.enabled:
                audit = audit_fields(control.audit)
                del audit["serialId"]
                keys = {"groupName": control.group, "topicName": control.topic}
                shown.append({**keys, "reason": control.reason, **audit})
        return rows(shown)

    def _add_black(self, params: Params) -> Reply:
        groups, topics = params.groups(required=True), params.topics(required=True)
        self._refuse_unknown(topics)
        user = params.user("createUser")
        for group in groups:
            for topic in topics:
                self._forbid(group, topic, user, _BLACK)
        return _by_group(groups)

    def _forbid(self, group: str, topic: str, user: str, reason: str) -> None:
        audit = Audit.new(user, self._clock())
        existing = self._controls.consume.get((group, topic))
        control = existing or ConsumeControl(group, topic, audit)
        self._store(replace(control, enabled=False, reason=reason))

    def _delete_black(self, params: Params) -> Reply:
        user = params.user("modifyUser")
        groups, topics = params.groups(required=True), params.topics()
        for group in groups:
            for topic in topics or [""]:
                self._delete_permission(params, user, group, topic)
        return _by_group(groups)

    def _add_black_batch(self, params: Params) -> Reply:
        pairs = _pairs(params)
        user = params.user("createUser")
        self._refuse_unknown([topic for _, topic in pairs])
        for group, topic in pairs:
            self._forbid(group, topic, user, _BLACK_BATCH)
        return _by_group([group for group, _ in pairs])

    def _delete_black_batch(self, params: Params) -> Reply:
        """Let groups consume again and, unlike the single form, keep their records."""
        pairs = _pairs(params)
        params.user("modifyUser")
        replies = []
        for group, topic in pairs:
            control = self._controls.consume.get((group, topic))
            if control is not None:
                self._store(replace(control, enabled=True, reason=""))
            text = "Ok" if control is None else "Ok!"
            replies.append(item_result({"groupName": group}, text=text))
        return rows(replies)


def _by_group(groups: list[str]) -> Reply:
    return rows([item_result({"groupName": group}) for group in groups])


def _pairs(params: Params) -> list[tuple[str, str]]:
    """Return group and topic of every item of a batch."""
    items = params.batch("groupNameJsonSet")
    return [(item.required("groupName"), item.required("topicName")) for item in items]


def _changed(params: Params, control: ConsumeControl) -> ConsumeControl:
    """Return `control` with the request's changes; consumption that is on has no reason text."""
    enabled = params.flag("consumeEnable", default=control.enabled)
    reason = params.name("disableCsmRsn")
    conditions = control.conditions
    if params.text("filterConds") is not None:
        conditions = tuple(sorted(_filter_items(params)))
    return replace(
        control,
        audit=replace(control.audit),
        enabled=enabled,
        reason="" if enabled else reason or control.reason,
        filtering=params.flag("filterEnable", default=control.filtering),
        conditions=conditions,
    )


def _filter_items(params: Params) -> list[str]:
    items = params.items("filterConds")
    for item in items:
        if not _FILTER_ITEM.fullmatch(item):
            raise BadParameter(
                "illegal value for filterConds, value must only contain English letters, numbers, "
                "hyphens, and underscores"
            )
    return items


def _stored_form(conditions: tuple[str, ...]) -> str:
    """Return filter items as they are stored: each between commas."""
    return f",{','.join(conditions)}," if conditions else ""


def _dates(audit: Audit) -> dict[str, Any]:
    """Return the part of `audit_fields` that older methods show."""
    fields = audit_fields(audit)
    return {name: fields[name] for name in ("createUser", "createDate", "modifyUser", "modifyDate")}
