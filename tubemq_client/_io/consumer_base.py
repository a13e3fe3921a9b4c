"""Group members without threads and tasks, for both APIs: options, views, routines.

Base of `Consumer` and `AssignedConsumer`. Their behaviour is written once, as routines whose steps
each API performs; partitions and fetching belong to the sessions of `_core`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

from tubemq_client import errors
from tubemq_client._core.assigned import AssignedSession
from tubemq_client._core.assigned_view import place_in_group
from tubemq_client._core.balance import BalancedSession
from tubemq_client._core.balance_fetch import ReceivedBatch
from tubemq_client._core.balance_orders import BoundStart, SessionCallbacks, subscription
from tubemq_client._core.group import READ_STATUS
from tubemq_client._core.group_options import GroupConfig, group_options
from tubemq_client._core.limits import word_problem
from tubemq_client._io.client_base import ClientBase
from tubemq_client._io.host import epoch_ms, now_ms
from tubemq_client._io.routines import Apply, Do, Finish, Wait
from tubemq_client.model import ConsumerSettings, Partition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubemq_client._core.balance_orders import Rebalance
    from tubemq_client._core.balance_partitions import ConsumedOffset
    from tubemq_client._core.effects import Conversation
    from tubemq_client._io.routines import Routine
    from tubemq_client.model import ClientSettings, ConsumerStats, IdleReason

__all__ = ["AssignedConsumerBase", "BalancedConsumerBase", "ConsumerBase"]

_SETTLED_LATER = (
    errors.StaleBatch,
    errors.NetworkError,
    errors.RemoteException,
    errors.ServerError,
)


class ConsumerBase(ClientBase):
    """Member of a group as its user sees it.

    `_lock` protects reads of state that other threads change.
    """

    _consumer: AssignedSession | BalancedSession
    _listeners: dict[str, Callable[[list[Partition]], object] | None]
    _lock: Any = nullcontext()
    _running: Any
    _stopped: bool
    _ready: Any
    _heartbeat: Any
    _orders: Any

    @property
    def consumer_id(self) -> str:
        """Client id by which masters and brokers know this member."""
        return self._consumer.client_id

    @property
    def topics(self) -> dict[str, tuple[str, ...]]:
        """Subscribed topics, with the stream ids by which each is filtered."""
        return dict(self._consumer.topics)

    @property
    def closed(self) -> bool:
        """True if nothing can be consumed: not entered yet, or closed."""
        return self._consumer.closing or not self._running

    @property
    def assignment(self) -> list[Partition]:
        """Partitions held now; one that a broker took away is missing."""
        with self._lock:
            return sorted(self._consumer.table.held)

    @property
    def frozen(self) -> list[Partition]:
        """Frozen partitions, which are not fetched, held or not."""
        with self._lock:
            return sorted(self._consumer.table.frozen)

    @property
    def paused(self) -> bool:
        """True while `pause` stops all fetches."""
        return self._consumer.table.paused

    @property
    def consumed_offsets(self) -> dict[Partition, ConsumedOffset]:
        """Position of the group in each held partition as its broker said last, with `lag`."""
        with self._lock:
            held = sorted(self._consumer.table.held.items())
            offsets = ((p, item.offset) for p, item in held if item.offset is not None)
            ahead = epoch_ms() - now_ms()
            return {p: o._replace(updated_at_ms=o.updated_at_ms + ahead) for p, o in offsets}

    @property
    def idle_reason(self) -> IdleReason | None:
        """Reason why `receive` returns None now; None if a batch may be available.

        A batch that is just being fetched counts as waiting.
        """
        with self._lock:
            return self._consumer.table.idle_reason(now_ms())

    @property
    def last_errors(self) -> dict[str, errors.TubeMQError]:
        """Last error by partition, broker or "master" that ended nothing."""
        with self._lock:
            return dict(self._consumer.last_errors)

    @property
    def stats(self) -> ConsumerStats:
        """Counts of fetches so far, and the brokers that are avoided now."""
        with self._lock:
            fetching = self._consumer.fetching
            return fetching.stats.view(fetching.breaker, now_ms(), self.connections)

    def _calls(self) -> SessionCallbacks:
        return SessionCallbacks(self._ready.notify, self._heartbeat.notify, self._orders.notify)

    def _raise_if_unusable(self) -> None:
        if self._consumer.failure is not None:
            raise self._consumer.failure
        if self.closed:
            raise errors.ClosedError("the consumer is closed, or its context was not entered")

    def _begin_run(self, workers: int) -> None:
        if workers < 1:
            raise errors.ConfigError(f"workers {workers} is less than 1", subject="run")
        self._raise_if_unusable()
        self._stopped = False

    def _stop(self) -> None:
        self._stopped = True
        self._ready.notify()

    # -- routines, which both APIs perform ---------------------------------------------------------

    def _readying(self, timeout_ms: int) -> Routine[bool]:
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            seen = self._ready.count
            self._raise_if_unusable()
            if self._consumer.table.held:
                return True
            if (left := deadline - time.monotonic()) <= 0:
                return False
            yield Wait(self._ready, seen, left)

    def _receiving(self, timeout_ms: int | None) -> Routine[ReceivedBatch | None]:
        wait_ms = self._consumer.consumer.ready_wait_ms if timeout_ms is None else timeout_ms
        deadline = None if wait_ms < 0 else time.monotonic() + wait_ms / 1000
        return (yield from self._receiving_until(deadline, lambda: False))

    def _receiving_until(
        self, deadline: float | None, is_over: Callable[[], bool]
    ) -> Routine[ReceivedBatch | None]:
        tries = 0
        while not is_over():
            seen = self._ready.count
            self._raise_if_unusable()
            fetching = self._consumer.fetching
            result = yield Do(fetching.fetch(), fetching.put_back)
            if isinstance(result, ReceivedBatch):
                return result
            tries += 1
            left = None if deadline is None else deadline - time.monotonic()
            all_asked = result.wait_ms != 0 or tries > len(self.assignment)
            if left is not None and left <= 0 and all_asked:
                return None
            times = [t for t in (left, _seconds(result.wait_ms)) if t is not None]
            yield Wait(self._ready, seen, max(0.0, min(times)) if times else None)
        return None

    def _handling(
        self, handler: Callable[[ReceivedBatch], object], on_error: Literal["stop", "retry"]
    ) -> Routine[None]:
        while (batch := (yield from self._receiving_to_handle())) is not None:
            try:
                yield Apply(handler, batch)
            except GeneratorExit:
                raise
            except BaseException as error:
                yield Finish(self._consumer.fetching.abandon(batch))
                # A record that cannot be decoded fails at every delivery: that would never end.
                endless = isinstance(error, errors.CorruptRecord)
                if on_error == "stop" or endless or not isinstance(error, Exception):
                    raise
            else:
                yield from self._confirming(batch)

    def _receiving_to_handle(self) -> Routine[ReceivedBatch | None]:
        try:
            return (yield from self._receiving_until(None, lambda: self._stopped))
        except errors.ClosedError:
            if not self._consumer.closing:
                raise
            return None  # `close` has begun, and stops this loop

    def _confirming(self, batch: ReceivedBatch) -> Routine[None]:
        try:
            yield Do(self._consumer.fetching.confirm(batch, consumed=True))
        except _SETTLED_LATER as error:
            with self._lock:  # sent again with the next fetch, or the batch is fetched again
                self._consumer.last_errors[str(batch.partition)] = error

    def _heartbeats(self, beat: Callable[[], Conversation[int]]) -> Routine[None]:
        while not self._consumer.closing:
            seen = self._heartbeat.count
            wait_ms = yield Do(beat(), to_end=False)
            if not self._consumer.closing:
                yield Wait(self._heartbeat, seen, wait_ms / 1000)

    def _notifying_listener(self, event: Rebalance) -> Routine[None]:
        listener = self._listeners[event.kind]
        if listener is not None:
            try:
                yield Apply(listener, event.partitions)
            except Exception as error:  # noqa: BLE001 - raised by the next `receive`
                self._consumer.fail(error)

    def _awaiting_rebalance(self, seen: int) -> Routine[None]:
        """Wait until there is something to rebalance again."""
        if not self._consumer.closing:
            yield Wait(self._orders, seen, _seconds(self._consumer.rebalance_wait_ms))


class BalancedConsumerBase(ConsumerBase):
    """Options of a member whose partitions the master assigns."""

    def __init__(
        self,
        settings: ClientSettings | GroupConfig,
        group: str | None = None,
        topics: Mapping[str, Sequence[str]] | None = None,
        *,
        consumer: ConsumerSettings | None = None,
        bound: BoundStart | None = None,
        corrupt_records: Literal["fail", "drop"] | None = None,
        on_assigned: Callable[[list[Partition]], object] | None = None,
        on_revoked: Callable[[list[Partition]], object] | None = None,
        on_lost: Callable[[list[Partition]], object] | None = None,
    ) -> None:
        options = group_options(
            settings,
            group,
            topics,
            consumer=consumer,
            corrupt_records=corrupt_records,
            bound=bound,
        )
        super().__init__(options.settings)
        self._listeners = {"assigned": on_assigned, "revoked": on_revoked, "lost": on_lost}
        self._consumer: BalancedSession = BalancedSession(
            self._session,
            options.group,
            self._ids.consumer(options.group, "Balanced"),
            subscription(options.group, options.topics, options.bound),
            self._settings,
            options.consumer,
            options.corrupt_records,
            self._calls(),
            bound=options.bound,
        )


class AssignedConsumerBase(ConsumerBase):
    """Options of a member that assigns partitions itself."""

    _consumer: AssignedSession

    def __init__(
        self,
        settings: ClientSettings | GroupConfig,
        group: str | None = None,
        topics: Mapping[str, Sequence[str]] | None = None,
        *,
        consumer: ConsumerSettings | None = None,
        source_count: int | None = None,
        node_id: int | None = None,
        corrupt_records: Literal["fail", "drop"] | None = None,
        on_assigned: Callable[[list[Partition]], object] | None = None,
        on_revoked: Callable[[list[Partition]], object] | None = None,
        on_lost: Callable[[list[Partition]], object] | None = None,
    ) -> None:
        options = group_options(
            settings,
            group,
            topics,
            consumer=consumer,
            corrupt_records=corrupt_records,
            takes_bound=False,
        )
        super().__init__(options.settings)
        self._listeners = {"assigned": on_assigned, "revoked": on_revoked, "lost": on_lost}
        self._consumer = AssignedSession(
            self._session,
            options.group,
            self._ids.consumer(options.group, "Balance"),
            subscription(options.group, options.topics, None),
            self._settings,
            options.consumer,
            options.corrupt_records,
            self._calls(),
            place=place_in_group(source_count, node_id),
        )

    @property
    def source_count(self) -> int | None:
        """Number of members of the group; None if it is not fixed."""
        count = self._consumer.place[0]
        return count if count > 0 else None

    @property
    def node_id(self) -> int | None:
        """Number of this member in a group of fixed size, from 0."""
        return None if self.source_count is None else self._consumer.place[1]

    def _assigning(
        self,
        partition: Partition,
        offset: int | None,
        position: Literal["earliest", "latest", "always_latest"] | None,
    ) -> Conversation[int]:
        if position is not None and (problem := word_problem("position", position, *READ_STATUS)):
            raise errors.ConfigError(problem, subject="assignment")
        status = None if position is None else READ_STATUS[position]
        self._raise_if_unusable()
        return (yield from self._consumer.assign(partition, offset, status)).current

    def _pulling(self, partition: Partition, timeout_ms: int) -> Routine[ReceivedBatch | None]:
        fetching, deadline = self._consumer.fetching, time.monotonic() + timeout_ms / 1000
        cancelled: list[bool] = []
        while True:
            seen = self._ready.count
            self._raise_if_unusable()
            try:
                batch = yield Do(fetching.pull(partition, lambda: not cancelled), fetching.put_back)
            except errors.ConfigError:
                self._raise_if_unusable()  # closing gave the partition back meanwhile
                raise
            except BaseException:  # cancelled: the request in flight ends nevertheless
                cancelled.append(True)
                raise
            left_s = deadline - time.monotonic()
            if batch is not None or left_s <= 0:
                return batch  # type: ignore[no-any-return]
            pause_s = fetching.next_pull_ms(partition, now_ms()) / 1000
            yield Wait(self._ready, seen, min(left_s, pause_s))

    def _releasing(self, partition: Partition) -> Conversation[None]:
        wait_ms = self._consumer.consumer.rebalance_confirm_wait_ms
        return self._consumer.release(partition, wait_ms=wait_ms)

    def _share(
        self, offsets: Mapping[Partition, int] | Callable[[Partition], int | None] | None
    ) -> None:
        if offsets is None:
            self._consumer.keep_share(lambda _: None)
        elif callable(offsets):
            self._consumer.keep_share(offsets)
        else:
            self._consumer.keep_share(self._consumer.beginning(dict(offsets)))


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
