"""A broker that was suspended serves abandoned requests late, after newer ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.client.balance.test_orders import ONE, TOPIC, ZERO, Member, send
from tubemq_client import errors
from tubemq_client._core.balance_fetch import Idle
from tubemq_client._wire import methods
from tubemq_client.embedded import ReadLimits, Switches, TopicSpec
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import TracedRequest

SMALL = ReadLimits(first_fetch_bytes=100, fetch_bytes=1_000, memory_scan=(50, 100))


@pytest.fixture
def member() -> Member:
    in_memory = Switches(reads=SMALL, flush_interval_ms=None, unflushed_records=None)
    member = Member(MemoryTubeMQ(1, [TopicSpec(TOPIC, 1, 2)], switches=in_memory), "a")
    member.settle()
    return member


def late(member: Member, method: Any) -> Callable[[], Any]:
    """Delay the member's next `method` until the result is called; the member stops waiting."""
    answer = member.driver._answer
    delayed: list[TracedRequest] = []

    def keep(traced: TracedRequest) -> Any:
        if traced.method != method.name:
            return answer(traced)
        member.driver._answer = answer
        delayed.append(traced)
        raise errors.RpcTimeout("late")

    member.driver._answer = keep
    return lambda: member.mq.reply(delayed.pop())


def test_a_fetch_served_late_does_not_enlarge_what_is_confirmed(member: Member) -> None:
    mq = member.mq
    send(mq, ZERO, b"a")
    member.session.table.freeze([ONE])
    serve = late(member, methods.GET_MESSAGES)
    assert isinstance(member.fetch(), Idle)
    mq.elapse(1_000)
    batch = member.receive()
    send(mq, ZERO, b"b")
    assert serve().errCode == 412, "what was given up is refused"
    assert member.confirm(batch) == 28
    assert member.everything() == [[b"b"]], "and what was confirmed stays so"


def test_a_fetch_served_late_skips_nothing_of_a_group_that_is_behind(member: Member) -> None:
    """The broker would deliver more to it than to the fetch after it, all below the log's end."""
    mq = member.mq
    sent = [b"%02d" % n for n in range(40)]
    send(mq, ZERO, *sent)
    mq.flush()
    member.session.table.freeze([ONE])
    serve = late(member, methods.GET_MESSAGES)
    assert isinstance(member.fetch(), Idle)
    mq.elapse(1_000)
    batch = member.receive()
    received = [message.body for message in batch.messages()]
    assert 0 < len(received) < len(sent)
    serve()
    member.confirm(batch)
    received += [body for bodies in member.everything() for body in bodies]
    assert received == sent


def test_a_member_that_abandoned_requests_keeps_its_partitions(member: Member) -> None:
    """Brokers know it by another client id then; heartbeats and orders must use the same."""
    mq = member.mq
    serve = late(member, methods.GET_MESSAGES)
    assert isinstance(member.fetch(), Idle)
    serve()
    mq.elapse(1_000)
    for _ in range(4):
        member.fetch()
    for _ in range(6):
        mq.elapse(10_000)
        member.beat()
        member.driver.run(member.session.broker_heartbeats_if_due())
    assert member.held == [ZERO, ONE]
    other = Member(mq, "b")
    other.settle(member)
    assert sorted(member.held + other.held) == [ZERO, ONE]
    assert len(other.held) == 1


@pytest.mark.parametrize("method", [methods.REGISTER_PARTITION, methods.GET_MESSAGES])
def test_taking_a_partition_again_survives_silence_as_well(member: Member, method: Any) -> None:
    mq = member.mq
    send(mq, ZERO, b"a", b"b")
    member.session.table.freeze([ONE])
    late(member, methods.GET_MESSAGES)
    member.fetch()
    for _ in range(3):
        mq.elapse(10_000)
        serve = late(member, method)
        assert isinstance(member.fetch(), Idle)
        serve()
        member.driver.run(member.session.broker_heartbeats_if_due())
        member.beat()
    mq.elapse(10_000)
    assert member.held == [ZERO, ONE]
    assert [body for bodies in member.everything() for body in bodies] == [b"a", b"b"]


def test_a_confirmation_served_late_does_not_confirm_a_rejected_batch(member: Member) -> None:
    mq = member.mq
    send(mq, ZERO, b"a")
    batch = member.receive()
    send(mq, ZERO, b"b")
    serve = late(member, methods.COMMIT_OFFSET)
    with pytest.raises(errors.RpcTimeout):
        member.confirm(batch)
    mq.elapse(1_000)  # the broker is avoided for a moment
    batch = member.receive()
    serve()
    member.confirm(batch, consumed=False)
    mq.elapse(1_000)
    assert member.everything() == [[b"b"]]


def test_an_unregister_served_late_confirms_no_unreceived_record(member: Member) -> None:
    """The master moves a partition away and assigns it to the same member again.

    The broker receives the first order only when the next batch is delivered.
    """
    mq = member.mq
    eager = replace(member.session.consumer, rollback_on_rebalance=False)
    member.session.consumer = member.session.fetching.settings = eager
    send(mq, ZERO, b"a")
    member.session.table.freeze([ONE])
    member.receive()
    first, second = (late(member, methods.REGISTER_PARTITION) for _ in range(2))
    held = member.session.table.held[ZERO]
    member.session.table.remove(ZERO)
    member.driver.run(member.session._unregister(held))
    mq.elapse(1_000)
    member.settle()
    assert member.held == [ZERO, ONE]
    send(mq, ZERO, b"b")
    batch = member.receive()
    first()
    second()
    member.confirm(batch, consumed=False)
    mq.elapse(1_000)
    assert [body for bodies in member.everything() for body in bodies] == [b"a", b"b"]
