"""Access control of a node: signatures of users, the node's own signature, allow-lists on every
path."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rocketmq_client import (
    Admin,
    Credentials,
    Producer,
    PullConsumer,
    Queue,
    QueueRange,
    RangeReader,
    Subscription,
    TlsSettings,
    errors,
)
from rocketmq_client._wire.bodies import heartbeat_body
from rocketmq_client._wire.commands import Command
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_snode import SnodeSettings
from tests.kit.certificates import make_certificates
from tests.kit.servers import embedded_rocketmq
from tests.snode.conftest import Node
from tests.snode.raw import Raw

BROKERS = Credentials("nodes01", "secret-of-nodes")
READER = Credentials("reader01", "87654321")
QUEUE = Queue("broker-a", "orders", 0)


rocketmq = embedded_rocketmq(1, credentials=BROKERS)


def node_for(rocketmq, **options):
    defaults = {"listen": ("127.0.0.1", 0), "discovery_period_ms": 100}
    return Node(SnodeSettings((rocketmq.name_server,), **(defaults | options)))


def test_the_node_verifies_its_users_and_signs_again(rocketmq) -> None:
    users = ((READER.access_key, READER.secret_key),)
    with node_for(rocketmq, credentials=BROKERS, users=users) as node:
        right = replace(node.settings, auth=READER)
        with Producer(right) as producer, RangeReader(right, group="g") as reader:
            for number in range(3):  # the first opens the connection, the others use it
                assert producer.send("orders", b"%d" % number).offset == number
            batches = reader.read(QueueRange(QUEUE, 0, 3))
            assert [m.body for batch in batches for m in batch.messages()] == [b"0", b"1", b"2"]
        with PullConsumer(right, group="g") as consumer:
            consumer.join([Subscription("orders")])
            assert consumer.members("orders") == [consumer.client_id]


@pytest.mark.parametrize(
    "auth",
    [None, BROKERS, Credentials("reader01", "wrong-one"), Credentials("other", "87654321")],
    ids=["none", "the brokers' account", "wrong secret", "unknown key"],
)
def test_requests_without_a_users_signature_are_refused_by_the_node(rocketmq, auth) -> None:
    users = ((READER.access_key, READER.secret_key),)
    with (
        node_for(rocketmq, credentials=BROKERS, users=users) as node,
        Admin(replace(node.settings, auth=auth)) as admin,
        pytest.raises(errors.NoPermission, match="snode: no user of this node"),
    ):
        admin.topics()


def test_users_alone_leave_the_clients_signature_as_it_is(rocketmq) -> None:
    users = ((BROKERS.access_key, BROKERS.secret_key),)
    with (
        node_for(rocketmq, users=users) as node,
        Producer(replace(node.settings, auth=BROKERS)) as producer,
    ):
        assert [producer.send("orders", b"x").offset for _ in range(2)] == [0, 1]


def test_credentials_without_users_are_refused() -> None:
    with pytest.raises(errors.ConfigError, match="give users"):
        SnodeSettings((("ns", 9876),), credentials=BROKERS)


def test_secrets_are_not_shown() -> None:
    users = ((READER.access_key, READER.secret_key),)
    shown = repr(SnodeSettings((("ns", 9876),), credentials=BROKERS, users=users))
    assert BROKERS.secret_key not in shown
    assert READER.secret_key not in shown


def test_allow_lists_hold_on_an_open_connection() -> None:
    with (
        EmbeddedRocketMQ(topics={"orders": 1, "secret": 1}) as rocketmq,
        node_for(rocketmq, topics=frozenset({"orders"})) as node,
        Producer(node.settings) as producer,
        PullConsumer(node.settings, group="g") as consumer,
    ):
        for number in range(2):
            assert producer.send("orders", b"x").offset == number
            assert consumer.pull(QUEUE, number).messages
        with pytest.raises(errors.NoPermission, match="snode: topic 'secret'"):
            consumer.pull(Queue("broker-a", "secret", 0), 0)


LISTED = {"topics": frozenset({"orders"}), "groups": frozenset({"mine"})}


def lock(group: str, topic: str) -> bytes:
    queues = [{"topic": topic, "brokerName": "broker-a", "queueId": 0}]
    return json.dumps({"consumerGroup": group, "clientId": "c", "mqSet": queues}).encode()


def beat(group: str, *topics: str) -> bytes:
    subscriptions = [Subscription(topic) for topic in topics]
    return heartbeat_body("c", ["any"], {group: subscriptions}, 1)


AT_A = {"bname": "broker-a"}
BACK = {**AT_A, "group": "mine", "offset": "0", "delayLevel": "0"}


@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (34, {}, beat("others", "orders")),
        (34, {}, beat("mine", "secret")),
        (34, {}, beat("mine", "orders", "%RETRY%others")),
        (34, {}, b"no JSON"),
        (41, AT_A, lock("others", "orders")),
        (41, AT_A, lock("mine", "secret")),
        (42, AT_A, lock("others", "orders")),
        (35, {"clientID": "c", "consumerGroup": "others"}, b""),
        (36, {**BACK, "originTopic": "secret"}, b""),
        (36, BACK, b""),
        (36, {**BACK, "originTopic": "orders", "group": "others", "consumerGroup": "mine"}, b""),
        (33, {**AT_A, "offset": "0"}, b""),
        (43, AT_A, b""),
    ],
)
def test_allow_lists_hold_for_resources_in_bodies(code, fields, body) -> None:
    with (
        EmbeddedRocketMQ(topics={"orders": 1, "secret": 1}) as rocketmq,
        node_for(rocketmq, **LISTED) as node,
        Producer(node.settings) as producer,
        Raw(node.address) as client,
    ):
        producer.send("orders", b"a line is open")
        answer = client.ask(Command(code, 1, fields, body))
        reached = rocketmq.do(lambda broker: broker.groups.members("others"))

    assert answer.code == 16
    assert str(answer.remark).startswith("snode: ")
    assert reached == []


@pytest.mark.parametrize(
    ("code", "fields", "body", "answer"),
    [
        (34, {}, beat("mine", "orders", "%RETRY%mine"), 0),
        (41, AT_A, lock("mine", "orders"), 0),
        (36, {**BACK, "originTopic": "orders"}, b"", 26),  # it knows no member of the group
    ],
)
def test_listed_resources_are_admitted(code, fields, body, answer) -> None:
    with (
        EmbeddedRocketMQ(topics={"orders": 1}) as rocketmq,
        node_for(rocketmq, **LISTED) as node,
        Raw(node.address) as client,
    ):
        said = client.ask(Command(code, 1, fields, body))
        while not said.is_answer:  # the notice after its heartbeat
            said = client.receive()

    assert said.code == answer


def test_clients_reach_a_node_over_tls(tmp_path) -> None:
    certificates = make_certificates(tmp_path)
    server = certificates.server
    with (
        EmbeddedRocketMQ(topics={"orders": 1}) as rocketmq,
        node_for(rocketmq, tls_cert_file=server.cert, tls_key_file=server.key) as node,
    ):
        tls = TlsSettings(ca_file=certificates.ca)
        with Producer(replace(node.settings, tls=tls)) as producer:
            assert [producer.send("orders", b"x").offset for _ in range(2)] == [0, 1]
        tls = TlsSettings(ca_file=certificates.other_ca)
        with Producer(replace(node.settings, tls=tls)) as producer, pytest.raises(errors.TlsError):
            producer.send("orders", b"x")


def test_a_node_reaches_servers_over_tls(tmp_path) -> None:
    certificates = make_certificates(tmp_path)
    pair = (certificates.server.cert, certificates.server.key)
    with EmbeddedRocketMQ(topics={"orders": 1}, tls=pair) as rocketmq:
        with node_for(rocketmq, tls=TlsSettings(ca_file=certificates.ca)) as node:
            with Producer(node.settings) as producer:
                assert [producer.send("orders", b"x").offset for _ in range(2)] == [0, 1]
            with PullConsumer(node.settings, group="g") as consumer:
                consumer.join([Subscription("orders")])
                assert consumer.members("orders") == [consumer.client_id]
        with (
            node_for(rocketmq, tls=TlsSettings(ca_file=certificates.other_ca)) as node,
            Producer(node.settings) as producer,
            pytest.raises(errors.ServerError, match="snode: "),
        ):
            producer.send("orders", b"x")
