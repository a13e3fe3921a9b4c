"""Administration through a node: topics that are created, offsets that are reset, clients shown."""

from __future__ import annotations

import http.server
import json
import threading
import urllib.request
from collections.abc import Iterator

import pytest

from rocketmq_client import Credentials, Producer, PullConsumer, Subscription, errors
from rocketmq_client._wire.commands import Command
from rocketmq_client._wire.signature import signed
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.model import address_text
from rocketmq_snode.routing import joined_queues
from tests.kit.servers import embedded_rocketmq
from tests.snode.raw import Raw, answer_to, eventually, fill

NEW_TOPIC = {
    "topic": "fresh",
    "defaultTopic": "TBW102",
    "readQueueNums": "2",
    "writeQueueNums": "2",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}
READER = Credentials("reader01", "87654321")
OWNER = Credentials("owner01", "12345678")
NODES = Credentials("nodes01", "secret-of-nodes")

guarded = embedded_rocketmq(1, credentials=NODES)


def page(address, path: str) -> str:
    host, port = address
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=5) as answer:
        return str(answer.read().decode())


def test_a_topic_is_created_at_every_broker(rocketmq: EmbeddedRocketMQ, start) -> None:
    node = start()
    with Raw(node.address) as client:
        assert client.ask(Command(17, 1, NEW_TOPIC)).code == 0
    with Raw(rocketmq.name_server) as client:
        route = json.loads(client.ask(Command(105, 1, {"topic": "fresh"})).body)
    assert {item["brokerName"] for item in route["queueDatas"]} == {"broker-a", "broker-b"}


def test_a_named_broker_alone_is_asked(rocketmq: EmbeddedRocketMQ, start) -> None:
    node = start()
    with Raw(node.address) as client:
        assert client.ask(Command(17, 1, {**NEW_TOPIC, "bname": "broker-b"})).code == 0
    with Raw(rocketmq.name_server) as client:
        route = json.loads(client.ask(Command(105, 1, {"topic": "fresh"})).body)
    assert [item["brokerName"] for item in route["queueDatas"]] == ["broker-b"]


def test_what_a_broker_refuses_names_it(rocketmq: EmbeddedRocketMQ, start) -> None:
    node = start()
    with Raw(node.address) as client:
        answer = client.ask(Command(222, 1, {"topic": "orders", "group": "lake"}))
    assert answer.code != 0
    assert str(answer.remark).startswith("broker-a: ")


@pytest.mark.parametrize("user", [READER, OWNER], ids=["reader", "owner"])
def test_a_node_lends_its_rights_to_its_admins_only(guarded: EmbeddedRocketMQ, start, user) -> None:
    users = tuple((each.access_key, each.secret_key) for each in (READER, OWNER))
    node = start(
        name_servers=(guarded.name_server,),
        credentials=NODES,
        users=users,
        admins=frozenset({OWNER.access_key}),
    )
    with Raw(node.address) as client:
        answer = client.ask(Command(17, 1, signed(NEW_TOPIC, b"", user)))
    if user is OWNER:
        assert answer.code == 0
    else:
        assert answer.code == 16
        assert "admins" in str(answer.remark)


def test_admins_are_users(start) -> None:
    with pytest.raises(errors.ConfigError, match="admins: nobody not among users"):
        start(users=(("reader01", "87654321"),), admins=frozenset({"nobody"}))


@pytest.mark.parametrize(
    ("bodies", "joined"),
    [
        ([b'{"offsetTable":{{"q":0}:4}}', b'{"offsetTable":{{"q":1}:5}}'], b'{"q":0}:4,{"q":1}:5'),
        ([b'{"offsetTable":{}}', b'{ "offsetTable" : {{"q":1}:5} }'], b'{"q":1}:5'),
        ([b'{"offsetTable":{}}'], b""),
    ],
)
def test_queues_of_all_brokers_are_in_one_answer(bodies: list[bytes], joined: bytes) -> None:
    assert joined_queues(bodies) == b'{"offsetTable":{' + joined + b"}}"


