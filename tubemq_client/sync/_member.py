"""Base of the blocking group members: receive and confirm, push, heartbeat threads.

Private to `sync`; base of `Consumer` and `AssignedConsumer`, where their conversations are
serialised. `aio._member` is its counterpart. The sessions decide when heartbeats are due.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal, TypeVar

from tubemq_client import errors
from tubemq_client._core.balance_fetch import ReceivedBatch
from tubemq_client._io.consumer_base import ConsumerBase
from tubemq_client._io.thread_sync import Notifier, serialized
from tubemq_client.sync._base import BlockingClient

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client.model import ClientSettings, Delivery, Partition

__all__ = ["GroupMember"]

T = TypeVar("T")


class GroupMember(ConsumerBase, BlockingClient):
    """Base of the consumers.

    An exception that ends one of its threads is raised by the next call.
    """

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self._ready, self._heartbeat, self._orders = Notifier(), Notifier(), Notifier()
        self._lock = threading.RLock()
        self._running: list[threading.Thread] = []
        self._workers: list[threading.Thread] = []
        self._closer: threading.Thread | None = None
        self._closed = threading.Event()
        self._stopped = True

    def partitions_ready(self, timeout_ms: int) -> bool:
        """Wait until a partition is held, at most `timeout_ms`; return whether one is."""
        return self._play(self._readying(timeout_ms))

    def start(self) -> None:
        """Join the group, once; entering the context does it too.

        Raises `errors.UnknownTopic`, `errors.GroupInconsistent`, `errors.NotAuthorized`, and
        `errors.ConfigError` the second time.
        """
        super().start()
        self._join()

    # -- pull -----------------------------------------------------------------------------------

    def receive(self, timeout_ms: int | None = None) -> ReceivedBatch | None:
        """Return the next batch of any held partition, or None after `timeout_ms` without one.

        None waits `ready_wait_ms` of the settings, a negative time for ever. Partitions take turns;
        one with an unconfirmed batch is skipped. Raises `errors.ClosedError`, an exception of a
        callback, and an error that ended the membership for good (`errors.GroupInconsistent`, …).
        """
        return self._play(self._receiving(timeout_ms))

    def confirm(self, batch: ReceivedBatch | Delivery) -> int:
        """Move the group past `batch`; return the group's position, the next offset to read.

        Returns -1 when confirmations are local. Raises `errors.StaleBatch` or
        `errors.NotRegistered` when the batch is no longer this member's and will be delivered
        again. After `errors.NetworkError` the next fetch of the partition confirms it once more. A
        broker that failed several times in a row is avoided: until its pause is over the error is
        raised at once (`stats.left_alone`).
        """
        return self._do(self._consumer.fetching.confirm(batch, consumed=True))

    def reject(self, batch: ReceivedBatch | Delivery) -> int:
        """Keep the group's position; the batch is delivered again after `not_found_wait_ms`."""
        return self._do(self._consumer.fetching.confirm(batch, consumed=False))

    def batches(self, timeout_ms: int | None = None) -> Iterator[ReceivedBatch]:
        """Yield batches until none arrives within `timeout_ms` (as for `receive`).

        Asking for the next batch confirms the one before; a batch during which the loop is left is
        rejected.
        """
        while (batch := self.receive(timeout_ms)) is not None:
            done = False
            try:
                yield batch
                done = True
            finally:
                if not done:
                    self._do(self._consumer.fetching.abandon(batch))
            self._play(self._confirming(batch))

    # -- push -----------------------------------------------------------------------------------

    def run(
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
        `corrupt_records="drop"`.
        """
        self._begin_run(workers)
        problems: list[BaseException] = []

        def work() -> None:
            try:
                self._play(self._handling(handler, on_error))
            except BaseException as error:  # noqa: BLE001 - raised by `run`
                problems.append(error)
                self._stop()

        self._workers = [
            threading.Thread(target=work, name=f"tubemq-consumer-worker-{n}", daemon=True)
            for n in range(workers)
        ]
        for worker in self._workers:
            worker.start()
        try:
            for worker in self._workers:
                worker.join()
        finally:
            self._stop()
        if problems:
            raise problems[0]

    def stop(self) -> None:
        """End a running `run`; handlers finish their batches."""
        self._stop()

    def pause(self) -> None:
        """Fetch nothing until `resume`; local confirmations are sent to brokers now."""
        self._consumer.table.pause()
        self._do(self._consumer.fetching.flush())

    def resume(self) -> None:
        """Fetch again."""
        self._consumer.table.resume()

    def freeze(self, partitions: Iterable[Partition]) -> None:
        """Stop fetching these partitions; they stay held.

        They are still frozen when they come back after a rebalance.
        """
        with self._lock:
            self._consumer.table.freeze(partitions)

    def unfreeze(self, partitions: Iterable[Partition] | None = None) -> None:
        """Fetch these partitions again; None for all."""
        with self._lock:
            self._consumer.table.unfreeze(self.frozen if partitions is None else partitions)

    # -- threads ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop heartbeats, give everything back, leave the group, close connections.

        Ends a `run` when its handlers are done, at the latest after `close_wait_ms`. May be called
        from several threads at once: each returns when all of that is done, except the consumer's
        own threads (handlers, callbacks), for which it waits. Unconfirmed batches are delivered
        again.
        """
        if not self._is_first_to_close():
            return
        try:
            self._stop()
            self._end_threads()
            if self._running:
                self._leave()
        except errors.TubeMQError:
            pass  # master and brokers forget a silent client by themselves
        finally:
            try:
                super().close()
            finally:
                self._closed.set()

    def _join(self) -> None:
        try:
            self._do(self._consumer.open())
        except BaseException:
            super().close()
            raise
        session = self._consumer
        self._start(
            "heartbeat", lambda: self._play(self._heartbeats(session.master_heartbeat_if_due))
        )
        self._start(
            "leases", lambda: self._play(self._heartbeats(session.broker_heartbeats_if_due))
        )
        self._start("rebalance", self._keep_rebalancing)

    def _do(self, conversation: Conversation[T]) -> T:
        return self._driver.run(serialized(conversation, self._lock))

    def _start(self, name: str, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - raised by the next call
                self._consumer.fail(error)

        thread = threading.Thread(target=guarded, name=f"tubemq-consumer-{name}", daemon=True)
        self._running.append(thread)
        thread.start()

    def _keep_rebalancing(self) -> None:
        while not self._consumer.closing:
            seen = self._orders.count
            for event in self._driver.stream(serialized(self._consumer.rebalance(), self._lock)):
                self._play(self._notifying_listener(event))
            self._play(self._awaiting_rebalance(seen))

    def _leave(self) -> None:
        self._do(self._consumer.close())

    def _is_first_to_close(self) -> bool:
        """Return whether to close now; otherwise wait until another caller has, where allowed."""
        me = threading.current_thread()
        with self._lock:
            first, self._consumer.closing = self._closer is None, True
            if first:
                self._closer = me
        if not first and me not in (self._closer, *self._running, *self._workers):
            self._closed.wait()
        return first

    def _end_threads(self) -> None:
        for notifier in (self._heartbeat, self._orders):
            notifier.notify()
        over = time.monotonic() + self._consumer.consumer.close_wait_ms / 1000
        a_call_s = (self._settings.rpc_timeout_ms + self._settings.connect_timeout_ms) / 1000
        for thread in (*self._workers, *self._running):
            if thread is not threading.current_thread() and thread.is_alive():
                # Calls in flight end by themselves; a handler or callback may hang.
                until = over if thread in self._workers else over + a_call_s
                thread.join(max(0.0, until - time.monotonic()))
