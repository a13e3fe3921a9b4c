"""The sync and the asyncio API behind one interface: scenarios are written once, as blocking code.

`BLOCKING` is the sync API as it is. `LoopShell` drives the asyncio API from a test's own threads:
every call is a task on a private loop that runs next to the test, so heartbeats continue while a
test waits. When it is closed it asserts that nothing is left on the loop: no task, no socket, no
unhandled exception.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, Self

from tubemq_client import aio, sync

CALL_TIMEOUT_S = 100


class Shell:
    """Classes to build clients with; each a context manager with blocking methods."""

    def __init__(self, name: str, module: Any, wrap: Callable[[Any], Any] = lambda made: made):
        def builder(kind: Any) -> Callable[..., Any]:
            return lambda *args, **options: wrap(kind(*args, **options))

        self.name = name
        self.Metadata = builder(module.Metadata)
        self.RangeReader = builder(module.RangeReader)
        self.Producer = builder(module.Producer)
        self.AssignedConsumer = builder(module.AssignedConsumer)
        self.Consumer = builder(module.Consumer)

    def __repr__(self) -> str:
        return self.name


BLOCKING = Shell("sync", sync)


class LoopShell(Shell):
    """The asyncio shell behind blocking calls; a context manager, as its loop must end."""

    def __init__(self) -> None:
        super().__init__("aio", aio, lambda client: OnLoop(client, self.wait))
        self._loop = asyncio.new_event_loop()
        self._complaints: list[dict[str, Any]] = []
        self._loop.set_exception_handler(lambda _, context: self._complaints.append(context))
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            assert self.wait(_left_over()) == []
            assert self._complaints == []
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT_S)


class OnLoop:
    """A client whose coroutines run on another thread's loop while the caller waits."""

    def __init__(self, client: Any, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._client = client
        self._wait = wait

    def __enter__(self) -> Self:
        self._wait(self._client.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._wait(self._client.__aexit__(*error))

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._client, name)
        if inspect.isasyncgenfunction(value):
            return lambda *args, **options: self._iterate(value(*args, **options))
        if inspect.iscoroutinefunction(value):
            return lambda *args, **options: self._wait(value(*args, **options))
        return value

    def _iterate(self, values: AsyncGenerator[Any, None]) -> Iterator[Any]:
        try:
            while True:
                found, value = self._wait(_next(values))
                if not found:
                    return
                yield value
        finally:
            self._wait(_close(values))


async def _next(values: AsyncGenerator[Any, None]) -> tuple[bool, Any]:
    # A StopAsyncIteration cannot cross a future, so the end is a value here.
    async for value in values:
        return True, value
    return False, None


async def _close(values: AsyncGenerator[Any, None]) -> None:
    await values.aclose()


async def _left_over() -> list[str]:
    """Tasks still on the loop after it had time to finish callbacks."""
    await asyncio.sleep(0.05)
    me = asyncio.current_task()
    return [repr(task) for task in asyncio.all_tasks() if task is not me]
