"""The asyncio client-balance consumer: assign partitions yourself, pull, confirm.

At least once: a batch that was pulled but not confirmed is delivered again, here or to the next
owner. A task beats for held partitions and ends with `close()`. `sync.consumer` is its twin.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, Self

from tubemq_client import errors
from tubemq_client._core.assigned import READ_STATUS, AssignedSession
from tubemq_client._core.leases import HeartbeatSchedule
from tubemq_client.aio._base import AsyncClient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubemq_client._core.batch import MessageBatch
    from tubemq_client.model import ClientSettings, Partition

__all__ = ["AssignedConsumer"]


class AssignedConsumer(AsyncClient):
    """Consumes partitions that the caller assigns.

    Methods may be called from several tasks; they take turns. `topics` maps topic names to stream
    ids to filter by (empty: everything). Entering the context registers the group with the master.
    A cancelled `pull` loses nothing: its batch comes again. After a cancelled `confirm` it may.
    """

    def __init__(
        self,
        settings: ClientSettings,
        group: str,
        topics: Mapping[str, Sequence[str]],
        *,
        corrupt_records: Literal["fail", "drop"] = "fail",
    ) -> None:
        super().__init__(settings)
        wanted = {topic: tuple(sorted(items)) for topic, items in topics.items()}
        self._consumer = AssignedSession(
            self._session,
            group,
            self._ids.consumer(group, "Balance"),
            wanted,
            corrupt_records,
        )
        self._schedule = HeartbeatSchedule.of(settings)
        self._lock = asyncio.Lock()
        self._beat: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Register with the master. Raises `errors.UnknownTopic`, `errors.GroupInconsistent`."""
        try:
            await self._driver.run(self._consumer.open())
        except BaseException:
            await self._driver.close()
            raise
        self._beat = asyncio.create_task(self._keep_beating(), name="tubemq-consumer-heartbeat")
        return self

    @property
    def assignment(self) -> list[Partition]:
        """Partitions held now; a partition that a broker took away is missing."""
        return sorted(self._consumer.held)

    async def partitions(self) -> dict[Partition, bool]:
        """All partitions of the topics, and whether each may be subscribed now."""
        async with self._lock:
            return await self._driver.run(self._consumer.refresh())

    async def assign(
        self,
        partition: Partition,
        offset: int | None = None,
        *,
        position: Literal["earliest", "latest", "always_latest"] = "earliest",
    ) -> int:
        """Take a partition and return the offset reading starts at.

        `offset` (clamped by the broker to its log) overrides the group's stored position;
        `position` decides for a group without one.
        """
        async with self._lock:
            found = await self._driver.run(
                self._consumer.assign(partition, offset, READ_STATUS[position])
            )
        return found.current

    async def pull(self, partition: Partition, *, timeout_ms: int = 0) -> MessageBatch | None:
        """The next batch, or None if there is nothing to read now.

        Answers at once, or waits up to `timeout_ms` for something to read. A flow rule of the
        cluster or the group that asks to wait counts as nothing to read. Confirm or reject every
        batch, an empty one too.
        """
        deadline = _now_ms() + timeout_ms
        while True:
            async with self._lock:
                batch = await self._driver.run(self._consumer.pull(partition))
            left = deadline - _now_ms()
            if batch is not None or left <= 0:
                return batch
            await asyncio.sleep(min(self._consumer.next_try_ms(partition, _now_ms()), left) / 1000)

    async def confirm(self, batch: MessageBatch) -> int:
        """Move the group past `batch`; returns the group's position, the next offset to read."""
        return await self._settle(batch, consumed=True)

    async def reject(self, batch: MessageBatch) -> int:
        """Leave the group where it was; the broker delivers the batch again."""
        return await self._settle(batch, consumed=False)

    async def release(self, partition: Partition) -> None:
        """Give a partition back; a batch not confirmed is rolled back."""
        async with self._lock:
            await self._driver.run(self._consumer.release(partition, consumed=False))

    async def close(self) -> None:
        """Stop beating, give everything back, leave the group, close connections."""
        beat, self._beat = self._beat, None
        try:
            if beat is not None:
                beat.cancel()
                await asyncio.wait([beat])
                await self._driver.finish(self._consumer.close())
        finally:
            await super().close()

    async def _settle(self, batch: MessageBatch, *, consumed: bool) -> int:
        async with self._lock:
            found = await self._driver.run(
                self._consumer.confirm(batch.partition, consumed=consumed)
            )
        return found.current

    async def _keep_beating(self) -> None:
        self._schedule.succeeded(_now_ms())
        while True:
            await asyncio.sleep(self._schedule.wait_ms(_now_ms()) / 1000)
            try:
                async with self._lock:
                    await self._driver.run(self._consumer.heartbeat())
            except errors.TubeMQError:
                self._schedule.failed(_now_ms())
            else:
                self._schedule.succeeded(_now_ms())


def _now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)
