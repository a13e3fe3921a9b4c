"""Producers without threads and tasks, for both APIs: options, statistics, heartbeats.

Base of `sync.Producer` and `aio.Producer`, and of their background senders. `_core.sending` decides
where records go and which are sent again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tubemq_client import errors
from tubemq_client._core.heartbeat_schedule import HeartbeatSchedule
from tubemq_client._core.send_stats import SendTotals
from tubemq_client._core.sending import ProducerSession
from tubemq_client._io.client_base import ClientBase
from tubemq_client._io.forks import watch
from tubemq_client._io.host import now_ms, signed_ipv4
from tubemq_client._io.routines import Do, Wait
from tubemq_client.model import ProducerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.routing import Router
    from tubemq_client._core.sending import Record
    from tubemq_client._io.routines import Routine
    from tubemq_client.model import (
        ClientSettings,
        Partition,
        ProducerStats,
        SendReceipt,
        SendSummary,
    )

__all__ = ["ProducerBase", "Progress", "SenderBase"]

_log = logging.getLogger(__name__)

_DEFAULTS = ProducerSettings()

_PROGRESS_EVERY = 50
"""`send_all` calls its `progress` once per this many records."""


class ProducerBase(ClientBase):
    """Producer as its user sees it. `_notifier` wakes the heartbeat loop."""

    _sender: Any
    _notifier: Any

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
        self._registered = self._closing = False
        self._schedule = HeartbeatSchedule.of(settings)

    @property
    def stats(self) -> ProducerStats:
        """Statistics so far: counts, bytes, errors by code, latencies, avoided brokers."""
        left_out = len(self._producer.breaker.brokers)
        return self._producer.stats.snapshot(self._sender.in_flight, left_out, self.connections)

    def _routes(self, topic: str) -> list[Partition]:
        return list(self._producer.routes.get(topic, ()))

    def _announcing(self, topic: str) -> Conversation[None]:
        if not self._registered:
            yield from self._producer.join(self._settings)
            self._registered = True
        yield from self._producer.announce(topic)

    def _sending_all(
        self, topic: str, records: Iterable[Record], in_flight: int | None
    ) -> Conversation[None]:
        window = in_flight or self._options.in_flight
        return self._producer.send_all(topic, records, self._sent_address, window)

    def _sending_each(
        self, topic: str, records: Iterable[Record], in_flight: int | None
    ) -> Conversation[None]:
        window = in_flight or self._options.in_flight
        return self._producer.send_each(topic, records, self._sent_address, window)

    def _heartbeats(self) -> Routine[None]:
        self._schedule.succeeded(now_ms())
        while True:
            seen = self._notifier.count
            if self._closing:
                return
            yield Wait(self._notifier, seen, self._schedule.wait_ms(now_ms()) / 1000)
            if not self._closing:
                yield from self._heartbeat_once()

    def _heartbeat_once(self) -> Routine[None]:
        try:
            yield Do(self._producer.heartbeat())
        except errors.TubeMQError:
            self._schedule.failed(now_ms())  # routes stay as they are
        except Exception:  # noqa: BLE001 - without heartbeats the master forgets the producer
            _log.exception("a heartbeat of producer %s failed", self._producer.client_id)
            self._schedule.failed(now_ms())
        else:
            self._schedule.succeeded(now_ms())


class Progress:
    """Totals of a `send_all` so far, reported periodically; too many failures end it."""

    def __init__(self, tell: Callable[[SendSummary], None] | None, max_failures: int) -> None:
        self._tell = tell
        self._max_failures = max_failures
        self._totals = SendTotals()

    def add(self, outcomes: Iterable[tuple[SendReceipt | errors.TubeMQError, int]]) -> None:
        """Count outcomes with the sizes of their bodies.

        Raises the failure that exceeds the limit.
        """
        totals = self._totals
        for outcome in outcomes:
            totals.add(*outcome)
            if len(totals.failures) > self._max_failures:
                raise totals.failures[-1]
            if self._tell is not None and totals.count % _PROGRESS_EVERY == 0:
                self._tell(totals.summary())

    def end(self) -> SendSummary:
        """Report and return the totals; every record has its outcome."""
        if self._tell is not None:
            self._tell(self._totals.summary())
        return self._totals.summary()


class SenderBase:
    """Number of one producer's records in flight in the background, and its limits.

    `_under_way`: futures that no thread of a forked child would complete.
    """

    def __init__(self, driver: Any, session: ProducerSession, settings: ProducerSettings) -> None:
        self._driver = driver
        self._session = session
        self._settings = settings
        self._senders: dict[int, Any] = {}
        self._in_flight = 0
        self._closed = False
        self._under_way: set[Any] = set()
        watch(self)

    @property
    def in_flight(self) -> int:
        """Records without a receipt or failure yet."""
        return self._in_flight

    def _has_room(self, sender: Any) -> bool:
        return self._closed or (
            self._in_flight < self._settings.max_in_flight
            and sender.in_flight < self._settings.max_in_flight_per_broker
        )

    def _count(self, sender: Any, records: int) -> None:
        self._in_flight += records
        sender.in_flight += records

    def _no_room(self, timeout_ms: int) -> errors.TooManyInFlight:
        return errors.TooManyInFlight(
            f"{self._in_flight} records are under way and none was answered within "
            f"{timeout_ms} ms (options max_in_flight, max_in_flight_per_broker)"
        )

    def _not_done(self, timeout_ms: int | None) -> errors.TooManyInFlight:
        return errors.TooManyInFlight(
            f"{self._in_flight} records are still under way after {timeout_ms} ms"
        )

    def _in_callback(self, what: str) -> errors.LocalError:
        return errors.LocalError(
            f"{what}() was called in a callback of send_async, where receipts are received: "
            "it would wait for itself. Call it in another thread"
        )

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise errors.ClosedError("the client is closed")
