"""Unmodified Java clients produce and consume through two nodes in front of a genuine broker.

One node is killed in mid-stream and comes back, then the other; every acknowledged record is
consumed. Clients list both nodes as their name servers.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from devkit.rocketmq.artifacts import Line, RocketMQArtifacts
from devkit.rocketmq.genuine import GenuineRocketMQ
from rocketmq_client import Admin
from rocketmq_client.snode import SnodeSettings
from tests.rocketmq.sites import require
from tests.rocketmq.snode.conftest import Node
from tubemq_provider.engines.java import JavaRuntime

pytestmark = [pytest.mark.real, pytest.mark.slow]

SOURCE = Path(__file__).with_name("java") / "ThroughNodes.java"
RECORDS = 3_000


class JavaClient:
    """One Java process; its lines are gathered as they come."""

    def __init__(self, artifacts: RocketMQArtifacts, java: JavaRuntime, *words: str) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [
                *(str(java.executable), "-Xmx256m", "-XX:TieredStopAtLevel=1"),
                *("-Drocketmq.client.logRoot=/dev/null", "-cp", artifacts.classpath),
                *(str(SOURCE), *words),
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

    def wait(self, timeout_s: float) -> None:
        self._process.wait(timeout_s)
        self._reader.join(10)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("line", [pytest.param("4.9.7", marks=pytest.mark.soak), "5.5.0"])
def test_java_clients_lose_nothing_when_nodes_die(line: Line, tmp_path: Path) -> None:
    needs = require(line)
    with (
        GenuineRocketMQ(line, tmp_path, **needs) as mq,  # type: ignore[arg-type]
        Admin(mq.settings) as admin,
        ExitStack() as stack,
    ):
        admin.create_topic("orders", queues=4)
        nodes = [_node(mq, stack, name) for name in ("one", "two")]
        servers = ";".join(f"127.0.0.1:{node.address[1]}" for node in nodes)

        def client(*words: str) -> JavaClient:
            made = JavaClient(needs["artifacts"], needs["java"], *words)  # type: ignore[arg-type]
            stack.callback(made.close)
            return made

        consumer = client("consume", servers, "orders", "readers")
        producer = client("produce", servers, "orders", "writers", str(RECORDS))
        _until(lambda: len(producer.said("ACK")) > 300, 60)
        for node in nodes:
            node.kill()
            time.sleep(3)
            _node(mq, stack, node.node._settings.name, node.address[1])
            time.sleep(3)
        producer.wait(120)
        acknowledged = set(producer.said("ACK"))
        _until(lambda: acknowledged <= set(consumer.said("GOT")), 90)

    twice = sum(count > 1 for count in Counter(consumer.said("GOT")).values())
    failed = len(producer.said("FAILED"))
    print(f"{line}: {len(acknowledged)} acknowledged, {failed} failed calls, {twice} twice")
    assert len(acknowledged) > RECORDS * 0.9


def _node(mq: GenuineRocketMQ, stack: ExitStack, name: str, port: int = 0) -> Node:
    options = SnodeSettings(
        (mq.name_server,), name=name, listen=("127.0.0.1", port), discovery_period_ms=500
    )
    return stack.enter_context(Node(options))


def _until(true, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.2)
