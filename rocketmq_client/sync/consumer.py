"""Blocking member of a consumer group.

`_core.membership` decides; here are the threads: one for heartbeats, allocation and commits, and
one per broker that pulls and listens. `aio.consumer` is the asyncio version.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self, TypeVar

from rocketmq_client import errors
from rocketmq_client._core.cluster import Cluster
from rocketmq_client._core.membership import RETRY_PAUSE_S, Membership, OnError
from rocketmq_client._wire.codec import RocketMQCodec
from rocketmq_client.local_offsets import LocalOffsets
from rocketmq_client.model import ConsumerSettings
from tubemq_client._io.closing import Closing
from tubemq_client._io.driver import BlockingDriver
from tubemq_client._io.host import now_ms
from tubemq_client._io.thread_sync import Notifier, serialized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rocketmq_client.model import (
        Address,
        ClientSettings,
        ConsumerStats,
        Message,
        Queue,
        ReceivedBatch,
    )
    from tubemq_client._core.effects import Conversation

__all__ = ["Consumer"]

T = TypeVar("T")


class Consumer(Closing):
    """Member of a consumer group: queues are divided among all members, offsets are kept by the
    brokers. With ``ConsumerSettings(ordered=True)`` records of a queue are handled in their order
    by one member at a time; with ``mode="broadcasting"`` each member gets every record and keeps
    its positions in a file.

    `topics` maps each topic to the tags that are read, none for all, or to a `Subscription` with an
    SQL92 expression; all members of a group, in any
    language, must have the same topics, tags and strategy. At least once: a record is delivered
    again if its batch was not confirmed, or its confirmation was not committed, when its queue went
    to another member. Entering the context joins the group. The brokers identify members by
    connection, so a consumer has its own connections even with a session. May be shared by
    threads.
    """

    def __init__(
        self,
        settings: ClientSettings,
        group: str,
        topics: Mapping[str, str | Sequence[str]],
        *,
        consumer: ConsumerSettings | None = None,
    ) -> None:
        self._settings = settings
        self._due, self._ready = Notifier(), Notifier()
        self._lock = threading.RLock()
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
        self._driver = BlockingDriver(settings.network(), None, codec)
        self._offsets: LocalOffsets | None = None
        self._stopped = threading.Event()
        self._keeper: threading.Thread | None = None
        self._pullers: dict[Address, threading.Thread] = {}
        self._workers: set[threading.Thread] = set()

    def __enter__(self) -> Self:
        self.start()
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
        with self._lock:
            return self._member.held.queues()

    @property
    def stats(self) -> ConsumerStats:
        """Counters of this member."""
        return self._member.stats

    def start(self) -> None:
        """Join the group, once. Raises `errors.UnknownTopic`, and `errors.ConfigError` the second
        time."""
        if self._keeper is not None or self._member.closing:
            raise errors.ConfigError("a consumer is started once", subject="consumer")
        try:
            self._open_offsets()
            self._run(self._member.open())
        except BaseException:
            self._close_offsets()
            self._driver.close()
            raise
        self._keeper = self._thread("group", self._keep)

    def receive(self, timeout_ms: int | None = None) -> ReceivedBatch | None:
        """Return the next batch of any held queue, or None after `timeout_ms` without one (None:
        no limit).

        A queue with a batch that is not confirmed is skipped. Raises `errors.ClosedError`, and an
        error that ended the membership: `errors.DataLoss`, `errors.CorruptRecord`,
        `errors.NoPermission`, ….
        """
        return self._receive(timeout_ms, lambda: False)

    def _receive(self, timeout_ms: int | None, is_over: Callable[[], bool]) -> ReceivedBatch | None:
        over = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while True:
            seen = self._ready.count
            with self._lock:
                batch = self._member.take(now_ms())
            left_s = None if over is None else over - time.monotonic()
            if batch is not None or is_over() or (left_s is not None and left_s <= 0):
                return batch
            self._ready.wait(seen, left_s)

    def confirm(self, batch: ReceivedBatch) -> int:
        """Move the group past `batch`; return the queue's position. It is committed within
        `commit_ms`. Raises `errors.StaleBatch` if the batch is no longer this member's."""
        with self._lock:
            position = self._member.held.confirm(batch)
        self._ready.notify()
        return position

    def reject(self, batch: ReceivedBatch) -> None:
        """Deliver the batch again, to this member or to the queue's next one. Raises
        `errors.StaleBatch`."""
        with self._lock:
            self._member.held.reject(batch)
        self._ready.notify()

    def send_back(
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
        position = self._run(work)
        self._ready.notify()
        return position

    def batches(self, timeout_ms: int | None = None) -> Iterator[ReceivedBatch]:
        """Yield batches until none arrives within `timeout_ms`.

        Asking for the next batch confirms the one before; a batch during which the loop is left is
        rejected. The body may confirm, reject or send back its batch itself. Batches whose queue
        was taken away meanwhile are counted in `stats`.
        """
        while (batch := self.receive(timeout_ms)) is not None:
            settle: Callable[[ReceivedBatch], object] = self.reject
            try:
                yield batch
                settle = self.confirm
            finally:
                self._settle(batch, settle)

    def run(
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
        its queue before: the one for ordered members. Raises what `receive` raises.
        """
        self._member.check_run(workers, on_error)
        self._stopped.clear()
        problems: list[BaseException] = []

        def work() -> None:
            try:
                while not self._stopped.is_set():
                    batch = self._receive(None, self._stopped.is_set)
                    if batch is not None:
                        self._handle(batch, handler, on_error)
            except errors.ClosedError:
                pass  # `close` ends the run
            except BaseException as error:  # noqa: BLE001 - raised by `run`
                problems.append(error)
                self.stop()

        threads = [
            threading.Thread(target=work, name=f"rocketmq-consumer-worker-{n}", daemon=True)
            for n in range(workers)
        ]
        self._workers.update(threads)
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:
            self.stop()
        self._workers.difference_update(threads)
        if problems:
            raise problems[0]

    def stop(self) -> None:
        """End a running `run`; handlers finish their batches."""
        self._stopped.set()
        self._ready.notify()

    def _handle(
        self,
        batch: ReceivedBatch,
        handler: Callable[[ReceivedBatch], object],
        on_error: OnError,
    ) -> None:
        settle: Callable[[ReceivedBatch], object] = self.confirm
        try:
            handler(batch)
        except Exception:
            if on_error == "stop":
                with suppress(errors.StaleBatch):
                    self.reject(batch)
                raise
            settle = self._hand_back if on_error == "send_back" else self.reject
            self.stats.failed_batches += 1
            if on_error == "retry":
                self._pause_retry()
        self._settle(batch, settle)

    def _hand_back(self, batch: ReceivedBatch) -> None:
        """Send the batch back; while its broker cannot take it, deliver it again after a second."""
        try:
            self.send_back(batch)
        except (errors.NetworkError, errors.ServerError) as error:
            if error.fatal:
                raise
            self._pause_retry()
            self.reject(batch)

    def _pause_retry(self) -> None:
        self._stopped.wait(RETRY_PAUSE_S)

    def _settle(self, batch: ReceivedBatch, settle: Callable[[ReceivedBatch], object]) -> None:
        """Settle a batch whose user has ended; count it if its queue was taken away meanwhile."""
        try:
            settle(batch)
        except errors.StaleBatch:
            if not self._member.held.is_past(batch):
                self.stats.stale_batches += 1

    def commit(self) -> None:
        """Commit all confirmed positions now."""
        self._run(self._member.commit())
        self._save_offsets()

    def pause(self, queues: Iterable[Queue]) -> None:
        """Neither pull nor deliver these queues until `resume`; they stay held, also after they
        come back from another member."""
        with self._lock:
            self._member.held.paused |= set(queues)

    def resume(self, queues: Iterable[Queue] | None = None) -> None:
        """Pull and deliver these queues again; None for all."""
        with self._lock:
            paused = self._member.held.paused
            paused -= set(paused if queues is None else queues)
        self._ready.notify()

    def close(self) -> None:
        """Commit what is confirmed, leave the group, close all connections. Safe to call twice.

        Handlers of a `run` may finish their batches before, within the time of one request; the
        records of one that takes longer come to another member.
        """
        with self._lock:
            first, self._member.closing = not self._member.closing, True
        if not first:
            return
        self._due.notify()
        self.stop()
        try:
            self._join_threads()
            if self._keeper is not None:
                self._run(self._member.leave())
                self._save_offsets()
        finally:
            self._close_offsets()
            self._driver.close()

    # -- positions of a broadcasting member -----------------------------------------------------

    def _open_offsets(self) -> None:
        path = self._member.settings.offsets_file
        if path is not None:
            self._offsets = LocalOffsets(path, self.group)
            self._member.positions = self._offsets.load()

    def _save_offsets(self) -> None:
        if self._member.moved and self._offsets is not None:
            self._offsets.save(self._positions)

    def _positions(self) -> dict[Queue, int]:
        with self._lock:
            self._member.moved = False
            return dict(self._member.positions)

    def _close_offsets(self) -> None:
        if self._offsets is not None:
            self._offsets.close()
            self._offsets = None

    # -- threads --------------------------------------------------------------------------------

    def _run(self, conversation: Conversation[T]) -> T:
        return self._driver.run(serialized(conversation, self._lock))

    def _keep(self) -> None:
        while not self._member.closing:
            seen = self._due.count
            wait_ms = self._run(self._member.round())
            self._save_offsets()
            for address in sorted(self._member.addresses):
                puller = self._pullers.get(address)
                if puller is None or not puller.is_alive():
                    self._pullers[address] = self._thread("pull", self._pull, address)
            self._due.wait(seen, wait_ms / 1000)

    def _pull(self, address: Address) -> None:
        self._run(self._member.pulling(address))

    def _thread(self, name: str, work: Callable[..., None], *words: object) -> threading.Thread:
        def guarded() -> None:
            try:
                work(*words)
            except errors.ClosedError:
                pass  # the driver was closed around it
            except BaseException as error:  # noqa: BLE001 - raised by the next call
                self._member.fail(error)

        thread = threading.Thread(target=guarded, name=f"rocketmq-consumer-{name}", daemon=True)
        thread.start()
        return thread

    def _join_threads(self) -> None:
        """Wait for handlers and threads as long as one request takes; what is late meets closed
        connections."""
        settings = self._settings
        over = time.monotonic() + (settings.rpc_timeout_ms + settings.connect_timeout_ms) / 1000
        workers = [thread for thread in self._workers if thread is not threading.current_thread()]
        keeper = [self._keeper] if self._keeper is not None else []
        for thread in (*workers, *keeper, *self._pullers.values()):
            thread.join(max(0.0, over - time.monotonic()))
