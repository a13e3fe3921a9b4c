"""Asyncio member of a consumer group.

`_core.membership` decides; here are the tasks: one for heartbeats, allocation and commits, and one
per broker that pulls and listens. `sync.consumer` is the sync version.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Self

from rocketmq_client import errors
from rocketmq_client._core.cluster import Cluster
from rocketmq_client._core.membership import RETRY_PAUSE_S, Membership, OnError
from rocketmq_client._wire.codec import RocketMQCodec
from rocketmq_client.local_offsets import LocalOffsets
from rocketmq_client.model import ConsumerSettings
from tubemq_client._io.asyncio_driver import AsyncDriver
from tubemq_client._io.asyncio_sync import Notifier
from tubemq_client._io.closing import AsyncClosing
from tubemq_client._io.host import now_ms

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
    from typing import Any

    from rocketmq_client.model import (
        Address,
        ClientSettings,
        ConsumerStats,
        Message,
        Queue,
        ReceivedBatch,
    )

__all__ = ["Consumer"]


class Consumer(AsyncClosing):
    """Member of a consumer group: queues are divided among all members, offsets are kept by the
    brokers. With ``ConsumerSettings(ordered=True)`` records of a queue are handled in their order
    by one member at a time; with ``mode="broadcasting"`` each member gets every record and keeps
    its positions in a file.

    `topics` maps each topic to the tags that are read, none for all, or to a `Subscription` with an
    SQL92 expression; all members of a group, in any
    language, must have the same topics, tags and strategy. At least once: a record is delivered
    again if its batch was not confirmed, or its confirmation was not committed, when its queue went
    to another member. Entering the context joins the group. The brokers identify members by
    connection, so a consumer has its own connections even with a session. May be shared by tasks.
    """

    def __init__(
        self,
        settings: ClientSettings,
        group: str,
        topics: Mapping[str, str | Sequence[str]],
        *,
        consumer: ConsumerSettings | None = None,
    ) -> None:
        self._due, self._ready = Notifier(), Notifier()
        self._member = Membership(
            Cluster(settings),
            group,
            f"{os.getpid()}@{secrets.token_hex(6)}",
            topics,
            consumer or ConsumerSettings(),
            wake=self._due.notify,
            ready=self._ready.notify,
        )
        codec = RocketMQCodec(self._member.notice, self._member.connected)
        self._driver = AsyncDriver(settings.network(), None, codec)
        self._offsets: LocalOffsets | None = None
        self._stopped = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._pullers: dict[Address, asyncio.Task[None]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._patience_s = (settings.rpc_timeout_ms + settings.connect_timeout_ms) / 1000

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    @property
    def group(self) -> str:
        """Name of the group."""
        return self._member.group

    @property
    def client_id(self) -> str:
        """Name of this member, as brokers list it."""
        return self._member.client_id

    @property
    def assignment(self) -> list[Queue]:
        """Queues that this member holds now, ordered; among them its share of the queues with
        records that were sent back."""
        return self._member.held.queues()

    @property
    def stats(self) -> ConsumerStats:
        """Counters of this member."""
        return self._member.stats

    async def start(self) -> None:
        """Join the group, once. Raises `errors.UnknownTopic`, and `errors.ConfigError` the second
        time."""
        if self._keeper is not None or self._member.closing:
            raise errors.ConfigError("a consumer is started once", subject="consumer")
        try:
            await self._open_offsets()
            await self._driver.run(self._member.open())
        except BaseException:
            self._close_offsets()
            await self._driver.close()
            raise
        self._keeper = self._task("group", self._keep())

    async def receive(self, timeout_ms: int | None = None) -> ReceivedBatch | None:
        """Return the next batch of any held queue, or None after `timeout_ms` without one (None:
        no limit).

        A queue with a batch that is not confirmed is skipped. Raises `errors.ClosedError`, and an
        error that ended the membership: `errors.DataLoss`, `errors.CorruptRecord`,
        `errors.NoPermission`, ….
        """
        return await self._receive(timeout_ms, lambda: False)

    async def _receive(
        self, timeout_ms: int | None, is_over: Callable[[], bool]
    ) -> ReceivedBatch | None:
        loop = asyncio.get_running_loop()
        over = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        while True:
            seen = self._ready.count
            batch = self._member.take(now_ms())
            left_s = None if over is None else over - loop.time()
            if batch is not None or is_over() or (left_s is not None and left_s <= 0):
                return batch
            await self._ready.wait(seen, left_s)

    async def confirm(self, batch: ReceivedBatch) -> int:
        """Move the group past `batch`; return the queue's position. It is committed within
        `commit_ms`. Raises `errors.StaleBatch` if the batch is no longer this member's."""
        position = self._member.held.confirm(batch)
        self._ready.notify()
        return position

    async def reject(self, batch: ReceivedBatch) -> None:
        """Deliver the batch again, to this member or to the queue's next one. Raises
        `errors.StaleBatch`."""
        self._member.held.reject(batch)
        self._ready.notify()

    async def send_back(
        self,
        batch: ReceivedBatch,
        messages: Sequence[Message] | None = None,
        *,
        delay_level: int = 0,
    ) -> int:
        """Send records of `batch` (None: all) back to their broker, which delivers them to the
        group again later, and confirm the batch; return the queue's position.

        `delay_level` 1 to 18 is the broker's level (1 s to 2 h with default options), 0 lets it
        choose: later each time. After `max_retries` a record goes to ``%DLQ%<group>``. At least
        once: an error leaves the batch open, and some of its records may have been sent back.
        Raises `errors.StaleBatch`, and what the broker answers.
        """
        work = self._member.send_back(batch, messages, delay_level)
        position = await self._driver.run(work)
        self._ready.notify()
        return position

    async def batches(self, timeout_ms: int | None = None) -> AsyncGenerator[ReceivedBatch, None]:
        """Yield batches until none arrives within `timeout_ms`.

        Asking for the next batch confirms the one before; a batch during which the loop is left is
        rejected. The body may confirm, reject or send back its batch itself. Batches whose queue
        was taken away meanwhile are counted in `stats`.
        """
        while (batch := await self.receive(timeout_ms)) is not None:
            settle: Callable[[ReceivedBatch], Coroutine[Any, Any, object]] = self.reject
            try:
                yield batch
                settle = self.confirm
            finally:
                await self._settle(batch, settle)

    async def run(
        self,
        handler: Callable[[ReceivedBatch], object],
        *,
        workers: int = 1,
        on_error: OnError = "stop",
    ) -> None:
        """Call `handler` with every batch, up to `workers` at a time, until `stop` or `close`.

        A batch is confirmed when the handler returns, unless the handler has settled it itself.
        When it raises, "stop" rejects the batch, ends the run and raises the exception; "send_back"
        hands the batch's records back to their broker, which delivers them again later, up to
        `max_retries` times; "retry" delivers the batch again after a second, and no other record of
        its queue before: the one for ordered members. A coroutine function is awaited; a plain one
        runs on the event loop and must not block it. Raises what `receive` raises.
        """
        self._member.check_run(workers, on_error)
        self._stopped.clear()
        problems: list[BaseException] = []

        async def work() -> None:
            try:
                while not self._stopped.is_set():
                    batch = await self._receive(None, self._stopped.is_set)
                    if batch is not None:
                        await self._handle(batch, handler, on_error)
            except errors.ClosedError:
                pass  # `close` ends the run
            except Exception as error:  # noqa: BLE001 - raised by `run`
                problems.append(error)
                await self.stop()

        tasks = [
            asyncio.create_task(work(), name=f"rocketmq-consumer-worker-{n}")
            for n in range(workers)
        ]
        self._workers.update(tasks)
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await self.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._workers.difference_update(tasks)
        if problems:
            raise problems[0]

    async def stop(self) -> None:
        """End a running `run`; handlers finish their batches."""
        self._stopped.set()
        self._ready.notify()

    async def _handle(
        self,
        batch: ReceivedBatch,
        handler: Callable[[ReceivedBatch], object],
        on_error: OnError,
    ) -> None:
        settle: Callable[[ReceivedBatch], Coroutine[Any, Any, object]] = self.confirm
        try:
            done = handler(batch)
            if isawaitable(done):
                await done
        except Exception:
            if on_error == "stop":
                with suppress(errors.StaleBatch):
                    await self.reject(batch)
                raise
            settle = self._hand_back if on_error == "send_back" else self.reject
            self.stats.failed_batches += 1
            if on_error == "retry":
                await self._pause_retry()
        await self._settle(batch, settle)

    async def _hand_back(self, batch: ReceivedBatch) -> None:
        """Send the batch back; while its broker cannot take it, deliver it again after a second."""
        try:
            await self.send_back(batch)
        except (errors.NetworkError, errors.ServerError) as error:
            if error.fatal:
                raise
            await self._pause_retry()
            await self.reject(batch)

    async def _pause_retry(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), RETRY_PAUSE_S)

    async def _settle(
        self, batch: ReceivedBatch, settle: Callable[[ReceivedBatch], Coroutine[Any, Any, object]]
    ) -> None:
        """Settle a batch whose user has ended; count it if its queue was taken away meanwhile."""
        try:
            await settle(batch)
        except errors.StaleBatch:
            if not self._member.held.is_past(batch):
                self.stats.stale_batches += 1

    async def commit(self) -> None:
        """Commit all confirmed positions now."""
        await self._driver.run(self._member.commit())
        await self._save_offsets()

    async def pause(self, queues: Iterable[Queue]) -> None:
        """Neither pull nor deliver these queues until `resume`; they stay held, also after they
        come back from another member."""
        self._member.held.paused |= set(queues)

    async def resume(self, queues: Iterable[Queue] | None = None) -> None:
        """Pull and deliver these queues again; None for all."""
        paused = self._member.held.paused
        paused -= set(paused if queues is None else queues)
        self._ready.notify()

    async def close(self) -> None:
        """Commit what is confirmed, leave the group, close all connections. Safe to call twice.

        Handlers of a `run` may finish their batches before, within the time of one request; the
        records of one that takes longer come to another member.
        """
        if self._member.closing:
            return
        self._member.closing = True
        await self.stop()
        try:
            await self._wait_for_handlers()
            tasks = [*self._pullers.values(), *([self._keeper] if self._keeper else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._keeper is not None:
                await self._driver.finish(self._member.leave())
                await self._save_offsets()
        finally:
            self._close_offsets()
            await self._driver.close()

    async def _wait_for_handlers(self) -> None:
        current = asyncio.current_task()
        if workers := [task for task in self._workers if task is not current]:
            await asyncio.wait(workers, timeout=self._patience_s)

    # -- positions of a broadcasting member -----------------------------------------------------

    async def _open_offsets(self) -> None:
        path = self._member.settings.offsets_file
        if path is not None:
            self._offsets = await asyncio.to_thread(LocalOffsets, path, self.group)
            self._member.positions = await asyncio.to_thread(self._offsets.load)

    async def _save_offsets(self) -> None:
        if self._member.moved and self._offsets is not None:
            self._member.moved = False
            await asyncio.to_thread(self._offsets.save, lambda: dict(self._member.positions))

    def _close_offsets(self) -> None:
        if self._offsets is not None:
            self._offsets.close()
            self._offsets = None

    # -- tasks ----------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while not self._member.closing:
            seen = self._due.count
            wait_ms = await self._driver.run(self._member.round())
            await self._save_offsets()
            for address in sorted(self._member.addresses):
                puller = self._pullers.get(address)
                if puller is None or puller.done():
                    self._pullers[address] = self._task("pull", self._pull(address))
            await self._due.wait(seen, wait_ms / 1000)

    async def _pull(self, address: Address) -> None:
        await self._driver.run(self._member.pulling(address))

    def _task(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def guarded() -> None:
            try:
                await work
            except errors.ClosedError:
                pass  # the driver was closed around it
            except Exception as error:  # noqa: BLE001 - raised by the next call
                self._member.fail(error)

        return asyncio.create_task(guarded(), name=f"rocketmq-consumer-{name}")