def test_bodies_without_queues_are_those_of_the_first() -> None:
    assert joined_queues([b"", b""]) == b""


def test_clients_are_shown_with_their_groups(rocketmq: EmbeddedRocketMQ, start) -> None:
    node = start(admin_listen=("127.0.0.1", 0))
    with PullConsumer(node.settings, group="lake") as consumer:
        consumer.join([Subscription("orders")])
        shown = json.loads(page(node.node.admin_address, "/clients"))["clients"]
    members = [client for client in shown if client.get("client_id") == consumer.client_id]
    assert members
    assert members[0]["consumer_groups"] == ["lake"]
    assert members[0]["language"] == "PYTHON"
    assert members[0]["version"] > 0


def test_a_client_whose_heartbeat_is_not_understood_is_shown(rocketmq, start) -> None:
    node = start(admin_listen=("127.0.0.1", 0))
    with Raw(node.address) as client:
        answer_to(client, Command(34, 1, {}, b"no JSON"))
        (shown,) = json.loads(page(node.node.admin_address, "/clients"))["clients"]
    assert shown["requests"] == 1


def test_bytes_are_counted_by_group(rocketmq: EmbeddedRocketMQ, start) -> None:
    node = start(metrics_listen=("127.0.0.1", 0))
    fill(node.settings, 3)
    with Producer(node.settings, group="orders-app") as producer:
        for _ in range(3):
            producer.send("orders", b"x" * 100)
    text = page(node.node.metrics_address, "/metrics")
    sent = [line for line in text.splitlines() if 'group="orders-app",way="in"' in line]
    frames, size = (
        float(next(line for line in sent if kind in line).rsplit(" ", 1)[1])
        for kind in ("group_frames", "group_bytes")
    )
    assert 1 <= frames <= 3  # the first opens the connection, and is not forwarded
    assert size > 100 * frames


def test_clients_of_the_fast_port_are_served(rocketmq: EmbeddedRocketMQ, start) -> None:
    node = start(fast_port=True)
    host, port = node.address
    with Raw((host, port - 2)) as client:
        assert client.ask(Command(106, 1, {})).code == 0


def test_ports_are_not_used_twice(start) -> None:
    with pytest.raises(errors.ConfigError, match="port 11911 is used twice"):
        start(listen=("127.0.0.1", 11911), ports=(("broker-a", 11913),), fast_port=True)


@pytest.fixture
def address_server() -> Iterator[dict[str, str]]:
    """Serve an HTTP page with the text under "page"."""
    said = {"page": ""}

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(said["page"].encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    said["url"] = f"http://127.0.0.1:{server.server_address[1]}/nsaddr?token=hidden"
    yield said
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_name_servers_come_from_an_address_server(
    rocketmq: EmbeddedRocketMQ, start, address_server, monkeypatch, caplog
) -> None:
    monkeypatch.setattr("rocketmq_snode.server._ADDRESS_SERVER_PERIOD_S", 0.1)
    address_server["page"] = "127.0.0.1:1\n"
    caplog.set_level("INFO", "rocketmq_snode")
    node = start(name_servers=(), name_servers_url=address_server["url"])
    with Producer(node.settings) as producer:
        with pytest.raises(errors.RocketMQError):
            producer.send("orders", b"x")
        address_server["page"] = f"127.0.0.1:1;{address_text(rocketmq.name_server)}\n"
        eventually(lambda: "name servers: 127.0.0.1:1, 127.0.0.1:" in caplog.text)
        assert producer.send("orders", b"x").offset == 0
        address_server["page"] = "<html>no such page</html>"
        eventually(lambda: "gives no name servers" in caplog.text)
        assert producer.send("orders", b"y").offset is not None
    assert "hidden" not in caplog.text


@pytest.mark.parametrize("text", ["", "  ;\n", "ns1", "<html></html>"])
def test_a_page_without_name_servers_ends_the_start(start, address_server, text: str) -> None:
    address_server["page"] = text
    with pytest.raises(errors.ConfigError, match=r"name_servers_url: http://127.* gives no name"):
        start(name_servers=(), name_servers_url=address_server["url"])
