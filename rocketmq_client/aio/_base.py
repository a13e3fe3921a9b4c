"""Base of asyncio client objects: settings, a driver, a cluster, and `close`.

Private to `aio`; `sync._base` is the sync version. It contains no logic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_client._core.cluster import Cluster
from rocketmq_client._wire.codec import ROCKETMQ
from rocketmq_client.aio.session import Session
from tubemq_client._io.asyncio_driver import AsyncDriver
from tubemq_client._io.closing import AsyncClosing

if TYPE_CHECKING:
    from rocketmq_client.model import ClientSettings

__all__ = ["AsyncClient"]


class AsyncClient(AsyncClosing):
    """Base class of the asyncio API. Opens nothing until first used."""

    def __init__(self, settings: ClientSettings) -> None:
        shared = settings.connections if isinstance(settings, Session) else None
        self._driver = AsyncDriver(settings.network(), shared, ROCKETMQ)
        self._cluster = Cluster(settings)

    async def close(self) -> None:
        """Close all connections except those of a session. Safe to call twice."""
        await self._driver.close()
