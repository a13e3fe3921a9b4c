"""The node in front of brokers, as seen by clients, brokers and operators."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketmq_client import (
    Admin,
    Consumer,
    ConsumerSettings,
    Credentials,
    Metadata,
    Producer,
    ProducerSettings,
    PullConsumer,
    Queue,
    Requester,
    Subscription,
    errors,
)
from rocketmq_client._wire.commands import Command
from rocketmq_client._wire.records import parse_records
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.model import ClientSettings
from rocketmq_snode import SnodeSettings
from rocketmq_snode.registry import known_nodes
from tests.kit.ports import reserved_port
from tests.snode.raw import FIRST, Raw, eventually, fill, heartbeat, read


def test_clients_reach_everything_through_the_node_and_nothing_else(rocketmq, start) -> None:
    node = start()
    fill(node.settings)
    with Metadata(node.settings) as metadata, Admin(node.settings) as admin:
        route = metadata.topic("orders")
        ends = metadata.ends("orders")

        assert set(route.masters().values()) == {node.address}
        assert {data.master for data in admin.brokers().brokers.values()} == {node.address}
        assert "orders" in admin.topics()
        assert ends[FIRST].max_offset == 300
    assert read(node.settings, 0, 300) == [b"%d" % n for n in range(300)]
    with PullConsumer(node.settings, group="g") as consumer:
        consumer.commit(FIRST, 7)
        assert consumer.committed(FIRST) == 7
        assert consumer.pull(FIRST, 300, wait_ms=50).status == "nothing"


def test_kinds_of_topics_are_seen_through_the_node(rocketmq, start) -> None:
    with Admin(rocketmq.settings) as admin:
        brokers = admin.brokers().brokers
        admin.create_topic("packed", queues=1, attributes={"queue.type": "BatchCQ"})
    node = start()
    rocketmq.do(lambda broker: broker.topics.pop("packed"))  # broker-b alone has it
    with Metadata(node.settings) as metadata:
        with pytest.raises(errors.UnsupportedTopic, match="BatchCQ"):
            metadata.topic("packed")
        with pytest.raises(errors.UnknownTopic):
            metadata.topic("nowhere")
        assert metadata.topic("orders").readable()
    ask = Command(351, 7, {"topic": "orders", "bname": "broker-b"})
    with Raw(node.address) as client, Raw(brokers["broker-b"].master) as broker:
        assert client.ask(ask) == broker.ask(ask)
        rocketmq.kill_broker("broker-b")
        assert client.ask(ask).code == 14
        assert client.ask(Command(351, 8, {"topic": "packed"})).code == 17


def test_each_broker_of_a_topic_is_asked_for_its_kind_through_the_node(rocketmq, start) -> None:
    with Admin(rocketmq.settings) as admin:
        admin.create_topic("mixed", queues=1, attributes={"queue.type": "BatchCQ"})
        admin.create_topic("mixed", queues=1, broker="broker-a")
    node = start()
    with Metadata(node.settings) as metadata, Admin(node.settings) as admin:
        configs = [admin.topic_config("mixed", name) for name in ("broker-a", "broker-b")]
        assert [item and item["attributes"] for item in configs] == [{}, {"queue.type": "BatchCQ"}]
        with pytest.raises(errors.UnsupportedTopic, match="BatchCQ"):
            metadata.topic("mixed")

        rocketmq.do(lambda broker: setattr(broker, "busy", True), "broker-b")
        assert metadata.topic("orders").readable()


def test_answers_belong_to_their_askers(rocketmq, start) -> None:
    node = start(pool_size=2)
    fill(node.settings, 1_100)

    def short_reader(number: int) -> bool:
        chance = random.Random(number)
        fields = {
            "consumerGroup": "g",
            "topic": "orders",
            "queueId": "0",
            "bname": "broker-a",
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subVersion": "0",
            "subscription": "*",
        }
        with Raw(node.address) as client:  # all use the same number
            for _ in range(16):
                offset = chance.randrange(1_000)
                request = Command(11, 1, {**fields, "queueOffset": str(offset)})
                answer = client.ask(request)
                records = parse_records(answer.body)
                if answer.opaque != 1 or [r.queue_offset for r in records] != [
                    *range(offset, offset + 32)
                ]:
                    return False
        return True

    with ThreadPoolExecutor(40) as pool:  # 102 400 records
        assert all(pool.map(short_reader, range(200)))
    channels = rocketmq.do(lambda _: len(rocketmq._channels["broker-a"]))
    assert channels <= 2
    assert node.do(node.node.gauges)["in_flight"] == 0


def test_held_pulls_delay_no_other_request(rocketmq, start) -> None:
    node = start()
    fill(node.settings, 1_000)
    held = []

    def wait() -> None:
        with PullConsumer(node.settings, group="g") as consumer:
            held.append(consumer.pull(FIRST, 1_000, wait_ms=20_000).messages)

    threads = [threading.Thread(target=wait) for _ in range(50)]
    for thread in threads:
        thread.start()
    eventually(lambda: node.do(node.node.gauges)["in_flight"] == 50)
    assert len(read(node.settings, 0, 1_000)) == 1_000
    assert held == []
    fill(node.settings, 1)
    for thread in threads:
        thread.join(60)

    assert [len(messages) for messages in held] == [1] * 50


def test_groups_live_over_two_nodes_as_over_one_broker(rocketmq, start) -> None:
    one, two = start(name="one"), start(name="two")
    subscriptions = [Subscription("orders")]
    with (
        PullConsumer(one.settings, group="g") as first,
        PullConsumer(two.settings, group="g") as second,
    ):
        first.join(subscriptions)
        second.join(subscriptions)
        both = sorted([first.client_id, second.client_id])
        assert first.members("orders") == second.members("orders") == both
        second.leave(subscriptions)
        assert first.members("orders") == [first.client_id]
        second.join(subscriptions)
        time.sleep(1.1)
        second.join(subscriptions)
        second.close()  # without unregistering
        eventually(lambda: first.members("orders") == [first.client_id])


def test_notices_reach_the_members(rocketmq, start) -> None:
    one, two = start(name="one"), start(name="two")
    with Raw(one.address) as first, Raw(two.address) as second:
        first.send(heartbeat("a"))
        first_commands = [
            first.receive() for _ in range(3)
        ]  # the answer, and a notice of each broker
        second.send(heartbeat("b"))
        notices = [first.receive() for _ in range(2)]
        second_commands = [second.receive() for _ in range(3)]
        second.close()  # without unregistering
        notices += [first.receive() for _ in range(2)]

    assert sorted(command.code for command in second_commands) == [0, 40, 40]
    assert sorted(command.code for command in first_commands) == [0, 40, 40]
    assert [(command.code, command.fields) for command in notices] == [
        (40, {"consumerGroup": "g"})
    ] * 4
    assert all(command.is_one_way for command in notices)


def test_members_are_back_after_their_broker_is(rocketmq, start) -> None:
    node = start()
    subscriptions = [Subscription("orders")]
    with PullConsumer(node.settings, group="g") as consumer:
        consumer.join(subscriptions)
        rocketmq.kill_broker("broker-a")
        with pytest.raises((errors.Busy, errors.ConnectError)):  # from the node, or from the route
            consumer.pull(FIRST, 0)
        other = Queue("broker-b", "orders", 0)
        assert consumer.pull(other, 0).status == "nothing"
        rocketmq.start_broker("broker-a")
        eventually(lambda: rocketmq.do(lambda broker: broker.groups.members("g")))
        eventually(lambda: FIRST in consumer.queues("orders"))
        assert consumer.pull(FIRST, 0).status == "nothing"


def members(address, group: str = "g") -> list[str]:
    with Raw(address) as client:
        answer = client.ask(Command(38, 1, {"consumerGroup": group, "bname": "broker-a"}))
        return json.loads(answer.body)["consumerIdList"] if answer.code == 0 else []


def test_two_clients_with_one_id_work_as_at_a_broker(rocketmq, start) -> None:
    one, two = start(name="one"), start(name="two")

    def life(first, second) -> list[list[str]]:
        seen = []
        with Raw(first) as early:
            early.send(heartbeat("same"))
            eventually(lambda: members(first) == ["same"])
            with Raw(second) as late:
                late.send(heartbeat("same"))
                time.sleep(0.3)
                seen.append(members(second))
            time.sleep(0.3)
            seen.append(members(first))
        eventually(lambda: members(second) == [])
        return seen

    with Admin(rocketmq.settings) as admin:
        broker = admin.brokers().brokers["broker-a"].master
    assert life(one.address, two.address) == life(broker, broker)


def test_a_dead_nodes_entry_is_not_listed(rocketmq, start) -> None:
    start(name="one")
    settings = ClientSettings((rocketmq.name_server,))
    listed = eventually(lambda: asyncio.run(known_nodes(settings)))
    later = int(time.time() * 1000) + 46_000

    assert list(listed) == ["one"]
    assert asyncio.run(known_nodes(settings, now_ms=later)) == {}


def test_equal_heartbeats_within_a_second_go_out_once(rocketmq, start) -> None:
    node = start()
    seen = []

    def listen(broker) -> None:
        def hear(request, channel):
            seen.append(request.code)
            return broker._heartbeat(request, channel)

        broker._handlers[34] = hear

    rocketmq.do(listen)
    heartbeats = {}
    with Raw(node.address) as client:
        client.send(*(heartbeat("a")._replace(opaque=number) for number in (1, 2, 3)))
        while len(heartbeats) < 3:
            command = client.receive()
            if command.is_answer:
                heartbeats[command.opaque] = command.code

    assert heartbeats == {1: 0, 2: 0, 3: 0}
    assert len(seen) == 1


def test_virtual_ports_stand_for_brokers(rocketmq, start) -> None:
    with reserved_port() as port:
        node = start(ports=(("broker-b", port),))
        fill(node.settings, 5, Queue("broker-b", "orders", 0))
        with Raw(("127.0.0.1", port)) as client:
            answer = client.ask(Command(30, 1, {"topic": "orders", "queueId": "0"}))
        with Metadata(node.settings) as metadata:
            masters = metadata.topic("orders").masters()

    assert answer.fields["offset"] == "5"
    assert masters == {"broker-a": node.address, "broker-b": ("127.0.0.1", port)}


def test_allow_lists(rocketmq, start) -> None:
    node = start(topics=frozenset({"other"}), groups=frozenset({"readers"}))
    with Producer(node.settings) as producer, pytest.raises(errors.NoPermission, match="snode"):
        producer.send("orders", b"x")


def test_signatures_pass_through() -> None:
    right = Credentials("reader01", "12345678")
    with EmbeddedRocketMQ(topics={"orders": 1}, credentials=right) as rocketmq:
        from tests.snode.conftest import Node

        options = SnodeSettings((rocketmq.name_server,), listen=("127.0.0.1", 0))
        with Node(options) as node:
            for auth in (right, Credentials("reader01", "wrong"), None):
                settings = ClientSettings((node.address,), auth=auth)
                with Producer(settings) as producer:
                    if auth is right:
                        assert producer.send("orders", b"x").offset == 0
                    else:
                        with pytest.raises(errors.NoPermission):
                            producer.send("orders", b"x")


def test_the_registry_entry_appears_and_goes(rocketmq, start) -> None:
    ask = Command(101, 1, {"namespace": "SNODE_CONFIG", "key": "one"})
    with Raw(rocketmq.name_server) as client:
        node = start(name="one")
        entries = eventually(
            lambda: (a := client.ask(ask)).code == 0 and json.loads(a.fields["value"])
        )
        first = entries["ts"]
        eventually(lambda: json.loads(client.ask(ask).fields["value"])["ts"] > first)
        node._thread.wait(node.node.stop)

        assert entries["addr"] == f"127.0.0.1:{node.address[1]}"
        assert client.ask(ask).code == 22


def test_health_and_metrics(rocketmq, start) -> None:
    node = start(metrics_listen=("127.0.0.1", 0))
    fill(node.settings, 3)
    host, port = node.node.metrics_address

    def page(path: str) -> str:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    health = json.loads(eventually(lambda: page("/healthz")))
    assert health["status"] == "ok"
    assert set(health["brokers"]) == {"broker-a", "broker-b"}
    text = page("/metrics")
    assert 'snode_requests{code="320"} 1' in text
    assert 'snode_answers{code="0"}' in text
    assert "snode_brokers 2" in text
    with pytest.raises(urllib.error.HTTPError, match="404"):
        page("/other")


def test_requests_in_flight_are_answered_before_the_node_stops(rocketmq, start) -> None:
    node = start()
    answers = []

    def wait() -> None:
        with PullConsumer(node.settings, group="g") as consumer:
            answers.append(consumer.pull(FIRST, 0, wait_ms=600).status)

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: node.do(node.node.gauges)["in_flight"] == 1)
    node._thread.wait(node.node.stop)
    waiting.join(60)

    assert answers == ["nothing"]


def test_a_node_that_dies_costs_no_acknowledged_record(rocketmq, start) -> None:
    one, two = start(name="one"), start(name="two")
    both = ClientSettings((one.address, two.address), route_period_ms=200)
    acknowledged: dict[Queue, dict[int, bytes]] = {}
    ended = threading.Event()

    def produce() -> None:
        number = 0
        options = ProducerSettings(retries=5, retry_unknown=True)
        with Producer(both, producer=options) as producer:
            while not ended.is_set():
                number += 1
                try:
                    receipt = producer.send("orders", b"%d" % number)
                except errors.RocketMQError:
                    continue
                acknowledged.setdefault(receipt.queue, {})[receipt.offset] = b"%d" % number

    writing = threading.Thread(target=produce)
    writing.start()
    time.sleep(0.5)
    one.kill()
    time.sleep(1.5)
    ended.set()
    writing.join(20)

    assert sum(map(len, acknowledged.values())) > 100
    with Metadata(two.settings) as metadata:
        ends = metadata.ends("orders", stable=False)
    for queue, records in acknowledged.items():
        found = dict(enumerate(read(two.settings, 0, ends[queue].latest_offset, queue)))
        assert records.items() <= found.items()


def test_options_are_validated_at_once() -> None:
    with pytest.raises(errors.ConfigError) as caught:
        SnodeSettings((), listen=("0.0.0.0", 1), pool_size=0, tls_cert_file="x")
    text = str(caught.value)
    assert all(name in text for name in ("name_servers", "advertise", "pool_size", "tls_cert_file"))


def test_python_members_share_queues_and_reply_through_two_nodes(rocketmq, start) -> None:
    one, two = start(name="one"), start(name="two")
    first = ConsumerSettings(consume_from="first", commit_ms=100)
    with (
        Consumer(one.settings, "g", {"orders": ()}, consumer=first) as left,
        Consumer(two.settings, "g", {"orders": ()}, consumer=first) as right,
        Producer(two.settings) as producer,
    ):

        def shares() -> list[set[Queue]]:
            return [{q for q in each.assignment if q.topic == "orders"} for each in (left, right)]

        eventually(lambda: [len(share) for share in shares()] == [2, 2])
        assert not set.intersection(*shares())
        queues = sorted(set.union(*shares()))
        receipts = [producer.send("orders", queue.key.encode(), queue=queue) for queue in queues]
        assert [receipt.queue for receipt in receipts] == queues, "the queue that was chosen"
        found = []
        for member in (left, right):
            for batch in member.batches(timeout_ms=2_000):
                found += [message.body.decode() for message in batch.messages]
                if len(found) in (2, 4):
                    member.confirm(batch)
                    break
        assert sorted(found) == [queue.key for queue in queues]

        def reply() -> None:
            while not replies.is_set():
                for member in (left, right):
                    if batch := member.receive(50):
                        for message in batch.messages:
                            if "REPLY_TO_CLIENT" in message.properties:  # others may come again
                                producer.reply(message, b"re: " + message.body)
                        member.confirm(batch)

        replies = threading.Event()
        with ThreadPoolExecutor(1) as pool, Requester(one.settings) as requester:
            work = pool.submit(reply)
            try:
                bodies = [
                    requester.request("orders", b"%d" % n, timeout_ms=30_000).body for n in range(6)
                ]
            finally:
                replies.set()
                work.result(60)
        assert bodies == [b"re: %d" % n for n in range(6)]


def test_a_group_without_members_is_refused_as_by_a_broker(rocketmq, start) -> None:
    with Raw(start().address) as client:
        answer = client.ask(Command(38, 1, {"consumerGroup": "nothing"}))
    assert (answer.code, answer.remark) == (1, "no consumer for this group, nothing")


def test_defaults_are_those_of_the_documents() -> None:
    settings = SnodeSettings((("ns", 9876),))
    assert settings.listen == ("127.0.0.1", 11911)
    assert settings.idle_ms == 120_000
