"""Allocation of a topic's queues to the members of a group: every member computes the whole.

There is no leader: members of all languages compute from the same ordered lists of members and
queues, so all of a group must use the same strategy. These give what upstream's strategies of the
same kind give.

Source: `docs/rocketmq-protocol/wire.md#groups`.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from rocketmq_client.model import Allocation, Queue

__all__ = ["allocate_average", "allocate_by_room", "allocate_fixed", "allocation_named"]

_POINTS_PER_MEMBER: Final = 10


def allocate_average(
    member: str, members: Sequence[str], queues: Sequence[Queue]
) -> Sequence[Queue]:
    """Return this member's run of neighbouring queues; the first members have one more."""
    place = members.index(member)
    size, more = divmod(len(queues), len(members))
    start = place * size + min(place, more)
    return queues[start : start + size + (place < more)]


def _circle(member: str, members: Sequence[str], queues: Sequence[Queue]) -> Sequence[Queue]:
    return queues[members.index(member) :: len(members)]


def _by_hash(member: str, members: Sequence[str], queues: Sequence[Queue]) -> Sequence[Queue]:
    """Return the queues whose next point on a ring of hashes belongs to this member."""
    ring = {
        _hash(f"{name}-{number}"): name for name in members for number in range(_POINTS_PER_MEMBER)
    }
    points = sorted(ring)

    def owner(queue: Queue) -> str:
        text = (
            f"MessageQueue [topic={queue.topic}, brokerName={queue.broker}, "
            f"queueId={queue.queue_id}]"
        )
        return ring[points[bisect_left(points, _hash(text)) % len(points)]]

    return [queue for queue in queues if owner(queue) == member]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def allocate_by_room(rooms: Collection[str]) -> Allocation:
    """Return the strategy that divides the queues of brokers named ``<room>@<name>`` in `rooms`
    among all members, and leaves out the others."""

    def allocate(member: str, members: Sequence[str], queues: Sequence[Queue]) -> Sequence[Queue]:
        near = [queue for queue in queues if _room(queue) in rooms]
        place = members.index(member)
        size, more = divmod(len(near), len(members))
        extra = [near[place + size * len(members)]] if place < more else []
        return [*near[place * size : (place + 1) * size], *extra]

    return allocate


def _room(queue: Queue) -> str | None:
    room, separator, name = queue.broker.partition("@")
    return room if separator and "@" not in name else None


def allocate_fixed(queues: Iterable[Queue]) -> Allocation:
    """Return the strategy that gives this member these queues, independent of other members."""
    fixed = frozenset(queues)

    def allocate(_member: str, _members: Sequence[str], found: Sequence[Queue]) -> Sequence[Queue]:
        return [queue for queue in found if queue in fixed]

    return allocate


_NAMED: Final[dict[str, Allocation]] = {
    "average": allocate_average,
    "circle": _circle,
    "hash": _by_hash,
}


def allocation_named(allocation: str | Allocation) -> Allocation:
    """Return the strategy of a name, or the function itself."""
    return _NAMED[allocation] if isinstance(allocation, str) else allocation
