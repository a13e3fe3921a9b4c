"""Lag: how much of a topic lies between a position and its ends.

Pure arithmetic over positions and ends; who looked them up, and when, is the caller's affair. All
partitions of a store share one log, so lag is counted per *store*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tubemq_client.model import INDEX_ENTRY_BYTES, Partition, PartitionEnds

__all__ = ["Lag", "lag_between", "regressed"]


@dataclass(frozen=True)
class Lag:
    """Index entries between positions and ends: an upper bound on records.

    `total` is the sum over stores; `stores` has it per `"<broker_id>/<store_id>"`. An entry may
    belong to any partition of the store, and filters make the real number smaller still.
    """

    total: int
    stores: Mapping[str, int] = field(default_factory=dict)


def lag_between(
    ends: Mapping[Partition, PartitionEnds], positions: Mapping[Partition, int | None]
) -> Lag:
    """Σ over stores of max over the store's partitions of (end - position) / 28.

    A partition without a position (missing or None) counts from the store's minimum offset. A
    position below the minimum counts what retention removed as well, so that a loss is not taken
    for silence. A position beyond the end counts as zero: a regression is not a lag.
    """
    stores: dict[str, int] = {}
    for partition, found in ends.items():
        position = positions.get(partition)
        start = found.min_offset if position is None else position
        entries = max(0, found.max_offset - start) // INDEX_ENTRY_BYTES
        key = f"{partition.broker_id}/{partition.store_id}"
        stores[key] = max(stores.get(key, 0), entries)
    return Lag(sum(stores.values()), dict(sorted(stores.items())))


def regressed(
    ends: Mapping[Partition, PartitionEnds], positions: Mapping[Partition, int | None]
) -> dict[str, list[int]]:
    """``{"1:0": [position, end]}`` of the partitions whose log ends before the position.

    No lag, and yet nothing to wait for: the log is not the one in which the position was taken.
    """
    return {
        partition.key: [offset, found.max_offset]
        for partition, found in sorted(ends.items())
        if (offset := positions.get(partition)) is not None and found.max_offset < offset
    }
