"""Reads of ranges whose data retention removes before its index, before and while they are read.

A broker skips such entries without reporting it. Whatever it removes and when, each receipt of the
range is delivered or lies in a recorded gap (`gap_policy="skip"`), or the read fails.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from tubemq_client import OffsetRange, Partition, errors
from tubemq_client._core.batch import DecodePolicy
from tubemq_client._core.identity import ClientIds, ReaderPool
from tubemq_client._core.range_read import RangeRead
from tubemq_client._core.read_stats import ReadPolicy, ReadStats
from tubemq_client._core.retention import FinishedRange, SharedRetentionChecks
from tubemq_client._wire import payload
from tubemq_client.embedded import ReadLimits, Switches, TopicSpec
from tubemq_client.embedded.storage import Store
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import TracedRequest

TOPIC = "orders"
READS = ReadLimits(
    first_fetch_bytes=1500,
    fetch_bytes=2500,
    memory_scan=(12, 20),
    file_scan=(10, 25),
    segment_records=64,
)
STREAMS = ("a", "b", "")
GET = "get messages"


class World:
    """One store of a topic, filled at random; `rows` are its receipts."""

    def __init__(self, chance: random.Random, partitions: int) -> None:
        self.chance = chance
        switches = Switches(
            reads=READS, flush_interval_ms=None, unflushed_records=None, segment_bytes=3000
        )
        self.memory = MemoryTubeMQ(topics=[TopicSpec(TOPIC, 1, partitions)], switches=switches)
        self.partitions = partitions
        self.store: Store = self.memory.broker(1).storage.open(TOPIC, 0)
        self.rows: list[tuple[int, int, str, bytes]] = []
        self._numbers = itertools.count()
        self.ids = ClientIds("127.0.0.1", 1, 1_700_000_000_000, itertools.count(1))

    def fill(self, records: int) -> None:
        for _ in range(records):
            partition, stream = self.chance.randrange(self.partitions), self.chance.choice(STREAMS)
            body = b"%d." % next(self._numbers) + b"x" * self.chance.choice((0, 40, 300, 900))
            data, flag = payload.encode_payload(body, stream_id=stream or None)
            code = payload.java_hash(stream) if stream else -1
            receipt = self.store.append(
                partition,
                data,
                time_ms=0,
                checksum=payload.checksum(data),
                flag=flag,
                key_code=code,
                sent_addr=0,
            )
            self.rows.append((receipt.offset, partition, stream, body))

    @property
    def has_lost(self) -> bool:
        return bool(self.store.log.min_offset or self.store.log.min_data_offset)

    @property
    def end(self) -> int:
        return self.store.log.end

    def expire(self) -> None:
        """Let retention remove data, index or both, up to a random position."""
        to = self.chance.randrange(0, self.store.log.stable_end + 28, 28)
        kind = self.chance.choice(("data", "data", "data", "index", "both"))
        if kind != "index":
            self.store.expire_data_to(to)
        if kind != "data":
            self.store.expire_index_to(to if kind == "both" else to // 2)

    def read(
        self,
        range_: OffsetRange,
        filters: frozenset[str],
        policy: str,
        stats: ReadStats,
        proofs: SharedRetentionChecks | None = None,
    ) -> RangeRead:
        return RangeRead(
            range_,
            self.memory.node(1),
            pool=ReaderPool("group", 4),
            ids=self.ids,
            decode=DecodePolicy("fail", None, filters),
            policy=ReadPolicy(policy),
            stats=stats,
            proofs=proofs,
        )

    def expected(self, range_: OffsetRange, filters: frozenset[str]) -> list[tuple[int, bytes]]:
        return [
            (offset, body)
            for offset, partition, stream, body in self.rows
            if partition == range_.partition.partition_id
            and range_.start <= offset < range_.end
            and (not filters or stream in filters)
        ]


def bodies(batches: Iterator[object]) -> list[bytes]:
    return [message.body for batch in batches for message in batch.messages()]  # type: ignore[attr-defined]


def outside(rows: list[tuple[int, bytes]], stats: ReadStats) -> list[bytes]:
    """Return the rows outside all gaps."""
    gaps = [(gap.start, gap.end) for gap in stats.gaps]
    return [body for at, body in rows if not any(low <= at < high for low, high in gaps)]


def play(seed: int, policy: str) -> bool:
    """Run one random history; return whether records were lost."""
    chance = random.Random(seed)
    world = World(chance, partitions=chance.choice((1, 1, 2, 3)))
    world.fill(chance.choice((5, 40, 200)))
    if chance.random() < 0.8:
        world.store.flush()
    world.fill(chance.choice((0, 0, 10)))
    if chance.random() < 0.7:
        world.expire()
    if chance.random() < 0.5:  # while it is read, after some fetch or other
        left = iter(range(chance.randrange(40), 0, -1))

        def tamper(traced: TracedRequest, reply: object) -> object:
            if traced.method == GET and next(left, None) == 1:
                world.expire()
            return reply

        world.memory.tamper = tamper
    start = chance.randrange(0, world.end, 28)
    end = chance.randrange(start + 28, world.end + 28, 28)
    range_ = OffsetRange(Partition(1, TOPIC, chance.randrange(world.partitions)), start, end)
    filters = frozenset(chance.choice(((), (), ("a",), ("a", "b"))))
    stats = ReadStats()
    read, driver = world.read(range_, filters, policy, stats), world.memory.driver()
    rows = world.expected(range_, filters)
    try:
        got = bodies(driver.stream(read.conversation(), read.release()))
    except errors.DataLoss as error:
        if policy == "fail" and error.available > error.start >= start and world.has_lost:
            return True
        raise
    assert got == outside(rows, stats), (seed, range_, filters, stats.gaps)
    assert all(low.end < high.start for low, high in itertools.pairwise(stats.gaps))
    if world.memory.tamper is None and stats.gaps:
        # Retention was idle: the gap ends at the first readable entry.
        (gap,), log = stats.gaps, world.store.log
        listed = range(log.min_offset, end, 28)
        readable = (at for at in listed if log.data_offset_at(at) >= log.min_data_offset)
        assert (gap.start, gap.end) == (start, next(readable, end))
    return bool(stats.gaps)


@pytest.mark.parametrize("policy", ["fail", "skip"])
@pytest.mark.parametrize("lot", range(4))
def test_each_receipt_is_a_row_or_in_a_gap_whatever_retention_removes(
    lot: int, policy: str
) -> None:
    lost = sum(play(seed, policy) for seed in range(lot * 100, lot * 100 + 100))
    assert 10 < lost < 95


def play_together(seed: int) -> bool:
    """Read all partitions of a store with one reader; return whether records were lost."""
    chance = random.Random(seed)
    world = World(chance, partitions=chance.choice((1, 2, 3, 5)))
    world.fill(chance.choice((5, 40, 200)))
    if chance.random() < 0.8:
        world.store.flush()
    world.fill(chance.choice((0, 0, 10)))
    if chance.random() < 0.4:
        world.expire()
    expire_at, break_at = chance.choice((0, 0, chance.randrange(60))), chance.randrange(80)
    steps = itertools.count(1)

    def tamper(traced: TracedRequest, reply: object) -> object:
        step = next(steps)
        if step == expire_at:
            world.expire()
        if step == break_at:
            raise errors.ConnectionLost("in the middle")
        return reply

    world.memory.tamper = tamper
    start = chance.choice((0, chance.randrange(0, world.end, 28)))
    end = chance.choice((world.end, chance.randrange(start + 28, world.end + 28, 28)))
    filters = frozenset(chance.choice(((), (), ("a",), ("a", "b"))))
    numbers = chance.sample(range(world.partitions), chance.randint(1, world.partitions))
    if chance.random() < 0.5:
        numbers = list(range(world.partitions))
    ranges = [OffsetRange(Partition(1, TOPIC, number), start, end) for number in numbers]
    if chance.random() < 0.3:  # one with another end, or another start
        ranges[0] = OffsetRange(ranges[0].partition, start, chance.randrange(start, end + 28, 28))
    proofs, driver = SharedRetentionChecks(), world.memory.driver()
    proofs.expect(ranges)
    twice = chance.random() < 0.2
    missed = []
    for range_ in ranges[:1] * twice + ranges:
        read = world.read(range_, filters, "fail", ReadStats(), proofs)
        try:
            got = bodies(driver.stream(read.conversation(), read.release()))
        except errors.DataLoss as error:
            if error.available > error.start >= start and world.has_lost:
                return True
            raise
        if got != [body for _, body in world.expected(range_, filters)]:
            missed.append(range_)
    assert not missed, (seed, ranges)
    return False


@pytest.mark.parametrize("lot", range(4))
def test_ranges_of_a_store_read_in_sequence_report_every_loss(lot: int) -> None:
    lost = sum(play_together(seed) for seed in range(lot * 60, lot * 60 + 60))
    assert 5 < lost < 55


@pytest.mark.parametrize(
    ("filters", "partitions", "asked"),
    [
        ((), 3, 0),  # as many records as entries
        (("a", "b"), 3, 1),
        ((), 2, 1),  # not all of the store
    ],
)
def test_partitions_of_a_store_share_one_retention_check(
    filters: tuple[str, ...], partitions: int, asked: int
) -> None:
    world = World(random.Random(1), partitions=3)
    world.fill(120)
    world.store.flush()
    ranges = [
        OffsetRange(Partition(1, TOPIC, number), 28 * 60, 28 * 120) for number in range(partitions)
    ]
    driver, proofs = world.memory.driver(), SharedRetentionChecks()
    proofs.expect(ranges)
    for range_ in ranges:
        read = world.read(range_, frozenset(filters), "fail", ReadStats(), proofs)
        got = bodies(driver.stream(read.conversation(), read.release()))
        assert got == [body for _, body in world.expected(range_, frozenset(filters))]
    probes = [
        step.method
        for step in driver.trace
        if isinstance(step, TracedRequest) and ".p" in step.request.groupName
    ]
    assert probes == ["register partition", GET, "commit offset", "register partition"] * asked


def range_of(number: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(Partition(1, TOPIC, number), 28 * start, 28 * end)


def test_full_counts_prove_nothing_for_ranges_with_other_ends() -> None:
    proofs = SharedRetentionChecks()
    one, other = range_of(0, 0, 20), range_of(1, 10, 30)
    proofs.expect([one, other])
    assert proofs.to_prove(FinishedRange(one, 0, 15), filtered=False) == []
    assert len(proofs.to_prove(FinishedRange(other, 280, 5), filtered=False)) == 2


def test_a_range_read_twice_must_be_complete_each_time() -> None:
    proofs = SharedRetentionChecks()
    one, other = range_of(0, 0, 20), range_of(1, 0, 20)
    proofs.expect([one, other])
    for records in (9, 10):
        assert proofs.to_prove(FinishedRange(one, 0, records), filtered=False) == []
    assert len(proofs.to_prove(FinishedRange(other, 0, 10), filtered=False)) == 2
    assert len(proofs.to_prove(FinishedRange(other, 0, 10), filtered=False)) == 2, (
        "nobody was asked yet"
    )
    proofs.asked(one.partition)
    assert len(proofs.to_prove(FinishedRange(other, 0, 10), filtered=False)) == 1, (
        "all else was proven"
    )


def test_the_error_of_a_shared_proof_names_the_range_that_misses_records() -> None:
    world = World(random.Random(2), partitions=2)
    world.fill(100)
    world.store.expire_data_to(28 * 70)
    first = OffsetRange(Partition(1, TOPIC, 0), 28 * 60, 28 * 100)
    second = OffsetRange(Partition(1, TOPIC, 1), 28 * 80, 28 * 100)
    driver, proofs = world.memory.driver(), SharedRetentionChecks()
    proofs.expect([first, second])
    read = world.read(first, frozenset(), "fail", ReadStats(), proofs)
    bodies(driver.stream(read.conversation(), read.release()))
    read = world.read(second, frozenset(), "fail", ReadStats(), proofs)
    with pytest.raises(errors.DataLoss, match=r"\[1680, 1960\) of partition 1:0"):
        bodies(driver.stream(read.conversation(), read.release()))


def test_without_signs_of_a_gap_the_broker_is_asked_after_the_last_batch_only() -> None:
    world = World(random.Random(1), partitions=3)
    world.fill(120)
    world.store.flush()
    range_ = OffsetRange(Partition(1, TOPIC, 1), 28 * 60, 28 * 120)
    driver = world.memory.driver()
    read = world.read(range_, frozenset(), "fail", ReadStats())
    assert bodies(driver.stream(read.conversation(), read.release()))
    probes = [
        step.method
        for step in driver.trace
        if isinstance(step, TracedRequest) and ".p" in step.request.groupName
    ]
    assert probes == ["register partition", GET, "commit offset", "register partition"]


def test_complete_batches_cost_no_additional_request() -> None:
    world = World(random.Random(1), partitions=1)
    world.fill(120)
    world.store.flush()
    driver = world.memory.driver()
    read = world.read(
        OffsetRange(Partition(1, TOPIC, 0), 0, world.end), frozenset(), "fail", ReadStats()
    )
    assert len(bodies(driver.stream(read.conversation(), read.release()))) == 120
    assert not any(
        ".p" in step.request.groupName for step in driver.trace if isinstance(step, TracedRequest)
    )


def test_the_error_names_the_first_readable_offset() -> None:
    world = World(random.Random(2), partitions=3)
    world.fill(100)
    world.store.expire_data_to(28 * 70)
    range_ = OffsetRange(Partition(1, TOPIC, 0), 28 * 10, 28 * 100)
    driver = world.memory.driver()
    read = world.read(range_, frozenset(), "fail", ReadStats())
    with pytest.raises(errors.DataLoss, match=r"\[280, 1960\)") as failure:
        bodies(driver.stream(read.conversation(), read.release()))
    assert (failure.value.start, failure.value.available) == (280, 1960)


def test_probing_missing_partitions_leaves_no_lease() -> None:
    world = World(random.Random(3), partitions=1)
    world.fill(30)
    world.store.expire_data_to(28 * 20)
    driver = world.memory.driver()
    range_ = OffsetRange(Partition(1, TOPIC, 0), 0, world.end)
    for _ in range(8):  # twice as often as the pool has groups
        read = world.read(range_, frozenset(), "fail", ReadStats())
        assert driver.run(read.readable_from()) == 28 * 20
    assert driver.slept == []
