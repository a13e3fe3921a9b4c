"""Web servers that send too much, too slowly, or something else: bounded time, bounded memory, and
an error of the client's own, in both shells."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.kit.certificates import make_certificates
from tubemq_client import errors

Serve = Callable[[socket.socket, threading.Event], None]
GOOD = json.dumps({"result": True, "errCode": 0, "errMsg": "OK", "data": [], "count": 0}).encode()
PIECES, PAUSE_S = 40, 0.1
"""A slow answer takes four seconds; the clients here give it a quarter of one."""


def head(length: int, *lines: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {length}", *lines, "", ""]).encode()


heard: list[bytes] = []
"""Requests, of all servers."""


@contextmanager
def web(serve: Serve, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Return a server that reads one request of each connection and then misbehaves."""
    over = threading.Event()

    def talk(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            served = connection if tls is None else tls.wrap_socket(connection, server_side=True)
            while request := served.recv(65_536):
                heard.append(request)
                serve(served, over)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=talk, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        scheme = "http" if tls is None else "https"
        try:
            yield f"{scheme}://localhost:{listener.getsockname()[1]}"
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)


def in_pieces(connection: socket.socket, over: threading.Event, data: bytes) -> None:
    step = -(-len(data) // PIECES)
    for start in range(0, len(data), step):
        connection.sendall(data[start : start + step])
        if over.wait(PAUSE_S):
            return


def slow_head(connection: socket.socket, over: threading.Event) -> None:
    in_pieces(connection, over, head(len(GOOD)))
    connection.sendall(GOOD)


def slow_body(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(head(len(GOOD)))
    in_pieces(connection, over, GOOD)


@pytest.mark.parametrize("serve", [slow_head, slow_body])
def test_the_time_of_an_exchange_is_bounded_as_a_whole(serve: Serve, make: Any) -> None:
    with web(serve) as url, pytest.raises(errors.ConnectError, match="timeout_ms"):
        make(url, timeout_ms=250).topics()


def test_the_time_is_bounded_with_tls_too(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server.cert, certificates.server.key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    with web(slow_body, context) as url, pytest.raises(errors.ConnectError, match="timeout_ms"):
        make(url, timeout_ms=250).topics()


def test_a_client_continues_after_an_abandoned_exchange(make: Any) -> None:
    answers = iter([slow_body])

    def slow_once(connection: socket.socket, over: threading.Event) -> None:
        serve = next(answers, None)
        if serve is not None:
            serve(connection, over)
        else:
            connection.sendall(head(len(GOOD)) + GOOD)

    with web(slow_once) as url:
        client = make(url, timeout_ms=250)
        with pytest.raises(errors.ConnectError, match="timeout_ms"):
            client.topics()
        assert client.topics() == []
        assert client.topics() == []  # on the kept connection


def endless(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not over.is_set():
        connection.sendall(b"10000\r\n" + b" " * 65_536 + b"\r\n")


def too_long(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(head(1 << 40))
    while not over.is_set():
        connection.sendall(b" " * 65_536)


@pytest.mark.parametrize("serve", [endless, too_long])
def test_the_memory_of_an_answer_is_bounded(serve: Serve, make: Any) -> None:
    with web(serve) as url, pytest.raises(errors.ProtocolViolation, match="max_answer_bytes"):
        make(url, max_answer_bytes=1 << 20).topics()


def test_a_large_answer_may_be_allowed(make: Any) -> None:
    """Test the remedy that the error names."""
    body = GOOD + b" " * (1 << 20)
    with web(lambda connection, _: connection.sendall(head(len(body)) + body)) as url:
        with pytest.raises(errors.ProtocolViolation, match="max_answer_bytes"):
            make(url, max_answer_bytes=1 << 20).topics()
        assert make(url, max_answer_bytes=2 << 20).topics() == []


def test_answers_are_not_inflated(make: Any) -> None:
    packed = gzip.compress(GOOD + b" " * (64 << 20))

    def inflating(connection: socket.socket, _: threading.Event) -> None:
        connection.sendall(head(len(packed), "Content-Encoding: gzip") + packed)

    with web(inflating) as url, pytest.raises(errors.ProtocolViolation, match="not asked for"):
        make(url).topics()
    assert len(packed) < 100_000
    assert b"accept-encoding: identity" in heard[-1].lower()


def test_a_broken_encoding_is_no_error_of_httpx(make: Any) -> None:
    def broken(connection: socket.socket, _: threading.Event) -> None:
        connection.sendall(head(4, "Content-Encoding: gzip") + b"oops")

    with web(broken) as url, pytest.raises(errors.ProtocolViolation, match="not asked for"):
        make(url).topics()


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"result": true, "data": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"result": true, "data": [{"topicName": "x", "numPartitions": 1e999}]}',
        b"\xff\xfe\x00",
    ],
    ids=["open", "deep", "infinite", "no text"],
)
def test_odd_answers_break_the_protocol_and_nothing_else(body: bytes, make: Any) -> None:
    with (
        web(lambda connection, _: connection.sendall(head(len(body)) + body)) as url,
        pytest.raises(errors.TubeMQError),
    ):
        make(url).topics()


def test_a_long_refusal_is_cut(make: Any) -> None:
    body = json.dumps({"result": False, "errCode": 400, "errMsg": "no! " * 100_000}).encode()
    with (
        web(lambda connection, _: connection.sendall(head(len(body)) + body)) as url,
        pytest.raises(errors.ServerError) as refused,
    ):
        make(url).topics()
    assert len(str(refused.value)) < 5_000


def test_cookies_are_not_kept(make: Any) -> None:
    def sweet(connection: socket.socket, _: threading.Event) -> None:
        connection.sendall(head(len(GOOD), "Set-Cookie: a=" + "x" * 4_000) + GOOD)

    with web(sweet) as url:
        client = make(url)
        client.topics()
        client.topics()
    assert b"cookie" not in b"".join(heard[-2:]).lower()
