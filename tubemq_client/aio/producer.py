"""The asyncio producer: routes from the master, records to brokers, receipts back.

A task beats for the producer (masters forget a silent one after 30 s); it is started with the first
topic and ends with `close()`. A receipt means the broker has the record in memory; a broker crash
may still lose it. `sync.producer` is its twin.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from tubemq_client import errors
from tubemq_client._core.publishing import ProducerSession, Record
from tubemq_client._io.host import signed_ipv4
from tubemq_client.aio._base import AsyncClient

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping

    from tubemq_client.model import ClientSettings, Partition, SendReceipt

__all__ = ["Producer", "Record"]


class Producer(AsyncClient):
    """Sends records.

    Methods may be called from several tasks; `send` from many tasks shares one connection per
    broker and keeps as many records in flight.
    """

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self._producer = ProducerSession(self._session, self._ids.producer())
        self._sent_address = signed_ipv4(self._session.host)
        self._registered = False
        self._lock = asyncio.Lock()
        self._beat: asyncio.Task[None] | None = None

    async def publish(self, topic: str) -> list[Partition]:
        """Announce `topic` and learn its writable partitions (empty: none accepts records yet)."""
        async with self._lock:
            if not self._registered:
                await self._driver.run(self._producer.register())
                self._registered = True
            self._producer.topics.add(topic)
            await self._driver.run(self._producer.heartbeat())
            self._start_beating()
            return list(self._producer.routes.get(topic, ()))

    async def partitions(self, topic: str) -> list[Partition]:
        """The writable partitions of `topic`, publishing it if that was not done."""
        return list(self._producer.routes.get(topic) or await self.publish(topic))

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        attributes: Mapping[str, str] | None = None,
        stream_id: str | None = None,
        msg_time: str | None = None,
        partition: Partition | None = None,
    ) -> SendReceipt:
        """Send one record and wait for its receipt. At most once: only a refusal that stored
        nothing (overflow) is retried."""
        record = Record(body, attributes, stream_id, msg_time, partition)
        await self.partitions(topic)
        return await self._driver.run(self._producer.send_one(topic, record, self._sent_address))

    async def send_many(
        self, topic: str, records: Iterable[Record], *, in_flight: int = 64
    ) -> AsyncGenerator[SendReceipt, None]:
        """Send records with up to `in_flight` unanswered, yielding receipts in their order.

        Records are taken from the iterable only as the window allows. Raises on the first record
        that fails; receipts yielded before stand, records in flight then are unknown.
        """
        await self.partitions(topic)
        sending = self._producer.send_all(topic, records, self._sent_address, in_flight)
        async with aclosing(self._driver.stream(sending)) as receipts:
            async for receipt in receipts:
                yield receipt

    async def close(self) -> None:
        """Stop beating, tell the master, close connections."""
        try:
            await self._stop_beating()
            if self._registered:
                self._registered = False
                await self._driver.finish(self._producer.close())
        finally:
            await super().close()

    def _start_beating(self) -> None:
        if self._beat is None:
            self._beat = asyncio.create_task(self._keep_beating(), name="tubemq-producer-heartbeat")

    async def _stop_beating(self) -> None:
        beat, self._beat = self._beat, None
        if beat is not None:
            beat.cancel()
            await asyncio.wait([beat])

    async def _keep_beating(self) -> None:
        period_s = self._settings.heartbeat_period_ms / 1000
        while True:
            await asyncio.sleep(period_s)
            try:
                async with self._lock:
                    await self._driver.run(self._producer.heartbeat())
            except errors.TubeMQError:
                continue  # routes stay as they are; the next beat tries again
