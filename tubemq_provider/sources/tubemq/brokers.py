"""Brokers of TubeMQ partitions, by the broker id in the partition.

Imported by tasks on executors: values only.
"""

from __future__ import annotations

from collections.abc import Mapping

from tubemq_client.model import BrokerNode, Partition

__all__ = ["broker_of", "by_number"]


def broker_of(brokers: Mapping[int, BrokerNode], partition: Partition) -> BrokerNode:
    """Return the broker that serves `partition`. Raises `KeyError` for an unknown one."""
    return brokers[partition.broker_id]


def by_number(*brokers: BrokerNode) -> dict[int, BrokerNode]:
    """Return brokers by id, for readers."""
    return {broker.broker_id: broker for broker in brokers}
