"""A Java and a Python member in one group on genuine brokers: each gets its share, and what one
leaves the other takes over."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from rocketmq_client import ClientSettings, Consumer, ConsumerSettings, Metadata, Producer
from rocketmq_client.model import address_text
from tests.rocketmq.real.test_java_through_nodes import java_client
from tools.devkit.patience import PATIENCE

pytestmark = [pytest.mark.real, pytest.mark.slow]

RECORDS = 400


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "line", [pytest.param("4.9.7", marks=pytest.mark.soak), pytest.param("5.5.0")]
)
def test_java_and_python_members_divide_the_queues(line, open_site) -> None:
    site = open_site(line)
    group = topic = site.topic(queues=8)
    first = ConsumerSettings(consume_from="first", commit_ms=200)
    with ExitStack() as stack:
        producer = stack.enter_context(Producer(site.settings))
        consumer = stack.enter_context(Consumer(site.settings, group, {topic: ()}, consumer=first))
        _until(lambda: _share(consumer, topic) == 8)
        servers = address_text(site.settings.name_servers[0])
        java = java_client(stack, line, "ThroughNodes", "consume", servers, topic, group)
        _until(lambda: _share(consumer, topic) == 4, 90)
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number, keys=str(number))
        mine = _read(consumer, RECORDS // 2)
        _until(lambda: len(java.said("GOT")) >= RECORDS // 2)
        theirs = java.said("GOT")
        consumer.commit()
        # Java commits by time. What it has not committed would come again after its death.
        _until(lambda: _committed(site.settings, topic, group) == RECORDS)
        killed = time.monotonic()
        java.close()
        _until(lambda: _share(consumer, topic) == 8)
        took = time.monotonic() - killed
        for number in range(RECORDS, RECORDS + 80):
            producer.send(topic, b"%d" % number, keys=str(number))
        later = _read(consumer, 80)
        consumer.commit()

    print(f"{line}: {len(mine)} here, {len(theirs)} in Java; its queues taken {took:.2f} s later")
    assert sorted(mine + theirs, key=int) == [str(number) for number in range(RECORDS)]
    assert sorted(later, key=int) == [str(number) for number in range(RECORDS, RECORDS + 80)]
    assert _committed(site.settings, topic, group) == RECORDS + 80


def _committed(settings: ClientSettings, topic: str, group: str) -> int:
    with Metadata(settings) as metadata:
        return sum(offset or 0 for offset in metadata.group_offsets(topic, group).values())


def _share(consumer: Consumer, topic: str) -> int:
    return sum(queue.topic == topic for queue in consumer.assignment)


def _read(consumer: Consumer, count: int) -> list[str]:
    found: list[str] = []
    deadline = time.monotonic() + 60 * PATIENCE
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        if batch := consumer.receive(200):
            found += [message.keys[0] for message in batch.messages]
            consumer.confirm(batch)
    return found


def _until(true, patience_s: float = 30) -> None:
    deadline = time.monotonic() + patience_s * PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)
