"""Where partitions of TubeMQ are served: brokers by the number that a partition has of its own.

Imported by tasks on executors: values only.
"""

from __future__ import annotations

from collections.abc import Mapping

from tubemq_client.model import BrokerNode, Partition

__all__ = ["broker_of", "by_number"]


def broker_of(brokers: Mapping[int, BrokerNode], partition: Partition) -> BrokerNode:
    """The broker that serves `partition`. Raises `KeyError` for one that is not among them."""
    return brokers[partition.broker_id]


def by_number(*brokers: BrokerNode) -> dict[int, BrokerNode]:
    """Brokers as readers take them."""
    return {broker.broker_id: broker for broker in brokers}
