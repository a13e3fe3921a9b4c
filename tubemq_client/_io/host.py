"""Machine and process of a client: its address, its ids, and clocks.

Asks the kernel, never a name server: a resolver that does not answer would block an event loop for
seconds. Both APIs share it, numbers included, so that ids differ between them too.
"""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import time
from ipaddress import IPv4Address

from tubemq_client._core.identity import ClientIds

__all__ = ["client_ids", "epoch_ms", "first_nonce", "local_ipv4", "now_ms", "signed_ipv4"]

_ANYWHERE = ("192.0.2.1", 9)
"""Address of the block reserved for documentation; stands for any remote host."""

_NUMBERS = itertools.count(1)
"""Shared by all clients of the process; a forked child differs by its process id."""


def client_ids() -> ClientIds:
    """Return ids for one client object.

    Unique among all clients of all processes of this machine.
    """
    return ClientIds(local_ipv4(), os.getpid(), time.time_ns() // 1_000_000, _NUMBERS)


def now_ms() -> int:
    """Return monotonic milliseconds, the time of conversations."""
    return time.monotonic_ns() // 1_000_000


def epoch_ms() -> int:
    """Return milliseconds since the epoch, by this machine's clock."""
    return time.time_ns() // 1_000_000


def first_nonce() -> int:
    """Return the first number of a client's signatures, which is unpredictable."""
    return secrets.randbits(31)


def local_ipv4() -> str:
    """Return the IPv4 address this machine would send from; loopback without a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ANYWHERE)  # chooses a route and sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def signed_ipv4(host: str) -> int:
    """Return an IPv4 address as the int32 that TubeMQ's messages carry."""
    value = int(IPv4Address(host))
    return value - (1 << 32) if value >= 1 << 31 else value
