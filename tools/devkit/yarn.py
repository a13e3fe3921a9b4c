"""A genuine YARN on loopback: a resource manager, and one node with separate directories.

Both are the daemons of Hadoop's published test jar in the version that the installed pyspark
speaks, on pyspark's own jars; `mvn` fetches the rest. Files of applications are in the local file
system. Knows nothing of Spark's applications, windows or sinks.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

from tools.devkit.airflow.home import free_port
from tools.devkit.maven import Artifact, jars_of
from tools.devkit.patience import PATIENCE
from tools.devkit.processes import ServerProcess, tail
from tools.devkit.reaper import Reaper
from tools.devkit.spark import QUICK_JAVA, spark_home

__all__ = ["YarnCluster"]

_BOUNCY_CASTLE: Final = "1.82"
_STARTUP_S: Final = 90
_STOP_S: Final = 5
_SERVER: Final = "org.apache.hadoop.yarn.server"
_DAEMONS: Final = {
    "manager": f"{_SERVER}.resourcemanager.ResourceManager",
    "node": f"{_SERVER}.nodemanager.NodeManager",
}
_HADOOP: Final = re.compile(r"hadoop-client-api-(.+)\.jar")


class YarnCluster:
    """One node of 4 cores and 4 GiB under `folder`, for the length of the `with` block.

    `configuration` is the value of HADOOP_CONF_DIR. Raises `MavenUnavailable`.
    """

    def __init__(self, folder: Path, java_home: Path) -> None:
        self.folder = folder
        self.configuration = folder / "conf"
        self.web = f"http://127.0.0.1:{free_port()}"
        self._java = java_home / "bin" / "java"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        classpath = [str(self.configuration), f"{spark_home()}/jars/*", *map(str, _jars())]
        self._configure()
        with ExitStack() as stack:
            reaper = Reaper()
            stack.callback(reaper.close)
            for name, kind in _DAEMONS.items():
                directory = self.folder / name
                directory.mkdir()
                command = [*(str(self._java), "-Xmx256m", *QUICK_JAVA.split()), "-cp"]
                command += [os.pathsep.join(classpath), kind]
                server = ServerProcess(
                    name, command, cwd=directory, log=directory / "log", reaper=reaper
                )
                server.start()
                stack.callback(server.stop, _STOP_S)
                self._wait(server, nodes=name == "node")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def applications(self) -> list[dict[str, Any]]:
        """List the manager's reports of all submitted applications, in their order."""
        applications = (self._ask("apps").get("apps") or {}).get("app") or []
        return sorted(applications, key=lambda app: str(app["id"]))

    def logs(self) -> str:
        """Return the output of all containers, for the report of a failed test."""
        files = (self.folder / "node" / "logs").rglob("std*")
        return "\n".join(f"--- {file}\n{file.read_text('utf-8', 'replace')}" for file in files)

    def _ask(self, what: str) -> dict[str, Any]:
        address = f"{self.web}/ws/v1/cluster/{what}"
        with urllib.request.urlopen(address, timeout=5) as reply:  # noqa: S310
            answer: dict[str, Any] = json.load(reply)
        return answer

    def _wait(self, server: ServerProcess, *, nodes: bool) -> None:
        deadline = time.monotonic() + _STARTUP_S * PATIENCE
        while True:
            with suppress(OSError):
                metrics = self._ask("metrics")["clusterMetrics"]
                if metrics["activeNodes"] or not nodes:
                    return
            if not server.running or time.monotonic() > deadline:
                raise RuntimeError(f"{server.name} did not start:\n{tail(server.log)}")
            threading.Event().wait(0.2)

    def _configure(self) -> None:
        manager, node, web = "yarn.resourcemanager", "yarn.nodemanager", self.web.partition("//")[2]
        parts = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
        node_folder = self.folder / "node"
        settings = {
            f"{manager}.hostname": "127.0.0.1",
            **{f"{manager}.{part}": f"127.0.0.1:{free_port()}" for part in parts},
            f"{manager}.webapp.address": web,
            f"{node}.hostname": "127.0.0.1",
            **{f"{node}.{p}address": "127.0.0.1:0" for p in ("", "localizer.", "webapp.")},
            f"{node}.collector-service.address": "127.0.0.1:0",
            f"{node}.local-dirs": str(node_folder / "local"),
            f"{node}.log-dirs": str(node_folder / "logs"),
            f"{node}.resource.memory-mb": "4096",
            f"{node}.resource.cpu-vcores": "4",
            f"{node}.vmem-check-enabled": "false",
            f"{node}.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            "yarn.scheduler.minimum-allocation-mb": "128",
        }
        core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(self.folder / "tmp")}
        queues = "yarn.scheduler.capacity"
        capacity = {
            f"{queues}.root.queues": "default",
            f"{queues}.root.default.capacity": "100",
            f"{queues}.maximum-am-resource-percent": "1",
        }
        self.configuration.mkdir(parents=True)
        for name, values in (("yarn", settings), ("core", core)):
            (self.configuration / f"{name}-site.xml").write_text(_xml(values))
        (self.configuration / "capacity-scheduler.xml").write_text(_xml(capacity))


def _jars() -> list[Path]:
    (api,) = (spark_home() / "jars").glob("hadoop-client-api-*.jar")
    match = _HADOOP.fullmatch(api.name)
    assert match is not None
    parts = ("bcprov-jdk18on", "bcpkix-jdk18on", "bcutil-jdk18on")
    artifacts = [
        Artifact("org.apache.hadoop", "hadoop-client-minicluster", match[1]),
        *(Artifact("org.bouncycastle", part, _BOUNCY_CASTLE) for part in parts),
    ]
    return jars_of(f"yarn-{match[1]}", artifacts, alone=True)


def _xml(values: dict[str, str]) -> str:
    items = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>\n"
        for name, value in values.items()
    )
    return f"<configuration>\n{items}</configuration>\n"
