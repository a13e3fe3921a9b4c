"""Connections that several blocking clients of one process share.

A client has connections of its own by default, which is simplest and keeps one client's large reads
out of another's way. Many small clients do better with one connection to each server.
`aio.session` is its twin.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from rocketmq_client._wire.codec import ROCKETMQ
from rocketmq_client.model import ClientSettings
from tubemq_client._io.closing import Closing
from tubemq_client._io.pool import BlockingPool

__all__ = ["Session"]


class Session(Closing, ClientSettings):
    """Settings that come with connections: give it to clients in place of its settings.

    Closing a client leaves the connections open for the others. Closing the session fails every
    client on it, so close it last. In another process (it may be pickled) it is its settings and
    shares nothing.
    """

    __slots__ = ("connections",)
    connections: BlockingPool

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(*_values(settings))
        object.__setattr__(self, "connections", BlockingPool(settings.network(), ROCKETMQ))

    def __reduce__(self) -> tuple[Any, ...]:
        return (ClientSettings, _values(self))

    def close(self) -> None:
        """Close every connection. Safe to call twice."""
        self.connections.close()


def _values(settings: ClientSettings) -> tuple[Any, ...]:
    return tuple(getattr(settings, field.name) for field in fields(ClientSettings))
