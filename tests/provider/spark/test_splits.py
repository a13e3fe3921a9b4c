"""Splits tile their ranges exactly, for all sizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tubemq_client.model import INDEX_ENTRY_BYTES, OffsetRange, Partition
from tubemq_provider.spark.splits import split_ranges


def range_of(partition_id: int, start: int, entries: int, broker: int = 1) -> OffsetRange:
    first = start * INDEX_ENTRY_BYTES
    partition = Partition(broker, "demo", partition_id)
    return OffsetRange(partition, first, first + entries * INDEX_ENTRY_BYTES)


plans = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(0, 5_000)), min_size=0, max_size=8
).map(lambda items: [range_of(i, start, size) for i, (start, size) in enumerate(items)])


@given(plans, st.integers(20, 10_000), st.none() | st.integers(1, 200))
def test_splits_tile_every_range_longest_first(
    ranges: list[OffsetRange], max_records: int, min_partitions: int | None
) -> None:
    splits = split_ranges(ranges, max_records=max_records, min_partitions=min_partitions)

    assert [split.index for split in splits] == list(range(len(splits)))
    lengths = [split.range.entries for split in splits]
    assert lengths == sorted(lengths, reverse=True)
    assert all(0 < length <= max_records for length in lengths)
    for range_ in ranges:
        pieces = sorted(
            (s.range for s in splits if s.range.partition == range_.partition),
            key=lambda subrange: subrange.start,
        )
        edges = [range_.start, *(subrange.end for subrange in pieces)]
        assert [subrange.start for subrange in pieces] == edges[:-1]
        assert edges[-1] == range_.end
    total = sum(range_.entries for range_ in ranges)
    assert len(splits) >= min(min_partitions or 0, total)


def test_an_empty_plan_has_no_split() -> None:
    assert split_ranges([range_of(0, 5, 0)], max_records=10, min_partitions=4) == []


def test_extra_splits_go_where_the_sub_ranges_are_largest() -> None:
    splits = split_ranges(
        [range_of(0, 0, 900), range_of(1, 0, 100)], max_records=10_000, min_partitions=10
    )
    by_partition = [split.range.partition.partition_id for split in splits]
    assert (by_partition.count(0), by_partition.count(1)) == (9, 1)


def test_equal_sub_ranges_of_several_brokers_alternate() -> None:
    ranges = [range_of(0, 0, 30, broker=1), range_of(0, 0, 30, broker=2)]
    splits = split_ranges(ranges, max_records=10)
    assert [split.range.partition.broker_id for split in splits] == [1, 2, 1, 2, 1, 2]
