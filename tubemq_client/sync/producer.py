"""The blocking producer: routes from the master, records to brokers, receipts back.

A daemon thread beats for the producer (masters forget a silent one after 30 s); it is started with
the first topic and ends with `close()`, as do the threads that wait for the receipts of
`send_async`, one a broker. A receipt means the broker has the record in memory; a broker crash may
still lose it. `aio.producer` is its twin.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING

from tubemq_client import errors
from tubemq_client._core.leases import HeartbeatSchedule
from tubemq_client._core.publishing import ProducerSession, Record
from tubemq_client._core.send_stats import Tally
from tubemq_client._io.host import signed_ipv4
from tubemq_client._io.lanes import Lanes
from tubemq_client.model import ProducerSettings
from tubemq_client.sync._base import BlockingClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tubemq_client._core.routing import Router
    from tubemq_client.model import (
        ClientSettings,
        Partition,
        ProducerStats,
        SendReceipt,
        SendSummary,
    )

__all__ = ["Producer", "Record"]

_log = logging.getLogger(__name__)

_DEFAULTS = ProducerSettings()

_PROGRESS_EVERY = 50
"""`progress` of `send_all` is called once for so many records."""


class Producer(BlockingClient):
    """Sends records.

    Methods may be called from several threads. A record without partition and key goes to the next
    partition in turn, or to the one `router` chooses; brokers that cannot store are left out for a
    while. What a receipt promises, and what is sent again, is in `docs/producing.md`.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        producer: ProducerSettings = _DEFAULTS,
        router: Router | None = None,
    ) -> None:
        super().__init__(settings)
        self._options = producer
        self._producer = ProducerSession(self._session, self._ids.producer(), producer, router)
        self._sent_address = signed_ipv4(self._session.host)
        self._registered = False
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._beat: threading.Thread | None = None
        self._schedule = HeartbeatSchedule.of(settings)
        self._lanes = Lanes(self._driver, self._producer, producer)

    def publish(self, topic: str) -> list[Partition]:
        """Announce `topic` and learn its writable partitions (empty: none accepts records yet)."""
        with self._lock:
            if not self._registered:
                self._driver.run(self._producer.join(self._settings))
                self._registered = True
            self._driver.run(self._producer.announce(topic))
            self._start_beating()
            return list(self._producer.routes.get(topic, ()))

    def partitions(self, topic: str) -> list[Partition]:
        """The writable partitions of `topic`, publishing it if that was not done."""
        return list(self._producer.routes.get(topic) or self.publish(topic))

    @property
    def stats(self) -> ProducerStats:
        """What was done so far: counts, bytes, errors by code, latencies, brokers left out."""
        detours = self._producer.detours
        return self._producer.stats.snapshot(self._lanes.in_flight, len(detours.brokers))

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

        At most once: only what was certainly not stored is sent again, unless the option
        `retry_unknown` asks for more. Raises `errors.ConfigError` for a record no broker would
        take, `errors.UnknownTopic` for a topic without partitions, `errors.NetworkError` if the
        record may or may not be stored, and what the broker refused with.
        """
        record = Record(body, attributes, stream_id, msg_time, partition, key)
        self._ready(topic)
        return self._driver.run(self._producer.send_one(topic, record, self._sent_address))

    def send_async(
        self, topic: str, record: Record, *, timeout_ms: int = 10_000
    ) -> Future[SendReceipt]:
        """Put a record on its way; the future gets its receipt, or the error `send` would raise.

        Blocks up to `timeout_ms` while as many records are under way as the options allow
        (`max_in_flight`, `max_in_flight_per_broker`), then raises `errors.TooManyInFlight`, the
        record not being sent. Receipts come in any order. Callbacks of the future run where
        receipts are received: they must not block. Raises like `send` for what is wrong before
        the record is on its way.
        """
        self._ready(topic)
        return self._lanes.send(topic, record, self._sent_address, timeout_ms)

    def flush(self, *, timeout_ms: int | None = None) -> None:
        """Wait until no record of `send_async` is under way.

        Raises `errors.TooManyInFlight` if some still are after `timeout_ms`, and
        `errors.LocalError` in a callback of a future, which would wait for itself. Failures are
        told by the futures only.
        """
        self._lanes.flush(timeout_ms)

    def send_many(
        self, topic: str, records: Iterable[Record], *, in_flight: int | None = None
    ) -> Iterator[SendReceipt]:
        """Send records with up to `in_flight` unanswered, yielding receipts in their order.

        The default of `in_flight` is an option. Records are taken from the iterable only as the
        window allows; those of a list or tuple are put on the wire in groups, which is faster.
        Raises on the first record that fails; receipts yielded before stand, records in flight then
        are unknown.
        """
        self._ready(topic)
        window = in_flight or self._options.in_flight
        sending = self._producer.send_all(topic, records, self._sent_address, window)
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

        `progress` is called with the sum so far, now and then and at the end. Up to `max_failures`
        records may fail and are listed in the summary; the next failure is raised. A record that no
        broker would take is a failure too.
        """
        self._ready(topic)
        tally = Tally()
        window = in_flight or self._options.in_flight
        sending = self._producer.send_each(topic, records, self._sent_address, window)
        for outcome in chain.from_iterable(self._driver.stream(sending)):
            tally.add(*outcome)
            if len(tally.failures) > max_failures:
                raise tally.failures[-1]
            if progress is not None and tally.count % _PROGRESS_EVERY == 0:
                progress(tally.summary())
        if progress is not None:
            progress(tally.summary())
        return tally.summary()

    def close(self) -> None:
        """Wait for receipts under way, stop beating, tell the master, close connections."""
        self._lanes.close()
        self._stop.set()
        if self._beat is not None:
            self._beat.join()
            self._beat = None
        if self._registered:
            self._registered = False
            try:
                self._driver.run(self._producer.close())
            except (errors.NetworkError, errors.RemoteException, errors.ClosedError):
                pass  # the master forgets a silent producer by itself
        super().close()

    def _ready(self, topic: str) -> None:
        if not self._producer.routes.get(topic):
            self.publish(topic)

    def _start_beating(self) -> None:
        if self._beat is None:
            self._schedule.succeeded(_now_ms())
            self._beat = threading.Thread(
                target=self._keep_beating, name="tubemq-producer-heartbeat", daemon=True
            )
            self._beat.start()

    def _keep_beating(self) -> None:
        while not self._stop.wait(self._schedule.wait_ms(_now_ms()) / 1000):
            try:
                with self._lock:
                    self._driver.run(self._producer.heartbeat())
            except errors.TubeMQError:
                self._schedule.failed(_now_ms())  # routes stay as they are
            except Exception:  # noqa: BLE001 - without beats the master forgets the producer
                _log.exception("a heartbeat of producer %s failed", self._producer.client_id)
                self._schedule.failed(_now_ms())
            else:
                self._schedule.succeeded(_now_ms())


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
