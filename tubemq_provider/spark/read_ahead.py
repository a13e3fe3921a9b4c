"""Read-ahead on a separate thread while earlier data is written.

A task that fetches, then writes, then fetches again leaves its broker idle while it compresses a
row group, and its core idle while it waits for the broker. Here a thread produces items in the
order of their consumption, into a bounded buffer. This module must not depend on the items beyond
their size.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterator
from typing import Final, Generic, Self, TypeVar

STOP_S: Final = 5.0
"""Seconds that an early exit waits for the thread, which may be waiting for a broker."""

T = TypeVar("T")


class ReadAhead(Generic[T]):
    """Items of a generator, produced on a thread while a `with` statement is open.

    Items come with their sizes in bytes. The buffer holds at most `limit` bytes, or a single larger
    item; one more may be in production. An exception of `items` is raised in the consumer. `items`
    runs, and is closed, on the thread only; it is closed when the body is left, unless that takes
    longer than `STOP_S`.
    """

    def __init__(self, items: Generator[tuple[T, int], None, None], limit: int) -> None:
        self._items = items
        self._limit = limit
        self._changed = threading.Condition()
        self._waiting: deque[tuple[T, int]] = deque()
        self._bytes = 0
        self._finished = self._stopped = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="tubemq-ahead", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join(STOP_S)

    def __iter__(self) -> Iterator[T]:
        while (item := self._take()) is not None:
            yield item[0]
        if self._error is not None:
            raise self._error

    def _take(self) -> tuple[T, int] | None:
        """Return the next item; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._finished)
            if not self._waiting:
                return None
            item = self._waiting.popleft()
            self._bytes -= item[1]
            self._changed.notify_all()
            return item

    # -- on the thread --------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            try:
                for item in self._items:
                    if not self._put(item):
                        break
            finally:
                self._items.close()
        except BaseException as error:  # noqa: BLE001 - raised in the consumer
            self._error = error
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def _put(self, item: tuple[T, int]) -> bool:
        """Add an item to the buffer, once there is room; return False if the consumer has
        stopped."""
        size = item[1]
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopped or not self._waiting or self._bytes + size <= self._limit
            )
            if self._stopped:
                return False
            self._waiting.append(item)
            self._bytes += size
            self._changed.notify_all()
            return True
