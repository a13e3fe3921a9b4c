"""Metrics of clients for OpenTelemetry, and through its exporters for Prometheus and others.

The extra `metrics` installs OpenTelemetry's API; the SDK and the exporter are the application's.
`stats`, `connections` and `consumed_offsets` are read whenever the application's metric reader
collects: nothing is counted here, no thread is started and no server is asked. Names follow
OpenTelemetry's semantic conventions for messaging where they exist.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tubemq_client.errors import ClosedError, require_extra
from tubemq_client.model import ConnectionStats, ConsumerStats, ProducerStats

try:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter
except ImportError as error:
    raise require_extra("metrics", error) from error

if TYPE_CHECKING:
    from tubemq_client._io.client_base import ClientBase

__all__ = ["ClientMetrics"]

_TRIES = 3

Attributes = Mapping[str, str | int]
Rows = Iterator[tuple[Attributes, float]]


class _Instrument(NamedTuple):
    """Instrument; `rows` returns its values of a client, each with its attributes."""

    kind: str
    name: str
    unit: str
    about: str
    rows: Callable[[Any], Rows]

    @property
    def of_connections(self) -> bool:
        return self.name.startswith("tubemq.client.")


class ClientMetrics:
    """Observer of clients of either API, from `watch` until `unwatch` or garbage collection.

    Create one per process and `meter_provider` (None: the global one); instruments of the same name
    that are created twice count twice. Connections that clients share (`Session`) are reported
    once, with the attributes of the client that was watched first. Safe for several threads.
    """

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        self._watched: weakref.WeakKeyDictionary[Any, dict[str, str | int]]
        self._watched = weakref.WeakKeyDictionary()
        meter = get_meter("tubemq_client", meter_provider=meter_provider)
        for figure in _INSTRUMENTS:
            make = getattr(meter, f"create_observable_{figure.kind}")
            make(
                figure.name,
                callbacks=[self._observer(figure)],
                unit=figure.unit,
                description=figure.about,
            )

    def watch(self, client: ClientBase, **attributes: str | int) -> None:
        """Report the metrics of `client`, each with `attributes` (a group, a role, …).

        Without any, `tubemq.client.kind` is the name of its class: two clients of one class need
        more, or their metrics are merged.
        """
        own: dict[str, str | int] = {"messaging.system": "tubemq"}
        self._watched[client] = {**own, "tubemq.client.kind": type(client).__name__, **attributes}

    def unwatch(self, client: ClientBase) -> None:
        """Stop reporting the metrics of `client`."""
        self._watched.pop(client, None)

    def _observer(self, figure: _Instrument) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            reported: set[object] = set()
            for client, client_attributes in list(self._watched.items()):
                values = _read(client, figure)
                if figure.of_connections and values:
                    pool_id = client._pool_id  # noqa: SLF001 - of no use to users
                    if pool_id in reported:
                        continue
                    reported.add(pool_id)
                for attributes, value in values:
                    yield Observation(value, {**client_attributes, **attributes})

        return observe


def _read(client: Any, figure: _Instrument) -> list[tuple[Attributes, float]]:
    """Return the current values.

    The reader runs in another thread, and clients of an event loop have no lock that it could take:
    a value that changes during the read is read again.
    """
    for _ in range(_TRIES):
        try:
            return list(figure.rows(client))
        except RuntimeError:
            continue
        except ClosedError:  # the client belongs to the parent process, which reports it
            break
    return []


def _by_server(value: Callable[[ConnectionStats], float | None]) -> Callable[[Any], Rows]:
    def rows(client: Any) -> Rows:
        for address, stats in client.connections.items():
            number = value(stats)
            if number is not None:
                yield {"server.address": address}, number

    return rows


def _of(
    kind: type, values: Callable[[Any], Iterable[tuple[Attributes, float]]]
) -> Callable[[Any], Rows]:
    """Return values from the `stats` of clients whose stats are of this class."""

    def rows(client: Any) -> Rows:
        stats = getattr(client, "stats", None)
        if isinstance(stats, kind):
            yield from values(stats)

    return rows


def _silence_s(stats: ConnectionStats) -> float | None:
    if stats.received_at_ms is None:
        return None
    return max(0.0, time.time() - stats.received_at_ms / 1000)


def _lag(client: Any) -> Rows:
    for partition, offset in getattr(client, "consumed_offsets", {}).items():
        where = {
            "messaging.destination.name": partition.topic,
            "messaging.destination.partition.id": str(partition),
        }
        yield where, offset.lag


def _fetches(stats: ConsumerStats) -> Iterable[tuple[Attributes, float]]:
    for outcome in ("batches", "empty", "limited", "refused", "unanswered"):
        yield {"outcome": outcome}, getattr(stats, outcome)


def _sent(stats: ProducerStats) -> Iterable[tuple[Attributes, float]]:
    return [({"outcome": "stored"}, stats.stored), ({"outcome": "failed"}, stats.failed)]


def _errors(stats: ProducerStats) -> Iterable[tuple[Attributes, float]]:
    return [({"error.type": str(code)}, count) for code, count in stats.errors_by_code.items()]


_NONE: Attributes = {}

_INSTRUMENTS = (
    _Instrument(
        "counter",
        "tubemq.client.requests",
        "{request}",
        "Requests sent to a server.",
        _by_server(lambda stats: stats.requests),
    ),
    _Instrument(
        "counter",
        "tubemq.client.replies",
        "{reply}",
        "Replies received from a server.",
        _by_server(lambda stats: stats.replies),
    ),
    _Instrument(
        "counter",
        "tubemq.client.bytes.sent",
        "By",
        "Bytes sent to a server, before TLS.",
        _by_server(lambda stats: stats.bytes_sent),
    ),
    _Instrument(
        "counter",
        "tubemq.client.bytes.received",
        "By",
        "Bytes received from a server, after TLS.",
        _by_server(lambda stats: stats.bytes_received),
    ),
    _Instrument(
        "counter",
        "tubemq.client.connections.opened",
        "{connection}",
        "Connections opened to a server.",
        _by_server(lambda stats: stats.opened),
    ),
    _Instrument(
        "gauge",
        "tubemq.client.requests.in_flight",
        "{request}",
        "Requests that wait for their reply.",
        _by_server(lambda stats: stats.in_flight),
    ),
    _Instrument(
        "gauge",
        "tubemq.client.silence",
        "s",
        "Time since anything was received from a server.",
        _by_server(_silence_s),
    ),
    _Instrument(
        "counter",
        "messaging.client.consumed.messages",
        "{message}",
        "Records received.",
        _of(ConsumerStats, lambda stats: [(_NONE, stats.records)]),
    ),
    _Instrument(
        "counter",
        "tubemq.consumer.fetches",
        "{request}",
        "Requests for records, by outcome.",
        _of(ConsumerStats, _fetches),
    ),
    _Instrument(
        "gauge",
        "tubemq.consumer.brokers.left_alone",
        "{broker}",
        "Brokers that are not asked now, because they do not answer.",
        _of(ConsumerStats, lambda stats: [(_NONE, len(stats.left_alone))]),
    ),
    _Instrument(
        "gauge",
        "tubemq.consumer.lag",
        "{entry}",
        "Index entries of a held partition that the group has not read.",
        _lag,
    ),
    _Instrument(
        "counter",
        "messaging.client.sent.messages",
        "{message}",
        "Records sent, by outcome.",
        _of(ProducerStats, _sent),
    ),
    _Instrument(
        "counter",
        "tubemq.producer.bytes.stored",
        "By",
        "Bytes of records that have a receipt.",
        _of(ProducerStats, lambda stats: [(_NONE, stats.bytes_stored)]),
    ),
    _Instrument(
        "counter",
        "tubemq.producer.sent_again",
        "{request}",
        "Requests repeated.",
        _of(ProducerStats, lambda stats: [(_NONE, stats.sent_again)]),
    ),
    _Instrument(
        "counter",
        "tubemq.producer.errors",
        "{error}",
        "Refusals and failures by code; 0: no answer or no connection.",
        _of(ProducerStats, _errors),
    ),
    _Instrument(
        "gauge",
        "tubemq.producer.records.in_flight",
        "{message}",
        "Records without a receipt or failure yet.",
        _of(ProducerStats, lambda stats: [(_NONE, stats.in_flight)]),
    ),
    _Instrument(
        "gauge",
        "tubemq.producer.brokers.left_out",
        "{broker}",
        "Brokers that get no records for a while.",
        _of(ProducerStats, lambda stats: [(_NONE, stats.brokers_left_out)]),
    ),
)
