"""Blocking administration: topics, brokers and their options.

Not needed for reading or writing; for tests, tools and the command line. `aio.admin` is the asyncio
version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketmq_client._core.topics import (
    broker_config,
    change_broker_config,
    create_topic,
    delete_topic,
    list_topics,
    master_addresses,
    topic_config,
)
from rocketmq_client.sync._base import BlockingClient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_client._wire.bodies import ClusterInfo, RuntimeInfo
    from rocketmq_client.model import Address

__all__ = ["Admin"]

_READ_AND_WRITE = 6


class Admin(BlockingClient):
    """Creates, lists and deletes topics, reads and changes options of brokers. Every call blocks.
    `broker` is a broker's name; None stands for all masters that the name server knows."""

    def topics(self) -> list[str]:
        """Return the users' topics, ordered."""
        return self._driver.run(list_topics(self._cluster))

    def brokers(self) -> ClusterInfo:
        """Return all brokers by name, and the clusters."""
        return self._driver.run(self._cluster.brokers())

    def create_topic(
        self,
        topic: str,
        *,
        queues: int = 4,
        perm: int = _READ_AND_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        broker: str | None = None,
    ) -> None:
        """Create the topic, or change it, with `queues` queues on each broker. Idempotent."""
        self._driver.run(
            create_topic(
                self._cluster,
                topic,
                self._masters(broker),
                queues=queues,
                perm=perm,
                order=order,
                attributes=attributes or {},
            )
        )

    def delete_topic(self, topic: str) -> None:
        """Remove the topic and its records from all brokers."""
        self._driver.run(delete_topic(self._cluster, topic, self._masters(None)))

    def topic_config(self, topic: str, broker: str) -> dict[str, Any] | None:
        """Return the topic's settings at a broker; None from 4.x, which has no such request."""
        address = self._masters(broker)[0]
        return self._driver.run(topic_config(self._cluster, address, topic, broker))

    def runtime_info(self, broker: str) -> RuntimeInfo:
        """Return a broker's runtime info."""
        return self._driver.run(self._cluster.runtime_info(self._masters(broker)[0], broker))

    def broker_config(self, broker: str) -> dict[str, str]:
        """Return a broker's active options."""
        address = self._masters(broker)[0]
        return self._driver.run(broker_config(self._cluster, address))

    def change_broker_config(self, options: Mapping[str, str], broker: str) -> None:
        """Change options of a running broker."""
        address = self._masters(broker)[0]
        self._driver.run(change_broker_config(self._cluster, address, options))

    def _masters(self, broker: str | None) -> list[Address]:
        return master_addresses(self._driver.run(self._cluster.brokers()), broker)
