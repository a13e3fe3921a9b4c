"""Clients of both shells at work for minutes: threads, tasks, descriptors and memory do not grow.

A round sends records, receives them as a group, reads ranges, looks things up, opens and closes
clients. Every third one loses all connections first; the process is counted two rounds later, when
most are open again. The server is another process, so that what it keeps is not counted; the fault
proxies are in this one, and give back what they use. Memory is what is in use: Python's blocks, and
what the C library has handed out. Resident memory has a wider limit, because what allocators keep
of threads that come and go grows long before it settles. Long form: `make soak ARGS="-k soak -s"`,
TUBEMQ_SOAK_MINUTES long.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import statistics
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from tests.client.cli.test_serve import served
from tests.system.behaviour.bad_network import BadNetwork, servers_of
from tests.system.behaviour.conftest import PATIENT
from tests.system.behaviour.shells import BLOCKING, LoopShell, Shell
from tests.system.behaviour.sites import SHARED, WIDE, bodies, new_group
from tests.system.behaviour.windows import settings_for
from tools.devkit.patience import PATIENCE
from tubemq_client import ClientSettings, OffsetRange, Partition, Record, errors
from tubemq_client.model import ConsumerSettings

T = TypeVar("T")

MINUTES = float(os.environ.get("TUBEMQ_SOAK_MINUTES", "10"))
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
LATEST = ConsumerSettings(consume_position="latest", not_found_wait_ms=20)
RECORDS = 200
READ_BACK = 100
ROUNDS_LEAST = 24
ROUNDS_MOST = 100_000


class Sample(NamedTuple):
    """The process after a round. `blocks` are Python's of up to 512 bytes, `heap_kib` is what the C
    library has handed out: larger ones, and what protobuf, sockets and TLS use."""

    round: float
    minutes: float
    threads: float
    tasks: float
    descriptors: float
    blocks: float
    heap_kib: float
    rss_kib: float


COUNTED = ("threads", "tasks", "descriptors")
ALLOWED = {"blocks": (500, 0.5), "heap_kib": (600, 0.1), "rss_kib": (2_000, 1.0)}
"""Growth of memory in the second half that is none. Once: which connections are open differs, and
each has a buffer of 512 KiB. A round: it makes a dozen connections and sends 400 records, so less
than that is none of theirs."""


# -- work -----------------------------------------------------------------------------------------


def persist(work: Callable[[], T]) -> T:
    """Retry up to five times, because the network may have broken."""
    for _ in range(4):
        try:
            return work()
        except errors.NetworkError:
            pass
    return work()


class Worker:
    """The clients of one shell, open all the time, and what they do in a round."""

    def __init__(self, shell: Shell, settings: ClientSettings, topic: str, stack: ExitStack):
        self._shell, self._settings, self._topic = shell, settings, topic
        self._group = new_group()
        self._producer = stack.enter_context(shell.Producer(settings))
        self._metadata = stack.enter_context(shell.Metadata(settings))
        self._reader = stack.enter_context(shell.RangeReader(settings, group=new_group()))
        self._consumer = stack.enter_context(self._member())
        self._count = len(self._producer.partitions(topic))
        self._number = 0

    def _member(self) -> Any:
        topics = {self._topic: ()}
        return self._shell.Consumer(self._settings, self._group, topics, consumer=LATEST)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + 60 * PATIENCE
        while len(self._consumer.assignment) < self._count:
            assert time.monotonic() < deadline, self._consumer.last_errors
            time.sleep(0.05)

    def round(self, number: int) -> None:
        receipt = self._send()
        self._receive()
        self._read_back(self._reader, receipt.partition)
        with self._shell.RangeReader(self._settings, group=self._group) as reader:
            self._read_back(reader, receipt.partition)
        with self._shell.Metadata(self._settings) as metadata:
            persist(lambda: metadata.topic(self._topic))
        if number % 5 == 0:
            with self._member():
                pass

    def _send(self) -> Any:
        self._number += 1
        self._sent = {b"%d-%d" % (self._number, n) for n in range(RECORDS)}
        records = [Record(body) for body in sorted(self._sent)]
        return persist(lambda: list(self._producer.send_many(self._topic, records)))[-1]

    def _receive(self) -> None:
        deadline = time.monotonic() + 60 * PATIENCE
        while self._sent:
            assert time.monotonic() < deadline, f"{len(self._sent)}: {self._consumer.last_errors}"
            batch = self._consumer.receive(500)
            if batch is None:
                continue
            try:
                self._consumer.confirm(batch)
            except (errors.StaleBatch, errors.NetworkError, errors.ServerError):
                continue  # it comes again, or was confirmed: then the group is beyond it
            finally:
                self._sent.difference_update(bodies(batch))

    def _read_back(self, reader: Any, partition: Partition) -> None:
        def ends() -> Any:
            return self._metadata.ends(self._topic, self._group, [partition], stable=False)

        end = persist(ends)[partition].max_offset
        start = max(0, end - READ_BACK * 28)
        for batch in reader.read(OffsetRange(partition, start, end)):
            assert all(bodies(batch))


# -- counting -------------------------------------------------------------------------------------


async def _tasks() -> int:
    return len(asyncio.all_tasks())


class _MallocInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


C_LIBRARY = ctypes.CDLL(None)


def _give_back() -> None:
    """Return free pages that the C library keeps for ended threads: they are no growth."""
    trim = getattr(C_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)


def _heap_kib() -> int:
    """Return the bytes in use, of all threads' arenas; 0 if the C library cannot report them."""
    info = getattr(C_LIBRARY, "mallinfo2", None)
    if info is None:
        return 0
    info.restype = _MallocInfo
    found = info()
    return int(found.uordblks + found.hblkhd) // 1024


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def count(loop: LoopShell, number: int, began: float) -> Sample:
    """Return counts that two samples agree on: closed connections end a moment later in the
    proxies."""
    gc.collect()
    _give_back()
    last = None
    for _ in range(50):
        found = (threading.active_count(), loop.wait(_tasks()), _descriptors())
        if found == last:
            break
        last = found
        time.sleep(0.25)
    blocks, heap = sys.getallocatedblocks(), _heap_kib()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_KIB
    minutes = (time.monotonic() - began) / 60
    return Sample(number, minutes, *found, blocks, heap, resident)


