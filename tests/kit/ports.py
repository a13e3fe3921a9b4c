"""Ports of 127.0.0.1 that no other process can get while a test needs them.

A port that was bound and released may go to another process before the test uses it. Here the
socket stays bound: it does not listen, so connections to it are refused, and a server that sets
SO_REUSEADDR, as asyncio and `socket.create_server` do, can still listen on the port.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
