"""Blocking look-ups: partitions of a topic, and the ends of their logs.

Reads only; leaves no registration behind. Sensors and planners use it. `aio.metadata` is its
counterpart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubemq_client._core.master import TopicMetadata
from tubemq_client._io.reader_base import MetadataBase
from tubemq_client.sync._base import BlockingClient

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tubemq_client.model import Partition, PartitionEnds, ReachableEnds

__all__ = ["Metadata", "TopicMetadata"]


class Metadata(MetadataBase, BlockingClient):
    """Look-up of partitions and ends.

    Use one per thread or share it; every call blocks.
    """

    def topic(self, topic: str, group: str | None = None) -> TopicMetadata:
        """Return the brokers and partitions of `topic` as the master knows them now.

        Registers for a moment as group `<group>.e` (default group `tubemq_meta_<topic>`). Raises
        `errors.UnknownTopic`, `errors.ConnectError` and other `errors.TubeMQError`.
        """
        return self._driver.run(self._asking(topic, group))

    def ends(
        self,
        topic: str,
        group: str,
        partitions: Iterable[Partition] | None = None,
        *,
        stable: bool = True,
        metadata: TopicMetadata | None = None,
    ) -> dict[Partition, PartitionEnds]:
        """Return minimum and end offset of each partition, with one look-up per store.

        `stable` True returns the fsynced end, which survives a broker crash; False the end in
        memory, which does not and must not be used to advance a cursor. Raises `errors.ConfigError`
        for partitions that the topic does not have.
        """
        topic_metadata = metadata or self.topic(topic, group)
        return self._driver.run(self._ends(topic_metadata, group, partitions, stable=stable))

    def reachable_ends(
        self, topic: str, group: str, *, stable: bool = True, metadata: TopicMetadata | None = None
    ) -> ReachableEnds:
        """Return `ends` of all partitions whose brokers answer, and which partitions are away.

        Includes all partitions of `metadata`, if given. Raises the error of a broker if none
        answers.
        """
        return self._driver.run(self._reachable_ends(topic, group, metadata, stable=stable))
