"""One daemon thread with an event loop, and the ways to run work on it from other threads.

All state of an embedded server belongs to this thread; other threads reach it through `do` or
`wait`. It knows nothing of TubeMQ.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tubemq_client.errors import ClosedError

__all__ = ["LoopThread"]

T = TypeVar("T")

_TIMEOUT_S = 30.0


class LoopThread:
    """Event loop that runs between `start` and `stop`; may be started again afterwards."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        return self._loop is not None

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_run_forever, args=(self._loop,), name=self._name, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop the loop and wait for the thread. Idempotent."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_TIMEOUT_S)

    def do(self, work: Callable[[], T]) -> T:
        """Call `work` on the thread, return its result. Raises what it raises, or `ClosedError`."""

        async def run() -> T:
            return work()

        return self.wait(run)

    def wait(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await `work()` on the thread, return its result. Raises what that raises, or
        `ClosedError`.

        Blocks for at most 30 s.
        """
        if self._loop is None:
            raise ClosedError("the embedded server is not running")

        async def run() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_TIMEOUT_S)


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
