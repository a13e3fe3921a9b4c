"""What a member of a group is besides consuming: tasks that keep it alive, and leaving in order.

Private to `aio`; base of `Consumer` and `AssignedConsumer`. `sync._member` is its twin. When to
beat is decided by the sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from tubemq_client import errors
from tubemq_client.aio._base import AsyncClient
from tubemq_client.aio._turns import Bell

if TYPE_CHECKING:
    from typing import TypeVar

    from tubemq_client._core.assigned import AssignedSession
    from tubemq_client._core.balance import BalancedSession
    from tubemq_client._core.effects import Conversation
    from tubemq_client.model import ClientSettings

    T = TypeVar("T")

__all__ = ["GroupMember"]


class GroupMember(AsyncClient):
    """Base of the consumers. What ends one of its tasks is raised by the next call."""

    _consumer: AssignedSession | BalancedSession

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self._ready, self._beat, self._orders = Bell(), Bell(), Bell()
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: list[asyncio.Task[None]] = []
        self._closer: asyncio.Task[Any] | None = None
        self._closed = asyncio.Event()

    async def close(self) -> None:
        """Stop beating, give everything back, leave the group, close connections.

        Ends a `run` when its handlers are done, at the latest after `close_wait_ms`. May be called
        from several tasks at once: each returns when all of that is done, but for the consumer's
        own tasks (handlers, callbacks), which it waits for. Batches not confirmed are delivered
        again. Cancelled once, it waits for its tasks no longer but still leaves the group.
        """
        if not await self._is_first_to_close():
            return
        try:
            self._stop()
            try:
                await self._end_tasks()
            finally:
                if self._tasks:
                    await self._leave()
        finally:
            try:
                await super().close()
            finally:
                self._closed.set()

    async def _join(self) -> None:
        try:
            await self._driver.run(self._consumer.open())
        except BaseException:
            await super().close()
            raise
        session = self._consumer
        self._start("heartbeat", self._keep_beating(session.beat_master))
        self._start("leases", self._keep_beating(session.beat_brokers))

    async def _complete(
        self, conversation: Conversation[T], put_back: Callable[[T], object] | None = None
    ) -> T:
        """To its end even if the caller is cancelled. Raises `errors.ClosedError` if another task
        closes the consumer meanwhile: that is no cancellation of the caller."""
        try:
            return await self._driver.complete(conversation, put_back)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if self._consumer.closing and me is not None and not me.cancelling():
                raise errors.ClosedError("the consumer was closed meanwhile") from None
            raise

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001 - raised by the next call
                self._consumer.fail(error)

        self._tasks.append(asyncio.create_task(guarded(), name=f"tubemq-consumer-{name}"))

    async def _keep_beating(self, beat: Callable[[], Conversation[int]]) -> None:
        while not self._consumer.closing:
            seen = self._beat.count
            wait_ms = await self._driver.run(beat())
            if not self._consumer.closing:
                await self._beat.wait(seen, wait_ms / 1000)

    def _stop(self) -> None:
        self._ready.ring()

    async def _leave(self) -> None:
        await self._driver.finish(self._consumer.close())

    def _raise_if_unusable(self) -> None:
        if self._consumer.failure is not None:
            raise self._consumer.failure
        if self._consumer.closing or not self._tasks:
            raise errors.ClosedError("the consumer is closed, or its context was not entered")

    async def _is_first_to_close(self) -> bool:
        """Whether to close now; otherwise returns when somebody else has, as far as it may wait."""
        me = asyncio.current_task()
        first, self._consumer.closing = self._closer is None, True
        if first:
            self._closer = me
        elif me not in (self._closer, *self._tasks, *self._workers):
            await self._closed.wait()
        return first

    async def _end_tasks(self) -> None:
        for bell in (self._beat, self._orders):
            bell.ring()
        me = asyncio.current_task()
        tasks = [task for task in (*self._workers, *self._tasks) if task is not me]
        if not tasks:
            return
        try:
            patience_s = self._consumer.consumer.close_wait_ms / 1000
            await asyncio.wait(tasks, timeout=patience_s)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
