"""Offset of a time for `startingTimestamp` and its alternatives, found by reading few records.

A time is what producers wrote into their records (``$msgTime$``, a minute, read as UTC): brokers
keep no other. An instant is rounded down to its minute, so that reads which end and begin at the
same time share one boundary. Where records are out of order the boundary is one of the positions
where time passes the instant. This module reports missing times without deciding what they mean for
a read, and keeps no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tubemq_client.model import Message, OffsetRange, Partition, message_minute
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.spark.offset_options import At
from tubemq_provider.windows.probing import ReadRange, crossing, first_in

if TYPE_CHECKING:
    from tubemq_client.model import BrokerNode
    from tubemq_provider.spark.options import ReadOptions
    from tubemq_provider.windows.spaces import Ends


@dataclass(frozen=True, slots=True)
class InstantPosition:
    """Position of an instant in one partition. `offset` None: no record is that late, and the last
    one has a time; with `late`, none is that late, and the records from `offset` on have no time.

    `cut`: retention may have removed records of the instant or later; `untimed`: the partition has
    records and none of them has a time.
    """

    offset: int | None
    cut: bool = False
    late: bool = False
    untimed: bool = False


def find_positions(
    instants: Iterable[tuple[Partition, At]], ends: Mapping[Partition, Ends], read: ReadRange
) -> dict[tuple[Partition, At], InstantPosition]:
    """Return the position of each pair; costs about log2(index entries) short reads for each."""
    return {
        (p, at): _position(ends[p], _minute(at), read) for p, at in sorted(set(instants), key=str)
    }


def open_reads(
    options: ReadOptions, brokers: Mapping[int, BrokerNode], opened: Callable[..., object]
) -> ReadRange:
    """Return a function that reads ranges with one reader, which is passed to `opened`, to be
    closed."""
    from tubemq_client.sync import RangeReader

    reader = RangeReader(
        options.settings(),
        group=options.group,
        brokers=brokers,
        pool_size=options.pool_size,
        slot_seed="timestamps",
        # The actual read applies the policy for corrupt records.
        corrupt_records="drop",
        gap_policy="skip",
        deadline_ms=options.read_timeout_ms,
    )
    opened(reader)

    def read(range_: OffsetRange) -> Iterator[Message]:
        for batch in reader.read(range_):
            yield from batch.messages()

    return read


def _minute(at: At) -> datetime:
    return datetime.fromtimestamp(at.ms // 60_000 * 60, UTC)


def _position(ends: Ends, instant: datetime, read: ReadRange) -> InstantPosition:
    whole = SPACE.range(ends.partition, ends.min_offset, ends.max_offset)
    if first_in(read, whole, _time) is None:
        return InstantPosition(None, untimed=first_in(read, whole, lambda _: True) is not None)

    def passed(rest: OffsetRange) -> bool:
        first = first_in(read, rest, _time)
        return first is None or first >= instant

    offset = crossing(SPACE, ends, passed)
    if offset == ends.max_offset:
        return InstantPosition(None)
    rest = SPACE.range(ends.partition, offset, ends.max_offset)
    if first_in(read, rest, _time) is None:
        return InstantPosition(offset, late=True)
    return InstantPosition(offset, cut=offset == ends.min_offset > 0)


def _time(message: Message) -> datetime | None:
    return message_minute(message.msg_time)
