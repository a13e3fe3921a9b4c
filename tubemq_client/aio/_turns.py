"""A bell for the tasks of one consumer.

Private to `aio`; `sync._turns` is its twin, which also makes threads take turns.
"""

from __future__ import annotations

import asyncio

__all__ = ["Bell"]


class Bell:
    """Wakes whoever waits. Read `count` before looking whether to wait: a ring in between is then
    noticed by `wait`."""

    def __init__(self) -> None:
        self.count = 0
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self.count += 1
        self._rung.set()
        self._rung = asyncio.Event()

    async def wait(self, seen: int, timeout_s: float | None) -> None:
        """Return when the bell has rung since `count` was `seen`, or after the timeout."""
        if self.count != seen:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        except TimeoutError:
            pass
