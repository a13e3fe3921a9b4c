"""A node in a separate process, which can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Self

from rocketmq_client.model import Address, address_text
from tools.devkit.patience import PATIENCE

__all__ = ["NodeProcess"]


class NodeProcess:
    """`rocketmq-snode serve`. Use as a context manager; `kill` is SIGKILL."""

    def __init__(self, name_server: Address, name: str, port: int = 0, **options: object) -> None:
        defaults = {
            "name_servers": address_text(name_server),
            "name": name,
            "listen": f"127.0.0.1:{port}",
            "discovery_period_ms": 500,
        }
        self._environment = os.environ | {
            f"SNODE_{key.upper()}": str(value) for key, value in (defaults | options).items()
        }
        self._process: subprocess.Popen[str] | None = None
        self.address: Address = ("127.0.0.1", port)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rocketmq_snode.command", "serve"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("listening"), line
        self.address = ("127.0.0.1", int(line.rpartition(":")[2]))
        self._environment["SNODE_LISTEN"] = address_text(self.address)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate(timeout=10 * PATIENCE)
            self._process = None
