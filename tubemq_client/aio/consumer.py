"""The asyncio client-balance consumer: assign partitions yourself, pull, confirm.

At least once: a batch that was pulled but not confirmed is delivered again, here or to the next
owner. Tasks beat for held partitions (one for masters, one for brokers) and end with `close()`.
`sync.consumer` is its twin.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Self

from tubemq_client import errors
from tubemq_client._core.assigned import READ_STATUS, AssignedSession
from tubemq_client._core.assigned_view import check_settings, place_in_group
from tubemq_client._core.balance_orders import Calls, subscription
from tubemq_client.aio._member import GroupMember
from tubemq_client.model import ConsumerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar

    from tubemq_client._core.balance_fetch import ReceivedBatch
    from tubemq_client._core.balance_partitions import ConsumedOffset
    from tubemq_client._core.effects import Conversation
    from tubemq_client.model import ClientSettings, Partition

    T = TypeVar("T")

__all__ = ["AssignedConsumer"]

DEFAULTS = ConsumerSettings()


class AssignedConsumer(GroupMember):
    """Consumes partitions that the caller assigns.

    Methods may be called from several tasks; they take turns. `topics` maps topic names to stream
    ids to filter by (empty: everything). Entering the context registers the group with the master.
    Of `consumer`, `confirm_locally` is refused and `confirm_timeout_ms` has no meaning: a batch
    waits for its confirmation as long as its partition is held. With `source_count` the group has
    that many members of fixed places, `node_id` from 0: see `own_partitions`. Raises
    `errors.ConfigError`. A cancelled `pull` loses nothing: its batch comes again. After a cancelled
    `confirm` it may.
    """

    def __init__(
        self,
        settings: ClientSettings,
        group: str,
        topics: Mapping[str, Sequence[str]],
        *,
        consumer: ConsumerSettings = DEFAULTS,
        source_count: int | None = None,
        node_id: int | None = None,
        corrupt_records: Literal["fail", "drop"] = "fail",
    ) -> None:
        place = place_in_group(source_count, node_id)
        check_settings(consumer)
        wanted = subscription(group, topics, None)
        super().__init__(settings)
        self._consumer: AssignedSession = AssignedSession(
            self._session,
            group,
            self._ids.consumer(group, "Balance"),
            wanted,
            corrupt_records,
            settings,
            consumer,
            place,
            Calls(self._ready.ring, self._beat.ring),
        )
        self._turn = asyncio.Lock()
        self._left = False

    async def __aenter__(self) -> Self:
        """Register with the master. Raises `errors.UnknownTopic`, `errors.GroupInconsistent`."""
        await self._join()
        return self

    @property
    def consumer_id(self) -> str:
        """What masters and brokers know this member by."""
        return self._consumer.client_id

    @property
    def topics(self) -> dict[str, tuple[str, ...]]:
        """What is subscribed: topics, and the stream ids each is filtered by."""
        return dict(self._consumer.topics)

    @property
    def source_count(self) -> int | None:
        """How many members the group has, None if that is not fixed."""
        count = self._consumer.place[0]
        return count if count > 0 else None

    @property
    def node_id(self) -> int | None:
        """The place of this member in a group of fixed size, from 0."""
        return None if self.source_count is None else self._consumer.place[1]

    @property
    def closed(self) -> bool:
        """Whether nothing can be consumed: not entered yet, or closed."""
        return self._consumer.closing or not self._tasks

    @property
    def assignment(self) -> list[Partition]:
        """Partitions held now; a partition that a broker took away is missing."""
        return sorted(self._consumer.held)

    @property
    def consumed_offsets(self) -> dict[Partition, ConsumedOffset]:
        """How far the group is in each partition held, as its broker said last, with the `lag`."""
        held = sorted(self._consumer.held.items())
        return {partition: item.offset for partition, item in held if item.offset is not None}

    @property
    def trouble(self) -> dict[str, errors.TubeMQError]:
        """What went wrong last without ending anything, by partition, broker or "master"."""
        return dict(self._consumer.trouble)

    async def partitions(self, *, refresh: bool = False) -> dict[Partition, bool]:
        """All partitions of the topics, and whether each may be subscribed now.

        The master is asked if its last answer is `metadata_period_ms` old, or with `refresh`. Held
        partitions that are gone or may not be subscribed any more are given back when their batch
        is confirmed, or after `rebalance_confirm_wait_ms`.
        """
        return await self._in_turn(lambda: self._consumer.refresh(force=refresh))

    async def own_partitions(self) -> list[Partition]:
        """The partitions that may be subscribed and are this member's share of the group.

        All of them without `source_count`. The share is that of the published Java client's
        example program: members find it without talking to each other, in mixed groups too.
        """
        await self._in_turn(self._consumer.refresh)
        return self._consumer.view.share(self._consumer.place)

    async def partitions_ready(self, timeout_ms: int) -> bool:
        """Wait until a partition is held, at most `timeout_ms`; tells whether one is."""
        deadline = _now_ms() + timeout_ms
        while True:
            seen = self._ready.count
            if self._consumer.failure is not None:
                raise self._consumer.failure
            if self._consumer.held:
                return True
            left = deadline - _now_ms()
            if left <= 0 or self.closed:
                return False
            await self._ready.wait(seen, left / 1000)

    async def assign(
        self,
        partition: Partition,
        offset: int | None = None,
        *,
        position: Literal["earliest", "latest", "always_latest"] | None = None,
    ) -> int:
        """Take a partition and return the offset reading starts at.

        `offset` (clamped by the broker to its log) overrides the group's stored position;
        `position` decides for a group without one, by default `consume_position` of the settings. A
        partition that is held stays as it is. Raises `errors.PartitionOccupied` while another
        client of the group holds it; a broker that refused is asked again after 5 s.
        """
        self._raise_if_unusable()
        status = None if position is None else READ_STATUS[position]
        found = await self._in_turn(lambda: self._consumer.assign(partition, offset, status))
        return found.current

    async def pull(self, partition: Partition, *, timeout_ms: int = 0) -> ReceivedBatch | None:
        """The next batch, or None if there is nothing to read now.

        Answers at once, or waits up to `timeout_ms` for something to read. A flow rule of the
        cluster or the group that asks to wait counts as nothing to read. Confirm or reject every
        batch, an empty one too.
        """
        return await self._wait_for(
            lambda: self._consumer.fetching.pull(partition), partition, timeout_ms
        )

    async def receive(self, timeout_ms: int | None = None) -> ReceivedBatch | None:
        """The next batch of any partition held, or None after `timeout_ms` without one.

        None waits `ready_wait_ms` of the settings, a negative time for ever. Partitions take turns;
        one with an unconfirmed batch is left out, one that fails is noted in `trouble`.
        """
        wait_ms = self._consumer.consumer.ready_wait_ms if timeout_ms is None else timeout_ms
        return await self._wait_for(self._consumer.fetching.pull_next, None, wait_ms)

    async def confirm(self, batch: ReceivedBatch) -> int:
        """Move the group past `batch`; returns the group's position, the next offset to read.

        Raises `errors.StaleBatch` or `errors.NotRegistered` when the batch is delivered again: its
        partition is no longer held, or was pulled again since. After `errors.NetworkError` it may
        be repeated; if the batch comes again instead, the broker had not heard it.
        """
        return await self._settle(batch, consumed=True)

    async def reject(self, batch: ReceivedBatch) -> int:
        """Leave the group where it was; the broker delivers the batch again."""
        return await self._settle(batch, consumed=False)

    async def release(self, partition: Partition) -> None:
        """Give a partition back; a batch not confirmed is rolled back."""
        await self._in_turn(lambda: self._consumer.release(partition, consumed=False))

    async def _in_turn(
        self, ask: Callable[[], Conversation[T]], put_back: Callable[[T], object] | None = None
    ) -> T:
        """One conversation at a time, to its end even if the caller is cancelled: a broker may
        serve what was given up after what is asked next."""
        await self._turn.acquire()
        if self._left:
            self._turn.release()
            self._raise_if_unusable()
        return await self._complete(self._until_its_end(ask()), put_back)

    def _until_its_end(self, conversation: Conversation[T]) -> Conversation[T]:
        try:
            return (yield from conversation)
        finally:
            self._turn.release()

    async def _leave(self) -> None:
        patience_s = (self._settings.rpc_timeout_ms + self._settings.connect_timeout_ms) / 1000
        ours = False
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    # A partition being assigned is to be given back, too.
                    ours = await self._turn.acquire()
        finally:
            try:
                await super()._leave()
            finally:
                if ours:
                    self._left = True
                    self._turn.release()

    async def _settle(self, batch: ReceivedBatch, *, consumed: bool) -> int:
        fetching = self._consumer.fetching
        found = await self._in_turn(lambda: fetching.settle(batch, consumed=consumed))
        return found.current

    async def _wait_for(
        self,
        pull: Callable[[], Conversation[ReceivedBatch | None]],
        partition: Partition | None,
        timeout_ms: int,
    ) -> ReceivedBatch | None:
        deadline = None if timeout_ms < 0 else _now_ms() + timeout_ms
        while True:
            seen = self._ready.count
            self._raise_if_unusable()
            batch = await self._in_turn(pull, self._consumer.fetching.put_back)
            now = _now_ms()
            if batch is not None or (deadline and deadline <= now):
                return batch
            wait_ms = self._consumer.fetching.next_try_ms(partition, now)
            await self._ready.wait(seen, min(wait_ms, (deadline or now + wait_ms) - now) / 1000)


def _now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)
