"""HTTP administration of how fast groups may read: group resources, flow rules, cluster defaults.

Methods of the master, from parameters to body; `http_admin` finds and calls them. Group rules go to
the group's clients, the cluster's to every client and to the brokers. ``flow_control_rule`` are the
older names for the same records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tubemq_client.embedded.controls import NO_RULES, ClusterSetting, FlowSetting, GroupControl
from tubemq_client.embedded.http_flow_rules import changed_flow, changed_priority, flow_fields
from tubemq_client.embedded.http_params import BadParameter, Params, changed_props
from tubemq_client.embedded.http_reply import (
    audit_fields,
    item_result,
    props_fields,
    rows,
)
from tubemq_client.embedded.master import Master
from tubemq_client.embedded.records import Audit

__all__ = ["LimitAdmin"]

Reply = dict[str, Any]


class LimitAdmin:
    """Answers methods about limits against one master's state."""

    def __init__(self, master: Master) -> None:
        self._cluster = master.cluster
        self._controls = master.cluster.controls
        self._clock = master.clock
        self._default_mb = master.switches.max_message_mb
        self.reads: dict[str, Callable[[Params], Reply]] = {
            "admin_query_group_resctrl_info": self._group_controls,
            "admin_query_booked_resctrl_groups": self._controlled_groups,
            "admin_query_group_flow_control_rule": self._group_rules,
            "admin_query_cluster_default_setting": self._setting,
            "admin_query_def_flow_control_rule": self._default_rules,
        }
        self.writes: dict[str, Callable[[Params], Reply]] = {
            "admin_add_group_resctrl_info": self._add_group,
            "admin_update_group_resctrl_info": self._update_group,
            "admin_delete_group_resctrl_info": self._delete_group,
            "admin_set_group_flow_control_rule": self._set_group_rules,
            "admin_upd_group_flow_control_rule": self._update_group_rules,
            "admin_rmv_group_flow_control_rule": self._remove_group_rules,
            "admin_set_cluster_default_setting": self._set_setting,
            "admin_update_cluster_default_setting": self._update_setting,
            "admin_set_def_flow_control_rule": self._set_default_rules,
            "admin_upd_def_flow_control_rule": self._update_default_rules,
            "admin_rmv_def_flow_control_rule": self._remove_default_rules,
        }

    # ------------------------------------------------------------------ groups

    def _wanted(self, params: Params) -> list[GroupControl]:
        groups = params.groups()
        return [
            control
            for name, control in sorted(self._controls.groups.items())
            if (not groups or name in groups)
            and params.flag("resCheckEnable", default=control.check_rate) == control.check_rate
            and params.flag("flowCtrlEnable", default=control.flow.enabled) == control.flow.enabled
            and changed_priority(params, control.query_priority) == control.query_priority
        ]

    def _group_controls(self, params: Params) -> Reply:
        return rows(
            [
                {
                    "groupName": control.group,
                    "resCheckEnable": control.check_rate,
                    "alwdBrokerClientRate": control.client_rate,
                    "qryPriorityId": control.query_priority,
                    "flowCtrlEnable": control.flow.enabled,
                    **flow_fields(control.flow),
                    **audit_fields(control.audit),
                }
                for control in self._wanted(params)
            ]
        )

    def _controlled_groups(self, _params: Params) -> Reply:
        return rows(sorted(self._controls.groups))

    def _group_rules(self, params: Params) -> Reply:
        return rows(
            [
                {
                    "groupName": control.group,
                    "statusId": int(control.flow.enabled),
                    "qryPriorityId": control.query_priority,
                    **flow_fields(control.flow, count_name="ruleCnt"),
                    **audit_fields(control.audit),
                }
                for control in self._wanted(params)
            ]
        )

    def _add_group(self, params: Params) -> Reply:
        user, groups = params.user("createUser"), params.groups(required=True)
        replies = []
        for group in groups:
            if group in self._controls.groups:
                text = f"Existed record found for groupName({group})!"
                replies.append(item_result({"groupName": group}, 402, text))
            else:
                replies.append(self._keep(_changed(params, self._new(group, user))))
        return rows(replies)

    def _new(self, group: str, user: str) -> GroupControl:
        setting = self._controls.setting
        control = GroupControl(group, Audit.new(user, self._clock()))
        if setting is not None:
            control.query_priority = setting.query_priority
        return control

    def _keep(self, control: GroupControl) -> Reply:
        self._controls.groups[control.group] = control
        self._cluster.changed()
        return item_result({"groupName": control.group})

    def _update_group(self, params: Params) -> Reply:
        user, groups = params.user("modifyUser"), params.groups(required=True)
        return rows(
            [self._update(group, user, lambda found: _changed(params, found)) for group in groups]
        )

    def _update(
        self, group: str, user: str, change: Callable[[GroupControl], GroupControl]
    ) -> Reply:
        keys = {"groupName": group}
        found = self._controls.groups.get(group)
        if found is None:
            text = f"Not found group control configure for groupName({group})!"
            return item_result(keys, 401, text)
        changed = change(found)
        if changed == found:
            return item_result(keys, 403, "Group control configure not changed!")
        changed = replace(changed, audit=replace(found.audit))
        changed.audit.touch(user, self._clock())
        return self._keep(changed)

    def _delete_group(self, params: Params) -> Reply:
        params.user("modifyUser")
        return rows([self._delete_one(group) for group in params.groups(required=True)])

    def _delete_one(self, group: str) -> Reply:
        keys = {"groupName": group}
        if any(holder == group for holder, _ in self._controls.consume):
            text = f"Group {group} has consume control configures,"
            text = f"{text}, please delete consume control configures first!"
            return item_result(keys, 405, text)
        self._controls.groups.pop(group, None)
        self._cluster.changed()
        return item_result(keys)

    def _set_group_rules(self, params: Params) -> Reply:
        user, groups = params.user("createUser"), params.groups(required=True)
        return rows(
            [
                self._update(group, user, lambda found: _ruled(params, found))
                if group in self._controls.groups
                else self._keep(_ruled(params, self._new(group, user)))
                for group in groups
            ]
        )

    def _update_group_rules(self, params: Params) -> Reply:
        user, groups = params.user("modifyUser"), params.groups(required=True)
        return rows(
            [self._update(group, user, lambda found: _ruled(params, found)) for group in groups]
        )

    def _remove_group_rules(self, params: Params) -> Reply:
        user, groups = params.user("modifyUser"), params.groups(required=True)

        def without(found: GroupControl) -> GroupControl:
            return replace(found, flow=FlowSetting())

        return rows([self._update(group, user, without) for group in groups])

    # ------------------------------------------------------------------ the cluster

    def _setting(self, _params: Params) -> Reply:
        setting = self._controls.setting
        return rows([_shown(setting)] if setting else [])

    def _default_rules(self, _params: Params) -> Reply:
        setting = self._controls.setting
        return rows([_shown_rules(setting)] if setting else [])

    def _set_setting(self, params: Params) -> Reply:
        return self._change_setting(params, params.user("createUser"), _set, _shown)

    def _update_setting(self, params: Params) -> Reply:
        return self._change_setting(params, params.user("modifyUser"), _set, _shown)

    def _set_default_rules(self, params: Params) -> Reply:
        return self._change_setting(params, params.user("createUser"), _set_rules, _shown_rules)

    def _update_default_rules(self, params: Params) -> Reply:
        return self._change_setting(params, params.user("modifyUser"), _set_rules, _shown_rules)

    def _remove_default_rules(self, params: Params) -> Reply:
        user = params.user("modifyUser")
        return self._change_setting(params, user, _without_rules, _shown_rules)

    def _change_setting(
        self,
        params: Params,
        user: str,
        change: Callable[[Params, ClusterSetting], ClusterSetting],
        show: Callable[[ClusterSetting], Reply],
    ) -> Reply:
        found = self._controls.setting
        current = found or ClusterSetting(
            Audit.new(user, self._clock()), max_message_mb=self._default_mb
        )
        changed = change(params, current)
        if found is not None and changed == found:
            raise BadParameter("Cluster configure not changed!")
        if found is not None:
            changed = replace(changed, audit=replace(found.audit))
            changed.audit.touch(user, self._clock())
        self._controls.setting = changed
        self._cluster.changed()
        return rows([show(changed)])


