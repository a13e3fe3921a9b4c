"""One HTTP exchange in bounded time and memory: code over httpx that both clients share.

Servers are trusted with nothing but an answer. Answers are requested uncompressed (compressed ones
can be a thousand times their size), read in chunks up to a limit, and aborted when the time for the
whole exchange is over: httpx bounds only single reads, so that a slow trickle of bytes would block
a caller forever. Cookies are dropped. Nothing here knows the meaning of an answer.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from tubemq_client import errors
from tubemq_client._io.tls import explain, is_tls_error, make_context, no_answer
from tubemq_client.admin._web import Answer, Exchange, Web
from tubemq_client.model import TlsSettings

if TYPE_CHECKING:
    import httpx

__all__ = [
    "MAX_ANSWER_BYTES",
    "Body",
    "RequestDeadline",
    "build_request",
    "client_options",
    "network_error",
    "open_client",
]

T = TypeVar("T")

_WAITING = (ssl.SSLWantReadError, ssl.SSLWantWriteError)

_MAX_TIMEOUT_MS: Final = 600_000
"""Upper bound, the same as for `rpc_timeout_ms`."""

MAX_ANSWER_BYTES: Final = 16 << 20
"""Default limit of an answer: ten thousand partitions take less than three megabytes."""


def tls_context(web: Web, tls: TlsSettings) -> ssl.SSLContext:
    """Return the TLS context for https:// addresses, with authorities and client certificate.

    Loading authorities takes longer than most requests, so for plain HTTP it is an empty context,
    which is never used. Raises `errors.ConfigError` for files that cannot be used, and for those
    that would have no effect.
    """
    if not any(url.startswith("https:") for url in web.urls):
        if tls != TlsSettings():
            raise errors.ConfigError(
                "ca_file, cert_file, key_file have an effect on https:// addresses only",
                subject="administration",
            )
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return make_context(tls)
    except errors.ConfigError as error:
        problems = [problem.replace("tls.", "") for problem in error.problems]
        raise errors.ConfigError(problems, subject="administration") from None


def client_options(
    web: Web, tls: TlsSettings, timeout_ms: int, *, trust_env: bool
) -> dict[str, Any]:
    """Return the arguments of both httpx clients. Raises `errors.ConfigError`."""
    if not 1 <= timeout_ms <= _MAX_TIMEOUT_MS:
        raise errors.ConfigError(
            f"timeout_ms: {timeout_ms} is not from 1 to {_MAX_TIMEOUT_MS}", subject="administration"
        )
    return {
        "timeout": timeout_ms / 1000,
        "follow_redirects": False,
        "verify": tls_context(web, tls),
        "trust_env": trust_env,
    }


def open_client(make: Callable[..., T], options: Mapping[str, Any]) -> T:
    """Create a client of httpx. Raises `errors.ConfigError` for proxies of the environment that it
    cannot use; their addresses, which may hold a password, are not repeated."""
    try:
        return make(**options)
    except (ImportError, ValueError) as error:
        if not options["trust_env"]:
            raise
        raise errors.ConfigError(
            f"trust_env: a proxy of the environment cannot be used ({type(error).__name__})",
            subject="administration",
        ) from None


def build_request(
    http: httpx.Client | httpx.AsyncClient, exchange: Exchange, extensions: Mapping[str, Any]
) -> httpx.Request:
    """Build the request, without cookies of earlier answers."""
    http.cookies.clear()
    fields = dict(exchange.fields)
    return http.build_request(
        "POST" if exchange.post else "GET",
        exchange.url,
        data=fields if exchange.post else None,
        params=None if exchange.post else fields,
        headers={"Accept-Encoding": "identity"},
        extensions={**http_timeouts(http), **extensions},
    )


def http_timeouts(http: httpx.Client | httpx.AsyncClient) -> dict[str, Any]:
    """Return the client's own time-outs: extensions of a request replace them."""
    return {"timeout": http.timeout.as_dict()}


class Body:
    """Body of the answer to `exchange`, chunk by chunk. Raises `errors.ProtocolViolation` if it is
    compressed anyway, or longer than `max_bytes`."""

    def __init__(self, reply: httpx.Response, exchange: Exchange, max_bytes: int) -> None:
        self._reply = reply
        self._where = f"{exchange.fields['method']} at {exchange.url}"
        self._max_bytes = max_bytes
        self._content = bytearray()
        coding = reply.headers.get("content-encoding", "identity")
        if coding.strip().lower() not in ("", "identity"):
            raise errors.ProtocolViolation(f"{self._where}: a compressed answer was not asked for")

    def add(self, chunk: bytes) -> None:
        """Append a chunk."""
        if len(self._content) + len(chunk) > self._max_bytes:
            raise errors.ProtocolViolation(
                f"{self._where}: the answer is longer than {self._max_bytes} bytes "
                "(max_answer_bytes)"
            )
        self._content += chunk

    def answer(self) -> Answer:
        """Return the whole answer."""
        text = self._content.decode("utf-8", "replace")
        return Answer(self._reply.status_code, text, self._reply.headers.get("location", ""))


class RequestDeadline:
    """Ends a blocking exchange when its time is over, by shutting down the client's connections.

    A context manager around each exchange of one client, which only one thread uses at a time.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000
        self._sockets: list[socket.socket] = []
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        self.over = False

    def __enter__(self) -> Self:
        self.over = False
        with self._lock:
            self._sockets = [
                open_socket for open_socket in self._sockets if open_socket.fileno() >= 0
            ]
        self._timer = threading.Timer(self._timeout_s, self._cut)
        self._timer.daemon = True
        self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Handle httpcore's ``trace`` extension: remember the connection of a request."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            connection_socket = info["return_value"].get_extra_info("socket")
            with self._lock:
                self._sockets.append(connection_socket)
                late = self.over
            if late:
                self._cut()

    def _cut(self) -> None:
        with self._lock:
            self.over = True
            for open_socket in self._sockets:
                with suppress(OSError):
                    open_socket.shutdown(socket.SHUT_RDWR)


def network_error(
    error: Exception, exchange: Exchange, *, over: bool = False
) -> errors.NetworkError:
    """Map an error of httpx to one that tells whether the request can have arrived. `over`: the
    time for the whole exchange is over."""
    import httpx

    where = f"{exchange.fields['method']} at {exchange.url}"
    timed_out = over or isinstance(error, httpx.TimeoutException)
    if not timed_out and (failure := _tls_failure(error)) is not None:
        return errors.TlsError(f"{where}: {explain(failure).replace('tls.', '')}")
    text = f"{where}: {str(error) or type(error).__name__}"
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return errors.ConnectError(text)
    if timed_out:
        return errors.RpcTimeout(
            f"{where}: no answer within timeout_ms; administration is at a master's web port, "
            "8080 by default"
        )
    if exchange.url.startswith("https:"):
        text += no_answer(secured=True).replace("tls.", "")
    return errors.ConnectionLost(text)


def _tls_failure(error: BaseException) -> BaseException | None:
    """Return OpenSSL's error cause an httpx error, if TLS failed."""
    cause: BaseException | None = error
    while cause is not None and (not is_tls_error(cause) or isinstance(cause, _WAITING)):
        cause = cause.__cause__ or cause.__context__
    return cause
