"""Threads that read sub-ranges of a range, each with a separate connection.

`_core.parallel_read` chooses the sub-ranges. The user's thread gets their batches in order; the
threads fetch, check and split, and wait when too much was read ahead. `aio._parallel` is the
counterpart.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tubemq_client._core.parallel_read import STOP_S, Subrange
from tubemq_client._io.driver import BlockingDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tubemq_client._core.parallel_read import ParallelBatch, Subranges
    from tubemq_client._core.range_read import RangeRead
    from tubemq_client.model import ClientSettings

__all__ = ["ParallelReader"]


class ParallelReader:
    """Range read by several threads. `begin` creates the read of a sub-range."""

    def __init__(
        self, subranges: Subranges, settings: ClientSettings, begin: Callable[[Subrange], RangeRead]
    ) -> None:
        self._pieces = subranges
        self._settings = settings
        self._begin = begin
        self._changed = threading.Condition()
        self._stopped = False
        self._drivers: set[BlockingDriver] = set()
        self._threads = [
            threading.Thread(target=self._work, name="tubemq-read", daemon=True)
            for _ in range(subranges.workers)
        ]

    def parts(self) -> Generator[ParallelBatch | Subrange, None, None]:
        """Yield all batches in the order of the range; each sub-range follows its last batch.

        An exception of reading a sub-range is raised when its turn comes.
        """
        for thread in self._threads:
            thread.start()
        try:
            while (part := self._next()) is not None:
                yield part
                if isinstance(part, Subrange) and part.error is not None:
                    raise part.error
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop reading and give everything back.

        Requests in flight are awaited for a short time, since one may be a registration; then
        connections are closed and brokers expire leases.
        """
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        patience = time.monotonic() + STOP_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, patience - time.monotonic()))
        for driver in list(self._drivers):
            driver.close()

    def _next(self) -> ParallelBatch | Subrange | None:
        with self._changed:
            while not self._pieces.is_over(stopped=self._stopped):
                if (part := self._pieces.take()) is not None:
                    self._changed.notify_all()
                    return part
                self._changed.wait()
            return None

    # -- on the threads -------------------------------------------------------------------------

    def _work(self) -> None:
        driver = BlockingDriver(self._settings)
        self._drivers.add(driver)
        try:
            while (subrange := self._next_subrange()) is not None:
                error = self._read(driver, subrange)
                with self._changed:
                    self._pieces.end(subrange, error)
                    self._changed.notify_all()
        finally:
            self._drivers.discard(driver)
            driver.close()

    def _next_subrange(self) -> Subrange | None:
        with self._changed:
            while not (self._stopped or self._pieces.all_begun):
                if self._pieces.may_begin:
                    return self._pieces.begin()
                self._changed.wait()
            return None

    def _read(self, driver: BlockingDriver, subrange: Subrange) -> BaseException | None:
        read = self._begin(subrange)
        batches = driver.stream(read.conversation(), read.release())
        try:
            for batch in batches:
                with self._changed:
                    while subrange.full and not self._stopped:
                        self._changed.wait()
                    if self._stopped:
                        return None
                    subrange.add(batch)
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - the user's thread raises it
            return error
        finally:
            batches.close()
        return None
