"""Blocking client-balance consumer: assign partitions yourself, or keep a share; consume.

At least once: a batch that was pulled but not confirmed is delivered again, here or to the next
owner. Daemon threads send heartbeats for held partitions (one to masters, one to brokers) and end
with `close()`. `aio.assigned_consumer` is its counterpart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tubemq_client._io.consumer_base import AssignedConsumerBase
from tubemq_client.sync._member import GroupMember

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tubemq_client._core.balance_fetch import ReceivedBatch
    from tubemq_client.model import Partition

__all__ = ["AssignedConsumer"]


class AssignedConsumer(AssignedConsumerBase, GroupMember):
    """Consumer of partitions that the caller assigns, one by one or as a share of the group.

    Methods may be called from several threads, which then fetch partitions in parallel. Created
    from settings, group and topics (which maps topic names to stream ids to filter by; empty:
    everything), or from a `config.ConsumerConfig` alone. Entering the context registers the group
    with the master. With `source_count` the group has that many members with fixed numbers,
    `node_id` from 0: see `keep_share`. The callbacks are called in a thread of the consumer, with
    partitions that `keep_share` took (`on_assigned`, before the first fetch), that are about to be
    given back because they are gone or another member's (`on_revoked`), and that a broker has
    taken away (`on_lost`). Raises `errors.ConfigError`.
    """

    def partitions(self, *, refresh: bool = False) -> dict[Partition, bool]:
        """Return all partitions of the topics, each with "may be subscribed now".

        The master is asked if its last answer is `metadata_period_ms` old, or with `refresh`;
        fetches and confirmations do not wait for it. Held partitions that are gone or may not be
        subscribed any more are given back when their batch is confirmed, or after
        `rebalance_confirm_wait_ms`.
        """
        self._raise_if_unusable()
        return self._do(self._consumer.refresh(force=refresh))

    def own_partitions(self) -> list[Partition]:
        """Return the subscribable partitions that are this member's share of the group.

        Returns all of them without `source_count`. The share is that of the published Java client's
        example program: members compute it without talking to each other, in mixed groups too.
        """
        self._raise_if_unusable()
        self._do(self._consumer.refresh())
        return self._consumer.view.share(self._consumer.place)

    def keep_share(
        self,
        offsets: Mapping[Partition, int] | Callable[[Partition], int | None] | None = None,
    ) -> None:
        """Hold the partitions of `own_partitions` from now on; returns at once.

        A thread of the consumer takes them, follows the topics as they grow, and takes lost ones
        again. Partitions that others hold, brokers and masters that do not answer are retried every
        second without delaying other partitions. Partitions of another member are given back when
        their batch is confirmed, or after `confirm_timeout_ms`. `offsets` are start offsets: a
        mapping is used the first time that a partition is taken, a callable every time (None: the
        group's position). `partitions_ready` waits for the first partition.
        """
        self._raise_if_unusable()
        self._share(offsets)

    def assign(
        self,
        partition: Partition,
        offset: int | None = None,
        *,
        position: Literal["earliest", "latest", "always_latest"] | None = None,
    ) -> int:
        """Take a partition and return the offset at which reading starts.

        `offset` (clamped by the broker to its log) overrides the group's stored position;
        `position` decides for a group without one, by default `consume_position` of the settings. A
        held partition does not change. Temporary failures are retried once after
        `register_pause_ms`. Raises `errors.PartitionOccupied` while another client of the group
        holds it; a broker that refused is asked again after 5 s.
        """
        return self._do(self._assigning(partition, offset, position))

    def pull(self, partition: Partition, *, timeout_ms: int = 0) -> ReceivedBatch | None:
        """Return the next batch of this partition, or None if there is nothing to read now.

        Answers at once, or waits up to `timeout_ms` for a record. A wait required by a flow rule of
        the cluster or the group counts as nothing to read. An unconfirmed batch is delivered again,
        and only the last delivery may be confirmed. Raises the failure of the request; for a broker
        that failed several times in a row at once, until its pause is over (`stats.left_alone`).
        """
        return self._play(self._pulling(partition, timeout_ms))

    def release(self, partition: Partition) -> None:
        """Give a partition back when its batch is settled, or after `rebalance_confirm_wait_ms`.

        A batch that is not confirmed by then is rolled back. `keep_share` takes the partition
        again.
        """
        self._do(self._releasing(partition))
