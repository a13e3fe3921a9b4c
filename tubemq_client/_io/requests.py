"""Base of the drivers of both APIs: requests in flight, their encoding, their replies.

Base of `driver.BlockingDriver` and `asyncio_driver.AsyncDriver`. Nothing here waits; deadlines are
seconds of the driver's monotonic clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from tubemq_client._core.effects import Post, PostAll, Ticket
from tubemq_client._io.forks import watch
from tubemq_client._io.replies import explained, read_replies

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubemq_client import errors
    from tubemq_client._core.effects import Conversation, Method
    from tubemq_client._io.codec import Codec
    from tubemq_client._io.connection_state import Exchange
    from tubemq_client._io.peers import Peers
    from tubemq_client.model import ClientSettings, ConnectionStats

__all__ = ["SENT", "InFlight", "Requests", "Tickets", "answered", "merged", "serials_on"]

SENT = (Post, PostAll)
"""Effects that send requests whose replies are awaited later."""

P = TypeVar("P", bound="Peers[Any]")

_SAME_TIME_S = 0.05
"""Upper bound of the difference between deadlines that are treated as one."""


class InFlight(NamedTuple):
    """Requests of one ticket that were sent."""

    connection: Any
    serials: Sequence[int]
    deadline: float

    def until(self, patience_ms: int | None, now: float) -> float:
        """Return the time until which to wait for the reply this time."""
        if patience_ms is None:
            return self.deadline
        return min(self.deadline, now + patience_ms / 1000)

    def forget(self) -> None:
        """Drop the replies: no conversation waits for them any more."""
        for serial in self.serials:
            self.connection.forget(serial)


class Tickets(dict[int, InFlight]):
    """Requests that a conversation has posted and not awaited yet."""

    def of(self, effect: Post | PostAll, flight: InFlight) -> Ticket:
        """Return the ticket of a request that was just sent."""
        self[id(flight)] = flight
        return Ticket(effect.address, effect.method, flight)

    def take(self, ticket: Ticket) -> InFlight:
        """Return the request of a ticket, which is awaited now."""
        flight: InFlight = ticket.handle
        self.pop(id(flight), None)
        return flight

    def forget(self) -> None:
        """Drop all requests: the conversation has ended."""
        for flight in self.values():
            flight.forget()


class Requests(Generic[P]):
    """Settings, pool and codec of a driver. With `shared`, connections are that pool's."""

    def __init__(
        self,
        settings: ClientSettings,
        shared: P | None,
        make_pool: Callable[[ClientSettings, Codec], P],
        codec: Codec,
    ) -> None:
        self._settings = settings
        self._timeout_s = settings.rpc_timeout_ms / 1000
        self._pool = shared or make_pool(settings, codec)
        self._codec = self._pool.codec
        self._owns_pool = shared is None
        self._releases: dict[int, Conversation[None]] = {}
        watch(self)

    def connections(self) -> dict[str, ConnectionStats]:
        """Return the traffic of each connection of the pool, by address."""
        return self._pool.stats()

    @property
    def pool_id(self) -> int:
        """Identity of the pool."""
        return id(self._pool)

    def _patience_s(self, request: Any) -> float:
        return self._codec.timeout_ms(request, self._settings.rpc_timeout_ms) / 1000

    def _encoder(self, method: Method, request: Any) -> Callable[[int], bytes]:
        timeout_ms = self._settings.rpc_timeout_ms
        return lambda serial: self._codec.encode(serial, method, request, timeout_ms)

    def _encoder_of(self, effect: PostAll) -> Callable[[Sequence[int]], bytes]:
        method, requests = effect.method, effect.requests
        timeout_ms = self._settings.rpc_timeout_ms
        return lambda serials: self._codec.encode_all(serials, method, requests, timeout_ms)

    def _decoded(self, payload: bytes | None, method: Method, connection: Exchange) -> Any:
        """Return the reply for a conversation; None if there is none yet."""
        if payload is None:
            return None
        return self._codec.decode(payload, method, f"{method.name} at {connection.name}")

    def _decoded_all(
        self, found: Sequence[bytes | errors.TubeMQError], method: Method, connection: Exchange
    ) -> list[Any]:
        timeout_ms = self._settings.rpc_timeout_ms
        return read_replies(self._codec, found, method, connection.name, timeout_ms)

    def _explained(
        self, error: errors.RpcTimeout, method: Method, connection: Exchange
    ) -> errors.TubeMQError:
        return explained(error, method, connection.name, self._settings.rpc_timeout_ms)


def merged(tickets: Sequence[Ticket]) -> list[tuple[InFlight, Method]]:
    """Coalesce tickets of one connection whose deadlines differ by less than 50 ms."""
    groups: list[tuple[InFlight, Method]] = []
    began = 0.0
    for _, method, flight in tickets:
        if groups and flight.deadline < began + _SAME_TIME_S:
            last, last_method = groups[-1]
            if flight.connection is last.connection and method is last_method:
                assert isinstance(last.serials, list), "made below"
                last.serials.extend(flight.serials)
                groups[-1] = (InFlight(last.connection, last.serials, flight.deadline), last_method)
                continue
        began = flight.deadline
        groups.append((InFlight(flight.connection, list(flight.serials), began), method))
    return groups


def answered(tickets: Sequence[Ticket], now: float) -> list[Ticket]:
    """Return the tickets of single requests that were answered, failed or are over."""
    return [
        ticket
        for ticket in tickets
        if ticket.handle.connection.has(ticket.handle.serials[0]) or ticket.handle.deadline <= now
    ]


def serials_on(connection: Exchange, tickets: Sequence[Ticket]) -> list[int]:
    """Return the serial numbers of those single requests that were sent on `connection`."""
    flights = [ticket.handle for ticket in tickets]
    return [flight.serials[0] for flight in flights if flight.connection is connection]
