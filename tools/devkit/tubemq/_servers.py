"""The three server processes of a genuine cluster, built from a set-up but not started.

Knows main classes, JVM flags, and the directory and log of each server. The start order, and how to
detect that a server is up, is `genuine`'s business.
"""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tools.devkit.processes import ServerProcess
from tools.devkit.reaper import Reaper
from tools.devkit.tubemq._server_files import (
    Ports,
    Sections,
    write_broker,
    write_master,
    write_zookeeper,
)
from tools.devkit.tubemq.artifacts import Artifacts
from tubemq_provider.engines.java import JavaRuntime

__all__ = [
    "REGISTRATION_FAILED",
    "HeapSizes",
    "Servers",
    "Setup",
    "broker_process",
    "build_servers",
    "free_ports",
    "master_process",
    "remembered_ports",
]

REGISTRATION_FAILED = "Register to master failed"
"""Log line of a broker that the master refused; its process stays alive."""

_TOOLS = "org.apache.inlong.tubemq.server.tools"

# The servers free direct buffers themselves, with classes that Java 17 keeps closed.
_OPENED = tuple(
    f"--add-{verb}=java.base/{package}=ALL-UNNAMED"
    for verb in ("opens", "exports")
    for package in ("sun.nio.ch", "jdk.internal.ref")
)


@dataclass(frozen=True, slots=True)
class HeapSizes:
    """JVM sizes in `-Xmx` notation. A store takes about 3.3 MiB of `broker_direct`."""

    zookeeper: str = "256m"
    master: str = "512m"
    broker: str = "1g"
    broker_direct: str = "1g"


@dataclass(frozen=True, slots=True)
class Setup:
    """Inputs of the servers' files and command lines."""

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
        """Servers in starting order; stop them in reverse."""
        return (self.zookeeper, self.master, self.broker)


def free_ports() -> Ports:
    """Return ports that are free now on every interface.

    They lie below the ephemeral range of outgoing connections: a client could take a port of that
    range while the broker is being restarted.
    """
    chosen: list[int] = []
    probes: list[socket.socket] = []
    try:
        for candidate in random.sample(range(20_000, 32_000), 200):
            probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            probes.append(probe)
            try:
                probe.bind(("", candidate))
            except OSError:
                continue
            chosen.append(candidate)
            if len(chosen) == 5:
                return Ports(*chosen)
    finally:
        for probe in probes:
            probe.close()
    raise OSError("no five free ports between 20000 and 32000")


def remembered_ports(directory: Path, wanted: Ports | None) -> Ports:
    """Return the ports of an earlier cluster in `directory`, else `wanted` or free ones.

    They are saved there, because the master keeps the broker's ports in its metadata, so a cluster
    cannot move.
    """
    note = directory / "ports.json"
    if note.is_file():
        return Ports(**json.loads(note.read_text()))
    ports = wanted or free_ports()
    directory.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps(asdict(ports), indent=2) + "\n")
    return ports


@dataclass(frozen=True, slots=True)
class ServerLayout:
    """Location of servers: directory, ports, Java runtime and jars."""

    directory: Path
    ports: Ports
    java: JavaRuntime
    artifacts: Artifacts
    reaper: Reaper

    def process(self, name: str, flags: list[str], main: str, *arguments: str) -> ServerProcess:
        """Return a JVM in its own directory, not started; `main` is the class to run."""
        java = [str(self.java.executable), "-Dlog4j.configurationFile=log4j2.xml"]
        command = [*java, *flags, "-cp", self.artifacts.classpath, main, *arguments]
        log = self.directory / "logs" / f"{name}.log"
        return ServerProcess(name, command, cwd=self.directory / name, log=log, reaper=self.reaper)


def build_servers(place: ServerLayout, setup: Setup) -> Servers:
    """Write all configuration below the place; return the processes, none of them running."""
    return Servers(
        _zookeeper(place, setup), master_process(place, setup), broker_process(place, setup)
    )


def _zookeeper(place: ServerLayout, setup: Setup) -> ServerProcess:
    config = write_zookeeper(place.directory / "zookeeper", place.ports)
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    return place.process("zookeeper", [f"-Xmx{setup.heaps.zookeeper}"], main, str(config))


def master_process(
    place: ServerLayout, setup: Setup, name: str = "master", ports: Ports | None = None
) -> ServerProcess:
    """Return a master in a separate directory; a second one needs other `ports`."""
    config = write_master(
        place.directory / name,
        ports or place.ports,
        setup.token,
        setup.master_options,
        setup.master_sections,
    )
    flags = [f"-Xmx{setup.heaps.master}", *_OPENED]
    return place.process(name, flags, f"{_TOOLS}.MasterStartup", "-f", str(config))


def broker_process(
    place: ServerLayout, setup: Setup, name: str = "broker", ports: Ports | None = None
) -> ServerProcess:
    """Return a broker in a separate directory; `ports` differ for a second one."""
    config = write_broker(
        place.directory / name,
        ports or place.ports,
        setup.broker_id,
        setup.broker_options,
        setup.broker_sections,
    )
    direct = f"-XX:MaxDirectMemorySize={setup.heaps.broker_direct}"
    flags = [f"-Xmx{setup.heaps.broker}", direct, *_OPENED]
    return place.process(name, flags, f"{_TOOLS}.BrokerStartup", "-f", str(config))
