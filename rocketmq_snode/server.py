"""The node: listens, relays, registers, and drains.

One event loop without blocking calls: a held pull is one pending answer. Invalid frames close the
connection of their client only; a client that does not read its answers is not read from. On stop
the node accepts no new clients, removes its registry entry, answers requests in flight for up to
`drain_ms`, then closes all connections.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from rocketmq_client import errors
from rocketmq_client._wire.commands import Command
from rocketmq_client._wire.json_text import write_json
from rocketmq_client.model import Address, address_text
from rocketmq_snode.access import Access
from rocketmq_snode.clients import Backlogs, Client, Shared
from rocketmq_snode.limits import Limits
from rocketmq_snode.listener import Listener, ThrottledLog
from rocketmq_snode.metrics import Metrics, serve_http
from rocketmq_snode.registry import NAMESPACE, name_servers_at
from rocketmq_snode.relay import Relay
from rocketmq_snode.settings import FAST_PORT_DISTANCE, SnodeSettings
from rocketmq_snode.upstream import Upstream

__all__ = ["Snode"]

_LOG = logging.getLogger(__name__)
_STALE_S = 30.0
_EXPIRY_STEP_S = 0.1
_CHECK_STEP_S = 0.1
_DRAIN_STEP_S = 0.02
_ADDRESS_SERVER_PERIOD_S = 120.0


class Snode:
    """Running node. Use as an asynchronous context manager, or `start` and `stop`."""

    def __init__(self, settings: SnodeSettings) -> None:
        self._settings = settings
        self.metrics = Metrics()
        self._upstream = upstream = Upstream(settings)
        self._access = access = Access(settings)
        clients: set[Client] = set()
        relay = Relay(settings, upstream, access, lambda: len(clients))
        limits = Limits(settings, clients, lambda: upstream.connections)
        seldom = ThrottledLog(_LOG)
        self._shared = Shared(
            settings, upstream, access, relay, self.metrics, clients, limits, seldom, Backlogs()
        )
        upstream.may_connect = lambda: limits.may_connect(self._connections())
        self._servers: list[Listener] = []
        self._pages: list[Listener] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._draining = False
        self.address: Address = settings.listen
        self.metrics_address: Address | None = None
        self.admin_address: Address | None = None

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
        """Listen, look up brokers, and register. Raises `errors.ConfigError` for an address that
        cannot be listened on."""
        settings = self._settings
        if settings.name_servers_url is not None:
            await self._ask_address_server(settings.name_servers_url)
        ports: list[tuple[int, str | None]] = [(settings.listen[1], None)]
        ports += [(port, broker) for broker, port in settings.ports]
        context = _context(settings)
        try:
            for port, broker in ports:
                listener = await self._listen(port, broker, context)
                self._servers.append(listener)
                if settings.fast_port:
                    fast = listener.address[1] - FAST_PORT_DISTANCE
                    self._servers.append(await self._listen(fast, broker, context))
        except OSError as error:
            _close(self._servers)
            raise errors.ConfigError(f"listen: {error}", subject="snode options") from error
        self.address = self._servers[0].address
        advertised = _advertising(settings, self.address)
        clients = self._shared.clients
        self._shared.relay = Relay(advertised, self._upstream, self._access, lambda: len(clients))
        self.metrics_address = await self._show(
            settings.metrics_listen,
            {"/metrics": lambda: (200, self.metrics.text(self.gauges()))},
        )
        self.admin_address = await self._show(
            settings.admin_listen, {"/clients": lambda: (200, _page(self._clients()))}
        )
        for work in (self._keep(), self._expire(), self._check_clients()):
            self._tasks.append(asyncio.create_task(work, name="snode-keeper"))
        if settings.name_servers_url is not None:
            again = self._follow_address_server(settings.name_servers_url)
            self._tasks.append(asyncio.create_task(again, name="snode-keeper"))
        details = {"address": address_text(self.address), "node": settings.name}
        _LOG.info("listening on %s", address_text(self.address), extra=details)
        _LOG.info("options of this node", extra={"options": settings.shown()})

    async def stop(self) -> None:
        """Drain and close. Safe to call twice."""
        if not self._tasks or self._draining:
            return
        self._draining = True
        _LOG.info("stopping: no new clients", extra={"under_way": self.gauges()["in_flight"]})
        keeper = self._tasks.pop(0)
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        _close(self._servers)
        await self._upstream.send_to_name_servers(
            Command(102, 0, {"namespace": NAMESPACE, "key": self._settings.name})
        )
        end = asyncio.get_running_loop().time() + self._settings.drain_ms / 1000
        while self.gauges()["in_flight"] and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110 - it waits for a count
            await asyncio.sleep(_DRAIN_STEP_S)
        left = self.gauges()["in_flight"]
        await self.abandon()
        _LOG.info("stopped", extra={"unanswered": left})

    async def abandon(self) -> None:
        """End at once: requests in flight get no answer, and the registry entry stays."""
        self._draining = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        _close(self._servers)
        for client in list(self._shared.clients):
            client.abandon()
        await self._upstream.close()
        _close(self._pages)
        await asyncio.sleep(0)

    def gauges(self) -> dict[str, float]:
        """Return the current values of all gauges."""
        clients, upstream = self._shared.clients, self._upstream
        now = asyncio.get_running_loop().time()
        age = -1.0 if upstream.heard_at is None else now - upstream.heard_at
        return {
            "clients": len(clients),
            "bound_connections": sum(client.member.bound for client in clients),
            "pooled_connections": upstream.pooled,
            "in_flight": sum(client.in_flight for client in clients),
            "held_pulls": upstream.held,
            "unfinished_bytes": self._shared.limits.unfinished,
            "queued_bytes": self._shared.limits.queued,
            "brokers": len(upstream.masters()),
            "name_server_age_seconds": age,
        }

    def _health(self) -> tuple[int, str]:
        """Return 200 while clients can be served: a name server answers, it knows a broker, and the
        node is not stopping."""
        gauges, state = self.gauges(), "ok"
        age = gauges["name_server_age_seconds"]
        if self._draining:
            state = "stopping"
        elif not 0 <= age <= _STALE_S:
            state = "no name server answers"
        elif not gauges["brokers"]:
            state = "name servers know no broker"
        page = {"status": state, "name": self._settings.name, **gauges}
        page["brokers"] = {
            name: address_text(at) for name, at in sorted(self._upstream.masters().items())
        }
        return (200 if state == "ok" else 503), _page(page)

    def _clients(self) -> dict[str, object]:
        """Return clients and connections for operators."""
        now = asyncio.get_running_loop().time()
        clients = [
            {
                "address": address_text(client.peer),
                **client.member.described(),
                "requests": client.requests,
                "under_way": client.in_flight,
                "bound_connections": client.member.bound,
                "silent_seconds": round(now - client.heard_at, 3),
            }
            for client in self._shared.clients
        ]
        return {
            "clients": clients,
            "lines": self._upstream.lines(),
            "registry": self._entry_value(),
        }

    async def _listen(
        self, port: int, broker: str | None, context: ssl.SSLContext | None
    ) -> Listener:
        settings = self._settings
        listener = Listener(lambda: Client(self._shared, broker), admits=self._admits, tls=context)
        await listener.listen((settings.listen[0], port), reuse_port=settings.reuse_port)
        return listener

    def _connections(self) -> int:
        """Return the number of clients, including connections in their handshake."""
        return len(self._shared.clients) + sum(one.opening for one in self._servers)

    def _admits(self) -> bool:
        shared = self._shared
        if shared.limits.admits(self._connections(), asyncio.get_running_loop().time()):
            return True
        self.metrics.add("refused_clients")
        shared.seldom.say(
            logging.WARNING, "a client is refused: too many connections (max_clients, descriptors)"
        )
        return False

    async def _show(
        self, at: Address | None, pages: Mapping[str, Callable[[], tuple[int, str]]]
    ) -> Address | None:
        """Open an HTTP port, with `/healthz` on each. Return its address."""
        if at is None:
            return None
        try:
            server = await serve_http(at, {"/healthz": self._health, **pages})
        except OSError as error:
            await self.abandon()
            raise errors.ConfigError(
                f"metrics_listen, admin_listen: {error}", subject="snode options"
            ) from error
        self._pages.append(server)
        return server.address

    async def _expire(self) -> None:
        """Answer requests that brokers did not answer, soon after their deadline."""
        while True:
            await asyncio.sleep(_EXPIRY_STEP_S)
            self._upstream.expire(asyncio.get_running_loop().time())

    async def _keep(self) -> None:
        """Look up brokers and renew the registry entry, while the node runs."""
        settings = self._settings
        registered = -1e9
        while True:
            try:
                await self._upstream.discover()
                now = time.monotonic()
                if (now - registered) * 1000 >= settings.registry_period_ms:
                    await self._upstream.send_to_name_servers(self._entry())
                    registered = now
            except errors.RocketMQError as error:
                _LOG.warning("cannot look up brokers: %s", error)
            await asyncio.sleep(settings.discovery_period_ms / 1000)

    async def _ask_address_server(self, url: str) -> None:
        """Take the name servers from the page at `url`. Raises `errors.ConfigError` if it gives
        none and none are known."""
        try:
            servers = await asyncio.to_thread(name_servers_at, url)
        except (OSError, ValueError) as error:
            shown = self._settings.shown()["name_servers_url"]
            text = f"name_servers_url: {shown} gives no name servers: {error}"
            if not self._upstream.name_servers:
                raise errors.ConfigError(text, subject="snode options") from error
            _LOG.warning("%s", text)
            return
        if servers != self._upstream.name_servers:
            self._upstream.use_name_servers(servers)
            _LOG.info("name servers: %s", ", ".join(map(address_text, servers)))

    async def _follow_address_server(self, url: str) -> None:
        while True:
            await asyncio.sleep(_ADDRESS_SERVER_PERIOD_S)
            await self._ask_address_server(url)

    async def _check_clients(self) -> None:
        """Check the deadlines of clients periodically."""
        loop = asyncio.get_running_loop()
        shortest = min(self._settings.idle_ms, self._settings.frame_timeout_ms)
        step_s = max(0.05, min(_CHECK_STEP_S, shortest / 10_000))
        while True:
            await asyncio.sleep(step_s)
            now = loop.time()
            for client in list(self._shared.clients):
                client.check(now)
            self._upstream.turn.end()

    def _entry(self) -> Command:
        fields = {"namespace": NAMESPACE, "key": self._settings.name}
        return Command(100, 0, {**fields, "value": write_json(self._entry_value()).decode()})

    def _entry_value(self) -> dict[str, object]:
        return {
            "addr": address_text(self._settings.advertise or self.address),
            "cluster": self._settings.cluster,
            "ts": time.time_ns() // 1_000_000,
            "version": 1,
            "clients": len(self._shared.clients),
        }


def _page(value: dict[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def _close(servers: list[Listener]) -> None:
    for server in servers:
        server.close()
    servers.clear()


def _advertising(settings: SnodeSettings, address: Address) -> SnodeSettings:
    """Return the settings with the actual listening address, unless another is advertised."""
    return settings if settings.advertise else replace(settings, advertise=address)


def _context(settings: SnodeSettings) -> ssl.SSLContext | None:
    if settings.tls_cert_file is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file)
    return context
