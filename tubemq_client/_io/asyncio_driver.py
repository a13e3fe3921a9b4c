"""Driver that runs conversations on an event loop, for the asyncio API.

One `AsyncDriver` per client object, on connections of its private pool or of a shared one.
Any number of tasks of one loop may run conversations on it at the same time. `driver` is its
counterpart; the difference is that a task can be cancelled anywhere, so final requests are
shielded, bounded in time, and over before `close()` returns.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tubemq_client import errors
from tubemq_client._core.effects import (
    Await,
    AwaitAll,
    AwaitAny,
    Call,
    Connect,
    Deliver,
    Forget,
    Now,
    Post,
    PostAll,
    Reach,
    Sleep,
    VerifyPeer,
    WallClock,
    advance,
)
from tubemq_client._io.asyncio_pool import AsyncPool
from tubemq_client._io.host import epoch_ms, now_ms
from tubemq_client._io.replies import LATE_GRACE_S
from tubemq_client._io.requests import SENT, InFlight, Requests, Tickets, answered, serials_on
from tubemq_client._wire.codec import TUBEMQ

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from tubemq_client._core.effects import Conversation, Effect, Method, Ticket
    from tubemq_client._io.asyncio_connection import AsyncConnection
    from tubemq_client._io.codec import Codec
    from tubemq_client.model import Address, ClientSettings

__all__ = ["AsyncDriver"]

T = TypeVar("T")


class AsyncDriver(Requests[AsyncPool]):
    """Driver that performs effects. `close()` closes every connection and fails requests in flight.

    With `shared`, connections are that pool's: they stay open, and other clients may use them.
    """

    def __init__(
        self, settings: ClientSettings, shared: AsyncPool | None = None, codec: Codec = TUBEMQ
    ) -> None:
        super().__init__(settings, shared, AsyncPool, codec)
        self._final_tasks: set[asyncio.Task[None]] = set()
        self._shielded_tasks: set[asyncio.Task[Any]] = set()
        self._closed = asyncio.Event()

    async def run(self, conversation: Conversation[T]) -> T:
        """Run a conversation to its end and return its result; it must not deliver values."""
        tickets = Tickets()
        answer: Any = None
        failure: errors.TubeMQError | None = None
        try:
            while True:
                effect = (
                    conversation.send(answer) if failure is None else conversation.throw(failure)
                )
                answer = failure = None
                try:
                    if not isinstance(effect, Deliver):
                        answer = await self.perform(effect, tickets)
                except errors.TubeMQError as error:
                    failure = error
        except StopIteration as stop:
            return cast("T", stop.value)
        finally:
            conversation.close()
            tickets.forget()

    async def complete(
        self, conversation: Conversation[T], put_back: Callable[[T], object] | None = None
    ) -> T:
        """Run like `run`, but wait for requests in flight even if the caller is cancelled.

        A result that is too late for the caller is passed to `put_back`. For requests that change
        the meaning of the next one: servers work on several at once, so the next must not be sent
        before this one is answered or given up. `close()` ends the wait early.
        """
        task = asyncio.create_task(self.run(conversation), name="tubemq-complete")
        self._shielded_tasks.add(task)
        task.add_done_callback(self._shielded_tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(lambda task: _drop(task, put_back))
            raise

    async def stream(
        self, conversation: Conversation[None], release: Conversation[None] | None = None
    ) -> AsyncGenerator[Any, None]:
        """Run a conversation and yield the values that it delivers.

        `release` runs last: when the iterator ends or is closed, else when the driver is closed.
        """
        if release is not None:
            self._releases[id(release)] = release
        running = _RunningConversation(self, conversation)
        try:
            while (step := await running.proceed()) is not None:
                yield step.value
        finally:
            running.close()
            if release is not None:
                await self._release(release)

    async def finish(self, conversation: Conversation[None]) -> None:
        """Run a final conversation, also if the caller is cancelled.

        It takes as long as one connect and one RPC at most; failures are dropped, as servers forget
        a silent client.
        """
        task = asyncio.create_task(self._within_bounds(conversation), name="tubemq-last-words")
        self._final_tasks.add(task)
        task.add_done_callback(self._final_tasks.discard)
        await asyncio.shield(task)

    async def close(self) -> None:
        """Close; may be called twice. On return no socket and no task of this driver is left."""
        try:
            for release in list(self._releases.values()):
                await self._release(release)
            while self._final_tasks:
                await asyncio.wait(self._final_tasks)
        finally:
            self._closed.set()
            left = [*self._final_tasks, *self._shielded_tasks]
            for task in left:
                task.cancel()
            closing = []
            if self._owns_pool:
                self._pool.abandon()  # at once: a task cancelled below may not close it
                closing.append(self._pool.close())
            await asyncio.gather(*closing, *left, return_exceptions=True)

    async def _release(self, release: Conversation[None]) -> None:
        """Run `release`, unless the stream or the driver has run it already."""
        if self._releases.pop(id(release), None) is not None:
            await self.finish(release)

    async def _within_bounds(self, conversation: Conversation[None]) -> None:
        try:
            async with asyncio.timeout(self._timeout_s + self._settings.connect_timeout_ms / 1000):
                await self.run(conversation)
        except (TimeoutError, errors.TubeMQError):
            pass

    # -- effects --------------------------------------------------------------------------------

    async def perform(self, effect: Effect, tickets: Tickets) -> Any:
        """Return the answer to an effect. `tickets` holds the conversation's posted requests."""
        if isinstance(effect, SENT):
            return tickets.of(effect, await self._post(effect))
        if isinstance(effect, Await):
            flight = tickets.take(effect.ticket)
            return await self._receive(flight, effect.ticket.method, effect.patience_ms)
        if isinstance(effect, AwaitAll):
            return await self._receive_all(effect, tickets)
        if isinstance(effect, Call):
            return await self._receive(await self._post(effect), effect.method)
        if isinstance(effect, AwaitAny):
            return await self._receive_any(effect)
        if isinstance(effect, Now | WallClock):
            return now_ms() if isinstance(effect, Now) else epoch_ms()
        return await self._perform_rare(effect)

    async def _post(self, effect: Post | PostAll | Call) -> InFlight:
        connection = await self._connection(effect.address)
        now = asyncio.get_running_loop().time()
        if isinstance(effect, PostAll):
            encode, count = self._encoder_of(effect), len(effect.requests)
            serials = await connection.post_all(encode, count, self._timeout_s)
            return InFlight(connection, serials, now + self._timeout_s)
        deadline = now + self._patience_s(effect.request)
        encode_one = self._encoder(effect.method, effect.request)
        return InFlight(connection, (await connection.post(encode_one, self._timeout_s),), deadline)

    async def _receive_all(self, effect: AwaitAll, tickets: Tickets) -> list[Any]:
        replies: list[Any] = []
        grace = asyncio.get_running_loop().time() + LATE_GRACE_S
        for ticket in effect.tickets:
            flight: InFlight = ticket.handle
            deadline = max(flight.deadline, grace)
            outcomes = await flight.connection.wait_all(flight.serials, deadline)
            replies += self._decoded_all(outcomes, ticket.method, flight.connection)
            tickets.take(ticket)
        return replies

    async def _receive_any(self, effect: AwaitAny) -> list[Ticket]:
        loop = asyncio.get_running_loop()
        over = loop.time() + effect.patience_ms / 1000
        if not (ready := answered(effect.tickets, loop.time())):
            connection = await self._connection(effect.address)
            await connection.wait_any(serials_on(connection, effect.tickets), over)
            ready = answered(effect.tickets, loop.time())
        return ready

    async def _receive(
        self, flight: InFlight, method: Method, patience_ms: int | None = None
    ) -> Any:
        connection = flight.connection
        until = flight.until(patience_ms, asyncio.get_running_loop().time())
        try:
            payload = await connection.wait(flight.serials[0], flight.deadline, until)
        except errors.RpcTimeout as error:
            raise self._explained(error, method, connection) from error
        return self._decoded(payload, method, connection)

    async def _perform_rare(self, effect: Effect) -> bool | None:
        """Perform a rare effect.

        Closing the driver ends a `Sleep`, and the next request is refused.
        """
        if isinstance(effect, Connect):
            self._pool.prepare(effect.addresses)
            return None
        if isinstance(effect, VerifyPeer):
            return await self._pool.look_up(effect.address)
        if isinstance(effect, Reach):
            return await self._pool.reach(effect.address)
        if isinstance(effect, Forget):
            effect.ticket.handle.forget()
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


class _RunningConversation:
    """Conversation that is running: its last answer, and its posted requests."""

    def __init__(self, driver: AsyncDriver, conversation: Conversation[None]) -> None:
        self._driver = driver
        self._conversation = conversation
        self._tickets = Tickets()

    async def proceed(self) -> Deliver | None:
        """Run to the next delivery; return None when the conversation has returned."""
        answer: Any = None
        failure: errors.TubeMQError | None = None
        while True:
            try:
                effect = advance(self._conversation, answer, failure)
            except StopIteration:
                return None
            if isinstance(effect, Deliver):
                return effect
            answer = failure = None
            try:
                answer = await self._driver.perform(effect, self._tickets)
            except errors.TubeMQError as error:
                failure = error

    def close(self) -> None:
        self._conversation.close()
        self._tickets.forget()


def _drop(task: asyncio.Task[T], put_back: Callable[[T], object] | None) -> None:
    """Drop the result of a task that no caller awaits; a failure counts as retrieved."""
    if not task.cancelled() and task.exception() is None and put_back is not None:
        put_back(task.result())
