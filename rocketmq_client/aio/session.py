"""Connections that several asyncio clients of one event loop share.

By default each client opens its own connections, which is simplest and separates large reads from
other clients. Many small clients should share one connection to each server. `sync.session` is the
sync version.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from rocketmq_client._wire.codec import ROCKETMQ
from rocketmq_client.model import ClientSettings
from tubemq_client._io.asyncio_pool import AsyncPool
from tubemq_client._io.closing import AsyncClosing

__all__ = ["Session"]


class Session(AsyncClosing, ClientSettings):
    """Settings with shared connections: pass it to clients in place of settings.

    Closing a client leaves the connections open for the others. Closing the session fails all its
    clients, so close it last. In another process (it can be pickled) it only has the settings and
    shares nothing.
    """

    __slots__ = ("connections",)
    connections: AsyncPool

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(*_values(settings))
        object.__setattr__(self, "connections", AsyncPool(settings.network(), ROCKETMQ))

    def __reduce__(self) -> tuple[Any, ...]:
        return (ClientSettings, _values(self))

    async def close(self) -> None:
        """Close every connection. Safe to call twice."""
        await self.connections.close()


def _values(settings: ClientSettings) -> tuple[Any, ...]:
    return tuple(getattr(settings, field.name) for field in fields(ClientSettings))
