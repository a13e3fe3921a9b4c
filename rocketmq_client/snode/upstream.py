"""The node's connections to name servers and brokers: shared ones, and a member's own.

Sockets, pairing and deadlines are `tubemq_client._io`'s: every connection numbers its requests
itself, so the numbers of two clients never meet. A member's own connection hands over what the
broker asks of the member.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from rocketmq_client import errors
from rocketmq_client._wire.bodies import ClusterInfo, parse_cluster_info
from rocketmq_client._wire.codec import ROCKETMQ
from rocketmq_client._wire.commands import Command, encode_command
from rocketmq_client._wire.framing import Reply, ReplyDecoder
from rocketmq_client.model import Address, ClientSettings, NetworkSettings
from rocketmq_client.snode.settings import SnodeSettings
from tubemq_client._io.asyncio_connection import AsyncConnection, connect
from tubemq_client._io.asyncio_pool import AsyncPool

__all__ = ["BoundConnection", "Upstream", "ask"]


async def ask(connection: AsyncConnection, request: Command, timeout_ms: int) -> Command | None:
    """The answer to a request, under the request's own number; None for a one-way request. The
    header is written anew, the body goes on as it is."""
    seconds = timeout_ms / 1000
    serial = await connection.post(
        lambda number: encode_command(request._replace(opaque=number, binary=False)), seconds
    )
    if request.is_one_way:
        connection.forget(serial)
        return None
    deadline = asyncio.get_running_loop().time() + seconds
    found: object = await connection.wait(serial, deadline)
    assert isinstance(found, Command), "the codec's decoder makes them"
    return found._replace(opaque=request.opaque, binary=False)


class Upstream:
    """Shared connections: `pool_size` to each broker, one to each name server; and the brokers that
    name servers know."""

    def __init__(self, settings: SnodeSettings) -> None:
        self._settings = settings
        self.network = _network(settings)
        self._pools = [AsyncPool(self.network, ROCKETMQ) for _ in range(settings.pool_size)]
        self._turns = itertools.count()
        self._in_flight: dict[Address, int] = {}
        self.info = ClusterInfo({}, {})
        self.heard_at: float | None = None

    @property
    def in_flight(self) -> int:
        """Requests that brokers and name servers have not answered."""
        return sum(self._in_flight.values())

    async def ask(self, address: Address, request: Command, timeout_ms: int) -> Command | None:
        """Over a shared connection. Raises `errors.NetworkError`, and `errors.Busy` beyond
        `max_in_flight_per_broker`."""
        with _Counted(self._in_flight, address, self._settings.max_in_flight_per_broker):
            pool = self._pools[next(self._turns) % len(self._pools)]
            connection = await pool.connection(address)
            return await ask(connection, request, timeout_ms)

    async def ask_name_server(self, request: Command) -> Command:
        """The first name server that answers."""
        failure: errors.RocketMQError | None = None
        for address in self._settings.name_servers:
            try:
                answer = await self.ask(address, request, self._settings.upstream_timeout_ms)
            except errors.NetworkError as error:
                failure = error
            else:
                self.heard_at = asyncio.get_running_loop().time()
                assert answer is not None, "never one-way"
                return answer
        raise failure or errors.ConnectError("no name server")

    async def tell_name_servers(self, request: Command) -> None:
        """The same to all of them; who is away misses it."""
        for address in self._settings.name_servers:
            try:
                await self.ask(address, request, self._settings.upstream_timeout_ms)
            except errors.NetworkError:
                continue

    async def discover(self) -> ClusterInfo:
        """Learn the brokers anew: dead ones go."""
        answer = await self.ask_name_server(Command(106, 0, {}))
        if answer.code == 0:
            self.info = parse_cluster_info(answer.body)
        return self.info

    async def address_of(self, broker: str) -> Address:
        """A broker's master, looked up again if it is not known. Raises `errors.ConnectError`."""
        for attempt in (1, 2):
            data = self.info.brokers.get(broker)
            if data is not None and data.master is not None:
                return data.master
            if attempt == 1:
                await self.discover()
        raise errors.ConnectError(f"broker {broker!r} is not there")

    def masters(self) -> dict[str, Address]:
        """All masters by broker name."""
        return {
            name: data.master for name, data in self.info.brokers.items() if data.master is not None
        }

    async def close(self) -> None:
        """Close all shared connections."""
        for pool in self._pools:
            await pool.close()


class BoundConnection:
    """A member's own connection to one broker. `on_request` is given what the broker asks."""

    def __init__(self, settings: NetworkSettings, on_request: Callable[[Command], None]) -> None:
        self._settings = settings
        self._codec = _Listening(on_request)
        self._lock = asyncio.Lock()
        self._connection: AsyncConnection | None = None
        self._closed = False

    @property
    def usable(self) -> bool:
        """Whether it is open."""
        return self._connection is not None and self._connection.usable

    async def ask(self, address: Address, request: Command, timeout_ms: int) -> Command | None:
        """Over this connection, opened if need be. Raises `errors.NetworkError`."""
        async with self._lock:
            if self._closed:
                raise errors.ConnectionLost("the client is gone")
            if not self.usable:
                self._connection = await connect(address, self._settings, self._codec)
            connection = self._connection
        assert connection is not None
        return await ask(connection, request, timeout_ms)

    async def answer(self, reply: Command) -> None:
        """Carry the member's answer to what the broker asked."""
        if self._connection is not None and self._connection.usable:
            await self._connection.post(lambda _: encode_command(reply), 1.0)

    def abandon(self) -> None:
        """Close at once: the broker then knows that the member is gone."""
        self._closed = True
        if self._connection is not None:
            self._connection.abandon()


class _Listening(type(ROCKETMQ)):  # type: ignore[misc]
    """The codec, with an ear for what the server asks."""

    def __init__(self, on_request: Callable[[Command], None]) -> None:
        self._on_request = on_request

    def decoder(self, max_frame_bytes: int) -> ReplyDecoder:
        return _ListeningDecoder(max_frame_bytes, self._on_request)


class _ListeningDecoder(ReplyDecoder):
    __slots__ = ("_on_request",)

    def __init__(self, max_frame_bytes: int, on_request: Callable[[Command], None]) -> None:
        super().__init__(max_frame_bytes)
        self._on_request = on_request

    def next_frame(self) -> Reply | None:
        found = super().next_frame()
        if found is not None and not found.payload.is_answer:
            self._on_request(found.payload)
        return found


class _Counted:
    def __init__(self, counts: dict[Address, int], address: Address, most: int) -> None:
        self._counts, self._address, self._most = counts, address, most

    def __enter__(self) -> None:
        count = self._counts.get(self._address, 0)
        if count >= self._most:
            raise errors.Busy(2, f"{count} requests are under way to this broker")
        self._counts[self._address] = count + 1

    def __exit__(self, *_: object) -> None:
        self._counts[self._address] -= 1


def _network(settings: SnodeSettings) -> NetworkSettings:
    return ClientSettings(
        settings.name_servers,
        rpc_timeout_ms=settings.upstream_timeout_ms,
        connect_timeout_ms=settings.connect_timeout_ms,
        max_frame_bytes=settings.max_frame_bytes,
        tls=settings.tls,
    ).network()
