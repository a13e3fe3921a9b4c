"""Answers of the genuine server, frame by frame, through nothing but `_wire` and a socket."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.client.embedded.rpc import Wire
from tests.system.servers.suite import (
    LONE,
    SHARED,
    Group,
    Servers,
    WireSuite,
    a_question,
    answered,
)
from tools.devkit.tubemq.genuine import GenuineTubeMQ
from tubemq_client import _pb
from tubemq_client._wire import methods, strings

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def servers(genuine: GenuineTubeMQ) -> Servers:
    host, port = genuine.broker_address
    return Servers(genuine.masters, f"{host}:{port}")


class TestGenuine(WireSuite):
    """Everything in the suite, and what only a genuine server does."""

    def test_what_follows_a_wrong_token_later_is_read_again(self, servers: Servers) -> None:
        """The server discards its input and continues; a client should not."""
        with Wire(servers.broker) as wire:
            wire.sock.sendall(b"\x00\x00\x00\x01" + a_question(1, timeout=5_000)[4:])
            assert not answered(wire, 1)
            wire.sock.sendall(a_question(2, timeout=5_000))
            assert answered(wire, 2)

    def test_the_master_hands_out_partitions_with_a_heartbeat(self, servers: Servers) -> None:
        names = {"clientId": "w_v1_127.0.0.1-1-1-1-Pull-test", "groupName": "w_v1"}
        with Wire(servers.master) as wire:
            reply = wire.call(
                methods.REGISTER_CONSUMER,
                _pb.RegisterRequestC2M(
                    **names,
                    hostName="127.0.0.1",
                    topicList=[SHARED],
                    sessionTime=time.time_ns() // 1_000_000,
                    groupFlowCheckId=-2,
                    defFlowCheckId=-2,
                ),
            )
            assert (reply.errCode, reply.notAllocated) == (200, True)
            assert reply.defFlowControlInfo == reply.groupFlowControlInfo == " "
            event = self.await_event(wire, names)
            wire.call(methods.CLOSE_CONSUMER, _pb.CloseRequestC2M(**names))
        given = [strings.parse_subscribe_info(text) for text in event.subscribeInfo]
        assert sorted(info.partition.partition_id for info in given) == [0, 1, 2]
        assert {info.group for info in given} == {"w_v1"}

    def await_event(self, wire: Wire, names: dict[str, str]) -> Any:
        for _ in range(40):
            reply = wire.call(
                methods.HEARTBEAT_CONSUMER,
                _pb.HeartRequestC2M(**names, reportSubscribeInfo=False),
            )
            if reply.HasField("event"):
                return reply.event
            time.sleep(0.5)
        raise AssertionError("no partitions within 20 s")

    def test_the_stable_end_follows_the_end_in_memory(self, servers: Servers) -> None:
        """Flushed after at most 20 s and fsynced 20 s later, whether or not more is written."""
        with Group(servers, "w_follow") as group:
            end = group.send(LONE, b"last").appendOffset + 28
            deadline = time.monotonic() + 60
            while group.register_at(LONE, 0, qryPriorityId=1).maxOffset < end:
                assert time.monotonic() < deadline
                time.sleep(1)
            assert group.end(LONE) == end
