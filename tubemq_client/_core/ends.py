"""Ends of a store's log: its first offset, and its stable or in-memory end.

TubeMQ has no RPC for this. A register at offset 0 answers with the offset clamped to the log's
minimum and with `maxOffset`, and which end that is depends on the query priority: 1 means the
fsynced end, 303 the end in memory (`docs/protocol/offsets.md`). The scratch registration is given
back at once and sends no heartbeat, since a heartbeat would overwrite its priority.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubemq_client import errors
from tubemq_client._core.identity import end_lookup_client, end_lookup_group
from tubemq_client._core.registration import (
    PRIORITY_MEMORY,
    PRIORITY_STABLE,
    Registration,
)
from tubemq_client.model import PartitionEnds, ReachableEnds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.master import TopicMetadata
    from tubemq_client._core.security import Access
    from tubemq_client.model import BrokerNode, Partition

__all__ = ["look_up_ends", "reachable_ends", "store_ends"]


def look_up_ends(
    partition: Partition, broker: BrokerNode, group: str, *, stable: bool, access: Access
) -> Conversation[PartitionEnds]:
    """Return the `PartitionEnds` of the partition's store: one register and one unregister."""
    scratch = Registration(
        broker,
        partition,
        end_lookup_group(group),
        end_lookup_client(group),
        priority=PRIORITY_STABLE if stable else PRIORITY_MEMORY,
        access=access,
    )
    registered = yield from scratch.register(0)
    try:
        yield from scratch.unregister()
    except errors.NotRegistered:
        pass  # a concurrent look-up with the same id has already given it back
    # Offsets below the minimum are removed, so an empty fsynced part ends at the minimum.
    return PartitionEnds(
        partition, registered.current, max(registered.max_offset, registered.current), stable
    )


def store_ends(
    partitions: Iterable[Partition],
    brokers: Mapping[int, BrokerNode],
    group: str,
    *,
    stable: bool,
    access: Access,
) -> Conversation[dict[Partition, PartitionEnds]]:
    """Return the ends of partitions with one look-up per store, whose partitions share one log."""
    by_store: dict[tuple[int, int], PartitionEnds] = {}
    result: dict[Partition, PartitionEnds] = {}
    for partition in partitions:
        ends = by_store.get(partition.store_key)
        if ends is None:
            broker = brokers[partition.broker_id]
            ends = yield from look_up_ends(partition, broker, group, stable=stable, access=access)
            by_store[partition.store_key] = ends
        result[partition] = PartitionEnds(partition, ends.min_offset, ends.max_offset, stable)
    return result


def reachable_ends(
    topic: TopicMetadata, group: str, *, stable: bool, access: Access
) -> Conversation[ReachableEnds]:
    """Return the ends of all partitions whose broker answers.

    A broker that is down, or does not publish the topic now, is asked once; masters continue to
    announce its partitions. Raises the last broker's error if none answers, and at once an error
    that waiting would not cure.
    """
    ends: dict[Partition, PartitionEnds] = {}
    unreachable: dict[Partition, str] = {}
    silent: dict[int, errors.TubeMQError] = {}
    for broker_id in sorted({partition.broker_id for partition in topic.partitions}):
        broker_partitions = sorted(p for p in topic.partitions if p.broker_id == broker_id)
        try:
            ends |= yield from store_ends(
                broker_partitions, topic.brokers, group, stable=stable, access=access
            )
        except errors.TubeMQError as error:
            if not _is_away(error, announced=any(topic.partitions[p] for p in broker_partitions)):
                raise
            silent[broker_id] = error
            unreachable |= dict.fromkeys(broker_partitions, f"{type(error).__name__}: {error}")
    if silent and not ends:
        raise next(reversed(silent.values()))
    return ReachableEnds(ends, unreachable)


def _is_away(error: errors.TubeMQError, *, announced: bool) -> bool:
    """Return whether `error` means that a broker does not serve now.

    `announced`: the master believes that it does.
    """
    unreachable = errors.NetworkError | errors.RemoteException
    refused = errors.ServiceUnavailable | errors.ServerFailure
    if isinstance(error, unreachable | refused):
        return error.retriable
    return not announced and isinstance(error, errors.ServerError)
