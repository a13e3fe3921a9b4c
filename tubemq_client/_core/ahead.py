"""Narrow ranges that are read ahead of their turn, at the same time, over shared connections.

A range of a few records costs round trips, not bytes. Of the ranges that a reader expects, the ones
behind the range asked for are therefore read along with it, and their batches wait for their turn.
Stores whose partitions all belong to it are read as a whole where that is possible
(`store_read`); every other range is a separate read (`range_read`), with its group of the pool.
Statistics and corrupt records are added when the turn of a range comes. All that are under way are
read to their ends before a batch is delivered, so no lease waits for the user, unless the batches
that wait are too many.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from tubemq_client._core.batch import MessageBatch
from tubemq_client._core.effects import Deliver
from tubemq_client._core.parallel_read import Subrange
from tubemq_client._core.pipeline import WIDTH, Lane, run_one
from tubemq_client._core.retention import store_of
from tubemq_client._core.store_read import StoreReads
from tubemq_client.model import INDEX_ENTRY_BYTES, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tubemq_client._core.batch import DecodePolicy, RawBatch
    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.range_read import RangeRead
    from tubemq_client._core.read_stats import ReadStats
    from tubemq_client._core.retention import SharedRetentionChecks
    from tubemq_client._core.store_read import Register

    Begin = Callable[[Subrange], Conversation[RangeRead]]
    """Finds the broker of a range and creates its read."""

__all__ = ["ReadAhead"]

_NARROW: Final = 4_096
"""Entries of a range up to which it is read ahead."""

_CHUNK: Final = 64
"""Ranges that are read together, with the others of their stores; as many at a time as `WIDTH`."""

_BATCHES: Final = 128
"""Batches that wait for their turn; with more only the range asked for is read on."""


class _UnderWay(Lane[None]):
    """Range under way: its lane, its statistics, and its read, which has the lease."""

    def __init__(
        self, subrange: Subrange, begin: Begin, batches: list[RawBatch] | None = None
    ) -> None:
        super().__init__(self._reading(begin) if batches is None else self._delivering(batches))
        self.subrange = subrange
        self.read: RangeRead | None = None

    def _reading(self, begin: Begin) -> Conversation[None]:
        self.read = yield from begin(self.subrange)
        yield from self.read.conversation()

    def _delivering(self, batches: list[RawBatch]) -> Conversation[None]:
        """Deliver what was read with the whole store."""
        subrange, range_ = self.subrange, self.subrange.range
        subrange.stats.fetches += len(batches)
        ends = [*(raw.start for raw in batches[1:]), range_.end]
        for raw, end in zip(batches, ends, strict=False):  # a partition may have no record
            count = len(raw.messages)
            batch = MessageBatch(
                range_.partition,
                raw,
                end=end,
                count=count,
                exact=end - raw.start == INDEX_ENTRY_BYTES * count,
                policy=subrange.policy,
            )
            subrange.stats.count(batch, subrange.policy)
            yield Deliver(batch)

    def collect(self) -> int:
        """Keep what was delivered for the turn of the range; return the number of batches."""
        count = len(self.delivered)
        while self.delivered:
            self.subrange.add(self.delivered.popleft())
        return count

    def release(self) -> Conversation[None]:
        """End the read and give its partition back."""
        self.close()
        if self.read is not None:
            yield from self.read.release()


@dataclass
class ReadAhead:
    """Ranges that a reader expects, and those of them that are under way.

    `policy`, `stats` and `proofs` are the reader's; `begin` creates the read of a range, and
    `register` its registration.
    """

    policy: DecodePolicy
    stats: ReadStats
    proofs: SharedRetentionChecks
    begin: Begin
    register: Register
    _stores: StoreReads = field(init=False)
    _expected: dict[OffsetRange, None] = field(default_factory=dict)
    _under_way: dict[OffsetRange, _UnderWay] = field(default_factory=dict)
    _going: list[_UnderWay] = field(default_factory=list)
    """Ranges under way that are not over, in order."""
    _waiting: int = 0
    """Batches that wait for their turn."""

    def __post_init__(self) -> None:
        self._stores = StoreReads(self.register, self.proofs)

    def expect(self, ranges: Iterable[OffsetRange]) -> None:
        """Note ranges that will be read, in this order."""
        narrow = [range_ for range_ in ranges if 0 < range_.entries <= _NARROW]
        if len(narrow) > 1:
            self._expected.update(dict.fromkeys(narrow))

    def has(self, range_: OffsetRange) -> bool:
        """Return whether to read the range here: once, if it was expected."""
        return range_ in self._expected or range_ in self._under_way

    def read(self, range_: OffsetRange) -> Conversation[None]:
        """Deliver the batches of a range; the ranges expected behind it are read along with it."""
        if range_ not in self._under_way:
            chunk = self._next_chunk(range_)
            found = {} if self.policy.filters else (yield from self._stores.read(chunk))
            for one in chunk:
                subrange = Subrange.of(one, self.policy)
                self._under_way[one] = _UnderWay(subrange, self.begin, found.get(one))
                self._going.append(self._under_way[one])
        known_gaps, head = len(self.stats.gaps), self._under_way[range_]
        while not head.over or head.subrange.ready:
            yield from self._run(head)
            while head.subrange.ready:
                part = head.subrange.ready.popleft()
                self._waiting -= 1
                part.add_to(self.stats, self.policy)
                yield Deliver(part.batch)
        self.stats.add_work(head.subrange.stats, known_gaps)
        if head.error is not None:
            raise head.error
        del self._under_way[range_]

    def _next_chunk(self, range_: OffsetRange) -> list[OffsetRange]:
        """Remove the range and those to read along with it, which are the rest of whole stores."""
        others = islice((one for one in self._expected if one != range_), _CHUNK - 1)
        chunk = dict.fromkeys([range_, *others])
        stores = {store_of(one.partition) for one in chunk}
        rest = (one for one in self._expected if store_of(one.partition) in stores)
        chunk.update(dict.fromkeys(rest))
        for one in chunk:
            del self._expected[one]
        return list(chunk)

    def end(self, range_: OffsetRange | None = None) -> Conversation[None]:
        """Give back everything under way and expect nothing more; nothing if the range was read."""
        yield from self._stores.release()
        if range_ is not None and range_ not in self._under_way:
            return
        under_way = list(self._under_way.values())
        self._under_way.clear()
        self._going.clear()
        self._waiting = 0
        self._expected.clear()
        for one in under_way:
            yield from one.release()

    def _run(self, head: _UnderWay) -> Conversation[None]:
        """Read what is under way to its end, or until too many batches wait."""
        while True:
            if self._waiting >= _BATCHES:
                if head.subrange.ready:
                    return
                lanes = [head]
            else:
                lanes = self._going[:WIDTH]
            if (lane := (yield from run_one(lanes))) is None:
                return
            self._waiting += lane.collect()
            if lane.over:
                self._going.remove(lane)
