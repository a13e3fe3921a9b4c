"""Asyncio exact range reader.

Delivers `[start, end)` of a partition: each record once, none outside, from brokers alone (the
master is asked only when no broker addresses are given). The rules are in `_core.range_read`.
`sync.ranges` is its counterpart.
"""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from tubemq_client import errors
from tubemq_client._core.parallel_read import Subrange, Subranges, check_parallel
from tubemq_client._core.pipeline import together
from tubemq_client._io.reader_base import ReaderBase
from tubemq_client.aio._base import AsyncClient
from tubemq_client.aio._parallel import ParallelReader
from tubemq_client.model import OffsetRange

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from tubemq_client._core.batch import MessageBatch
    from tubemq_client.model import Anchor, Partition

__all__ = ["RangeReader"]


class RangeReader(ReaderBase, AsyncClient):
    """Reader of exact offset ranges.

    `group` names the pool `<group>.r00…` (and probes `.p00…`) of `pool_size` groups; `slot_seed`
    spreads readers of different windows over it. `metadata` is the answer of a look-up of the
    topic, if known. `filters` are stream ids. `deadline_ms` bounds the
    time without progress. `gap_policy` "fail" raises `errors.DataLoss` when retention has removed
    part of a range, "skip" continues and records the gap in `stats`. `corrupt_records` is "fail",
    "drop" or "quarantine" (calls `quarantine`). Delivery: exactly the range, once per `read()`.
    Several ranges may be read at once; `stats` then counts them together.
    """

    async def expect(self, ranges: Iterable[OffsetRange]) -> None:
        """Announce that all of `ranges` will be read, with ``gap_policy="fail"``.

        Each store is then asked once what retention has removed, after its last range, and
        `errors.DataLoss` may be raised there for an earlier range. Results are reliable only after
        all ranges were read. Reads with `parallel` are not included.
        """
        self._proofs.expect(ranges)

    async def read(
        self, range_: OffsetRange, *, parallel: int = 1
    ) -> AsyncGenerator[MessageBatch, None]:
        """Yield the batches of `range_`, in offset order; close the iterator to stop early.

        Raises `errors.RangeError` (`DataLoss`, `LogTruncated`, `CorruptRecord`, `RangeStalled`)
        when the range cannot be delivered whole; never delivers part of it silently. Use
        `contextlib.aclosing` to stop early at a known moment; cancelling the task and leaving the
        `async with` of the reader give the partition back too.

        With `parallel` as many connections, opened for this read, read sub-ranges concurrently,
        because a broker serves a connection on one thread. Batches arrive in the same order; some
        dozens of each sub-range are read ahead.
        """
        check_parallel(parallel, self._pool.size)
        broker = await self._driver.run(self._finding_broker(range_))
        if parallel == 1:
            read = self._range_read(range_, broker, self._decode, self.stats, proofs=self._proofs)
            stream = self._driver.stream(read.conversation(), read.release())
            async with aclosing(stream) as batches:
                async for batch in batches:
                    yield batch
            return
        subranges, known_gaps = Subranges(range_, self._decode, parallel), len(self.stats.gaps)
        work = ParallelReader(subranges, self._settings, partial(self._read_subrange, broker))
        self._under_way.add(work)
        try:
            async with aclosing(work.parts()) as parts:
                async for part in parts:
                    if isinstance(part, Subrange):
                        self.stats.add_work(part.stats, known_gaps)
                    else:
                        part.add_to(self.stats, self._decode)
                        yield part.batch
        finally:
            self._under_way.discard(work)

    async def close(self) -> None:
        """Give back ranges that are being read, and close every connection that is not a session's.

        May be called twice.
        """
        for work in list(self._under_way):
            await work.stop()
        await super().close()

    async def first_record(self, range_: OffsetRange) -> Anchor | None:
        """Return the first record of `range_` (after the broker's filter), or None.

        One short read, given back at once; not counted in `stats`. Raises like `read`.
        """
        async with aclosing(self._look(range_)) as batches:
            async for batch in batches:
                if (anchor := batch.first()) is not None:
                    return anchor
        return None

    async def holds(self, partition: Partition, anchor: Anchor, upto: int) -> bool | None:
        """Return whether the log still has the anchor's record at its offset, before `upto`.

        False proves that the log, or this part of it, was replaced; None that retention has removed
        the record, or its data alone. One short read with the filters of this reader, which must be
        the anchor's. Raises like `read` if the broker does not answer.
        """
        return (await self.holds_each([(partition, anchor, upto)]))[0]

    async def holds_each(
        self, anchors: Iterable[tuple[Partition, Anchor, int]]
    ) -> list[bool | None]:
        """Return the answer of `holds` for each of several, which are asked at the same time."""
        questions = list(anchors)
        seen = await self._driver.run(self._seen(questions))
        return [
            found or await self._searched(*question)
            for found, question in zip(seen, questions, strict=True)
        ]

    async def _searched(self, partition: Partition, anchor: Anchor, upto: int) -> bool | None:
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

    async def readable_from(self, range_: OffsetRange) -> int:
        """Return the first offset of `range_` with a readable record of the store."""
        return (await self.readable_from_each([range_]))[0]

    async def readable_from_each(self, ranges: Iterable[OffsetRange]) -> list[int]:
        """Return the answer of `readable_from` for each of several, asked at the same time."""
        return await self._driver.run(together([self._finding_data(range_) for range_ in ranges]))

    async def _look(self, range_: OffsetRange) -> AsyncGenerator[MessageBatch, None]:
        read = self._identities_of(range_, await self._driver.run(self._finding_broker(range_)))
        async with aclosing(self._driver.stream(read.conversation(), read.release())) as batches:
            async for batch in batches:
                yield batch
