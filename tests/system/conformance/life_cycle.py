"""Table 4.11: topics and brokers are added, changed and removed, and clients see it."""

from __future__ import annotations

from typing import Any

from tests.system.conformance.rows import OWN, Question, Row, ask, quiet, until


def _topic(verb: str, **words: Any) -> Question:
    user = {"createUser": "uu"} if verb == "add" else {"modifyUser": "uu"}
    return ask(
        "change",
        method=f"admin_{verb}_topic_deploy_info",
        topicName="$topic",
        brokerId=1,
        **user | words,
    )


def _broker(method: str, **words: Any) -> Question:
    return ask("change", method=f"admin_{method}", brokerId=77, modifyUser="uu", **words)


def _system_topic_closed() -> Question:
    """Return the change that a master requires before it deletes a broker with its topics."""
    return quiet(
        "change",
        method="admin_update_topic_deploy_info",
        topicName="__offset_history__",
        brokerId=77,
        acceptPublish="false",
        acceptSubscribe="false",
        modifyUser="uu",
    )


def _status(broker_id: int = 77) -> Question:
    return ask("master", method="admin_query_broker_run_status", brokerId=broker_id)


def _deployed() -> Question:
    return ask("master", method="admin_query_topic_deploy_configure", topicName="$topic")


ROWS = (
    Row(
        "4.11 a topic that is in use",
        "conf_http",
        (
            _topic("delete"),
            _topic("redo_deleted"),
            _topic("remove"),
            _topic("add"),
            _topic("update", numPartitions=1),
        ),
    ),
    Row(
        "4.11 a topic ends",
        "conf_life",
        (
            ask("a.send_all", count=3),
            ask("n1.join"),
            ask("n1.meta"),
            ask("p1.register"),
            ask("p1.beat"),
            _topic("update", acceptPublish="false", acceptSubscribe="false"),
            until({"topicMetaInfoList": ["conf_life#1:1:1:0"]}, "n1.meta"),
            ask("a.send", body=b"x"),
            until({"topicInfos": None}, "p1.beat"),
            _topic("delete"),
            _topic("delete"),
            until({"errCode": 403}, "a.send", body=b"x"),
            quiet("a.register"),
            quiet("a.get"),
            _deployed(),
            _topic("redo_deleted"),
            _topic("redo_deleted"),
            ask("a.send", body=b"x"),
            _topic("delete"),
            _topic("remove"),
            until(
                {"data": []},
                "master",
                method="admin_query_topic_deploy_configure",
                topicName="$topic",
            ),
            until({"errCode": 403}, "a.get"),
            ask("a.send", body=b"x"),
            ask("n1.meta"),
            ask("n1.close"),
            ask("p1.close"),
            _topic("redo_deleted"),
            _topic("remove"),
        ),
        group="conf_life",
        tags=frozenset({OWN}),
    ),
    Row(
        "4.11 a topic grows",
        "conf_grow",
        (
            ask("n1.join"),
            ask("n1.meta"),
            ask("a.send", body=b"x", partition=1),
            _topic("update", numPartitions=2),
            until({"errCode": 200}, "a.send", body=b"x", partition=1),
            until({"topicMetaInfoList": ["conf_grow#1:1:2:1"]}, "n1.meta"),
            ask("n1.close"),
            _topic("update", numPartitions=1),
        ),
        group="conf_grow",
        tags=frozenset({OWN}),
    ),
    Row(
        "4.11 the broker stops being written to, and being read",
        "conf_http",
        (
            ask("p1.register"),
            ask("p1.beat"),
            ask("n1.join"),
            ask("n1.meta"),
            ask(
                "change",
                method="admin_set_broker_read_or_write",
                brokerId=1,
                acceptPublish="false",
                modifyUser="uu",
            ),
            until({"topicInfos": None}, "p1.beat"),
            quiet("n1.join"),
            until({"topicMetaInfoList": ["conf_http#1:1:1:1"]}, "n1.meta"),
            ask(
                "change",
                method="admin_set_broker_read_or_write",
                brokerId=1,
                acceptPublish="true",
                acceptSubscribe="false",
                modifyUser="uu",
            ),
            quiet("n1.join"),
            until({"topicMetaInfoList": ["conf_http#1:1:1:0"]}, "n1.meta"),
            ask("n1.close"),
            ask(
                "change",
                method="admin_set_broker_read_or_write",
                brokerId=1,
                acceptPublish="true",
                acceptSubscribe="true",
                modifyUser="uu",
            ),
        ),
        group="conf_stops",
        tags=frozenset({OWN}),
    ),
    Row(
        "4.11 a broker that never runs",
        "conf_http",
        (
            ask(
                "change",
                method="admin_add_broker_configure",
                brokerIp="127.0.0.77",
                brokerId=77,
                createUser="uu",
            ),
            _status(),
            _broker("set_broker_read_or_write", acceptPublish="false"),
            _broker("offline_broker_configure"),
            _broker("reload_broker_configure"),
            _broker("online_broker_configure"),
            _status(),
            _broker("online_broker_configure"),
            _broker("set_broker_read_or_write", acceptPublish="false"),
            _status(),
            _broker("set_broker_read_or_write", acceptPublish="false"),
            _broker("set_broker_read_or_write"),
            _broker("set_broker_read_or_write", acceptPublish="true", acceptSubscribe="false"),
            _status(),
            _broker("delete_broker_configure"),
            _broker("offline_broker_configure"),
            _status(),
            _broker("delete_broker_configure"),
            _system_topic_closed(),
            _broker("delete_broker_configure", isReservedData="true"),
        ),
        tags=frozenset({OWN}),
    ),
)
