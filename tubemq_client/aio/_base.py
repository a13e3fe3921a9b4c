"""Base of every asyncio client object: settings, a driver, an identity, a context manager.

Private to `aio`; `sync._base` is its counterpart. Nothing here decides anything.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tubemq_client import errors
from tubemq_client._io.asyncio_driver import AsyncDriver
from tubemq_client._io.asyncio_sync import play
from tubemq_client._io.client_base import ClientBase
from tubemq_client._io.closing import AsyncClosing
from tubemq_client._io.routines import Apply, Do, Wait
from tubemq_client.aio.session import Session

if TYPE_CHECKING:
    from tubemq_client._io.routines import Routine, Step
    from tubemq_client.model import ClientSettings

__all__ = ["AsyncClient"]

T = TypeVar("T")


class AsyncClient(AsyncClosing, ClientBase):
    """Base of the classes of the asyncio API. Opens nothing until first used."""

    _driver: AsyncDriver

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        shared = settings.connections if isinstance(settings, Session) else None
        self._driver = AsyncDriver(settings, shared)

    async def start(self) -> None:
        """Start the client; entering the context does it too.

        Raises `errors.ConfigError` the second time.
        """
        self._begin()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def close(self) -> None:
        """Close every connection that is not a session's; may be called twice."""
        await self._driver.close()

    async def _do(self, step: Do) -> Any:
        return await self._driver.run(step.conversation)

    async def _play(self, routine: Routine[T]) -> T:
        return await play(routine, self._take)

    async def _take(self, step: Step) -> Any:
        if isinstance(step, Do):
            return await self._do(step)
        if isinstance(step, Wait):
            return await step.notifier.wait(step.seen, step.timeout_s)
        if isinstance(step, Apply):
            try:
                result = step.function(step.argument)
                return await result if inspect.isawaitable(result) else result
            except asyncio.CancelledError as error:
                if (me := asyncio.current_task()) is not None and me.cancelling():
                    raise
                raise errors.LocalError("a callback awaited what others cancelled") from error
        return await self._driver.finish(step.conversation)
