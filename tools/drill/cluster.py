"""The drill's TubeMQ: a process that may be killed, its producer, and its log as the truth.

`tubemq serve` keeps its data in a directory: only that survives a kill. The producer numbers its
records and, after a kill, sends again those that may have been lost with the brokers' memory, so
every number ends up in the log. At the end the log is read from the files themselves, not through a
client: the audit must not trust the code that it checks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tools.devkit.reaper import Reaper
from tubemq_client import Record
from tubemq_client.config import ClientConfig
from tubemq_client.embedded.persistence import DataDirectory
from tubemq_client.errors import TubeMQError
from tubemq_client.model import ClientSettings
from tubemq_client.sync import Metadata, Producer

__all__ = ["ENTRY", "REPOSITORY", "TOPIC", "Log", "TubeMQ", "Writer", "read_log"]

REPOSITORY = Path(__file__).resolve().parents[2]
TOPIC = "drill"
ENTRY = 28
BROKERS = 2
PARTITIONS = 2

_START_S = 60.0
_STOP_S = 20.0
_UNSURE_S = 15.0
_BATCH = 20
_PERIOD_S = 0.1
_RETRY_S = 0.5


class TubeMQ:
    """`tubemq serve` over a data directory. Start it, kill it, start it again."""

    def __init__(self, folder: Path, reaper: Reaper) -> None:
        self.data = folder / "tubemq"
        self._ready = folder / "tubemq.json"
        self._output = folder / "tubemq.out"
        self._reaper = reaper
        self._process: subprocess.Popen[bytes] | None = None
        self.masters = ""

    @property
    def settings(self) -> ClientSettings:
        """Client settings with its masters."""
        return ClientConfig.parse({"masters": self.masters}).settings()

    def start(self) -> None:
        """Start it and wait until it serves, on the same ports as before."""
        self._ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tubemq_client.cli", "serve", "--data-dir"]
        command += [str(self.data), "--brokers", str(BROKERS), "--no-http"]
        command += ["--topic", f"{TOPIC}:1:{PARTITIONS}", "--ready-file", str(self._ready)]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
                start_new_session=True,
            )
        self._reaper.watch(self._process.pid)
        deadline = time.monotonic() + _START_S
        while not self._ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"tubemq serve did not start; see {self._output}")
            time.sleep(0.05)
        masters = json.loads(self._ready.read_text())["masters"]
        if self.masters not in {"", masters}:
            raise RuntimeError(f"tubemq serve came back as {masters}, not {self.masters}")
        self.masters = masters

    def kill(self) -> int:
        """Send SIGKILL: unflushed data is lost. Return the pid."""
        return self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Let it flush and end; kill it if it does not."""
        if self._process is not None:
            self._end(signal.SIGTERM)

    def stable_ends(self) -> dict[str, int]:
        """Return the fsynced end of every partition, by partition key. Raises `TubeMQError`."""
        with Metadata(self.settings) as metadata:
            ends = metadata.ends(TOPIC, "drill_ends")
        return {partition.key: end.max_offset for partition, end in ends.items()}

    def stores(self, broker: int) -> list[Path]:
        """List the files of a broker's stores of the topic."""
        return sorted((self.data / f"broker-{broker}").glob(f"{TOPIC}-*.log"))

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process is not None, "TubeMQ does not run"
        process.send_signal(number)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_S)
        self._reaper.forget(process.pid)
        return process.pid


class Writer:
    """A thread that writes numbered records until it is stopped, through kills of the brokers."""

    def __init__(self, tubemq: TubeMQ) -> None:
        self._tubemq = tubemq
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="writer", daemon=True)
        self._unsure: deque[tuple[float, bytes]] = deque()
        self._again: deque[bytes] = deque()
        self._lock = threading.Lock()
        self.numbers = 0
        self.repeated = 0

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write while the context lasts."""
        self._thread.start()
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop after the current batch has been confirmed, or give up after a minute."""
        self._stop.set()
        self._thread.join(60)

    def brokers_died(self) -> None:
        """Send again the records that may have been in the brokers' memory only."""
        with self._lock:
            self._again.extend(body for _, body in self._unsure)
            self.repeated += len(self._unsure)
            self._unsure.clear()

    def _work(self) -> None:
        batch: list[bytes] = []
        while not self._stop.is_set() or batch or self._again:
            try:
                with Producer(self._tubemq.settings) as producer:
                    while not self._stop.is_set() or batch or self._again:
                        batch = batch or self._next_batch()
                        self._send(producer, batch)
                        batch = []
                        self._stop.wait(_PERIOD_S)
            except (TubeMQError, OSError):
                if self._stop.wait(_RETRY_S):
                    time.sleep(_RETRY_S)

    def _next_batch(self) -> list[bytes]:
        with self._lock:
            batch = [self._again.popleft() for _ in range(min(_BATCH, len(self._again)))]
        first, self.numbers = self.numbers, self.numbers + _BATCH - len(batch)
        return [*batch, *(b"record %d" % number for number in range(first, self.numbers))]

    def _send(self, producer: Producer, batch: list[bytes]) -> None:
        list(producer.send_many(TOPIC, [Record(body) for body in batch]))
        now = time.monotonic()
        with self._lock:
            self._unsure.extend((now, body) for body in batch)
            while self._unsure and self._unsure[0][0] < now - _UNSURE_S:
                self._unsure.popleft()


@dataclass(frozen=True)
class Log:
    """All records of the brokers, by partition key: offset and body, in order."""

    records: Mapping[str, list[tuple[int, bytes]]] = field(default_factory=dict)

    def between(self, key: str, start: int, end: int) -> list[bytes]:
        """Return the bodies of a partition within an offset range."""
        return [body for offset, body in self.records.get(key, ()) if start <= offset < end]

    def bodies(self) -> set[bytes]:
        """Return the set of all bodies."""
        return {body for records in self.records.values() for _, body in records}


def read_log(data: str | os.PathLike[str]) -> Log:
    """Read the log of a stopped TubeMQ from its files."""
    records: dict[str, list[tuple[int, bytes]]] = {}
    directory = DataDirectory(data)
    try:
        for broker in range(1, BROKERS + 1):
            for topic, store in directory.stores(broker):
                file = directory.store_file(broker, topic, store)
                stored = file.open()
                file.close()
                for index, record in enumerate(stored.records if topic == TOPIC else ()):
                    key = f"{broker}:{record.partition_id}"
                    offset = stored.base_offset + ENTRY * index
                    records.setdefault(key, []).append((offset, bytes(record.payload)))
    finally:
        directory.close()
    return Log(records)
