"""Spark applications in separate processes: one folder each, shared by the task and the driver.

A folder belongs to one try of one window. It holds the order (the plan and the engine's arguments,
no secret), the driver's progress, and its result, which is written atomically. The process inherits
a file lock, which the kernel releases when the process ends and which no other process can hold: it
tells whether the application still runs. A second lock marks the task that waits for it, so that
two tasks never publish from one staging place. This module starts nothing and does not use Spark.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from tubemq_provider.files.durable import read_document, replace_document
from tubemq_provider.files.private import make_private
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.protocols import Document

__all__ = ["Application", "Applications", "fingerprint"]

_ORDER: Final = "order.json"
_RESULT: Final = "result.json"
_TOLD: Final = "told.json"
_PROCESS: Final = "process.json"
_STOP: Final = "stop"
_LOCK: Final = "running"
_CLAIM: Final = "claimed"
_AWAITED: Final = "awaited.json"
_LOG: Final = "driver.log"
_OLD_LOG: Final = "driver.log.1"
_LOG_BYTES: Final = 16 * 1024 * 1024
_STOP_S: Final = 2.0
_STOP_ELSEWHERE_S: Final = 15.0
"""Seconds for a process that first ends a driver in a cluster: manager and store may be slow."""

_TAIL_BYTES: Final = 64 * 1024
_MAX_AGE_S: Final = 7 * 24 * 3600
"""Age, in seconds, after which the folder of an ended application is removed."""


class Application:
    """Folder of one application. Both sides may open it; the driver writes progress (`told`) and
    `result`, the task everything else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._claim: int | None = None

    def __repr__(self) -> str:
        return f"Application({self.folder.name!r})"

    @property
    def window_id(self) -> str:
        """Id of the window; it contains dots where its instants have fractions of a second."""
        return self.folder.name.rpartition(".")[0]

    @property
    def order(self) -> Document | None:
        """Job description; None if the folder is gone or was never completed."""
        return read_document(self.folder / _ORDER)

    @property
    def order_file(self) -> Path:
        """Path of the order."""
        return self.folder / _ORDER

    @property
    def report(self) -> Document:
        """Latest progress document of the driver; empty before the first."""
        return read_document(self.folder / _TOLD) or {}

    def write_report(self, document: Document) -> None:
        """Replace the progress document (driver's side). Raises `FileNotFoundError` if the folder
        is gone."""
        self._put(_TOLD, document)

    def clear_report(self) -> None:
        """Drop the progress document, so that only later reports count."""
        (self.folder / _TOLD).unlink(missing_ok=True)

    @property
    def result(self) -> Document | None:
        """Outcome of the job; None while there is none."""
        return read_document(self.folder / _RESULT)

    def finish(self, document: Document) -> None:
        """Write the outcome (driver's side): atomic, and on disk when this returns. Raises
        `FileNotFoundError` if the folder is gone."""
        self._put(_RESULT, document)

    @property
    def process(self) -> int | None:
        """Id of the started process and of its process group. None on another machine or in another
        container, where the number would name a different process."""
        stored = read_document(self.folder / _PROCESS)
        return int(stored["pid"]) if stored and stored.get("among") == _process_space() else None

    @process.setter
    def process(self, pid: int) -> None:
        self._put(_PROCESS, {"pid": pid, "among": _process_space()})

    def forget_process(self) -> None:
        """Drop the process id before a new process starts; until the new id is stored, only
        `request_stop` can end it."""
        (self.folder / _PROCESS).unlink(missing_ok=True)

    @property
    def in_cluster(self) -> bool:
        """True if the driver runs in a cluster and the local process supervises it."""
        return "cluster" in (self.order or {})

    @property
    def log(self) -> Path:
        """Path of the process's output."""
        return self.folder / _LOG

    def open_log(self) -> BinaryIO:
        """Open the log for the process to append to; `bound_log` may truncate it meanwhile."""
        return self.log.open("ab")

    def bound_log(self) -> None:
        """Rotate a log that has grown long (driver's side). One earlier log is kept; a line written
        during the rotation may be lost."""
        with suppress(OSError):
            if self.log.stat().st_size > _LOG_BYTES:
                shutil.copyfile(self.log, self.folder / _OLD_LOG)
                os.truncate(self.log, 0)

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of the log."""
        text = (_end_of(self.folder / _OLD_LOG) + _end_of(self.log)).decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-lines:])

    def claim(self) -> bool:
        """Claim the application for this task until `release` or the end of this process; return
        False if another task holds the claim or the folder is gone."""
        if self._claim is not None:
            return True
        try:
            descriptor = os.open(self.folder / _CLAIM, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._claim = descriptor
        return True

    def release(self) -> None:
        """Give the claim up; another task may take it."""
        descriptor, self._claim = self._claim, None
        if descriptor is not None:
            os.close(descriptor)

    def lock(self) -> int:
        """Return a descriptor that holds the lock, for the process to inherit; the caller closes
        its copy after the start."""
        descriptor = os.open(self.folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor

    @property
    def running(self) -> bool:
        """True while the process lives. Once it is False, no result will appear any more."""
        try:
            descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(descriptor)

    def request_stop(self) -> None:
        """Request the driver to stop."""
        (self.folder / _STOP).touch(mode=0o600)

    @property
    def stop_requested(self) -> bool:
        """True if the driver must stop, which includes a removed folder."""
        return (self.folder / _STOP).exists() or not self.folder.exists()

    def end(self) -> None:
        """Stop the process and its children; returns within seconds."""
        with suppress(OSError):
            self.request_stop()
        self.kill()

    def kill(self) -> None:
        """Signal the process group, SIGTERM and then SIGKILL, unless it ends by itself
        meanwhile."""
        if not (pid := self.process):
            return
        patience_s = _STOP_ELSEWHERE_S if self.in_cluster else _STOP_S
        for number in (signal.SIGTERM, signal.SIGKILL):
            # While the lock is held, `pid` is the started process: the number cannot be reused.
            if not self.running:
                return
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)
            self.wait_until_ended(patience_s)

    def wait_until_ended(self, patience_s: float) -> bool:
        """Wait up to `patience_s` seconds for the process to end; return True if it has."""
        pause = threading.Event()
        for _ in range(int(patience_s / 0.1)):
            if not self.running:
                return True
            pause.wait(0.1)
        return not self.running

    def suspend(self) -> Document:
        """Return a ticket for the trigger that waits instead of the task; earlier tickets become
        void. The caller must hold the claim, and releases it."""
        token = secrets.token_hex(8)
        self._put(_AWAITED, {"token": token})
        return {"folder": str(self.folder), "token": token}

    @classmethod
    def of_ticket(cls, ticket: Mapping[str, Any]) -> Application:
        """Return the application that `suspend` issued `ticket` for."""
        return cls(Path(ticket["folder"]))

    def end_for(self, ticket: Mapping[str, Any]) -> bool:
        """End the application because the task with `ticket` will not resume, unless another task
        claims it or has a newer ticket. Return True if it was ended; takes seconds at most."""
        if not self.claim():
            return False
        try:
            awaited = read_document(self.folder / _AWAITED) or {}
            if awaited.get("token") != ticket["token"]:
                return False
            self.end()
        finally:
            self.release()
        return True

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _put(self, name: str, document: Document) -> None:
        # A removed folder tells the driver to stop; do not create it again.
        if not self.folder.is_dir():
            raise FileNotFoundError(f"{self.folder} was removed")
        replace_document(self.folder / name, document)


class Applications:
    """Application folders of one user below `root`, which other users cannot enter.

    Raises `ConfigError` if `root` is a link, belongs to another user or is open to others, or if
    others could replace it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        make_private(root, subject="work_dir")

    def make(self, window_id: str, order: Mapping[str, Any]) -> Application:
        """Create a folder with its order in it, and claim it."""
        folder = Path(tempfile.mkdtemp(prefix=f"{window_id}.", dir=self._root))
        application = Application(folder)
        application.claim()  # before another task can see an order in it
        replace_document(folder / _ORDER, dict(order))
        return application

    def of_window(self, window_id: str) -> Iterator[Application]:
        """Yield the applications of a window, the newest first."""
        folders = [path for path in self._root.glob(f"{window_id}.*") if path.is_dir()]
        for path in sorted(folders, key=_age):
            yield Application(path)

    def of_scope(self, scope_hash: str) -> Iterator[Application]:
        """Yield the applications of all windows of a scope, compared by the plan: ids of windows of
        explicit offsets do not contain the scope."""
        for path in self._root.iterdir():
            order = _order_in(path)
            if order is not None and order["plan"].get("h") == scope_hash:
                yield Application(path)

    def forget_old(self, now: float | None = None) -> None:
        """Remove ended applications that were not used for a week. Other files of the user in the
        directory are left alone."""
        limit = (time.time() if now is None else now) - _MAX_AGE_S
        for path in self._root.iterdir():
            application = Application(path)
            old = -_age(path) < limit
            if old and _order_in(path) is not None and not application.running:
                application.remove()


def _end_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read()
    except OSError:
        return b""


def _order_in(path: Path) -> Document | None:
    """Return the order of the application in `path`, or None if it is no application."""
    with suppress(DocumentError, OSError):
        order = read_document(path / _ORDER)
        if order is not None and {"plan", "engine", "fingerprint"} <= order.keys():
            return order
    return None


def _process_space() -> str:
    """Return the name space of process ids: this boot of this machine, and the container in it."""
    parts = []
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts) or socket.gethostname()


def fingerprint(document: Mapping[str, Any]) -> str:
    """Hash an order; an application with another fingerprint cannot be reused."""
    text = json.dumps(document, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _age(path: Path) -> float:
    try:
        return -path.stat().st_mtime
    except OSError:
        return 0.0
