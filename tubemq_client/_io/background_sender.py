"""Background sender of the blocking producer: a sender with a thread per broker.

The caller chooses the partition and waits for room; the sender's thread writes the gathered records
at once and sets their receipts, so a stalled broker delays only its own records. Threads start with
the first record for a broker and end with `close()`. For asyncio a task is enough.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING

from tubemq_client._core.send_batch import InFlightRecord, SendBatch
from tubemq_client._io.producer_base import SenderBase

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubemq_client._core.sending import ProducerSession, Record
    from tubemq_client._io.driver import BlockingDriver
    from tubemq_client.model import ProducerSettings, SendReceipt

__all__ = ["BackgroundSender"]

_GROUP = 256
"""Upper bound of records per write. Large: after each one this thread competes with the caller for
the GIL."""

_GROUPS_UNDER_WAY = 4


class BackgroundSender(SenderBase):
    """Records of one producer that are sent in the background."""

    def __init__(
        self, driver: BlockingDriver, session: ProducerSession, settings: ProducerSettings
    ) -> None:
        super().__init__(driver, session, settings)
        self._changed = threading.Condition()

    def send(
        self, topic: str, record: Record, sent_address: int, timeout_ms: int
    ) -> Future[SendReceipt]:
        """Return a future receipt, after waiting for room. Raises `errors.TooManyInFlight`."""
        now = time.monotonic_ns() // 1_000_000
        flight = self._session.encode(topic, record, sent_address, now)
        future: Future[SendReceipt] = Future()
        with self._changed:
            sender = self._sender(flight.partition.broker_id)
            if not self._has_room(sender) and not self._changed.wait_for(
                lambda: self._has_room(sender), timeout_ms / 1000
            ):
                raise self._no_room(timeout_ms)
            self._raise_if_closed()
            self._count(sender, 1)
            self._under_way.add(future)
            sender.put(flight, future)
        return future

    def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until no record is in flight. Raises `errors.TooManyInFlight`."""
        self._refuse_in_callback("flush")
        with self._changed:
            limit = None if timeout_ms is None else timeout_ms / 1000
            if not self._changed.wait_for(lambda: not self._in_flight, limit):
                raise self._not_done(timeout_ms)

    def close(self) -> None:
        """Wait for the records in flight, at most until their deadlines, and end."""
        self._refuse_in_callback("close")
        with self._changed:
            self._closed = True
            senders, self._senders = list(self._senders.values()), {}
            for sender in senders:
                sender.stop()
            self._changed.notify_all()
        for sender in senders:
            sender.join()

    def _refuse_in_callback(self, what: str) -> None:
        """Refuse a call in a future's callback, whose thread is a sender's and would deadlock."""
        if any(sender.is_current() for sender in list(self._senders.values())):
            raise self._in_callback(what)

    def _sender(self, broker_id: int) -> _BrokerSender:
        sender: _BrokerSender | None = self._senders.get(broker_id)
        if sender is None:
            self._raise_if_closed()
            name = f"tubemq-producer-{broker_id}"
            sender = _BrokerSender(name, self._driver, self._session, self._done)
            self._senders[broker_id] = sender
        return sender

    def _done(self, sender: _BrokerSender, futures: list[Future[SendReceipt]]) -> None:
        self._under_way.difference_update(futures)
        with self._changed:
            self._count(sender, -len(futures))
            self._changed.notify_all()


class _BrokerSender:
    """Thread of one broker. A record that goes to another one after a refusal stays here."""

    def __init__(
        self,
        name: str,
        driver: BlockingDriver,
        session: ProducerSession,
        done: Callable[[_BrokerSender, list[Future[SendReceipt]]], None],
    ) -> None:
        self._driver = driver
        self._session = session
        self._done = done
        self._queue: deque[tuple[InFlightRecord, Future[SendReceipt]]] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self.in_flight = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.join = self._thread.join
        self._thread.start()

    def put(self, flight: InFlightRecord, future: Future[SendReceipt]) -> None:
        """Add a record.

        Called under the lock of `BackgroundSender`, so none is added after `stop`.
        """
        self._queue.append((flight, future))
        if not self._wake.is_set():
            self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        under_way: deque[tuple[SendBatch, list[Future[SendReceipt]]]] = deque()
        while True:
            if not under_way:
                self._wake.wait()
            group = self._take()
            if group:
                batch = self._post([flight for flight, _ in group])
                under_way.append((batch, [future for _, future in group]))
            if under_way and (len(under_way) >= _GROUPS_UNDER_WAY or not self._queue):
                self._receive(*under_way.popleft())
            elif not (under_way or self._queue) and self._stopping:
                return

    def _take(self) -> list[tuple[InFlightRecord, Future[SendReceipt]]]:
        queue = self._queue
        group = [queue.popleft() for _ in range(min(len(queue), _GROUP))]
        if not queue and not self._stopping:
            self._wake.clear()
            if queue or self._stopping:  # a record was added between the two lines above
                self._wake.set()
        return group

    def _post(self, flights: list[InFlightRecord]) -> SendBatch:
        batch = SendBatch(flights)
        try:
            return self._driver.start(self._session.post_all(batch))
        except Exception as error:  # noqa: BLE001 - the thread must continue
            return batch.failed(error)

    def _receive(self, batch: SendBatch, futures: list[Future[SendReceipt]]) -> None:
        left = iter(futures)
        try:
            for outcomes in self._driver.stream(self._session.complete(batch)):
                for outcome, _ in outcomes:
                    _settle(next(left), outcome)
        except Exception as error:  # noqa: BLE001 - a future must not stay open, whatever failed
            for future in left:
                _settle(future, error)
        self._done(self, futures)


def _settle(future: Future[SendReceipt], outcome: SendReceipt | Exception) -> None:
    """Set the outcome of a future, unless the user has cancelled it."""
    try:
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    except InvalidStateError:
        pass
    except BaseException:  # such as `sys.exit` in a callback: the thread has other records, too
        logging.getLogger(__name__).exception("a callback of send_async failed")
