"""The part of the test kit that needs neither socket nor time."""

from __future__ import annotations

import pytest

from tubemq_client import errors
from tubemq_client._core.effects import Call, Conversation, Now, Sleep
from tubemq_client._wire.methods import CLOSE_PRODUCER
from tubemq_client.embedded import TopicSpec
from tubemq_client.testing.clock import ManualClock
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import ScriptedDriver, TracedRequest


def test_a_clock_moves_when_told_and_never_back() -> None:
    clock = ManualClock(1_000)
    clock.advance(500)
    assert (clock(), repr(clock)) == (1_500, "ManualClock(1500)")
    with pytest.raises(ValueError, match="does not go back by 1 ms"):
        clock.advance(-1)


def close(address: tuple[str, int] = ("peer", 1)) -> Conversation[object]:
    return (yield Call(address, CLOSE_PRODUCER, CLOSE_PRODUCER.request(clientId="x")))


def test_sleeping_and_waiting_in_vain_move_the_clock() -> None:
    def talk() -> Conversation[tuple[int, int]]:
        start = yield Now()
        yield Sleep(250)
        slept = yield Now()
        with pytest.raises(errors.RpcTimeout, match="close producer within 3000 ms"):
            yield from close()
        return slept - start, (yield Now()) - slept

    driver = ScriptedDriver(lambda _: None, rpc_timeout_ms=3_000)
    assert driver.run(talk()) == (250, 3_000)
    assert (driver.slept, driver.asked) == ([250], ["close producer"])


def test_a_conversation_that_goes_round_in_circles_is_stopped() -> None:
    def circle() -> Conversation[None]:
        while True:
            yield Sleep(1)

    with pytest.raises(AssertionError, match="does not end"):
        ScriptedDriver(lambda _: None, max_effects=100).run(circle())


def test_an_unplugged_server_refuses_and_comes_back() -> None:
    mq = MemoryTubeMQ(1, [TopicSpec("orders")])
    driver = mq.driver()
    mq.unplugged.add(mq.master_address)
    with pytest.raises(errors.ConnectError, match="master:8715"):
        driver.run(close(mq.master_address))
    mq.unplugged.clear()
    assert driver.run(close(mq.master_address))


def test_a_meddler_sees_what_was_asked_and_decides_what_arrives() -> None:
    seen: list[TracedRequest] = []

    def spoil(asked: TracedRequest, reply: object) -> object:
        seen.append(asked)
        raise errors.RemoteException("java.lang.Exception", "spoilt")

    mq = MemoryTubeMQ(1)
    mq.tamper = spoil
    with pytest.raises(errors.RemoteException, match="spoilt"):
        mq.driver().run(close(mq.master_address))
    assert [(asked.method, asked.at_ms) for asked in seen] == [("close producer", mq.clock())]


def test_its_view_says_what_it_is() -> None:
    assert repr(MemoryTubeMQ(2)) == "<MemoryTubeMQ of 2 brokers at 1700000000000>"
