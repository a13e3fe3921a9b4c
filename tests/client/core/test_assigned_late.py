"""A client-balanced member that stopped waiting: requests served later move nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.client.core.conftest import PARTITION, TOPIC, bodies
from tubemq_client import ReceivedBatch, errors
from tubemq_client._core.assigned import AssignedSession
from tubemq_client._core.identity import ClientIds
from tubemq_client._core.master import MasterSession
from tubemq_client._wire import methods
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import ScriptedDriver, TracedRequest

SENT = [b"%02d" % n for n in range(40)]


class Member:
    """Session that holds the partition, and its driver."""

    def __init__(self, memory: MemoryTubeMQ, session: MasterSession, ids: ClientIds) -> None:
        self.mq = memory
        self.driver: ScriptedDriver = memory.driver()
        self.session = AssignedSession(
            session, "group", ids.consumer("group", "Balance"), {TOPIC: ()}
        )
        self.driver.run(self.session.open())
        self.driver.run(self.session.assign(PARTITION, 0))

    def pull(self) -> ReceivedBatch:
        batch = self.driver.run(self.session.fetching.pull(PARTITION))
        assert batch is not None
        return batch

    def confirm(self, batch: ReceivedBatch, *, consumed: bool = True) -> int:
        return self.driver.run(self.session.fetching.confirm(batch, consumed=consumed))

    def rest(self) -> list[bytes]:
        """Return the bodies of all remaining batches, each confirmed."""
        received: list[bytes] = []
        for _ in range(30):
            batch = self.driver.run(self.session.fetching.pull(PARTITION))
            if batch is not None:
                received += bodies([batch])
                self.confirm(batch)
        return received

    def late(self, method: Any) -> Callable[[], Any]:
        """Delay the next `method` to the servers until the result is called."""
        answer = self.driver._answer
        delayed: list[TracedRequest] = []

        def keep(traced: TracedRequest) -> Any:
            if traced.method != method.name:
                return answer(traced)
            self.driver._answer = answer
            delayed.append(traced)
            raise errors.RpcTimeout("late")

        self.driver._answer = keep
        return lambda: self.mq.reply(delayed.pop())

    @contextmanager
    def silent(self, method: Any) -> Iterator[Callable[[], list[Any]]]:
        """Delay each `method` to the servers until the result is called."""
        answer = self.driver._answer
        delayed: list[TracedRequest] = []

        def keep(traced: TracedRequest) -> Any:
            if traced.method != method.name:
                return answer(traced)
            delayed.append(traced)
            raise errors.RpcTimeout("late")

        self.driver._answer = keep
        try:
            yield lambda: [self.mq.reply(asked) for asked in delayed]
        finally:
            self.driver._answer = answer


@pytest.fixture
def member(
    memory: MemoryTubeMQ, session: MasterSession, ids: ClientIds, send: Callable[..., list[int]]
) -> Member:
    send(*SENT)
    return Member(memory, session, ids)


def test_a_pull_served_late_confirms_no_unreceived_record(member: Member) -> None:
    serve = member.late(methods.GET_MESSAGES)
    with pytest.raises(errors.RpcTimeout):
        member.pull()
    batch = member.pull()
    assert serve().errCode == 412, "what was given up is refused"
    member.confirm(batch)
    assert bodies([batch]) + member.rest() == SENT


def test_an_unconfirmed_batch_is_stale_after_a_failed_pull(member: Member) -> None:
    """The broker may take the second pull, and its batch, for the confirmed one."""
    batch = member.pull()
    serve = member.late(methods.GET_MESSAGES)
    with pytest.raises(errors.RpcTimeout):
        member.pull()
    serve()
    with pytest.raises(errors.StaleBatch, match="delivered again"):
        member.confirm(batch)
    assert member.rest() == SENT


def test_a_batch_that_a_second_pull_replaced_is_not_confirmed(member: Member) -> None:
    """Of the deliveries of one batch the broker confirms the last."""
    first = member.pull()
    second = member.pull()
    with pytest.raises(errors.StaleBatch, match="pulled again"):
        member.confirm(first)
    member.confirm(second)
    assert bodies([second]) + member.rest() == SENT


def test_a_batch_rejected_after_silence_is_delivered_again(member: Member) -> None:
    batch = member.pull()
    serve = member.late(methods.GET_MESSAGES)
    with pytest.raises(errors.RpcTimeout):
        member.pull()
    with pytest.raises(errors.StaleBatch, match="delivered again"):
        member.confirm(batch, consumed=False)
    serve()
    assert member.rest() == SENT


def test_a_confirmation_served_late_does_not_confirm_a_rejected_batch(member: Member) -> None:
    first = member.pull()
    serve = member.late(methods.COMMIT_OFFSET)
    with pytest.raises(errors.RpcTimeout):
        member.confirm(first)
    again = member.pull()  # which sent the confirmation before
    serve()
    assert member.confirm(again, consumed=False) == again.start == 28 * len(first)
    assert bodies([first]) + member.rest() == SENT


def test_a_confirmation_without_an_answer_may_be_repeated(member: Member) -> None:
    batch = member.pull()
    serve = member.late(methods.COMMIT_OFFSET)
    with pytest.raises(errors.RpcTimeout):
        member.confirm(batch)
    position = member.confirm(batch)
    serve()
    assert position > 0
    assert bodies([batch]) + member.rest() == SENT


def test_a_member_that_abandoned_requests_keeps_its_partition(
    memory: MemoryTubeMQ, member: Member
) -> None:
    member.late(methods.GET_MESSAGES)
    with pytest.raises(errors.RpcTimeout):
        member.pull()
    member.confirm(member.pull())
    for _ in range(6):
        memory.elapse(10_000)
        member.driver.run(member.session.broker_heartbeats_if_due())
    assert member.session.held.keys() == {PARTITION}
    member.driver.run(member.session.release(PARTITION, consumed=False))
    assert len(memory.broker(1).leases) == 0


def test_a_register_served_late_does_not_set_the_group_back(
    memory: MemoryTubeMQ, member: Member
) -> None:
    driver, session = member.driver, member.session
    driver.run(session.release(PARTITION, consumed=False))
    serve = member.late(methods.REGISTER_PARTITION)
    driver.run(session.assign(PARTITION, 0))
    batch = member.pull()
    member.confirm(batch)
    assert serve().errCode == 410
    assert bodies([batch]) + member.rest() == SENT


def test_abandoned_registers_do_not_set_the_group_back_later(member: Member) -> None:
    """All attempts of one call fail; the next call succeeds at once."""
    driver, session = member.driver, member.session
    driver.run(session.release(PARTITION, consumed=False))
    with member.silent(methods.REGISTER_PARTITION) as serve, pytest.raises(errors.RpcTimeout):
        driver.run(session.assign(PARTITION, 0))
    driver.run(session.assign(PARTITION, 0))
    batch = member.pull()
    member.confirm(batch)
    serve()
    assert bodies([batch]) + member.rest() == SENT


def test_an_unregister_served_late_confirms_no_unreceived_record(member: Member) -> None:
    """Its `consumed` refers to the batch delivered when it was sent."""
    driver, session = member.driver, member.session
    first = member.pull()
    with member.silent(methods.REGISTER_PARTITION) as serve, pytest.raises(errors.RpcTimeout):
        driver.run(session.release(PARTITION, consumed=True))
    driver.run(session.assign(PARTITION, None))
    second = member.pull()
    serve()
    assert member.confirm(second, consumed=False) == 0
    assert bodies([first]) == bodies([second])
    assert member.rest() == SENT


def test_confirming_a_batch_of_a_lost_partition_raises(
    memory: MemoryTubeMQ, member: Member
) -> None:
    """The lease ended while the user processed the batch."""
    batch = member.pull()
    memory.elapse(31_000)
    member.driver.run(member.session.broker_heartbeats_if_due())
    with pytest.raises(errors.StaleBatch, match="no longer held"):
        member.confirm(batch)
    member.driver.run(member.session.assign(PARTITION, None))
    with pytest.raises(errors.StaleBatch):
        member.confirm(batch)
    assert member.rest() == SENT


def test_a_broker_restarted_between_pull_and_confirmation_delivers_again(
    memory: MemoryTubeMQ, member: Member
) -> None:
    batch = member.pull()
    memory.stop_broker(1)
    memory.start_broker(1)
    with pytest.raises(errors.NotRegistered):
        member.confirm(batch)
    assert member.session.held == {}
    position = member.driver.run(member.session.assign(PARTITION, None)).current
    # Brokers that stop in order count delivered batches as consumed.
    assert SENT[position // 28 :] == member.rest()
