"""Connections that several asyncio clients of one event loop share.

By default a client has private connections, which is simplest and keeps its large reads from
delaying other clients. Many small clients do better with one connection to each server.
`sync.session` is its counterpart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubemq_client._io.asyncio_pool import AsyncPool
from tubemq_client._io.closing import AsyncClosing
from tubemq_client._io.shared import SharedSettings

if TYPE_CHECKING:
    from tubemq_client.model import ClientSettings

__all__ = ["Session"]


class Session(AsyncClosing, SharedSettings):
    """Settings with shared connections; pass it to clients in place of their settings.

    Closing a client leaves the connections open for the others; its requests in flight are
    still answered or time out. Closing the session fails all its clients, so close it last. When it
    is pickled for another process, only its settings are, and nothing is shared.
    """

    __slots__ = ()
    connections: AsyncPool

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings, AsyncPool(settings))

    async def close(self) -> None:
        """Close every connection; may be called twice."""
        await self.connections.close()
