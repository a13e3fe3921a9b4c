"""A member of the published Java client and one of ours share a group: nothing lost or repeated."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.system.behaviour.sites import GROUP, eventually, new_group
from tools.benchmarks.java_client import run_java
from tools.devkit.tubemq.genuine import GenuineTubeMQ
from tubemq_client import ClientSettings, Consumer, Producer, Record
from tubemq_client.model import ConsumerSettings

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(300)]

MEMBER = Path(__file__).with_name("java") / "GroupMember.java"
STAY_MS = 30_000
COUNT = 240


def test_java_and_python_share_a_group(genuine: GenuineTubeMQ) -> None:
    settings = ClientSettings((genuine.master_address,), heartbeat_period_ms=1_000)
    group, ours, theirs = new_group(), [], []

    def java() -> None:
        output = run_java(genuine, MEMBER, genuine.masters, group, GROUP, str(STAY_MS))
        theirs.extend(output.splitlines())

    latest = ConsumerSettings(consume_position="latest")
    with Consumer(settings, group, {GROUP: ()}, consumer=latest) as consumer:
        eventually(lambda: len(consumer.assignment) == 12 or None)
        member = threading.Thread(target=java, daemon=True)
        member.start()
        eventually(lambda: len(consumer.assignment) == 6 or None)
        sent = [b"shared-%d" % number for number in range(COUNT)]
        with Producer(settings) as producer:
            partitions = producer.partitions(GROUP)
            records = [Record(body, partition=partitions[n % 12]) for n, body in enumerate(sent)]
            list(producer.send_many(GROUP, records))
        deadline = time.monotonic() + STAY_MS / 1000 + 30
        while (member.is_alive() or len(consumer.assignment) < 12) and time.monotonic() < deadline:
            for batch in consumer.batches(1_000):
                ours += [message.body for message in batch.messages()]
        member.join(30)
        for batch in consumer.batches(2_000):
            ours += [message.body for message in batch.messages()]
    shared = [line.encode() for line in theirs if line.startswith("shared-")]
    assert sorted(ours + shared) == sorted(sent)
    assert min(len(ours), len(shared)) >= COUNT // 4
