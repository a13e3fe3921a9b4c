"""The node's connections to name servers and brokers: shared ones, and those of members.

`tubemq_client._io` provides sockets, TLS and reconnects. Every connection numbers its requests, so
the numbers of two clients never collide. Requests are either forwarded (`lines`) or sent and
awaited (`ask`), on the same connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from rocketmq_client import errors
from rocketmq_client._wire.bodies import ClusterInfo, parse_cluster_info
from rocketmq_client._wire.codec import ROCKETMQ
from rocketmq_client._wire.commands import Command, encode_command
from rocketmq_client._wire.signature import signed
from rocketmq_client.model import Address, ClientSettings, NetworkSettings
from rocketmq_snode.broker_connection import LINES, BrokerConnection, Load, WriteBatch
from rocketmq_snode.routing import PULLS
from rocketmq_snode.settings import SnodeSettings
from tubemq_client._io.asyncio_connection import AsyncConnection, connect
from tubemq_client._io.asyncio_pool import AsyncPool

__all__ = ["BoundConnection", "Upstream", "ask"]

_UNKNOWN = (("127.0.0.1", 1),)
"""Stands for name servers that an address server is still to name; never asked."""


async def ask(
    connection: AsyncConnection, request: Command, timeout_ms: int, limit_bytes: int
) -> Command | None:
    """Return the answer to a request, with the request's own number; None for a one-way request.
    The header is re-encoded, the body is unchanged. Raises `errors.ConnectError` for a request that
    was not sent, and `errors.IllegalRequest` for one larger than `limit_bytes` after re-encoding;
    after `errors.ConnectionLost` and `errors.RpcTimeout` it may have been executed."""
    seconds = timeout_ms / 1000

    def frame(number: int) -> bytes:
        frame_bytes = encode_command(request._replace(opaque=number, binary=False))
        if len(frame_bytes) > limit_bytes:
            raise errors.IllegalRequest(
                13, f"a frame of {len(frame_bytes)} bytes, at most {limit_bytes}"
            )
        return frame_bytes

    try:
        serial = await connection.post(frame, seconds)
    except errors.NetworkError as error:
        raise errors.ConnectError(f"not sent: {error}") from error
    if request.is_one_way:
        connection.forget(serial)
        return None
    deadline = asyncio.get_running_loop().time() + seconds
    answer: object = await connection.wait(serial, deadline)
    assert isinstance(answer, Command), "the codec's decoder makes them"
    return answer._replace(opaque=request.opaque, binary=False)


class Upstream:
    """Shared connections: `pool_size` to each broker, one to each name server; and the brokers that
    name servers know."""

    def __init__(self, settings: SnodeSettings) -> None:
        self._settings = settings
        self.network = _network(settings)
        self.turn = WriteBatch()
        self._name_servers = AsyncPool(self.network, ROCKETMQ)
        self._pools = [AsyncPool(self.network, LINES, self.line) for _ in range(settings.pool_size)]
        self._ready: dict[tuple[int, Address], BrokerConnection] = {}
        self._lines: set[BrokerConnection] = set()
        self._loads: dict[str, Load] = {}
        self.may_connect: Callable[[], bool] = lambda: True
        """Return True if there is a descriptor for another connection."""
        self.name_servers = settings.name_servers
        """Name servers that are asked now; `use_name_servers` changes them."""
        self._answering = 0
        self._stale_s = self.network.idle_connection_ms / 1000
        self.info = ClusterInfo({}, {})
        self.heard_at: float | None = None
        self.without_lite: dict[str, bool] = {}
        """Addresses of brokers that were tried with lite pulls (361); True for brokers that refuse
        them."""

    @property
    def in_flight(self) -> int:
        """Requests that brokers have not answered."""
        return sum(line.in_flight for line in self._lines)

    @property
    def pooled(self) -> int:
        """Open shared connections."""
        return sum(line.usable for line in self._ready.values())

    @property
    def held(self) -> int:
        """Pulls that brokers have not answered."""
        return sum(line.pulls for line in self._lines)

    @property
    def connections(self) -> int:
        """Connections to brokers, shared and of members."""
        return len(self._lines)

    def lines(self) -> list[dict[str, object]]:
        """Return connections to brokers for operators."""
        shared = set(self._ready.values())
        return [
            {"broker": line.name, "shared": line in shared, "under_way": line.in_flight}
            for line in self._lines
        ]

    def line(self, name: str, decoder: Any) -> BrokerConnection:
        """Return a new connection, not yet connected."""
        line = BrokerConnection(name, decoder, self.turn, self.load_of(name), self._ended)
        self._lines.add(line)
        return line

    def expire(self, now: float) -> None:
        """Expire requests after their deadline."""
        for line in list(self._lines):
            line.expire(now, self._settings.upstream_timeout_ms / 1000)
        self.turn.end()

    def admits_pull(self, name: str, mine: int, clients: int) -> bool:
        """Return True if a client with `mine` pulls in flight may send another one to the broker of
        this address. Any client may use the first half of the limit, a quarter is shared out
        equally."""
        pulls, most = self.load_of(name).pulls, self._settings.max_pulls_per_broker
        if pulls < (most + 1) // 2:
            return True
        return mine < max(1, most // 4 // max(1, clients)) and pulls < most

    def load_of(self, name: str) -> Load:
        """Return the load of the broker at this address."""
        return self._loads.setdefault(name, Load())

    def ready_line(
        self, broker: str, slot: int, now: float, *, pulls: bool
    ) -> BrokerConnection | None:
        """Return an open connection to a broker that is not overloaded; None if the request must
        wait or be refused."""
        master = self.master(broker)
        if master is None:
            return None
        line = self._ready.get((self._pool_of(slot, pulls=pulls), master))
        if line is None or not line.usable or line.retired or now - line.used_at > self._stale_s:
            return None
        if pulls or self._load(master) < self._settings.max_in_flight_per_broker:
            return line
        return None

    def _pool_of(self, slot: int, *, pulls: bool) -> int:
        """Return the pool of a request: pulls have separate pools, so that an answer to a send does
        not wait behind megabytes of records."""
        half = len(self._pools) // 2
        if not half:
            return 0
        return slot % half if pulls else half + slot % (len(self._pools) - half)

    async def ask(
        self, address: Address, request: Command, timeout_ms: int, slot: int = 0
    ) -> Command | None:
        """Send a request over a shared connection and return its answer. Raises
        `errors.NetworkError`, and `errors.Busy` beyond `max_in_flight_per_broker`."""
        pulls, count = request.code in PULLS, self._load(address)
        if not pulls and count >= self._settings.max_in_flight_per_broker:
            raise errors.Busy(2, f"{count} requests are in flight to this broker")
        slot = self._pool_of(slot, pulls=pulls)
        line = cast("BrokerConnection", await self._pools[slot].connection(address))
        self._ready[slot, address] = line
        line.pulls += pulls
        try:
            return await ask(line, request, timeout_ms, self.network.max_frame_bytes)
        finally:
            line.pulls -= pulls

    def use_name_servers(self, servers: tuple[Address, ...]) -> None:
        """Ask these name servers from now on."""
        self.name_servers, self._answering = servers, 0

    async def ask_name_server(self, request: Command) -> Command:
        """Return the answer of the name server that answered last, or of the next one that does:
        one that hangs costs its timeout once."""
        failure: errors.RocketMQError | None = None
        servers = self.name_servers
        first = self._answering
        for place in (*range(first, len(servers)), *range(first)):
            try:
                answer = await self._ask_one(servers[place], request)
            except errors.NetworkError as error:
                failure = error
            else:
                self._answering = place
                self.heard_at = asyncio.get_running_loop().time()
                return answer
        raise failure or errors.ConnectError("no name server")

    async def send_to_name_servers(self, request: Command) -> None:
        """Send the request to every name server; skip those that cannot be reached."""
        for address in self.name_servers:
            try:
                await self._ask_one(address, request)
            except errors.NetworkError:
                continue

    async def _ask_one(self, address: Address, request: Command) -> Command:
        connection = await self._name_servers.connection(address)
        fields = signed(request.fields, request.body, self._settings.credentials)
        answer = await ask(
            connection,
            request._replace(fields=fields),
            self._settings.upstream_timeout_ms,
            self.network.max_frame_bytes,
        )
        assert answer is not None, "never one-way"
        return answer

    async def discover(self) -> ClusterInfo:
        """Refresh the brokers from a name server; dead ones are removed."""
        answer = await self.ask_name_server(Command(106, 0, {}))
        if answer.code == 0:
            self.info = parse_cluster_info(answer.body)
        return self.info

    async def address_of(self, broker: str) -> Address:
        """Return a broker's master, looked up again if it is not known. Raises
        `errors.ConnectError`."""
        for attempt in (1, 2):
            if (master := self.master(broker)) is not None:
                return master
            if attempt == 1:
                await self.discover()
        raise errors.ConnectError(f"broker {broker!r} is not available")

    def master(self, broker: str) -> Address | None:
        """Return the address of a broker's master, None if it is not known."""
        data = self.info.brokers.get(broker)
        return data.master if data is not None else None

    def masters(self) -> dict[str, Address]:
        """Return all masters by broker name."""
        return {
            name: data.master for name, data in self.info.brokers.items() if data.master is not None
        }

    async def close(self) -> None:
        """Close all shared connections."""
        for pool in (self._name_servers, *self._pools):
            await pool.close()

    def _load(self, address: Address) -> int:
        lines = (self._ready.get((slot, address)) for slot in range(len(self._pools)))
        return sum(line.in_flight - line.pulls for line in lines if line is not None)

    def _ended(self, line: BrokerConnection) -> None:
        self._lines.discard(line)
        for key in [key for key, ready in self._ready.items() if ready is line]:
            del self._ready[key]
        self.without_lite.pop(line.name, None)  # the broker may restart with another version


