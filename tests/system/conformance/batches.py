"""Table 5.4: HTTP changes of many records at once, given as JSON."""

from __future__ import annotations

import json
from typing import Any

from tests.system.conformance.rows import OWN, Question, Row, ask, quiet

_TOPIC = "conf_http"
_NAMES = {
    "authorize": "topicJsonSet",
    "black": "groupNameJsonSet",
    "csmctrl": "groupCsmJsonSet",
    "resctrl": "groupResCtrlJsonSet",
    "control": "topicCtrlJsonSet",
    "deploy": "topicJsonSet",
    "configure": "brokerJsonSet",
}


def _batch(method: str, *items: dict[str, Any], **words: Any) -> Question:
    name = next(name for part, name in _NAMES.items() if part in method)
    user = {"createUser": "uu"} if "_add_" in method else {"modifyUser": "uu"}
    words = {name: json.dumps(items), **user, **words}
    return ask("change", method=f"admin_{method}", **words)


def _change(method: str, **words: Any) -> Question:
    return ask("change", method=f"admin_{method}", modifyUser="uu", **words)


def _see(method: str, **words: Any) -> Question:
    return ask("master", method=f"admin_query_{method}", **words)


def _permission(group: str, **fields: Any) -> dict[str, Any]:
    return {"groupName": group, "topicName": _TOPIC, **fields}


