"""What tasks of one client need: a bell, and routines to play.

Private to `aio`; `sync._sync` is its twin, which also makes threads take turns.
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
    """Wakes all that wait. Read `count` before looking whether to wait: a ring in between is then
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


async def play(routine: Routine[T], take: Callable[[Step], Awaitable[Any]]) -> T:
    """The result of `routine`, whose steps are given to `take`."""
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            step = routine.send(answer) if failure is None else routine.throw(failure)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            answer = failure = None  # its traceback leads here: that would be a circle
        try:
            answer = await take(step)
        except BaseException as error:  # noqa: BLE001 - the routine hears of it, cancelling too
            failure = error
