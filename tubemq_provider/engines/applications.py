"""Spark applications in processes of their own: a folder for each, which is all that both sides
share.

A folder belongs to one try of one window and has an order (the plan, no secret), what the driver
tells while it works, and its result, which appears whole or not at all. A lock that the process
inherits says whether it still runs: it ends with the process however that ends, and no other
process can be taken for it. Another lock says that a task waits for it, so that two tasks never
publish from one staging place. This module starts nothing and knows nothing of Spark.
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
"""For a process that ends a driver in a cluster before itself: manager and store may be slow."""

_TAIL_BYTES: Final = 64 * 1024
_FORGOTTEN_S: Final = 7 * 24 * 3600
"""Folders of applications that ended and that nobody has asked for since are removed."""


class Application:
    """One folder. Either side may open it; the driver writes `told` and `result`, the task the
    rest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._claim: int | None = None

    def __repr__(self) -> str:
        return f"Application({self.folder.name!r})"

    @property
    def window_id(self) -> str:
        """The window that it is for, whose name has dots where instants have fractions."""
        return self.folder.name.rpartition(".")[0]

    @property
    def order(self) -> Document | None:
        """What is to be done; None if the folder has gone, or was never finished."""
        return read_document(self.folder / _ORDER)

    @property
    def order_file(self) -> Path:
        """Where the order is."""
        return self.folder / _ORDER

    @property
    def told(self) -> Document:
        """What the driver has told last."""
        return read_document(self.folder / _TOLD) or {}

    def tell(self, document: Document) -> None:
        """The driver's: replace what is told. Raises `FileNotFoundError` if the folder has gone."""
        self._put(_TOLD, document)

    def forget_told(self) -> None:
        """What is told next is all that counts."""
        (self.folder / _TOLD).unlink(missing_ok=True)

    @property
    def result(self) -> Document | None:
        """The outcome; None while there is none."""
        return read_document(self.folder / _RESULT)

    def finish(self, document: Document) -> None:
        """The driver's: the outcome, in one step, on disk when this returns. Raises
        `FileNotFoundError` if the folder has gone."""
        self._put(_RESULT, document)

    @property
    def process(self) -> int | None:
        """The process, and process group, that was started; None also where its number would mean
        another process: on another machine, or in another container."""
        found = read_document(self.folder / _PROCESS)
        return int(found["pid"]) if found and found.get("among") == _process_space() else None

    @process.setter
    def process(self, pid: int) -> None:
        self._put(_PROCESS, {"pid": pid, "among": _process_space()})

    def forget_process(self) -> None:
        """Another will be started: until its number is known, there is only the word to end it."""
        (self.folder / _PROCESS).unlink(missing_ok=True)

    @property
    def in_cluster(self) -> bool:
        """Whether the driver is in a cluster, and the process here stands for it."""
        return "cluster" in (self.order or {})

    @property
    def log(self) -> Path:
        """What the process says."""
        return self.folder / _LOG

    def open_log(self) -> BinaryIO:
        """The log, for the process to write to; it may be begun anew meanwhile."""
        return self.log.open("ab")

    def bound_log(self) -> None:
        """The driver's: begin a log anew that has become long. What it said before is kept until
        the next time; a line that is written just then may be lost."""
        with suppress(OSError):
            if self.log.stat().st_size > _LOG_BYTES:
                shutil.copyfile(self.log, self.folder / _OLD_LOG)
                os.truncate(self.log, 0)

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of the log."""
        text = (_end_of(self.folder / _OLD_LOG) + _end_of(self.log)).decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-lines:])

    def claim(self) -> bool:
        """Whether this task waits for the application from now on, until `release` or its end; no
        other can meanwhile."""
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
        """Another task may claim it."""
        descriptor, self._claim = self._claim, None
        if descriptor is not None:
            os.close(descriptor)

    def lock(self) -> int:
        """A descriptor that holds the lock, for the process to inherit; the caller closes its own
        when it has."""
        descriptor = os.open(self.folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor

    @property
    def running(self) -> bool:
        """Whether the process is there. When it is not, no result will come any more."""
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

    def ask_to_stop(self) -> None:
        """Leave word for the driver to end."""
        (self.folder / _STOP).touch(mode=0o600)

    @property
    def asked_to_stop(self) -> bool:
        """Whether the driver is to end; also when its folder has gone."""
        return (self.folder / _STOP).exists() or not self.folder.exists()

    def end(self) -> None:
        """End the process and what it has started; returns within seconds."""
        with suppress(OSError):
            self.ask_to_stop()
        self.kill()

    def kill(self) -> None:
        """The process and what it has started, unless it ends by itself meanwhile."""
        if not (pid := self.process):
            return
        patience_s = _STOP_ELSEWHERE_S if self.in_cluster else _STOP_S
        for number in (signal.SIGTERM, signal.SIGKILL):
            # A process that has the lock is the one that was started: no other can bear its number.
            if not self.running:
                return
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)
            self.until_over(patience_s)

    def until_over(self, patience_s: float) -> bool:
        """Whether it has ended, within so many seconds."""
        pause = threading.Event()
        for _ in range(int(patience_s / 0.1)):
            if not self.running:
                return True
            pause.wait(0.1)
        return not self.running

    def suspend(self) -> Document:
        """A ticket for what waits from now on instead of a task; any earlier one is void. The claim
        must be held, and is released by the caller."""
        token = secrets.token_hex(8)
        self._put(_AWAITED, {"token": token})
        return {"folder": str(self.folder), "token": token}

    @classmethod
    def of_ticket(cls, ticket: Mapping[str, Any]) -> Application:
        """The application that `suspend` has given `ticket` for."""
        return cls(Path(ticket["folder"]))

    def end_for(self, ticket: Mapping[str, Any]) -> bool:
        """End it, as the task that got `ticket` will not come back; not if another task has it or
        has left a ticket of its own. Returns whether it was ended, within seconds."""
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
        """Drop the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _put(self, name: str, document: Document) -> None:
        # A folder that was removed says that the driver is to end, and must not come back.
        if not self.folder.is_dir():
            raise FileNotFoundError(f"{self.folder} was removed")
        replace_document(self.folder / name, document)


