"""HTTP administration of rate limits: group resources, flow rules, cluster defaults.

The tables of two kinds of records in `controls`: a group's resources, which go to its clients, and
the cluster's settings, which go to every client and to the brokers. ``flow_control_rule`` are the
older names for the same records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tubemq_client.embedded.controls import NO_RULES, ClusterSetting, FlowSetting, GroupControl
from tubemq_client.embedded.http_flow_rules import changed_flow, changed_priority, flow_fields
from tubemq_client.embedded.http_params import BadParameter, Params, changed_props
from tubemq_client.embedded.http_records import ChangeOne, Method, RecordKind, Reply, changes
from tubemq_client.embedded.http_reply import audit_fields, props_fields, rows
from tubemq_client.embedded.master import Master
from tubemq_client.embedded.records import Audit

__all__ = ["LimitAdmin"]

_GROUP = RecordKind(
    ("groupName",), "groupName({})", "group control configure", "Group control configure"
)

ChangeGroup = Callable[[Params, GroupControl], GroupControl]
ChangeSetting = Callable[[Params, ClusterSetting], ClusterSetting]


class LimitAdmin:
    """Answers methods about limits against one master's state."""

    def __init__(self, master: Master) -> None:
        self._cluster = master.cluster
        self._controls = master.cluster.controls
        self._clock = master.clock
        self._default_mb = master.switches.max_message_mb
        self.reads: dict[str, Method] = {
            "admin_query_group_resctrl_info": self._groups(_shown_group),
            "admin_query_booked_resctrl_groups": lambda _: rows(sorted(self._controls.groups)),
            "admin_query_group_flow_control_rule": self._groups(_shown_group_rules),
            "admin_query_cluster_default_setting": self._setting(_shown),
            "admin_query_def_flow_control_rule": self._setting(_shown_rules),
        }
        of_group: dict[str, tuple[str, ChangeOne]] = {
            "admin_add_group_resctrl_info": ("createUser groupName", self._add_group),
            "admin_update_group_resctrl_info": ("modifyUser groupName", self._update(_changed)),
            "admin_delete_group_resctrl_info": ("modifyUser groupName", self._delete_group),
            "admin_set_group_flow_control_rule": ("createUser groupName", self._set_group_rules),
            "admin_upd_group_flow_control_rule": ("modifyUser groupName", self._update(_ruled)),
            "admin_rmv_group_flow_control_rule": ("modifyUser groupName", self._update(_unruled)),
        }
        self.writes: dict[str, Method] = {
            **changes(of_group),
            "admin_set_cluster_default_setting": self._set("createUser", _set, _shown),
            "admin_update_cluster_default_setting": self._set("modifyUser", _set, _shown),
            "admin_set_def_flow_control_rule": self._set("createUser", _set_rules, _shown_rules),
            "admin_upd_def_flow_control_rule": self._set("modifyUser", _set_rules, _shown_rules),
            "admin_rmv_def_flow_control_rule": self._set(
                "modifyUser", _without_rules, _shown_rules
            ),
        }

    # ------------------------------------------------------------------ groups

    def _groups(self, show: Callable[[GroupControl], Reply]) -> Method:
        def answer(params: Params) -> Reply:
            return rows([show(control) for control in self._selected(params)])

        return answer

    def _selected(self, params: Params) -> list[GroupControl]:
        groups = params.groups()
        return [
            control
            for name, control in sorted(self._controls.groups.items())
            if (not groups or name in groups)
            and params.flag("resCheckEnable", default=control.check_rate) == control.check_rate
            and params.flag("flowCtrlEnable", default=control.flow.enabled) == control.flow.enabled
            and changed_priority(params, control.query_priority) == control.query_priority
        ]

    def _add_group(self, params: Params, user: str, group: str) -> Reply:
        if group in self._controls.groups:
            return _GROUP.exists(group)
        return self._store(_changed(params, self._new(group, user)))

    def _new(self, group: str, user: str) -> GroupControl:
        setting = self._controls.setting
        control = GroupControl(group, Audit.new(user, self._clock()))
        if setting is not None:
            control.query_priority = setting.query_priority
        return control

    def _store(self, control: GroupControl) -> Reply:
        self._controls.groups[control.group] = control
        self._cluster.changed()
        return _GROUP.ok(control.group)

    def _update(self, change: ChangeGroup) -> ChangeOne:
        def one(params: Params, user: str, group: str) -> Reply:
            current = self._controls.groups.get(group)
            if current is None:
                return _GROUP.missing(group)
            changed = change(params, current)
            if changed == current:
                return _GROUP.unchanged(group)
            changed = replace(changed, audit=replace(current.audit))
            changed.audit.touch(user, self._clock())
            return self._store(changed)

        return one

    def _set_group_rules(self, params: Params, user: str, group: str) -> Reply | None:
        if group in self._controls.groups:
            return self._update(_ruled)(params, user, group)
        return self._store(_ruled(params, self._new(group, user)))

    def _delete_group(self, _params: Params, _user: str, group: str) -> Reply:
        if any(holder == group for holder, _ in self._controls.consume):
            text = f"Group {group} has consume control configures,"
            text = f"{text}, please delete consume control configures first!"
            return _GROUP.refused(405, text, group)
        self._controls.groups.pop(group, None)
        self._cluster.changed()
        return _GROUP.ok(group)

    # ------------------------------------------------------------------ the cluster

    def _setting(self, show: Callable[[ClusterSetting], Reply]) -> Method:
        def answer(_params: Params) -> Reply:
            setting = self._controls.setting
            return rows([show(setting)] if setting else [])

        return answer

    def _set(
        self, user: str, change: ChangeSetting, show: Callable[[ClusterSetting], Reply]
    ) -> Method:
        def answer(params: Params) -> Reply:
            name = params.user(user)
            current = self._controls.setting
            fresh = ClusterSetting(Audit.new(name, self._clock()), max_message_mb=self._default_mb)
            changed = change(params, current or fresh)
            if current is not None:
                if changed == current:
                    raise BadParameter("Cluster configure not changed!")
                changed = replace(changed, audit=replace(current.audit))
                changed.audit.touch(name, self._clock())
            self._controls.setting = changed
            self._cluster.changed()
            return rows([show(changed)])

        return answer


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


def _unruled(_params: Params, control: GroupControl) -> GroupControl:
    return replace(control, flow=FlowSetting())


def _older_flow(params: Params, flow: FlowSetting) -> FlowSetting:
    """Return `flow` with the request's changes; older methods use ``statusId`` as the switch."""
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


def _shown_group(control: GroupControl) -> Reply:
    return {
        "groupName": control.group,
        "resCheckEnable": control.check_rate,
        "alwdBrokerClientRate": control.client_rate,
        "qryPriorityId": control.query_priority,
        "flowCtrlEnable": control.flow.enabled,
        **flow_fields(control.flow),
        **audit_fields(control.audit),
    }


def _shown_group_rules(control: GroupControl) -> Reply:
    return {
        "groupName": control.group,
        "statusId": int(control.flow.enabled),
        "qryPriorityId": control.query_priority,
        **flow_fields(control.flow, count_name="ruleCnt"),
        **audit_fields(control.audit),
    }


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
