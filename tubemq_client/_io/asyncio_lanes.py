"""Sends records in the background for the asyncio producer: a task for each group that gathered.

The caller chooses the partition and waits for room. What gathers for a broker until the loop turns
is written in one piece and answered together, so that a broker that stands still holds up only its
own records. `lanes` is the twin, where threads do the same.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from tubemq_client import errors

if TYPE_CHECKING:
    from asyncio import Future

    from tubemq_client._core.publishing import Flight, ProducerSession, Record
    from tubemq_client._io.asyncio_driver import AsyncDriver
    from tubemq_client.model import ProducerSettings, SendReceipt

__all__ = ["AsyncLanes"]

_GROUP = 256
"""Most records that are answered together: none of them has its receipt before the last."""


class _Lane:
    """The records for one broker. One that goes elsewhere after a refusal stays in its lane."""

    def __init__(self) -> None:
        self.queue: list[tuple[Flight, Future[SendReceipt]]] = []
        self.in_flight = 0


class AsyncLanes:
    """The records of one producer that are under way in the background."""

    def __init__(
        self, driver: AsyncDriver, session: ProducerSession, settings: ProducerSettings
    ) -> None:
        self._driver = driver
        self._session = session
        self._settings = settings
        self._lanes: dict[int, _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._room, self._idle = asyncio.Event(), asyncio.Event()
        self._in_flight = 0
        self._closed = False
        self._idle.set()

    @property
    def in_flight(self) -> int:
        """Records without a receipt or failure yet."""
        return self._in_flight

    async def send(
        self, topic: str, record: Record, sent_address: int, timeout_ms: int
    ) -> Future[SendReceipt]:
        """The future receipt. Waits for room; raises `errors.TooManyInFlight`."""
        loop = asyncio.get_running_loop()
        flight = self._session.encode(topic, record, sent_address, round(loop.time() * 1000))
        broker_id = flight.partition.broker_id
        lane = self._lanes.get(broker_id)
        if lane is None:
            lane = self._lanes[broker_id] = _Lane()
        if not self._has_room(lane):
            await self._wait_for_room(lane, timeout_ms)
        if self._closed:
            raise errors.ClosedError("the client is closed")
        future: Future[SendReceipt] = loop.create_future()
        if not lane.queue:
            loop.call_soon(self._start, lane)
        lane.queue.append((flight, future))
        lane.in_flight += 1
        self._in_flight += 1
        self._idle.clear()
        return future

    async def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until nothing is under way. Raises `errors.TooManyInFlight`."""
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._idle.wait()
        except TimeoutError:
            raise errors.TooManyInFlight(
                f"{self._in_flight} records are still under way after {timeout_ms} ms"
            ) from None

    async def close(self) -> None:
        """Wait for what is under way, which no later than its deadlines is over, and end. If the
        waiting is cancelled, what is under way ends at once and its outcome is unknown."""
        self._closed = True
        self._room.set()
        try:
            await self._idle.wait()
        finally:
            for task in self._tasks:
                task.cancel()

    def _has_room(self, lane: _Lane) -> bool:
        return self._closed or (
            self._in_flight < self._settings.max_in_flight
            and lane.in_flight < self._settings.max_in_flight_per_broker
        )

    async def _wait_for_room(self, lane: _Lane, timeout_ms: int) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not self._has_room(lane):
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise errors.TooManyInFlight(
                f"{self._in_flight} records are under way and none was answered within "
                f"{timeout_ms} ms (options max_in_flight, max_in_flight_per_broker)"
            ) from None

    def _start(self, lane: _Lane) -> None:
        queue, lane.queue = lane.queue, []
        for begin in range(0, len(queue), _GROUP):
            sending = self._send(lane, queue[begin : begin + _GROUP])
            task = asyncio.get_running_loop().create_task(sending, name="tubemq-send")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self, lane: _Lane, group: list[tuple[Flight, Future[SendReceipt]]]) -> None:
        left = iter([future for _, future in group])
        sending = self._session.send_volley([flight for flight, _ in group])
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
            self._done(lane, len(group))

    def _done(self, lane: _Lane, count: int) -> None:
        lane.in_flight -= count
        self._in_flight -= count
        self._room.set()
        if not self._in_flight:
            self._idle.set()


def _settle(future: Future[SendReceipt], outcome: SendReceipt | Exception) -> None:
    """Cancelling a future only means that nobody wants to know."""
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
        future.exception()  # it counts as seen: not every future is awaited
    else:
        future.set_result(outcome)
