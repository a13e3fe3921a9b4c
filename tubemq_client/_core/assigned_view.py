"""What a client-balanced member knows of its topics, and which partitions are its share.

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
    "HoldOff",
    "TopicView",
    "checked_offset",
    "java_hash",
    "node_of",
    "place_in_group",
]

HOLD_OFF_MS = 5_000
"""How long a broker that refused a partition (410, 415) is not asked for it again: ours; a lost
owner keeps a partition for 30 to 35 s (`docs/protocol/errors.md`)."""

_UINT32 = 0xFFFFFFFF


def java_hash(text: str) -> int:
    """Java's `String.hashCode` as an unsigned number: over UTF-16 units, modulo 2^32."""
    units = text.encode("utf-16-be")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & _UINT32
    return value


def node_of(partition: Partition, source_count: int) -> int:
    """The number of the member, out of `source_count`, whose share `partition` is."""
    return java_hash(partition.key) % source_count


def checked_offset(partition: Partition, offset: Any) -> int | None:
    """`offset`, at which `partition` is to be taken. Raises `errors.ConfigError` if it is none: a
    broker goes on where the group stands when it is told a negative one."""
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
    """The size of a group and the place in it as requests carry them. Raises `errors.ConfigError`
    unless both are given, or neither, and the place is one of the group's."""
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
    """Partitions with "may be subscribed now", as the master said last.

    `learned_ms` (epoch) is reported to the master, which forces its view on a member that has not
    asked for long. `asked_at` (monotonic ms) is when it answered last; `asking`: it is being asked.
    """

    partitions: dict[Partition, bool] = field(default_factory=dict)
    meta_id: int = UNDEFINED
    learned_ms: int | None = None
    asked_at: int | None = None
    asking: bool = False

    def learn(
        self, meta_id: int, metas: Iterable[TopicMeta], brokers: Container[int], wall_ms: int
    ) -> bool:
        """Take over a view; tells whether there was one. A bare id says that nothing has changed.
        One that names no known broker is not believed: it would lose everything."""
        if meta_id < 0:
            return False
        found = {
            partition: ready
            for meta in metas
            for partition, ready in meta.partitions()
            if partition.broker_id in brokers
        }
        if not found and meta_id != self.meta_id:
            return False
        self.meta_id, self.learned_ms = meta_id, wall_ms
        if found:
            self.partitions = found
        return bool(found)

    def is_fresh(self, now: int, period_ms: int) -> bool:
        """Whether the master has answered less than `period_ms` ago."""
        return self.asked_at is not None and now - self.asked_at < period_ms

    def share(self, place: tuple[int, int]) -> list[Partition]:
        """The partitions that may be subscribed and are this member's; all without a place."""
        source_count, node_id = place
        ready = sorted(partition for partition, ready in self.partitions.items() if ready)
        if source_count <= 0:
            return ready
        return [partition for partition in ready if node_of(partition, source_count) == node_id]


class _Refusal(NamedTuple):
    until: int
    error: errors.ServerError


@dataclass(slots=True)
class HoldOff:
    """Partitions that brokers have just refused, not to be asked for again and again."""

    _refusals: dict[Partition, _Refusal] = field(default_factory=dict)

    def note(self, partition: Partition, error: errors.ServerError, now: int) -> None:
        self._refusals[partition] = _Refusal(now + HOLD_OFF_MS, error)

    def forget(self, partition: Partition) -> None:
        self._refusals.pop(partition, None)

    def check(self, partition: Partition, now: int) -> None:
        """Raises the same refusal again while it is fresh."""
        refusal = self._refusals.get(partition)
        if refusal is not None and now < refusal.until:
            error, left = refusal.error, refusal.until - now
            detail = f"{error.detail} (the broker is asked again in {left} ms)"
            raise type(error)(error.code, detail, where=error.where)
