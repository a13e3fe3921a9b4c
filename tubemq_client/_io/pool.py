"""The blocking connections of a client, or of several that share them: one for every address.

When to open and close is decided in `_core.connections`; here are the sockets and the locks. Any
number of drivers, in any threads, may take connections of one pool. `asyncio_pool` is its twin.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tubemq_client import errors
from tubemq_client._core.connections import ConnectionRules
from tubemq_client._io.blocking import BlockingConnection, connect
from tubemq_client._wire.codec import TUBEMQ

if TYPE_CHECKING:
    from tubemq_client._io.codec import Codec
    from tubemq_client.model import Address, ClientSettings

__all__ = ["BlockingPool"]

_QUIET_MS = 100
"""After so long without traffic a connection is looked at before it is used again."""


@dataclass(slots=True)
class _Peer:
    """An address: whoever holds `lock` connects, the others wait and share what comes of it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: BlockingConnection | None = None


class BlockingPool:
    """Opens connections when they are asked for. `close()` closes them all."""

    def __init__(self, settings: ClientSettings, codec: Codec = TUBEMQ) -> None:
        self._settings = settings
        self.codec = codec
        self._lock = threading.Lock()
        self._peers: dict[Address, _Peer] = {}
        self._rules = ConnectionRules.of(settings)
        self._closed = threading.Event()

    def connection(self, address: Address) -> BlockingConnection:
        """A usable connection, opened if need be. Raises `errors.ConnectError`, and
        `errors.ClosedError` once the pool is closed."""
        now = _now_ms()
        known = self._peers.get(address)
        found = known and known.connection
        if found and found.usable and now - found.used_at * 1000 < _QUIET_MS:
            return found  # it was in use just now: neither idle nor hung up, no lock needed
        with self._lock:
            self._raise_if_closed()
            peer = self._peers.setdefault(address, _Peer())
            sweep = list(self._peers.values()) if self._rules.sweep_due(now) else []
        for other in sweep:
            if other is not peer and other.lock.acquire(blocking=False):
                self._drop_idle(other, now)
                other.lock.release()
        with peer.lock:
            self._drop_idle(peer, now)
            self._drop_hung_up(peer, now)
            if peer.connection is None or not peer.connection.usable:
                peer.connection = self._connect(address)
            connection = peer.connection
            connection.used_at = time.monotonic()  # before the lock is free: no longer idle
        if self._closed.is_set():
            connection.close()  # it was opened while the pool was being closed
        return connection

    def prepare(self, addresses: tuple[Address, ...]) -> None:
        """Begin to connect; failures are left to who needs the connection."""
        for address in addresses:
            threading.Thread(
                target=self._try, args=(address,), name="tubemq-connect", daemon=True
            ).start()

    def _try(self, address: Address) -> None:
        try:
            self.connection(address)
        except errors.TubeMQError:
            pass  # also when the pool has been closed meanwhile

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            peers, self._peers = self._peers, {}
        for peer in peers.values():
            if peer.connection is not None:
                peer.connection.close()

    def _drop_idle(self, peer: _Peer, now: int) -> None:
        found = peer.connection
        if found and self._rules.is_idle(round(found.used_at * 1000), found.in_flight, now):
            peer.connection = None
            found.close()

    def _drop_hung_up(self, peer: _Peer, now: int) -> None:
        """An event loop hears at once when a peer hangs up; here nobody listens between calls."""
        found = peer.connection
        quiet = found and found.in_flight == 0 and now - found.used_at * 1000 > _QUIET_MS
        if found and quiet and found.hung_up():
            peer.connection = None
            found.close()

    def _connect(self, address: Address) -> BlockingConnection:
        self._closed.wait(self._rules.wait_ms(address, _now_ms()) / 1000)
        self._raise_if_closed()
        try:
            connection = connect(address, self._settings, self.codec)
        except errors.ConnectError:
            chance = random.random()  # noqa: S311 - spreads attempts, guards nothing
            self._rules.failed(address, _now_ms(), chance)
            raise
        self._rules.opened(address)
        return connection

    def _raise_if_closed(self) -> None:
        if self._closed.is_set():
            raise errors.ClosedError("the client is closed")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
