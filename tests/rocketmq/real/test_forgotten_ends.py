"""A 5.x broker that is killed forgets which halves ended in its last seconds, and asks again: what
Java's producer then stores twice, this client's stores once, whichever process answers."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack

import pytest

from rocketmq_client import Metadata, QueueRange, RangeReader, TransactionalProducer
from rocketmq_client.model import address_text
from tests.rocketmq.real.test_java_through_nodes import java_client
from tools.devkit.patience import PATIENCE

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.soak]

COUNT = 20


@pytest.mark.timeout(600)
@pytest.mark.parametrize("who", ["java", "python"])
def test_a_broker_forgets_ends_and_only_java_commits_them_twice(who, open_site) -> None:
    site = open_site("5.5.0")
    topic, asked = site.topic(4), []

    def check(message) -> str:
        asked.append(int(message.body))
        return "commit"

    with ExitStack() as stack:
        if who == "java":
            servers = address_text(site.settings.name_servers[0])
            words = ("Transactions", servers, topic, topic, str(COUNT))
            java = java_client(stack, "5.5.0", *words)
            _until(lambda: java.said("READY") and len(_readable(site, topic)) == COUNT)
        else:
            with TransactionalProducer(site.settings, topic, [topic], check) as producer:
                for number in range(COUNT):
                    producer.commit(producer.begin(topic, b"%d" % number))
        with site.cluster.broker_down():
            pass
        if who == "python":
            stack.enter_context(TransactionalProducer(site.settings, topic, [topic], check))
        _until(lambda: java.said("ASKED") if who == "java" else asked)
        time.sleep(30 * PATIENCE)  # every half of a second try has been asked about
        found = _readable(site, topic)
    twice = [number for number, times in found.items() if times > 1]
    print(f"{who}: {len(found)} of {COUNT} readable, {len(twice)} twice")
    assert sorted(found) == list(range(COUNT))
    assert bool(twice) == (who == "java"), "if Java's are once too, the broker has changed"


def _readable(site, topic: str) -> Counter[int]:
    found: Counter[int] = Counter()
    with Metadata(site.settings) as metadata, RangeReader(site.settings, group="drill") as reader:
        for queue, ends in metadata.ends(topic, stable=False).items():
            for batch in reader.read(QueueRange(queue, ends.min_offset, ends.max_offset)):
                found.update(int(message.body) for message in batch.messages())
    return found


def _until(true) -> None:
    deadline = time.monotonic() + 120 * PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.2)
