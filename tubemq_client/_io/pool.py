"""The blocking connections of a client, or of several that share them: one for every address.

When to open and close is decided in `_core.connections`; here are the sockets and the locks. Any
number of drivers, in any threads, may take connections of one pool. `asyncio_pool` is its twin.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tubemq_client import errors
from tubemq_client._core.connections import ConnectionRules, NameRules
from tubemq_client._io.blocking import BlockingConnection, connect
from tubemq_client._io.sockets import hosts_of
from tubemq_client._wire.codec import TUBEMQ

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubemq_client._io.codec import Codec
    from tubemq_client.model import Address, ClientSettings

__all__ = ["BlockingPool"]

_QUIET_MS = 100
"""After so long without traffic a connection is looked at before it is used again."""


@dataclass(slots=True)
class _Peer:
    """An address: whoever holds `lock` connects, the others wait and share what comes of it.

    `leaving` are connections that were replaced while requests on them were under way. The host
    `avoid`, which its name leads to, is connected to last. `connecting`: somebody does so beside
    whoever asked to `reach` it; `failure` is what came of the last attempt of that kind.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: BlockingConnection | None = None
    leaving: list[BlockingConnection] = field(default_factory=list)
    avoid: str | None = None
    connecting: bool = False
    failure: errors.ConnectError | None = None


class BlockingPool:
    """Opens connections when they are asked for. `close()` closes them all."""

    def __init__(self, settings: ClientSettings, codec: Codec = TUBEMQ) -> None:
        self._settings = settings
        self.codec = codec
        self._lock = threading.Lock()
        self._peers: dict[Address, _Peer] = {}
        self._rules, self._names = ConnectionRules.of(settings), NameRules.of(settings)
        self._closed = threading.Event()

    def connection(self, address: Address) -> BlockingConnection:
        """A usable connection, opened if need be. Raises `errors.ConnectError`, and
        `errors.ClosedError` once the pool is closed."""
        now = _now_ms()
        known = self._peers.get(address)
        found = known and known.connection
        if self._names.due(address, now):
            self._begin(self._look_up, address)
        if found and _is_good(found) and now - found.used_at * 1000 < _QUIET_MS:
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
                peer.connection = self._connect(address, peer.avoid)
            connection = peer.connection
            connection.used_at = time.monotonic()  # before the lock is free: no longer idle
        if self._closed.is_set():
            connection.close()  # it was opened while the pool was being closed
        return connection

    def prepare(self, addresses: tuple[Address, ...]) -> None:
        """Begin to connect; failures are left to who needs the connection."""
        for address in addresses:
            self._begin(self._try, address)

    def look_up(self, address: Address) -> bool:
        """Look up the name of a peer that is not the one it should be. Tells whether it leads to
        another host, too: then that is where the next connection goes."""
        peer = self._peers.get(address)
        found = peer and peer.connection
        if not (peer and found and self._names.worth_it(address, _now_ms())):
            return False
        if not self._hosts(address) - {found.host}:
            return False
        peer.avoid, found.retired = found.host, True
        return True

    def _look_up(self, address: Address) -> None:
        """A connection to a host that its name does not lead to any more is given out no more."""
        peer = self._peers.get(address)
        found = peer and peer.connection
        hosts = self._hosts(address)
        if found and hosts and found.host not in hosts:
            found.retired = True

    def _hosts(self, address: Address) -> frozenset[str]:
        """Empty if there is no answer: then everything stays as it is."""
        try:
            return hosts_of(socket.getaddrinfo(*address, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError):
            return frozenset()

    def _begin(self, work: Callable[[Address], None], address: Address) -> None:
        threading.Thread(target=work, args=(address,), name="tubemq-connect", daemon=True).start()

    def reach(self, address: Address) -> bool:
        """Whether there is a connection; if not, one is being opened in the background. Raises the
        `errors.ConnectError` that came of that since the last question."""
        now, peer = _now_ms(), self._peers.get(address)
        found = peer and peer.connection
        if found and _is_good(found) and now - found.used_at * 1000 < _QUIET_MS:
            return True
        with self._lock:
            self._raise_if_closed()
            peer = self._peers.setdefault(address, _Peer())
        if peer.connecting or not peer.lock.acquire(blocking=False):
            return False
        try:
            self._drop_idle(peer, now)
            self._drop_hung_up(peer, now)
            if peer.connection is not None and peer.connection.usable:
                return True
            failure, peer.failure = peer.failure, None
            if failure is not None:
                raise failure
            peer.connecting = True
        finally:
            peer.lock.release()
        self._begin(self._try, address)
        return False

    def _try(self, address: Address) -> None:
        failure: errors.ConnectError | None = None
        try:
            self.connection(address)
        except errors.ConnectError as error:
            failure = error
        except errors.TubeMQError:
            pass  # the pool has been closed meanwhile
        peer = self._peers.get(address)
        if peer is not None:
            peer.failure, peer.connecting = failure, False

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            peers, self._peers = self._peers, {}
        for peer in peers.values():
            for connection in (peer.connection, *peer.leaving):
                if connection is not None:
                    connection.close()

    def _drop_idle(self, peer: _Peer, now: int) -> None:
        found = peer.connection
        if found and found.retired:
            peer.leaving.append(found)
            found = peer.connection = None
        for leaving in [old for old in peer.leaving if old.in_flight == 0]:
            peer.leaving.remove(leaving)
            leaving.close()
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

    def _connect(self, address: Address, avoid: str | None) -> BlockingConnection:
        self._closed.wait(self._rules.wait_ms(address, _now_ms()) / 1000)
        self._raise_if_closed()
        try:
            options = {"avoid": avoid} if avoid else {}
            connection = connect(address, self._settings, self.codec, **options)
        except errors.ConnectError:
            chance = random.random()  # noqa: S311 - spreads attempts, guards nothing
            self._rules.failed(address, _now_ms(), chance)
            raise
        self._rules.opened(address)
        return connection

    def _raise_if_closed(self) -> None:
        if self._closed.is_set():
            raise errors.ClosedError("the client is closed")


def _is_good(connection: BlockingConnection) -> bool:
    return connection.usable and not connection.retired


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
