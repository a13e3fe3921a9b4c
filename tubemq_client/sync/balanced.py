"""The blocking group consumer: the master deals out partitions, you receive and confirm batches.

At least once: a batch that was received but not confirmed is delivered again, here or to the next
owner. Daemon threads beat for the member (one for masters, one for brokers) and carry out what the
master orders; they end with `close()`. `aio.balanced` is its twin.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Self

from tubemq_client import errors
from tubemq_client._core.balance import BalancedSession
from tubemq_client._core.balance_fetch import ReceivedBatch
from tubemq_client._core.balance_orders import BoundStart, Calls, Rebalance, subscription
from tubemq_client._core.balance_partitions import ConsumedOffset
from tubemq_client.model import ConsumerSettings
from tubemq_client.sync._member import GroupMember
from tubemq_client.sync._turns import in_turns

if TYPE_CHECKING:
    from tubemq_client.model import ClientSettings, Partition

__all__ = ["BoundStart", "ConsumedOffset", "Consumer", "ReceivedBatch"]

DEFAULTS = ConsumerSettings()
_SETTLED_LATER = (
    errors.StaleBatch,
    errors.NetworkError,
    errors.RemoteException,
    errors.ServerError,
)


class Consumer(GroupMember):
    """A member of a group among whose members the master deals out partitions.

    `topics` maps topic names to stream ids to filter by (empty: everything). Methods may be called
    from several threads. Entering the context joins the group; partitions arrive within a balance
    period of the master (30 to 60 s by its defaults) and may be moved at any time. The callbacks
    hear of that in a thread of the consumer: `on_assigned` before the first fetch, `on_revoked`
    while batches may still be confirmed (`rebalance_confirm_wait_ms`), `on_lost` afterwards, when a
    broker has ended the registration. `bound` starts the whole group from explicit offsets.
    """

    def __init__(
        self,
        settings: ClientSettings,
        group: str,
        topics: Mapping[str, Sequence[str]],
        *,
        consumer: ConsumerSettings = DEFAULTS,
        bound: BoundStart | None = None,
        corrupt_records: Literal["fail", "drop"] = "fail",
        on_assigned: Callable[[list[Partition]], object] | None = None,
        on_revoked: Callable[[list[Partition]], object] | None = None,
        on_lost: Callable[[list[Partition]], object] | None = None,
    ) -> None:
        super().__init__(settings)
        self._consumer: BalancedSession = BalancedSession(
            self._session,
            group,
            self._ids.consumer(group, "Balanced"),
            subscription(group, topics, bound),
            settings,
            consumer,
            bound,
            corrupt_records,
            Calls(self._ready.ring, self._beat.ring, self._orders.ring),
        )
        self._listeners = {"assigned": on_assigned, "revoked": on_revoked, "lost": on_lost}
        self._stopped = True

    def __enter__(self) -> Self:
        """Join the group. Raises `errors.UnknownTopic`, `errors.GroupInconsistent`,
        `errors.NotAuthorized`."""
        self._join()
        self._start("rebalance", self._keep_rebalancing)
        return self

    @property
    def consumer_id(self) -> str:
        """What masters and brokers know this member by."""
        return self._consumer.client_id

    @property
    def assignment(self) -> list[Partition]:
        """Partitions held now."""
        return sorted(self._consumer.table.held)

    @property
    def frozen(self) -> list[Partition]:
        """Partitions that are not fetched, held or not."""
        return sorted(self._consumer.table.frozen)

    @property
    def paused(self) -> bool:
        """Whether nothing is fetched because of `pause`."""
        return self._consumer.table.paused

    @property
    def consumed_offsets(self) -> dict[Partition, ConsumedOffset]:
        """How far the group is in each partition held, as its broker said last, with the `lag`."""
        with self._lock:
            held = sorted(self._consumer.table.held.items())
            return {partition: item.offset for partition, item in held if item.offset is not None}

    @property
    def trouble(self) -> dict[str, errors.TubeMQError]:
        """What went wrong last without ending anything, by partition, broker or "master"."""
        with self._lock:
            return dict(self._consumer.trouble)

    def partitions_ready(self, timeout_ms: int) -> bool:
        """Wait until a partition is held, at most `timeout_ms`; tells whether one is."""
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            seen = self._ready.count
            self._raise_if_unusable()
            if self._consumer.table.held:
                return True
            if (left := deadline - time.monotonic()) <= 0:
                return False
            self._ready.wait(seen, left)

    # -- pull -----------------------------------------------------------------------------------

    def receive(self, timeout_ms: int | None = None) -> ReceivedBatch | None:
        """The next batch of any partition held, or None after `timeout_ms` without one.

        None waits `ready_wait_ms` of the settings, a negative time for ever. Partitions take turns;
        one with an unconfirmed batch is left out. Raises `errors.ClosedError`, what a callback
        raised, and what ended the membership for good (`errors.GroupInconsistent`, …).
        """
        wait_ms = self._consumer.consumer.ready_wait_ms if timeout_ms is None else timeout_ms
        deadline = None if wait_ms < 0 else time.monotonic() + wait_ms / 1000
        return self._receive(deadline, lambda: False)

    def confirm(self, batch: ReceivedBatch) -> int:
        """Move the group past `batch`; returns the group's position, the next offset to read, or -1
        when confirmations are local.

        Raises `errors.StaleBatch` or `errors.NotRegistered` when the batch is no longer this
        member's and will be delivered again. After `errors.NetworkError` the next fetch of the
        partition confirms it once more.
        """
        return self._do(self._consumer.fetching.settle(batch, consumed=True))

    def reject(self, batch: ReceivedBatch) -> int:
        """Leave the group where it was; the batch is delivered again after `not_found_wait_ms`."""
        return self._do(self._consumer.fetching.settle(batch, consumed=False))

    def batches(self, timeout_ms: int | None = None) -> Iterator[ReceivedBatch]:
        """Batches until none comes within `timeout_ms` (as for `receive`). Asking for the next
        confirms the one before; a batch during which the loop is left is rejected."""
        while (batch := self.receive(timeout_ms)) is not None:
            done = False
            try:
                yield batch
                done = True
            finally:
                if not done:
                    self._do(self._consumer.fetching.abandon(batch))
            self._confirm_if_possible(batch)

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
        the run and raises what the handler raised; "retry" goes on, and the batch comes again.
        """
        if workers < 1:
            raise errors.ConfigError(f"workers {workers} is less than 1", subject="run")
        self._raise_if_unusable()
        problems: list[BaseException] = []
        self._stopped = False

        def work() -> None:
            try:
                self._keep_handling(handler, on_error)
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
        """End a `run` that is under way; handlers finish what they have."""
        self._stop()

    def pause(self) -> None:
        """Fetch nothing until `resume`; local confirmations are told to brokers now."""
        self._consumer.table.pause()
        self._do(self._consumer.fetching.flush())

    def resume(self) -> None:
        """Fetch again."""
        self._consumer.table.resume()

    def freeze(self, partitions: Iterable[Partition]) -> None:
        """Do not fetch these; they stay held, and frozen when they come back after a rebalance."""
        with self._lock:
            self._consumer.table.freeze(partitions)

    def unfreeze(self, partitions: Iterable[Partition] | None = None) -> None:
        """Fetch these again; None for all."""
        with self._lock:
            self._consumer.table.unfreeze(self.frozen if partitions is None else partitions)

    # -- threads ----------------------------------------------------------------------------------

    def _keep_rebalancing(self) -> None:
        while not self._consumer.closing:
            seen = self._orders.count
            for event in self._driver.stream(in_turns(self._consumer.rebalance(), self._lock)):
                self._tell(event)
            if not self._consumer.closing:
                self._orders.wait(seen, None)

    def _tell(self, event: Rebalance) -> None:
        listener = self._listeners[event.kind]
        if listener is not None:
            try:
                listener(event.partitions)
            except Exception as error:  # noqa: BLE001 - raised by the next `receive`
                self._consumer.fail(error)

    def _receive(self, deadline: float | None, is_over: Callable[[], bool]) -> ReceivedBatch | None:
        tries = 0
        while not is_over():
            seen = self._ready.count
            self._raise_if_unusable()
            found = self._do(self._consumer.fetching.fetch())
            if isinstance(found, ReceivedBatch):
                return found
            tries += 1
            left = None if deadline is None else deadline - time.monotonic()
            if (
                left is not None
                and left <= 0
                and (found.wait_ms != 0 or tries > len(self.assignment))
            ):
                return None
            times = [t for t in (left, _seconds(found.wait_ms)) if t is not None]
            self._ready.wait(seen, max(0.0, min(times)) if times else None)
        return None

    def _receive_until_stopped(self) -> ReceivedBatch | None:
        try:
            return self._receive(None, lambda: self._stopped)
        except errors.ClosedError:
            if not self._consumer.closing:
                raise
            return None  # `close` has begun, and was about to tell us to stop

    def _keep_handling(
        self, handler: Callable[[ReceivedBatch], object], on_error: Literal["stop", "retry"]
    ) -> None:
        while (batch := self._receive_until_stopped()) is not None:
            try:
                handler(batch)
            except BaseException as error:
                self._do(self._consumer.fetching.abandon(batch))
                if on_error == "stop" or not isinstance(error, Exception):
                    raise
            else:
                self._confirm_if_possible(batch)

    def _confirm_if_possible(self, batch: ReceivedBatch) -> None:
        try:
            self.confirm(batch)
        except _SETTLED_LATER as error:
            with self._lock:  # told again with the next fetch, or the batch comes again
                self._consumer.trouble[str(batch.partition)] = error

    def _stop(self) -> None:
        self._stopped = True
        super()._stop()


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
