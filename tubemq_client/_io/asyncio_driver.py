"""Runs conversations on an event loop: the asyncio half of the shells.

One `AsyncDriver` per client object, on connections of its own pool or of one that clients share.
Any number of tasks of one loop may run conversations on it at the same time. `driver` is its twin;
what differs is that a task can be cancelled anywhere, so what must happen last is shielded,
bounded, and over before `close()` returns.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from tubemq_client import errors
from tubemq_client._core.effects import (
    Await,
    AwaitAll,
    Call,
    Connect,
    Deliver,
    Forget,
    LookUp,
    Now,
    Post,
    PostAll,
    Reach,
    Sleep,
    Ticket,
    WallNow,
)
from tubemq_client._io.asyncio_pool import AsyncPool
from tubemq_client._io.replies import LATE_GRACE_S, explained, read_replies
from tubemq_client._wire.codec import TUBEMQ

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from tubemq_client._core.effects import Conversation, Effect, Method
    from tubemq_client._io.asyncio_connection import AsyncConnection
    from tubemq_client._io.codec import Codec
    from tubemq_client.model import Address, ClientSettings

__all__ = ["AsyncDriver"]

T = TypeVar("T")


class _InFlight(NamedTuple):
    """What is on the wire for one ticket."""

    connection: AsyncConnection
    serials: Sequence[int]
    deadline: float


@dataclass(frozen=True, slots=True)
class _Finished(Generic[T]):
    """The conversation has returned."""

    value: T


class AsyncDriver:
    """Performs effects. `close()` closes every connection and fails what is in flight.

    With `shared`, connections are that pool's: they stay open, and others may be using them.
    """

    def __init__(
        self,
        settings: ClientSettings,
        shared: AsyncPool | None = None,
        codec: Codec = TUBEMQ,
    ) -> None:
        self._settings = settings
        self._timeout_s = settings.rpc_timeout_ms / 1000
        self._pool = shared or AsyncPool(settings, codec)
        self._codec = self._pool.codec
        self._owns_pool = shared is None
        self._releases: dict[int, Conversation[None]] = {}
        self._last_words: set[asyncio.Task[None]] = set()
        self._to_the_end: set[asyncio.Task[Any]] = set()
        self._closed = asyncio.Event()

    async def run(self, conversation: Conversation[T]) -> T:
        """Run to the end and return its result. Deliveries are not expected here."""
        course = _Course(self, conversation)
        try:
            while not isinstance(step := await course.proceed(), _Finished):
                pass
        finally:
            course.close()
        return step.value

    async def complete(
        self, conversation: Conversation[T], put_back: Callable[[T], object] | None = None
    ) -> T:
        """Like `run`, but what is on the wire is waited for even if the caller is cancelled; a
        result that came too late for the caller is given to `put_back`.

        For requests that change what the next one means: servers work on several at once, so the
        next must not be sent before this one is answered or given up. `close()` cuts it short.
        """
        task = asyncio.create_task(self.run(conversation), name="tubemq-complete")
        self._to_the_end.add(task)
        task.add_done_callback(self._to_the_end.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(lambda task: _drop(task, put_back))
            raise

    async def stream(
        self, conversation: Conversation[None], release: Conversation[None] | None = None
    ) -> AsyncGenerator[Any, None]:
        """Run, yielding every delivered value. However it ends, `release` is run last; if the
        iterator is still open when the driver is closed, then."""
        if release is not None:
            self._releases[id(release)] = release
        course = _Course(self, conversation)
        try:
            while not isinstance(step := await course.proceed(), _Finished):
                yield step.value
        finally:
            course.close()
            if release is not None:
                await self._release(release)

    async def finish(self, conversation: Conversation[None]) -> None:
        """Run what must be said last. Goes on if the caller is cancelled, for as long as one
        connect and one RPC may take; failures are dropped, as servers forget a silent client."""
        task = asyncio.create_task(self._within_bounds(conversation), name="tubemq-last-words")
        self._last_words.add(task)
        task.add_done_callback(self._last_words.discard)
        await asyncio.shield(task)

    async def close(self) -> None:
        """Safe to call twice; when it returns, no socket and no task of this driver is left."""
        try:
            for release in list(self._releases.values()):
                await self._release(release)
            while self._last_words:
                await asyncio.wait(self._last_words)
        finally:
            self._closed.set()
            left = [*self._last_words, *self._to_the_end]
            for task in left:
                task.cancel()
            closing = []
            if self._owns_pool:
                self._pool.abandon()  # now: who is cancelled below may not come to close it
                closing.append(self._pool.close())
            await asyncio.gather(*closing, *left, return_exceptions=True)

    async def _release(self, release: Conversation[None]) -> None:
        """Run it, unless the other of stream and driver did when it ended first."""
        if self._releases.pop(id(release), None) is not None:
            await self.finish(release)

    async def _within_bounds(self, conversation: Conversation[None]) -> None:
        try:
            async with asyncio.timeout(self._timeout_s + self._settings.connect_timeout_ms / 1000):
                await self.run(conversation)
        except (TimeoutError, errors.TubeMQError):
            pass

    # -- effects --------------------------------------------------------------------------------

    async def perform(self, effect: Effect, tickets: dict[int, _InFlight]) -> Any:
        """The answer to an effect. `tickets` holds the conversation's posted requests."""
        if isinstance(effect, Post):
            flight = await self._post(effect.address, effect.method, effect.request)
            tickets[id(flight)] = flight
            return Ticket(effect.address, effect.method, flight)
        if isinstance(effect, Await):
            tickets.pop(id(effect.ticket.handle), None)
            handle, method = effect.ticket.handle, effect.ticket.method
            return await self._receive(handle, method, effect.patience_ms)
        if isinstance(effect, PostAll | AwaitAll):
            return await self._perform_all(effect, tickets)
        if isinstance(effect, Call):
            flight = await self._post(effect.address, effect.method, effect.request)
            return await self._receive(flight, effect.method)
        if isinstance(effect, Now | WallNow):
            return _now_ms() if isinstance(effect, Now) else time.time_ns() // 1_000_000
        return await self._perform_rare(effect)

    async def _post(self, address: Address, method: Method, request: Any) -> _InFlight:
        connection = await self._connection(address)
        deadline = asyncio.get_running_loop().time() + self._patience_s(request)
        serial = await connection.post(
            lambda serial: self._codec.encode(
                serial, method, request, self._settings.rpc_timeout_ms
            ),
            self._timeout_s,
        )
        return _InFlight(connection, (serial,), deadline)

    def _patience_s(self, request: Any) -> float:
        return self._codec.timeout_ms(request, self._settings.rpc_timeout_ms) / 1000

    async def _perform_all(self, effect: PostAll | AwaitAll, tickets: dict[int, _InFlight]) -> Any:
        if isinstance(effect, PostAll):
            flight = await self._post_all(effect)
            tickets[id(flight)] = flight
            return Ticket(effect.address, effect.method, flight)
        replies: list[Any] = []
        grace = asyncio.get_running_loop().time() + LATE_GRACE_S
        for ticket in effect.tickets:
            replies += await self._receive_all(ticket.handle, ticket.method, grace)
            tickets.pop(id(ticket.handle), None)
        return replies

    async def _post_all(self, effect: PostAll) -> _InFlight:
        connection = await self._connection(effect.address)
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        method, timeout_ms = effect.method, self._settings.rpc_timeout_ms
        serials = await connection.post_all(
            lambda serials: self._codec.encode_all(serials, method, effect.requests, timeout_ms),
            len(effect.requests),
            self._timeout_s,
        )
        return _InFlight(connection, serials, deadline)

    async def _receive_all(self, flight: _InFlight, method: Method, grace: float) -> list[Any]:
        deadline = max(flight.deadline, grace)
        found = await flight.connection.wait_all(flight.serials, deadline)
        return read_replies(
            self._codec, found, method, flight.connection.name, self._settings.rpc_timeout_ms
        )

    async def _receive(
        self, flight: _InFlight, method: Method, patience_ms: int | None = None
    ) -> Any:
        name, until = flight.connection.name, flight.deadline
        if patience_ms is not None:
            until = min(until, asyncio.get_running_loop().time() + patience_ms / 1000)
        try:
            payload = await flight.connection.wait(flight.serials[0], flight.deadline, until)
            if payload is None:
                return None
        except errors.RpcTimeout as error:
            raise explained(error, method, name, self._settings.rpc_timeout_ms) from error
        return self._codec.decode(payload, method, f"{method.name} at {name}")

    async def _perform_rare(self, effect: Effect) -> bool | None:
        """Closing the driver wakes whoever sleeps; its next request is refused."""
        if isinstance(effect, Connect):
            self._pool.prepare(effect.addresses)
            return None
        if isinstance(effect, LookUp):
            return await self._pool.look_up(effect.address)
        if isinstance(effect, Reach):
            return await self._pool.reach(effect.address)
        if isinstance(effect, Forget):
            for serial in effect.ticket.handle.serials:
                effect.ticket.handle.connection.forget(serial)
            return None
        if not isinstance(effect, Sleep):
            raise TypeError(f"unknown effect {effect!r}")
        try:
            async with asyncio.timeout(effect.ms / 1000):
                await self._closed.wait()
        except TimeoutError:
            pass
        return None

    async def _connection(self, address: Address) -> AsyncConnection:
        if self._closed.is_set():
            raise errors.ClosedError("the client is closed")
        return await self._pool.connection(address)


