"""State and tasks on the embedded server's event loop: listeners, timers, brokers, masters.

`server` owns the thread and calls in here; nothing here is safe to call from elsewhere. Start order
is data directory, brokers, master, web; a failed start undoes itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tubemq_client._wire.strings import DEFAULT_BROKER_TLS_PORT
from tubemq_client.embedded.auth import BrokerGate, MasterGate, VisitTokens
from tubemq_client.embedded.broker import Broker, Clock
from tubemq_client.embedded.broker_rpc import BrokerRpc
from tubemq_client.embedded.checks import OFFSET_HISTORY_TOPIC
from tubemq_client.embedded.cluster import (
    Audit,
    BrokerRecord,
    Cluster,
    ManageStatus,
    TopicProps,
)
from tubemq_client.embedded.history import HISTORY_PARTITIONS
from tubemq_client.embedded.master import Master
from tubemq_client.embedded.masters import MasterPorts, Masters, ServedMaster
from tubemq_client.embedded.options import ServerTls, Switches, TopicSpec
from tubemq_client.embedded.persistence import DataDirectory
from tubemq_client.embedded.rpc import RpcListener
from tubemq_client.errors import ConfigError

__all__ = ["Ports", "Runtime", "ServedBroker"]

_log = logging.getLogger(__name__)

_OWNER = "embedded"
_REBIND_TRIES = 40
_REBIND_PAUSE_S = 0.05
_TICK_BOUNDS_S = (0.02, 0.2)


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports to listen on, 0 for any free one. Master n uses the master ports + n - 1, broker n the
    broker ports + n - 1. The TLS ports are opened with `ServerTls` only."""

    master: int = 0
    master_web: int = 0
    broker: int = 0
    broker_web: int = 0
    master_tls: int = 0
    broker_tls: int = 0


class ServedBroker:
    """One broker with its listeners."""

    def __init__(
        self, broker: Broker, runtime: Runtime, port: int, web_port: int, tls_port: int
    ) -> None:
        self.broker = broker
        self.host = runtime.host
        self.port = port
        self.web_port = web_port
        self.tls_port = tls_port
        self._runtime = runtime
        name = f"broker {broker.broker_id}"
        security, clock = runtime.switches.security, runtime.clock
        self._gate = BrokerGate(BrokerRpc(broker), security, clock, runtime.tokens)
        self._rpc = RpcListener(self._gate, name)
        self._tls_rpc = RpcListener(self._gate, f"{name} over TLS")
        self._web: Any = None

    @property
    def web_address(self) -> str | None:
        return self._runtime.web_address(self.web_port)

    @property
    def tls_address(self) -> str | None:
        return f"{self.host}:{self.tls_port}" if self._runtime.tls else None

    @property
    def connections(self) -> int:
        return self._rpc.connections + self._tls_rpc.connections

    async def listen(self, *, tries: int = 1) -> None:
        """Open the listeners. A port that was closed a moment ago may need several tries."""
        sock = await _bind(self.host, self.port, tries=tries)
        self.port = sock.getsockname()[1]
        await self._rpc.start(sock)
        self._gate.registered()
        if self._runtime.tls is not None:
            tls_sock = await _bind(self.host, self.tls_port, tries=tries)
            self.tls_port = tls_sock.getsockname()[1]
            await self._tls_rpc.start(tls_sock, self._runtime.tls.context())
        if self._runtime.http:
            from tubemq_client.embedded.web import WebListener, broker_app

            web_sock = await _bind(self.host, self.web_port, tries=tries)
            self.web_port = web_sock.getsockname()[1]
            self._web = WebListener(broker_app(self.broker))
            await self._web.start(web_sock)

    async def close(self) -> None:
        await self._rpc.stop()
        await self._tls_rpc.stop()
        if self._web is not None:
            await self._web.stop()
            self._web = None

    async def crash(self, *, lose_unflushed: bool, lose_positions: bool) -> int:
        if not self.broker.running:
            return 0
        lost = self.broker.crash(lose_unflushed=lose_unflushed, lose_positions=lose_positions)
        self._runtime.cluster.broker_lost(self.broker.broker_id, self.broker.clock())
        await self.close()
        return lost

    async def stop(self) -> None:
        if not self.broker.running:
            return
        try:
            self.broker.stop()
            self._runtime.cluster.broker_stopped(self.broker.broker_id)
        finally:
            await self.close()

    async def restart(self) -> None:
        await self.stop()
        await self.listen(tries=_REBIND_TRIES)
        self.broker.start()
        self._runtime.cluster.broker_started(self.broker.broker_id)


