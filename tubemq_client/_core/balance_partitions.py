"""Partitions that a group member holds, and the state of each: a table without conversations.

A held partition is idle, being fetched, waiting for its batch to be confirmed, or settling (its
confirmation is under way). One batch per partition is delivered at a time, identified by a token;
an answer with another token is late and changes nothing. Times are milliseconds of the caller's
monotonic clock. `balance_fetch` moves partitions through these states, `balance` adds and removes
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tubemq_client import errors
from tubemq_client._core.breaker import NEVER
from tubemq_client.model import INDEX_ENTRY_BYTES, IdleReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tubemq_client._core.flow_control import Pace
    from tubemq_client._core.registration import Registered, Registration
    from tubemq_client.model import BrokerNode, Partition

__all__ = ["ConsumedOffset", "HeldPartition", "PartitionState", "PartitionTable"]


class PartitionState(Enum):
    """State of a held partition."""

    IDLE = "idle"
    FETCHING = "fetching"
    DELIVERED = "delivered"
    CONFIRMING = "settling"


class ConsumedOffset(NamedTuple):
    """Position of a group in a partition, from the broker's last reply.

    Both are index offsets; `current` is the next one to be read. `updated_at_ms` is the time of the
    reply: ms since the epoch by this machine's clock (inside the client, on its monotonic clock).
    """

    partition: Partition
    current: int
    max_offset: int
    updated_at_ms: int

    @property
    def lag(self) -> int:
        """Index entries not read yet: at least the unread records of this partition."""
        return max(0, self.max_offset - self.current) // INDEX_ENTRY_BYTES


@dataclass(slots=True, eq=False)
class HeldPartition:
    """Registration and its state.

    `consumed`: the batch fetched last was confirmed, and the broker learns it with the next
    request. `replaced`: token of the batch that was delivered before this one was pulled again.
    `withheld`: not to be fetched, as it is being taken or given back. `renewing`: it is between two
    leases (`fencing`), and brokers' answers about it are outdated. `failure` is why the last
    request had no answer. It is fetched in turn from `ready_at` on; until `ruled_until` a rule or a
    refusal forbids any fetch.
    """

    lease: Registration
    pace: Pace
    use: PartitionState = PartitionState.IDLE
    token: int = 0
    ready_at: int = 0
    ruled_until: int = 0
    delivered_at: int = 0
    consumed: bool = False
    withheld: bool = False
    renewing: bool = False
    offset: ConsumedOffset | None = None
    failure: errors.TubeMQError | None = None
    replaced: int = 0
    turn: int = 0

    @property
    def partition(self) -> Partition:
        return self.lease.partition

    def learn(self, current: int, max_offset: int, now: int) -> None:
        """Record the positions of a reply; a negative or missing number is ignored."""
        if current >= 0 and max_offset >= 0:
            self.offset = ConsumedOffset(self.partition, current, max_offset, now)

    def learn_registered(self, found: Registered, now: int) -> None:
        self.learn(found.current, found.max_offset, now)


@dataclass(slots=True)
class PartitionTable:
    """Partitions of a member.

    `on_ready` is called when a partition may have become fetchable; `opens_at` returns the time
    from which a broker may be asked.
    """

    on_ready: Callable[[], None] = lambda: None
    opens_at: Callable[[BrokerNode], int] = lambda _: 0
    held: dict[Partition, HeldPartition] = field(default_factory=dict)
    frozen: set[Partition] = field(default_factory=set)
    paused: bool = False
    _count: int = 0

    # -- adding and removing -----------------------------------------------------------------------

    def add(self, held: HeldPartition) -> None:
        """Add a partition; it stays withheld until `admit`."""
        held.withheld = True
        self.held[held.partition] = held

    def admit(self, partitions: Iterable[Partition]) -> None:
        """Allow fetches of added partitions."""
        for partition in partitions:
            held = self.held.get(partition)
            if held is not None:
                held.withheld = False
                self._queue(held)
        self.on_ready()

    def exclude(self, partitions: Iterable[Partition]) -> None:
        """Stop fetching these; delivered batches may still be confirmed."""
        for partition in partitions:
            if partition in self.held:
                self.held[partition].withheld = True

    def remove(self, partition: Partition, only: HeldPartition | None = None) -> bool:
        """Remove a partition, or only this registration of it; return whether it was held."""
        held = self.held.get(partition)
        if held is None or (only is not None and held is not only):
            return False
        del self.held[partition]
        return True

    def busy(self, partitions: Iterable[Partition]) -> bool:
        """Return whether a batch of one of these is being fetched or not confirmed yet."""
        candidates = (self.held.get(partition) for partition in partitions)
        return any(held is not None and held.use is not PartitionState.IDLE for held in candidates)

    # -- freezing and pausing ---------------------------------------------------------------------

    def freeze(self, partitions: Iterable[Partition]) -> None:
        self.frozen.update(partitions)

    def unfreeze(self, partitions: Iterable[Partition]) -> None:
        self.frozen.difference_update(partitions)
        self.on_ready()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.on_ready()

    # -- use --------------------------------------------------------------------------------------

    def take(self, now: int) -> HeldPartition | None:
        """Begin to fetch the idle partition that has waited longest, and return it."""
        ready = [held for held in self._fetchable() if self._ready_at(held) <= now]
        if not ready:
            return None
        held = min(ready, key=lambda held: held.turn)
        self._begin(held)
        return held

    def take_this(self, held: HeldPartition, now: int) -> bool:
        """Begin a fetch out of turn, unless forbidden or under way; return whether it began.

        A batch of the partition that was delivered becomes stale.
        """
        blocked = self.paused or held.withheld or held.partition in self.frozen
        if (
            blocked
            or now < held.ruled_until
            or held.use not in (PartitionState.IDLE, PartitionState.DELIVERED)
        ):
            return False
        self._begin(held, replaced=held.token if held.use is PartitionState.DELIVERED else 0)
        return True

    def _begin(self, held: HeldPartition, replaced: int = 0) -> None:
        self._count += 1
        held.use, held.token, held.replaced = PartitionState.FETCHING, self._count, replaced

    def wait_ms(self, now: int) -> int | None:
        """Return the time until `take` can succeed.

        None if only a confirmation, a rebalance, an unfreeze, a resume or an answer can change
        that.
        """
        times = [at for held in self._fetchable() if (at := self._ready_at(held)) < NEVER]
        return max(0, min(times) - now) if times else None

    def idle_reason(self, now: int) -> IdleReason | None:
        """Return why nothing can be fetched at `now`; None if something can."""
        if self.paused:
            return IdleReason.PAUSED
        free = [held for held in self.held.values() if held.partition not in self.frozen]
        if not free:
            return IdleReason.FROZEN if self.held else IdleReason.NO_PARTITION
        if all(held.withheld for held in free):
            return IdleReason.MOVING
        idle = [held for held in free if held.use is PartitionState.IDLE and not held.withheld]
        if not idle:
            unconfirmed = any(
                held.use in (PartitionState.DELIVERED, PartitionState.CONFIRMING) for held in free
            )
            return IdleReason.UNCONFIRMED if unconfirmed else IdleReason.WAITING
        if any(self._ready_at(held) <= now for held in idle):
            return None
        unreachable = all(self.opens_at(held.lease.broker) > now for held in idle)
        return IdleReason.NO_ANSWER if unreachable else IdleReason.WAITING

    def _ready_at(self, held: HeldPartition) -> int:
        return max(held.ready_at, self.opens_at(held.lease.broker))

    def delivered(self, held: HeldPartition, token: int, now: int) -> bool:
        """Mark the batch as delivered; False if the partition is no longer ours to fetch."""
        if not self._is_current(held, token) or held.withheld:
            return False
        held.use, held.delivered_at = PartitionState.DELIVERED, now
        return True

    def confirm(self, partition: Partition, token: int, *, consumed: bool = True) -> HeldPartition:
        """Begin to confirm or reject a batch.

        Raises `errors.StaleBatch` for a batch that is no longer delivered. A batch whose
        confirmation the broker did not receive is valid until the partition is fetched again. A
        batch that was pulled again may be rejected, which rejects the last one.
        """
        held = self.held.get(partition)
        unsettled = held is not None and (
            held.use is PartitionState.DELIVERED or self._has_unsent_confirmation(held)
        )
        is_current = held is not None and (
            held.token == token or (held.replaced == token and not consumed)
        )
        if held is None or not is_current or not unsettled:
            reason = (
                "is no longer held"
                if held is None
                else "has been rolled back, settled or pulled again"
            )
            raise errors.StaleBatch(
                f"the batch of partition {partition} cannot be confirmed: it {reason}; records not "
                f"confirmed before are delivered again"
            )
        held.use = PartitionState.CONFIRMING
        return held

    def _has_unsent_confirmation(self, held: HeldPartition) -> bool:
        return held.use is PartitionState.IDLE and held.consumed

    def return_unread(self, held: HeldPartition, token: int) -> None:
        """Restore a delivered batch of this token, as fetching out of turn changed nothing."""
        if self.held.get(held.partition) is held and held.use is PartitionState.IDLE:
            held.use, held.token = PartitionState.DELIVERED, token

    def claim(self, held: HeldPartition) -> bool:
        """Reserve an idle partition to send a local confirmation."""
        if self.held.get(held.partition) is not held or held.use is not PartitionState.IDLE:
            return False
        self._count += 1
        held.use, held.token = PartitionState.CONFIRMING, self._count
        return True

    def release(
        self, held: HeldPartition, token: int, *, ready_at: int = 0, consumed: bool = False
    ) -> bool:
        """Make the partition idle again; it may be fetched from `ready_at` on."""
        if not self._is_current(held, token):
            return False
        held.use, held.consumed = PartitionState.IDLE, consumed
        held.ready_at = max(ready_at, held.ready_at)
        self._queue(held)
        self.on_ready()
        return True

    def expire(self, now: int, timeout_ms: int) -> list[Partition]:
        """Roll back batches delivered at least `timeout_ms` ago: they are fetched again."""
        late = [
            held
            for held in self.held.values()
            if held.use is PartitionState.DELIVERED and now - held.delivered_at >= timeout_ms
        ]
        for held in late:
            self.release(held, held.token)
        return [held.partition for held in late]

    def _fetchable(self) -> list[HeldPartition]:
        if self.paused:
            return []
        return [
            held
            for held in self.held.values()
            if held.use is PartitionState.IDLE
            and not held.withheld
            and held.partition not in self.frozen
        ]

    def _is_current(self, held: HeldPartition, token: int) -> bool:
        is_held = self.held.get(held.partition) is held
        return is_held and held.token == token and held.use is not PartitionState.IDLE

    def _queue(self, held: HeldPartition) -> None:
        self._count += 1
        held.turn = self._count
