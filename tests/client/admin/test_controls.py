"""Permissions and rates of groups: records at the master, set before a group first joins."""

from __future__ import annotations

from typing import Any

import pytest

from tests.system.behaviour.sites import SHARED
from tubemq_client import errors
from tubemq_client.admin import ConsumeControl

RULES = [
    {
        "type": 0,
        "rule": [
            {"start": "08:00", "end": "17:30", "dltInM": 1024, "limitInM": 20, "freqInMs": 1000}
        ],
    }
]


def test_permission_to_read_a_topic(admin: Any, group: str) -> None:
    assert admin.consume_controls(group) == []
    allowed = ConsumeControl(group, SHARED, True, "", True, ("aa", "bb"))
    admin.set_consume_control(allowed)
    assert admin.consume_controls(group, SHARED) == [allowed]
    admin.set_consume_control(allowed)  # no change is no error
    admin.set_consume_control(ConsumeControl(group, SHARED, False, "too_greedy"))
    (denied,) = admin.consume_controls(group)
    assert (denied.enabled, denied.reason, denied.filter_required) == (False, "too_greedy", False)
    admin.delete_consume_control(group, SHARED)
    assert admin.consume_controls(group) == []
    with pytest.raises(errors.ConfigError, match="needs filters"):
        admin.set_consume_control(ConsumeControl(group, SHARED, True, "", True))


def test_settings_and_flow_rules_of_a_group(admin: Any, group: str) -> None:
    admin.set_resource_control(group, flow_control=True, flow_rules=RULES, clients_per_broker=3)
    (control,) = admin.resource_controls(group)
    assert (control.flow_control, control.clients_per_broker) == (True, 3)
    assert [dict(rule) for rule in control.flow_rules] == RULES
    admin.set_resource_control(group, check_resources=True)
    (control,) = admin.resource_controls(group)
    assert (control.check_resources, control.clients_per_broker) == (True, 3)
    with pytest.raises(errors.BadRequest, match="flowCtrlInfo"):
        admin.set_resource_control(group, flow_rules=[{"type": 0, "rule": [{"start": "x"}]}])
    admin.delete_resource_control(group)
    assert admin.resource_controls(group) == []


def test_topic_wide_settings(admin: Any, site: Any, new_topic: str) -> None:
    admin.create_topic(new_topic, broker_ids=[site.broker_id])
    admin.set_topic_control(new_topic, authorisation=True, max_message_mb=2)
    (control,) = admin.topic_controls([new_topic])
    assert (control.authorisation, control.max_message_mb) == (True, 2)
    admin.delete_topic(new_topic, remove_data=True)
    with pytest.raises(errors.ConfigError, match="from 1 to 20"):
        admin.set_topic_control(new_topic, max_message_mb=0)


def test_defaults_of_the_cluster(admin: Any) -> None:
    before = admin.cluster_settings()
    admin.set_cluster_settings(max_message_mb=before.max_message_mb if before else 1)
    cluster = admin.cluster_settings()
    assert cluster.max_message_mb == (before.max_message_mb if before else 1)
    assert cluster.flow_control is False
