"""What every asyncio client object has: settings, a driver, an identity, a closing brace.

Private to `aio`; `sync._base` is its twin. Nothing here decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from tubemq_client._io.asyncio_driver import AsyncDriver
from tubemq_client._io.faces import ClientFace
from tubemq_client.aio.session import Session

if TYPE_CHECKING:
    from types import TracebackType

    from tubemq_client.model import ClientSettings

__all__ = ["AsyncClient"]


class AsyncClient(ClientFace):
    """Base of the asyncio shell's classes. Opens nothing until first used."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        shared = settings.connections if isinstance(settings, Session) else None
        self._driver = AsyncDriver(settings, shared)

    async def start(self) -> None:
        """Begin; entering the context does it too. Raises `errors.ConfigError` the second time."""
        self._begin()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection that is not a session's. Safe to call twice."""
        await self._driver.close()
