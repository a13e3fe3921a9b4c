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
from tubemq_client._core.pipeline import together
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
    """Return the ends of partitions with one look-up per store, whose partitions share one log.

    Stores are asked at the same time, those of a broker once its first one has answered.
    """
    selected = list(partitions)
    asked: dict[int, dict[tuple[int, int], Partition]] = {}
    for partition in selected:
        asked.setdefault(partition.broker_id, {}).setdefault(partition.store_key, partition)

    def of_broker(stores: list[Partition]) -> Conversation[list[PartitionEnds]]:
        looks = [
            look_up_ends(store, brokers[store.broker_id], group, stable=stable, access=access)
            for store in stores
        ]
        first = yield from looks[0]
        return [first, *(yield from together(looks[1:]))]

    found = yield from together([of_broker(list(stores.values())) for stores in asked.values()])
    by_store = {ends.partition.store_key: ends for all_ends in found for ends in all_ends}
    return {
        partition: PartitionEnds(
            partition,
            by_store[partition.store_key].min_offset,
            by_store[partition.store_key].max_offset,
            stable,
        )
        for partition in selected
    }


def reachable_ends(
    topic: TopicMetadata, group: str, *, stable: bool, access: Access
) -> Conversation[ReachableEnds]:
    """Return the ends of all partitions whose broker answers.

    A broker that is down, or does not publish the topic now, is asked once; masters continue to
    announce its partitions. Raises the last broker's error if none answers, and at once an error
    that waiting would not cure.
    """
    by_broker: dict[int, list[Partition]] = {}
    for partition in sorted(topic.partitions):
        by_broker.setdefault(partition.broker_id, []).append(partition)

    def ask(
        of_broker: list[Partition],
    ) -> Conversation[dict[Partition, PartitionEnds] | errors.TubeMQError]:
        try:
            return (
                yield from store_ends(of_broker, topic.brokers, group, stable=stable, access=access)
            )
        except errors.TubeMQError as error:
            if not _is_away(error, announced=any(topic.partitions[p] for p in of_broker)):
                raise
            return error

    answers = yield from together([ask(of_broker) for of_broker in by_broker.values()])
    ends: dict[Partition, PartitionEnds] = {}
    unreachable: dict[Partition, str] = {}
    failure: errors.TubeMQError | None = None
    for of_broker, answer in zip(by_broker.values(), answers, strict=True):
        if isinstance(answer, errors.TubeMQError):
            failure = answer
            unreachable |= dict.fromkeys(of_broker, f"{type(answer).__name__}: {answer}")
        else:
            ends |= answer
    if failure is not None and not ends:
        raise failure
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