class _Course(Generic[T]):
    """One conversation under way: its last answer, and requests on the wire that it may await."""

    def __init__(self, driver: AsyncDriver, conversation: Conversation[T]) -> None:
        self._driver = driver
        self._conversation = conversation
        self._tickets: dict[int, _InFlight] = {}

    async def proceed(self) -> Deliver | _Finished[T]:
        """Go on to the next delivery or to the end."""
        answer: Any = None
        failure: errors.TubeMQError | None = None
        while True:
            try:
                effect = (
                    self._conversation.send(answer)
                    if failure is None
                    else self._conversation.throw(failure)
                )
            except StopIteration as stop:
                return _Finished(stop.value)
            if isinstance(effect, Deliver):
                return effect
            answer = failure = None
            try:
                answer = await self._driver.perform(effect, self._tickets)
            except errors.TubeMQError as error:
                failure = error

    def close(self) -> None:
        self._conversation.close()
        for flight in self._tickets.values():
            for serial in flight.serials:
                flight.connection.forget(serial)


def _drop(task: asyncio.Task[T], put_back: Callable[[T], object] | None) -> None:
    """Nobody waits for this any more; a failure counts as seen."""
    if not task.cancelled() and task.exception() is None and put_back is not None:
        put_back(task.result())


def _now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)
