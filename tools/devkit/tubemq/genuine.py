"""Starts and stops a genuine Apache InLong TubeMQ: ZooKeeper, one master, one broker.

For tests, benchmarks and ``tubemq serve --genuine``. The jars come from `artifacts`; the files and
flags are tested ones. Topics passed at the start are known to the master before the broker
registers, which halves the wait: the master routes a topic about 30 s after it told the broker, and
does so for one set of changes at a time. So name every topic at once and wait once::

    with GenuineTubeMQ(topics=[TopicSpec("orders", partitions=3)]) as cluster:
        cluster.wait_accepting()
        metadata = Metadata(ClientSettings(masters=(cluster.master_address,)))

DANGER: the broker, the master and a metrics listener on port 9081 bind *every* interface, without
authentication, and no option changes that. Run inside `isolation`. Nothing here opens TubeMQ RPC
connections or interprets messages.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.devkit.patience import PATIENCE
from tools.devkit.processes import ServerProcess, listens, tail
from tools.devkit.reaper import Reaper
from tools.devkit.running import Running
from tools.devkit.tubemq._server_files import HOST, Ports, Sections
from tools.devkit.tubemq._servers import (
    REGISTRATION_FAILED,
    HeapSizes,
    ServerLayout,
    Servers,
    Setup,
    build_servers,
    free_ports,
    remembered_ports,
)
from tools.devkit.tubemq._webapi import WebApi, WebUnreachable
from tools.devkit.tubemq.artifacts import (
    SERVER_VERSION,
    Artifacts,
    GenuineUnavailable,
    Progress,
    resolve_artifacts,
)
from tubemq_client.errors import ServerError, TubeMQError
from tubemq_client.model import PARTITIONS_PER_STORE, Address
from tubemq_provider.engines.java import JavaRuntime, JavaUnavailable, find_java

__all__ = [
    "GenuineFailed",
    "GenuineTubeMQ",
    "HeapSizes",
    "Ports",
    "TopicSpec",
    "free_ports",
]

_OPERATOR = "docker"  # The servers require at least two characters, the first a letter.
_POLL_S = 0.25
# The master advances a broker's state per heartbeat; the shipped period is eight seconds.
_FAST_HEARTBEAT = {"heartbeatPeriodMs": "1000"}


class GenuineFailed(TubeMQError):
    """A server did not come up, died, or did not accept in time; quotes its last log lines."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create: `stores` times `partitions` partitions on the broker.

    `options` are TubeMQ's own topic properties, for example ``{"unflushThreshold": 1,
    "memCacheFlushIntvl": 4000, "deletePolicy": "delete,168h"}``.
    """

    name: str
    stores: int = 1
    partitions: int = 1
    options: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def partition_ids(self) -> list[int]:
        """Ids of the partitions on the broker."""
        return [
            store * PARTITIONS_PER_STORE + number
            for store in range(self.stores)
            for number in range(self.partitions)
        ]


class GenuineTubeMQ(Running):
    """One cluster in `workdir`; a context manager that starts on entry and stops on exit.

    Without `workdir` a temporary directory is used and removed by `stop`. A given one is kept, and
    a later cluster on it continues with its ports, topics and messages. `broker_options` and
    `master_options` are keys of the main section of broker.ini and master.ini, the `…_sections`
    whole further sections, `broker_defaults` properties for topics without their own. The broker
    sends a heartbeat every second unless `broker_options` changes that. A server that ignores
    SIGTERM for `stop_grace_s` is killed. Not thread-safe.
    """

    def __init__(
        self,
        workdir: Path | str | None = None,
        *,
        topics: Sequence[TopicSpec] = (),
        ports: Ports | None = None,
        java: JavaRuntime | None = None,
        artifacts: Artifacts | None = None,
        heaps: HeapSizes | None = None,
        broker_id: int = 1,
        broker_options: Mapping[str, str] | None = None,
        broker_sections: Sections | None = None,
        broker_defaults: Mapping[str, str | int] | None = None,
        master_options: Mapping[str, str] | None = None,
        master_sections: Sections | None = None,
        stop_grace_s: float = 30.0,
        progress: Progress = lambda _line: None,
    ) -> None:
        self.topics: dict[str, TopicSpec] = {spec.name: spec for spec in topics}
        self._workdir = Path(workdir).absolute() if workdir is not None else None
        self._ports = ports
        self._java = java
        self._artifacts = artifacts
        self._setup = Setup(
            broker_id=broker_id,
            heaps=heaps or HeapSizes(),
            broker_options=_FAST_HEARTBEAT | dict(broker_options or {}),
            broker_sections=dict(broker_sections or {}),
            master_options=dict(master_options or {}),
            master_sections=dict(master_sections or {}),
        )
        self._broker_defaults = dict(broker_defaults or {})
        self._stop_grace_s = stop_grace_s
        self._progress = progress
        self._cluster: _Cluster | None = None

    def __repr__(self) -> str:
        state = f"masters={self.masters}" if self._cluster else "stopped"
        return f"<GenuineTubeMQ {state}>"

    @property
    def masters(self) -> str:
        """RPC address of the master in the user's format, ``host:port``."""
        return f"{HOST}:{self._running.place.ports.master}"

    @property
    def master_address(self) -> Address:
        """RPC address of the master."""
        return (HOST, self._running.place.ports.master)

    @property
    def broker_address(self) -> Address:
        """RPC address of the broker."""
        return (HOST, self._running.place.ports.broker)

    @property
    def master_web(self) -> str:
        """Address of the master's HTTP administration, ``host:port``."""
        return f"{HOST}:{self._running.place.ports.master_web}"

    @property
    def broker_web(self) -> str:
        """Address of the broker's HTTP administration, ``host:port``."""
        return f"{HOST}:{self._running.place.ports.broker_web}"

    @property
    def broker_id(self) -> int:
        """Id of the broker."""
        return self._setup.broker_id

    @property
    def admin_token(self) -> str:
        """`confModAuthToken` of changes over HTTP."""
        return self._setup.token

    @property
    def artifacts(self) -> Artifacts:
        """Jars of the servers."""
        return self._running.place.artifacts

    @property
    def java(self) -> JavaRuntime:
        """Java runtime of the servers."""
        return self._running.place.java

    @property
    def directory(self) -> Path:
        """Directory of everything the servers write; message files are below ``broker/data``."""
        return self._running.place.directory

    @property
    def logs(self) -> dict[str, Path]:
        """Log file of each server: ``zookeeper``, ``master``, ``broker``."""
        return {server.name: server.log for server in self._running.servers.in_order}

    @property
    def place(self) -> ServerLayout:
        """Location of the servers, for set-ups that add one more."""
        return self._running.place

    @property
    def servers(self) -> Servers:
        """The server processes, for tests that end one in a special way."""
        return self._running.servers

    def start(self, *, timeout_s: float = 120.0) -> None:
        """Start the servers and create the topics; they do not accept yet, see `wait_accepting`.

        Raises `GenuineUnavailable` if jars or Java are missing, `GenuineFailed` if a server does
        not come up within `timeout_s`; nothing is left running then.
        """
        if self._cluster is not None:
            return
        self._cluster = self._build()
        deadline = _Deadline(timeout_s)
        try:
            self._start_in_order(self._cluster, deadline)
        except BaseException:
            self.stop()
            raise

    def wait_accepting(
        self, topics: Iterable[str] | None = None, *, timeout_s: float = 150.0
    ) -> None:
        """Wait until the master reports that `topics` (default: all) can be written and read.

        Raises `GenuineFailed` after `timeout_s`. Clients that speak to the broker directly need not
        wait: the broker knows a topic after its next heartbeat.
        """
        cluster = self._running
        waiting = set(self.topics if topics is None else topics)
        self._progress(f"waiting for {len(waiting)} topics to be accepted (about 35 s)")

        def accepted() -> bool:
            for name in sorted(waiting):
                if _accepts(cluster.master_api, name):
                    waiting.discard(name)
            return not waiting

        def goal() -> str:
            return f"accept {', '.join(sorted(waiting))}"

        cluster.wait(cluster.servers.broker, goal, accepted, _Deadline(timeout_s))
        self._progress("all topics accept")

    def add_topics(self, *specs: TopicSpec) -> None:
        """Create more topics; they accept 30 to 75 s later, see `wait_accepting`."""
        for spec in specs:
            self._running.master_api.modify(
                "admin_add_topic_deploy_info",
                topicName=spec.name,
                brokerId=self.broker_id,
                numTopicStores=spec.stores,
                numPartitions=spec.partitions,
                createUser=_OPERATOR,
                **spec.options,
            )
            self.topics[spec.name] = spec

    def query_master(self, method: str, **parameters: object) -> dict[str, Any]:
        """Return the JSON answer of one of the master's `admin_query_…` methods."""
        return self._running.master_api.query(method, **parameters)

    def query_broker(self, method: str, **parameters: object) -> dict[str, Any]:
        """Return the JSON answer of one of the broker's `admin_query_…` methods."""
        return self._running.broker_api.query(method, **parameters)

    def stop_broker(self) -> None:
        """Send SIGTERM: the broker writes everything to disk (about 5 s), or is killed after the
        grace."""
        self._running.servers.broker.stop(self._stop_grace_s)

    def kill_broker(self) -> None:
        """Send SIGKILL: acknowledged messages not on disk are lost, their offsets reused."""
        self._running.servers.broker.kill()

    def start_broker(self, *, timeout_s: float = 60.0) -> None:
        """Start a stopped or killed broker; on return it is registered and its stores readable.

        The master routes its topics again about 30 s later, see `wait_accepting`.
        """
        cluster = self._running
        broker = cluster.servers.broker
        broker.start()

        def serving() -> bool:
            # The RPC port opens after the registration; a failed one leaves the process alive.
            if broker.has_logged(REGISTRATION_FAILED):
                raise GenuineFailed(f"the broker could not register\n{tail(broker.log)}")
            return listens(self.broker_address)

        cluster.wait(broker, lambda: "serve", serving, _Deadline(timeout_s))

    def restart_broker(self, *, timeout_s: float = 60.0) -> None:
        """Stop the broker if it runs, then start it."""
        self.stop_broker()
        self.start_broker(timeout_s=timeout_s)

    def stop(self) -> None:
        """Stop broker, master and ZooKeeper in this order. Safe to repeat."""
        cluster, self._cluster = self._cluster, None
        if cluster is None:
            return
        try:
            for server in reversed(cluster.servers.in_order):
                if server.running:
                    self._progress(f"stopping {server.name}")
                server.stop(self._stop_grace_s)
        finally:
            cluster.place.reaper.close()
            if self._workdir is None:
                shutil.rmtree(cluster.place.directory, ignore_errors=True)

    @property
    def _running(self) -> _Cluster:
        if self._cluster is None:
            raise GenuineFailed("the cluster is not running; call start() first")
        return self._cluster

    def _build(self) -> _Cluster:
        try:
            java = self._java or find_java()
        except JavaUnavailable as exc:
            raise GenuineUnavailable(str(exc)) from exc
        artifacts = self._artifacts or resolve_artifacts(java=java, progress=self._progress)
        directory = self._workdir or Path(tempfile.mkdtemp(prefix="genuine-tubemq-"))
        ports = remembered_ports(directory, self._ports)
        place = ServerLayout(directory, ports, java, artifacts, Reaper())
        return _Cluster(place, build_servers(place, self._setup), self._setup.token)

    def _start_in_order(self, cluster: _Cluster, deadline: _Deadline) -> None:
        servers, ports = cluster.servers, cluster.place.ports
        self._progress("starting ZooKeeper")
        servers.zookeeper.start()
        cluster.wait(
            servers.zookeeper,
            lambda: "answer",
            lambda: _zookeeper_ok(ports.zookeeper),
            deadline,
        )
        self._progress(f"starting the master on port {ports.master}")
        servers.master.start()
        cluster.wait(
            servers.master,
            lambda: "answer over HTTP",
            lambda: _is_master(cluster.master_api),
            deadline,
        )
        self._add_broker(cluster)
        self.add_topics(*self.topics.values())
        self._progress(f"starting the broker on port {ports.broker}")
        self.start_broker(timeout_s=deadline.left_s)

    def _add_broker(self, cluster: _Cluster) -> None:
        # A broker that starts before it is configured and online is refused, and stays refused.
        api = cluster.master_api
        configured = api.query("admin_query_broker_configure", brokerId=self.broker_id)["data"]
        if not configured:
            api.modify(
                "admin_add_broker_configure",
                brokerId=self.broker_id,
                brokerIp=HOST,
                brokerPort=cluster.place.ports.broker,
                brokerWebPort=cluster.place.ports.broker_web,
                createUser=_OPERATOR,
                **self._broker_defaults,
            )
        if not any(broker["manageStatus"] == "online" for broker in configured):
            api.modify(
                "admin_online_broker_configure", brokerId=self.broker_id, modifyUser=_OPERATOR
            )


