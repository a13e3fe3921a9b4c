"""Base of sync client objects: settings, a driver, a cluster, and `close`.

Private to `sync`; `aio._base` is the asyncio version. It contains no logic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_client._core.cluster import Cluster
from rocketmq_client._wire.codec import ROCKETMQ
from rocketmq_client.sync.session import Session
from tubemq_client._io.closing import Closing
from tubemq_client._io.driver import BlockingDriver

if TYPE_CHECKING:
    from rocketmq_client.model import ClientSettings

__all__ = ["BlockingClient"]


class BlockingClient(Closing):
    """Base class of the sync API. Opens nothing until first used."""

    def __init__(self, settings: ClientSettings) -> None:
        shared = settings.connections if isinstance(settings, Session) else None
        self._driver = BlockingDriver(settings.network(), shared, ROCKETMQ)
        self._cluster = Cluster(settings)

    def close(self) -> None:
        """Close all connections except those of a session. Safe to call twice."""
        self._driver.close()
