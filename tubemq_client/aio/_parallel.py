"""Tasks that read sub-ranges of a range, each with a separate connection.

`_core.parallel_read` chooses the sub-ranges. The user's task gets their batches in order; the
others fetch, check and split, and wait when too much was read ahead. `sync._parallel` is the
counterpart.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from tubemq_client._core.parallel_read import STOP_S, Subrange
from tubemq_client._io.asyncio_driver import AsyncDriver

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from tubemq_client._core.parallel_read import ParallelBatch, Subranges
    from tubemq_client._core.range_read import RangeRead
    from tubemq_client.model import ClientSettings

__all__ = ["ParallelReader"]


class ParallelReader:
    """Range read by several tasks. `begin` creates the read of a sub-range."""

    def __init__(
        self, subranges: Subranges, settings: ClientSettings, begin: Callable[[Subrange], RangeRead]
    ) -> None:
        self._pieces = subranges
        self._settings = settings
        self._begin = begin
        self._changed = asyncio.Condition()
        self._stopped = False
        self._tasks: list[asyncio.Task[None]] = []

    async def parts(self) -> AsyncGenerator[ParallelBatch | Subrange, None]:
        """Yield all batches in the order of the range; each sub-range follows its last batch.

        An exception of reading a sub-range is raised when its turn comes.
        """
        self._tasks += [
            asyncio.create_task(self._work(), name="tubemq-read")
            for _ in range(self._pieces.workers)
        ]
        try:
            while (part := await self._next()) is not None:
                yield part
                if isinstance(part, Subrange) and part.error is not None:
                    raise part.error
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Stop reading and give everything back.

        Requests in flight are awaited for a short time, since one may be a registration; then
        connections are closed and brokers expire leases.
        """
        async with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _next(self) -> ParallelBatch | Subrange | None:
        async with self._changed:
            while not self._pieces.is_over(stopped=self._stopped):
                if (part := self._pieces.take()) is not None:
                    self._changed.notify_all()
                    return part
                await self._changed.wait()
            return None

    # -- in the tasks ---------------------------------------------------------------------------

    async def _work(self) -> None:
        driver = AsyncDriver(self._settings)
        try:
            while (subrange := await self._next_subrange()) is not None:
                error = await self._read(driver, subrange)
                async with self._changed:
                    self._pieces.end(subrange, error)
                    self._changed.notify_all()
        finally:
            await driver.close()

    async def _next_subrange(self) -> Subrange | None:
        async with self._changed:
            while not (self._stopped or self._pieces.all_begun):
                if self._pieces.may_begin:
                    return self._pieces.begin()
                await self._changed.wait()
            return None

    async def _read(self, driver: AsyncDriver, subrange: Subrange) -> BaseException | None:
        read = self._begin(subrange)
        try:
            async with aclosing(driver.stream(read.conversation(), read.release())) as batches:
                async for batch in batches:
                    async with self._changed:
                        while subrange.full and not self._stopped:
                            await self._changed.wait()
                        if self._stopped:
                            return None
                        subrange.add(batch)
                        self._changed.notify_all()
        except Exception as error:  # noqa: BLE001 - the user's task raises it
            return error
        return None
