"""Lag of a group: index entries between its position and the ends of the topic's logs.

Pure arithmetic over positions and ends that the caller has looked up. All partitions of a store
share one log, so lag is counted per *store*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tubemq_provider.windows.spaces import Ends, OffsetSpace, reach_of

__all__ = ["Lag", "lag_between", "regressed", "with_ends"]


@dataclass(frozen=True)
class Lag:
    """Index entries between positions and ends: an upper bound on records.

    `total` is the sum over logs; `stores` has the value per log (a store, for TubeMQ). An entry may
    belong to any partition of the log, and filters make the number of records smaller still.
    """

    total: int
    stores: Mapping[str, int] = field(default_factory=dict)


def lag_between(
    ends: Mapping[Any, Ends], positions: Mapping[Any, int | None], space: OffsetSpace
) -> Lag:
    """Return the sum over stores of max(end - position) over the store's partitions, in entries.

    A partition without a position (missing or None) counts from the store's minimum offset. A
    position below the minimum also counts what retention removed, so that lost records show as lag.
    A position beyond the end counts as zero: a regression is not a lag.
    """
    stores: dict[str, int] = {}
    for partition, log in ends.items():
        position = positions.get(partition)
        start = log.min_offset if position is None else position
        entries = space.entries(min(start, log.max_offset), log.max_offset)
        key = space.log_of(partition.key)
        stores[key] = max(stores.get(key, 0), entries)
    return Lag(sum(stores.values()), dict(sorted(stores.items())))


def regressed(
    ends: Mapping[Any, Ends], positions: Mapping[Any, int | None]
) -> dict[str, list[int]]:
    """Return ``{"1:0": [position, end]}`` for partitions whose log ends before the position.

    Their lag is zero, but the group is not up to date: the log was truncated or recreated.
    """
    return {
        partition.key: [offset, reach_of(log)]
        for partition, log in sorted(ends.items())
        if (offset := positions.get(partition)) is not None and reach_of(log) < offset
    }


def with_ends(
    position: Mapping[str, int], ends: Mapping[Any, Ends], space: OffsetSpace
) -> list[dict[str, object]]:
    """Return a row for each partition that a group has or the topic offers; `lag` in entries."""
    by_key = {partition.key: (partition, end) for partition, end in ends.items()}
    rows: list[dict[str, object]] = []
    for key in space.ordered({*position, *by_key}):
        row: dict[str, object] = {"partition": key, "next": position.get(key, "none")}
        if key in by_key:
            partition, end = by_key[key]
            lag = lag_between({partition: end}, {partition: position.get(key)}, space).total
            row |= {"end": end.max_offset, "lag": lag}
        elif ends:
            row |= {"end": "unknown", "lag": "unknown"}
        rows.append(row)
    return rows
