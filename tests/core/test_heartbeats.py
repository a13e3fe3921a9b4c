"""Heartbeats when part of a cluster is away, and while records are being sent.

The master and the brokers are a few lines here: who answers is what the tests are about. Leases and
losses over time are in `test_assigned`, routes that change in `tests/behaviour`.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tubemq_client import _pb, errors
from tubemq_client._core.assigned import AssignedSession
from tubemq_client._core.effects import Call
from tubemq_client._core.master import MasterSession
from tubemq_client._core.publishing import ProducerSession
from tubemq_client._core.registration import Registration
from tubemq_client._wire import methods
from tubemq_client.model import Address, BrokerNode, Partition

MASTER: Address = ("master", 8715)
BROKERS = {number: BrokerNode(number, f"broker{number}", 8123) for number in (1, 2, 3)}


def consumer() -> AssignedSession:
    """Holds a partition at each of three brokers."""
    session = AssignedSession(MasterSession((MASTER,)), "group", "client", {"orders": ()})
    for number, broker in BROKERS.items():
        partition = Partition(number, "orders", 0)
        session.held[partition] = Registration(broker, partition, "group", "client")
    return session


def beat(session: AssignedSession, *, away: set[str]) -> list[str]:
    """One heartbeat in which the hosts `away` do not answer; the hosts that were asked."""
    conversation = session.heartbeat()
    asked: list[str] = []
    answer: Any = None
    failure: errors.TubeMQError | None = None
    for _ in range(20):
        try:
            effect = conversation.throw(failure) if failure else conversation.send(answer)
        except StopIteration:
            return asked
        assert isinstance(effect, Call)
        host = effect.address[0]
        asked.append(host)
        failure = errors.ConnectError(f"cannot connect to {host}") if host in away else None
        if effect.method is methods.HEARTBEAT_BROKER:
            answer = _pb.HeartBeatResponseB2C(success=True, errCode=200, errMsg="OK")
        else:
            answer = _pb.HeartResponseM2CV2(errCode=200, errMsg="OK")
    raise AssertionError("the heartbeat does not end")


EVERYBODY = ["broker1", "broker2", "broker3", "master"]


@pytest.mark.parametrize(
    "away",
    [set(), {"broker1"}, {"broker1", "broker2", "broker3"}, {"master"}, {"broker2", "master"}],
)
def test_whoever_is_away_the_others_hear_the_heartbeat(away: set[str]) -> None:
    session = consumer()
    assert beat(session, away=away) == EVERYBODY
    assert len(session.held) == 3


def test_a_heartbeat_that_nobody_hears_has_failed() -> None:
    with pytest.raises(errors.ConnectError, match="master"):
        beat(consumer(), away=set(EVERYBODY))


def test_routes_are_there_while_a_heartbeat_brings_new_ones() -> None:
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
        with pytest.raises(StopIteration):
            conversation.send(
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
    assert seen == [False, False, True, True]