def _changed(params: Params, control: GroupControl) -> GroupControl:
    rate = params.number("alwdBrokerClientRate", control.client_rate)
    return replace(
        control,
        check_rate=params.flag("resCheckEnable", default=control.check_rate),
        client_rate=rate or 0,
        query_priority=changed_priority(params, control.query_priority),
        flow=changed_flow(params, control.flow),
    )


def _ruled(params: Params, control: GroupControl) -> GroupControl:
    return replace(
        control,
        query_priority=changed_priority(params, control.query_priority),
        flow=_older_flow(params, control.flow),
    )


def _older_flow(params: Params, flow: FlowSetting) -> FlowSetting:
    """Older methods say ``statusId`` for what is ``flowCtrlEnable`` in newer ones."""
    status = params.number("statusId")
    enabled = flow.enabled if status is None else status == 1
    return replace(changed_flow(params, flow), enabled=enabled)


def _set(params: Params, setting: ClusterSetting) -> ClusterSetting:
    def number(name: str, current: int) -> int:
        return params.number(name, current, least=1) or current

    return replace(
        setting,
        broker_port=number("brokerPort", setting.broker_port),
        broker_tls_port=number("brokerTLSPort", setting.broker_tls_port),
        broker_web_port=number("brokerWebPort", setting.broker_web_port),
        max_message_mb=number("maxMsgSizeInMB", setting.max_message_mb),
        query_priority=changed_priority(params, setting.query_priority),
        flow=changed_flow(params, setting.flow),
        props=changed_props(params, setting.props),
    )


def _set_rules(params: Params, setting: ClusterSetting) -> ClusterSetting:
    priority = changed_priority(params, setting.query_priority)
    return replace(setting, query_priority=priority, flow=_older_flow(params, setting.flow))


def _without_rules(_params: Params, setting: ClusterSetting) -> ClusterSetting:
    return replace(setting, flow=FlowSetting(text=NO_RULES))


def _shown(setting: ClusterSetting) -> Reply:
    return {
        "brokerPort": setting.broker_port,
        "brokerTLSPort": setting.broker_tls_port,
        "brokerWebPort": setting.broker_web_port,
        "maxMsgSizeInMB": setting.max_message_mb,
        "qryPriorityId": setting.query_priority,
        "flowCtrlEnable": setting.flow.enabled,
        **flow_fields(setting.flow),
        **props_fields(setting.props),
        **audit_fields(setting.audit),
    }


def _shown_rules(setting: ClusterSetting) -> Reply:
    return {
        "statusId": int(setting.flow.enabled),
        "maxMsgSizeInMB": setting.max_message_mb,
        "qryPriorityId": setting.query_priority,
        **flow_fields(setting.flow, count_name="ruleCnt"),
        **audit_fields(setting.audit),
    }
