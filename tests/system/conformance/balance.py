"""Table B: groups that the master balances: agreement of members, events, bound starts."""

from __future__ import annotations

from typing import Any

from tests.system.conformance.rows import LONG, Question, Row, ask, until

THREE = "conf_three"

_NEW = {"requireBound": True, "sessionKey": "key", "sessionTime": 1, "totalCount": 2}


def _bound(player: str, wanted: str, **changed: Any) -> Question:
    words = _NEW | {"requiredPartition": wanted, "notAllocated": True} | changed
    return ask(f"{player}.register", **words)


def _given(player: str) -> Question:
    return until({"event": "*"}, f"{player}.beat")


_DIFFERENT: tuple[dict[str, Any], ...] = (
    {"requireBound": False},
    {"topicList": ["conf_w1"], "requiredPartition": ""},
    {"topicCondition": ["$topic#a"]},
    {"sessionKey": "other"},
    {"selectBig": False},
    {"totalCount": 3},
    {"topicList": ["nope"]},
    {"sessionKey": " "},
    {"totalCount": 0},
    {"requiredPartition": "1:$topic:1=z"},
    {"requiredPartition": "1:$topic:1"},
    {"requiredPartition": "1:$topic=1"},
    {"requiredPartition": "1:conf_w1:0=0"},
    {"subscribeInfo": ["x"]},
    {"topicCondition": ["conf_w1#a"]},
    {"topicCondition": ["$topic#"]},
    {"topicList": []},
    {"topicList": [" "]},
    {"hostName": " "},
    {"groupName": " "},
    {"clientId": " "},
    {"requiredPartition": "1:$topic:x=-1"},
)

ROWS = (
    Row(
        "4.4 members of a bound group agree",
        THREE,
        (
            _bound("m1", "1:$topic:0=28"),
            *(_bound("m2", "1:$topic:0=28", **changed) for changed in _DIFFERENT),
            ask("m1.close"),
            ask("m2.close"),
        ),
        group="conf_bound",
    ),
    Row(
        "4.4 members of a plain group agree",
        THREE,
        (
            ask("m1.register", topicCondition=["$topic#b,a"]),
            ask("m2.register", topicCondition=["$topic#a"]),
            ask("m2.register"),
            ask("m2.register", topicList=["conf_w1"], topicCondition=["conf_w1#a,b"]),
            _bound("m2", ""),
            ask("n1.join"),
            ask("m1.close"),
            ask("n1.join"),
            ask("m1.register"),
            ask("n1.close"),
        ),
        group="conf_plain",
    ),
    Row(
        "4.5 heartbeats of strangers",
        THREE,
        (
            ask("m1.beat"),
            ask("m1.register"),
            ask("m2.beat"),
            ask("m1.beat", reportSubscribeInfo=True, subscribeInfo=["x"]),
            ask("m1.close"),
            ask("m1.close"),
            ask("m1.beat"),
        ),
        group="conf_strangers",
    ),
    Row(
        "4.5 one event, acknowledged",
        THREE,
        (
            ask("m1.register"),
            ask("m1.beat", defFlowCheckId=-2),
            _given("m1"),
            ask("m1.beat"),
            ask("master", method="admin_query_consume_group_detail", consumeGroup="$group"),
            ask("m1.finish"),
            ask("m1.register"),
            ask("master", method="admin_query_consume_group_detail", consumeGroup="$group"),
            ask("master", method="admin_query_sub_info", consumeGroup="$group"),
            ask("m1.close"),
        ),
        group="conf_one",
    ),
    Row(
        "4.6 a second member takes its share, and gives it back",
        THREE,
        (
            ask("m1.register"),
            _given("m1"),
            ask("m1.finish"),
            ask("m2.register"),
            ask("m2.beat"),
            _given("m1"),
            ask("m2.beat"),
            ask("m1.finish"),
            _given("m2"),
            ask("m2.finish"),
            ask("m2.close"),
            _given("m1"),
            ask("m1.finish"),
            ask("m1.close"),
        ),
        group="conf_two",
    ),
    Row(
        "4.6 a silent member is replaced",
        THREE,
        (
            ask("m1.register"),
            _given("m1"),
            ask("m1.finish"),
            ask("hand.wait", seconds=15),
            ask("m2.register"),
            ask("m2.beat"),
            ask("hand.wait", seconds=17),
            _given("m2"),
            ask("m2.finish"),
            ask("m1.beat"),
            ask("m2.close"),
        ),
        group="conf_silent",
        tags=frozenset({LONG}),
    ),
    Row(
        "4.8 listed partitions wait for everyone",
        THREE,
        (
            _bound("m1", "1:$topic:0=28,1:$topic:1=28"),
            ask("m1.beat"),
            ask("hand.wait", seconds=4),
            ask("m1.beat"),
            _bound("m2", "1:$topic:1=56"),
            ask("m2.beat"),
            _given("m1"),
            _given("m2"),
            ask("master", method="admin_query_consume_group_detail", consumeGroup="$group"),
            ask("m1.finish"),
            ask("m2.finish"),
            ask("m1.close"),
            ask("m2.close"),
        ),
        group="conf_listed",
    ),
    Row(
        "4.8 nothing listed, nobody waits",
        THREE,
        (
            _bound("m1", ""),
            _given("m1"),
            ask("m1.finish"),
            ask("m1.close"),
        ),
        group="conf_unlisted",
    ),
    Row(
        "4.6 an administrator sends a member away",
        THREE,
        (
            ask("m1.register"),
            _given("m1"),
            ask("m1.finish"),
            ask(
                "change",
                method="admin_rebalance_group_allocate",
                groupName="$group",
                consumerId="$group_m1",
                reJoinWait=1,
                modifyUser="uu",
            ),
            ask("master", method="admin_query_consume_group_detail", consumeGroup="$group"),
            _given("m1"),
            ask("m1.finish"),
            _given("m1"),
            ask("m1.finish"),
            ask("m1.close"),
            ask(
                "change",
                method="admin_rebalance_group_allocate",
                groupName="$group",
                consumerId="x",
                modifyUser="uu",
            ),
        ),
        group="conf_away",
    ),
)
