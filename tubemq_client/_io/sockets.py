"""Socket options and reads for both drivers: detect a dead peer, resolve hosts, receive data.

No frames and no waiting; `blocking` and `asyncio_connection` own their sockets. Options that a
platform does not have are skipped.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tubemq_client.model import Address

__all__ = ["SocketReader", "hosts_of", "in_order", "keep_alive"]

_PROBES = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""Seconds without traffic before the kernel probes the peer, seconds between two probes, and the
number of probes that may stay unanswered."""

_UNACKNOWLEDGED_MS = 60_000
"""Time during which the kernel repeats unacknowledged data; Linux's default would be 15 min."""

_RECEIVE_BYTES = 512 * 1024
_MUCH_BYTES = 64 * 1024

LookedUp = tuple[Any, Any, Any, Any, tuple[Any, ...]]
"""Answer of `getaddrinfo`."""


class SocketReader:
    """Reader of a non-blocking socket.

    After a large read the next one goes into a new buffer, which frames may keep without a copy;
    small replies use a shared buffer.
    """

    def __init__(self, sock: Any, *, secured: bool) -> None:
        self._sock = sock
        self._secured = secured  # TLS reads record by record, into a buffer
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._comes_much = False

    def take(self) -> bytes | memoryview:
        """Return received data, empty at the end of the stream.

        A view is valid until the next call. Raises the socket's `OSError`, `BlockingIOError` when
        nothing has arrived.
        """
        if self._comes_much and not self._secured:
            data: bytes | memoryview = self._sock.recv(_RECEIVE_BYTES)
        else:
            data = self._buffer[: self._sock.recv_into(self._buffer)]
        self._comes_much = len(data) >= _MUCH_BYTES
        return data


def keep_alive(sock: socket.socket) -> None:
    """Let the kernel detect a peer that vanished without notice, in about a minute."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*_PROBES, ("TCP_USER_TIMEOUT", _UNACKNOWLEDGED_MS)):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def hosts_of(found: Iterable[LookedUp]) -> frozenset[str]:
    """Return the IP addresses of a name."""
    return frozenset(str(entry[4][0]) for entry in found)


def in_order(found: Iterable[LookedUp], avoid: str) -> list[Address]:
    """Return the addresses to connect to, the host `avoid` last."""
    ends = [(str(entry[4][0]), int(entry[4][1])) for entry in found]
    return sorted(dict.fromkeys(ends), key=lambda end: end[0] == avoid)
