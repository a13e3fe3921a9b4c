"""Connections that several blocking clients of one process share.

A client has connections of its own by default, which is simplest and keeps one client's large reads
out of another's way. Many small clients do better with one connection to each server.
`aio.session` is its twin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubemq_client._io.closing import Closing
from tubemq_client._io.pool import BlockingPool
from tubemq_client._io.shared import SharedSettings

if TYPE_CHECKING:
    from tubemq_client.model import ClientSettings

__all__ = ["Session"]


class Session(Closing, SharedSettings):
    """Settings that come with connections: give it to clients in place of its settings.

    Closing a client leaves the connections open for the others; what the client had in flight is
    then still answered or times out. Closing the session fails every client on it, so close it
    last. In another process (it may be pickled) it is its settings and shares nothing.
    """

    __slots__ = ()
    connections: BlockingPool

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings, BlockingPool(settings))

    def close(self) -> None:
        """Close every connection. Safe to call twice."""
        self.connections.close()
