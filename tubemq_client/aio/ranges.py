"""The exact range reader on asyncio.

Deliver `[start, end)` of a partition: each record once, none outside, from brokers alone (the
master is asked only when no broker addresses are given). The rules are `_core.range_read`'s.
`sync.ranges` is its twin.
"""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Literal

from tubemq_client import errors
from tubemq_client._core.batch import DecodePolicy
from tubemq_client._core.identity import ReaderPool
from tubemq_client._core.master import fetch_topic_metadata
from tubemq_client._core.range_read import RangeRead, ReadPolicy, ReadStats, broker_of
from tubemq_client._core.side_by_side import Piece, Pieces, check_parallel
from tubemq_client._wire.native import announce
from tubemq_client.aio._base import AsyncClient
from tubemq_client.aio._parallel import SideBySide
from tubemq_client.model import OffsetRange

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from tubemq_client._core.batch import CorruptEntry, MessageBatch
    from tubemq_client._core.master import TopicMetadata
    from tubemq_client.model import Anchor, BrokerNode, ClientSettings, Partition

__all__ = ["RangeReader"]


class RangeReader(AsyncClient):
    """Reads exact offset ranges.

    `group` names the pool `<group>.r00…` (and probes `.p00…`) of `pool_size` groups; `slot_seed`
    spreads readers of different windows over it. `filters` are stream ids. `deadline_ms` bounds the
    time without progress. `gap_policy` "fail" raises `errors.DataLoss` when retention has removed
    part of a range, "skip" goes on and records the gap in `stats`. `corrupt_records` is "fail",
    "drop" or "quarantine" (calls `quarantine`). Delivery: exactly the range, once per `read()`.
    Several ranges may be read at once; `stats` then counts them together.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        group: str,
        filters: Sequence[str] = (),
        brokers: Mapping[int, BrokerNode] | None = None,
        pool_size: int = 32,
        slot_seed: str = "",
        corrupt_records: Literal["fail", "drop", "quarantine"] = "fail",
        quarantine: Callable[[CorruptEntry], None] | None = None,
        gap_policy: Literal["fail", "skip"] = "fail",
        deadline_ms: int = 60_000,
    ) -> None:
        super().__init__(settings)
        self._pool = ReaderPool(group, pool_size, slot_seed)
        self._brokers = dict(brokers or {})
        self._topics: dict[str, TopicMetadata] = {}
        announce()
        self._decode = DecodePolicy(corrupt_records, quarantine, frozenset(filters))
        self._gap_policy = gap_policy
        self._deadline_ms = deadline_ms
        self.stats = ReadStats()
        self._side_by_side: set[SideBySide] = set()

    async def read(
        self, range_: OffsetRange, *, parallel: int = 1
    ) -> AsyncGenerator[MessageBatch, None]:
        """The batches of `range_`, in offset order. Close the iterator to stop early.

        Raises `errors.RangeError` (`DataLoss`, `LogTruncated`, `CorruptRecord`, `RangeStalled`)
        when the range cannot be delivered whole; never delivers part of it silently. Use
        `contextlib.aclosing` to stop early at a known moment; cancelling the task and leaving the
        `async with` of the reader give the partition back too.

        With `parallel` the range is cut into pieces that so many connections read at once, because
        a broker serves a connection on one thread; batches come in the same order, some dozens of
        each piece are read ahead. The connections are opened for this read, also on a `Session`.
        """
        check_parallel(parallel, self._pool.size)
        broker = await self._broker(range_)
        if parallel == 1:
            read = self._range_read(range_, broker, self._decode, self.stats)
            stream = self._driver.stream(read.conversation(), read.release())
            async with aclosing(stream) as batches:
                async for batch in batches:
                    yield batch
            return
        pieces, known_gaps = Pieces(range_, self._decode, parallel), len(self.stats.gaps)
        work = SideBySide(pieces, self._settings, partial(self._read_piece, broker))
        self._side_by_side.add(work)
        try:
            async with aclosing(work.parts()) as parts:
                async for found in parts:
                    if isinstance(found, Piece):
                        self.stats.add_work(found.stats, known_gaps)
                    else:
                        found.settle(self.stats, self._decode)
                        yield found.batch
        finally:
            self._side_by_side.discard(work)

    async def close(self) -> None:
        """Give back what is being read, and close every connection that is not a session's. Safe to
        call twice."""
        for work in list(self._side_by_side):
            await work.stop()
        await super().close()

    async def first_record(self, range_: OffsetRange) -> Anchor | None:
        """The first record of `range_` (after the broker's filter), or None if there is none.

        One short read, given back at once; counts in no `stats`. Raises like `read`.
        """
        async with aclosing(self._look(range_)) as batches:
            async for batch in batches:
                if (found := batch.first()) is not None:
                    return found
        return None

    async def holds(self, partition: Partition, anchor: Anchor, upto: int) -> bool | None:
        """Whether the log still has the anchor's record where it was, below the offset `upto`.

        False is proof that the log, or this part of it, is another than the one the anchor was
        taken in; None that retention has removed the place. One short read (a register, a fetch or
        two, an unregister) with the filters of this reader, which must be those that the anchor was
        taken with. Raises like `read` if the broker does not answer.
        """
        try:
            async with aclosing(self._look(OffsetRange(partition, anchor.offset, upto))) as batches:
                async for batch in batches:
                    if batch.has(anchor):
                        return True
        except errors.DataLoss:
            return None
        except errors.LogRegression:
            pass
        return False

    async def _look(self, range_: OffsetRange) -> AsyncGenerator[MessageBatch, None]:
        """A read for the records' identities alone: their contents may be anything."""
        decode = DecodePolicy("drop", None, self._decode.filters)
        read = RangeRead(
            range_,
            await self._broker(range_),
            pool=self._pool,
            ids=self._ids,
            decode=decode,
            policy=ReadPolicy("fail", self._deadline_ms),
            stats=ReadStats(),
            access=self._session.access,
        )
        async with aclosing(self._driver.stream(read.conversation(), read.release())) as batches:
            async for batch in batches:
                yield batch

    def _read_piece(self, broker: BrokerNode, piece: Piece) -> RangeRead:
        return self._range_read(piece.range, broker, piece.policy, piece.stats)

    def _range_read(
        self, range_: OffsetRange, broker: BrokerNode, decode: DecodePolicy, stats: ReadStats
    ) -> RangeRead:
        return RangeRead(
            range_,
            broker,
            pool=self._pool,
            ids=self._ids,
            decode=decode,
            policy=ReadPolicy(self._gap_policy, self._deadline_ms),
            stats=stats,
            access=self._session.access,
        )

    async def _broker(self, range_: OffsetRange) -> BrokerNode:
        partition = range_.partition
        if partition.broker_id in self._brokers:
            return self._brokers[partition.broker_id]
        found = self._topics.get(partition.topic)
        if found is None or partition not in found.partitions:
            group = f"{self._pool.group}.e"
            client_id = self._ids.consumer(group, "Meta")
            found = await self._driver.run(
                fetch_topic_metadata(self._session, partition.topic, client_id, group)
            )
            self._topics[partition.topic] = found
        return broker_of(range_, found)
