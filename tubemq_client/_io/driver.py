"""Runs conversations on blocking connections: the blocking half of the shells.

One `BlockingDriver` per client object; it owns a connection per address and performs effects in the
caller's thread. Several threads may run conversations on one driver at the same time. When to open
and close connections is decided in `_core.connections`. `asyncio_driver` is its twin.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tubemq_client import errors
from tubemq_client._core.connections import ConnectionRules
from tubemq_client._core.effects import (
    Await,
    AwaitAll,
    Call,
    Now,
    Post,
    PostAll,
    Sleep,
    Ticket,
    WallNow,
    drive,
    result_of,
)
from tubemq_client._io.blocking import BlockingConnection, connect
from tubemq_client._wire.envelope import decode_response, encode_request

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tubemq_client._core.effects import Conversation, Effect
    from tubemq_client._wire.methods import Method
    from tubemq_client.model import Address, ClientSettings

__all__ = ["BlockingDriver"]

T = TypeVar("T")

_QUIET_MS = 100
"""After so long without traffic a connection is looked at before it is used again."""


@dataclass(frozen=True, slots=True)
class _InFlight:
    connection: BlockingConnection
    serial: int
    deadline: float


@dataclass(slots=True)
class _Peer:
    """An address: whoever holds `lock` connects, the others wait and share what comes of it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: BlockingConnection | None = None


class BlockingDriver:
    """Performs effects. `close()` closes every connection and fails what is in flight."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._timeout_s = settings.rpc_timeout_ms / 1000
        self._lock = threading.Lock()
        self._peers: dict[Address, _Peer] = {}
        self._rules = ConnectionRules.of(settings)
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
    ) -> Iterator[Any]:
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
            with self._lock:
                self._closed.set()
                peers, self._peers = self._peers, {}
            for peer in peers.values():
                if peer.connection is not None:
                    peer.connection.close()

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
                flight.connection.forget(flight.serial)

    def _perform(self, effect: Effect, tickets: dict[int, _InFlight]) -> Any:
        if isinstance(effect, Post):
            flight = self._post(effect.address, effect.method, effect.request)
            tickets[id(flight)] = flight
            return Ticket(effect.address, effect.method, flight)
        if isinstance(effect, Await):
            tickets.pop(id(effect.ticket.handle), None)
            return self._receive(effect.ticket.handle, effect.ticket.method)
        if isinstance(effect, PostAll | AwaitAll):
            return self._perform_all(effect, tickets)
        if isinstance(effect, Call):
            return self._receive(
                self._post(effect.address, effect.method, effect.request), effect.method
            )
        if isinstance(effect, Sleep):
            # Closing the driver wakes whoever sleeps; its next request is refused.
            self._closed.wait(effect.ms / 1000)
            return None
        if isinstance(effect, Now | WallNow):
            return _now_ms() if isinstance(effect, Now) else time.time_ns() // 1_000_000
        raise TypeError(f"unknown effect {effect!r}")

    def _post(self, address: Address, method: Method, request: Any) -> _InFlight:
        connection = self._connection(address)
        deadline = time.monotonic() + self._timeout_s
        serial = connection.post(
            lambda serial: encode_request(serial, method, request, self._settings.rpc_timeout_ms),
            self._timeout_s,
        )
        return _InFlight(connection, serial, deadline)

    def _perform_all(self, effect: PostAll | AwaitAll, tickets: dict[int, _InFlight]) -> list[Any]:
        if isinstance(effect, AwaitAll):
            return [self._receive_or_error(ticket, tickets) for ticket in effect.tickets]
        flights = self._post_all(effect)
        tickets.update((id(flight), flight) for flight in flights)
        return [Ticket(effect.address, effect.method, flight) for flight in flights]

    def _receive_or_error(self, ticket: Ticket, tickets: dict[int, _InFlight]) -> Any:
        tickets.pop(id(ticket.handle), None)
        try:
            return self._receive(ticket.handle, ticket.method)
        except errors.TubeMQError as error:
            return error

    def _post_all(self, effect: PostAll) -> list[_InFlight]:
        connection = self._connection(effect.address)
        deadline = time.monotonic() + self._timeout_s
        method, timeout_ms = effect.method, self._settings.rpc_timeout_ms
        serials = connection.post_all(
            lambda serial, request: encode_request(serial, method, request, timeout_ms),
            effect.requests,
            self._timeout_s,
        )
        return [_InFlight(connection, serial, deadline) for serial in serials]

    def _receive(self, flight: _InFlight, method: Method) -> Any:
        name = flight.connection.name
        try:
            payload = flight.connection.wait(flight.serial, flight.deadline)
        except errors.RpcTimeout as error:
            raise errors.RpcTimeout(
                f"{name}: no answer to {method.name} within {self._settings.rpc_timeout_ms} ms "
                f"(option rpc_timeout_ms)"
            ) from error
        return decode_response(payload, method, f"{method.name} at {name}")

    def _connection(self, address: Address) -> BlockingConnection:
        now = _now_ms()
        with self._lock:
            self._raise_if_closed()
            peer = self._peers.setdefault(address, _Peer())
            sweep = list(self._peers.values()) if self._rules.sweep_due(now) else []
        for other in sweep:
            if other is not peer and other.lock.acquire(blocking=False):
                self._drop_idle(other, now)
                other.lock.release()
        with peer.lock:
            self._drop_idle(peer, now)
            self._drop_hung_up(peer, now)
            if peer.connection is None or not peer.connection.usable:
                peer.connection = self._connect(address)
            connection = peer.connection
            connection.used_at = time.monotonic()  # before the lock is free: no longer idle
        if self._closed.is_set():
            connection.close()  # it was opened while the driver was being closed
        return connection

    def _drop_idle(self, peer: _Peer, now: int) -> None:
        found = peer.connection
        if found and self._rules.is_idle(round(found.used_at * 1000), found.in_flight, now):
            peer.connection = None
            found.close()

    def _drop_hung_up(self, peer: _Peer, now: int) -> None:
        """An event loop hears at once when a peer hangs up; here nobody listens between calls."""
        found = peer.connection
        quiet = found and found.in_flight == 0 and now - found.used_at * 1000 > _QUIET_MS
        if found and quiet and found.hung_up():
            peer.connection = None
            found.close()

    def _connect(self, address: Address) -> BlockingConnection:
        self._closed.wait(self._rules.wait_ms(address, _now_ms()) / 1000)
        self._raise_if_closed()
        try:
            connection = connect(address, self._settings)
        except errors.ConnectError:
            chance = random.random()  # noqa: S311 - spreads attempts, guards nothing
            self._rules.failed(address, _now_ms(), chance)
            raise
        self._rules.opened(address)
        return connection

    def _raise_if_closed(self) -> None:
        if self._closed.is_set():
            raise errors.ClosedError("the client is closed")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
