"""Synchronisation of one client's tasks: a notifier, and routines.

`thread_sync` is its counterpart, which also serialises threads.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tubemq_client._io.routines import Routine, Step

__all__ = ["Notifier", "play"]

T = TypeVar("T")


class Notifier:
    """Condition that wakes all waiters.

    Read `count` before checking whether to wait: `wait` then notices a call of `notify` in between.
    """

    def __init__(self) -> None:
        self.count = 0
        self._notified = asyncio.Event()

    def notify(self) -> None:
        self.count += 1
        self._notified.set()
        self._notified = asyncio.Event()

    async def wait(self, seen: int, timeout_s: float | None) -> None:
        """Return when `notify` was called since `count` was `seen`, or after the timeout."""
        if self.count != seen:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._notified.wait()
        except TimeoutError:
            pass


async def play(routine: Routine[T], take: Callable[[Step], Awaitable[Any]]) -> T:
    """Return the result of `routine`, whose steps are performed by `take`."""
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            step = routine.send(answer) if failure is None else routine.throw(failure)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            answer = failure = None  # its traceback has this frame: that would be a reference cycle
        try:
            answer = await take(step)
        except BaseException as error:  # noqa: BLE001 - raised in the routine, cancellation too
            failure = error
