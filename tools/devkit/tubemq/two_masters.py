"""A genuine TubeMQ with two masters, one active and one on stand-by, to kill the active one.

Both masters elect each other over ZooKeeper and share their metadata there. The settings are the
fastest tested ones: about five seconds from the kill until the other is active, one or two more
until it routes topics again. Shipped settings take half a minute.

    with TwoMasters(topics=[TopicSpec("orders")]) as pair:
        pair.wait_accepting()
        settings = ClientSettings(masters=pair.addresses, heartbeat_period_ms=1_000)
        pair.kill_active()
        pair.wait_switched()

The DANGER described in `genuine` applies here too: run inside `isolation`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.devkit.patience import PATIENCE
from tools.devkit.processes import ServerProcess, listens, tail
from tools.devkit.running import Running
from tools.devkit.tubemq._server_files import HOST
from tools.devkit.tubemq._servers import Setup, master_process
from tools.devkit.tubemq._webapi import WebApi, WebUnreachable
from tools.devkit.tubemq.genuine import GenuineFailed, GenuineTubeMQ, TopicSpec, free_ports
from tubemq_client.errors import ServerError
from tubemq_client.model import Address

__all__ = ["TwoMasters"]

_POLL_S = 0.1
_ELECTION = {
    "zkNodeRoot": "/tubemq",
    "zkSessionTimeoutMs": "4000",
    "zkConnectionTimeoutMs": "30000",
    "zkSyncTimeMs": "5000",
    "zkCommitPeriodMs": "5000",
    "zkMasterCheckPeriodMs": "500",
}


@dataclass(slots=True)
class _Master:
    address: Address
    web: WebApi
    process: ServerProcess

    def is_active(self) -> bool:
        """Return True if active; a stand-by answers every page with a redirect, which is no
        JSON."""
        try:
            return bool(self.web.query("admin_query_master_group_info")["data"])
        except (WebUnreachable, ServerError, ValueError, KeyError):
            return False


class TwoMasters(Running):
    """One ZooKeeper, two masters, one broker, in `workdir` (default: a temporary directory).

    A context manager; not thread-safe. `cluster` is the first master with the broker, with its
    ways to stop and start the broker.
    """

    def __init__(
        self, workdir: Path | str | None = None, *, topics: Sequence[TopicSpec] = (), **options: Any
    ) -> None:
        ports, more = free_ports(), free_ports()
        self._second_ports = more
        addresses = f"{HOST}:{ports.master},{HOST}:{more.master}"
        self._election = {**_ELECTION, "zkServerAddr": f"{HOST}:{ports.zookeeper}"}
        self.cluster = GenuineTubeMQ(
            workdir,
            topics=topics,
            ports=ports,
            broker_options={"masterAddressList": addresses},
            master_sections={"meta_zookeeper": self._election},
            **options,
        )
        self._masters: list[_Master] = []

    @property
    def addresses(self) -> tuple[Address, Address]:
        """RPC addresses of both masters, in the form of `ClientSettings.masters`."""
        first, second = self._masters
        return (first.address, second.address)

    @property
    def webs(self) -> tuple[str, str]:
        """HTTP addresses of both masters, ``host:port``."""
        return (self.cluster.master_web, f"{HOST}:{self._second_ports.master_web}")

    def start(self, *, timeout_s: float = 150.0) -> None:
        """Start the cluster, then the second master. Raises `GenuineFailed`; then nothing runs."""
        self.cluster.start(timeout_s=timeout_s)
        try:
            first, second = self._both()
            self._masters = [first, second]
            second.process.start()
            self._wait(
                second.process,
                lambda: listens(second.address) and not second.is_active(),
                "stand by",
                timeout_s,
            )
        except BaseException:
            self.stop()
            raise

    def wait_accepting(self, *, timeout_s: float = 150.0) -> None:
        """Wait until the active master routes every topic. Raises `GenuineFailed`."""
        self.cluster.wait_accepting(timeout_s=timeout_s)

    def kill_active(self) -> Address:
        """SIGKILL the active master; return its address. Raises `GenuineFailed` without one."""
        for master in self._masters:
            if master.is_active():
                master.process.kill()
                return master.address
        raise GenuineFailed("no master is active")

    def wait_switched(self, *, timeout_s: float = 60.0) -> float:
        """Wait until a running master is active; return the seconds it took."""
        started = time.monotonic()
        process = self._masters[-1].process
        self._wait(
            process,
            lambda: any(master.process.running and master.is_active() for master in self._masters),
            "become active",
            timeout_s,
        )
        return time.monotonic() - started

    def start_master(self, address: Address) -> None:
        """Start a killed master again. Wait longer than its ZooKeeper session (4 s) first: before
        that it takes its own old node for a sign of being active."""
        next(master for master in self._masters if master.address == address).process.start()

    def stop(self) -> None:
        """Stop everything. Safe to repeat."""
        for master in self._masters[1:]:
            master.process.stop(30.0)
        self._masters = []
        self.cluster.stop()

    def _both(self) -> tuple[_Master, _Master]:
        ports, token = self._second_ports, self.cluster.admin_token
        setup = Setup(token=token, master_sections={"meta_zookeeper": self._election})
        process = master_process(self.cluster.place, setup, "master2", ports)
        return (
            _Master(
                self.cluster.master_address,
                WebApi(HOST, self.cluster.place.ports.master_web, "webapi.htm", token),
                self.cluster.servers.master,
            ),
            _Master(
                (HOST, ports.master), WebApi(HOST, ports.master_web, "webapi.htm", token), process
            ),
        )

    def _wait(self, process: ServerProcess, probe: Any, goal: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s * PATIENCE
        while not probe():
            if time.monotonic() > deadline or process.returncode not in {None, -9}:
                raise GenuineFailed(
                    f"the {process.name} did not {goal} within {timeout_s:g} s\n{tail(process.log)}"
                )
            time.sleep(_POLL_S)
