"""Table 4.10: permissions for topics, allowed filters, and limits that groups learn."""

from __future__ import annotations

from typing import Any

from tests.system.conformance.rows import OWN, Question, Row, ask, quiet, until

TOPIC = "conf_auth"
RULES = (
    '[{"type":0,"rule":[{"start":"00:00","end":"24:00","dltInM":1024,"limitInM":20,'
    '"freqInMs":1000}]},{"type":3,"rule":[{"normFreqInMs":1000,"filterFreqInMs":400,'
    '"minDataFilterFreqInMs":400}]}]'
)
OTHER_RULES = '[{"type":1,"rule":[{"zeroCnt":3,"freqInMs":300}]}]'
BAD_RULES = (
    "x",
    "{}",
    '[{"type":9}]',
    '[{"type":0}]',
    '[{"type":0,"rule":[{"start":"00:00","end":"24:00","dltInM":5,"limitInM":20,"freqInMs":1000}]}]',
    '[{"type":0,"rule":[{"start":"10:00","end":"9:00","dltInM":50,"limitInM":20,"freqInMs":1000}]}]',
    '[{"type":0,"rule":[{"start":"10:00","end":"09:00","dltInM":50,"limitInM":20,"freqInMs":1000}]}]',
    '[{"type":0,"rule":[{"start":"00:00","end":"24:00","dltInM":50,"limitInM":20,"freqInMs":100}]}]',
    '[{"type":0,"rule":[{"start":"00:00","end":"24:00","dltInM":50,"limitInM":-1,"freqInMs":200}]}]',
    '[{"type":0,"rule":[{"start":"00:00","end":"24:00","limitInM":5,"freqInMs":200}]}]',
    '[{"type":1,"rule":[{"zeroCnt":0,"freqInMs":5}]}]',
    '[{"type":1,"rule":[{"zeroCnt":1,"freqInMs":-1}]}]',
    '[{"type":3,"rule":[{"normFreqInMs":-1}]}]',
    '[{"type":3,"rule":[{"normFreqInMs":1,"filterFreqInMs":5,"minDataFilterFreqInMs":4}]}]',
)


def _add(**words: Any) -> Question:
    return ask(
        "change",
        method="admin_add_group_csmctrl_info",
        groupName="$group",
        topicName="$topic",
        createUser="uu",
        **words,
    )


def _update(**words: Any) -> Question:
    return ask(
        "change",
        method="admin_update_group_csmctrl_info",
        groupName="$group",
        topicName="$topic",
        modifyUser="uu",
        **words,
    )


def _authorise(*, on: bool) -> Question:
    return quiet(
        "change",
        method="admin_set_topic_authorize_control",
        topicName="$topic",
        isEnable=str(on).lower(),
        createUser="uu",
    )


def _forget() -> Question:
    return quiet(
        "change", method="admin_delete_group_csmctrl_info", groupName="$group", modifyUser="uu"
    )


def _matrix(name: str, group: str, *questions: Question) -> Row:
    both = (
        ask("m1.register"),
        ask("m1.close"),
        ask("m1.register", topicCondition=["$topic#cc"]),
        ask("m1.close"),
        ask("m1.register", topicCondition=["$topic#aa,cc,dd"]),
        ask("m1.register", topicCondition=["$topic#aa"]),
        ask("m1.close"),
        ask("n1.join"),
        ask("n1.close"),
    )
    return Row(f"4.10 {name}", TOPIC, (*questions, *both, _forget()), group=group)


def _limit(verb: str, **words: Any) -> Question:
    user = {"createUser": "uu"} if "add" in verb else {"modifyUser": "uu"}
    return ask(
        "change", method=f"admin_{verb}_group_resctrl_info", groupName="$group", **user | words
    )


def _setting(verb: str, **words: Any) -> Question:
    user = {"createUser": "uu"} if verb == "set" else {"modifyUser": "uu"}
    return ask("change", method=f"admin_{verb}_cluster_default_setting", **user | words)


def _rules(verb: str, **words: Any) -> Question:
    user = {"createUser": "uu"} if verb == "set" else {"modifyUser": "uu"}
    return ask("change", method=f"admin_{verb}_def_flow_control_rule", **user | words)


