"""Asyncio look-ups: partitions of a topic, and the ends of their logs.

Reads only; leaves no registration behind. Triggers use it. `sync.metadata` is its counterpart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubemq_client._core.master import TopicMetadata
from tubemq_client._io.reader_base import MetadataBase
from tubemq_client.aio._base import AsyncClient

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tubemq_client.model import Partition, PartitionEnds, ReachableEnds

__all__ = ["Metadata", "TopicMetadata"]


class Metadata(MetadataBase, AsyncClient):
    """Look-up of partitions and ends.

    One may be shared by any number of tasks. Cancelling a call leaves nothing behind that a server
    does not forget by itself.
    """

    async def topic(self, topic: str, group: str | None = None) -> TopicMetadata:
        """Return the brokers and partitions of `topic` as the master knows them now.

        Registers for a moment as group `<group>.e` (default group `tubemq_meta_<topic>`). Raises
        `errors.UnknownTopic`, `errors.ConnectError` and other `errors.TubeMQError`.
        """
        return await self._driver.run(self._asking(topic, group))

    async def ends(
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
        topic_metadata = metadata or await self.topic(topic, group)
        return await self._driver.run(self._ends(topic_metadata, group, partitions, stable=stable))

    async def reachable_ends(
        self, topic: str, group: str, *, stable: bool = True, metadata: TopicMetadata | None = None
    ) -> ReachableEnds:
        """Return `ends` of all partitions whose brokers answer, and which partitions are away.

        Includes all partitions of `metadata`, if given. Raises the error of a broker if none
        answers.
        """
        return await self._driver.run(self._reachable_ends(topic, group, metadata, stable=stable))
