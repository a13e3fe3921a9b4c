"""The blocking client-balance consumer: assign partitions yourself, pull, confirm.

At least once: a batch that was pulled but not confirmed is delivered again, here or to the next
owner. A daemon thread beats for held partitions and ends with `close()`. `aio.consumer` is its
twin.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Literal, Self

from tubemq_client import errors
from tubemq_client._core.assigned import READ_STATUS, AssignedSession
from tubemq_client._core.leases import HeartbeatSchedule
from tubemq_client.sync._base import BlockingClient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubemq_client._core.batch import MessageBatch
    from tubemq_client.model import ClientSettings, Partition

__all__ = ["AssignedConsumer"]


class AssignedConsumer(BlockingClient):
    """Consumes partitions that the caller assigns.

    Methods may be called from several threads; they take turns. `topics` maps topic names to stream
    ids to filter by (empty: everything). Entering the context registers the group with the master.
    """

    def __init__(
        self,
        settings: ClientSettings,
        group: str,
        topics: Mapping[str, Sequence[str]],
        *,
        corrupt_records: Literal["fail", "drop"] = "fail",
    ) -> None:
        super().__init__(settings)
        wanted = {topic: tuple(sorted(items)) for topic, items in topics.items()}
        self._consumer = AssignedSession(
            self._session,
            group,
            self._ids.consumer(group, "Balance"),
            wanted,
            corrupt_records,
        )
        self._schedule = HeartbeatSchedule.of(settings)
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._beat: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Register with the master. Raises `errors.UnknownTopic`, `errors.GroupInconsistent`."""
        try:
            with self._lock:
                self._driver.run(self._consumer.open())
        except BaseException:
            super().close()
            raise
        self._beat = threading.Thread(
            target=self._keep_beating, name="tubemq-consumer-heartbeat", daemon=True
        )
        self._beat.start()
        return self

    @property
    def assignment(self) -> list[Partition]:
        """Partitions held now; a partition that a broker took away is missing."""
        return sorted(self._consumer.held)

    def partitions(self) -> dict[Partition, bool]:
        """All partitions of the topics, and whether each may be subscribed now."""
        with self._lock:
            return self._driver.run(self._consumer.refresh())

    def assign(
        self,
        partition: Partition,
        offset: int | None = None,
        *,
        position: Literal["earliest", "latest", "always_latest"] = "earliest",
    ) -> int:
        """Take a partition and return the offset reading starts at.

        `offset` (clamped by the broker to its log) overrides the group's stored position;
        `position` decides for a group without one.
        """
        with self._lock:
            found = self._driver.run(
                self._consumer.assign(partition, offset, READ_STATUS[position])
            )
        return found.current

    def pull(self, partition: Partition, *, timeout_ms: int = 0) -> MessageBatch | None:
        """The next batch, or None if there is nothing to read now.

        Answers at once, or waits up to `timeout_ms` for something to read. A flow rule of the
        cluster or the group that asks to wait counts as nothing to read. Confirm or reject every
        batch, an empty one too.
        """
        deadline = _now_ms() + timeout_ms
        while True:
            with self._lock:
                batch = self._driver.run(self._consumer.pull(partition))
            left = deadline - _now_ms()
            if batch is not None or left <= 0:
                return batch
            self._stop.wait(min(self._consumer.next_try_ms(partition, _now_ms()), left) / 1000)

    def confirm(self, batch: MessageBatch) -> int:
        """Move the group past `batch`; returns the group's position, the next offset to read."""
        with self._lock:
            return self._driver.run(self._consumer.confirm(batch.partition, consumed=True)).current

    def reject(self, batch: MessageBatch) -> int:
        """Leave the group where it was; the broker delivers the batch again."""
        with self._lock:
            return self._driver.run(self._consumer.confirm(batch.partition, consumed=False)).current

    def release(self, partition: Partition) -> None:
        """Give a partition back; a batch not confirmed is rolled back."""
        with self._lock:
            self._driver.run(self._consumer.release(partition, consumed=False))

    def close(self) -> None:
        """Stop beating, give everything back, leave the group, close connections."""
        self._stop.set()
        if self._beat is not None:
            self._beat.join()
            self._beat = None
            try:
                self._driver.run(self._consumer.close())
            except (errors.NetworkError, errors.RemoteException, errors.ClosedError):
                pass  # master and brokers forget a silent client by themselves
        super().close()

    def _keep_beating(self) -> None:
        self._schedule.succeeded(_now_ms())
        while not self._stop.wait(self._schedule.wait_ms(_now_ms()) / 1000):
            try:
                with self._lock:
                    self._driver.run(self._consumer.heartbeat())
            except errors.TubeMQError:
                self._schedule.failed(_now_ms())
            else:
                self._schedule.succeeded(_now_ms())


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
