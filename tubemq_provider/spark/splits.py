"""Cuts ranges into splits, one per Spark task.

Pure arithmetic on offsets: no broker, no Spark. The splits of a range tile it: no overlap, no gap,
every boundary an offset. That is all a split needs for exactness, because the range
reader is exact at any boundary; several splits of one partition are read side by side.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

__all__ = ["Split", "split_ranges"]


@dataclass(frozen=True, slots=True)
class Split:
    """A sub-range for one task, and its number in the read (the order tasks start in)."""

    index: int
    range: Any


def split_ranges(
    ranges: Sequence[Any], *, max_records: int, min_partitions: int | None = None
) -> list[Split]:
    """Splits that tile `ranges`, longest first; empty ranges give none.

    No split has more than `max_records` index entries. `min_partitions` asks for at least this
    many splits; fewer come back only when there are fewer entries than that. Longest first shortens
    the tail of a job, and pieces of different partitions alternate, so that the tasks that run at
    the same time spread over brokers.
    """
    kept = [range_ for range_ in ranges if range_.entries]
    pieces = [-(-range_.entries // max_records) for range_ in kept]
    _raise_to(kept, pieces, min_partitions or 0)
    numbered = [
        (piece, number)
        for range_, count in zip(kept, pieces, strict=True)
        for number, piece in enumerate(_cut(range_, count))
    ]
    numbered.sort(key=lambda item: (-item[0].entries, item[1], item[0].partition))
    return [Split(index, piece) for index, (piece, _) in enumerate(numbered)]


def _raise_to(ranges: list[Any], pieces: list[int], wanted: int) -> None:
    """Give one more piece to whatever has the largest pieces until there are `wanted`."""
    heap = [(-range_.entries / pieces[i], i) for i, range_ in enumerate(ranges)]
    heapq.heapify(heap)
    missing = wanted - sum(pieces)
    while missing > 0 and heap:
        _, i = heapq.heappop(heap)
        if pieces[i] < ranges[i].entries:
            pieces[i] += 1
            missing -= 1
            heapq.heappush(heap, (-ranges[i].entries / pieces[i], i))


def _cut(range_: Any, count: int) -> list[Any]:
    """`count` pieces whose entries differ by at most one."""
    step = (range_.end - range_.start) // range_.entries
    bounds = [range_.start + step * (range_.entries * i // count) for i in range(count + 1)]
    return [type(range_)(range_.partition, start, end) for start, end in pairwise(bounds)]
