"""A genuine RocketMQ on loopback: one name server and any number of brokers, killed and restarted.

Starts processes in order and detects when each is up: its port listens and the name server lists
the broker under its address. Everything lives below one directory and is stopped by process id; a
reaper ends the rest when this process dies. 4.9.7 ignores its bind option and binds every
interface, so use it in a network namespace with loopback only (`tools.devkit.isolation`).
"""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rocketmq_client import Admin, ClientSettings, Credentials, errors
from rocketmq_client.model import Address
from tools.devkit.patience import PATIENCE
from tools.devkit.processes import ServerProcess, listens, tail
from tools.devkit.reaper import Reaper
from tools.devkit.rocketmq._files import HOST, write_broker, write_name_server
from tools.devkit.rocketmq.artifacts import Line, RocketMQArtifacts, resolve_artifacts
from tools.devkit.running import Running
from tubemq_provider.engines.java import JavaRuntime, find_java

__all__ = ["GenuineFailed", "GenuineRocketMQ"]

_POLL_S = 0.1
_GRACE_S = 40.0
_PORTS_APART = 20

# The broker frees mapped files itself, with classes that Java 17 keeps closed: without these
# 4.9.7 starts once, and fails at the first start after a kill.
_OPENED = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
)


class GenuineFailed(errors.LocalError):
    """A server ended or did not come up in time; the message has the end of its log."""


