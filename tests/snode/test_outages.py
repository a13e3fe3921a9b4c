"""The node during outages: name servers that hang, brokers that move or stop."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rocketmq_client import Metadata
from rocketmq_client._wire.commands import Command
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.model import address_text
from rocketmq_snode.registry import known_nodes
from tests.snode.raw import Raw, answer_to, eventually, fill, heartbeat


@pytest.fixture
def hanging() -> Iterator[tuple[str, int]]:
    """Yield the address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        yield server.getsockname()[:2]


def test_a_name_server_that_hangs_costs_its_time_once(rocketmq, start, hanging) -> None:
    node = start(name_servers=(hanging, rocketmq.name_server), upstream_timeout_ms=3_000)
    eventually(lambda: node.do(node.node.gauges)["brokers"] == 2)
    hurried = replace(node.settings, rpc_timeout_ms=1_500)
    with Metadata(hurried) as first, Metadata(hurried) as second:
        assert len(first.topic("orders").readable()) == 4
        assert len(second.topic("orders").readable()) == 4


def test_the_next_name_server_is_asked_when_one_goes(rocketmq, start) -> None:
    with EmbeddedRocketMQ(topics={"orders": 3}) as other:
        node = start(name_servers=(other.name_server, rocketmq.name_server))
        with Metadata(node.settings) as metadata:
            assert len(metadata.topic("orders").readable()) == 3
    with Metadata(node.settings) as metadata:
        assert len(metadata.topic("orders").readable()) == 4


def test_nodes_are_listed_while_a_name_server_hangs(rocketmq, start, hanging) -> None:
    start(name="one")
    settings = replace(
        rocketmq.settings, name_servers=(hanging, rocketmq.name_server), rpc_timeout_ms=500
    )
    assert eventually(lambda: list(asyncio.run(known_nodes(settings)))) == ["one"]


LEAVE = {"consumerGroup": "g"}


def test_members_that_left_are_not_registered_again(rocketmq, start) -> None:
    node = start()
    members = lambda: rocketmq.do(lambda broker: broker.groups.members("g"))  # noqa: E731
    with Raw(node.address) as stays, Raw(node.address) as leaves:
        for client, name in ((stays, "stays"), (leaves, "leaves")):
            assert answer_to(client, heartbeat(name)).code == 0
        assert answer_to(leaves, Command(35, 6, {"clientID": "leaves", **LEAVE})).code == 0
        assert members() == ["stays"]
        rocketmq.kill_broker("broker-a")
        rocketmq.start_broker("broker-a")
        eventually(members)
        time.sleep(0.5)  # ten times the pause after which a lost heartbeat is repeated

        assert members() == ["stays"]


def test_members_that_leave_during_an_outage_are_not_registered_again(rocketmq, start) -> None:
    node = start()
    members = lambda: rocketmq.do(lambda broker: broker.groups.members("g"))  # noqa: E731
    with Raw(node.address) as stays, Raw(node.address) as leaves:
        for client, name in ((stays, "stays"), (leaves, "leaves")):
            assert answer_to(client, heartbeat(name)).code == 0
        rocketmq.kill_broker("broker-a")
        assert answer_to(leaves, Command(35, 6, {"clientID": "leaves", **LEAVE})).code == 0
        rocketmq.start_broker("broker-a")
        eventually(members)
        time.sleep(0.5)
        assert members() == ["stays"]

        assert answer_to(leaves, heartbeat("leaves")).code == 0  # it registers again
        assert members() == ["leaves", "stays"]


def test_members_follow_a_master_that_moves(start, rocketmq) -> None:
    """Its old process stays alive, like a replica."""
    with EmbeddedRocketMQ(topics={"orders": 1}) as other:
        fill(other.settings, 5)
        moved = other.do(lambda broker: broker.address)
        node = start()
        with Raw(node.address) as member, Raw(node.address) as beside:
            assert answer_to(member, heartbeat("c")).code == 0
            assert answer_to(member, ASK).fields["offset"] == "0"
            data = rocketmq._name_server._broker_data
            rocketmq.do(
                lambda _: setattr(rocketmq._name_server, "_broker_data", lead_to(data, moved))
            )
            eventually(lambda: node.do(node.node._upstream.masters)["broker-a"] == moved)
            eventually(lambda: other.do(lambda broker: broker.groups.members("g")) == ["c"])

            assert answer_to(member, ASK).fields["offset"] == "5"
            assert answer_to(beside, ASK).fields["offset"] == "5"
            assert rocketmq.do(lambda broker: broker.groups.members("g")) == []
            assert rocketmq.do(lambda broker: broker.groups.members("g"), "broker-b") == ["c"]


ASK = Command(30, 9, {"topic": "orders", "queueId": "0", "bname": "broker-a"})


def lead_to(data, address):
    """Return the name server's brokers, with another address of `broker-a`."""

    def changed(broker):
        brokers = data(broker)
        if broker.name == "broker-a":
            brokers["brokerAddrs"] = {"0": address_text(address)}
        return brokers

    return changed


def test_queues_of_a_broker_without_a_master_are_away(start, rocketmq) -> None:
    """Its replica stays in the route, as without a node."""
    data = rocketmq._name_server._broker_data

    def as_replica(broker):
        brokers = data(broker)
        if broker.name == "broker-b":
            brokers["brokerAddrs"] = {"1": "127.0.0.1:1"}
        return brokers

    rocketmq.do(lambda _: setattr(rocketmq._name_server, "_broker_data", as_replica))
    node = start()
    with Metadata(rocketmq.settings) as directly, Metadata(node.settings) as through:
        expected = directly.topic("orders").readable()
        assert {queue.broker for queue in expected} == {"broker-a"}
        assert through.topic("orders").readable() == expected
        assert through.ends("orders") == directly.ends("orders")
