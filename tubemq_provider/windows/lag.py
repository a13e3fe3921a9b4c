"""Lag: how much of a topic lies between a position and its ends.

Pure arithmetic over positions and ends; the caller looks them up. All
partitions of a store share one log, so lag is counted per *store*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tubemq_provider.windows.spaces import Ends, OffsetSpace, reach_of

__all__ = ["Lag", "lag_between", "regressed"]


@dataclass(frozen=True)
class Lag:
    """Entries between positions and ends: an upper bound on records.

    `total` is the sum over logs; `stores` has it per log (a store, for TubeMQ). An entry may
    belong to any partition of the log, and filters make the real number smaller still.
    """

    total: int
    stores: Mapping[str, int] = field(default_factory=dict)


def lag_between(
    ends: Mapping[Any, Ends], positions: Mapping[Any, int | None], space: OffsetSpace
) -> Lag:
    """Σ over stores of max over the store's partitions of (end - position), in entries.

    A partition without a position (missing or None) counts from the store's minimum offset. A
    position below the minimum counts what retention removed as well, so that a loss is not taken
    for silence. A position beyond the end counts as zero: a regression is not a lag.
    """
    stores: dict[str, int] = {}
    for partition, found in ends.items():
        position = positions.get(partition)
        start = found.min_offset if position is None else position
        entries = space.entries(min(start, found.max_offset), found.max_offset)
        key = space.log_of(partition.key)
        stores[key] = max(stores.get(key, 0), entries)
    return Lag(sum(stores.values()), dict(sorted(stores.items())))


def regressed(
    ends: Mapping[Any, Ends], positions: Mapping[Any, int | None]
) -> dict[str, list[int]]:
    """``{"1:0": [position, end]}`` of the partitions whose log ends before the position.

    No lag, and yet nothing to wait for: the log is not the one in which the position was taken.
    """
    return {
        partition.key: [offset, reach_of(found)]
        for partition, found in sorted(ends.items())
        if (offset := positions.get(partition)) is not None and reach_of(found) < offset
    }
