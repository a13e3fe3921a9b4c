"""Background sender of the asyncio producer: a task for each group of records.

The caller chooses the partition and waits for room. Records that gather for a broker until the next
turn of the event loop are written at once and answered together, so a stalled broker delays only
its own records. `background_sender` does the same with threads.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from tubemq_client._io.producer_base import SenderBase

if TYPE_CHECKING:
    from asyncio import Future

    from tubemq_client._core.sending import InFlightRecord, ProducerSession, Record
    from tubemq_client._io.asyncio_driver import AsyncDriver
    from tubemq_client.model import ProducerSettings, SendReceipt

__all__ = ["AsyncBackgroundSender"]

_GROUP = 256
"""Upper bound of records that are answered together: none of them has its receipt before the
last."""


class _BrokerSender:
    """Records for one broker. A record that goes to another one after a refusal stays here."""

    def __init__(self) -> None:
        self.queue: list[tuple[InFlightRecord, Future[SendReceipt]]] = []
        self.in_flight = 0


class AsyncBackgroundSender(SenderBase):
    """Records of one producer that are sent in the background."""

    def __init__(
        self, driver: AsyncDriver, session: ProducerSession, settings: ProducerSettings
    ) -> None:
        super().__init__(driver, session, settings)
        self._tasks: set[asyncio.Task[None]] = set()
        self._room, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    async def send(
        self, topic: str, record: Record, sent_address: int, timeout_ms: int
    ) -> Future[SendReceipt]:
        """Return a future receipt, after waiting for room. Raises `errors.TooManyInFlight`."""
        loop = asyncio.get_running_loop()
        flight = self._session.encode(topic, record, sent_address, round(loop.time() * 1000))
        broker_id = flight.partition.broker_id
        sender = self._senders.get(broker_id)
        if sender is None:
            sender = self._senders[broker_id] = _BrokerSender()
        if not self._has_room(sender):
            await self._wait_for_room(sender, timeout_ms)
        self._raise_if_closed()
        future: Future[SendReceipt] = loop.create_future()
        if not sender.queue:
            loop.call_soon(self._start, sender)
        sender.queue.append((flight, future))
        self._count(sender, 1)
        self._idle.clear()
        return future

    async def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until no record is in flight. Raises `errors.TooManyInFlight`."""
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._idle.wait()
        except TimeoutError:
            raise self._not_done(timeout_ms) from None

    async def close(self) -> None:
        """Wait for the records in flight, at most until their deadlines, and end.

        If the wait is cancelled, they end at once with an unknown outcome.
        """
        self._closed = True
        self._room.set()
        try:
            await self._idle.wait()
        finally:
            for task in self._tasks:
                task.cancel()

    async def _wait_for_room(self, sender: _BrokerSender, timeout_ms: int) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not self._has_room(sender):
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise self._no_room(timeout_ms) from None

    def _start(self, sender: _BrokerSender) -> None:
        queue, sender.queue = sender.queue, []
        for begin in range(0, len(queue), _GROUP):
            sending = self._send(sender, queue[begin : begin + _GROUP])
            task = asyncio.get_running_loop().create_task(sending, name="tubemq-send")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(
        self, sender: _BrokerSender, group: list[tuple[InFlightRecord, Future[SendReceipt]]]
    ) -> None:
        left = iter([future for _, future in group])
        sending = self._session.send_together([flight for flight, _ in group])
        try:
            async with aclosing(self._driver.stream(sending)) as stream:
                async for outcomes in stream:
                    for outcome, _ in outcomes:
                        _settle(next(left), outcome)
        except Exception as error:  # noqa: BLE001 - a future must not stay open, whatever failed
            for future in left:
                _settle(future, error)
        finally:
            for future in left:
                future.cancel()
            self._done(sender, len(group))

    def _done(self, sender: _BrokerSender, count: int) -> None:
        self._count(sender, -count)
        self._room.set()
        if not self._in_flight:
            self._idle.set()


def _settle(future: Future[SendReceipt], outcome: SendReceipt | Exception) -> None:
    """Set the outcome of a future, unless the user has cancelled it."""
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
        future.exception()  # marks it as retrieved: not every future is awaited
    else:
        future.set_result(outcome)
