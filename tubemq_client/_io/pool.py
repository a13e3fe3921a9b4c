"""Blocking connections of a client, or of several that share them: one per address.

`_core.connections` decides when to open and close; sockets and locks are here. Any number of
drivers, in any threads, may use connections of one pool. `asyncio_pool` is its counterpart.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

from tubemq_client import errors
from tubemq_client._io.blocking import BlockingConnection, connect
from tubemq_client._io.host import now_ms
from tubemq_client._io.peers import QUIET_MS, Peer, Peers
from tubemq_client._io.sockets import hosts_of
from tubemq_client._wire.codec import TUBEMQ

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubemq_client._io.codec import Codec
    from tubemq_client.model import Address, ClientSettings

__all__ = ["BlockingPool"]


class BlockingPool(Peers[BlockingConnection]):
    """Pool that opens connections on demand. `close()` closes them all."""

    def __init__(self, settings: ClientSettings, codec: Codec = TUBEMQ) -> None:
        super().__init__(settings, codec)
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def connection(self, address: Address) -> BlockingConnection:
        """Return a usable connection, opened if needed.

        Raises `errors.ConnectError`, and `errors.ClosedError` once the pool is closed.
        """
        now = now_ms()
        if self._names.due(address, now):
            self._begin(self._look_up, address)
        if (in_use := self._in_use(address, now)) is not None:
            return in_use
        with self._lock:
            peer = self._peer(address)
            sweep = list(self._peers.values()) if self._rules.sweep_due(now) else []
        for other in sweep:
            if other is not peer and other.lock.acquire(blocking=False):
                self._drop_idle(other, now)
                other.lock.release()
        with peer.lock:
            self._drop_idle(peer, now)
            self._drop_hung_up(peer, now)
            connection = peer.connection
            if connection is None or not connection.usable:
                connection = self._connect(address, peer)
            connection.used_at = time.monotonic()  # before the lock is free: no longer idle
        if self._closed.is_set():
            connection.close()  # it was opened while the pool was being closed
        return connection

    def prepare(self, addresses: tuple[Address, ...]) -> None:
        """Begin to connect; failures are raised by the request that needs the connection."""
        for address in addresses:
            self._begin(self._try, address)

    def look_up(self, address: Address) -> bool:
        """Look up the name of a peer that is not an active master.

        Returns True if it leads to another host too: then the next connection goes there.
        """
        peer = self._to_look_up(address)
        return peer is not None and peer.move(self._hosts(address))

    def _look_up(self, address: Address) -> None:
        """Retire the connection if its name no longer leads to its host."""
        hosts, peer = self._hosts(address), self._peers.get(address)
        if peer and peer.connection and peer.is_elsewhere(hosts):
            peer.connection.retired = True

    def _hosts(self, address: Address) -> frozenset[str]:
        """Return the addresses of a name; empty without an answer, so that nothing changes."""
        try:
            return hosts_of(socket.getaddrinfo(*address, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError):
            return frozenset()

    def _begin(self, work: Callable[[Address], None], address: Address) -> None:
        threading.Thread(target=work, args=(address,), name="tubemq-connect", daemon=True).start()

    def reach(self, address: Address) -> bool:
        """Return whether there is a connection; if not, one is being opened in the background.

        Raises the failure of that attempt since the last call.
        """
        if self._in_use(address, now := now_ms()) is not None:
            return True
        with self._lock:
            peer = self._peer(address)
        if peer.connecting or not peer.lock.acquire(blocking=False):
            return False
        try:
            self._drop_idle(peer, now)
            self._drop_hung_up(peer, now)
            if peer.connection is not None and peer.connection.usable:
                return True
            peer.take_failure()
            self._begin(self._try, address)
            peer.connecting = True  # while the lock is ours: the attempt has not ended yet
        finally:
            peer.lock.release()
        return False

    def _try(self, address: Address) -> None:
        failure: errors.TubeMQError | None = None
        try:
            self.connection(address)
        except errors.ClosedError:
            pass  # the pool has been closed meanwhile
        except errors.TubeMQError as error:
            failure = error
        self._tried(address, failure)

    def close(self) -> None:
        with self._lock:
            self._closed.set()
        for peer in self._peers.values():
            for connection in peer.take_all():
                connection.close()

    def _drop_idle(self, peer: Peer[BlockingConnection], now: int) -> None:
        for connection in self._take_idle(peer, now):
            connection.close()

    def _drop_hung_up(self, peer: Peer[BlockingConnection], now: int) -> None:
        """Drop a connection that the peer has closed.

        An event loop notices that at once; here nothing reads between calls.
        """
        connection = peer.connection
        quiet = (
            connection and connection.in_flight == 0 and now - connection.used_at * 1000 > QUIET_MS
        )
        if connection and quiet and connection.hung_up():
            peer.connection = None
            connection.close()

    def _connect(self, address: Address, peer: Peer[BlockingConnection]) -> BlockingConnection:
        self._closed.wait(self._rules.wait_ms(address, now_ms()) / 1000)
        self._raise_if_closed()
        try:
            opened = connect(address, self._settings, self.codec, **peer.options())
        except errors.ConnectError:
            self._could_not_connect(address)
            raise
        self._rules.opened(address)
        return peer.adopt(opened)

    def _peer(self, address: Address) -> Peer[BlockingConnection]:
        self._raise_if_closed()
        return self._peers.get(address) or self._peers.setdefault(address, Peer(threading.Lock()))

    def _raise_if_closed(self) -> None:
        if self._closed.is_set():
            raise errors.ClosedError("the client is closed")
