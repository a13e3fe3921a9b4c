"""Sending step by step: the window, overflow, and what a lost receipt means."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.core.conftest import PARTITION, TOPIC
from tubemq_client import Partition, Record, errors
from tubemq_client._core.identity import ClientIds
from tubemq_client._core.master import MasterSession
from tubemq_client._core.publishing import ProducerSession
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import Asked

SEND = "send message"


@pytest.fixture
def producer(mq: MemoryTubeMQ, session: MasterSession, ids: ClientIds) -> ProducerSession:
    producer = ProducerSession(session, ids.producer())
    producer.topics.add(TOPIC)
    driver = mq.driver()
    driver.run(producer.register())
    driver.run(producer.heartbeat())
    return producer


def numbered() -> Any:
    return (Record(b"%d" % n, partition=PARTITION) for n in itertools.count())


def test_the_window_bounds_what_is_unanswered_and_what_is_taken(
    mq: MemoryTubeMQ, producer: ProducerSession
) -> None:
    driver = mq.driver()
    taken: list[bytes] = []

    def counted() -> Any:
        for record in itertools.islice(numbered(), 100):
            taken.append(record.body)
            yield record

    receipts = driver.stream(producer.send_all(TOPIC, counted(), 0, 8))
    for n in range(1, 21):
        next(receipts)
        assert len(taken) == n + 7
        assert driver.asked.count(SEND) == n + 7


def test_overflow_is_sent_again_with_a_pause_and_order_of_receipts_stays(
    mq: MemoryTubeMQ, producer: ProducerSession
) -> None:
    mq.broker(1).faults.overflow_every = 4
    driver = mq.driver()
    sending = producer.send_all(TOPIC, itertools.islice(numbered(), 9), 0, 3)
    receipts = list(driver.stream(sending))
    assert sorted(r.offset for r in receipts) == [28 * n for n in range(9)]
    assert driver.asked.count(SEND) == 9 + len(driver.slept)
    assert set(driver.slept) == {50}


def test_overflow_that_does_not_end_is_raised(mq: MemoryTubeMQ, producer: ProducerSession) -> None:
    mq.broker(1).faults.overflow_every = 1
    driver = mq.driver()
    with pytest.raises(errors.Overflow):
        driver.run(producer.send_one(TOPIC, Record(b"x", partition=PARTITION), 0))
    assert sum(driver.slept) <= 10_000


def test_a_lost_receipt_is_raised_not_sent_again(
    mq: MemoryTubeMQ, producer: ProducerSession
) -> None:
    def cut(asked: Asked, reply: Any) -> Any:
        if asked.method == SEND:
            raise errors.ConnectionLost("cut")
        return reply

    mq.tamper = cut
    driver = mq.driver()
    with pytest.raises(errors.ConnectionLost):
        driver.run(producer.send_one(TOPIC, Record(b"x", partition=PARTITION), 0))
    assert driver.asked == [SEND]
    assert mq.broker(1).ends(TOPIC, 0).memory == 28, "the record was stored all the same"


def test_a_producer_the_master_forgot_registers_with_its_heartbeat(
    mq: MemoryTubeMQ, producer: ProducerSession
) -> None:
    mq.elapse(31_000)
    driver = mq.driver()
    driver.run(producer.heartbeat())
    assert driver.asked == ["producer heartbeat", "register producer", "producer heartbeat"]
    assert producer.routes[TOPIC] == [Partition(b, TOPIC, p) for b in (1, 2) for p in (0, 1)]


def test_routes_follow_the_brokers_that_are_there(
    mq: MemoryTubeMQ, producer: ProducerSession
) -> None:
    mq.stop_broker(1)
    mq.driver().run(producer.heartbeat())
    assert producer.routes[TOPIC] == [Partition(2, TOPIC, p) for p in (0, 1)]
    mq.start_broker(1)
    mq.driver().run(producer.heartbeat())
    assert len(producer.routes[TOPIC]) == 4
