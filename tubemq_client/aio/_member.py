"""Base of the asyncio group members: receive and confirm, push, heartbeat tasks.

Private to `aio`; base of `Consumer` and `AssignedConsumer`. `sync._member` is its counterpart. The
sessions decide when heartbeats are due.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Literal

from tubemq_client import errors
from tubemq_client._core.balance_fetch import ReceivedBatch
from tubemq_client._io.asyncio_sync import Notifier
from tubemq_client._io.consumer_base import ConsumerBase
from tubemq_client.aio._base import AsyncClient

if TYPE_CHECKING:
    from typing import TypeVar

    from tubemq_client._core.effects import Conversation
    from tubemq_client._io.routines import Do
    from tubemq_client.model import ClientSettings, Delivery, Partition

    T = TypeVar("T")

__all__ = ["GroupMember"]


class GroupMember(ConsumerBase, AsyncClient):
    """Base of the consumers. An exception that ends one of its tasks is raised by the next call."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self._ready, self._heartbeat, self._orders = Notifier(), Notifier(), Notifier()
        self._running: list[asyncio.Task[None]] = []
        self._workers: list[asyncio.Task[None]] = []
        self._closer: asyncio.Task[Any] | None = None
        self._closed = asyncio.Event()
        self._stopped = True

    async def partitions_ready(self, timeout_ms: int) -> bool:
        """Wait until a partition is held, at most `timeout_ms`; return whether one is."""
        return await self._play(self._readying(timeout_ms))

    async def start(self) -> None:
        """Join the group, once; entering the context does it too.

        Raises `errors.UnknownTopic`, `errors.GroupInconsistent`, `errors.NotAuthorized`, and
        `errors.ConfigError` the second time.
        """
        await super().start()
        await self._join()

    # -- pull -----------------------------------------------------------------------------------

    async def receive(self, timeout_ms: int | None = None) -> ReceivedBatch | None:
        """Return the next batch of any held partition, or None after `timeout_ms` without one.

        None waits `ready_wait_ms` of the settings, a negative time for ever. Partitions take turns;
        one with an unconfirmed batch is skipped. Raises `errors.ClosedError`, an exception of a
        callback, and an error that ended the membership for good (`errors.GroupInconsistent`, …).
        """
        return await self._play(self._receiving(timeout_ms))

    async def confirm(self, batch: ReceivedBatch | Delivery) -> int:
        """Move the group past `batch`; return the group's position, the next offset to read.

        Returns -1 when confirmations are local. Raises `errors.StaleBatch` or
        `errors.NotRegistered` when the batch is no longer this member's and will be delivered
        again. After `errors.NetworkError` the next fetch of the partition confirms it once more. A
        broker that failed several times in a row is avoided: until its pause is over the error is
        raised at once (`stats.left_alone`).
        """
        return await self._settle(batch, consumed=True)

    async def reject(self, batch: ReceivedBatch | Delivery) -> int:
        """Keep the group's position; the batch is delivered again after `not_found_wait_ms`."""
        return await self._settle(batch, consumed=False)

    async def batches(self, timeout_ms: int | None = None) -> AsyncGenerator[ReceivedBatch, None]:
        """Yield batches until none arrives within `timeout_ms` (as for `receive`).

        Asking for the next batch confirms the one before; a batch during which the loop is left is
        rejected.
        """
        while (batch := await self.receive(timeout_ms)) is not None:
            done = False
            try:
                yield batch
                done = True
            finally:
                if not done:
                    await self._driver.finish(self._consumer.fetching.abandon(batch))
            await self._play(self._confirming(batch))

    # -- push -----------------------------------------------------------------------------------

    async def run(
        self,
        handler: Callable[[ReceivedBatch], object],
        *,
        workers: int = 1,
        on_error: Literal["stop", "retry"] = "stop",
    ) -> None:
        """Call `handler` with every batch, up to `workers` at a time, until `stop` or `close`.

        A batch is confirmed when the handler returns and rejected when it raises. "stop" then ends
        the run and raises the handler's exception; "retry" continues, and the batch is delivered
        again, except after `errors.CorruptRecord`, which ends it too: to skip such records choose
        `corrupt_records="drop"`. A coroutine function is awaited; a plain one runs on the event
        loop and must not block it.
        """
        self._begin_run(workers)
        problems: list[BaseException] = []

        async def work() -> None:
            try:
                await self._play(self._handling(handler, on_error))
            except Exception as error:  # noqa: BLE001 - raised by `run`
                problems.append(error)
                self._stop()

        self._workers = [
            asyncio.create_task(work(), name=f"tubemq-consumer-worker-{n}") for n in range(workers)
        ]
        try:
            await asyncio.gather(*self._workers, return_exceptions=True)  # `close` cancels them
        finally:
            self._stop()
            for worker in self._workers:
                worker.cancel()
            await asyncio.gather(*self._workers, return_exceptions=True)
        if problems:
            raise problems[0]

    async def stop(self) -> None:
        """End a running `run`; handlers finish their batches."""
        self._stop()

    async def pause(self) -> None:
        """Fetch nothing until `resume`; local confirmations are sent to brokers now."""
        self._consumer.table.pause()
        await self._complete(self._consumer.fetching.flush())

    async def resume(self) -> None:
        """Fetch again."""
        self._consumer.table.resume()

    async def freeze(self, partitions: Iterable[Partition]) -> None:
        """Stop fetching these partitions; they stay held.

        They are still frozen when they come back after a rebalance.
        """
        self._consumer.table.freeze(partitions)

    async def unfreeze(self, partitions: Iterable[Partition] | None = None) -> None:
        """Fetch these partitions again; None for all."""
        self._consumer.table.unfreeze(self.frozen if partitions is None else partitions)

    # -- tasks ------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop heartbeats, give everything back, leave the group, close connections.

        Ends a `run` when its handlers are done, at the latest after `close_wait_ms`. May be called
        from several tasks at once: each returns when all of that is done, except the consumer's
        own tasks (handlers, callbacks), for which it waits. Unconfirmed batches are delivered
        again. If cancelled, it stops waiting for its tasks but still leaves the group.
        """
        if not await self._is_first_to_close():
            return
        try:
            self._stop()
            try:
                await self._end_tasks()
            finally:
                if self._running:
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
        self._start("heartbeat", self._play(self._heartbeats(session.master_heartbeat_if_due)))
        self._start("leases", self._play(self._heartbeats(session.broker_heartbeats_if_due)))
        self._start("rebalance", self._keep_rebalancing())

    async def _do(self, step: Do) -> Any:
        if not step.to_end:
            return await self._driver.run(step.conversation)
        return await self._complete(step.conversation, step.put_back)

    async def _complete(
        self, conversation: Conversation[T], put_back: Callable[[T], object] | None = None
    ) -> T:
        """Run a conversation to its end even if the caller is cancelled.

        Raises `errors.ClosedError` if another task closes the consumer meanwhile, as that is no
        cancellation of the caller.
        """
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

        self._running.append(asyncio.create_task(guarded(), name=f"tubemq-consumer-{name}"))

    async def _keep_rebalancing(self) -> None:
        while not self._consumer.closing:
            seen = self._orders.count
            async for event in self._driver.stream(self._consumer.rebalance()):
                await self._play(self._notifying_listener(event))
            await self._play(self._awaiting_rebalance(seen))

    async def _settle(self, batch: ReceivedBatch | Delivery, *, consumed: bool) -> int:
        return await self._complete(self._consumer.fetching.confirm(batch, consumed=consumed))

    async def _leave(self) -> None:
        await self._driver.finish(self._consumer.close())

    async def _is_first_to_close(self) -> bool:
        """Return whether to close now; otherwise wait until another caller has, where allowed."""
        me = asyncio.current_task()
        first, self._consumer.closing = self._closer is None, True
        if first:
            self._closer = me
        elif me not in (self._closer, *self._running, *self._workers):
            await self._closed.wait()
        return first

    async def _end_tasks(self) -> None:
        for notifier in (self._heartbeat, self._orders):
            notifier.notify()
        me = asyncio.current_task()
        tasks = [task for task in (*self._workers, *self._running) if task is not me]
        if not tasks:
            return
        try:
            patience_s = self._consumer.consumer.close_wait_ms / 1000
            await asyncio.wait(tasks, timeout=patience_s)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
