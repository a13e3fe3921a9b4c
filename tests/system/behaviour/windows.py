"""Windows against send receipts, the same on every server and with both APIs.

A producer's receipts give the index offset of every record. That ledger is the truth: a window
`[start, end)` of a partition must deliver exactly the records whose receipts lie in it, in offset
order. Nothing here depends on the server. Feeding always uses the sync producer; reading uses the
API under test.
"""

from __future__ import annotations

import itertools
import random
import threading
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.system.behaviour.shells import BLOCKING, Shell
from tubemq_client import ClientSettings, OffsetRange, Partition, Producer, Record
from tubemq_client.config import ClientConfig

STREAMS = ("alpha", "beta", "gamma", None)


@dataclass
class Ledger:
    """Receipts by partition, kept sorted by offset; safe to read while a producer appends."""

    rows: dict[Partition, list[tuple[int, bytes, str | None]]] = field(default_factory=dict)
    _first: dict[Partition, int] = field(default_factory=dict)
    _settled: dict[tuple[str, int, int], int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, partition: Partition, offset: int, body: bytes, stream: str | None) -> None:
        with self._lock:
            self.rows.setdefault(partition, []).append((offset, body, stream))
            self._first[partition] = min(offset, self._first.get(partition, offset))

    def wait_until_stable(self) -> None:
        """Everything sent so far has its receipt here: move the settled ends up."""
        with self._lock:
            for partition, rows in self.rows.items():
                key = (partition.topic, *partition.store_key)
                end = max(offset for offset, _, _ in rows) + 28
                self._settled[key] = max(self._settled.get(key, 0), end)

    def stable_end_of(self, partition: Partition) -> int:
        """No record of the partition's store below this offset is missing here. (One feeder a
        topic at a time: another's records in flight would be missing.)"""
        with self._lock:
            return self._settled.get((partition.topic, *partition.store_key), 0)

    def first(self, partition: Partition) -> int:
        """Return the lowest offset known for the partition's store; the topic may have been used
        before and its records below are not known here."""
        with self._lock:
            store = (partition.topic, partition.store_key)
            same = [n for p, n in self._first.items() if (p.topic, p.store_key) == store]
            return min(same, default=0)

    def expected(self, range_: OffsetRange, filters: tuple[str, ...]) -> list[bytes]:
        with self._lock:
            rows = sorted(self.rows.get(range_.partition, []))
        low = bisect_left(rows, (range_.start,))
        high = bisect_left(rows, (range_.end,))
        return [b for _, b, stream in rows[low:high] if not filters or stream in filters]


class Feeder:
    """Produces records with distinct bodies and books their receipts."""

    def __init__(self, settings: ClientSettings, topic: str, ledger: Ledger, seed: int) -> None:
        self._settings = settings
        self._topic = topic
        self._ledger = ledger
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.failure: BaseException | None = None

    def produce(self, count: int, partitions: list[Partition] | None = None) -> None:
        with Producer(self._settings) as producer:
            self._produce(producer, count, partitions or producer.partitions(self._topic))

    def _produce(self, producer: Producer, count: int, partitions: list[Partition]) -> None:
        records = [self._record(partitions) for _ in range(count)]
        receipts = producer.send_many(self._topic, records, in_flight=32)
        for record, receipt in zip(records, receipts, strict=True):
            self._ledger.add(receipt.partition, receipt.offset, record.body, record.stream_id)
        self._ledger.wait_until_stable()

    def _record(self, partitions: list[Partition]) -> Record:
        size = self._random.choice((10, 40, 300, 1_000))
        body = b"%s-%d-" % (self._topic.encode(), next(self._numbers)) + bytes(size)
        attributes = {"k": "v"} if self._random.random() < 0.3 else None
        return Record(
            body,
            attributes,
            self._random.choice(STREAMS),
            None,
            self._random.choice(partitions),
        )

    def start(self, batch: int = 50) -> None:
        """Keep producing in the background until `stop()`; at most 4 000 batches."""

        def run() -> None:
            try:
                with Producer(self._settings) as producer:
                    partitions = producer.partitions(self._topic)
                    for _ in range(4_000):
                        if self._stop.wait(0.01):
                            return
                        self._produce(producer, batch, partitions)
            except BaseException as error:  # noqa: BLE001 - raised again by stop()
                self.failure = error

        self._thread = threading.Thread(target=run, name=f"feeder-{self._topic}")
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(30)
        if self.failure is not None:
            raise self.failure


def random_window(
    rng: random.Random, partition: Partition, end: int, first: int = 0
) -> OffsetRange:
    """Return a range in `[first, end]`: mostly short, sometimes everything; multiples of 28."""
    slots = (end - first) // 28
    length = min(slots, rng.choice((0, 1, 3, 20, 200, 2_000, slots)))
    start = first + 28 * rng.randint(0, slots - length)
    return OffsetRange(partition, start, start + 28 * length)


def check_window(
    settings: ClientSettings,
    group: str,
    ledger: Ledger,
    range_: OffsetRange,
    filters: tuple[str, ...] = (),
    shell: Shell = BLOCKING,
) -> int:
    """Read the window and compare record for record. Returns the number of records."""
    with shell.RangeReader(settings, group=group, filters=filters, slot_seed=str(range_)) as reader:
        got = [m for batch in reader.read(range_) for m in batch.messages()]
        expected = ledger.expected(range_, filters)
        bodies = [m.body for m in got]
        assert bodies == expected, (
            f"{range_} filters={filters}: {len(bodies)} records, receipts say {len(expected)}; "
            f"extra {len(set(bodies) - set(expected))}, missing {len(set(expected) - set(bodies))}"
        )
        for message in got:
            if message.offset is not None:
                assert range_.start <= message.offset < range_.end
        assert reader.stats.records == len(got)
        return len(got)


def run_windows(
    settings: ClientSettings,
    group: str,
    ledger: Ledger,
    topics: list[str],
    count: int,
    seed: int,
    shell: Shell = BLOCKING,
) -> int:
    """`count` random windows, filtered and not; ends never beyond what receipts prove."""
    rng = random.Random(seed)
    records = 0
    with shell.Metadata(settings) as metadata:
        partitions = {t: sorted(metadata.topic(t).partitions) for t in topics}
    for _ in range(count):
        partition = rng.choice(partitions[rng.choice(topics)])
        end = ledger.stable_end_of(partition)
        filters = rng.choice(((), (), ("alpha",), ("alpha", "gamma")))
        window = random_window(rng, partition, end, ledger.first(partition))
        records += check_window(settings, group, ledger, window, filters, shell)
    return records


def run_parallel(
    settings: ClientSettings,
    group: str,
    ledger: Ledger,
    topic: str,
    *,
    readers: int,
    each: int,
    shell: Shell = BLOCKING,
) -> int:
    """`readers` threads reading random windows of the same partitions at once."""
    with ThreadPoolExecutor(readers) as pool:
        jobs = [
            pool.submit(run_windows, settings, group, ledger, [topic], each, 1_000 + n, shell)
            for n in range(readers)
        ]
        return sum(job.result(120) for job in jobs)


def settings_for(masters: str, **options: int) -> ClientSettings:
    return ClientConfig.parse({"masters": masters, **options}).settings()
