"""One HTTP exchange in bounded time and memory: what both administration clients share of httpx.

Servers are not trusted with more than an answer. Answers are asked for as they are (compressed ones
can be a thousand times their size), read in pieces up to a limit, and given up when the time for
the whole exchange is over: httpx bounds each read alone, so that a byte now and then would keep a
caller for ever. Cookies are not kept. Nothing here knows what an answer means.
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
    "Cutter",
    "network_error",
    "opened",
    "options_of",
    "request_of",
]

T = TypeVar("T")

_WAITING = (ssl.SSLWantReadError, ssl.SSLWantWriteError)

MAX_ANSWER_BYTES: Final = 16 << 20
"""Of an answer by default: ten thousand partitions have less than three megabytes."""


def trust(web: Web, tls: TlsSettings) -> ssl.SSLContext:
    """Whom to trust and what to show if an address has TLS. Loading it takes longer than most
    requests, so elsewhere it is a context that trusts nobody, and is never asked. Raises
    `errors.ConfigError` for files that cannot be used, and for those that would have no effect."""
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


def options_of(web: Web, tls: TlsSettings, timeout_ms: int, *, trust_env: bool) -> dict[str, Any]:
    """What either client of httpx is made with."""
    return {
        "timeout": timeout_ms / 1000,
        "follow_redirects": False,
        "verify": trust(web, tls),
        "trust_env": trust_env,
    }


def opened(make: Callable[..., T], options: Mapping[str, Any]) -> T:
    """A client of httpx. Raises `errors.ConfigError` for proxies of the environment that it cannot
    use; their addresses, which may hold a password, are not repeated."""
    try:
        return make(**options)
    except (ImportError, ValueError) as error:
        if not options["trust_env"]:
            raise
        raise errors.ConfigError(
            f"trust_env: a proxy of the environment cannot be used ({type(error).__name__})",
            subject="administration",
        ) from None


def request_of(
    http: httpx.Client | httpx.AsyncClient, wanted: Exchange, extensions: Mapping[str, Any]
) -> httpx.Request:
    """The request, without cookies of earlier answers."""
    http.cookies.clear()
    fields = dict(wanted.fields)
    return http.build_request(
        "POST" if wanted.post else "GET",
        wanted.url,
        data=fields if wanted.post else None,
        params=None if wanted.post else fields,
        headers={"Accept-Encoding": "identity"},
        extensions={**http_timeouts(http), **extensions},
    )


def http_timeouts(http: httpx.Client | httpx.AsyncClient) -> dict[str, Any]:
    """The client's own time-outs: extensions of a request replace them."""
    return {"timeout": http.timeout.as_dict()}


class Body:
    """The answer to `wanted`, piece by piece. Raises `errors.ProtocolViolation` for one that is
    compressed all the same, or longer than `max_bytes`."""

    def __init__(self, reply: httpx.Response, wanted: Exchange, max_bytes: int) -> None:
        self._reply = reply
        self._where = f"{wanted.fields['method']} at {wanted.url}"
        self._max_bytes = max_bytes
        self._pieces = bytearray()
        coding = reply.headers.get("content-encoding", "identity")
        if coding.strip().lower() not in ("", "identity"):
            raise errors.ProtocolViolation(f"{self._where}: a compressed answer was not asked for")

    def add(self, piece: bytes) -> None:
        """Take another piece."""
        if len(self._pieces) + len(piece) > self._max_bytes:
            raise errors.ProtocolViolation(
                f"{self._where}: the answer is longer than {self._max_bytes} bytes "
                "(max_answer_bytes)"
            )
        self._pieces += piece

    def answer(self) -> Answer:
        """All of it."""
        text = self._pieces.decode("utf-8", "replace")
        return Answer(self._reply.status_code, text, self._reply.headers.get("location", ""))


class Cutter:
    """Ends a blocking exchange when its time is over, by shutting down the client's connections.

    A context manager around each exchange of one client, which one thread at a time uses.
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
            self._sockets = [known for known in self._sockets if known.fileno() >= 0]
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
        """What httpcore reports of a request (its extension ``trace``): remember its connection."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            found = info["return_value"].get_extra_info("socket")
            with self._lock:
                self._sockets.append(found)
                late = self.over
            if late:
                self._cut()

    def _cut(self) -> None:
        with self._lock:
            self.over = True
            for known in self._sockets:
                with suppress(OSError):
                    known.shutdown(socket.SHUT_RDWR)


def network_error(error: Exception, wanted: Exchange, *, over: bool = False) -> errors.NetworkError:
    """What an error of httpx means to a caller: whether the request can have arrived. `over` tells
    that the time for the whole exchange was."""
    import httpx

    where = f"{wanted.fields['method']} at {wanted.url}"
    timed_out = over or isinstance(error, httpx.TimeoutException)
    if not timed_out and (failure := _tls_failure(error)) is not None:
        return errors.TlsError(f"{where}: {explain(failure).replace('tls.', '')}")
    what = f"{where}: {str(error) or type(error).__name__}"
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return errors.ConnectError(what)
    if timed_out:
        return errors.RpcTimeout(f"{what} (timeout_ms)")
    if wanted.url.startswith("https:"):
        what += no_answer(secured=True).replace("tls.", "")
    return errors.ConnectionLost(what)


def _tls_failure(error: BaseException) -> BaseException | None:
    """What OpenSSL raised below httpx, if it was TLS that failed."""
    below: BaseException | None = error
    while below is not None and (not is_tls_error(below) or isinstance(below, _WAITING)):
        below = below.__cause__ or below.__context__
    return below
