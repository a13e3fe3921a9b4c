"""One broker of two is down: its cost for a member that asks both in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.client.balance.test_orders import TOPIC, Member
from tests.kit.servers import memory_tubemq
from tubemq_client import Partition, ReceivedBatch, _pb, errors
from tubemq_client._core.balance_fetch import Idle
from tubemq_client._wire import methods
from tubemq_client.embedded import Switches, TopicSpec
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import TracedRequest

CONNECT_MS, REPLY_MS = 2_000, 5
LIVING = Partition(1, TOPIC, 0)


memory = memory_tubemq(
    [TopicSpec(TOPIC, 1, 4)],
    brokers=2,
    switches=Switches(flush_interval_ms=None, unflushed_records=None),
)


def take_time(member: Member, memory: MemoryTubeMQ) -> Callable[[], int]:
    """Let every request take time, more at brokers that are down; return the total."""
    answer, waited = member.driver._answer, 0

    def slowly(traced: TracedRequest) -> Any:
        nonlocal waited
        if traced.address in memory.unplugged:
            waited += CONNECT_MS
            member.driver.clock.advance(CONNECT_MS)
            raise errors.ConnectError("away")
        member.driver.clock.advance(REPLY_MS)
        return answer(traced)

    member.driver._answer = slowly
    return lambda: waited


def append(memory: MemoryTubeMQ, partition: Partition = LIVING) -> None:
    request = _pb.SendMessageRequestP2B(
        clientId="producer",
        topicName=TOPIC,
        partitionId=partition.partition_id,
        data=b"x",
        flag=0,
        checkSum=-1,
        sentAddr=0,
    )
    assert memory.reply(
        TracedRequest(0, memory.node(1).address, methods.SEND_MESSAGE.name, request)
    ).success


def test_a_broker_that_is_down_leaves_most_time_to_the_other(memory: MemoryTubeMQ) -> None:
    member = Member(memory, "a")
    member.settle()
    assert len(member.held) == 8
    waited = take_time(member, memory)
    memory.unplugged.add(memory.node(2).address)
    start, received = memory.clock(), 0
    while memory.clock() < start + 30_000:
        append(memory)
        result = member.fetch()
        if isinstance(result, ReceivedBatch):
            member.confirm(result)
            received += 1
        elif isinstance(result, Idle) and result.wait_ms:
            memory.elapse(result.wait_ms)
    assert waited() <= 14_000
    assert received >= 500
    memory.unplugged.clear()
    memory.elapse(10_000)
    asked_before = len(member.requests(methods.GET_MESSAGES))
    for _ in range(20):
        member.fetch()
    after = member.requests(methods.GET_MESSAGES)[asked_before:]
    assert {request.partitionId for request in after} == {0, 1, 2, 3}


def test_brokers_that_are_down_do_not_cost_other_leases() -> None:
    memory = MemoryTubeMQ(13, [TopicSpec(TOPIC, 1, 1)])
    member = Member(memory, "a")
    member.settle()
    assert len(member.held) == 13
    take_time(member, memory)
    memory.unplugged.update(memory.node(broker).address for broker in range(2, 14))
    memory.elapse(10_000)
    member.driver.run(member.session.broker_heartbeats_if_due())  # finds out which broker is down
    for _ in range(20):
        before = memory.clock()
        memory.elapse(member.driver.run(member.session.broker_heartbeats_if_due()))
        assert memory.clock() - before <= 15_000, "a lease lasts 30 s without a heartbeat"
    memory.unplugged.clear()
    for _ in range(3):
        memory.elapse(member.driver.run(member.session.broker_heartbeats_if_due()))
    assert member.held == [LIVING], "brokers that are back say what was lost meanwhile"


def test_a_confirmation_does_not_wait_for_an_avoided_broker(memory: MemoryTubeMQ) -> None:
    member = Member(memory, "a")
    member.settle()
    append(memory)
    append(memory, Partition(1, TOPIC, 1))
    first, second = member.receive(), member.receive()
    assert {first.partition, second.partition} == {LIVING, Partition(1, TOPIC, 1)}
    waited = take_time(member, memory)
    memory.unplugged.add(memory.node(1).address)
    with pytest.raises(errors.ConnectError, match="away"):
        member.confirm(first)
    with pytest.raises(errors.ConnectError):
        member.confirm(first)
    cost = waited()
    with pytest.raises(errors.NetworkError, match="left alone"):
        member.confirm(second)
    assert waited() == cost
    memory.unplugged.clear()
    memory.elapse(10_000)
    assert member.everything() == []


def test_a_confirmation_is_the_attempt_when_the_pause_is_over(memory: MemoryTubeMQ) -> None:
    member = Member(memory, "a")
    member.settle()
    append(memory)
    batch = member.receive()
    memory.unplugged.add(memory.node(1).address)
    with pytest.raises(errors.ConnectError):
        member.confirm(batch)
    memory.unplugged.clear()
    memory.elapse(10_000)
    assert member.confirm(batch) == 28
    assert not member.session.fetching.breaker.is_suspect(memory.node(1))
    assert member.everything() == []
