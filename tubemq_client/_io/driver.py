"""Runs conversations on blocking connections: the blocking half of the shells.

One `BlockingDriver` per client object; it performs effects in the caller's thread, on connections
of its own pool or of one that clients share, in the protocol of the pool's codec. Several threads
may run conversations on one driver at the same time. `asyncio_driver` is its twin.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tubemq_client import errors
from tubemq_client._core.effects import (
    Await,
    AwaitAll,
    Call,
    Connect,
    Forget,
    LookUp,
    Now,
    Post,
    PostAll,
    Reach,
    Sleep,
    Ticket,
    WallNow,
    drive,
    result_of,
)
from tubemq_client._io.pool import BlockingPool
from tubemq_client._io.replies import LATE_GRACE_S, explained, read_replies
from tubemq_client._wire.codec import TUBEMQ

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from tubemq_client._core.effects import Conversation, Effect, Method
    from tubemq_client._io.blocking import BlockingConnection
    from tubemq_client._io.codec import Codec
    from tubemq_client.model import Address, ClientSettings

__all__ = ["BlockingDriver"]

T = TypeVar("T")

_SAME_TIME_S = 0.05
"""Deadlines that differ by less are as good as one."""


class _InFlight(NamedTuple):
    """What is on the wire for one ticket."""

    connection: BlockingConnection
    serials: Sequence[int]
    deadline: float


class BlockingDriver:
    """Performs effects. `close()` closes every connection and fails what is in flight.

    With `shared`, connections are that pool's: they stay open, and others may be using them.
    """

    def __init__(
        self,
        settings: ClientSettings,
        shared: BlockingPool | None = None,
        codec: Codec = TUBEMQ,
    ) -> None:
        self._settings = settings
        self._timeout_s = settings.rpc_timeout_ms / 1000
        self._pool = shared or BlockingPool(settings, codec)
        self._codec = self._pool.codec
        self._owns_pool = shared is None
        self._releases: dict[int, Conversation[None]] = {}
        self._closed = threading.Event()

    def run(self, conversation: Conversation[T]) -> T:
        """Run to the end and return its result. Deliveries are not expected here."""
        return result_of(self._drive(conversation))

    def start(self, conversation: Conversation[T]) -> T:
        """Like `run`, for requests whose replies another conversation will await."""
        return result_of(drive(conversation, lambda effect: self._perform(effect, {})))

    def stream(
        self, conversation: Conversation[None], release: Conversation[None] | None = None
    ) -> Generator[Any, None, None]:
        """Run, yielding every delivered value. However it ends, `release` is run last; if the
        iterator is still open when the driver is closed, then."""
        if release is not None:
            self._releases[id(release)] = release
        try:
            yield from self._drive(conversation)
        finally:
            conversation.close()
            if release is not None:
                self._release(release)

    def close(self) -> None:
        try:
            for release in list(self._releases.values()):
                self._release(release)
        finally:
            self._closed.set()
            if self._owns_pool:
                self._pool.close()

    def _release(self, release: Conversation[None]) -> None:
        """Run it, unless the other of stream and driver did when it ended first."""
        if self._releases.pop(id(release), None) is not None and not self._closed.is_set():
            self.run(release)

    def _drive(self, conversation: Conversation[T]) -> Generator[Any, None, T]:
        tickets: dict[int, _InFlight] = {}
        try:
            return (yield from drive(conversation, lambda effect: self._perform(effect, tickets)))
        finally:
            for flight in tickets.values():
                for serial in flight.serials:
                    flight.connection.forget(serial)

    def _perform(self, effect: Effect, tickets: dict[int, _InFlight]) -> Any:
        if isinstance(effect, Now):
            return _now_ms()
        if isinstance(effect, Post):
            flight = self._post(effect.address, effect.method, effect.request)
            tickets[id(flight)] = flight
            return Ticket(effect.address, effect.method, flight)
        if isinstance(effect, Await):
            tickets.pop(id(effect.ticket.handle), None)
            return self._receive(effect.ticket.handle, effect.ticket.method, effect.patience_ms)
        if isinstance(effect, PostAll | AwaitAll):
            return self._perform_all(effect, tickets)
        if isinstance(effect, Call):
            return self._receive(
                self._post(effect.address, effect.method, effect.request), effect.method
            )
        return self._perform_rare(effect)

    def _perform_rare(self, effect: Effect) -> int | bool | None:
        if isinstance(effect, Sleep):
            # Closing the driver wakes whoever sleeps; its next request is refused.
            self._closed.wait(effect.ms / 1000)
            return None
        if isinstance(effect, Connect):
            self._pool.prepare(effect.addresses)
            return None
        if isinstance(effect, LookUp | Reach):
            ask = self._pool.look_up if isinstance(effect, LookUp) else self._pool.reach
            return ask(effect.address)
        if isinstance(effect, WallNow):
            return time.time_ns() // 1_000_000
        if isinstance(effect, Forget):
            flight = effect.ticket.handle
            for serial in flight.serials:
                flight.connection.forget(serial)
            return None
        raise TypeError(f"unknown effect {effect!r}")

    def _post(self, address: Address, method: Method, request: Any) -> _InFlight:
        connection = self._connection(address)
        deadline = time.monotonic() + self._patience_s(request)
        serial = connection.post(
            lambda serial: self._codec.encode(
                serial, method, request, self._settings.rpc_timeout_ms
            ),
            self._timeout_s,
        )
        return _InFlight(connection, (serial,), deadline)

    def _patience_s(self, request: Any) -> float:
        return self._codec.timeout_ms(request, self._settings.rpc_timeout_ms) / 1000

    def _perform_all(self, effect: PostAll | AwaitAll, tickets: dict[int, _InFlight]) -> Any:
        if isinstance(effect, PostAll):
            flight = self._post_all(effect)
            tickets[id(flight)] = flight
            return Ticket(effect.address, effect.method, flight)
        replies: list[Any] = []
        grace = time.monotonic() + LATE_GRACE_S
        for flight, method in _merged(effect.tickets):
            replies += self._receive_all(flight, method, grace)
        for ticket in effect.tickets:
            tickets.pop(id(ticket.handle), None)
        return replies

    def _post_all(self, effect: PostAll) -> _InFlight:
        connection = self._connection(effect.address)
        deadline = time.monotonic() + self._timeout_s
        method, timeout_ms = effect.method, self._settings.rpc_timeout_ms
        serials = connection.post_all(
            lambda serials: self._codec.encode_all(serials, method, effect.requests, timeout_ms),
            len(effect.requests),
            self._timeout_s,
            soon=effect.soon,
        )
        return _InFlight(connection, serials, deadline)

    def _receive_all(self, flight: _InFlight, method: Method, grace: float) -> list[Any]:
        found = flight.connection.wait_all(flight.serials, max(flight.deadline, grace))
        return read_replies(
            self._codec, found, method, flight.connection.name, self._settings.rpc_timeout_ms
        )

    def _receive(self, flight: _InFlight, method: Method, patience_ms: int | None = None) -> Any:
        name, until = flight.connection.name, flight.deadline
        if patience_ms is not None:
            until = min(until, time.monotonic() + patience_ms / 1000)
        try:
            payload = flight.connection.wait(flight.serials[0], flight.deadline, until)
            if payload is None:
                return None
        except errors.RpcTimeout as error:
            raise explained(error, method, name, self._settings.rpc_timeout_ms) from error
        return self._codec.decode(payload, method, f"{method.name} at {name}")

    def _connection(self, address: Address) -> BlockingConnection:
        if self._closed.is_set():
            raise errors.ClosedError("the client is closed")
        return self._pool.connection(address)


def _merged(tickets: Sequence[Ticket]) -> list[tuple[_InFlight, Method]]:
    """The same requests in fewer pieces, where one connection is to answer at nearly one time."""
    found: list[tuple[_InFlight, Method]] = []
    began = 0.0
    for _, method, flight in tickets:
        if found and flight.deadline < began + _SAME_TIME_S:
            last, of = found[-1]
            if flight.connection is last.connection and method is of:
                assert isinstance(last.serials, list), "made below"
                last.serials.extend(flight.serials)
                found[-1] = (_InFlight(last.connection, last.serials, flight.deadline), of)
                continue
        began = flight.deadline
        found.append((_InFlight(flight.connection, list(flight.serials), began), method))
    return found


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
