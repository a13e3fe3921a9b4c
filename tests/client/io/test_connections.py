"""Connections of both kinds: replies find their requests, and every wait ends."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.client.io.peer import Peer, silence
from tests.kit.ports import reserved_port
from tools.devkit.patience import PATIENCE
from tubemq_client import errors
from tubemq_client._wire.framing import Frame, encode_frame

pytestmark = pytest.mark.timeout(60)

Connect = Callable[..., Any]


def post(connection: Any, payload: bytes) -> int:
    serial: int = connection.post(lambda serial: encode_frame(serial, payload), 10.0)
    return serial


def wait(connection: Any, serial: int, seconds: float = 20.0) -> bytes:
    payload: bytes = connection.wait(serial, time.monotonic() + seconds)
    return payload


def ask(connection: Any, payload: bytes) -> bytes:
    return wait(connection, post(connection, payload))


# -- pairing --------------------------------------------------------------------------------------


def test_a_reply_belongs_to_its_request(connect: Connect) -> None:
    with Peer() as peer:
        connection = connect(peer.address)
        assert [ask(connection, b"%d" % n) for n in range(50)] == [b"%d" % n for n in range(50)]
        assert connection.in_flight == 0


def test_replies_in_any_order_find_their_requests(connect: Connect) -> None:
    replies: list[bytes] = []

    def backwards(frame: Frame) -> list[bytes]:
        replies.insert(0, encode_frame(frame.serial, frame.payload))
        return replies if len(replies) == 10 else []

    with Peer(backwards) as peer:
        connection = connect(peer.address)
        serials = [post(connection, b"%d" % n) for n in range(10)]
        assert [wait(connection, serial) for serial in serials] == [b"%d" % n for n in range(10)]


def test_requests_of_many_share_the_connection(connect: Connect) -> None:
    with Peer() as peer, ThreadPoolExecutor(8) as pool:
        connection = connect(peer.address)
        payloads = [b"%d" % n for n in range(200)]
        assert list(pool.map(lambda payload: ask(connection, payload), payloads)) == payloads
        assert peer.visits == 1


def test_late_duplicate_and_unknown_replies_are_dropped(connect: Connect) -> None:
    late: list[bytes] = []

    def answer(frame: Frame) -> list[bytes]:
        reply = encode_frame(frame.serial, frame.payload)
        if frame.payload == b"slow":
            late.append(reply)
            return []
        strange = encode_frame(frame.serial + 1_000, b"strange")
        return [*late, strange, reply, reply]

    with Peer(answer) as peer:
        connection = connect(peer.address)
        with pytest.raises(errors.RpcTimeout):
            wait(connection, post(connection, b"slow"), 0.1)
        forgotten = post(connection, b"slow")
        connection.forget(forgotten)
        assert [ask(connection, b"%d" % n) for n in range(5)] == [b"%d" % n for n in range(5)]
        assert connection.in_flight == 0
        assert connection.usable


def test_a_late_caller_gets_a_reply_that_arrived_in_time(connect: Connect) -> None:
    with Peer() as peer:
        connection = connect(peer.address)
        serial = post(connection, b"x")
        ask(connection, b"y")  # so the reply to x has arrived too
        assert wait(connection, serial, -10.0) == b"x"


def test_a_late_caller_gets_a_reply_larger_than_the_buffers(connect: Connect) -> None:
    """The part of a reply that the buffers did not hold follows when there is room again."""
    received = threading.Event()

    def in_halves(frame: Frame) -> Iterator[bytes]:
        reply = encode_frame(frame.serial, bytes(20_000))
        yield reply[:10_000]
        received.wait(10)
        time.sleep(0.01)
        yield reply[10_000:]

    def one_try(connection: Any) -> bool:
        received.clear()
        serial = post(connection, b"x")
        time.sleep(0.05)
        received.set()
        try:
            return len(wait(connection, serial, -10.0)) == 20_000
        except errors.RpcTimeout:
            return False

    with Peer(in_halves) as peer:  # a busy machine may let the little become too much
        connection = connect(peer.address)
        assert any(one_try(connection) for _ in range(10))


def test_large_replies_in_tiny_chunks_are_assembled(connect: Connect) -> None:
    def pieces(frame: Frame) -> list[bytes]:
        reply = encode_frame(frame.serial, frame.payload * 30_000)
        return [reply[at : at + 1_001] for at in range(0, len(reply), 1_001)]

    with Peer(pieces) as peer:
        assert ask(connect(peer.address), b"0123456789") == b"0123456789" * 30_000


def test_a_large_request_to_a_slow_reader_arrives_whole(connect: Connect) -> None:
    def size(frame: Frame) -> list[bytes]:
        time.sleep(0.1)
        return [encode_frame(frame.serial, b"%d" % len(frame.payload))]

    with Peer(size) as peer:
        connection = connect(peer.address)
        serials = [post(connection, bytes(10_000_000)) for _ in range(3)]
        assert [wait(connection, serial) for serial in serials] == [b"10000000"] * 3


# -- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the platform has it not")
def test_the_kernel_notices_a_peer_that_vanished(connect: Connect) -> None:
    with Peer() as peer:
        connection = connect(peer.address)
        [ours] = sockets_to(peer.address)
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        idle, between, probes, unheard_ms = (
            ours.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        )
        assert idle + between * probes <= unheard_ms / 1000 == 60
        assert ask(connection, b"x") == b"x"


def sockets_to(address: tuple[str, int]) -> list[socket.socket]:
    """By exact type: mock objects may misbehave when they are asked for their class."""
    every = (
        candidate for candidate in gc.get_objects() if issubclass(type(candidate), socket.socket)
    )
    return [sock for sock in every if reached(sock) == address]


def reached(sock: socket.socket) -> Any:
    try:
        return sock.getpeername()
    except OSError:
        return None


def test_silence_ends_with_the_deadline_and_the_connection_stays(connect: Connect) -> None:
    with Peer(silence) as peer:
        connection = connect(peer.address)
        with pytest.raises(errors.RpcTimeout, match=str(peer.address[1])):
            wait(connection, post(connection, b"x"), 0.1)
        assert (connection.usable, connection.in_flight) == (True, 0)


def test_a_peer_that_hangs_up_fails_everything_in_flight(connect: Connect) -> None:
    with Peer() as peer:
        connection = connect(peer.address)
        ask(connection, b"hello")
        peer.answer = silence
        serials = [post(connection, b"x") for _ in range(3)]
        peer.hang_up()
        for serial in serials:
            with pytest.raises(errors.ConnectionLost):
                wait(connection, serial)
        assert not connection.usable
        with pytest.raises(errors.ConnectionLost):
            post(connection, b"x")


def test_a_peer_that_hangs_up_in_the_middle_of_a_reply_loses_the_connection(
    connect: Connect,
) -> None:
    def half(frame: Frame) -> list[bytes]:
        return [encode_frame(frame.serial, bytes(5_000))[:3_000], b""]

    with Peer(half) as peer:
        connection = connect(peer.address)
        with pytest.raises(errors.ConnectionLost):
            ask(connection, b"x")


def test_an_invalid_frame_is_a_protocol_violation_that_names_the_peer(connect: Connect) -> None:
    with Peer(lambda _: [b"HTTP/1.1 400 Bad Request\r\n\r\n"]) as peer:
        connection = connect(peer.address)
        with pytest.raises(errors.ProtocolViolation, match=str(peer.address[1])):
            ask(connection, b"x")
        assert not connection.usable
        with pytest.raises(errors.ProtocolViolation):
            post(connection, b"x")


def test_a_frame_above_the_limit_is_refused(connect: Connect) -> None:
    def large(frame: Frame) -> list[bytes]:
        return [encode_frame(frame.serial, bytes(50_000))]

    with Peer(large) as peer:
        connection = connect(peer.address, max_frame_bytes=20_000)
        with pytest.raises(errors.ProtocolViolation, match="20000"):
            ask(connection, b"x")


def test_closing_fails_what_is_in_flight_and_tells_the_peer(connect: Connect) -> None:
    with Peer(silence) as peer, ThreadPoolExecutor(1) as pool:
        connection = connect(peer.address)
        waiting = pool.submit(wait, connection, post(connection, b"x"), 20.0)
        time.sleep(0.1)
        connection.close()
        with pytest.raises(errors.ConnectionLost):
            waiting.result(20)
        assert peer.gone.acquire(timeout=20 * PATIENCE)
        assert not connection.usable


# -- connecting -----------------------------------------------------------------------------------


def test_a_refused_connection_names_the_address_and_the_reason(connect: Connect) -> None:
    with (
        reserved_port() as port,
        pytest.raises(errors.ConnectError, match=f"{port}: Connection refused"),
    ):
        connect(("127.0.0.1", port))


def test_a_host_without_address_is_a_connect_error(connect: Connect) -> None:
    for host in ("no-such-host.invalid", "x" * 70, "a..b"):
        with pytest.raises(errors.ConnectError, match="cannot connect"):
            connect((host, 8123))


def test_a_host_that_does_not_answer_is_given_up_in_time(connect: Connect) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):  # fill the queue; the kernel then ignores new connections
            visitor = stack.enter_context(socket.socket())
            visitor.setblocking(False)
            visitor.connect_ex(server.getsockname())
        with pytest.raises(errors.ConnectError, match=str(server.getsockname()[1])):
            connect(server.getsockname(), connect_timeout_ms=200)


def test_ipv6_addresses_are_reached_and_written_in_brackets(connect: Connect) -> None:
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with server:
        port = server.getsockname()[1]
        connection = connect(("::1", port))
        assert connection.name == f"[::1]:{port}"
    with pytest.raises(errors.ConnectError, match=r"\[::1\]:"):
        connect(("::1", port))
