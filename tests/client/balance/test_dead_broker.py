"""One broker of two is away: what that costs a member that asks both in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.client.balance.test_orders import TOPIC, Member
from tubemq_client import Partition, ReceivedBatch, _pb, errors
from tubemq_client._core.balance_fetch import Idle
from tubemq_client._wire import methods
from tubemq_client.embedded import Switches, TopicSpec
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import Asked

CONNECT_MS, REPLY_MS = 2_000, 5
LIVING = Partition(1, TOPIC, 0)


@pytest.fixture
def mq() -> MemoryTubeMQ:
    switches = Switches(flush_interval_ms=None, unflushed_records=None)
    return MemoryTubeMQ(2, [TopicSpec(TOPIC, 1, 4)], switches=switches)


def take_time(member: Member, mq: MemoryTubeMQ) -> Callable[[], int]:
    """Let every request cost time, more where a broker is away; tells what that added up to."""
    answer, waited = member.driver._answer, 0

    def slowly(asked: Asked) -> Any:
        nonlocal waited
        if asked.address in mq.unplugged:
            waited += CONNECT_MS
            member.driver.clock.advance(CONNECT_MS)
            raise errors.ConnectError("away")
        member.driver.clock.advance(REPLY_MS)
        return answer(asked)

    member.driver._answer = slowly
    return lambda: waited


def append(mq: MemoryTubeMQ, partition: Partition = LIVING) -> None:
    request = _pb.SendMessageRequestP2B(
        clientId="producer",
        topicName=TOPIC,
        partitionId=partition.partition_id,
        data=b"x",
        flag=0,
        checkSum=-1,
        sentAddr=0,
    )
    assert mq.reply(Asked(0, mq.node(1).address, methods.SEND_MESSAGE.name, request)).success


def test_a_broker_that_is_away_leaves_most_of_the_time_to_the_other(mq: MemoryTubeMQ) -> None:
    member = Member(mq, "a")
    member.settle()
    assert len(member.held) == 8
    waited = take_time(member, mq)
    mq.unplugged.add(mq.node(2).address)
    start, received = mq.clock(), 0
    while mq.clock() < start + 30_000:
        append(mq)
        found = member.fetch()
        if isinstance(found, ReceivedBatch):
            member.confirm(found)
            received += 1
        elif isinstance(found, Idle) and found.wait_ms:
            mq.elapse(found.wait_ms)
    assert waited() <= 14_000
    assert received >= 500
    mq.unplugged.clear()
    mq.elapse(10_000)
    asked = len(member.requests(methods.GET_MESSAGES))
    for _ in range(20):
        member.fetch()
    after = member.requests(methods.GET_MESSAGES)[asked:]
    assert {request.partitionId for request in after} == {0, 1, 2, 3}


def test_brokers_that_are_away_do_not_cost_the_leases_at_the_others() -> None:
    mq = MemoryTubeMQ(13, [TopicSpec(TOPIC, 1, 1)])
    member = Member(mq, "a")
    member.settle()
    assert len(member.held) == 13
    take_time(member, mq)
    mq.unplugged.update(mq.node(broker).address for broker in range(2, 14))
    mq.elapse(10_000)
    member.driver.run(member.session.broker_heartbeats_if_due())  # finds out who is away
    for _ in range(20):
        before = mq.clock()
        mq.elapse(member.driver.run(member.session.broker_heartbeats_if_due()))
        assert mq.clock() - before <= 15_000, "a lease lasts 30 s without a heartbeat"
    mq.unplugged.clear()
    for _ in range(3):
        mq.elapse(member.driver.run(member.session.broker_heartbeats_if_due()))
    assert member.held == [LIVING], "brokers that are back say what was lost meanwhile"


def test_a_confirmation_does_not_wait_for_a_broker_that_is_left_alone(mq: MemoryTubeMQ) -> None:
    member = Member(mq, "a")
    member.settle()
    append(mq)
    append(mq, Partition(1, TOPIC, 1))
    first, second = member.receive(), member.receive()
    assert {first.partition, second.partition} == {LIVING, Partition(1, TOPIC, 1)}
    waited = take_time(member, mq)
    mq.unplugged.add(mq.node(1).address)
    with pytest.raises(errors.ConnectError, match="away"):
        member.confirm(first)
    with pytest.raises(errors.ConnectError):
        member.confirm(first)
    cost = waited()
    with pytest.raises(errors.NetworkError, match="left alone"):
        member.confirm(second)
    assert waited() == cost
    mq.unplugged.clear()
    mq.elapse(10_000)
    assert member.everything() == []


def test_a_confirmation_is_the_attempt_when_the_pause_is_over(mq: MemoryTubeMQ) -> None:
    member = Member(mq, "a")
    member.settle()
    append(mq)
    batch = member.receive()
    mq.unplugged.add(mq.node(1).address)
    with pytest.raises(errors.ConnectError):
        member.confirm(batch)
    mq.unplugged.clear()
    mq.elapse(10_000)
    assert member.confirm(batch) == 28
    assert not member.session.fetching.breaker.is_suspect(mq.node(1))
    assert member.everything() == []
