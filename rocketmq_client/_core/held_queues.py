"""Queues that a member of a group holds: what was pulled, delivered, confirmed and committed.

Pure bookkeeping, no requests; `membership` decides which queues are held and asks brokers. A queue
has at most one delivered batch that is not confirmed, so its records stay in order. Its position
moves when a batch is confirmed, or over records that the broker's filter left out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from rocketmq_client import errors
from rocketmq_client.model import ReceivedBatch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from rocketmq_client._wire.bodies import Subscription
    from rocketmq_client.model import Address, ConsumerSettings, Message, Queue

__all__ = ["LOCK_MS", "HeldQueue", "HeldQueues", "lock_is_over"]


_BODY = attrgetter("body")
LOCK_MS: Final = 30_000
"""Time for which a member relies on a broker's lock, of the 60 s after which the broker gives it to
others."""


@dataclass(slots=True, eq=False)
class HeldQueue:
    """One held queue. Everything before `position` is done with; `next_offset` is pulled next, not
    before `pull_at` (ms, monotonic). `odd_since` is the time of the first answer that only a later
    one can explain. A `revoked` queue is about to be dropped. `locked_at` is when the broker last
    locked it for this member, None where members need no locks."""

    queue: Queue
    address: Address
    subscription: Subscription
    position: int
    committed: int | None
    next_offset: int
    records: deque[Message] = field(default_factory=deque)
    bytes: int = 0
    delivered: ReceivedBatch | None = None
    delivered_bytes: int = 0
    in_flight: bool = False
    pull_at: int = 0
    odd_since: int | None = None
    revoked: bool = False
    locked_at: int | None = None

    @property
    def count(self) -> int:
        """Records that are pulled and not confirmed."""
        return len(self.records) + (len(self.delivered.messages) if self.delivered else 0)

    def add(self, messages: Sequence[Message], following: int) -> None:
        """Take pulled records; `following` is the offset to pull next."""
        self.records.extend(messages)
        self.bytes += _body_bytes(messages)
        self.next_offset = following
        self.skip_filtered()

    def skip_filtered(self) -> None:
        """Move the position over records that the filter left out, if nothing else is open."""
        if not self.records and self.delivered is None:
            self.position = max(self.position, self.next_offset)

    def jump(self, offset: int) -> None:
        """Continue at `offset`, in either direction. Pulled records are dropped, and a delivered
        batch can no longer be confirmed."""
        self.records.clear()
        self.bytes, self.delivered = 0, None
        self.position = self.next_offset = offset


def _body_bytes(messages: Sequence[Message]) -> int:
    """Return the bytes of all bodies."""
    return sum(map(len, map(_BODY, messages)))


def lock_is_over(held: HeldQueue, now: int) -> bool:
    """Return True for a queue that needs a lock and has none that is reliable at `now`."""
    return held.locked_at is not None and now - held.locked_at >= LOCK_MS


class HeldQueues:
    """Held queues of a member, served in turn."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        self._held: dict[Queue, HeldQueue] = {}
        self._turns: deque[HeldQueue] = deque()
        self.paused: set[Queue] = set()

    def __iter__(self) -> Iterator[HeldQueue]:
        return iter(list(self._held.values()))

    def __contains__(self, queue: Queue) -> bool:
        return queue in self._held

    def queues(self) -> list[Queue]:
        """Return the held queues, ordered."""
        return sorted(self._held, key=lambda queue: (queue.topic, queue))

    def hold(self, held: HeldQueue) -> None:
        """Add a queue."""
        self._held[held.queue] = held
        self._turns.append(held)

    def get(self, queue: Queue) -> HeldQueue:
        """Return a held queue. Raises `KeyError`."""
        return self._held[queue]

    def drop(self, queue: Queue) -> None:
        """Give a queue up; its delivered batch can no longer be confirmed."""
        self._turns.remove(self._held.pop(queue))

    def to_pull(self, address: Address, now: int) -> list[HeldQueue]:
        """Return the queues of a broker that may be pulled now: no pull is in flight, and the
        limits leave room."""
        limits = self._settings
        return [
            held
            for held in self._held.values()
            if not held.in_flight
            and held.address == address
            and not (held.revoked or lock_is_over(held, now) or self._is_paused(held))
            and held.pull_at <= now
            and held.count < limits.queue_records
            and held.bytes < limits.queue_bytes
        ]

    def take(self, now: int) -> ReceivedBatch | None:
        """Return the next batch, of the queue whose turn it is among those that have records and no
        open batch; None without one. A queue whose lock is too old at `now` has no turn."""
        for _ in range(len(self._turns)):
            held = self._turns[0]
            self._turns.rotate(-1)
            closed = held.revoked or lock_is_over(held, now) or self._is_paused(held)
            if held.delivered is None and held.records and not closed:
                count = min(self._settings.batch_records, len(held.records))
                pop = held.records.popleft
                messages = tuple([pop() for _ in range(count)])
                following = messages[-1].offset + 1 if held.records else held.next_offset
                held.delivered = ReceivedBatch(held.queue, messages, following)
                held.delivered_bytes = _body_bytes(messages)
                return held.delivered
        return None

    def confirm(self, batch: ReceivedBatch) -> int:
        """Move the position past the batch and return it. Raises `errors.StaleBatch`."""
        held = self.require_open(batch)
        held.position = batch.next_offset
        held.bytes -= held.delivered_bytes
        held.delivered = None
        held.skip_filtered()
        return held.position

    def reject(self, batch: ReceivedBatch) -> None:
        """Put the batch back. Raises `errors.StaleBatch`."""
        held = self.require_open(batch)
        held.records.extendleft(reversed(batch.messages))
        held.delivered = None

    def _is_paused(self, held: HeldQueue) -> bool:
        return bool(self.paused) and held.queue in self.paused

    def is_open(self, batch: ReceivedBatch) -> bool:
        """Return whether the batch can be confirmed."""
        held = self._held.get(batch.queue)
        return held is not None and held.delivered is batch

    def is_past(self, batch: ReceivedBatch) -> bool:
        """Return whether this member has confirmed the batch and still holds its queue."""
        held = self._held.get(batch.queue)
        return held is not None and held.position >= batch.next_offset

    def uncommitted(self, queues: Collection[Queue] | None = None) -> list[HeldQueue]:
        """Return those of `queues` (None: of all) whose position is not committed."""
        return [
            held
            for held in self._held.values()
            if held.committed != held.position and (queues is None or held.queue in queues)
        ]

    def require_open(self, batch: ReceivedBatch) -> HeldQueue:
        """Return the queue of a batch that can be confirmed. Raises `errors.StaleBatch`."""
        if not self.is_open(batch):
            raise errors.StaleBatch(
                f"the batch up to offset {batch.next_offset} of {batch.queue} cannot be confirmed: "
                "its queue was taken away or reset, or it was confirmed or rejected before"
            )
        return self._held[batch.queue]
