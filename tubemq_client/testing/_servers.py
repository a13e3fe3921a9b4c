"""The three server processes of a genuine cluster, built from a set-up but not started.

Knows main classes, JVM flags and where each server's directory and log are. What order they start
in, and how to tell that they are up, is `genuine`'s business.
"""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tubemq_client.testing._process import Reaper, ServerProcess
from tubemq_client.testing._server_files import (
    Ports,
    Sections,
    write_broker,
    write_master,
    write_zookeeper,
)
from tubemq_client.testing.artifacts import Artifacts
from tubemq_client.testing.java import JavaRuntime

__all__ = [
    "HeapSizes",
    "Servers",
    "Setup",
    "build_servers",
    "free_ports",
    "remembered_ports",
]

_OPENED_PACKAGES = ("java.base/sun.nio.ch", "java.base/jdk.internal.ref")


@dataclass(frozen=True, slots=True)
class HeapSizes:
    """JVM sizes in `-Xmx` notation. A store takes about 3.3 MiB of `broker_direct`."""

    zookeeper: str = "256m"
    master: str = "512m"
    broker: str = "1g"
    broker_direct: str = "1g"


@dataclass(frozen=True, slots=True)
class Setup:
    """What the servers' files and command lines are made of."""

    broker_id: int = 1
    token: str = "abc"  # noqa: S105 - as shipped; it guards nothing on loopback
    heaps: HeapSizes = field(default_factory=HeapSizes)
    broker_options: Mapping[str, str] = field(default_factory=dict)
    master_options: Mapping[str, str] = field(default_factory=dict)
    broker_sections: Sections = field(default_factory=dict)
    master_sections: Sections = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Servers:
    """The processes of one cluster."""

    zookeeper: ServerProcess
    master: ServerProcess
    broker: ServerProcess

    @property
    def in_order(self) -> tuple[ServerProcess, ServerProcess, ServerProcess]:
        """In starting order; stop them in reverse."""
        return (self.zookeeper, self.master, self.broker)


def free_ports() -> Ports:
    """Ports nobody listens on now, on any interface.

    They lie below the range that the system gives to outgoing connections: a port from that range
    could be taken by a client while the broker is being restarted.
    """
    chosen: list[int] = []
    held: list[socket.socket] = []
    try:
        for candidate in random.sample(range(20_000, 32_000), 200):
            probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            held.append(probe)
            try:
                probe.bind(("", candidate))
            except OSError:
                continue
            chosen.append(candidate)
            if len(chosen) == 5:
                return Ports(*chosen)
    finally:
        for probe in held:
            probe.close()
    raise OSError("no five free ports between 20000 and 32000")


def remembered_ports(directory: Path, wanted: Ports | None) -> Ports:
    """The ports of an earlier cluster in `directory`, else `wanted` or free ones, remembered.

    The master keeps the broker's ports in its metadata, so a cluster cannot move.
    """
    note = directory / "ports.json"
    if note.is_file():
        return Ports(**json.loads(note.read_text()))
    ports = wanted or free_ports()
    directory.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps(asdict(ports), indent=2) + "\n")
    return ports


def build_servers(
    directory: Path,
    ports: Ports,
    setup: Setup,
    *,
    java: JavaRuntime,
    artifacts: Artifacts,
    reaper: Reaper,
) -> Servers:
    """Writes all configuration below `directory`; returns the processes, none of them running."""
    heaps = setup.heaps

    def process(name: str, flags: list[str], main: list[str]) -> ServerProcess:
        base = [str(java.executable), "-Dlog4j.configurationFile=log4j2.xml", *flags]
        return ServerProcess(
            name,
            [*base, "-cp", artifacts.classpath, *main],
            cwd=directory / name,
            log=directory / "logs" / f"{name}.log",
            reaper=reaper,
        )

    opened = [
        f"--add-{verb}={package}=ALL-UNNAMED"
        for verb in ("opens", "exports")
        for package in _OPENED_PACKAGES
    ]
    tools = "org.apache.inlong.tubemq.server.tools"
    zoo = write_zookeeper(directory / "zookeeper", ports)
    master = write_master(
        directory / "master",
        ports,
        setup.token,
        setup.master_options,
        setup.master_sections,
    )
    broker = write_broker(
        directory / "broker",
        ports,
        setup.broker_id,
        setup.broker_options,
        setup.broker_sections,
    )
    direct = f"-XX:MaxDirectMemorySize={heaps.broker_direct}"
    return Servers(
        process(
            "zookeeper",
            [f"-Xmx{heaps.zookeeper}"],
            ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(zoo)],
        ),
        process(
            "master",
            [f"-Xmx{heaps.master}", *opened],
            [f"{tools}.MasterStartup", "-f", str(master)],
        ),
        process(
            "broker",
            [f"-Xmx{heaps.broker}", direct, *opened],
            [f"{tools}.BrokerStartup", "-f", str(broker)],
        ),
    )