class GenuineRocketMQ(Running):
    """A cluster of one name server and brokers `broker-a`, `broker-b`, … Use as a context manager.

    `broker_options` are written into every broker's file; `credentials` are an administrator's, if
    the options turn access control on. Without `directory` a temporary one is used and removed.
    """

    def __init__(
        self,
        line: Line,
        directory: Path | None = None,
        *,
        brokers: int = 1,
        broker_options: Mapping[str, str] | None = None,
        credentials: Credentials | None = None,
        java_options: tuple[str, ...] = (),
        artifacts: RocketMQArtifacts | None = None,
        java: JavaRuntime | None = None,
        timeout_s: float = 90.0,
    ) -> None:
        self.line = line
        self.broker_names = [f"broker-{chr(ord('a') + number)}" for number in range(brokers)]
        self._directory = directory
        self._options = dict(broker_options or {})
        self._credentials = credentials
        self._java_options = java_options
        self._artifacts = artifacts
        self._java = java
        self._timeout_s = timeout_s
        self._owns_directory = directory is None
        self._reaper: Reaper | None = None
        self._processes: dict[str, ServerProcess] = {}
        self.name_server: Address = (HOST, 0)
        self.addresses: dict[str, Address] = {}

    def __repr__(self) -> str:
        return f"<GenuineRocketMQ {self.line} {self.name_server} {self.addresses}>"

    @property
    def settings(self) -> ClientSettings:
        """Client settings with the name server's address."""
        return ClientSettings((self.name_server,))

    @property
    def home(self) -> Path:
        """Directory of files, stores and logs."""
        assert self._directory is not None, "started"
        return self._directory

    def start(self) -> None:
        """Start everything and wait until every broker is registered."""
        java = self._java or find_java()
        artifacts = self._artifacts or resolve_artifacts(self.line, java=java)
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="genuine-rocketmq-"))
        self._reaper = Reaper()
        ports = _free_ports(1 + len(self.broker_names))
        self.name_server = (HOST, ports[0])
        self._build(java, artifacts, ports)
        self._processes["namesrv"].start()
        self._wait("namesrv", lambda: listens(self.name_server))
        for name in self.broker_names:
            self._processes[name].start()
        for name in self.broker_names:
            self.wait_registered(name)

    def stop(self) -> None:
        """Stop everything; safe to call twice."""
        for name in reversed(list(self._processes)):
            # No state is needed any more, and an orderly stop of 5.x takes up to 20 s.
            self._processes[name].kill()
        self._processes.clear()
        if self._reaper is not None:
            self._reaper.close()
            self._reaper = None
        if self._owns_directory and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def kill_broker(self, name: str = "broker-a") -> None:
        """Send SIGKILL, as a crash: the page cache outlives the process."""
        self._processes[name].kill()

    def stop_broker(self, name: str = "broker-a") -> None:
        """Send SIGTERM and wait: 5.x takes up to 20 s."""
        self._processes[name].stop(_GRACE_S)

    def start_broker(self, name: str = "broker-a") -> None:
        """Start the broker again on its stored data, and wait until it is registered."""
        self._processes[name].start()
        self.wait_registered(name)

    @contextmanager
    def broker_down(self, name: str = "broker-a") -> Iterator[None]:
        """Kill the broker, and start it again after the block."""
        self.kill_broker(name)
        try:
            yield
        finally:
            self.start_broker(name)

    def wait_registered(self, name: str) -> None:
        """Wait until the port listens and the name server lists the broker under its address."""
        address = self.addresses[name]
        self._wait(name, lambda: listens(address))
        with Admin(replace(self.settings, auth=self._credentials)) as admin:
            self._wait(name, lambda: _is_listed(admin, name, address))

    def _build(self, java: JavaRuntime, artifacts: RocketMQArtifacts, ports: list[int]) -> None:
        home = self.home / "namesrv"
        options = write_name_server(home, ports[0])
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        self._add("namesrv", home, java, artifacts, ["256m", main, "-c", str(options)])
        address = f"{HOST}:{ports[0]}"
        for name, port in zip(self.broker_names, ports[1:], strict=True):
            self.addresses[name] = (HOST, port)
            home = self.home / name
            options = write_broker(home, name, port, address, self._options)
            main = "org.apache.rocketmq.broker.BrokerStartup"
            program = ["512m", main, "-c", str(options), "-n", address]
            self._add(name, home, java, artifacts, program)

    def _add(
        self,
        name: str,
        home: Path,
        java: JavaRuntime,
        artifacts: RocketMQArtifacts,
        program: list[str],
    ) -> None:
        heap, *rest = program
        command = [
            *(str(java.executable), "-Xms256m", f"-Xmx{heap}", "-XX:+UseSerialGC"),
            *("-XX:TieredStopAtLevel=1", "-XX:MaxDirectMemorySize=512m", *_OPENED),
            *(f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", *self._java_options),
            *("-cp", artifacts.classpath, *rest),
        ]
        assert self._reaper is not None, "started"
        log = self.home / f"{name}.log"
        self._processes[name] = ServerProcess(name, command, cwd=home, log=log, reaper=self._reaper)

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._timeout_s * PATIENCE
        process = self._processes[name]
        while not ready():
            if process.returncode is not None:
                raise GenuineFailed(
                    f"{name} ended with code {process.returncode}\n{tail(process.log)}"
                )
            if time.monotonic() > deadline:
                raise GenuineFailed(
                    f"{name} was not up within {self._timeout_s:g} s\n{tail(process.log)}"
                )
            time.sleep(_POLL_S)


def _is_listed(admin: Admin, name: str, address: Address) -> bool:
    with contextlib.suppress(errors.RocketMQError):
        entry = admin.brokers().brokers.get(name)
        return (
            entry is not None and entry.master == address and bool(admin.runtime_info(name).table)
        )
    return False


def _free_ports(count: int) -> list[int]:
    """Return ports with free neighbours (a broker takes `port - 2`, `port` and `port + 1`), below
    the ephemeral range of outgoing connections."""
    chosen: list[int] = []
    for candidate in random.sample(range(20_000, 32_000, _PORTS_APART), 200):
        if all(_is_free(candidate + step) for step in (-2, 0, 1)):
            chosen.append(candidate)
            if len(chosen) == count:
                return chosen
    raise OSError(f"no {count} free ports between 20000 and 32000")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
