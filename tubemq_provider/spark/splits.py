"""Cutting of ranges into splits, one per Spark task.

Pure arithmetic on offsets: no broker, no Spark. The splits of a range tile it: no overlap, no gap,
every boundary an offset. That is all a split needs for exactness, because the range reader is exact
at any boundary; several splits of one partition are read in parallel.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class Split:
    """Sub-range for one task, and its number in the read (the order in which tasks start)."""

    index: int
    range: Any


def split_ranges(
    ranges: Sequence[Any], *, max_records: int, min_partitions: int | None = None
) -> list[Split]:
    """Return splits that tile `ranges`, longest first; empty ranges have none.

    No split has more than `max_records` index entries. `min_partitions` is the minimal number of
    splits, unless there are fewer entries than that. Longest first shortens the tail of a job, and
    splits of different partitions alternate, so that concurrent tasks use different brokers.
    """
    non_empty = [range_ for range_ in ranges if range_.entries]
    counts = [-(-range_.entries // max_records) for range_ in non_empty]
    _cut_further(non_empty, counts, min_partitions or 0)
    numbered = [
        (subrange, number)
        for range_, count in zip(non_empty, counts, strict=True)
        for number, subrange in enumerate(_cut(range_, count))
    ]
    numbered.sort(key=lambda item: (-item[0].entries, item[1], item[0].partition))
    return [Split(index, subrange) for index, (subrange, _) in enumerate(numbered)]


def _cut_further(ranges: list[Any], counts: list[int], total: int) -> None:
    """Cut the range with the largest sub-ranges once more until there are `total` of them."""
    heap = [(-range_.entries / counts[i], i) for i, range_ in enumerate(ranges)]
    heapq.heapify(heap)
    missing = total - sum(counts)
    while missing > 0 and heap:
        _, i = heapq.heappop(heap)
        if counts[i] < ranges[i].entries:
            counts[i] += 1
            missing -= 1
            heapq.heappush(heap, (-ranges[i].entries / counts[i], i))


def _cut(range_: Any, count: int) -> list[Any]:
    """Cut a range into `count` sub-ranges whose entries differ by at most one."""
    step = (range_.end - range_.start) // range_.entries
    bounds = [range_.start + step * (range_.entries * i // count) for i in range(count + 1)]
    return [type(range_)(range_.partition, start, end) for start, end in pairwise(bounds)]
