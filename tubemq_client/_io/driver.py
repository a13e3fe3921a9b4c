"""Driver that runs conversations on blocking connections, for the blocking API.

One `BlockingDriver` per client object; it performs effects in the caller's thread, on connections
of its private pool or of a shared one, in the protocol of the pool's codec. Several
threads may run conversations on one driver at the same time. `asyncio_driver` is its counterpart.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from tubemq_client import errors
from tubemq_client._core.effects import (
    Await,
    AwaitAll,
    AwaitAny,
    Call,
    Connect,
    Forget,
    Now,
    Post,
    PostAll,
    Reach,
    Sleep,
    VerifyPeer,
    WallClock,
    drive,
    run_to_end,
)
from tubemq_client._io.host import epoch_ms, now_ms
from tubemq_client._io.pool import BlockingPool
from tubemq_client._io.replies import LATE_GRACE_S
from tubemq_client._io.requests import (
    SENT,
    InFlight,
    Requests,
    Tickets,
    answered,
    merged,
    serials_on,
)
from tubemq_client._wire.codec import TUBEMQ

if TYPE_CHECKING:
    from collections.abc import Generator

    from tubemq_client._core.effects import Conversation, Effect, Method, Ticket
    from tubemq_client._io.blocking import BlockingConnection
    from tubemq_client._io.codec import Codec
    from tubemq_client.model import Address, ClientSettings

__all__ = ["BlockingDriver"]

T = TypeVar("T")


class BlockingDriver(Requests[BlockingPool]):
    """Driver that performs effects. `close()` closes every connection and fails requests in flight.

    With `shared`, connections are that pool's: they stay open, and other clients may use them.
    """

    def __init__(
        self, settings: ClientSettings, shared: BlockingPool | None = None, codec: Codec = TUBEMQ
    ) -> None:
        super().__init__(settings, shared, BlockingPool, codec)
        self._closed = threading.Event()

    def run(self, conversation: Conversation[T]) -> T:
        """Run a conversation to its end and return its result; it must not deliver values."""
        tickets = Tickets()
        try:
            return run_to_end(conversation, lambda effect: self._perform(effect, tickets))
        finally:
            tickets.forget()

    def start(self, conversation: Conversation[T]) -> T:
        """Run like `run`, for requests whose replies another conversation will await."""
        return run_to_end(conversation, lambda effect: self._perform(effect, Tickets()))

    def stream(
        self, conversation: Conversation[None], release: Conversation[None] | None = None
    ) -> Generator[Any, None, None]:
        """Run a conversation and yield the values that it delivers.

        `release` runs last: when the iterator ends or is closed, else when the driver is closed.
        """
        if release is not None:
            self._releases[id(release)] = release
        tickets = Tickets()
        try:
            yield from drive(conversation, lambda effect: self._perform(effect, tickets))
        finally:
            tickets.forget()
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
        """Run `release`, unless the stream or the driver has run it already."""
        if self._releases.pop(id(release), None) is not None and not self._closed.is_set():
            self.run(release)

    def _perform(self, effect: Effect, tickets: Tickets) -> Any:
        if isinstance(effect, Now):
            return now_ms()
        if isinstance(effect, SENT):
            return tickets.of(effect, self._post(effect))
        if isinstance(effect, Await):
            flight = tickets.take(effect.ticket)
            return self._receive(flight, effect.ticket.method, effect.patience_ms)
        if isinstance(effect, AwaitAll):
            return self._receive_all(effect, tickets)
        if isinstance(effect, Call):
            return self._receive(self._post(effect), effect.method)
        if isinstance(effect, AwaitAny):
            return self._receive_any(effect)
        return self._perform_rare(effect)

    def _perform_rare(self, effect: Effect) -> int | bool | None:
        if isinstance(effect, VerifyPeer | Reach):
            ask = self._pool.look_up if isinstance(effect, VerifyPeer) else self._pool.reach
            return ask(effect.address)
        if isinstance(effect, WallClock):
            return epoch_ms()
        if isinstance(effect, Sleep):
            # Closing the driver wakes a sleeping caller, whose next request is refused.
            self._closed.wait(effect.ms / 1000)
        elif isinstance(effect, Connect):
            self._pool.prepare(effect.addresses)
        elif isinstance(effect, Forget):
            effect.ticket.handle.forget()
        else:
            raise TypeError(f"unknown effect {effect!r}")
        return None

    def _post(self, effect: Post | PostAll | Call) -> InFlight:
        connection = self._connection(effect.address)
        if isinstance(effect, PostAll):
            deadline = time.monotonic() + self._timeout_s
            encode, count = self._encoder_of(effect), len(effect.requests)
            serials = connection.post_all(encode, count, self._timeout_s, soon=effect.soon)
            return InFlight(connection, serials, deadline)
        deadline = time.monotonic() + self._patience_s(effect.request)
        encode_one = self._encoder(effect.method, effect.request)
        return InFlight(connection, (connection.post(encode_one, self._timeout_s),), deadline)

    def _receive_all(self, effect: AwaitAll, tickets: Tickets) -> list[Any]:
        replies: list[Any] = []
        grace = time.monotonic() + LATE_GRACE_S
        for flight, method in merged(effect.tickets):
            outcomes = flight.connection.wait_all(flight.serials, max(flight.deadline, grace))
            replies += self._decoded_all(outcomes, method, flight.connection)
        for ticket in effect.tickets:
            tickets.take(ticket)
        return replies

    def _receive_any(self, effect: AwaitAny) -> list[Ticket]:
        over = time.monotonic() + effect.patience_ms / 1000
        if not (ready := answered(effect.tickets, time.monotonic())):
            connection = self._connection(effect.address)
            connection.wait_any(serials_on(connection, effect.tickets), over)
            ready = answered(effect.tickets, time.monotonic())
        return ready

    def _receive(self, flight: InFlight, method: Method, patience_ms: int | None = None) -> Any:
        connection, until = flight.connection, flight.until(patience_ms, time.monotonic())
        try:
            payload = connection.wait(flight.serials[0], flight.deadline, until)
        except errors.RpcTimeout as error:
            raise self._explained(error, method, connection) from error
        return self._decoded(payload, method, connection)

    def _connection(self, address: Address) -> BlockingConnection:
        if self._closed.is_set():
            raise errors.ClosedError("the client is closed")
        return self._pool.connection(address)
