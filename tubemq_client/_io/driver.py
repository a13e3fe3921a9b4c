"""Runs conversations on blocking connections: the blocking half of the shells.

One `BlockingDriver` per client object; it owns a connection per address and performs effects in the
caller's thread. Several threads may run conversations on one driver at the same time.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tubemq_client import errors
from tubemq_client._core.effects import Await, Call, Deliver, Now, Post, Sleep, Ticket
from tubemq_client._io.blocking import BlockingConnection, connect
from tubemq_client._wire.envelope import decode_response, encode_request

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tubemq_client._core.effects import Conversation, Effect
    from tubemq_client._wire.methods import Method
    from tubemq_client.model import Address, ClientSettings

__all__ = ["BlockingDriver"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _InFlight:
    connection: BlockingConnection
    serial: int
    deadline: float


class BlockingDriver:
    """Performs effects. `close()` closes every connection and fails what is in flight."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._timeout_s = settings.rpc_timeout_ms / 1000
        self._lock = threading.Lock()
        self._connections: dict[Address, BlockingConnection] = {}
        self._closed = False

    def run(self, conversation: Conversation[T]) -> T:
        """Run to the end and return its result. Deliveries are not expected here."""
        stream = self._drive(conversation)
        while True:
            try:
                next(stream)
            except StopIteration as stop:
                return cast("T", stop.value)

    def stream(
        self, conversation: Conversation[None], release: Conversation[None] | None = None
    ) -> Iterator[Any]:
        """Run, yielding every delivered value. However it ends, `release` is run last."""
        try:
            yield from self._drive(conversation)
        finally:
            conversation.close()
            if release is not None and not self._closed:
                self.run(release)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    def _drive(self, conversation: Conversation[T]) -> Generator[Any, None, T]:
        tickets: dict[int, _InFlight] = {}
        answer: Any = None
        failure: errors.TubeMQError | None = None
        try:
            while True:
                try:
                    effect = (
                        conversation.send(answer)
                        if failure is None
                        else conversation.throw(failure)
                    )
                except StopIteration as stop:
                    return cast("T", stop.value)
                answer = failure = None
                if isinstance(effect, Deliver):
                    yield effect.value
                    continue
                try:
                    answer = self._perform(effect, tickets)
                except errors.TubeMQError as error:
                    failure = error
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
        if isinstance(effect, Call):
            return self._receive(
                self._post(effect.address, effect.method, effect.request), effect.method
            )
        if isinstance(effect, Sleep):
            time.sleep(effect.ms / 1000)
            return None
        if isinstance(effect, Now):
            return time.monotonic_ns() // 1_000_000
        raise TypeError(f"unknown effect {effect!r}")

    def _post(self, address: Address, method: Method, request: Any) -> _InFlight:
        connection = self._connection(address)
        deadline = time.monotonic() + self._timeout_s
        serial = connection.post(
            lambda serial: encode_request(serial, method, request, self._settings.rpc_timeout_ms),
            self._timeout_s,
        )
        return _InFlight(connection, serial, deadline)

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
        with self._lock:
            if self._closed:
                raise errors.ClosedError("the client is closed")
            connection = self._connections.get(address)
            if connection is None or not connection.usable:
                connection = self._connections[address] = connect(address, self._settings)
            return connection
