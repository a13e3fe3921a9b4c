"""Topic metadata of a client-balanced member, and the partitions of its share.

No conversation: replies of the master come in, partitions come out. Members of a group agree on
their shares without talking to each other, by a hash that the example program of the published
Java client uses too (`ClientBalanceConsumerExample.java`), so groups may be mixed.

Source: `docs/protocol/client-balance.md#shares`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tubemq_client import errors
from tubemq_client._core.registration import UNDEFINED
from tubemq_client.model import INDEX_ENTRY_BYTES, LARGEST_OFFSET

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from tubemq_client._wire.strings import TopicMeta
    from tubemq_client.model import Partition

__all__ = [
    "RefusalBackoff",
    "TopicView",
    "checked_offset",
    "java_hash",
    "node_of",
    "place_in_group",
]

HOLD_OFF_MS = 5_000
"""Time during which a broker that refused a partition (410, 415) is not asked for it again. The
value is ours; a lost owner keeps a partition for 30 to 35 s (`docs/protocol/errors.md`)."""

_UINT32 = 0xFFFFFFFF


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode` as an unsigned number: over UTF-16 units, modulo 2^32."""
    units = text.encode("utf-16-be")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & _UINT32
    return value


def node_of(partition: Partition, source_count: int) -> int:
    """Return the number of the member, out of `source_count`, that owns `partition`."""
    return java_hash(partition.key) % source_count


def checked_offset(partition: Partition, offset: Any) -> int | None:
    """Return `offset` if `partition` can be taken there; raise `errors.ConfigError` otherwise.

    A broker would use the group's position for a negative offset.
    """
    if offset is None:
        return None
    if (
        not isinstance(offset, int)
        or not 0 <= offset <= LARGEST_OFFSET
        or offset % INDEX_ENTRY_BYTES
    ):
        raise errors.ConfigError(
            f"offset {offset!r} of {partition} is not a multiple of {INDEX_ENTRY_BYTES} "
            f"from 0 to {LARGEST_OFFSET}",
            subject="assignment",
        )
    return offset


def place_in_group(source_count: int | None, node_id: int | None) -> tuple[int, int]:
    """Return the size of a group and a member's number in it, as requests carry them.

    Raises `errors.ConfigError` unless both or neither are given and the number is within the group.
    """
    if source_count is None and node_id is None:
        return UNDEFINED, UNDEFINED
    problems = []
    if source_count is None or node_id is None:
        missing = "source_count" if source_count is None else "node_id"
        problems.append(f"{missing} is missing: give source_count and node_id, or neither")
    elif source_count < 1:
        problems.append(f"source_count {source_count} is less than 1")
    elif not 0 <= node_id < source_count:
        problems.append(f"node_id {node_id} is not within 0 to {source_count - 1} (source_count-1)")
    if problems or source_count is None or node_id is None:
        raise errors.ConfigError(problems, subject="consumer")
    return source_count, node_id


@dataclass(slots=True)
class TopicView:
    """Partitions, each with "may be subscribed now", from the master's last answer.

    `learned_ms` (epoch) is reported to the master, which forces its view on a member that has not
    asked for a long time. `asked_at` (monotonic ms) is the time of the last answer; `asking`: a
    request is under way.
    """

    partitions: dict[Partition, bool] = field(default_factory=dict)
    meta_id: int = UNDEFINED
    learned_ms: int | None = None
    asked_at: int | None = None
    asking: bool = False

    def learn(
        self, meta_id: int, metas: Iterable[TopicMeta], brokers: Container[int], wall_ms: int
    ) -> bool:
        """Replace the view by the master's; return False if the reply has none.

        A bare id means that nothing has changed. A view without a known broker is ignored: it would
        remove all partitions.
        """
        if meta_id < 0:
            return False
        partitions = {
            partition: ready
            for meta in metas
            for partition, ready in meta.partitions()
            if partition.broker_id in brokers
        }
        if not partitions and meta_id != self.meta_id:
            return False
        self.meta_id, self.learned_ms = meta_id, wall_ms
        if partitions:
            self.partitions = partitions
        return bool(partitions)

    def is_fresh(self, now: int, period_ms: int) -> bool:
        """Return whether the master has answered less than `period_ms` ago."""
        return self.asked_at is not None and now - self.asked_at < period_ms

    def share(self, place: tuple[int, int]) -> list[Partition]:
        """Return this member's subscribable partitions; all of them without a place."""
        source_count, node_id = place
        ready = sorted(partition for partition, ready in self.partitions.items() if ready)
        if source_count <= 0:
            return ready
        return [partition for partition in ready if node_of(partition, source_count) == node_id]


class _Refusal(NamedTuple):
    until: int
    error: errors.ServerError


@dataclass(slots=True)
class RefusalBackoff:
    """Partitions that brokers have just refused, with the refusals."""

    _refusals: dict[Partition, _Refusal] = field(default_factory=dict)

    def note(self, partition: Partition, error: errors.ServerError, now: int) -> None:
        self._refusals[partition] = _Refusal(now + HOLD_OFF_MS, error)

    def forget(self, partition: Partition) -> None:
        self._refusals.pop(partition, None)

    def check(self, partition: Partition, now: int) -> None:
        """Raise the last refusal again while it is recent."""
        refusal = self._refusals.get(partition)
        if refusal is not None and now < refusal.until:
            error, left = refusal.error, refusal.until - now
            detail = f"{error.detail} (the broker is asked again in {left} ms)"
            raise type(error)(error.code, detail, where=error.where)
