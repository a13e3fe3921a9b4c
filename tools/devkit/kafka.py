"""A Kafka broker on loopback and Spark's Kafka connector, for comparative benchmarks.

The jars come with the ordinary `mvn` client into the cache, once per machine: the broker with its
dependencies, and the connector of the installed Spark's version with dependencies that Spark lacks.
One node in KRaft mode, one folder, plain listeners on 127.0.0.1. Nothing here knows TubeMQ.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tools.devkit.maven import Artifact, MavenUnavailable, jars_of
from tools.devkit.patience import PATIENCE
from tools.devkit.processes import ServerProcess, listens, tail
from tools.devkit.reaper import Reaper
from tubemq_client.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubemq_provider.engines.java import JavaRuntime

__all__ = ["KAFKA_VERSION", "Kafka", "KafkaUnavailable", "broker_jars", "connector_jars"]

KAFKA_VERSION: Final = "4.1.2"
_STARTUP_S: Final = 60
_STOP_S: Final = 20
_PORT: Final = 19092


class KafkaUnavailable(LocalError):
    """Kafka is not available here; the message names the missing part."""


def broker_jars() -> list[Path]:
    """Return the jars of broker and tools, fetched if need be. Raises `KafkaUnavailable`."""
    parts = ("kafka_2.13", "kafka-tools")
    jar_lists = [_jars(Artifact("org.apache.kafka", part, KAFKA_VERSION)) for part in parts]
    return list({jar.name: jar for jars in jar_lists for jar in jars}.values())


def connector_jars(spark_version: str) -> list[Path]:
    """Return the jars that `spark.jars` needs to read Kafka. Raises `KafkaUnavailable`."""
    in_spark = ("org.scala-lang", "org.apache.hadoop", "org.slf4j", "com.google.code.findbugs")
    return _jars(Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", spark_version), in_spark)


def _jars(artifact: Artifact, leave_out: Sequence[str] = ()) -> list[Path]:
    try:
        return jars_of(f"{artifact.name}-{artifact.version}", [artifact], leave_out=leave_out)
    except MavenUnavailable as error:
        raise KafkaUnavailable(str(error)) from error


class Kafka:
    """One broker under `folder`, for the length of the `with` block."""

    def __init__(
        self, folder: Path, java: JavaRuntime, *, port: int = _PORT, settings: str = ""
    ) -> None:
        self.address: Final = f"127.0.0.1:{port}"
        self._port = port
        self._more = settings
        self._folder = folder
        self._java = java
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        settings = self._folder / "server.properties"
        settings.write_text(_settings(self._folder / "log", self._port) + self._more)
        identity = self.run("kafka.tools.StorageTool", "random-uuid").split()[-1]
        self.run("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(settings))
        reaper = Reaper()
        self._stack.callback(reaper.close)
        self._server = ServerProcess(
            "kafka",
            self._command("kafka.Kafka", (str(settings),), "-Xmx512m"),
            cwd=self._folder,
            log=self._folder / "server.log",
            reaper=reaper,
        )
        self._stack.callback(self._server.stop, _STOP_S)
        self.start()
        return self

    def start(self) -> None:
        """Start the broker on what its folder holds. Raises `KafkaUnavailable`."""
        server = self._server
        server.start()
        deadline = time.monotonic() + _STARTUP_S * PATIENCE
        while not (server.has_logged("Kafka Server started") or listens(("127.0.0.1", self._port))):
            if not server.running or time.monotonic() > deadline:
                self._stack.close()
                raise KafkaUnavailable(f"Kafka did not start:\n{tail(server.log)}")
            threading.Event().wait(0.2)

    def kill(self) -> None:
        """Kill the broker with SIGKILL; `start` brings it back."""
        self._server.kill()

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, tool: str, *arguments: str) -> str:
        """Run one of Kafka's tools, by the name of its class; return its output."""
        answer = subprocess.run(
            self._command(tool, arguments, "-Xmx256m"),
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if answer.returncode:
            raise RuntimeError(f"{tool}: {(answer.stdout + answer.stderr)[-1500:]}")
        return answer.stdout

    def _command(self, main: str, arguments: Sequence[str], heap: str) -> list[str]:
        classpath = os.pathsep.join(map(str, broker_jars()))
        return [str(self._java.executable), heap, "-cp", classpath, main, *arguments]


def _settings(log: Path, port: int) -> str:
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{port + 1}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={log}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
