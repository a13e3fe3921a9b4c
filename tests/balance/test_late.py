"""A broker that stood still serves late what a member has given up, after what was asked since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.balance.test_orders import ONE, TOPIC, ZERO, Member, send
from tubemq_client import errors
from tubemq_client._core.balance_fetch import Idle
from tubemq_client._wire import methods
from tubemq_client.embedded import Switches, TopicSpec
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import Asked


@pytest.fixture
def member() -> Member:
    in_memory = Switches(flush_interval_ms=None, unflushed_records=None)
    member = Member(MemoryTubeMQ(1, [TopicSpec(TOPIC, 1, 2)], switches=in_memory), "a")
    member.settle()
    return member


def late(member: Member, method: Any) -> Callable[[], Any]:
    """Keep the member's next `method` from the servers until the result is called; the member has
    given up waiting for the answer."""
    answer = member.driver._answer
    kept: list[Asked] = []

    def keep(asked: Asked) -> Any:
        if asked.method != method.name:
            return answer(asked)
        member.driver._answer = answer
        kept.append(asked)
        raise errors.RpcTimeout("late")

    member.driver._answer = keep
    return lambda: member.mq.reply(kept.pop())


def test_a_fetch_served_late_does_not_enlarge_what_is_confirmed(member: Member) -> None:
    mq = member.mq
    send(mq, ZERO, b"a")
    member.session.table.freeze([ONE])
    serve = late(member, methods.GET_MESSAGES)
    assert isinstance(member.fetch(), Idle)
    mq.elapse(1_000)
    batch = member.receive()
    send(mq, ZERO, b"b")
    serve()
    with pytest.raises(errors.StaleBatch, match="late"):
        member.confirm(batch)
    found = [body for bodies in member.everything() for body in bodies]
    assert found == [b"a", b"b"], "at least once"


def test_a_confirmation_served_late_does_not_confirm_what_is_rejected(member: Member) -> None:
    mq = member.mq
    send(mq, ZERO, b"a")
    batch = member.receive()
    send(mq, ZERO, b"b")
    serve = late(member, methods.COMMIT_OFFSET)
    with pytest.raises(errors.RpcTimeout):
        member.confirm(batch)
    batch = member.receive()
    serve()
    member.confirm(batch, consumed=False)
    mq.elapse(1_000)
    assert member.everything() == [[b"b"]]
