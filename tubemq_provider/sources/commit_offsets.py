"""Commit of a group's offsets at brokers, some of which may not answer.

One loop for every kind of source: it skips brokers that do not answer, and fails if none does. The
request, and the meaning of errors, belong to the kind of source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import TypeVar

__all__ = ["commit_at_brokers"]

PartitionT = TypeVar("PartitionT", bound=Hashable)
"""Partition, or queue."""


def commit_at_brokers(
    offsets: Mapping[PartitionT, int],
    tell: Callable[[PartitionT, int], None],
    *,
    available: Collection[PartitionT],
    absent: str,
    broker_of: Callable[[PartitionT], Hashable],
    unreachable: tuple[type[Exception], ...],
    refusals: tuple[type[Exception], ...] = (),
) -> dict[PartitionT, str]:
    """Call `tell` with the offset of each of `available`; return the partitions left out.

    The reason for partitions that are not in `available` is `absent`. After an error of
    `unreachable` its broker is skipped, because each of its partitions would wait again; an error
    of `refusals` affects one partition. Raises the last of them if every partition failed, and all
    other errors at once.
    """
    left_out: dict[PartitionT, str] = {}
    silent: dict[Hashable, Exception] = {}
    last_error: Exception | None = None
    for partition, offset in offsets.items():
        if partition not in available:
            left_out[partition] = absent
            continue
        error = silent.get(broker_of(partition))
        if error is None:
            try:
                tell(partition, offset)
                continue
            except unreachable as caught:
                silent[broker_of(partition)] = error = caught
            except refusals as caught:
                error = caught
        last_error = error
        left_out[partition] = str(error)
    if last_error is not None and len(left_out) == len(offsets):
        raise last_error
    return left_out
