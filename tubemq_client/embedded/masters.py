"""The masters of one embedded cluster: one is active, the others stand by until it is killed.

Metadata set by administrators is shared, as over ZooKeeper; members and producers are private to a
master, so a new active one knows none. It takes over in three steps: it is elected, it loads the
metadata, the brokers report to it. In between, clients see what genuine masters showed
(`docs/fail-over.md`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from tubemq_client.embedded.rpc import RpcListener
from tubemq_client.errors import ConfigError

if TYPE_CHECKING:
    from tubemq_client.embedded.auth import MasterGate
    from tubemq_client.embedded.cluster import Cluster
    from tubemq_client.embedded.master import Master
    from tubemq_client.embedded.options import ServerTls, Switches

__all__ = ["MasterPorts", "Masters", "ServedMaster"]

Bind = Callable[[int], Awaitable[socket.socket]]


class MasterPorts(NamedTuple):
    """Ports of one master; 0 for any free port, or for a listener that does not exist."""

    rpc: int = 0
    web: int = 0
    tls: int = 0


class ServedMaster:
    """One master with its listeners. `gates` wrap its RPCs, plain and over TLS."""

    def __init__(
        self, master: Master, gates: tuple[MasterGate, MasterGate], *, number: int, http: bool
    ) -> None:
        self.master = master
        self.ports = MasterPorts()
        self.listening = False
        self._http = http
        self._rpc = RpcListener(gates[0], f"master {number}")
        self._tls_rpc = RpcListener(gates[1], f"master {number} over TLS")
        self._web: Any = None

    async def listen(self, bind: Bind, ports: MasterPorts, tls: ServerTls | None) -> None:
        """Open the listeners on sockets that `bind` creates for ports."""
        sock = await bind(ports.rpc)
        host, port = sock.getsockname()[:2]
        web_port = tls_port = 0
        self.master.address = f"{host}:{port}"
        self.listening = True
        await self._rpc.start(sock)
        if self._http:
            from tubemq_client.embedded.web import WebListener, master_app

            web_sock = await bind(ports.web)
            web_port = web_sock.getsockname()[1]
            self._web = WebListener(master_app(self.master))
            await self._web.start(web_sock)
        if tls is not None:
            tls_sock = await bind(ports.tls)
            tls_port = tls_sock.getsockname()[1]
            await self._tls_rpc.start(tls_sock, tls.context())
        self.ports = MasterPorts(port, web_port, tls_port)

    async def close(self) -> None:
        self.listening = False
        await self._rpc.stop()
        await self._tls_rpc.stop()
        if self._web is not None:
            await self._web.stop()
            self._web = None


class Masters:
    """Choice of the active master and fail-over. `running` returns the ids of brokers that would
    report to a new master."""

    def __init__(
        self,
        served: list[ServedMaster],
        cluster: Cluster,
        switches: Switches,
        running: Callable[[], Iterable[int]],
    ) -> None:
        self.served = served
        self._cluster = cluster
        self._switches = switches
        self._running = running
        self._active = 0
        self._switch: asyncio.Task[None] | None = None
        self._begin()

    @property
    def active(self) -> ServedMaster:
        """Active master; during a switch the next one."""
        return self.served[self._active]

    @property
    def switching(self) -> bool:
        """True while a switch is under way."""
        return self._switch is not None and not self._switch.done()

    async def fail_over(self) -> str:
        """Kill the active master and let the next one take over; return the killed address. Raises
        `ConfigError` if none stands by."""
        killed = self.active
        standbys = [n for n, one in enumerate(self.served) if one.listening and one is not killed]
        if not standbys:
            raise ConfigError("no master stands by: start with masters=2", subject="fail-over")
        await self._end_switch()
        await killed.close()
        self._active = standbys[0]
        self._switch = asyncio.create_task(self._take_over(self.active.master))
        return killed.master.address

    async def wait_switched_over(self) -> None:
        """Wait until a switch that is under way is over."""
        if self._switch is not None:
            await asyncio.wait([self._switch])

    async def restart(self, bind: Bind, tls: ServerTls | None) -> None:
        """Start killed masters again, as stand-bys."""
        for served in self.served:
            if not served.listening:
                served.master.forget_members()
                served.master.standby = True
                await served.listen(bind, served.ports, tls)

    async def stop(self) -> None:
        await self._end_switch()
        for served in self.served:
            await served.close()
            served.master.forget_members()
        self._begin()

    def _begin(self) -> None:
        """Make the first master active."""
        self._active = 0
        for number, served in enumerate(self.served):
            served.master.standby = number > 0

    async def _take_over(self, master: Master) -> None:
        cluster, switches = self._cluster, self._switches
        await asyncio.sleep(switches.fail_over_ms / 1_000)
        cluster.begin_loading()
        master.standby = False
        await asyncio.sleep(switches.fail_over_load_ms / 1_000)
        cluster.loaded = True
        cluster.renew_broker_list()
        await asyncio.sleep(switches.fail_over_report_ms / 1_000)
        for broker_id in self._running():
            cluster.broker_started(broker_id)

    async def _end_switch(self) -> None:
        if self._switch is not None:
            self._switch.cancel()
            await asyncio.gather(self._switch, return_exceptions=True)
            self._switch, self._cluster.loaded = None, True
