"""Server processes of the launcher: start, inspect, stop, and never leave behind.

A `ServerProcess` is one JVM with one log file; a `Reaper` makes sure it dies with this process. All
waits are bounded and all signals go to a pid that was started here. The purpose and the start order
of servers are not known here. `start_with_order` starts the victims of kill drills.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.devkit.reaper import Reaper
from tubemq_client.model import Address

__all__ = ["ServerProcess", "listens", "start_with_order", "tail"]


class ServerProcess:
    """One server that can be started, stopped, killed and started again. Not thread-safe."""

    def __init__(
        self, name: str, command: Sequence[str], *, cwd: Path, log: Path, reaper: Reaper
    ) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._cwd = cwd
        self._reaper = reaper
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def __repr__(self) -> str:
        return f"<ServerProcess {self.name} pid={self.pid} returncode={self.returncode}>"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def returncode(self) -> int | None:
        """Exit code; None while running or never started, negative for a signal."""
        return self._process.poll() if self._process else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the program; its output is appended to `log`."""
        if self.running:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            # A new session: Ctrl-C must reach only the launcher, which then stops in order.
            self._process = subprocess.Popen(
                self._command,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._reaper.watch(self._process.pid)

    def has_logged(self, text: str) -> bool:
        """Return True if this run (not earlier ones) has logged `text`."""
        with self.log.open("rb") as handle:
            handle.seek(self._log_start)
            return text.encode() in handle.read()

    def stop(self, grace_s: float) -> None:
        """Send SIGTERM, wait at most `grace_s`, then SIGKILL. No effect if it does not run."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=grace_s)
            except subprocess.TimeoutExpired:
                process.kill()
        self._collect(process)

    def kill(self) -> None:
        """Send SIGKILL: data in memory is lost. No effect if it does not run."""
        process = self._process
        if process is not None:
            process.kill()
            self._collect(process)

    def _collect(self, process: subprocess.Popen[bytes]) -> None:
        process.wait(timeout=30)
        self._reaper.forget(process.pid)


def start_with_order(
    command: Sequence[str],
    order: Mapping[str, object],
    *,
    log: Path,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start a program that gets `order` as JSON on its input, and leads a process group.

    Its output is appended to `log`; `environment` is added to this process's. The caller ends it.
    """
    with log.open("a") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            cwd=cwd,
            text=True,
            start_new_session=True,
        )
    assert process.stdin is not None
    process.stdin.write(json.dumps(order))
    process.stdin.close()
    return process


def listens(address: Address) -> bool:
    """Return True if a process accepts connections at `address` now."""
    try:
        with socket.create_connection(address, timeout=2.0):
            return True
    except OSError:
        return False


def tail(log: Path, lines: int = 12) -> str:
    """Return the last `lines` of a log, indented; a placeholder if there are none."""
    try:
        with log.open("rb") as handle:
            handle.seek(0, 2)
            handle.seek(max(0, handle.tell() - 64 * 1024))
            text = handle.read().decode(errors="replace")
    except OSError:
        text = ""
    chosen = [line for line in text.splitlines() if line.strip()][-lines:]
    return "\n".join(f"    {line}" for line in chosen) or "    (no output)"
