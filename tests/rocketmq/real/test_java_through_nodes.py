"""Unmodified Java clients of both lines through nodes in front of genuine brokers of both lines.

Clients work through a node as they do directly; killed nodes cost no acknowledged record, next to
each other or behind one address; a broker that dies behind a node has its members back when it
returns. The rare pairs run with the long tests.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from rocketmq_client import (
    Consumer,
    ConsumerSettings,
    Metadata,
    Producer,
    PullConsumer,
    Queue,
    QueueRange,
    RangeReader,
    Subscription,
    errors,
)
from rocketmq_client.model import ClientSettings
from tests.rocketmq.sites import TWO, Site, require
from tests.snode.processes import NodeProcess
from tools.devkit.patience import PATIENCE
from tools.devkit.rocketmq.artifacts import RocketMQArtifacts
from tubemq_provider.engines.java import JavaRuntime

pytestmark = [pytest.mark.real, pytest.mark.slow]

SOURCES = Path(__file__).with_name("java")
RECORDS = 3_000
FEATURES = {
    *("sends", "push", "retry", "orderly", "broadcast", "lite-pull", "transactions", "queries")
}
PAIRS = [
    pytest.param("4.9.7", "5.5.0", id="4.9.7 on 5.5.0"),
    pytest.param("5.5.0", "4.9.7", id="5.5.0 on 4.9.7", marks=pytest.mark.soak),
    pytest.param("4.9.7", "4.9.7", id="4.9.7 on 4.9.7", marks=pytest.mark.soak),
    pytest.param("5.5.0", "5.5.0", id="5.5.0 on 5.5.0", marks=pytest.mark.soak),
]
"""Line of the client, line of the brokers."""


class JavaClient:
    """Java process; collects its lines as they come."""

    def __init__(
        self, artifacts: RocketMQArtifacts, java: JavaRuntime, program: str, *words: str
    ) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [
                *(str(java.executable), "-Xmx256m", "-XX:TieredStopAtLevel=1"),
                *("-Drocketmq.client.logRoot=/dev/null", "-cp", artifacts.classpath),
                *(str(SOURCES / f"{program}.java"), *words),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.strip())

    def said(self, word: str) -> list[str]:
        return [line.split()[1] for line in list(self.lines) if line.startswith(word + " ")]

    def peers(self) -> set[int]:
        """Return the ports of its connections; none once it has ended."""
        try:
            return self._peers(Path(f"/proc/{self._process.pid}"))
        except OSError:
            return set()

    @staticmethod
    def _peers(process: Path) -> set[int]:
        sockets = set()
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                sockets.add(str(link.readlink()))
        ports = set()
        for table in ("tcp", "tcp6"):
            for line in (process / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "01" and f"socket:[{words[9]}]" in sockets:
                    ports.add(int(words[2].rpartition(":")[2], 16))
        return ports

    def wait(self, timeout_s: float) -> None:
        self._process.wait(timeout_s)
        self._reader.join(10)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def java_client(stack: ExitStack, line, program: str, *words: str) -> JavaClient:
    needs = require(line)
    client = JavaClient(needs["artifacts"], needs["java"], program, *words)  # type: ignore[arg-type]
    stack.callback(client.close)
    return client


def text(*nodes: NodeProcess) -> str:
    return ";".join(f"127.0.0.1:{node.address[1]}" for node in nodes)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("client", "brokers"), PAIRS)
def test_java_clients_do_through_a_node_what_they_do_directly(client, brokers, open_site) -> None:
    site = open_site(brokers)
    with ExitStack() as stack:
        node = stack.enter_context(NodeProcess(site.settings.name_servers[0], "features"))
        words = (text(node), site.topic(), site.topic())
        java = java_client(stack, client, "Features", *words)
        peers: set[int] = set()
        deadline = time.monotonic() + 200 * PATIENCE
        while "END" not in java.lines:
            assert time.monotonic() < deadline, java.lines
            peers |= java.peers()
            time.sleep(0.3)

    assert peers == {node.address[1]}, "clients have connections to the node and nothing else"
    print(f"{client} on {brokers}: {sorted(java.said('OK'))}")
    assert [line for line in java.lines if line.startswith("NOT")] == []
    assert set(java.said("OK")) == FEATURES


@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", ["own addresses", "one address"])
@pytest.mark.parametrize(
    ("client", "brokers"),
    [
        pytest.param("5.5.0", "5.5.0"),
        pytest.param("4.9.7", "5.5.0", marks=pytest.mark.soak),
        pytest.param("4.9.7", "4.9.7", marks=pytest.mark.soak),
        pytest.param("5.5.0", "4.9.7", marks=pytest.mark.soak),
        pytest.param("5.5.0", "5.5.0" + TWO, marks=pytest.mark.soak),
        pytest.param("4.9.7", "4.9.7" + TWO, marks=pytest.mark.soak),
    ],
)
def test_java_clients_lose_nothing_when_nodes_die(way, client, brokers, open_site) -> None:
    site = open_site(brokers)
    topic = site.topic()
    with ExitStack() as stack:
        nodes = _nodes(stack, site, way)
        servers = text(*nodes) if way == "own addresses" else text(nodes[0])
        consumer = java_client(stack, client, "ThroughNodes", "consume", servers, topic, topic)
        producer = java_client(
            stack, client, "ThroughNodes", "produce", servers, topic, "writers", str(RECORDS)
        )
        _until(lambda: len(producer.said("ACK")) > 300, 60)
        peers = consumer.peers() | producer.peers()
        for node in nodes:
            node.kill()
            time.sleep(3)
            peers |= consumer.peers() | producer.peers()
            node.start()
            time.sleep(3)
            peers |= consumer.peers() | producer.peers()
        producer.wait(150)
        acknowledged = set(producer.said("ACK"))
        _until(lambda: acknowledged <= set(consumer.said("GOT")), 90)
        stored = _read_through(nodes[1], topic)

    twice = sum(count > 1 for count in Counter(consumer.said("GOT")).values())
    failed = len(producer.said("FAILED"))
    print(
        f"{client} on {brokers}, {way}: {len(acknowledged)} acknowledged, {failed} failed calls, "
        f"{twice} consumed twice, 0 missing"
    )
    assert peers
    assert peers <= {node.address[1] for node in nodes}, "clients reach nothing but nodes"
    assert len(acknowledged) > RECORDS * 0.8
    assert acknowledged <= stored


def _nodes(stack: ExitStack, site: Site, way: str) -> list[NodeProcess]:
    name_server = site.settings.name_servers[0]
    if way == "own addresses":
        return [stack.enter_context(NodeProcess(name_server, name)) for name in ("one", "two")]
    first = stack.enter_context(NodeProcess(name_server, "one", reuse_port=True))
    port = first.address[1]
    return [first, stack.enter_context(NodeProcess(name_server, "two", port, reuse_port=True))]


def _read_through(node: NodeProcess, topic: str) -> set[str]:
    settings, bodies = ClientSettings((node.address,)), set()
    with Metadata(settings) as metadata, RangeReader(settings, group="g") as reader:
        for queue, end in metadata.ends(topic, stable=False).items():
            for batch in reader.read(QueueRange(queue, 0, end.latest_offset)):
                bodies |= {message.body.decode() for message in batch.messages()}
    return bodies


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "brokers",
    [
        pytest.param("4.9.7", marks=pytest.mark.soak),
        pytest.param("5.5.0"),
        pytest.param("5.5.0" + TWO, marks=pytest.mark.soak),
    ],
)
def test_members_are_back_when_their_genuine_broker_is(brokers, open_site) -> None:
    site = open_site(brokers)
    topic = site.topic(queues=1)
    queue = Queue("broker-a", topic, 0)
    with NodeProcess(site.settings.name_servers[0], "members") as node:
        settings = ClientSettings((node.address,), route_period_ms=200)
        with PullConsumer(settings, group="members") as consumer:
            consumer.join([Subscription(topic)])
            site.cluster.kill_broker()
            with pytest.raises((errors.Busy, errors.ConnectError, errors.UnknownTopic)):
                consumer.pull(queue, 0)
            if brokers.endswith(TWO):
                assert consumer.pull(Queue("broker-b", topic, 0), 0).status == "nothing"
            site.cluster.start_broker()
            started = time.monotonic()
            with PullConsumer(site.settings, group="members") as direct:
                _until(lambda: _members(direct, topic) == [consumer.client_id], 60)
            print(f"{brokers}: member again after {time.monotonic() - started:.1f} s")
            _until(lambda: _pulls(consumer, queue), 60)


def _members(consumer: PullConsumer, topic: str) -> list[str]:
    try:
        return consumer.members(topic)
    except errors.RocketMQError:
        return []


def _pulls(consumer: PullConsumer, queue: Queue) -> bool:
    try:
        return consumer.pull(queue, 0).status == "nothing"
    except errors.RocketMQError:
        return False


def _until(true, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s * PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.2)


def admin_tool(line: str, node: NodeProcess, *words: str) -> str:
    """Run a command of Java's administration tool at a node; return what it prints."""
    needs = require(line)
    java, artifacts = needs["java"], needs["artifacts"]
    assert isinstance(java, JavaRuntime)
    assert isinstance(artifacts, RocketMQArtifacts)
    done = subprocess.run(
        [
            *(str(java.executable), "-Xmx256m", "-XX:TieredStopAtLevel=1"),
            *("-Drocketmq.client.logRoot=/dev/null", "-cp", artifacts.classpath),
            *("org.apache.rocketmq.tools.command.MQAdminStartup", *words, "-n", text(node)),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
    )
    return done.stdout + done.stderr


@pytest.mark.timeout(240)
def test_javas_tools_create_topics_and_reset_offsets_through_a_node(open_site) -> None:
    site = open_site("5.5.0")
    topic, group = f"made-{time.time_ns()}", "reset"
    with ExitStack() as stack:
        node = stack.enter_context(NodeProcess(site.settings.name_servers[0], "tools"))
        made = admin_tool(
            "5.5.0", node, "updateTopic", "-b", text(node), "-t", topic, "-r", "1", "-w", "1"
        )
        settings = ClientSettings((node.address,))
        with Producer(settings) as producer:
            ends = [producer.send(topic, b"x").offset for _ in range(3)]
        queue = Queue("broker-a", topic, 0)
        first = ConsumerSettings(consume_from="first")
        with Consumer(settings, group, {topic: ()}, consumer=first) as consumer:
            batch = consumer.receive(20_000)
            assert batch is not None
            consumer.confirm(batch)
        reset = admin_tool(
            "5.5.0", node, "resetOffsetByTime", "-g", group, "-t", topic, "-s", "1000"
        )
        with PullConsumer(settings, group=group) as pull:
            offset = pull.committed(queue)
    print(made, reset)
    assert "create topic" in made
    assert ends == [0, 1, 2]
    assert offset == 0, reset