class BoundConnection:
    """Connection of a member to one broker. `on_request` is called with requests of the broker,
    `on_notice` with its notices that members of a group changed."""

    def __init__(
        self,
        upstream: Upstream,
        on_request: Callable[[Command], None],
        on_notice: Callable[[tuple[str, str], bytes], None],
    ) -> None:
        self._upstream = upstream
        self._on_request = on_request
        self._on_notice = on_notice
        self._lock = asyncio.Lock()
        self.line: BrokerConnection | None = None
        self._at: Address | None = None
        self._closed = False

    @property
    def usable(self) -> bool:
        """True while it is open."""
        return self.line is not None and self.line.usable

    def line_to(self, master: Address | None) -> BrokerConnection | None:
        """Return the connection if it is open and leads to the broker's master; with None for an
        unknown master, any open connection is returned."""
        return self.line if self.usable and master in (None, self._at) else None

    async def ask(self, address: Address, request: Command, timeout_ms: int) -> Command | None:
        """Send a request over this connection, opened if needed: if the master has moved, connect
        to the new address and leave state at the old one. Raises `errors.NetworkError`."""
        async with self._lock:
            if self._closed:
                raise errors.ConnectionLost("the client has disconnected")
            if self.line_to(address) is None:
                await self._open(address)
            line = self.line
        assert line is not None
        pulls = request.code in PULLS
        line.pulls += pulls
        try:
            return await ask(line, request, timeout_ms, self._upstream.network.max_frame_bytes)
        finally:
            line.pulls -= pulls

    async def _open(self, address: Address) -> None:
        upstream = self._upstream
        if self.line is not None:
            self.line.abandon()
        if not upstream.may_connect():
            raise errors.Busy(2, "the node has too many connections")
        connection = await connect(address, upstream.network, LINES, kind=upstream.line)
        self.line, self._at = cast("BrokerConnection", connection), address
        self.line.on_request = self._on_request
        self.line.on_notice = self._on_notice
        if self._closed:
            self.line.abandon()

    async def answer(self, reply: Command) -> None:
        """Forward the member's answer to a request of the broker."""
        if self.line is not None and self.line.usable:
            serial = await self.line.post(lambda _: encode_command(reply), 1.0)
            self.line.forget(serial)

    def abandon(self) -> None:
        """Close at once, so that the broker removes the member."""
        self._closed = True
        if self.line is not None:
            self.line.abandon()


def _network(settings: SnodeSettings) -> NetworkSettings:
    return ClientSettings(
        settings.name_servers or _UNKNOWN,
        rpc_timeout_ms=settings.upstream_timeout_ms,
        connect_timeout_ms=settings.connect_timeout_ms,
        max_frame_bytes=settings.max_frame_bytes,
        tls=settings.tls,
    ).network()
