"""Blocking producer: routes from the master, records to brokers, receipts back.

A daemon thread sends the producer's heartbeats (masters forget a silent one after 30 s); it starts
with the first topic and ends with `close()`, as do the threads that wait for the receipts of
`send_async`, one per broker. A receipt means the broker has the record in memory; a broker crash
may still lose it. `aio.producer` is its counterpart.
"""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from tubemq_client import errors
from tubemq_client._core.send_batch import Record, as_record
from tubemq_client._io.background_sender import BackgroundSender
from tubemq_client._io.producer_base import ProducerBase, Progress
from tubemq_client._io.thread_sync import Notifier
from tubemq_client.model import ProducerSettings
from tubemq_client.sync._base import BlockingClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Future

    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.routing import Router
    from tubemq_client.model import ClientSettings, Partition, SendReceipt, SendSummary

__all__ = ["Producer", "Record"]

T = TypeVar("T")

_DEFAULTS = ProducerSettings()


class Producer(ProducerBase, BlockingClient):
    """Producer of records.

    Methods may be called from several threads. A record without partition and key goes to the next
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
        self._notifier, self._lock = Notifier(), threading.Lock()
        self._heartbeat: threading.Thread | None = None
        self._sender: BackgroundSender = BackgroundSender(self._driver, self._producer, producer)

    def publish(self, topic: str) -> list[Partition]:
        """Announce `topic` and learn its writable partitions (empty: none accepts records yet)."""
        with self._lock:
            self._driver.run(self._announcing(topic))
            self._start_heartbeats()
            return self._routes(topic)

    def partitions(self, topic: str) -> list[Partition]:
        """Return the writable partitions of `topic`; publish it if that was not done."""
        return self._routes(topic) or self.publish(topic)

    def send(
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
        self._ready(topic)
        return self._driver.run(self._producer.send_one(topic, record, self._sent_address))

    def send_async(
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
        Blocks up to `timeout_ms` while as many records are in flight as the options allow
        (`max_in_flight`, `max_in_flight_per_broker`), then raises `errors.TooManyInFlight` without
        sending the record. Receipts arrive in any order. Callbacks of the future run in the thread
        that receives receipts: they must not block. Raises like `send` for errors before the record
        is sent.
        """
        record = as_record(body, attributes, stream_id, msg_time, partition, key)
        self._ready(topic)
        return self._sender.send(topic, record, self._sent_address, timeout_ms)

    def flush(self, *, timeout_ms: int | None = None) -> None:
        """Wait until no record of `send_async` is in flight.

        Raises `errors.TooManyInFlight` if some still are after `timeout_ms`, and
        `errors.LocalError` in a callback of a future, which would wait for itself. Failures of
        records are reported by their futures only.
        """
        self._sender.flush(timeout_ms)

    def send_many(
        self, topic: str, records: Iterable[Record], *, in_flight: int | None = None
    ) -> Iterator[SendReceipt]:
        """Send records with up to `in_flight` unanswered, yielding receipts in their order.

        The default of `in_flight` is an option. Records are taken from the iterable only as the
        window allows; those of a list or tuple are written in groups, which is faster. Raises on
        the first record that fails; receipts yielded before are valid, the outcome of records in
        flight then is unknown.
        """
        self._ready(topic)
        sending = self._sending_all(topic, records, in_flight)
        with closing(self._driver.stream(sending)) as receipts:
            yield from chain.from_iterable(receipts)

    def send_all(
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
        self._ready(topic)
        sum_so_far = Progress(progress, max_failures)
        for outcomes in self._driver.stream(self._sending_each(topic, records, in_flight)):
            sum_so_far.add(outcomes)
        return sum_so_far.end()

    def close(self) -> None:
        """Wait for outstanding receipts, stop heartbeats, unregister, close connections."""
        self._sender.close()
        try:
            self._closing = True
            self._notifier.notify()
            if (beat := self._heartbeat) is not None and beat.ident is not None:  # started
                beat.join()
                self._heartbeat = None
            if self._registered:
                self._registered = False
                with suppress(errors.TubeMQError):  # the master forgets a silent producer by itself
                    self._driver.run(self._producer.close())
        finally:
            super().close()

    def _ready(self, topic: str) -> None:
        if not self._producer.routes.get(topic):
            self.publish(topic)

    def _start_heartbeats(self) -> None:
        if self._heartbeat is None:
            self._heartbeat = threading.Thread(
                target=lambda: self._play(self._heartbeats()),
                name="tubemq-producer-heartbeat",
                daemon=True,
            )
            self._heartbeat.start()

    def _do(self, conversation: Conversation[T]) -> T:
        with self._lock:
            return super()._do(conversation)
