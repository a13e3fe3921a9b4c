"""Blocking administration: topics, groups, brokers and their options.

Not needed for reading or writing; for tests, tools and the command line. `aio.admin` is the asyncio
version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketmq_client._core import administration
from rocketmq_client._core.topics import (
    broker_config,
    change_broker_config,
    create_topic,
    delete_topic,
    list_topics,
    masters,
    topic_config,
)
from rocketmq_client.sync._base import BlockingClient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_client._wire.bodies import ClusterInfo, RuntimeInfo
    from rocketmq_client.model import (
        Address,
        GroupMembers,
        GroupSettings,
        Queue,
        QueueProgress,
        QueueStats,
    )

__all__ = ["Admin"]

_READ_AND_WRITE = 6


class Admin(BlockingClient):
    """Creates, lists and deletes topics and groups, shows and moves progress, reads and changes
    options of brokers. Every call blocks.
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
        address = self._master(broker)
        return self._driver.run(topic_config(self._cluster, address, topic, broker))

    def topic_stats(self, topic: str) -> list[QueueStats]:
        """Return ends and last time of each queue of the topic."""
        return self._driver.run(administration.topic_stats(self._cluster, topic))

    def groups(self) -> list[str]:
        """Return the users' consumer groups, ordered."""
        return self._driver.run(administration.list_groups(self._cluster, self._masters(None)))

    def group_settings(self, group: str) -> dict[str, GroupSettings]:
        """Return the group's settings by broker, of those that have it."""
        return self._driver.run(administration.groups_at(self._cluster, group, self._masters(None)))

    def create_group(self, group: GroupSettings, *, broker: str | None = None) -> None:
        """Create the group, or change it. Idempotent."""
        self._driver.run(administration.create_group(self._cluster, group, self._masters(broker)))

    def enable_group(self, group: str, *, enabled: bool = True, broker: str | None = None) -> None:
        """Give the group records again, or no more; other settings stay. Raises
        `errors.UnknownGroup`."""
        self._driver.run(
            administration.enable_group(
                self._cluster, group, self._masters(broker), enabled=enabled
            )
        )

    def delete_group(self, group: str, *, offsets: bool = True, broker: str | None = None) -> None:
        """Delete the group, and with `offsets` what it has committed."""
        self._driver.run(
            administration.delete_group(
                self._cluster, group, self._masters(broker), offsets=offsets
            )
        )

    def group_members(self, group: str) -> GroupMembers:
        """Return the group's members with languages and versions, and their subscriptions."""
        return self._driver.run(
            administration.group_members(self._cluster, group, self._masters(None))
        )

    def progress(self, group: str, topic: str | None = None) -> list[QueueProgress]:
        """Return the group's position on each queue, of one topic or of all that it has read."""
        return self._driver.run(
            administration.group_progress(self._cluster, group, topic, self._masters(None))
        )

    def reset_by_time(self, group: str, topic: str, instant_ms: int) -> dict[Queue, int]:
        """Move the group to the first record of each queue stored at or after the instant (ms since
        the epoch); return the offsets. Running members go there, too: within 15 s on 5.x, and on
        4.x where the broker's own search leads, which gives the nearest record."""
        return self._driver.run(
            administration.reset_by_time(self._cluster, group, topic, instant_ms)
        )

    def reset_offsets(
        self, group: str, topic: str, offsets: Mapping[Queue, int]
    ) -> dict[Queue, int]:
        """Move the group to these offsets; other queues stay. Raises `errors.ConfigError` for
        offsets outside a queue, and on 4.x while the group has members."""
        return self._driver.run(administration.reset_offsets(self._cluster, group, topic, offsets))

    def runtime_info(self, broker: str) -> RuntimeInfo:
        """Return a broker's runtime info."""
        return self._driver.run(self._cluster.runtime_info(self._master(broker), broker))

    def broker_config(self, broker: str) -> dict[str, str]:
        """Return a broker's active options."""
        address = self._master(broker)
        return self._driver.run(broker_config(self._cluster, address))

    def change_broker_config(self, options: Mapping[str, str], broker: str) -> None:
        """Change options of a running broker."""
        address = self._master(broker)
        self._driver.run(change_broker_config(self._cluster, address, options))

    def _masters(self, broker: str | None) -> dict[str, Address]:
        return masters(self._driver.run(self._cluster.brokers()), broker)

    def _master(self, broker: str) -> Address:
        return self._masters(broker)[broker]
