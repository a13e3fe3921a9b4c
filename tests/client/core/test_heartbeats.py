"""Heartbeats when part of a cluster is down, and while records are being sent.

Master and brokers are a few lines here, because the tests are about answers and their absence.
Leases and losses over time are in `test_assigned`, routes that change in `tests/system/behaviour`.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.client.core.conftest import PARTITION, TOPIC
from tubemq_client import _pb, errors
from tubemq_client._core.assigned import AssignedSession
from tubemq_client._core.balance_partitions import HeldPartition
from tubemq_client._core.effects import Await, Call, Conversation, Now, Post, Ticket
from tubemq_client._core.flow_control import Pace
from tubemq_client._core.identity import ClientIds
from tubemq_client._core.master import MasterSession
from tubemq_client._core.registration import Registration
from tubemq_client._core.sending import ProducerSession
from tubemq_client._wire import methods
from tubemq_client.model import Address, BrokerNode, Partition
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import TracedRequest

MASTER: Address = ("master", 8715)
BROKERS = {number: BrokerNode(number, f"broker{number}", 8123) for number in (1, 2, 3)}


def consumer() -> AssignedSession:
    """Return a consumer that holds a partition at each of three brokers."""
    session = AssignedSession(MasterSession((MASTER,)), "group", "client", {"orders": ()})
    for number, broker in BROKERS.items():
        partition = Partition(number, "orders", 0)
        lease = Registration(broker, partition, "group", "client")
        session.held[partition] = HeldPartition(lease, Pace(session.flow))
    return session


def beat(session: AssignedSession, *, away: set[str]) -> list[str]:
    """Send heartbeats that the hosts `away` do not answer; return the hosts that were asked."""
    return _heartbeat(session.broker_heartbeats_if_due(), away) + _heartbeat(
        session.master_heartbeat_if_due(), away
    )


def _heartbeat(conversation: Conversation[int], away: set[str]) -> list[str]:
    hosts: list[str] = []
    answer: Any = None
    failure: errors.TubeMQError | None = None
    for _ in range(20):
        try:
            effect = conversation.throw(failure) if failure else conversation.send(answer)
        except StopIteration:
            return hosts
        failure = None
        if isinstance(effect, Now):
            answer = 0
        elif isinstance(effect, Await):
            hosts.append("answer")
            answer = _pb.HeartBeatResponseB2C(success=True, errCode=200, errMsg="OK")
        else:
            assert isinstance(effect, Call | Post)
            host = effect.address[0]
            hosts.append(host)
            failure = errors.ConnectError(f"cannot connect to {host}") if host in away else None
            answer = Ticket(effect.address, effect.method, None)
            if effect.method is not methods.HEARTBEAT_BROKER:
                answer = _pb.HeartResponseM2CV2(errCode=200, errMsg="OK")
    raise AssertionError("the heartbeat does not end")


BROKER_HOSTS = ["broker1", "broker2", "broker3"]


@pytest.mark.parametrize(
    "away",
    [set(), {"broker1"}, {"broker1", "broker2", "broker3"}, {"master"}, {"broker2", "master"}],
)
def test_brokers_that_answer_get_heartbeats_while_others_are_down(away: set[str]) -> None:
    """A slow broker delays no other: all are asked before the first answer is awaited."""
    session = consumer()
    answers = ["answer"] * len({"broker1", "broker2", "broker3"} - away)
    assert beat(session, away=away) == [*BROKER_HOSTS, *answers, "master"]
    assert len(session.held) == 3


def test_a_missed_heartbeat_is_recorded_per_broker() -> None:
    session = consumer()
    beat(session, away={"broker2", "master"})
    assert {where.split(" ")[0] for where in session.last_errors} == {"broker", "master"}
    assert len(session.last_errors) == 2
    beat(session, away=set())


def test_an_answer_that_cannot_be_read_ends_nothing(
    memory: MemoryTubeMQ, session: MasterSession, ids: ClientIds
) -> None:
    member = AssignedSession(session, "group", ids.consumer("group", "Balance"), {TOPIC: ()})
    driver = memory.driver()
    driver.run(member.open())
    driver.run(member.assign(PARTITION, None))

    def garble(traced: TracedRequest, reply: Any) -> Any:
        if traced.method == methods.HEARTBEAT_BROKER.name:
            reply.hasPartFailure = True
            reply.failureInfo.append("nonsense")
        return reply

    memory.tamper = garble
    memory.elapse(10_000)
    driver.run(member.broker_heartbeats_if_due())
    assert member.held.keys() == {PARTITION}
    assert isinstance(member.last_errors[f"broker {memory.node(1)}"], errors.ProtocolViolation)


def test_routes_stay_usable_while_a_heartbeat_replaces_them() -> None:
    """Another thread may be choosing a partition for its record at that moment."""
    producer = ProducerSession(MasterSession((MASTER,)), "producer", brokers=dict(BROKERS))
    seen: list[bool] = []

    def topics() -> Iterator[str]:
        for text in ("orders#1:1:2", "other#1:1:2"):
            seen.append("orders" in producer.routes)
            yield text

    for _ in range(2):
        conversation = producer.heartbeat()
        next(conversation)
        reply = _pb.HeartResponseM2P(success=True, errCode=200, errMsg="OK", brokerCheckSum=-1)
        effect = conversation.send(
            SimpleNamespace(
                success=True,
                errCode=200,
                errMsg="OK",
                brokerCheckSum=-1,
                brokerInfos=(),
                topicInfos=topics(),
                HasField=reply.HasField,
                DESCRIPTOR=reply.DESCRIPTOR,
            )
        )
        assert isinstance(effect, Now)
        with pytest.raises(StopIteration):
            conversation.send(0)
    assert seen == [False, False, True, True]
