"""Drivers of both kinds: effects are performed, and open resources are closed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from tests.client.io.peer import Peer, silence
from tests.kit.ports import reserved_port
from tools.devkit.patience import PATIENCE
from tubemq_client import _pb, errors
from tubemq_client._core.effects import (
    Await,
    Call,
    Conversation,
    Deliver,
    Now,
    Post,
    Reach,
    Sleep,
)
from tubemq_client._io.driver import BlockingDriver
from tubemq_client._wire import envelope, methods
from tubemq_client._wire.framing import Frame
from tubemq_client.model import Address, ClientSettings
from tubemq_client.testing.proxy import FaultProxy

pytestmark = pytest.mark.timeout(60)

MakeDriver = Callable[..., Any]
METHOD = methods.CLOSE_PRODUCER


def request(text: str = "client") -> Any:
    return _pb.CloseRequestP2M(clientId=text)


def say_back(frame: Frame) -> list[bytes]:
    """Return a reply whose `errMsg` is the client id of the request."""
    call = envelope.decode_request(frame.payload)
    text = METHOD.request.FromString(call.body).clientId
    reply = METHOD.response(success=True, errCode=200, errMsg=text)
    return [envelope.encode_response(frame.serial, call.method_id, reply)]


def ask(address: Address, text: str = "hello") -> Conversation[str]:
    reply = yield Call(address, METHOD, request(text))
    return str(reply.errMsg)


# -- effects --------------------------------------------------------------------------------------


def test_calls_posts_times_and_sleeps(make_driver: MakeDriver) -> None:
    def talk() -> Conversation[tuple[list[str], int]]:
        start = yield Now()
        one = yield Post(peer.address, METHOD, request("one"))
        two = yield Post(peer.address, METHOD, request("two"))
        called = yield Call(peer.address, METHOD, request("call"))
        replies = [called, (yield Await(two)), (yield Await(one))]
        yield Sleep(30)
        return [reply.errMsg for reply in replies], (yield Now()) - start

    with Peer(say_back) as peer:
        replies, elapsed = make_driver().run(talk())
    assert replies == ["call", "two", "one"]
    assert elapsed >= 29


def test_errors_are_thrown_into_the_conversation(make_driver: MakeDriver) -> None:
    def talk() -> Conversation[tuple[str, str]]:
        with pytest.raises(errors.RpcTimeout) as problem:
            yield from ask(peer.address)
        peer.answer = say_back
        return str(problem.value), (yield from ask(peer.address, "again"))

    with Peer(silence) as peer:
        text, reply = make_driver(rpc_timeout_ms=1_000).run(talk())
    assert reply == "again"
    assert METHOD.name in text
    assert "rpc_timeout_ms" in text


def test_an_unknown_effect_is_a_type_error(make_driver: MakeDriver) -> None:
    def talk() -> Conversation[None]:
        yield "coffee"  # type: ignore[misc]

    with pytest.raises(TypeError, match="coffee"):
        make_driver().run(talk())


# -- streams and releases -------------------------------------------------------------------------


class Reading:
    """Conversation that delivers numbers, and sends a request when it is released."""

    def __init__(self, address: Address, count: int = 100) -> None:
        self.address = address
        self.count = count
        self.releases = 0
        self.closed = 0

    def conversation(self) -> Conversation[None]:
        try:
            for n in range(self.count):
                yield from ask(self.address)
                yield Deliver(n)
            raise errors.DataLoss("gone", start=0, available=1)
        finally:
            self.closed += 1

    def release(self) -> Conversation[None]:
        assert (yield from ask(self.address, "goodbye")) == "goodbye"
        self.releases += 1


def test_a_stream_delivers_and_releases_in_every_case(make_driver: MakeDriver) -> None:
    with Peer(say_back) as peer:
        driver = make_driver()
        failed = Reading(peer.address, 3)
        got: list[int] = []
        with pytest.raises(errors.DataLoss):
            got.extend(driver.stream(failed.conversation(), failed.release()))
        left = Reading(peer.address)
        values = driver.stream(left.conversation(), left.release())
        got.append(next(values))
        values.close()
        assert got == [0, 1, 2, 0]
        assert [(r.releases, r.closed) for r in (failed, left)] == [(1, 1), (1, 1)]


def test_closing_the_driver_releases_what_is_still_open_once(make_driver: MakeDriver) -> None:
    with Peer(say_back) as peer:
        driver = make_driver()
        reading = Reading(peer.address)
        values = driver.stream(reading.conversation(), reading.release())
        next(values)
        driver.close()
        driver.close()
        assert reading.releases == 1
        values.close()
        assert (reading.releases, reading.closed) == (1, 1)


def test_a_release_that_gets_no_answer_does_not_keep_the_driver_open(
    make_driver: MakeDriver,
) -> None:
    with Peer(say_back) as peer:
        driver = make_driver(rpc_timeout_ms=1_000)
        reading = Reading(peer.address)
        values = driver.stream(reading.conversation(), reading.release())
        next(values)
        peer.answer = silence
        try:
            driver.close()
        except errors.RpcTimeout:
            pass  # the conversation did not catch it; the blocking half raises it
        assert peer.gone.acquire(timeout=20 * PATIENCE)


# -- connections ----------------------------------------------------------------------------------


def test_all_conversations_share_one_connection_per_address(make_driver: MakeDriver) -> None:
    with Peer(say_back) as peer, Peer(say_back) as other, ThreadPoolExecutor(8) as pool:
        driver = make_driver()
        texts = [f"{n}" for n in range(100)]
        assert list(pool.map(lambda t: driver.run(ask(peer.address, t)), texts)) == texts
        driver.run(ask(other.address))
        assert (peer.visits, other.visits) == (1, 1)


def test_a_connection_that_the_peer_closed_meanwhile_costs_nothing(
    make_driver: MakeDriver,
) -> None:
    with Peer(say_back) as peer:
        driver = make_driver()
        for visits in (1, 2, 3):
            assert driver.run(ask(peer.address)) == "hello"
            assert peer.visits == visits
            peer.hang_up()
            time.sleep(0.15)


def test_an_idle_connection_is_replaced_before_its_next_use(make_driver: MakeDriver) -> None:
    with Peer(say_back) as peer, Peer(say_back) as other:
        driver = make_driver(idle_connection_ms=1_000)
        for _ in range(2):
            driver.run(ask(peer.address))
            driver.run(ask(other.address))
        assert (peer.visits, other.visits) == (1, 1)
        time.sleep(1.2)
        driver.run(ask(peer.address))
        assert peer.visits == 2
        assert other.gone.acquire(timeout=20 * PATIENCE), (
            "an idle connection nobody asked for is closed too"
        )
        assert other.visits == 1


def test_a_connection_with_a_pending_reply_is_not_idle(make_driver: MakeDriver) -> None:
    def slowly() -> Conversation[str]:
        ticket = yield Post(peer.address, METHOD, request("kept"))
        yield Sleep(200)
        yield from ask(other.address)
        return str((yield Await(ticket)).errMsg)

    with Peer(say_back) as peer, Peer(say_back) as other:
        assert make_driver(idle_connection_ms=50).run(slowly()) == "kept"
        assert peer.visits == 1


def test_a_peer_that_comes_back_is_found_again(make_driver: MakeDriver) -> None:
    driver = make_driver()
    with reserved_port() as port:
        for _ in range(3):
            with pytest.raises(errors.ConnectError):
                driver.run(ask(("127.0.0.1", port)))
        with Peer(say_back, port=port) as peer:
            assert driver.run(ask(peer.address)) == "hello"


def test_an_unresponsive_connection_is_replaced_for_the_next_request(
    make_driver: MakeDriver,
) -> None:
    """A firewall that has forgotten a connection drops its packets without notice."""
    with Peer(say_back) as peer, FaultProxy(peer.address) as proxy:
        driver = make_driver(rpc_timeout_ms=1_500, idle_connection_ms=600_000)
        assert driver.run(ask(proxy.address)) == "hello"
        assert proxy.swallow() == 1
        with pytest.raises(errors.RpcTimeout):
            driver.run(ask(proxy.address))
        assert driver.run(ask(proxy.address)) == "hello"
        assert proxy.connections == 2


def test_requests_on_a_replaced_connection_may_still_be_answered(
    make_driver: MakeDriver,
) -> None:
    replaced = threading.Event()

    def answer(frame: Frame) -> list[bytes]:
        if b"given up" in frame.payload:
            return []
        if b"kept" in frame.payload:
            replaced.wait(10)
        else:
            replaced.set()
        return say_back(frame)

    def talk() -> Conversation[list[str]]:
        first = yield Post(peer.address, METHOD, request("given up"))
        yield Sleep(1_500)
        second = yield Post(peer.address, METHOD, request("kept"))
        with pytest.raises(errors.RpcTimeout):
            yield Await(first)
        new = yield from ask(peer.address, "new")
        return [new, str((yield Await(second)).errMsg)]

    with Peer(answer) as peer:
        driver = make_driver(rpc_timeout_ms=2_000)
        assert driver.run(talk()) == ["new", "kept"]
        assert peer.visits == 2
        time.sleep(0.15)
        driver.run(ask(peer.address))
        assert peer.gone.acquire(timeout=20 * PATIENCE), "closed when nothing is owed"


def test_a_slow_answer_to_another_request_keeps_a_connection(make_driver: MakeDriver) -> None:
    def all_but_x(frame: Frame) -> list[bytes]:
        return [] if b"unanswered" in frame.payload else say_back(frame)

    def two() -> Conversation[str]:
        first = yield Post(peer.address, METHOD, request("unanswered"))
        answer = yield from ask(peer.address)
        with pytest.raises(errors.RpcTimeout):
            yield Await(first)
        return answer

    with Peer(all_but_x) as peer:
        driver = make_driver(rpc_timeout_ms=1_000)
        assert driver.run(two()) == driver.run(ask(peer.address)) == "hello"
        assert peer.visits == 1


# -- closing --------------------------------------------------------------------------------------


def test_a_closed_driver_refuses(make_driver: MakeDriver) -> None:
    with Peer(say_back) as peer:
        driver = make_driver()
        driver.run(ask(peer.address))
        driver.close()
        driver.close()
        assert peer.gone.acquire(timeout=20 * PATIENCE)
        with pytest.raises(errors.ClosedError):
            driver.run(ask(peer.address))


def test_closing_wakes_sleeping_and_waiting_callers(make_driver: MakeDriver) -> None:
    asleep = threading.Event()

    def sleep() -> Conversation[str]:
        asleep.set()
        yield Sleep(600_000)
        return (yield from ask(peer.address))

    with Peer(silence) as peer, ThreadPoolExecutor(2) as pool:
        driver = make_driver(rpc_timeout_ms=600_000)
        waiting, sleeping = (pool.submit(driver.run, talk) for talk in (ask(peer.address), sleep()))
        assert asleep.wait(20)
        time.sleep(0.2)
        driver.close()
        with pytest.raises(errors.ConnectionLost):
            waiting.result(20)
        with pytest.raises(errors.ClosedError):
            sleeping.result(20)


def test_an_attempt_for_which_there_is_no_thread_is_made_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reach(address: Address) -> Conversation[bool]:
        for _ in range(500):
            if (yield Reach(address)):
                return True
            yield Sleep(10)
        return False

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    driver = BlockingDriver(ClientSettings(masters=()))
    with Peer() as peer, closing(driver):
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError):
                driver.run(reach(peer.address))
        assert driver.run(reach(peer.address))
