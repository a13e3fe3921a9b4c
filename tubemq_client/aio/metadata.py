"""Look-ups on asyncio: which partitions a topic has, and how far their logs reach.

Reads only; leaves nothing registered. Triggers live on this. `sync.metadata` is its twin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubemq_client._core.master import TopicMetadata
from tubemq_client._io.range_face import MetadataFace
from tubemq_client.aio._base import AsyncClient

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tubemq_client.model import Partition, PartitionEnds, ReachableEnds

__all__ = ["Metadata", "TopicMetadata"]


class Metadata(MetadataFace, AsyncClient):
    """Looks up partitions and ends.

    One may be shared by any number of tasks. Cancelling a call leaves nothing behind that a server
    does not forget by itself.
    """

    async def topic(self, topic: str, group: str | None = None) -> TopicMetadata:
        """Brokers and partitions of `topic` as the master knows them now.

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
        """Minimum and end offset of each partition: one look-up per store.

        `stable` True gives the fsynced end, which survives a broker crash; False the end in memory,
        which does not and must not be used to advance a cursor. Raises `errors.ConfigError` for
        partitions that the topic does not have.
        """
        found = metadata or await self.topic(topic, group)
        return await self._driver.run(self._ends(found, group, partitions, stable=stable))

    async def reachable_ends(
        self, topic: str, group: str, *, stable: bool = True, metadata: TopicMetadata | None = None
    ) -> ReachableEnds:
        """`ends` of all partitions (of `metadata`, if given) whose brokers answer, and which of
        them are away. Raises the error of a broker if none answers."""
        return await self._driver.run(self._reachable_ends(topic, group, metadata, stable=stable))
