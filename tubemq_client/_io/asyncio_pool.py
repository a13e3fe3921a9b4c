"""Connections of an asyncio client, or of several that share them: one per address.

`_core.connections` decides when to open and close; sockets and locks are here. Any number of
drivers of one event loop may use connections of one pool. `pool` is its counterpart.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

from tubemq_client import errors
from tubemq_client._io.asyncio_connection import AsyncConnection, connect
from tubemq_client._io.host import now_ms
from tubemq_client._io.peers import Peer, Peers
from tubemq_client._io.sockets import hosts_of
from tubemq_client._wire.codec import TUBEMQ

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tubemq_client._io.codec import Codec
    from tubemq_client.model import Address, ClientSettings

__all__ = ["AsyncPool"]


class AsyncPool(Peers[AsyncConnection]):
    """Pool that opens connections on demand. `close()` closes them all."""

    def __init__(
        self,
        settings: ClientSettings,
        codec: Codec = TUBEMQ,
        kind: Callable[[str, Any], AsyncConnection] | None = None,
    ) -> None:
        super().__init__(settings, codec)
        self._kind = kind
        self._preparing: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()

    async def connection(self, address: Address) -> AsyncConnection:
        """Return a usable connection, opened if needed.

        Raises `errors.ConnectError`, and `errors.ClosedError` once the pool is closed.
        """
        now, peer = now_ms(), self._peer(address)
        if self._names.due(address, now):
            self._begin(self._look_up(address))
        if self._rules.sweep_due(now):
            for other in list(self._peers.values()):
                await self._drop_idle(other, now)
        if (in_use := self._in_use(address, now)) is not None:
            return in_use
        async with peer.lock:
            await self._drop_idle(peer, now)
            connection = peer.connection
            if connection is None or not connection.usable:
                connection = await self._connect(address, peer)
            connection.used_at = asyncio.get_running_loop().time()
        if self._closed.is_set():
            await connection.close()  # it was opened while the pool was being closed
        return connection

    def prepare(self, addresses: tuple[Address, ...]) -> None:
        """Begin to connect; failures are raised by the request that needs the connection."""
        for address in addresses:
            self._begin(self._try(address))

    async def look_up(self, address: Address) -> bool:
        """Look up the name of a peer that is not an active master.

        Returns True if it leads to another host too: then the next connection goes there.
        """
        peer = self._to_look_up(address)
        return peer is not None and peer.move(await self._hosts(address))

    async def _look_up(self, address: Address) -> None:
        """Retire the connection if its name no longer leads to its host."""
        hosts, peer = await self._hosts(address), self._peers.get(address)
        if peer and peer.connection and peer.is_elsewhere(hosts):
            peer.connection.retired = True

    async def _hosts(self, address: Address) -> frozenset[str]:
        """Return the addresses of a name; empty without an answer, so that nothing changes."""
        loop = asyncio.get_running_loop()
        try:
            return hosts_of(await loop.getaddrinfo(*address, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError):
            return frozenset()

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name="tubemq-connect")
        self._preparing.add(task)
        task.add_done_callback(self._preparing.discard)

    async def reach(self, address: Address) -> bool:
        """Return whether there is a connection; if not, one is being opened in the background.

        Raises the failure of that attempt since the last call.
        """
        peer = self._peer(address)
        if not peer.connecting and not peer.lock.locked():
            await self._drop_idle(peer, now_ms())
        if peer.connecting or peer.lock.locked():
            return False
        if peer.connection is not None and peer.connection.usable:
            return True
        peer.take_failure()
        peer.connecting = True
        self._begin(self._try(address))
        return False

    async def _try(self, address: Address) -> None:
        failure: errors.TubeMQError | None = None
        try:
            await self.connection(address)
        except errors.ClosedError:
            pass  # the pool has been closed meanwhile
        except errors.TubeMQError as error:
            failure = error
        finally:
            self._tried(address, failure)

    def abandon(self) -> None:
        """Close everything at once, without awaiting anything: cancellation must not prevent it."""
        self._closed.set()
        for task in self._preparing:
            task.cancel()
        for peer in self._peers.values():
            for connection in peer.connections():
                connection.abandon()

    async def close(self) -> None:
        """Return when all sockets are closed; if cancelled, they are closed nevertheless."""
        self.abandon()
        await asyncio.gather(*self._preparing, return_exceptions=True)
        closing = [
            connection.close() for peer in self._peers.values() for connection in peer.take_all()
        ]
        await asyncio.gather(*closing, return_exceptions=True)

    async def _drop_idle(self, peer: Peer[AsyncConnection], now: int) -> None:
        for connection in self._take_idle(peer, now):
            await connection.close()

    async def _connect(self, address: Address, peer: Peer[AsyncConnection]) -> AsyncConnection:
        if pause := self._rules.wait_ms(address, now_ms()):
            await self._pause(pause)
            self._raise_if_closed()
        try:
            options: dict[str, Any] = dict(peer.options())
            if self._kind is not None:
                options["kind"] = self._kind
            opened = await connect(address, self._settings, self.codec, **options)
        except errors.ConnectError:
            self._could_not_connect(address)
            raise
        self._rules.opened(address)
        return peer.adopt(opened)

    async def _pause(self, ms: int) -> None:
        try:
            async with asyncio.timeout(ms / 1000):
                await self._closed.wait()
        except TimeoutError:
            pass

    def _peer(self, address: Address) -> Peer[AsyncConnection]:
        self._raise_if_closed()
        return self._peers.get(address) or self._peers.setdefault(address, Peer(asyncio.Lock()))

    def _raise_if_closed(self) -> None:
        if self._closed.is_set():
            raise errors.ClosedError("the client is closed")
