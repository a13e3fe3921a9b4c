"""What both drivers ask of a socket: to notice a peer that is gone, which host it leads to, and
what it has.

No frames and no waiting; `blocking` and `asyncio_connection` own their sockets. Options that a
platform does not have are left out.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tubemq_client.model import Address

__all__ = ["Intake", "hosts_of", "in_order", "keep_alive"]

_PROBES = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""Seconds without traffic before the kernel asks whether the peer is there, seconds between two
questions, and how many may stay without an answer."""

_UNACKNOWLEDGED_MS = 60_000
"""So long the kernel repeats what the peer does not acknowledge; Linux alone would for 15 min."""

_RECEIVE_BYTES = 512 * 1024
_MUCH_BYTES = 64 * 1024

LookedUp = tuple[Any, Any, Any, Any, tuple[Any, ...]]
"""One answer of `getaddrinfo`."""


class Intake:
    """Takes what a socket that never blocks has. Where much came the last time it goes where it can
    stay, as frames would have to copy it otherwise; small replies are not worth such room."""

    def __init__(self, sock: Any, *, secured: bool) -> None:
        self._sock = sock
        self._secured = secured  # TLS takes what has come piece by piece, into a buffer
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._comes_much = False

    def take(self) -> bytes | memoryview:
        """Nothing at the end. A view is good until the next call. Raises the socket's `OSError`,
        `BlockingIOError` when nothing has come."""
        if self._comes_much and not self._secured:
            data: bytes | memoryview = self._sock.recv(_RECEIVE_BYTES)
        else:
            data = self._buffer[: self._sock.recv_into(self._buffer)]
        self._comes_much = len(data) >= _MUCH_BYTES
        return data


def keep_alive(sock: socket.socket) -> None:
    """Have the kernel notice a peer that vanished without a word, in about a minute."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*_PROBES, ("TCP_USER_TIMEOUT", _UNACKNOWLEDGED_MS)):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def hosts_of(found: Iterable[LookedUp]) -> frozenset[str]:
    """The IP addresses a name leads to."""
    return frozenset(str(entry[4][0]) for entry in found)


def in_order(found: Iterable[LookedUp], avoid: str) -> list[Address]:
    """Where to connect to, the host `avoid` last."""
    ends = [(str(entry[4][0]), int(entry[4][1])) for entry in found]
    return sorted(dict.fromkeys(ends), key=lambda end: end[0] == avoid)
