"""The connections of an asyncio client, or of several that share them: one for every address.

When to open and close is decided in `_core.connections`; here are the sockets and the locks. Any
number of drivers of one event loop may take connections of one pool. `pool` is its twin.
"""

from __future__ import annotations

import asyncio
import random
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tubemq_client import errors
from tubemq_client._core.connections import ConnectionRules, NameRules
from tubemq_client._io.asyncio_connection import AsyncConnection, connect
from tubemq_client._io.sockets import hosts_of
from tubemq_client._wire.codec import TUBEMQ

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tubemq_client._io.codec import Codec
    from tubemq_client.model import Address, ClientSettings

__all__ = ["AsyncPool"]


@dataclass(slots=True)
class _Peer:
    """An address: whoever holds `lock` connects, the others wait and share what comes of it.

    `leaving` are connections that were replaced while requests on them were under way. The host
    `avoid`, which its name leads to, is connected to last. `connecting`: somebody does so beside
    whoever asked to `reach` it; `failure` is what came of the last attempt of that kind.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: AsyncConnection | None = None
    leaving: list[AsyncConnection] = field(default_factory=list)
    avoid: str | None = None
    connecting: bool = False
    failure: errors.ConnectError | None = None


class AsyncPool:
    """Opens connections when they are asked for. `close()` closes them all."""

    def __init__(
        self,
        settings: ClientSettings,
        codec: Codec = TUBEMQ,
        kind: Callable[[str, Any], AsyncConnection] | None = None,
    ) -> None:
        self._settings, self._kind = settings, kind
        self.codec = codec
        self._peers: dict[Address, _Peer] = {}
        self._rules, self._names = ConnectionRules.of(settings), NameRules.of(settings)
        self._preparing: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()

    async def connection(self, address: Address) -> AsyncConnection:
        """A usable connection, opened if need be. Raises `errors.ConnectError`, and
        `errors.ClosedError` once the pool is closed."""
        now = _now_ms()
        self._raise_if_closed()
        peer = self._peers.setdefault(address, _Peer())
        if self._names.due(address, now):
            self._begin(self._look_up(address))
        if self._rules.sweep_due(now):
            for other in list(self._peers.values()):
                await self._drop_idle(other, now)
        async with peer.lock:
            await self._drop_idle(peer, now)
            if peer.connection is None or not peer.connection.usable:
                peer.connection = await self._connect(address, peer.avoid)
            connection = peer.connection
            connection.used_at = asyncio.get_running_loop().time()
        if self._closed.is_set():
            await connection.close()  # it was opened while the pool was being closed
        return connection

    def prepare(self, addresses: tuple[Address, ...]) -> None:
        """Begin to connect; failures are left to who needs the connection."""
        for address in addresses:
            self._begin(self._try(address))

    async def look_up(self, address: Address) -> bool:
        """Look up the name of a peer that is not the one it should be. Tells whether it leads to
        another host, too: then that is where the next connection goes."""
        peer = self._peers.get(address)
        found = peer and peer.connection
        if not (peer and found and self._names.worth_it(address, _now_ms())):
            return False
        if not await self._hosts(address) - {found.host}:
            return False
        peer.avoid, found.retired = found.host, True
        return True

    async def _look_up(self, address: Address) -> None:
        """A connection to a host that its name does not lead to any more is given out no more."""
        peer = self._peers.get(address)
        found = peer and peer.connection
        hosts = await self._hosts(address)
        if found and hosts and found.host not in hosts:
            found.retired = True

    async def _hosts(self, address: Address) -> frozenset[str]:
        """Empty if there is no answer: then everything stays as it is."""
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
        """Whether there is a connection; if not, one is being opened in the background. Raises the
        `errors.ConnectError` that came of that since the last question."""
        self._raise_if_closed()
        peer = self._peers.setdefault(address, _Peer())
        if not peer.connecting and not peer.lock.locked():
            await self._drop_idle(peer, _now_ms())
        if peer.connecting or peer.lock.locked():
            return False
        if peer.connection is not None and peer.connection.usable:
            return True
        failure, peer.failure = peer.failure, None
        if failure is not None:
            raise failure
        peer.connecting = True
        self._begin(self._try(address))
        return False

    async def _try(self, address: Address) -> None:
        failure: errors.ConnectError | None = None
        try:
            await self.connection(address)
        except errors.ConnectError as error:
            failure = error
        except errors.TubeMQError:
            pass  # the pool has been closed meanwhile
        finally:
            peer = self._peers.get(address)
            if peer is not None:
                peer.failure, peer.connecting = failure, False

    def abandon(self) -> None:
        """Close everything at once, without waiting for it: what may be cancelled must not be what
        closes."""
        self._closed.set()
        for task in self._preparing:
            task.cancel()
        for peer in self._peers.values():
            for connection in (peer.connection, *peer.leaving):
                if connection is not None:
                    connection.abandon()

    async def close(self) -> None:
        """Returns when all sockets are closed; cancelled, they are closed all the same."""
        self.abandon()
        await asyncio.gather(*self._preparing, return_exceptions=True)
        peers, self._peers = self._peers, {}
        closing = [
            connection.close()
            for peer in peers.values()
            for connection in (peer.connection, *peer.leaving)
            if connection
        ]
        await asyncio.gather(*closing, return_exceptions=True)

    async def _drop_idle(self, peer: _Peer, now: int) -> None:
        found = peer.connection
        if found and found.retired:
            peer.leaving.append(found)
            found = peer.connection = None
        for leaving in [old for old in peer.leaving if old.in_flight == 0]:
            peer.leaving.remove(leaving)
            await leaving.close()
        if found and self._rules.is_idle(round(found.used_at * 1000), found.in_flight, now):
            peer.connection = None
            await found.close()

    async def _connect(self, address: Address, avoid: str | None) -> AsyncConnection:
        if pause := self._rules.wait_ms(address, _now_ms()):
            await self._pause(pause)
            self._raise_if_closed()
        try:
            options: dict[str, Any] = {"avoid": avoid} if avoid else {}
            if self._kind is not None:
                options["kind"] = self._kind
            connection = await connect(address, self._settings, self.codec, **options)
        except errors.ConnectError:
            chance = random.random()  # noqa: S311 - spreads attempts, guards nothing
            self._rules.failed(address, _now_ms(), chance)
            raise
        self._rules.opened(address)
        return connection

    async def _pause(self, ms: int) -> None:
        try:
            async with asyncio.timeout(ms / 1000):
                await self._closed.wait()
        except TimeoutError:
            pass

    def _raise_if_closed(self) -> None:
        if self._closed.is_set():
            raise errors.ClosedError("the client is closed")


def _now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)
