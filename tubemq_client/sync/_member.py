"""What a member of a group is besides consuming: threads that keep it alive, and leaving in order.

Private to `sync`; base of `Consumer` and `AssignedConsumer`, and the place where their
conversations take turns. `aio._member` is its twin. When to beat is decided by the sessions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tubemq_client import errors
from tubemq_client.sync._base import BlockingClient
from tubemq_client.sync._turns import Bell, in_turns

if TYPE_CHECKING:
    from typing import TypeVar

    from tubemq_client._core.assigned import AssignedSession
    from tubemq_client._core.balance import BalancedSession
    from tubemq_client._core.effects import Conversation
    from tubemq_client.model import ClientSettings

    T = TypeVar("T")

__all__ = ["GroupMember"]


class GroupMember(BlockingClient):
    """Base of the consumers. What ends one of its threads is raised by the next call."""

    _consumer: AssignedSession | BalancedSession

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self._ready, self._beat, self._orders = Bell(), Bell(), Bell()
        self._lock = threading.RLock()
        self._threads: list[threading.Thread] = []
        self._workers: list[threading.Thread] = []
        self._closer: threading.Thread | None = None
        self._closed = threading.Event()

    def close(self) -> None:
        """Stop beating, give everything back, leave the group, close connections.

        Ends a `run` when its handlers are done, at the latest after `close_wait_ms`. May be called
        from several threads at once: each returns when all of that is done, but for the consumer's
        own threads (handlers, callbacks), which it waits for. Batches not confirmed are delivered
        again.
        """
        if not self._is_first_to_close():
            return
        try:
            self._stop()
            self._end_threads()
            if self._threads:
                self._leave()
        except (errors.NetworkError, errors.RemoteException, errors.ClosedError):
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
        self._start("heartbeat", lambda: self._keep_beating(session.beat_master))
        self._start("leases", lambda: self._keep_beating(session.beat_brokers))

    def _do(self, conversation: Conversation[T]) -> T:
        return self._driver.run(in_turns(conversation, self._lock))

    def _start(self, name: str, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - raised by the next call
                self._consumer.fail(error)

        thread = threading.Thread(target=guarded, name=f"tubemq-consumer-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _keep_beating(self, beat: Callable[[], Conversation[int]]) -> None:
        while not self._consumer.closing:
            seen = self._beat.count
            wait_ms = self._do(beat())
            if not self._consumer.closing:
                self._beat.wait(seen, wait_ms / 1000)

    def _stop(self) -> None:
        self._ready.ring()

    def _leave(self) -> None:
        self._do(self._consumer.close())

    def _raise_if_unusable(self) -> None:
        if self._consumer.failure is not None:
            raise self._consumer.failure
        if self._consumer.closing or not self._threads:
            raise errors.ClosedError("the consumer is closed, or its context was not entered")

    def _is_first_to_close(self) -> bool:
        """Whether to close now; otherwise returns when somebody else has, as far as it may wait."""
        me = threading.current_thread()
        with self._lock:
            first, self._consumer.closing = self._closer is None, True
            if first:
                self._closer = me
        if not first and me not in (self._closer, *self._threads, *self._workers):
            self._closed.wait()
        return first

    def _end_threads(self) -> None:
        for bell in (self._beat, self._orders):
            bell.ring()
        patience_s = self._consumer.consumer.close_wait_ms / 1000
        a_call_s = (self._settings.rpc_timeout_ms + self._settings.connect_timeout_ms) / 1000
        for thread in (*self._workers, *self._threads):
            if thread is not threading.current_thread() and thread.is_alive():
                # Calls that are under way end by themselves; a handler or callback may hang.
                thread.join(patience_s if thread in self._workers else patience_s + a_call_s)
