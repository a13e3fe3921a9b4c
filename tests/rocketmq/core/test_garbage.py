"""Frames of hostile servers: bodies and pushed requests of any content are values or violations."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketmq_client import ClientSettings, ConsumerSettings, ProducerSettings, errors
from rocketmq_client._core.cluster import Cluster
from rocketmq_client._core.membership import Membership
from rocketmq_client._core.requests import Requests
from rocketmq_client._core.sending import Sending
from rocketmq_client._core.transactions import Transactions
from rocketmq_client._wire import admin_bodies, bodies
from rocketmq_client._wire.commands import Command

QUEUE = {"topic": "orders", "brokerName": "broker-a", "queueId": 0}
BY_QUEUE = '{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:%s}}'
PROGRESS = {"brokerOffset": 9, "consumerOffset": 7, "lastTimestamp": 5}
STATS = {"minOffset": 0, "maxOffset": 9, "lastUpdateTimestamp": 5}
MEMBERS = {
    "connectionSet": [{"clientId": "1@a", "clientAddr": "h:1", "language": "JAVA", "version": 401}],
    "subscriptionTable": {"orders": {"topic": "orders", "subString": "*"}},
    "messageModel": "CLUSTERING",
}
GROUPS = {"subscriptionGroupTable": {"g": {"groupName": "g", "consumeEnable": True}}}
ROUTE = {
    "brokerDatas": [{"brokerName": "a", "cluster": "c", "brokerAddrs": {"0": "h:1"}}],
    "queueDatas": [{"brokerName": "a", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}],
}


def settings_of_groups(body: bytes) -> list[object]:
    table = admin_bodies.parse_groups(body)
    return [admin_bodies.group_settings(name, item) for name, item in table.items()]


PARSERS = {
    "members": (bodies.parse_members, json.dumps({"consumerIdList": ["1@a"]})),
    "locked": (bodies.parse_locked, json.dumps({"lockOKMQSet": [QUEUE]})),
    "moved": (admin_bodies.parse_moved, BY_QUEUE % 7),
    "groups": (settings_of_groups, json.dumps(GROUPS)),
    "progress": (admin_bodies.parse_progress, BY_QUEUE % json.dumps(PROGRESS)),
    "topic stats": (admin_bodies.parse_topic_stats, BY_QUEUE % json.dumps(STATS)),
    "clients": (admin_bodies.parse_group_members, json.dumps(MEMBERS)),
    "route": (partial(bodies.parse_route, "orders"), json.dumps(ROUTE)),
}
ODD = st.sampled_from(
    [*("null", "[]", "{}", "-1", "1e999", "true", '""', '"\\ud800"', "[[[", "9" * 30, '"h:99999"')]
)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=30)


@pytest.mark.parametrize("name", PARSERS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_damaged_body_is_a_value_or_a_violation(name, data) -> None:
    parse, text = PARSERS[name]
    parse(text.encode())
    starts = [at for at, letter in enumerate(text) if letter in ":,["]
    at = data.draw(st.sampled_from(starts)) + 1
    end = data.draw(st.integers(at, min(len(text), at + 12)))
    damaged = text[:at] + data.draw(ODD | ANY_TEXT) + text[end:]
    try:
        parse(damaged.encode("utf-8", "surrogatepass"))
    except errors.ProtocolViolation:
        pass
    except errors.ConfigError:
        assert name == "groups", "a group with settings that no client would give it"


@pytest.mark.parametrize("number", ["1e999", "[" * 100_000])
def test_a_queue_of_no_number_is_a_violation(number) -> None:
    queue = json.dumps(QUEUE).replace("0}", f"{number}}}")
    for parse, text in (
        (bodies.parse_locked, f'{{"lockOKMQSet":[{queue}]}}'),
        (admin_bodies.parse_moved, json.dumps({"offsetTable": {queue: 7}})),
    ):
        with pytest.raises(errors.ProtocolViolation):
            parse(text.encode())


FIELDS = st.dictionaries(
    st.sampled_from(
        [
            *("properties", "sysFlag", "bornTimestamp", "storeTimestamp", "storeHost"),
            *("consumerGroup", "group", "transactionId", "bname"),
        ]
    ),
    ANY_TEXT | st.sampled_from(["0", "1", "257", "CORRELATION_ID\x01asked\x02", "127.0.0.1:1"]),
)
PUSHED = st.builds(
    Command,
    code=st.sampled_from([39, 40, 220, 326, 9_999]),
    opaque=st.integers(0, 2**31 - 1),
    fields=FIELDS,
    body=st.binary(max_size=200),
)
PROPERTIES = {"properties": "CORRELATION_ID\x01asked\x02"}
TIMES = {"bornTimestamp": "1", "storeTimestamp": "2"}


def parties() -> tuple[Requests, Transactions, Membership]:
    cluster = Cluster(ClientSettings((("127.0.0.1", 1),)))
    sending = Sending(cluster, ProducerSettings(), "g", lambda: "ID")
    return (
        Requests(cluster, sending, "me", lambda: None),
        Transactions(cluster, sending, "me", ["orders"], lambda: None),
        Membership(
            *(cluster, "g", "me", {"orders": ()}, ConsumerSettings()),
            wake=lambda: None,
            ready=lambda: None,
        ),
    )


@settings(deadline=None, max_examples=50)
@given(st.lists(PUSHED, max_size=6))
@example([Command(326, 1, {"properties": "\ud800"})])
@example([Command(326, 1, PROPERTIES | TIMES | {"sysFlag": "1"}, b"\x78")])
@example([Command(326, 1, PROPERTIES | TIMES, b"ok")] * 2)
def test_pushed_requests_of_any_content_never_fail_the_reader(commands) -> None:
    requests, transactions, membership = parties()
    replies: list[object] = []
    requests.expect("asked", replies.append)
    for command in commands:
        requests.notice(command)
        transactions.notice(command)
        membership.notice(command)
    assert len(replies) <= 1
    while True:
        try:
            if transactions.next_check() is None:
                break
        except errors.RocketMQError:
            pass  # logged; the next question is read
