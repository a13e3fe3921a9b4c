"""The node itself: it listens, relays, registers, and drains.

One event loop, nothing blocks it: a held pull is one pending answer. A client whose bytes are no
frames loses its connection and nobody else's; one that does not read its answers is not read from
either. Stopping: no new clients, no registry entry, what is under way is answered for `drain_ms`,
then everything is closed.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, cast

from rocketmq_client import errors
from rocketmq_client._wire.commands import Command, encode_command
from rocketmq_client._wire.framing import CommandDecoder
from rocketmq_client._wire.json_text import write_json
from rocketmq_client.model import Address, address_text
from rocketmq_client.snode.members import Member
from rocketmq_client.snode.metrics import Metrics, serve_http
from rocketmq_client.snode.relay import Relay, refusal
from rocketmq_client.snode.settings import SnodeSettings
from rocketmq_client.snode.upstream import Upstream

__all__ = ["NAMESPACE", "Snode"]

NAMESPACE = "SNODE_CONFIG"
"""Where name servers keep the entries of nodes."""

_LOG = logging.getLogger(__name__)
_STALE_S = 30.0


@dataclass(slots=True)
class _Shared:
    """What all clients of a node share."""

    settings: SnodeSettings
    upstream: Upstream
    relay: Relay
    metrics: Metrics
    clients: set[_Client]


class Snode:
    """A running node. Use as an asynchronous context manager, or `start` and `stop`."""

    def __init__(self, settings: SnodeSettings) -> None:
        self._settings = settings
        self.metrics = Metrics()
        self._upstream = Upstream(settings)
        relay = Relay(settings, self._upstream)
        self._shared = _Shared(settings, self._upstream, relay, self.metrics, set())
        self._servers: list[asyncio.Server] = []
        self._keeper: asyncio.Task[None] | None = None
        self.address: Address = settings.listen
        self.metrics_address: Address | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return f"<Snode {self._settings.name} {address_text(self.address)} {self.gauges()}>"

    async def start(self) -> None:
        """Listen, look for brokers, and register. Raises `errors.ConfigError` for an address that
        cannot be listened on."""
        settings = self._settings
        ports: list[tuple[int, str | None]] = [(settings.listen[1], None)]
        ports += [(port, broker) for broker, port in settings.ports]
        try:
            for port, broker in ports:
                self._servers.append(await self._listen(port, broker))
        except OSError as error:
            await self._close_servers()
            raise errors.ConfigError(f"listen: {error}", subject="snode options") from error
        self.address = self._servers[0].sockets[0].getsockname()[:2]
        self._shared.relay = Relay(_advertising(settings, self.address), self._upstream)
        if settings.metrics_listen is not None:
            await self._show_metrics(*settings.metrics_listen)
        self._keeper = asyncio.create_task(self._keep(), name="snode-keeper")
        _LOG.info("listening on %s", address_text(self.address))

    async def stop(self) -> None:
        """Drain and close. Safe to call twice."""
        if self._keeper is None:
            return
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        self._keeper = None
        await self._close_servers()
        await self._upstream.tell_name_servers(
            Command(102, 0, {"namespace": NAMESPACE, "key": self._settings.name})
        )
        waiting = [task for client in self._shared.clients for task in client.tasks]
        if waiting:
            await asyncio.wait(waiting, timeout=self._settings.drain_ms / 1000)
        for client in list(self._shared.clients):
            client.abandon()
        await self._upstream.close()
        _LOG.info("stopped")

    def gauges(self) -> dict[str, float]:
        """What is there now."""
        return {
            "clients": len(self._shared.clients),
            "bound_connections": sum(client.member.bound for client in self._shared.clients),
            "in_flight": sum(len(client.tasks) for client in self._shared.clients),
            "brokers": len(self._upstream.info.brokers),
        }

    async def _listen(self, port: int, broker: str | None) -> asyncio.Server:
        settings = self._settings
        return await asyncio.get_running_loop().create_server(
            lambda: _Client(self._shared, broker),
            settings.listen[0],
            port,
            reuse_port=settings.reuse_port or None,
            ssl=_context(settings),
        )

    async def _close_servers(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        await asyncio.sleep(0)

    async def _show_metrics(self, host: str, port: int) -> None:
        def health() -> tuple[int, str]:
            heard = self._upstream.heard_at
            now = asyncio.get_running_loop().time()
            if heard is None or now - heard > _STALE_S:
                return 503, "no name server answers\n"
            return 200, "ok\n"

        server = await serve_http(
            host,
            port,
            {"/healthz": health, "/metrics": lambda: (200, self.metrics.text(self.gauges()))},
        )
        self._servers.append(server)
        self.metrics_address = server.sockets[0].getsockname()[:2]

    async def _keep(self) -> None:
        """Look for brokers and renew the registry entry, for as long as the node lives."""
        settings = self._settings
        registered = -1e9
        while True:
            self._drop_silent_clients()
            try:
                await self._upstream.discover()
                now = time.monotonic()
                if (now - registered) * 1000 >= settings.registry_period_ms:
                    await self._upstream.tell_name_servers(self._entry())
                    registered = now
            except errors.RocketMQError as error:
                _LOG.warning("no look at the brokers: %s", error)
            await asyncio.sleep(settings.discovery_period_ms / 1000)

    def _drop_silent_clients(self) -> None:
        oldest = asyncio.get_running_loop().time() - self._settings.idle_ms / 1000
        for client in list(self._shared.clients):
            if client.heard_at < oldest and not client.tasks:
                client.abandon()

    def _entry(self) -> Command:
        value = {
            "addr": address_text(self._settings.advertise or self.address),
            "cluster": self._settings.cluster,
            "ts": time.time_ns() // 1_000_000,
            "version": 1,
            "clients": len(self._shared.clients),
        }
        fields = {"namespace": NAMESPACE, "key": self._settings.name}
        return Command(100, 0, {**fields, "value": write_json(value).decode()})


class _Client(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, shared: _Shared, port_broker: str | None) -> None:
        settings = shared.settings
        self._shared = shared
        self._port_broker = port_broker
        self._decoder = CommandDecoder(settings.max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self.heard_at = asyncio.get_running_loop().time()
        self.member = Member(
            shared.upstream,
            self._push,
            timeout_ms=settings.upstream_timeout_ms,
            retry_ms=settings.heartbeat_retry_ms,
        )

    def abandon(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._shared.clients.add(self)

    def data_received(self, data: bytes) -> None:
        self.heard_at = asyncio.get_running_loop().time()
        try:
            self._decoder.receive_data(data)
            while (request := self._decoder.next_command()) is not None:
                self._take(request)
        except errors.ProtocolViolation as error:
            self._shared.metrics.add("violations")
            _LOG.info("a client is cut off: %s", error)
            self.abandon()

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio calls it
        self._transport = None
        self._shared.clients.discard(self)
        self.member.abandon()
        for task in list(self.tasks):
            task.cancel()

    def _take(self, request: Command) -> None:
        if request.is_answer:
            self._begin(self.member.answered(request))
            return
        self._shared.metrics.add("requests", code=request.code)
        if len(self.tasks) < self._shared.settings.max_in_flight_per_client:
            self._begin(self._answer(request))
        elif not request.is_one_way:
            self._push(refusal(request, 2, f"{len(self.tasks)} requests are unanswered"))

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work, name="snode-request")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer(self, request: Command) -> None:
        answer = await self._shared.relay.answer(request, self.member, self._port_broker)
        if answer is not None and not request.is_one_way:
            self._shared.metrics.add("answers", code=answer.code)
            self._push(answer)

    def _push(self, command: Command) -> None:
        if self._transport is not None and not self._transport.is_closing():
            frame = encode_command(command)
            self._shared.metrics.add("bytes_sent", len(frame))
            self._transport.write(frame)


def _advertising(settings: SnodeSettings, address: Address) -> SnodeSettings:
    """The settings with the address that is really listened on, unless another is advertised."""
    return settings if settings.advertise else replace(settings, advertise=address)


def _context(settings: SnodeSettings) -> ssl.SSLContext | None:
    if settings.tls_cert_file is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file)
    return context