class Runtime:
    """The whole server, on its event loop."""

    def __init__(
        self,
        *,
        brokers: int,
        topics: list[TopicSpec],
        data_dir: str | os.PathLike[str] | None,
        host: str,
        ports: Ports,
        http: bool,
        switches: Switches,
        clock: Clock,
        tls: ServerTls | None = None,
        masters: int = 1,
    ) -> None:
        self.host = host
        self.tls = tls
        self.tokens = VisitTokens(clock, switches.security.visit_token_period_ms)
        self.http = http
        self.ports = ports
        self.switches = switches
        self.clock = clock
        self.cluster = Cluster(switches)
        self.served: dict[int, ServedBroker] = {}
        self.masters = Masters(
            [self._serve_master(n) for n in range(1, masters + 1)],
            self.cluster,
            switches,
            lambda: [n for n, served in self.served.items() if served.broker.running],
        )
        self._requested_brokers = brokers
        self._requested_topics = topics
        self._requested_ports = ports
        self._data_dir = data_dir
        self._directory: DataDirectory | None = None
        self._saved_version = -1
        self._timers: list[asyncio.Task[None]] = []

    def web_address(self, port: int) -> str | None:
        return f"{self.host}:{port}" if self.http else None

    @property
    def master(self) -> Master:
        """Active master."""
        return self.masters.active.master

    def _serve_master(self, number: int) -> ServedMaster:
        master = Master(self.cluster, self.switches, self.clock)
        gate = partial(MasterGate, master, self.switches.security, self.clock, self.tokens)
        return ServedMaster(master, (gate(None), gate(self.cluster)), number=number, http=self.http)

    # ------------------------------------------------------------------ life cycle

    async def start(self) -> None:
        """Open everything; on failure close what was opened and raise, leaving the data directory
        unchanged."""
        self._check()
        try:
            former = self._load()
            # Brokers that have run on this directory run again, even if fewer are asked for.
            count = max([self._requested_brokers, *former.get("served", [])])
            for broker_id in range(1, count + 1):
                await self._start_broker(broker_id)
                self._deploy_history(broker_id)
            for spec in self._requested_topics:
                self.add_topic(spec, None)
            await self._start_masters(former)
            self._save()
        except BaseException:
            await self.stop(save=False)
            raise
        self._timers = [asyncio.create_task(self._flush_timer())]
        if self.switches.lease_scan_ms is not None:
            self._timers.append(asyncio.create_task(self._lease_timer()))
        if self.switches.balance_period_ms is not None:
            self._timers.append(asyncio.create_task(self._balance_timer()))

    def _check(self) -> None:
        """Raise for packages and certificates that are missing, before anything is opened."""
        if self.tls is not None:
            self.tls.context()
        if self.http:
            import tubemq_client.embedded.web  # noqa: F401 - says which extra it needs

    async def stop(self, *, save: bool = True) -> None:
        """Close everything; a failure to close one thing does not stop the rest. `save` is False
        after a failed start, which has not all brokers."""
        for timer in self._timers:
            timer.cancel()
        await asyncio.gather(*self._timers, return_exceptions=True)
        self._timers = []
        async with AsyncExitStack() as closing:
            closing.callback(self.served.clear)
            closing.callback(self._close_directory, save=save)
            for served in self.served.values():
                closing.callback(served.broker.close)
                closing.push_async_callback(served.stop)
            closing.push_async_callback(self.masters.stop)

    def _close_directory(self, *, save: bool) -> None:
        directory = self._directory
        if directory is None:
            return
        try:
            if save:
                self._save()
        finally:
            directory.close()
            self._directory = None

    def tick(self) -> None:
        """Run one round of every timer."""
        self._flush_round()
        self._sweep_round()
        self.master.balancer.round()

    # ------------------------------------------------------------------ topics

    def add_topic(self, spec: TopicSpec, brokers: Iterable[int] | None) -> None:
        """Deploy `spec`; on a broker that has it, stores and partitions only grow."""
        now_ms = self.clock()
        targets = list(self.served if brokers is None else brokers)
        unknown = [broker_id for broker_id in targets if broker_id not in self.cluster.brokers]
        if unknown:
            raise ConfigError([f"there is no broker {n}" for n in unknown], subject="topic")
        for broker_id in targets:
            deployment = self.cluster.deployment(spec.name, broker_id)
            if deployment is None:
                props = TopicProps(stores=spec.stores, partitions=spec.partitions)
                self.cluster.deploy(spec.name, broker_id, props, _OWNER, now_ms)
            else:
                deployment.props.stores = max(deployment.props.stores, spec.stores)
                deployment.props.partitions = max(deployment.props.partitions, spec.partitions)
        if spec.max_message_mb is not None:
            self.cluster.topics[spec.name].max_message_mb = spec.max_message_mb
        self.cluster.changed()

    # ------------------------------------------------------------------ starting

    def _load(self) -> dict[str, Any]:
        """Load the data directory; return the whole document, or an empty one."""
        if self._data_dir is None:
            return {}
        self._directory = DataDirectory(self._data_dir, fsync=self.switches.fsync)
        document = self._directory.load_cluster()
        if document is None:
            return {}
        self.cluster.load(document)
        return document

    async def _start_broker(self, broker_id: int) -> None:
        stored = self.cluster.brokers.get(broker_id)
        requested = self._requested_ports
        ports = [
            await self._choose_port(first and first + broker_id - 1, former)
            for first, former in (
                (requested.broker, stored.port if stored else 0),
                (requested.broker_web, stored.web_port if stored else 0),
                (requested.broker_tls, _used(stored.tls_port) if stored else 0),
            )
        ]
        broker = Broker(broker_id, self.cluster, self.switches, self.clock, self._directory)
        served = ServedBroker(broker, self, *ports)
        self.served[broker_id] = served
        await served.listen()
        record = self._record(served)
        if stored is None or _ports_of(stored) != _ports_of(record):
            self.cluster.put_broker(record)
        self.cluster.broker_started(broker_id)

    def _deploy_history(self, broker_id: int) -> None:
        """Deploy the topic that a broker writes itself, if history is on."""
        enabled = self.switches.history_period_ms is not None
        if enabled and self.cluster.deployment(OFFSET_HISTORY_TOPIC, broker_id) is None:
            props = TopicProps(partitions=HISTORY_PARTITIONS)
            self.cluster.deploy(OFFSET_HISTORY_TOPIC, broker_id, props, "systemSelf", self.clock())

    def _record(self, served: ServedBroker) -> BrokerRecord:
        return BrokerRecord(
            served.broker.broker_id,
            self.host,
            served.port,
            served.web_port,
            served.tls_port or DEFAULT_BROKER_TLS_PORT,
            Audit.new(_OWNER, self.clock()),
            ManageStatus.ONLINE,
        )

    async def _start_masters(self, former: dict[str, Any]) -> None:
        requested = self._requested_ports
        stored = [
            tuple(former.get(f"master{kind}_port", 0) for kind in ("", "_web", "_tls")),
            *former.get("standby_ports", []),
        ]
        for index, served in enumerate(self.masters.served):
            pairs = zip(
                (requested.master, requested.master_web, requested.master_tls),
                stored[index] if index < len(stored) else (0, 0, 0),
                strict=True,
            )
            ports = [await self._choose_port(first and first + index, one) for first, one in pairs]
            await served.listen(partial(_bind, self.host), MasterPorts(*ports), self.tls)
        rpc, web, tls = self.masters.served[0].ports
        self.ports = replace(requested, master=rpc, master_web=web, master_tls=tls)

    async def restart_masters(self) -> None:
        """Start killed masters again, as stand-bys."""
        bind = partial(_bind, self.host, tries=_REBIND_TRIES)
        await self.masters.restart(bind, self.tls)

    async def _choose_port(self, requested: int, former: int) -> int:
        """Return the requested port; else the one used before, if it is still free; else 0."""
        if requested or not former:
            return requested
        try:
            socket.create_server((self.host, former)).close()
        except OSError:
            return 0
        return former

    # ------------------------------------------------------------------ timers

    async def _flush_timer(self) -> None:
        interval_ms = self.switches.flush_interval_ms or 1_000
        low, high = _TICK_BOUNDS_S
        while True:
            await asyncio.sleep(max(low, min(interval_ms / 5_000, high)))
            try:
                self._flush_round()
            except OSError:
                _log.exception("a flush failed; the next round tries again")

    async def _lease_timer(self) -> None:
        while True:
            await asyncio.sleep((self.switches.lease_scan_ms or 0) / 1_000)
            self._sweep_round()

    async def _balance_timer(self) -> None:
        while True:
            await asyncio.sleep((self.switches.balance_period_ms or 0) / 1_000)
            if not (self.master.standby or self.masters.switching):
                self.master.balancer.round()

    def _flush_round(self) -> None:
        for served in self.served.values():
            if served.broker.running:
                served.broker.tick()
        self._save()

    def _sweep_round(self) -> None:
        self.master.sweep()
        for served in self.served.values():
            if served.broker.running:
                served.broker.sweep_leases()

    def _save(self) -> None:
        if self._directory is None or self.cluster.version == self._saved_version:
            return
        document = self.cluster.dump()
        document["master_port"] = self.ports.master
        document["master_web_port"] = self.ports.master_web
        document["master_tls_port"] = self.ports.master_tls
        document["standby_ports"] = [served.ports for served in self.masters.served[1:]]
        document["served"] = list(self.served)
        self._directory.save_cluster(document)
        self._saved_version = self.cluster.version


def _used(tls_port: int) -> int:
    """Return the port a broker listened on, 0 if it only had the default one on record."""
    return 0 if tls_port == DEFAULT_BROKER_TLS_PORT else tls_port


def _ports_of(record: BrokerRecord) -> tuple[int, int, int]:
    return (record.port, record.web_port, record.tls_port)


async def _bind(host: str, port: int, *, tries: int = 1) -> socket.socket:
    """Return a bound socket. Raises `ConfigError` if the port is still busy at the last try."""
    for _ in range(tries):
        try:
            return socket.create_server((host, port))
        except OSError as error:
            problem = error
        await asyncio.sleep(_REBIND_PAUSE_S)
    raise ConfigError(f"cannot listen on {host}:{port}: {problem}", subject="embedded server")
