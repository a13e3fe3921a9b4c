"""Requests that one inline window sends to masters and brokers, counted by method.

Run as ``python -m tools.benchmarks.window_requests``.

An embedded cluster of one broker, one record in each of some partitions, one cursor window into
Parquet. Layouts are (stores, partitions of a store, partitions with a record). Counts do not depend
on the machine. ``--round-trip 10`` delays every reply by 10 ms, without holding up other requests
of the connection.
"""

from __future__ import annotations

import argparse
import logging
import queue
import socket
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tubemq_client import Partition, Producer, Record
from tubemq_client._io import blocking
from tubemq_client._wire.codec import TUBEMQ
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.job import IngestJob
from tubemq_provider.ingest.validation import parse
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sources.tubemq.source import TubeMQSource

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Cost", "cost_of_window", "main"]

LAYOUTS = ((1, 4, 4), (10, 10, 100), (100, 10, 100), (100, 1, 100), (1, 100, 100))


_WAIT_S = 0.003


@dataclass
class Cost:
    """Cost of one window: requests by method, connections, seconds, and CPU of the process.

    `waits` counts waits for replies of `_WAIT_S` or more: round trips, if they are simulated.
    """

    requests: Counter[str] = field(default_factory=Counter)
    waits: int = 0
    connections: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    total: int = 0

    def __str__(self) -> str:
        names = ", ".join(f"{name} {count}" for name, count in sorted(self.requests.items()))
        return (
            f"{sum(self.requests.values())} requests over {self.connections} connections "
            f"({names}), {self.waits} waits"
        )


def main() -> int:
    """Measure each layout and print a line for it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--round-trip", type=int, default=0, help="milliseconds of each reply")
    parser.add_argument("--windows", type=int, default=2, help="windows of a layout")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    for stores, partitions, filled in LAYOUTS:
        topic = TopicSpec("wide", stores=stores, partitions=partitions)
        with (
            EmbeddedTubeMQ(topics=[topic], http=False) as mq,
            delayed(options.round_trip),
            tempfile.TemporaryDirectory(prefix="tubemq-bench-") as root,
        ):
            for number in range(options.windows):
                cost = cost_of_window(mq, root, topic, filled, number)
                print(
                    f"{stores} stores of {partitions}, {filled} records, window {number}: {cost}, "
                    f"{1000 * cost.seconds:.0f} ms, CPU {1000 * cost.cpu_seconds:.0f} ms"
                )
    return 0


_JOURNALS: dict[str, MemoryJournal] = {}


def cost_of_window(
    mq: EmbeddedTubeMQ, root: str, topic: TopicSpec, filled: int, number: int = 0
) -> Cost:
    """Send a record to each of `filled` partitions, run the next window, and return its cost."""
    settings = ClientConfig.parse({"masters": mq.masters}).settings()
    targets = [
        Partition(1, topic.name, 10_000 * store + part)
        for store in range(topic.stores)
        for part in range(topic.partitions)
    ][:filled]
    with Producer(settings) as producer:
        list(producer.send_many(topic.name, [Record(b"x" * 100, partition=p) for p in targets]))
    mq.broker(1).flush()
    arguments = parse(
        IngestArguments,
        {
            "topic": topic.name,
            "group": "lake",
            "cluster": "bench",
            "path": root,
            "engine": "inline",
            "initial_position": "earliest",
        },
    )
    journal = _JOURNALS.setdefault(root, MemoryJournal())
    with counted() as cost, ExitStack() as stack:
        source = TubeMQSource(settings, identity="bench", topic=topic.name, group="lake")
        job = IngestJob(arguments, source, ParquetSink(root), stack)
        store = MemoryOffsetStore(journal, task=str(number))
        cost.total = job.run(store, attempt=str(number), serialised=True, observer=_Silent()).total
    if cost.total != filled:
        raise RuntimeError(f"the window has {cost.total} records instead of {filled}")
    return cost


class _Silent:
    def at(self, step: object, point: str) -> None:
        """Ignore the steps."""


@contextmanager
def counted() -> Iterator[Cost]:
    """Count the requests and connections of all clients of this process."""
    cost = Cost()
    encode, encode_all, opened = TUBEMQ.encode, TUBEMQ.encode_all, blocking._open  # noqa: SLF001

    def one(serial: int, method: Any, *others: Any) -> bytes:
        cost.requests[method.name] += 1
        return encode(serial, method, *others)

    def many(serials: Any, method: Any, *others: Any) -> bytes:
        cost.requests[method.name] += len(serials)
        return encode_all(serials, method, *others)

    def connect(*arguments: Any) -> socket.socket:
        cost.connections += 1
        return opened(*arguments)

    connection: Any = blocking.BlockingConnection
    waits = {name: getattr(connection, name) for name in ("wait", "wait_all")}

    def waiting(wait: Any) -> Any:
        def waited(*arguments: Any) -> Any:
            since = time.perf_counter()
            try:
                return wait(*arguments)
            finally:
                cost.waits += time.perf_counter() - since >= _WAIT_S

        return waited

    codec: Any = type(TUBEMQ)
    began, cpu = time.perf_counter(), time.process_time()
    codec.encode, codec.encode_all = staticmethod(one), staticmethod(many)
    module: Any = blocking
    module._open = connect  # noqa: SLF001
    for name, wait in waits.items():
        setattr(connection, name, waiting(wait))
    try:
        yield cost
    finally:
        for name, wait in waits.items():
            setattr(connection, name, wait)
        codec.encode, codec.encode_all = staticmethod(encode), staticmethod(encode_all)
        module._open = opened  # noqa: SLF001
        cost.seconds = time.perf_counter() - began
        cost.cpu_seconds = time.process_time() - cpu


@contextmanager
def delayed(round_trip_ms: int) -> Iterator[None]:
    """Let replies arrive `round_trip_ms` later on connections opened meanwhile."""
    opened = blocking._open  # noqa: SLF001

    def connect(*arguments: Any) -> Any:
        ours, theirs = socket.socketpair()
        server = opened(*arguments)
        relays = ((theirs, server, 0.0), (server, theirs, round_trip_ms / 1000))
        for source, target, delay_s in relays:
            threading.Thread(target=_relay, args=(source, target, delay_s), daemon=True).start()
        return _Peer(ours, server)

    module: Any = blocking
    if round_trip_ms:
        module._open = connect  # noqa: SLF001
    try:
        yield
    finally:
        module._open = opened  # noqa: SLF001


class _Peer:
    """Socket of a relayed connection, with the options and the peer of the server's."""

    def __init__(self, ours: socket.socket, server: socket.socket) -> None:
        self._ours, self._server = ours, server

    def setsockopt(self, *_: Any) -> None:
        """Ignore options of TCP, which a pair of sockets does not have."""

    def getpeername(self) -> Any:
        return self._server.getpeername()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ours, name)


def _relay(source: socket.socket, target: socket.socket, delay_s: float) -> None:
    """Send what arrives at `source` to `target`, each piece after the delay."""
    pieces: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def send() -> None:
        while True:
            due, data = pieces.get()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(data)
            except OSError:
                return

    threading.Thread(target=send, daemon=True).start()
    data = b"?"
    while data:
        try:
            data = source.recv(1 << 16)
        except OSError:
            data = b""
        pieces.put((time.monotonic() + delay_s, data))


if __name__ == "__main__":
    raise SystemExit(main())
