"""The client-balance consumer step by step: leases, heartbeats, and what a loss leaves behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.client.core.conftest import BESIDE, PARTITION, TOPIC
from tubemq_client import _pb, errors
from tubemq_client._core.assigned import READ_STATUS, AssignedSession
from tubemq_client._core.identity import ClientIds
from tubemq_client._core.master import MasterSession
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import TracedRequest

EARLIEST = READ_STATUS["earliest"]


@pytest.fixture
def consumer(memory: MemoryTubeMQ, session: MasterSession, ids: ClientIds) -> AssignedSession:
    consumer = AssignedSession(session, "group", ids.consumer("group", "Balance"), {TOPIC: ()})
    memory.driver().run(consumer.open())
    return consumer


def test_heartbeats_keep_partitions_and_their_absence_loses_them(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    driver = memory.driver()
    driver.run(consumer.assign(PARTITION, None, EARLIEST))
    for _ in range(4):
        memory.elapse(20_000)
        driver.run(consumer.heartbeat_brokers())
    assert consumer.held.keys() == {PARTITION}
    memory.elapse(31_000)
    driver.run(consumer.heartbeat_brokers())
    assert consumer.held == {}


def test_brokers_without_partitions_get_no_heartbeat(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    driver = memory.driver()
    driver.run(consumer.assign(PARTITION, None, EARLIEST))
    driver.run(consumer.assign(BESIDE, None, EARLIEST))
    driver.run(consumer.heartbeat_brokers())
    beats = [
        step
        for step in driver.trace
        if isinstance(step, TracedRequest) and step.method == "broker heartbeat"
    ]
    assert [beat.address for beat in beats] == [memory.node(1).address]
    assert len(beats[0].request.partitionInfo) == 2


def test_held_partitions_are_reported_when_they_change(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    driver = memory.driver()
    driver.run(consumer.assign(PARTITION, None, EARLIEST))
    for _ in range(2):
        driver.run(consumer.heartbeat_master())
    driver.run(consumer.release(PARTITION, consumed=False))
    driver.run(consumer.heartbeat_master())
    reports = [
        step.request.subRepInfo.reportSubInfo
        for step in driver.trace
        if isinstance(step, TracedRequest) and step.method == "consumer heartbeat v2"
    ]
    assert reports == [True, False, True]


def test_a_member_the_master_forgot_registers_again(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    memory.elapse(31_000)
    driver = memory.driver()
    driver.run(consumer.heartbeat_master())
    assert driver.asked == ["consumer heartbeat v2", "register consumer v2"]
    assert len(driver.run(consumer.refresh())) == 4


def test_an_interrupted_confirmation_is_repeated_and_skips_nothing(
    memory: MemoryTubeMQ, consumer: AssignedSession, send: Callable[..., list[int]]
) -> None:
    send(*(b"%02d" % n for n in range(30)))
    driver = memory.driver()
    driver.run(consumer.assign(PARTITION, 0, EARLIEST))
    first = driver.run(consumer.fetching.pull(PARTITION))
    assert first is not None

    def cut(traced: TracedRequest, reply: object) -> object:
        memory.tamper = None
        raise errors.ConnectionLost("cut")

    memory.tamper = cut
    driver.run(consumer.fetching.confirm(first, consumed=True))
    again = driver.run(consumer.fetching.pull(PARTITION))
    assert again is not None
    assert again.start == first.start + 28 * len(first)


def test_leaving_gives_back_reachable_partitions_and_continues(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    driver = memory.driver()
    first, second = PARTITION, type(PARTITION)(2, TOPIC, 0)
    driver.run(consumer.assign(first, None, EARLIEST))
    driver.run(consumer.assign(second, None, EARLIEST))
    memory.unplugged.add(memory.node(1).address)
    driver.run(consumer.close())
    assert driver.asked[-3:] == ["register partition", "register partition", "close consumer"]
    assert len(memory.broker(2).leases) == 0


def test_a_broker_that_refuses_the_token_of_a_heartbeat_loses_its_partitions(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    driver = memory.driver()
    driver.run(consumer.assign(PARTITION, None, EARLIEST))
    driver.run(consumer.assign(BESIDE, None, EARLIEST))
    memory.tamper = lambda traced, reply: (
        _pb.HeartBeatResponseB2C(success=False, errCode=415, errMsg="who are you?")
        if traced.method == "broker heartbeat"
        else reply
    )
    driver.run(consumer.heartbeat_brokers())
    assert consumer.held == {}
    memory.tamper = None
    driver.run(consumer.assign(PARTITION, None, EARLIEST))
    assert consumer.held.keys() == {PARTITION}


def test_a_held_partition_is_not_registered_a_second_time(
    memory: MemoryTubeMQ, consumer: AssignedSession
) -> None:
    driver = memory.driver()
    driver.run(consumer.assign(PARTITION, None, EARLIEST))
    before = len(driver.trace)
    driver.run(consumer.assign(PARTITION, None, EARLIEST))
    assert len(driver.trace) == before
    assert consumer.held.keys() == {PARTITION}
