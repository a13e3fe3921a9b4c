"""Windows equal receipts, on the embedded server: shared stores, filters, many readers."""

from __future__ import annotations

import itertools

import pytest

from tests.ranges.suite import Feeder, Ledger, check_window, run_parallel, run_windows
from tubemq_client import ClientSettings, OffsetRange, Partition
from tubemq_client.embedded import EmbeddedTubeMQ

TOPICS = ["t_one", "t_two", "t_single"]


@pytest.mark.parametrize("seed", [1, 2])
def test_random_windows_equal_receipts_while_producing(
    cluster: EmbeddedTubeMQ, settings: ClientSettings, ledger: Ledger, seed: int
) -> None:
    feeders = [Feeder(settings, topic, ledger, seed) for topic in TOPICS]
    for feeder in feeders:
        feeder.produce(1_500)
        feeder.start()
    try:
        assert run_windows(settings, "windows", ledger, TOPICS, 100, seed) > 0
    finally:
        for feeder in feeders:
            feeder.stop()
    groups = [g for g in cluster.broker(1).groups() if g.startswith("windows")]
    assert len(groups) <= 65


def test_eight_windows_over_the_same_partitions_at_once(
    cluster: EmbeddedTubeMQ, settings: ClientSettings, ledger: Ledger
) -> None:
    Feeder(settings, "t_one", ledger, 3).produce(3_000)
    assert run_parallel(settings, "parallel", ledger, "t_one", readers=8, each=8) > 0
    groups = [g for g in cluster.broker(1).groups() if g.startswith("parallel")]
    assert len(groups) <= 65


def test_equal_partition_ids_on_two_brokers_are_two_partitions(
    cluster: EmbeddedTubeMQ, settings: ClientSettings, ledger: Ledger
) -> None:
    Feeder(settings, "t_one", ledger, 4).produce(900)
    seen = []
    for broker in (1, 2):
        partition = Partition(broker, "t_one", 0)
        end = ledger.settled_end(partition)
        seen.append(check_window(settings, "brokers", ledger, OffsetRange(partition, 0, end)))
    assert min(seen) > 0
    assert sum(seen) == sum(len(r) for p, r in ledger.rows.items() if p.partition_id == 0)


def test_offsets_are_exact_where_the_store_has_one_written_partition(
    cluster: EmbeddedTubeMQ, settings: ClientSettings, ledger: Ledger
) -> None:
    from tubemq_client import RangeReader

    Feeder(settings, "t_single", ledger, 5).produce(1_000)
    partition = Partition(1, "t_single", 0)
    end = ledger.settled_end(partition)
    with RangeReader(settings, group="exact") as reader:
        batches = list(reader.read(OffsetRange(partition, 280, end - 280)))
        got = [(m.offset, m.body) for batch in batches for m in batch.messages()]
        assert all(batch.exact for batch in batches)
        assert reader.stats.fence_probes == 0
    wanted = [(o, b) for o, b, _ in sorted(ledger.rows[partition]) if 280 <= o < end - 280]
    assert got == wanted


def test_a_split_range_delivers_what_the_whole_delivers(
    cluster: EmbeddedTubeMQ, settings: ClientSettings, ledger: Ledger
) -> None:
    Feeder(settings, "t_one", ledger, 6).produce(1_000)
    partition = Partition(1, "t_one", 1)
    end = ledger.settled_end(partition)
    cuts = [0, 28, end // 3 // 28 * 28, end // 2 // 28 * 28, end - 28, end]
    parts = [
        check_window(settings, "split", ledger, OffsetRange(partition, a, b))
        for a, b in itertools.pairwise(cuts)
    ]
    assert sum(parts) == check_window(settings, "split", ledger, OffsetRange(partition, 0, end))