ROWS = (
    _matrix("auth off, no record", "conf_off", _authorise(on=False)),
    _matrix("auth on, no record", "conf_none", _authorise(on=True)),
    _matrix(
        "auth on, consumption off",
        "conf_shut",
        _authorise(on=True),
        _add(consumeEnable="false", disableCsmRsn="why"),
        ask("master", method="admin_query_group_csmctrl_info", groupName="$group"),
    ),
    _matrix("auth on, consumption on", "conf_open", _authorise(on=True), _add()),
    _matrix(
        "auth on, filtered",
        "conf_filtered",
        _authorise(on=True),
        _add(filterEnable="true", filterConds="bb,aa"),
        ask("master", method="admin_query_group_csmctrl_info", groupName="$group"),
        ask("master", method="admin_query_group_csmctrl_info", filterConds="aa"),
    ),
    Row(
        "4.10 auth off, consumption off",
        "conf_three",
        (
            _authorise(on=False),
            _add(consumeEnable="false"),
            ask("m1.register"),
            ask("m1.beat"),
            ask("hand.wait", seconds=7),
            ask("m1.beat"),
            ask("n1.join"),
            _update(consumeEnable="true"),
            until({"event": "*"}, "m1.beat"),
            ask("m1.finish"),
            ask("m1.close"),
            _forget(),
        ),
        group="conf_black",
    ),
    Row(
        "4.10 permissions are kept",
        "conf_three",
        (
            _add(disableCsmRsn="no reason"),
            _add(filterConds="x,y"),
            _add(),
            _update(),
            _update(filterConds="x y"),
            _update(consumeEnable="false", disableCsmRsn="why"),
            ask("master", method="admin_query_group_csmctrl_info", groupName="$group"),
            _update(consumeEnable="true"),
            ask("master", method="admin_query_group_csmctrl_info", groupName="$group"),
            ask("master", method="admin_query_group_resctrl_info", groupName="$group"),
            ask("master", method="admin_query_topic_authorize_control", topicName="$topic"),
            _forget(),
            _update(consumeEnable="false"),
            ask(
                "change",
                method="admin_add_group_csmctrl_info",
                groupName="$group",
                topicName="nope",
                createUser="uu",
            ),
            ask(
                "change",
                method="admin_delete_group_csmctrl_info",
                groupName="$group",
                topicName="$topic",
                modifyUser="uu",
            ),
        ),
        group="conf_kept",
    ),
    Row(
        "4.10 topics under control",
        "conf_auth",
        (
            _authorise(on=False),
            ask("master", method="admin_query_topic_control_info", topicName="$topic"),
            ask(
                "change",
                method="admin_set_topic_authorize_control",
                topicName="$topic",
                isEnable="false",
                createUser="uu",
            ),
            ask(
                "change",
                method="admin_update_topic_control_info",
                topicName="$topic",
                modifyUser="uu",
            ),
            ask(
                "change",
                method="admin_update_topic_control_info",
                topicName="$topic",
                maxMsgSizeInMB=99,
                modifyUser="uu",
            ),
            ask(
                "change",
                method="admin_add_topic_control_info",
                topicName="$topic",
                createUser="uu",
            ),
            ask(
                "change",
                method="admin_delete_topic_control_info",
                topicName="$topic",
                modifyUser="uu",
            ),
            ask(
                "change",
                method="admin_set_topic_authorize_control",
                topicName="conf_unborn",
                isEnable="true",
                createUser="uu",
            ),
            ask("master", method="admin_query_topic_control_info", topicName="conf_unborn"),
            ask("master", method="admin_query_topic_authorize_control", topicName="conf_unborn"),
            ask(
                "change",
                method="admin_delete_topic_control_info",
                topicName="conf_unborn",
                modifyUser="uu",
            ),
        ),
    ),
    Row(
        "4.10 a group's limits",
        "conf_three",
        (
            quiet(
                "change",
                method="admin_delete_group_resctrl_info",
                groupName="$group",
                modifyUser="uu",
            ),
            ask("master", method="admin_query_group_resctrl_info", groupName="$group"),
            _limit("add", resCheckEnable="true", alwdBrokerClientRate=5),
            _limit("add"),
            ask("master", method="admin_query_group_resctrl_info", groupName="$group"),
            ask("m1.register", defFlowCheckId=-2, groupFlowCheckId=-2),
            _limit("update", flowCtrlEnable="true", flowCtrlInfo=RULES, qryPriorityId=303),
            _limit("update", flowCtrlEnable="true", flowCtrlInfo=RULES, qryPriorityId=303),
            ask("master", method="admin_query_group_resctrl_info", groupName="$group"),
            ask("master", method="admin_query_group_flow_control_rule", groupName="$group"),
            *(_limit("update", flowCtrlInfo=rules) for rules in BAD_RULES),
            *(_limit("update", qryPriorityId=value) for value in (99, 404, -1, "x")),
            ask("m1.register", groupFlowCheckId=-2),
            ask("m1.beat", defFlowCheckId=-2, groupFlowCheckId=-2),
            ask("m1.beat_known"),
            ask("m1.close"),
            ask("n1.join"),
            ask("n1.close"),
            _limit("update", flowCtrlEnable="false"),
            ask("m1.register", groupFlowCheckId=-2),
            ask("m1.close"),
            _limit("delete"),
            _limit("delete"),
            ask("master", method="admin_query_group_resctrl_info", groupName="$group"),
            _limit("update"),
        ),
        group="conf_limits",
    ),
    Row(
        "4.10 a group is sent to the ends",
        "conf_three",
        (
            ask(
                "change",
                method="admin_set_client_balance_group_consume_from_max",
                groupName="$group",
                modifyUser="uu",
            ),
            ask("n1.join"),
            ask(
                "change",
                method="admin_set_client_balance_group_consume_from_max",
                groupName="$group",
                modifyUser="uu",
            ),
            ask("n1.beat"),
            ask("n1.close"),
        ),
        group="conf_ends",
    ),
)

CLUSTER_ROWS = (
    Row(
        "3.4 the cluster's own rules",
        "conf_three",
        (
            ask("master", method="admin_query_cluster_default_setting"),
            ask("master", method="admin_query_def_flow_control_rule"),
            _setting("set", qryPriorityId=302),
            _setting("set"),
            _setting("update", flowCtrlEnable="true", flowCtrlInfo=OTHER_RULES),
            _setting("update", maxMsgSizeInMB=3),
            ask("master", method="admin_query_cluster_default_setting"),
            ask("master", method="admin_query_def_flow_control_rule"),
            ask("m1.register", defFlowCheckId=-2),
            ask("m1.beat", defFlowCheckId=-2),
            ask("m1.beat_known"),
            ask("m1.close"),
            ask("n1.join"),
            ask("n1.close"),
            _rules("set", statusId=1, flowCtrlInfo=RULES),
            _rules("upd", statusId=0),
            ask("master", method="admin_query_def_flow_control_rule"),
            _rules("rmv"),
            _setting("update", maxMsgSizeInMB=1, flowCtrlEnable="false"),
        ),
        group="conf_cluster",
        tags=frozenset({OWN}),
    ),
)
