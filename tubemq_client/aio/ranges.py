"""The exact range reader on asyncio.

Deliver `[start, end)` of a partition: each record once, none outside, from brokers alone (the
master is asked only when no broker addresses are given). The rules are `_core.range_read`'s.
`sync.ranges` is its twin.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Literal

from tubemq_client import errors
from tubemq_client._core.batch import DecodePolicy
from tubemq_client._core.identity import ReaderPool
from tubemq_client._core.master import fetch_topic_metadata
from tubemq_client._core.range_read import RangeRead, ReadPolicy, ReadStats, broker_of
from tubemq_client._wire.native import announce
from tubemq_client.aio._base import AsyncClient
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

    async def read(self, range_: OffsetRange) -> AsyncGenerator[MessageBatch, None]:
        """The batches of `range_`, in offset order. Close the iterator to stop early.

        Raises `errors.RangeError` (`DataLoss`, `LogTruncated`, `CorruptRecord`, `RangeStalled`)
        when the range cannot be delivered whole; never delivers part of it silently. Use
        `contextlib.aclosing` to stop early at a known moment; cancelling the task and leaving the
        `async with` of the reader give the partition back too.
        """
        read = self._range_read(range_, await self._broker(range_))
        async with aclosing(self._driver.stream(read.conversation(), read.release())) as batches:
            async for batch in batches:
                yield batch

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

    def _range_read(self, range_: OffsetRange, broker: BrokerNode) -> RangeRead:
        return RangeRead(
            range_,
            broker,
            pool=self._pool,
            ids=self._ids,
            decode=self._decode,
            policy=ReadPolicy(self._gap_policy, self._deadline_ms),
            stats=self.stats,
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
