"""What both drivers ask of a socket: to notice a peer that is gone, and which host it leads to.

No frames and no waiting; `blocking` and `asyncio_connection` own their sockets. Options that a
platform does not have are left out.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tubemq_client.model import Address

__all__ = ["hosts_of", "in_order", "keep_alive"]

_PROBES = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""Seconds without traffic before the kernel asks whether the peer is there, seconds between two
questions, and how many may stay without an answer."""

_UNACKNOWLEDGED_MS = 60_000
"""So long the kernel repeats what the peer does not acknowledge; Linux alone would for 15 min."""

LookedUp = tuple[Any, Any, Any, Any, tuple[Any, ...]]
"""One answer of `getaddrinfo`."""


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
