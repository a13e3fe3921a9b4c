"""Sync producer: single records, batches, one-way, in the background.

`_core.sending` decides about retries. `aio.producer` is the asyncio version.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from rocketmq_client._core.outgoing import outgoing
from rocketmq_client._core.sending import Place, Sending
from rocketmq_client._core.sending_limits import Room, no_room
from rocketmq_client.model import OutgoingMessage, ProducerSettings
from rocketmq_client.sync._base import BlockingClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from rocketmq_client.model import ClientSettings, Message, Queue, SendReceipt

__all__ = ["Producer"]

_WORKERS = 16
"""Threads of `send_async`; each waits for one receipt."""


class Producer(BlockingClient):
    """Sends records. One per thread or shared; every call blocks until the receipt.

    A receipt says that the broker has the record, by default in its page cache: it survives a crash
    of the broker's process, not of its host.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        group: str = "rocketmq_client_producer",
        producer: ProducerSettings | None = None,
    ) -> None:
        super().__init__(settings)
        prefix, numbers = secrets.token_hex(12).upper(), itertools.count(1)
        options = producer or ProducerSettings()
        self._room, self._changed = Room(options), threading.Condition()
        self._workers: ThreadPoolExecutor | None = None
        self._sending = Sending(
            self._cluster,
            options,
            group,
            lambda: f"{prefix}{next(numbers) & 0xFFFFFFFF:08X}",
        )

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        queue: Queue | None = None,
        order_key: str | None = None,
        delay_level: int | None = None,
        deliver_at_ms: int | None = None,
    ) -> SendReceipt:
        """Send one record, to `queue` or to the topic's queues in turn. The application defines
        `flag`.

        Records of one `order_key` go to one queue while the topic keeps its queues, the one that
        Java's producers choose by hash. A `delay_level` of 1 to 18 delivers the record after that
        level's time (1 s to 2 h with default options), `deliver_at_ms` at a time since the epoch,
        by the timer of 5.x brokers. Raises `errors.UnknownTopic`, `errors.ConfigError` (too large,
        not writable, no timer), and `errors.NetworkError` if the record may have been stored.
        """
        place = Place(order_key, delay_level, deliver_at_ms)
        message = outgoing(body, tags, keys, properties, flag)
        return self._driver.run(self._sending.send(topic, message, queue, place))

    def send_async(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        queue: Queue | None = None,
        order_key: str | None = None,
        delay_level: int | None = None,
        deliver_at_ms: int | None = None,
        timeout_ms: int = 30_000,
    ) -> Future[SendReceipt]:
        """Send one record in the background, as `send` sends one, and return its future receipt.

        Waits up to `timeout_ms` while `max_in_flight` records or `max_in_flight_bytes` bytes are
        under way; then raises `errors.TooManyInFlight`, and the record is not sent. Records under
        way are stored in any order. Errors of the send itself are in the future.
        """
        place = Place(order_key, delay_level, deliver_at_ms)
        message = outgoing(body, tags, keys, properties, flag)
        size = len(body)
        with self._changed:
            if not self._changed.wait_for(lambda: self._room.has(size), timeout_ms / 1000):
                raise no_room(self._room, timeout_ms)
            if self._workers is None:
                self._workers = ThreadPoolExecutor(_WORKERS, "rocketmq-producer")
            future = self._workers.submit(
                self._driver.run, self._sending.send(topic, message, queue, place)
            )
            self._room.take(size)
        future.add_done_callback(lambda _: self._give(size))
        return future

    def flush(self, timeout_ms: int | None = None) -> bool:
        """Wait until no record of `send_async` is under way; return False if `timeout_ms` was too
        short (None: no limit)."""
        seconds = None if timeout_ms is None else timeout_ms / 1000
        with self._changed:
            return self._changed.wait_for(lambda: not self._room.records, seconds)

    def close(self) -> None:
        """Wait for the records under way, then close all connections. Safe to call twice."""
        if self._workers is not None:
            self._workers.shutdown()
        super().close()

    def _give(self, size: int) -> None:
        with self._changed:
            self._room.give(size)
            self._changed.notify_all()

    def reply(
        self,
        request: Message,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Reply to a record that a requester has sent: its broker passes the reply on. Raises
        `errors.ConfigError` for a record that is no request, and `errors.BrokerFailure` if the
        requester is gone."""
        message = outgoing(body, tags, keys, properties)
        self._driver.run(self._sending.send_reply(request, message))

    def send_batch(
        self, topic: str, messages: Sequence[OutgoingMessage], *, queue: Queue | None = None
    ) -> list[SendReceipt]:
        """Send records together: all are stored one after another in one queue, or none is."""
        return self._driver.run(self._sending.send_batch(topic, messages, queue))

    def send_many(
        self, topic: str, messages: Iterable[OutgoingMessage], *, queue: Queue | None = None
    ) -> Iterator[list[SendReceipt]]:
        """Send any number of records in batches that brokers take (`max_message_bytes`); yield the
        receipts of each batch when it is stored. A batch is stored as a whole or not at all."""
        for batch in self._sending.in_batches(messages):
            yield self._driver.run(self._sending.send_batch(topic, batch, queue))

    def send_one_way(
        self, topic: str, message: OutgoingMessage, *, queue: Queue | None = None
    ) -> None:
        """Send one record without a receipt: a loss is not reported."""
        self._driver.run(self._sending.send_one_way(topic, message, queue))
