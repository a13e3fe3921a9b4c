"""What the drivers of both shells share: requests under way, how they are encoded, what came of
them.

Base of `driver.BlockingDriver` and `asyncio_driver.AsyncDriver`. Nothing here waits; deadlines are
seconds of the shell's monotonic clock.
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
    from tubemq_client._io.exchange import Exchange
    from tubemq_client._io.peers import Peers
    from tubemq_client.model import ClientSettings, ConnectionStats

__all__ = ["SENT", "InFlight", "Requests", "Tickets", "merged"]

SENT = (Post, PostAll)
"""Effects that put something on the wire to be awaited later."""

P = TypeVar("P", bound="Peers[Any]")

_SAME_TIME_S = 0.05
"""Deadlines that differ by less are as good as one."""


class InFlight(NamedTuple):
    """What is on the wire for one ticket."""

    connection: Any
    serials: Sequence[int]
    deadline: float

    def until(self, patience_ms: int | None, now: float) -> float:
        """How long to wait for the reply this time."""
        if patience_ms is None:
            return self.deadline
        return min(self.deadline, now + patience_ms / 1000)

    def forget(self) -> None:
        """Nobody waits for it any more."""
        for serial in self.serials:
            self.connection.forget(serial)


class Tickets(dict[int, InFlight]):
    """The requests that a conversation posted and did not await yet."""

    def of(self, effect: Post | PostAll, flight: InFlight) -> Ticket:
        """The ticket of a request that was just sent."""
        self[id(flight)] = flight
        return Ticket(effect.address, effect.method, flight)

    def take(self, ticket: Ticket) -> InFlight:
        """The request of a ticket, which is awaited now."""
        flight: InFlight = ticket.handle
        self.pop(id(flight), None)
        return flight

    def forget(self) -> None:
        """The conversation has ended."""
        for flight in self.values():
            flight.forget()


class Requests(Generic[P]):
    """The settings, pool and codec of a driver. With `shared`, connections are that pool's."""

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
        """What went over each connection of the pool, by address."""
        return self._pool.stats()

    @property
    def wires(self) -> int:
        """Tells one pool from others."""
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
        """What a conversation is told of a reply; None if there is none yet."""
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
    """The same requests in fewer pieces, where one connection is to answer at nearly one time."""
    found: list[tuple[InFlight, Method]] = []
    began = 0.0
    for _, method, flight in tickets:
        if found and flight.deadline < began + _SAME_TIME_S:
            last, of = found[-1]
            if flight.connection is last.connection and method is of:
                assert isinstance(last.serials, list), "made below"
                last.serials.extend(flight.serials)
                found[-1] = (InFlight(last.connection, last.serials, flight.deadline), of)
                continue
        began = flight.deadline
        found.append((InFlight(flight.connection, list(flight.serials), began), method))
    return found