def slope(samples: list[Sample], name: str) -> float:
    """Least squares: growth a round."""
    return statistics.linear_regression(
        [s.round for s in samples], [getattr(s, name) for s in samples]
    ).slope


def table(samples: list[Sample]) -> str:
    """Format a dozen of the samples, and growth per round in the first and the second half."""
    head = f"{'round':>8} {'minute':>7}" + "".join(f" {name:>11}" for name in Sample._fields[2:])
    step = max(1, len(samples) // 12)
    lines = [head] + [
        f"{s.round:>8.0f} {s.minutes:>7.2f}" + "".join(f" {value:>11.0f}" for value in s[2:])
        for s in (*samples[:-1:step], samples[-1])
    ]
    middle = len(samples) // 2
    for title, half in (("first half", samples[:middle]), ("second half", samples[middle:])):
        grows = "".join(f" {slope(half, name):>+11.3f}" for name in Sample._fields[2:])
        lines.append(f"{title:>16}{grows}")
    return "\n".join(lines)


def judge(samples: list[Sample], *memory: str) -> None:
    """Assert that the last third looks like the second; the first third warms up. `memory` warms up
    during the first half."""
    third = len(samples) // 3
    warm = samples[third:]
    shown = table(samples)
    print("\n" + shown)
    for name in COUNTED:
        before = [getattr(s, name) for s in warm[:third]]
        after = [getattr(s, name) for s in warm[third:]]
        assert statistics.median(after) <= statistics.median(before), f"{name}\n{shown}"
    half = samples[len(samples) // 2 :]
    rounds = half[-1].round - half[0].round
    for name in memory:
        once, a_round = ALLOWED[name]
        assert slope(half, name) * rounds < once + a_round * rounds, f"{name}\n{shown}"


def work_for(seconds: float, settings: ClientSettings, network: BadNetwork) -> list[Sample]:
    counts = array("d")  # numbers, not objects: these would be counted
    with LoopShell() as loop, network, ExitStack() as stack:
        workers = [
            Worker(BLOCKING, settings, SHARED, stack),
            Worker(loop, settings, WIDE, stack),
        ]
        for worker in workers:
            worker.wait_ready()
        began = time.monotonic()
        for number in range(ROUNDS_MOST):
            if number % 3 == 1:
                network.cut()
            for worker in workers:
                worker.round(number)
            if number % 3 == 0:
                counts.extend(count(loop, number, began))
            if time.monotonic() - began >= seconds and number >= ROUNDS_LEAST:
                break
    width = len(Sample._fields)
    return [Sample(*counts[at : at + width]) for at in range(0, len(counts), width)]


# -- tests ----------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[ClientSettings]:
    """Start an embedded server in a separate process; yield its settings."""
    topics = ("--topic", f"{SHARED}:1:3", "--topic", f"{WIDE}:2:3")
    with served(tmp_path, "--no-http", *topics) as (_, at):
        yield settings_for(at["masters"], **PATIENT)


@pytest.mark.slow
def test_nothing_grows_within_seconds(
    elsewhere: ClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = BadNetwork(monkeypatch, servers_of(elsewhere, WIDE), every_s=1)
    judge(work_for(6, elsewhere, network), "blocks", "heap_kib")


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 600)
def test_nothing_grows_in_a_soak_of_minutes(
    elsewhere: ClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = BadNetwork(monkeypatch, servers_of(elsewhere, WIDE), every_s=1)
    judge(work_for(MINUTES * 60, elsewhere, network), *ALLOWED)


@pytest.mark.real
@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 600)
def test_nothing_grows_in_a_soak_against_a_genuine_server(
    genuine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(genuine.masters, **PATIENT)
    network = BadNetwork(monkeypatch, servers_of(settings, WIDE), every_s=1)
    judge(work_for(MINUTES * 60, settings, network), *ALLOWED)