class Applications:
    """The folders of one user below `root`, which other users cannot enter.

    Raises `ConfigError` if `root` is a link, another user's or open to others, or if others could
    replace it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        make_private(root, subject="work_dir")

    def make(self, window_id: str, order: Mapping[str, Any]) -> Application:
        """A new folder, with its order in it; claimed."""
        folder = Path(tempfile.mkdtemp(prefix=f"{window_id}.", dir=self._root))
        made = Application(folder)
        made.claim()  # before another task can see an order in it
        replace_document(folder / _ORDER, dict(order))
        return made

    def of_window(self, window_id: str) -> Iterator[Application]:
        """Those of a window, the newest first."""
        found = [path for path in self._root.glob(f"{window_id}.*") if path.is_dir()]
        for path in sorted(found, key=_age):
            yield Application(path)

    def of_scope(self, scope_hash: str) -> Iterator[Application]:
        """Those of all windows of a scope. Ids of windows of explicit offsets do not name it."""
        for path in self._root.iterdir():
            order = _order_in(path)
            if order is not None and order["plan"].get("h") == scope_hash:
                yield Application(path)

    def forget_old(self, now: float | None = None) -> None:
        """Remove what nobody has come back for within a week. What else a user has in the directory
        is left alone."""
        limit = (time.time() if now is None else now) - _FORGOTTEN_S
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
    """The order of an application in `path`; None if that is none."""
    with suppress(DocumentError, OSError):
        order = read_document(path / _ORDER)
        if order is not None and {"plan", "engine", "fingerprint"} <= order.keys():
            return order
    return None


def _process_space() -> str:
    """What numbers of processes count in: this boot of this machine, and the container in it."""
    found = []
    with suppress(OSError):
        found.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        found.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(found) or socket.gethostname()


def fingerprint(document: Mapping[str, Any]) -> str:
    """A name for just this order: an application that has another one is of no use."""
    text = json.dumps(document, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _age(path: Path) -> float:
    try:
        return -path.stat().st_mtime
    except OSError:
        return 0.0