class _Deadline:
    """A deadline in monotonic time, in the future."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = round(timeout_s, 1)
        self._end = time.monotonic() + timeout_s * PATIENCE

    @property
    def left_s(self) -> float:
        return max(0.0, self._end - time.monotonic())


@dataclass(frozen=True, slots=True)
class _Cluster:
    """State between `start` and `stop`."""

    place: ServerLayout
    servers: Servers
    token: str

    @property
    def master_api(self) -> WebApi:
        return WebApi(HOST, self.place.ports.master_web, "webapi.htm", self.token)

    @property
    def broker_api(self) -> WebApi:
        return WebApi(HOST, self.place.ports.broker_web, "broker.htm")

    def wait(
        self,
        server: ServerProcess,
        goal: Callable[[], str],
        probe: Callable[[], bool],
        deadline: _Deadline,
    ) -> None:
        """Poll `probe` until it is true; a dead server or the deadline raises `GenuineFailed`.

        `goal` names what `server` has not done yet.
        """
        while not probe():
            for started in self.servers.in_order:
                if started.returncode is not None:
                    raise GenuineFailed(
                        f"the {started.name} ended with code {started.returncode}\n"
                        f"{tail(started.log)}"
                    )
            if deadline.left_s <= 0:
                raise GenuineFailed(
                    f"the {server.name} did not {goal()} within {deadline.timeout_s:g} s\n"
                    f"{tail(server.log)}"
                )
            time.sleep(_POLL_S)


def _zookeeper_ok(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=2.0) as connection:
            connection.sendall(b"ruok")
            return connection.recv(4) == b"imok"
    except OSError:
        return False


def _is_master(api: WebApi) -> bool:
    try:
        answer = api.query("admin_query_server_version")
    except (WebUnreachable, ServerError):
        return False
    return any(item.get("version") == SERVER_VERSION for item in answer["data"])


def _accepts(api: WebApi, topic: str) -> bool:
    try:
        answer = api.query("admin_query_topic_info", topicName=topic)
    except WebUnreachable:
        return False
    # `acceptPublish` deeper inside is only the configuration; these two are the routed state.
    return bool(answer["data"]) and all(
        item["isSrvAcceptPublish"] and item["isSrvAcceptSubscribe"] for item in answer["data"]
    )
