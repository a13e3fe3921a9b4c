"""Offsets of a stream's next batch: limits, partitions that come and go, logs that are shorter."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_client.errors import DataLoss, LogTruncated
from tubemq_client.model import Partition, PartitionEnds
from tubemq_provider.spark.stream_offsets import (
    advance,
    batch_start,
    offsets_document,
    ranges_between,
    read_document,
)
from tubemq_provider.windows.errors import DocumentError

PARTITIONS = [Partition(broker, topic, 0) for broker in (1, 2) for topic in ("a", "b")]
ENTRIES = st.integers(0, 10_000)


def ends(known: dict[Partition, int], low: int = 0) -> dict[Partition, PartitionEnds]:
    return {p: PartitionEnds(p, low, high, stable=True) for p, high in known.items()}


def test_documents_are_read_back_and_sorted() -> None:
    offsets = {PARTITIONS[2]: 28, PARTITIONS[0]: 56, PARTITIONS[1]: 0}
    document = offsets_document(offsets)
    assert json.dumps(document) == (
        '{"offsets": {"a": {"1:0": 56, "2:0": 28}, "b": {"1:0": 0}}, "v": 1}'
    )
    assert read_document(json.loads(json.dumps(document))) == offsets


@pytest.mark.parametrize("document", [{}, {"v": 2}, {"v": 1}, {"v": 1, "offsets": {"a": {"x": 1}}}])
def test_a_checkpoint_of_something_else_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(DocumentError, match="checkpoint"):
        read_document(document)


@given(
    backlog=st.dictionaries(st.sampled_from(PARTITIONS), st.tuples(ENTRIES, ENTRIES), min_size=1),
    limit=st.integers(1, 20_000),
)
def test_batches_tile_the_logs_and_keep_the_limit(
    backlog: dict[Partition, tuple[int, int]], limit: int
) -> None:
    start = {p: 28 * first for p, (first, _) in backlog.items()}
    there = ends({p: 28 * (first + more) for p, (first, more) in backlog.items()})
    at, batches = start, 0
    while True:
        after = advance(at, there, limit=limit).offsets
        ranges = ranges_between(at, after)
        if not ranges:
            break
        batches += 1
        assert sum(range_.entries for range_ in ranges) <= limit + len(PARTITIONS)
        assert all(after[p] >= at[p] and after[p] % 28 == 0 for p in at)
        at = after
        if batches > 50:  # many small batches prove no more
            return
    assert at == {p: found.max_offset for p, found in there.items()}


def test_a_new_partition_is_added_by_one_batch_and_read_by_the_next() -> None:
    old, new = PARTITIONS[0], PARTITIONS[2]
    start = {old: 28}
    there = {**ends({old: 56}), **ends({new: 280}, low=84)}
    after = advance(start, there).offsets
    assert after == {old: 56, new: 84}
    assert [range_.partition for range_ in ranges_between(start, after)] == [old]
    (following,) = ranges_between(after, advance(after, there).offsets)
    assert (following.partition, following.start, following.end) == (new, 84, 280)


def test_an_available_now_query_reads_only_what_exists_at_its_start() -> None:
    partition = PARTITIONS[0]
    found = advance({partition: 28}, ends({partition: 280}), cap={partition: 84})
    assert found.offsets == {partition: 84}
    late = advance({partition: 112}, ends({partition: 280}), cap={partition: 84})
    assert late.offsets == {partition: 112}


def test_the_end_of_a_first_batch_says_where_the_batch_began() -> None:
    first, second = PARTITIONS[:2]
    end = offsets_document({first: 280, second: 28}, begin={first: 56})
    assert read_document(end) == {first: 280, second: 28}
    anew = offsets_document({first: 140, second: 0})  # the options resolved now
    assert batch_start(json.loads(json.dumps(end)), anew) == {first: 56}
    older = offsets_document({first: 280, second: 28})
    assert batch_start(older, anew) == {first: 140, second: 0}


def test_a_partition_that_vanished_or_shrank_is_data_loss_unless_tolerated() -> None:
    kept, gone = PARTITIONS[0], PARTITIONS[1]
    start = {kept: 280, gone: 280}
    with pytest.raises(DataLoss, match="failOnDataLoss=false"):
        advance(start, ends({kept: 280}))
    with pytest.raises(LogTruncated, match="ends at 28, and the stream is at 280"):
        advance(start, ends({kept: 280, gone: 28}))
    found = advance(start, ends({kept: 308}), fail_on_data_loss=False)
    assert found.offsets == {kept: 308, gone: 280}
    (warning,) = found.warnings
    assert "is gone" in warning
    assert "failOnDataLoss" not in warning
