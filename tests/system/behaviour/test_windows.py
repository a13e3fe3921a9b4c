"""Windows equal receipts: shared stores, filters, many readers, while producers run."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.system.behaviour.shells import BLOCKING, Shell
from tests.system.behaviour.sites import SHARED, SINGLE, WIDE, Site
from tests.system.behaviour.windows import Feeder, Ledger, check_window, run_parallel, run_windows
from tubemq_client import ClientSettings, OffsetRange, Partition
from tubemq_client._core.effects import Await, Conversation
from tubemq_client._core.registration import Registration
from tubemq_client._core.store_read import StoreReads
from tubemq_client._io.driver import BlockingDriver
from tubemq_client.embedded import EmbeddedTubeMQ

TOPICS = [SHARED, WIDE, SINGLE]


def test_random_windows_equal_receipts_while_producing(
    shell: Shell, window_site: Site, ledger: Ledger, group: str
) -> None:
    settings = window_site.settings
    feeders = [Feeder(settings, topic, ledger, 1) for topic in TOPICS]
    for feeder in feeders:
        feeder.produce(1_500)
        feeder.start()
    try:
        assert run_windows(settings, group, ledger, TOPICS, 50, 1, shell) > 0
    finally:
        for feeder in feeders:
            feeder.stop()


def test_eight_windows_over_the_same_partitions_at_once(
    shell: Shell, window_site: Site, ledger: Ledger, group: str
) -> None:
    settings = window_site.settings
    Feeder(settings, SHARED, ledger, 3).produce(3_000)
    records = run_parallel(settings, group, ledger, SHARED, readers=8, each=8, shell=shell)
    assert records > 0


def test_equal_partition_ids_on_several_brokers_are_several_partitions(
    shell: Shell, window_site: Site, ledger: Ledger, group: str
) -> None:
    Feeder(window_site.settings, SHARED, ledger, 4).produce(900)
    seen = []
    for broker in window_site.brokers:
        partition = Partition(broker, SHARED, 0)
        range_ = OffsetRange(partition, ledger.first(partition), ledger.stable_end_of(partition))
        seen.append(check_window(window_site.settings, group, ledger, range_, (), shell))
    assert min(seen) > 0
    assert sum(seen) == sum(len(r) for p, r in ledger.rows.items() if p.partition_id == 0)


def test_offsets_are_exact_where_the_store_has_one_written_partition(
    shell: Shell, window_site: Site, ledger: Ledger, group: str
) -> None:
    Feeder(window_site.settings, SINGLE, ledger, 5).produce(1_000)
    partition = window_site.partition(SINGLE)
    start, end = ledger.first(partition) + 280, ledger.stable_end_of(partition) - 280
    with shell.RangeReader(window_site.settings, group=group) as reader:
        batches = list(reader.read(OffsetRange(partition, start, end)))
        got = [(m.offset, m.body) for batch in batches for m in batch.messages()]
        assert all(batch.exact for batch in batches)
        assert reader.stats.fence_probes == 0
    assert got == [(o, b) for o, b, _ in sorted(ledger.rows[partition]) if start <= o < end]


def test_a_split_range_delivers_what_the_whole_delivers(
    shell: Shell, window_site: Site, ledger: Ledger, group: str
) -> None:
    Feeder(window_site.settings, SHARED, ledger, 6).produce(1_000)
    partition = window_site.partition(SHARED, 1)
    low, end = ledger.first(partition), ledger.stable_end_of(partition)
    third, half = ((end - low) // n // 28 * 28 for n in (3, 2))
    cuts = [low, low + 28, low + third, low + half, end - 28, end]

    def records(start: int, stop: int) -> int:
        window = OffsetRange(partition, start, stop)
        return check_window(window_site.settings, group, ledger, window, (), shell)

    assert sum(itertools.starmap(records, itertools.pairwise(cuts))) == records(low, end)


def test_stores_that_nobody_writes_to_are_read_as_a_whole(
    shell: Shell, window_site: Site, ledger: Ledger, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: list[OffsetRange] = []
    read = StoreReads.read

    def noting(reads: StoreReads, ranges: list[OffsetRange]) -> Conversation[Any]:
        found = yield from read(reads, ranges)
        whole.extend(found)
        return found

    monkeypatch.setattr(StoreReads, "read", noting)
    feeder, settings = Feeder(window_site.settings, WIDE, ledger, 8), window_site.settings
    feeder.produce(60)
    for count in (1, 20, 200):  # from memory, and what is flushed meanwhile from files
        starts = {partition: ledger.stable_end_of(partition) for partition in ledger.rows}
        feeder.produce(count)
        ranges = [OffsetRange(p, starts[p], ledger.stable_end_of(p)) for p in sorted(starts)]
        with shell.RangeReader(settings, group=group, slot_seed=str(count)) as reader:
            reader.expect(ranges)
            for range_ in ranges:
                got = [m.body for batch in reader.read(range_) for m in batch.messages()]
                assert got == ledger.expected(range_, ())
    assert whole or shell is not BLOCKING


def test_readers_share_a_bounded_number_of_groups(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    ledger: Ledger,
    group: str,
) -> None:
    """Brokers book every group for weeks, so windows must not invent names."""
    Feeder(settings, SHARED, ledger, 7).produce(400)
    by_hand.broker(1).flush()
    assert run_windows(settings, group, ledger, [SHARED], 50, 2, shell) > 0
    groups = [g for g in by_hand.broker(1).groups() if g.startswith(f"{group}.")]
    assert 0 < len(groups) <= 65


def test_fetches_of_one_connection_are_served_in_turn(
    window_site: Site, ledger: Ledger, group: str
) -> None:
    """A reader with two fetches in flight relies on this: each moves the position past the batch of
    the one before, however many the broker has not started yet."""
    Feeder(window_site.settings, SINGLE, ledger, 7).produce(6_000)
    partition = window_site.partition(SINGLE)
    with BLOCKING.Metadata(window_site.settings) as metadata:
        broker = metadata.topic(SINGLE).brokers[partition.broker_id]
    lease = Registration(broker, partition, group, f"{group}_127.0.0.1-1-1-Turn-py")
    first = ledger.first(partition)

    def fetch_all_at_once() -> Conversation[list[Any]]:
        yield from lease.register(first)
        tickets, replies = [], []
        for number in range(60):
            ticket = yield from lease.post_fetch(consumed=number > 0)
            tickets.append(ticket)
        for ticket in tickets:
            reply = yield Await(ticket)
            replies.append(reply)
        yield from lease.unregister()
        return replies

    driver = BlockingDriver(window_site.settings)
    try:
        replies = driver.run(fetch_all_at_once())
    finally:
        driver.close()
    expected = first
    for reply in (reply for reply in replies if reply.success):
        assert reply.currOffset == expected
        expected += 28 * len(reply.messages)
    assert expected >= first + 28 * 2_000
    assert {reply.errCode for reply in replies} <= {200, 404}
