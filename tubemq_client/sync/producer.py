"""The blocking producer: routes from the master, records to brokers, receipts back.

A daemon thread beats for the producer (masters forget a silent one after 30 s); it is started with
the first topic and ends with `close()`. A receipt means the broker has the record in memory; a
broker crash may still lose it. `aio.producer` is its twin.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tubemq_client import errors
from tubemq_client._core.publishing import ProducerSession, Record
from tubemq_client._io.host import signed_ipv4
from tubemq_client.sync._base import BlockingClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tubemq_client.model import ClientSettings, Partition, SendReceipt

__all__ = ["Producer", "Record"]


class Producer(BlockingClient):
    """Sends records.

    Methods may be called from several threads.
    """

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self._producer = ProducerSession(self._session, self._ids.producer())
        self._sent_address = signed_ipv4(self._session.host)
        self._registered = False
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._beat: threading.Thread | None = None

    def publish(self, topic: str) -> list[Partition]:
        """Announce `topic` and learn its writable partitions (empty: none accepts records yet)."""
        with self._lock:
            if not self._registered:
                self._driver.run(self._producer.register())
                self._registered = True
            self._producer.topics.add(topic)
            self._driver.run(self._producer.heartbeat())
            self._start_beating()
            return list(self._producer.routes.get(topic, ()))

    def partitions(self, topic: str) -> list[Partition]:
        """The writable partitions of `topic`, publishing it if that was not done."""
        return list(self._producer.routes.get(topic) or self.publish(topic))

    def send(
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
        self.partitions(topic)
        return self._driver.run(self._producer.send_one(topic, record, self._sent_address))

    def send_many(
        self, topic: str, records: Iterable[Record], *, in_flight: int = 64
    ) -> Iterator[SendReceipt]:
        """Send records with up to `in_flight` unanswered, yielding receipts in their order.

        Records are taken from the iterable only as the window allows. Raises on the first record
        that fails; receipts yielded before stand, records in flight then are unknown.
        """
        self.partitions(topic)
        yield from self._driver.stream(
            self._producer.send_all(topic, records, self._sent_address, in_flight)
        )

    def close(self) -> None:
        """Stop beating, tell the master, close connections."""
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

    def _start_beating(self) -> None:
        if self._beat is None:
            self._beat = threading.Thread(
                target=self._keep_beating, name="tubemq-producer-heartbeat", daemon=True
            )
            self._beat.start()

    def _keep_beating(self) -> None:
        period_s = self._settings.heartbeat_period_ms / 1000
        while not self._stop.wait(period_s):
            try:
                with self._lock:
                    self._driver.run(self._producer.heartbeat())
            except errors.TubeMQError:
                continue  # routes stay as they are; the next beat tries again
