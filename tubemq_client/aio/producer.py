"""Asyncio producer: routes from the master, records to brokers, receipts back.

A task sends the producer's heartbeats (masters forget a silent one after 30 s); it starts with the
first topic and ends with `close()`, as do the tasks of `send_async`, one per group of records. A
receipt means the broker has the record in memory; a broker crash may still lose it. `sync.producer`
is its counterpart.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from tubemq_client._core.send_batch import Record, as_record
from tubemq_client._io.asyncio_background_sender import AsyncBackgroundSender
from tubemq_client._io.asyncio_sync import Notifier
from tubemq_client._io.producer_base import ProducerBase, Progress
from tubemq_client.aio._base import AsyncClient
from tubemq_client.model import ProducerSettings

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

    from tubemq_client._core.routing import Router
    from tubemq_client._io.routines import Do
    from tubemq_client.model import ClientSettings, Partition, SendReceipt, SendSummary

__all__ = ["Producer", "Record"]

_DEFAULTS = ProducerSettings()


class Producer(ProducerBase, AsyncClient):
    """Producer of records.

    Methods may be called from several tasks; `send` from many tasks shares one connection per
    broker and keeps as many records in flight. A record without partition and key goes to the next
    partition in turn, or to the one `router` chooses; brokers that cannot store are avoided for a
    while. `docs/producing.md` has the guarantees of a receipt, and which records are sent again.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        producer: ProducerSettings = _DEFAULTS,
        router: Router | None = None,
    ) -> None:
        super().__init__(settings, producer=producer, router=router)
        self._notifier, self._lock = Notifier(), asyncio.Lock()
        self._heartbeat: asyncio.Task[None] | None = None
        self._sender: AsyncBackgroundSender = AsyncBackgroundSender(
            self._driver, self._producer, producer
        )

    async def publish(self, topic: str) -> list[Partition]:
        """Announce `topic` and learn its writable partitions (empty: none accepts records yet)."""
        async with self._lock:
            await self._driver.run(self._announcing(topic))
            self._start_heartbeats()
            return self._routes(topic)

    async def partitions(self, topic: str) -> list[Partition]:
        """Return the writable partitions of `topic`; publish it if that was not done."""
        return self._routes(topic) or await self.publish(topic)

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        attributes: Mapping[str, str] | None = None,
        stream_id: str | None = None,
        msg_time: str | None = None,
        partition: Partition | None = None,
        key: bytes | str | None = None,
    ) -> SendReceipt:
        """Send one record and wait for its receipt.

        At most once: only a record that was certainly not stored is sent again, unless the option
        `retry_unknown` is set. Raises `errors.ConfigError` for a record no broker would take,
        `errors.UnknownTopic` for a topic without partitions, `errors.NetworkError` if the record
        may or may not be stored, and the refusal of a broker.
        """
        record = Record(body, attributes, stream_id, msg_time, partition, key)
        await self._ready(topic)
        return await self._driver.run(self._producer.send_one(topic, record, self._sent_address))

    async def send_async(
        self,
        topic: str,
        body: bytes | Record,
        *,
        attributes: Mapping[str, str] | None = None,
        stream_id: str | None = None,
        msg_time: str | None = None,
        partition: Partition | None = None,
        key: bytes | str | None = None,
        timeout_ms: int = 10_000,
    ) -> Future[SendReceipt]:
        """Send a record in the background; the future gets its receipt, or the error of `send`.

        `body` is a record's body, with the rest of the record as for `send`, or a whole `Record`.
        Waits up to `timeout_ms` while as many records are in flight as the options allow
        (`max_in_flight`, `max_in_flight_per_broker`), then raises `errors.TooManyInFlight` without
        sending the record. Receipts arrive in any order. Callbacks of the future run on the event
        loop: they must not block. Raises like `send` for errors before the record is sent.
        """
        record = as_record(body, attributes, stream_id, msg_time, partition, key)
        await self._ready(topic)
        return await self._sender.send(topic, record, self._sent_address, timeout_ms)

    async def flush(self, *, timeout_ms: int | None = None) -> None:
        """Wait until no record of `send_async` is in flight.

        Raises `errors.TooManyInFlight` if some still are after `timeout_ms`. Failures of records
        are reported by their futures only.
        """
        await self._sender.flush(timeout_ms)

    async def send_many(
        self, topic: str, records: Iterable[Record], *, in_flight: int | None = None
    ) -> AsyncGenerator[SendReceipt, None]:
        """Send records with up to `in_flight` unanswered, yielding receipts in their order.

        The default of `in_flight` is an option. Records are taken from the iterable only as the
        window allows; those of a list or tuple are written in groups, which is faster. Raises on
        the first record that fails; receipts yielded before are valid, the outcome of records in
        flight then is unknown.
        """
        await self._ready(topic)
        sending = self._sending_all(topic, records, in_flight)
        async with aclosing(self._driver.stream(sending)) as receipts:
            async for group in receipts:
                for receipt in group:
                    yield receipt

    async def send_all(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        in_flight: int | None = None,
        progress: Callable[[SendSummary], None] | None = None,
        max_failures: int = 0,
    ) -> SendSummary:
        """Send every record and add up the receipts.

        `progress` is called with the totals so far, periodically and at the end. Up to
        `max_failures` records may fail and are listed in the summary; the next failure is raised. A
        record that no broker would take is a failure too.
        """
        await self._ready(topic)
        sum_so_far = Progress(progress, max_failures)
        sending = self._sending_each(topic, records, in_flight)
        async with aclosing(self._driver.stream(sending)) as outcomes:
            async for group in outcomes:
                sum_so_far.add(group)
        return sum_so_far.end()

    async def close(self) -> None:
        """Wait for outstanding receipts, stop heartbeats, unregister, close connections."""
        try:
            try:
                await self._sender.close()
            finally:  # even if the wait was cancelled
                await self._stop_heartbeats()
                if self._registered:
                    self._registered = False
                    await self._driver.finish(self._producer.close())
        finally:
            await super().close()

    async def _ready(self, topic: str) -> None:
        if not self._producer.routes.get(topic):
            await self.publish(topic)

    def _start_heartbeats(self) -> None:
        if self._heartbeat is None:
            beating = self._play(self._heartbeats())
            self._heartbeat = asyncio.create_task(beating, name="tubemq-producer-heartbeat")

    async def _stop_heartbeats(self) -> None:
        beat, self._heartbeat, self._closing = self._heartbeat, None, True
        if beat is not None:
            beat.cancel()
            await asyncio.wait([beat])

    async def _do(self, step: Do) -> Any:
        async with self._lock:
            return await super()._do(step)