ROWS = (
    Row(
        "5.4 permissions of several groups at once",
        _TOPIC,
        (
            _batch(
                "batch_add_group_csmctrl_info",
                _permission("conf_b1"),
                _permission("conf_b2", consumeEnable="false", createUser="vv"),
            ),
            _see("group_csmctrl_info", groupName="conf_b1,conf_b2"),
            _batch("batch_add_group_csmctrl_info", _permission("conf_b1"), _permission("conf_b3")),
            _batch(
                "batch_update_group_csmctrl_info",
                _permission("conf_b1", filterEnable="true", filterConds=",a,b,"),
                _permission("conf_b9", filterEnable="true"),
            ),
            _see("group_csmctrl_info", groupName="conf_b1,conf_b2,conf_b3"),
            _batch("batch_update_group_csmctrl_info", {"topicName": _TOPIC}),
            _batch("batch_update_group_csmctrl_info", {"groupName": "conf_b1"}),
            _batch("batch_update_group_csmctrl_info"),
            _change("batch_update_group_csmctrl_info"),
            _change("batch_update_group_csmctrl_info", groupCsmJsonSet="[{"),
            _change("batch_update_group_csmctrl_info", groupCsmJsonSet='{"groupName": "conf_b1"}'),
            _batch(
                "batch_delete_group_csmctrl_info", _permission("conf_b1"), _permission("conf_b9")
            ),
            _batch(
                "batch_delete_group_csmctrl_info", _permission("conf_b2"), _permission("conf_b3")
            ),
            _see("group_csmctrl_info", groupName="conf_b1,conf_b2,conf_b3"),
            _change("delete_group_resctrl_info", groupName="conf_b1,conf_b2,conf_b3,conf_b9"),
        ),
    ),
    Row(
        "5.4 limits of several groups at once",
        _TOPIC,
        (
            _batch(
                "batch_add_group_resctrl_info",
                {"groupName": "conf_b4", "resCheckEnable": "true", "alwdBrokerClientRate": 3},
                {"groupName": "conf_b5", "qryPriorityId": 303},
            ),
            _batch("batch_add_group_resctrl_info", {"groupName": "conf_b4"}),
            _see("group_resctrl_info", groupName="conf_b4,conf_b5"),
            _batch(
                "batch_update_group_resctrl_info",
                {"groupName": "conf_b4", "alwdBrokerClientRate": 4},
                {"groupName": "conf_b8", "alwdBrokerClientRate": 4},
            ),
            _batch("batch_update_group_resctrl_info", {"groupName": "conf_b4", "qryPriorityId": 7}),
            _see("group_resctrl_info", groupName="conf_b4,conf_b5"),
            _change("delete_group_resctrl_info", groupName="conf_b4,conf_b5"),
        ),
    ),
    Row(
        "5.4 settings of several topics at once",
        _TOPIC,
        (
            _batch(
                "batch_add_topic_control_info",
                {"topicName": "conf_none1", "maxMsgSizeInMB": 2},
                {"topicName": "conf_none2", "enableAuthControl": "true"},
            ),
            _batch("batch_add_topic_control_info", {"topicName": "conf_none1"}),
            _see("topic_control_info", topicName="conf_none1,conf_none2"),
            _batch(
                "batch_update_topic_control_info",
                {"topicName": "conf_none1", "maxMsgSizeInMB": 3},
                {"topicName": "conf_none3", "maxMsgSizeInMB": 3},
            ),
            _batch(
                "batch_update_topic_control_info", {"topicName": "conf_none2", "maxMsgSizeInMB": 21}
            ),
            _see("topic_control_info", topicName="conf_none1,conf_none2"),
            _batch(
                "bath_add_topic_authorize_control",
                {"topicName": "conf_none1", "isEnable": "true"},
                {"topicName": "conf_none7"},
            ),
            _see("topic_control_info", topicName="conf_none1,conf_none2,conf_none7"),
            _change("delete_topic_control_info", topicName="conf_none1,conf_none2,conf_none7"),
        ),
    ),
    Row(
        "5.4 black lists of several groups at once",
        _TOPIC,
        (
            _batch(
                "bath_add_black_consumergroup_info", _permission("conf_b6"), _permission("conf_b7")
            ),
            _see("black_consumer_group_info", groupName="conf_b6,conf_b7"),
            _batch(
                "batch_delete_black_consumergroup_info",
                _permission("conf_b6"),
                _permission("conf_b7"),
                _permission("conf_b8"),
            ),
            _see("black_consumer_group_info", groupName="conf_b6,conf_b7"),
            _change("delete_group_resctrl_info", groupName="conf_b6,conf_b7,conf_b8"),
        ),
    ),
    Row(
        "5.4 several brokers and topics at once",
        _TOPIC,
        (
            _batch(
                "batch_add_broker_configure",
                {"brokerIp": "127.0.0.78", "brokerId": 78},
                {"brokerIp": "127.0.0.79", "brokerId": 79, "numPartitions": 2},
            ),
            _batch("batch_add_broker_configure", {"brokerIp": "127.0.0.78", "brokerId": 78}),
            _batch(
                "batch_update_broker_configure",
                {"brokerId": 78, "unflushInterval": 9000},
                {"brokerId": 80, "unflushInterval": 9000},
            ),
            _batch(
                "bath_add_topic_deploy_info",
                {"topicName": "conf_none4", "brokerId": 79},
                {"topicName": "conf_none5", "brokerId": 79, "numPartitions": 3},
            ),
            _batch("bath_add_topic_deploy_info", {"topicName": "conf_none4", "brokerId": 79}),
            _batch("bath_add_topic_deploy_info", {"topicName": "conf_none4", "brokerId": 80}),
            _see("topic_deploy_configure", topicName="conf_none4,conf_none5"),
            _batch(
                "batch_update_topic_deploy_info",
                {"topicName": "conf_none4", "brokerId": 79, "acceptPublish": "false"},
                {"topicName": "conf_none6", "brokerId": 79, "acceptPublish": "false"},
            ),
            _see("topic_deploy_configure", topicName="conf_none4"),
            *(
                quiet(
                    "change",
                    method="admin_update_topic_deploy_info",
                    topicName=topic,
                    brokerId=broker,
                    acceptPublish="false",
                    acceptSubscribe="false",
                    modifyUser="uu",
                )
                for broker, topic in (
                    (78, "__offset_history__"),
                    (79, "__offset_history__"),
                    (79, "conf_none4,conf_none5"),
                )
            ),
            _change("delete_broker_configure", brokerId="78,79", isReservedData="true"),
            quiet(
                "change",
                method="admin_delete_topic_control_info",
                topicName="conf_none4,conf_none5",
                modifyUser="uu",
            ),
        ),
        tags=frozenset({OWN}),
    ),
)
