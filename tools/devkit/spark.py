"""A standalone Spark cluster on this machine, and a Spark Connect server on it.

For tests that one process cannot show: workers with separate directories, and executors that are
other processes, share no directory with the driver, and can be killed one by one. Binds to one
address, loopback by default; workers on loopback have one address each, because Spark runs no
second try of a task on the host of the first. Starts the `spark-class` of the installed pyspark;
knows nothing of windows or sinks.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from tools.devkit.patience import PATIENCE
from tools.devkit.processes import ServerProcess, tail
from tools.devkit.quick_java import QUICK_JAVA
from tools.devkit.reaper import Reaper

__all__ = ["QUICK_JAVA", "ConnectServer", "SparkCluster", "bare_python", "spark_home"]

_LOOPBACK: Final = "127.0.0.1"
_STARTUP_S: Final = 60
_STOP_S: Final = 15
_MASTER: Final = re.compile(rb"Starting Spark master at (spark://[\w.:]+)")
_SERVER: Final = re.compile(rb"Spark Connect server started at: [\w.]+:(\d+)")
_HIDE_CHECKOUT: Final = """import os, sys
sys.path[:] = [p for p in sys.path if not os.path.isdir(os.path.join(p, "tubemq_client"))]
"""
_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"


class SparkCluster:
    """`workers` workers of `cores` cores each under `folder`, for the length of the `with` block.
    Their PATH is `path`, by default that of this process."""

    def __init__(
        self,
        folder: Path,
        java_home: Path,
        *,
        host: str = _LOOPBACK,
        workers: int = 2,
        cores: int = 1,
        path: str | None = None,
    ) -> None:
        self.folder = folder
        self._cores = str(cores)
        self._path = path or os.environ.get("PATH", os.defpath)
        self.master_url = ""
        self._java_home = java_home
        self._host = host
        self._workers = [f"worker-{number}" for number in range(1, workers + 1)]
        self._running: dict[str, ServerProcess] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            reaper = Reaper()
            stack.callback(reaper.close)
            master = self._start(stack, reaper, "master", "Master", self._host)
            _wait_for_log(master, "Starting Spark master at")
            match = _MASTER.search(master.log.read_bytes())
            assert match is not None
            self.master_url = match[1].decode()
            for number, name in enumerate(self._workers, 1):
                host = f"127.0.0.{number}" if self._host == _LOOPBACK else self._host
                options = ["--cores", self._cores, "--memory", "700m", "--work-dir", "work"]
                self._start(stack, reaper, name, "Worker", host, *options, self.master_url)
            for name in self._workers:
                _wait_for_log(self._running[name], "Successfully registered with master")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def executors(self) -> list[int]:
        """List process ids of the executors that run now, those of the first worker first."""
        pids = []
        for name in self._workers:
            pid = self._running[name].pid
            children = Path(f"/proc/{pid}/task").glob("*/children")
            for child in sorted(int(c) for path in children for c in path.read_text().split()):
                try:
                    command = Path(f"/proc/{child}/cmdline").read_bytes()
                except OSError:
                    continue
                if _EXECUTOR in command:
                    pids.append(child)
        return pids

    def logs(self) -> list[Path]:
        """List the log files of master, workers and executors."""
        return [path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".jar"]

    def _start(
        self, stack: ExitStack, reaper: Reaper, name: str, kind: str, host: str, *options: str
    ) -> ServerProcess:
        directory = self.folder / name
        (directory / "local").mkdir(parents=True)
        (directory / "tmp").mkdir()
        server = ServerProcess(
            name,
            [
                "env",
                f"JAVA_HOME={self._java_home}",
                f"SPARK_HOME={spark_home()}",
                f"SPARK_LOCAL_DIRS={directory / 'local'}",
                f"SPARK_LOCAL_IP={host}",
                f"PATH={self._path}",
                f"TMPDIR={directory / 'tmp'}",
                "SPARK_DAEMON_MEMORY=256m",
                f"SPARK_DAEMON_JAVA_OPTS={QUICK_JAVA}",
                str(spark_home() / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{kind.lower()}.{kind}",
                *("--host", host, "--port", "0", "--webui-port", "0"),
                *options,
            ],
            cwd=directory,
            log=directory / "log",
            reaper=reaper,
        )
        server.start()
        stack.callback(server.stop, _STOP_S)
        self._running[name] = server
        return server


class ConnectServer:
    """A Spark Connect server under `folder`, an application on `master`, for the length of the
    `with` block. With `bare` its Python has the packages of this one, but none of this project."""

    def __init__(
        self,
        folder: Path,
        java_home: Path,
        master: str,
        conf: Mapping[str, str] | None = None,
        *,
        bare: bool = False,
    ) -> None:
        self.folder = folder
        self._python = sys.executable
        self._bare = bare
        self._server: ServerProcess | None = None
        self.remote = ""
        self._java_home = java_home
        self._conf = {
            "spark.master": master,
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.driver.memory": "640m",
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.executor.extraJavaOptions": QUICK_JAVA,
            **(conf or {}),
        }
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            reaper = Reaper()
            stack.callback(reaper.close)
            for name in ("local", "tmp"):
                (self.folder / name).mkdir(parents=True)
            if self._bare:
                self._python = bare_python(self.folder / "python")
            server = ServerProcess(
                "Spark Connect",
                [
                    *("env", "-u", "PYTHONPATH"),
                    f"JAVA_HOME={self._java_home}",
                    f"SPARK_HOME={spark_home()}",
                    f"SPARK_LOCAL_DIRS={self.folder / 'local'}",
                    "SPARK_LOCAL_IP=127.0.0.1",
                    f"PYSPARK_PYTHON={self._python}",
                    f"TMPDIR={self.folder / 'tmp'}",
                    str(spark_home() / "bin" / "spark-submit"),
                    *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
                    *(part for item in self._conf.items() for part in ("--conf", "=".join(item))),
                ],
                cwd=self.folder,
                log=self.folder / "log",
                reaper=reaper,
            )
            server.start()
            self._server = server
            stack.callback(server.stop, _STOP_S)
            _wait_for_log(server, "Spark Connect server started at:")
            match = _SERVER.search(server.log.read_bytes())
            assert match is not None
            self.remote = f"sc://127.0.0.1:{match[1].decode()}"
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def kill(self) -> None:
        """Send SIGKILL: sessions, operations and executors end with it."""
        assert self._server is not None
        self._server.kill()

    def logs(self) -> list[Path]:
        """List its log files."""
        return [path for path in self.folder.rglob("*") if path.is_file()]


def bare_python(folder: Path) -> str:
    """Create a program in `folder` (also as ``python3``) that is this interpreter without packages
    installed from a checkout."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_HIDE_CHECKOUT)
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{folder}:$PYTHONPATH"\nexec {sys.executable} "$@"\n'
    )
    program.chmod(0o755)
    (folder / "python3").symlink_to(program.name)
    return str(program)


def _wait_for_log(server: ServerProcess, words: str) -> None:
    deadline = time.monotonic() + _STARTUP_S * PATIENCE
    while not server.has_logged(words):
        if not server.running or time.monotonic() > deadline:
            raise RuntimeError(f"{server.name} did not start:\n{tail(server.log)}")
        threading.Event().wait(0.1)


def spark_home() -> Path:
    """Return the home of the installed pyspark, unless the environment names another."""
    spec = importlib.util.find_spec("pyspark")
    if "SPARK_HOME" in os.environ or spec is None or spec.origin is None:
        return Path(os.environ["SPARK_HOME"])
    return Path(spec.origin).parent
